"""Tests that every draw of a release has a key of its own.

Releases that draw more than once run step by step, with samplers that record
their keys. With two equal keys noise cancels, or a choice reveals it.
"""

import contextlib
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.privacy import additive
from dpjax.privacy import draws
from dpjax.privacy import k_norm
from dpjax.privacy import notions
from dpjax.privacy import selection
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import sparse
from dpjax.stats.density_methods import stages
from dpjax.stats.quantile_methods import choice
from dpjax.theory.parametric import exponential_families as families
from dpjax.theory.parametric import normal_intervals
from dpjax.theory.parametric import normal_means
from dpjax.theory.parametric import sgml
from dpjax.theory.parametric import support_ranks
from experiments.methods.statistics import batch_descents
from experiments.methods.statistics import marginals
from tests import coupling

ADD, REPLACE = Adjacency
PURE, ZCDP = notions.PureDP(epsilon=0.7), notions.ZCDP(rho=0.3)
LINE = np.linspace(-0.5, 0.9, 40)
_MODEL = families.Model(dimension=2, radius=1.0)


def _loop(low, high, step, carry):
  """Replaces `jax.lax.fori_loop` by three turns in Python."""
  del high  # The end is not known while a program is traced.
  for turn in range(low, low + 3):
    carry = step(turn, carry)
  return carry


@contextlib.contextmanager
def keys_of_draws():
  """Yields a list of the words of all keys that samplers take meanwhile."""
  taken = []

  def noting(answer):
    def sampler(*args, **named):
      key, *rest = (arg for arg in args if not isinstance(
          arg, selection.ExponentialMechanism))
      taken.append(jax.random.key_data(key))
      return answer(*rest, **named)
    return sampler
  numbers = noting(lambda shape=(), *rest, **named: jnp.ones(shape))
  whole = lambda dtype: noting(lambda shape, *rest: jnp.zeros(shape, dtype))
  chosen = noting(lambda *rest, **named: jnp.int32(1))
  patched = (
      (draws, 'standard_laplace', numbers), (draws, 'discrete_laplace', numbers),
      (additive, 'standard_normal', numbers), (jax.random, 'uniform', numbers),
      (k_norm, 'unit_noise', noting(lambda size, order: jnp.ones(size))),
      (additive, 'random_words', whole(jnp.uint32)),
      (jax.random, 'randint', whole(jnp.int32)), (sparse, 'chosen', chosen),
      (choice, 'choose', chosen),
      (selection.ExponentialMechanism, 'release', chosen),
      (jax.lax, 'scan', coupling._in_turn), (jax.lax, 'fori_loop', _loop))
  with contextlib.ExitStack() as stack:
    for place, name, sampler in patched:
      stack.enter_context(mock.patch.object(place, name, sampler))
    yield taken


def _rounds(guarantee):
  return normal_means.NormalMean(
      num_examples=20, dimension=2, radius=1.0, sigma=1.0, guarantee=guarantee,
      rounds=tuple(normal_means.Round(2.0, 1 / 4) for _ in range(4)))


def _interval(finder):
  return normal_intervals.NormalInterval(
      num_examples=40, radius=1.0, sigma=1.0, guarantee=PURE, finder=finder,
      share=0.5, step=0.1, clip=0.6, half=0.2)


def _batches(replacement):
  return batch_descents.BatchDescent(model=_MODEL, num_examples=20, rho=0.3, num_steps=3,
                           batch_size=4, replacement=replacement)


_SHEET = np.stack([LINE[:20], LINE[20:]], 1)
_PUBLIC = dict(num_records=40, adjacency=REPLACE)
# Mechanism, records, and the number of all draws.
CASES = {
    'rounds': lambda: (_rounds(PURE), _SHEET, 4),
    'rounds, rho': lambda: (_rounds(ZCDP), _SHEET, 4),
    'median': lambda: (_interval('median'), LINE, 2),
    'histogram': lambda: (_interval('histogram'), LINE, 2),
    'rank': lambda: (support_ranks.RankedSupport(
        num_examples=40, epsilon=0.7), LINE, 2),
    'rank, printed': lambda: (support_ranks.RankedSupport(
        num_examples=40, epsilon=0.7, printed=True), LINE, 2),
    'descent': lambda: (sgml.Descent(
        model=_MODEL, num_examples=20, rho=0.3, num_steps=3), _SHEET, 4),
    'batches': lambda: (_batches(False), _SHEET, 7),
    'replacement': lambda: (_batches(True), _SHEET, 7),
    'sparse': lambda: (sparse.SparseFourier(
        num_rounds=3, num_frequencies=4, rho=0.4, **_PUBLIC), LINE, 6),
    'two resolutions': lambda: (stages.TwoResolutions(
        epsilon=0.4, **_PUBLIC), LINE, 2),
    'two stages': lambda: (stages.TwoStages(epsilon=0.4, **_PUBLIC), LINE, 2),
    'tables': lambda: (marginals.TreeMarginals(
        num_attributes=3, num_bins=2, epsilon=0.4, num_records=40,
        adjacency=ADD), np.tile(_SHEET[:, :1], 3), 5)}


@pytest.mark.sound
@pytest.mark.parametrize('name', CASES)
def test_each_draw_has_a_key_of_its_own(name):
  mechanism, data, number = CASES[name]()
  if hasattr(mechanism, 'num_records'):
    data = mechanism.statistic(np.clip(data, 0, 1))

  def keys(key):
    # The compiled program computes only these keys.
    with keys_of_draws() as taken:
      mechanism.release(key, jnp.asarray(data))
    return jnp.stack([jax.random.key_data(key), *taken])
  with jax.enable_x64(True):
    key_data = np.asarray(jax.jit(keys)(jax.random.key(0)))
  assert len(key_data) == 1 + number
  assert len(np.unique(key_data, axis=0)) == 1 + number, 'a key is used twice'
