"""Tests that no key is used twice, and that float noise is on public grids.

All releases of the package are traced. If a released number is no multiple of a
public step, its lowest bits reveal the number that the noise was added to.
"""

import collections
import functools

import jax
from jax.experimental.key_reuse import _core as key_reuse
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.privacy import additive
from dpjax.privacy import draws
from dpjax.privacy import k_norm
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import hosmer_lemeshow
from dpjax.stats import roc_bands
from dpjax.stats import roc_curves as roc
from dpjax.stats.ecdf_methods import grids
from dpjax.stats.ecdf_methods import stream_noise
from dpjax.stats.ecdf_methods import streams
from dpjax.stats.quantile_methods import histogram
from dpjax.stats.quantile_methods import independent
from dpjax.stats.quantile_methods import joint
from dpjax.stats.quantile_methods import knots
from dpjax.stats.quantile_methods import records
from dpjax.stats.quantile_methods import recursive
from dpjax.stats.quantile_methods import smoothing
from dpjax.stats.quantile_methods import trees
from dpjax.stats.quantile_methods import unbounded
from experiments.methods.statistics import grid_quantiles as grid
from experiments.methods.statistics import risks
from experiments.methods.statistics import sliced_quantiles as slicing
from experiments.methods.statistics import window_quantiles as window
from tests.stats import coupling_test

REPLACE = Adjacency.REPLACE_ONE
KEY = jax.random.key(0)
COUNTS = np.arange(12.0).reshape(2, 6)


@pytest.fixture(autouse=True)
def taken(monkeypatch):
  """Marks the words that samplers take of a key as using it up."""
  table = key_reuse.key_reuse_signatures
  words = next(each for each in table if each.name == 'random_unwrap')
  monkeypatch.setitem(table, words,
                      key_reuse.KeyReuseSignature(key_reuse.Sink(0)))


def check(function, *args):
  with jax.enable_x64(True):
    key_reuse.check_key_reuse(function, *args)


@pytest.mark.every(2)
def test_a_key_that_is_used_twice_is_noticed():
  def drawn(key, data):
    one, two = jax.random.split(key)
    return draws.standard_laplace(one, ()), draws.standard_gumbel(two, ()), data

  def twice(key, data):
    return drawn(key, data), jax.random.uniform(jax.random.split(key)[1])

  check(drawn, KEY, 0.0)
  for wrong in (twice, jax.vmap(twice), lambda keys, data: jax.lax.map(
      lambda of: twice(*of), (keys, data))):
    keys = KEY if wrong is twice else jax.random.split(KEY, 3)
    with pytest.raises(jax.errors.KeyReuseError):
      check(wrong, keys, np.zeros(keys.shape))


# Choices by the largest noisy number release none of the numbers.
_CHOICES = {'interval, histogram': 1}


@pytest.mark.sound
@pytest.mark.parametrize('name', coupling_test.CASES)
def test_noise_of_numbers(name, monkeypatch):
  case, calls = coupling_test.CASES[name], collections.Counter()

  def count(module, function, kind):
    wrapped = getattr(module, function)

    def counted(*args, **kwargs):
      calls[kind] += 1
      before = calls['noise']
      noise = wrapped(*args, **kwargs)
      # What a sampler asks of other samplers is one draw.
      calls['noise'] = before
      return noise
    monkeypatch.setattr(module, function, counted)
  for module, function in ((draws, 'standard_laplace'), (k_norm, 'unit_noise'),
                           (additive, 'standard_normal')):
    count(module, function, 'noise')
  count(additive, 'grid_spacing', 'grid')
  check(case.release, KEY, case.pairs[0][0])
  assert calls['grid'] == calls['noise'] - _CHOICES.get(name, 0)


@functools.cache
def quantile_mechanisms():
  """Returns one of each quantile mechanism."""
  asked = dict(probs=(0.2, 0.5, 0.9), epsilon=1.0, lower=0.0, upper=1.0,
               adjacency=REPLACE)
  alone = independent.IndependentQuantiles(**asked)
  scanned = {name: value for name, value in asked.items()
             if name not in ('lower', 'upper')}
  mechanisms = [
      *(independent.IndependentQuantiles(cost=cost, **asked)
        for cost in independent.COSTS),
      *(grid.GridQuantiles(candidates=(0.1, 0.4, 0.7), rule=rule, **asked)
        for rule in grid.RULES),
      *(unbounded.UnboundedQuantiles(bound=0.5, downwards=down, **scanned)
        for down in (False, True)),
      *(smoothing.Smoothed(inner=alone, kind=kind) for kind in smoothing.KINDS),
      *(kind(**asked)
        for kind in (recursive.RecursiveQuantiles, joint.JointQuantiles,
                     joint.InverseQuantiles, window.WindowQuantiles,
                     trees.TreeQuantiles)),
      knots.KnotQuantiles(make=joint.JointQuantiles, knots=2, **asked),
      histogram.HistogramQuantiles(num_bins=6, **asked),
      slicing.SlicedQuantiles(num_examples=5000, delta=1e-6, resolution=1e-3,
                              **asked)
  ]
  return mechanisms


@pytest.mark.sound
def test_quantiles():
  data = records.padded(np.linspace(0, 1, 100), 0.0, 1.0)
  for mechanism in quantile_mechanisms():
    check(mechanism.draw, KEY, data, mechanism.parameters)


@pytest.mark.sound
def test_streams():
  for kind in stream_noise.KINDS:
    mechanism = streams.PrefixStream(horizon=8, rho=0.5, kind=kind)
    check(mechanism.release, KEY, np.ones(8))


@pytest.mark.sound
@pytest.mark.parametrize('of', roc_bands.OF)
def test_draws_that_bands_are_made_of(of):
  mechanism = roc.make(grids.Grid(lower=0.0, upper=1.0, num_thresholds=6),
                       epsilon=1.0, adjacency=REPLACE)
  check(roc_bands.redrawn(mechanism.draw, of, 3), KEY, COUNTS,
        mechanism.parameters)
  check(hosmer_lemeshow._test(mechanism.draw, 2, True, 3), KEY, COUNTS,
        np.linspace(0.1, 0.9, 6), mechanism.parameters, np.float64(5))


def test_repetitions():
  def cost(estimate):
    return jnp.square(estimate)
  check(lambda key: risks.monte_carlo(
      cost, lambda key, data: data + jax.random.normal(key), jax.random.normal,
      key=key, num_repetitions=3), KEY)
