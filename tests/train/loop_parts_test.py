"""Parts of `loop.fit` without a compiled step: groups, joining, measuring."""

import types

import jax
import numpy as np
import pytest

from dpjax.train import loop
from dpjax.train.state import StepInfo


@pytest.mark.parametrize('num_runs', [1, 2, 5, 7, 12])
def test_groups_hold_every_run_once_in_order(num_runs):
  """What a group computes beyond that repeats the last run and is dropped."""
  for most in (None, *range(1, 15)):
    groups = loop._run_groups(num_runs, most)
    size = len(groups[0])
    assert size <= (most or num_runs) and {len(g) for g in groups} == {size}
    numbers = np.concatenate(groups)
    assert numbers[:num_runs].tolist() == list(range(num_runs))
    assert set(numbers[num_runs:]) <= {num_runs - 1}
    # As few groups as can be, and no group for repeated runs alone.
    assert len(groups) == -(-num_runs // (most or num_runs))
    assert numbers.size - num_runs < size
    # States have runs in front, infos after the steps.
    states = loop._concatenate([{'a': 10.0 * g} for g in groups], 0, num_runs,
                               np.concatenate)
    infos = loop._concatenate([{'b': np.stack([g, -g])} for g in groups], 1,
                              num_runs, np.concatenate)
    wanted = np.arange(num_runs)
    np.testing.assert_array_equal(states['a'], 10 * wanted)
    np.testing.assert_array_equal(infos['b'], [wanted, -wanted])


def _info(multipliers):
  blank = np.zeros_like(multipliers)
  return StepInfo(blank, np.asarray(multipliers), blank, blank, blank)


def test_a_shortfall_at_any_step_of_any_run_is_an_error():
  """Each run is held to its own plan, by the least of what its steps had."""
  planned = np.array([0.8, 1.6, 3.2])
  plans = [types.SimpleNamespace(noise_multiplier=z) for z in planned]
  private = types.SimpleNamespace(private=True)
  honest = np.tile(planned, (4, 1)) * [[1.1], [1.0], [1.3], [1.05]]
  found = loop._measured_multipliers(_info(honest), plans, private)
  np.testing.assert_array_equal(found, planned)
  for step in range(4):
    for run in range(3):
      for short in (0.999, 0.99999, np.nan):
        faulty = honest.copy()
        faulty[step, run] = short * planned[run]
        with pytest.raises(ValueError, match='less than the planned '
                           f'{planned[run]}$'):
          loop._measured_multipliers(_info(faulty), plans, private)
  public = types.SimpleNamespace(private=False)
  endless = np.full((4, 3), np.inf)
  found = loop._measured_multipliers(_info(endless), plans, public)
  assert jax.tree.all(np.isinf(found).tolist())
