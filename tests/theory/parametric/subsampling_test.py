"""Tests subsets of records: exact total variation by enumeration (G-13)."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.privacy import mechanism
from dpjax.privacy.notions import TotalVariationPrivacy
from dpjax.theory.parametric import subsampling
from dpjax.theory.parametric import support_bounds
from dpjax.theory.parametric import supports
from experiments.methods.statistics import doubled_means
from experiments.methods.theory import thesis_supports


@pytest.mark.sound
def test_neighbours_differ_by_the_level_and_no_more():
  """Subsets are equally likely, so neighbours differ by the level exactly."""
  estimator = subsampling.Subsampled(num_examples=4, level=0.5,
                                     estimate=lambda kept: jnp.sort(kept))
  releases = jax.jit(jax.vmap(estimator.release, (0, None)))
  keys = jax.random.split(jax.random.key(0), 6000)
  probs = []
  for data in ((1, 2, 3, 4), (1, 2, 3, 9)):
    outputs = np.asarray(releases(keys, jnp.array(data)))
    counts = {pair: int(np.sum((outputs == pair).all(1)))
              for pair in itertools.combinations(data, 2)}
    assert sum(counts.values()) == 6000
    # Chi-square with 5 degrees of freedom exceeds this with chance 1e-5.
    assert sum((c - 1000)**2 / 1000 for c in counts.values()) < 30.9
    probs.append({pair: 1 / 6 for pair in counts})
  here, there = probs
  apart = sum(max(p - there.get(pair, 0), 0) for pair, p in here.items())
  assert apart == pytest.approx(estimator.guarantee.level) == 0.5
  with pytest.raises(ValueError, match='there must be 4 records'):
    estimator.release(keys[0], jnp.arange(3))


def test_sizes_are_whole_and_the_event_is_of_no_privacy():
  assert subsampling.subset_size(100, 0.29) == 29
  assert subsampling.subset_size(100, 0.299) == 29
  assert subsampling.subset_size(7, 3.0) == 7
  with pytest.raises(ValueError, match='at least 1 / num_examples'):
    subsampling.subset_size(7, 0.1)
  estimator = doubled_means.subsampled(num_examples=100, level=0.29)
  assert mechanism.epsilon(estimator, delta=0.28) == np.inf
  assert estimator.guarantee.level == pytest.approx(0.29)


@pytest.mark.parametrize('n, level, error, printed', [
    (100, .1, .0702, .0031), (1000, .05, .01465, .00063),
    (1000, .01, .0699, .0031)])
def test_supports_by_subsets_are_the_golden_ones(n, level, error, printed):
  """Supports by subsets have G-13's errors; bounds 1/32, 1/16 and 1/8 hold."""
  size = subsampling.subset_size(n, level)
  assert doubled_means.largest_absolute_risk(
      1.0, num_examples=size, factor=(size + 1) / size) == pytest.approx(
          error, rel=6e-3)
  arguments = dict(num_examples=n,
                   guarantee=TotalVariationPrivacy(level=level))
  loose = thesis_supports.paper(printed=True, **arguments)
  assert loose == pytest.approx(printed, rel=2e-2)
  assert thesis_supports.paper(**arguments) == pytest.approx(2 * loose)
  best, = support_bounds.absolute_lower(**arguments)
  assert 4 * loose <= best.value * (1 + 2e-3) < error
  assert supports.ABSOLUTE.best_upper(**arguments).value < error


def test_a_constant_level_keeps_the_efficient_rate():
  """Half of the records keep the efficient rate, at a constant level.

  No privacy setting has it according to Barber and Duchi (2014) after (13). It
  is lost where the level tends to 0.
  """
  least = lambda size: doubled_means.largest_risk(
      1.0, num_examples=size, factor=(size + 2) / (size + 1))
  for n in (20, 1000, 10**6):
    half = doubled_means.subsampled(num_examples=n, level=0.5)
    assert half.guarantee.level == 0.5
    assert 1 < least(half.size) * n**2 < 4
    few = doubled_means.subsampled(num_examples=n, level=n**-0.5)
    assert least(few.size) * n**2 > n / 2
  half = doubled_means.subsampled(num_examples=20, level=0.5)
  keys = jax.random.split(jax.random.key(3), 4000)
  data = np.random.default_rng(3).uniform(size=(4000, 20)).astype(np.float32)
  errors = np.square(np.asarray(jax.jit(jax.vmap(half.release))(keys, data))
                     - 1)
  assert errors.mean() == pytest.approx(
      least(10), abs=4 * float(errors.std()) / 4000**0.5)
