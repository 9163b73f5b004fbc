"""Tests quantile levels: their target ranks, and quantiles of records."""

import jax
import numpy as np

from dpjax.stats.quantile_methods import quantile_levels
from dpjax.stats.quantile_methods import records


def _ranks(probs, count, convention):
  with jax.enable_x64(True):
    return np.asarray(quantile_levels.target(np.array(probs), np.int32(count),
                                    convention))


def test_three_conventions_of_the_rank():
  """Rank conventions differ by less than one; 29 and 57 are exact (QF-01)."""
  probs = (.29, .333, .57)
  ranks = {convention: _ranks(probs, 100, convention)
           for convention in quantile_levels.RANK_CONVENTIONS}
  assert ranks['floor'].tolist() == [29, 33, 57]
  assert ranks['ceil'].tolist() == [29, 34, 57]
  np.testing.assert_allclose(ranks['real'], [29, 33.3, 57], rtol=1e-12)


def test_the_ceiling_alone_is_the_generalised_inverse():
  """Only the ceiling gives the least record with a share >= p (QE-20)."""
  values = np.array([.1, .3, .3, .6, .9])
  probs = np.linspace(.01, .99, 99)
  with jax.enable_x64(True):
    actual = np.asarray(jax.jit(records.empirical)(
        records.padded(values, 0, 1), probs))
  shares = np.mean(values[:, None] <= values, 0)
  wanted = [min(values[shares >= prob - 1e-12]) for prob in probs]
  np.testing.assert_array_equal(actual, wanted)
  # A rank rounded down belongs to no record, or to another one.
  low = _ranks(probs, 5, 'floor').astype(int)
  assert np.all((low == 0) == (probs < .2 - 1e-12))
  others = values[low[low > 0] - 1] != np.array(wanted)[low > 0]
  assert .4 < np.mean(others) < .9


def test_errors_of_ranks_and_values():
  values = np.sort(np.array([.1, .3, .3, .6, .9]))
  answers, probs = np.array([.05, .3, .7, .95]), np.array([.1, .4, .5, .99])
  ordered = np.append(values, [1., 1., 1.])
  with jax.enable_x64(True):
    ranks = np.asarray(
        quantile_levels.rank_errors(answers, ordered, probs, np.int32(5)))
    far = quantile_levels.value_sup(np.stack([answers, answers + .1]),
                           np.array([0., .3, .5, 1.]))
  np.testing.assert_allclose(ranks, [.5, 1, 1.5, .05])
  np.testing.assert_allclose(far, [.2, .3])
