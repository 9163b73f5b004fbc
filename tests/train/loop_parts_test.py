"""These tests check parts of `loop.fit` without compiling a step."""

import types

import jax
import numpy as np
import pytest

from dpjax.train import loop
from dpjax.train.checkpoint import Part
from dpjax.train.state import StepInfo


@pytest.mark.every(1)
@pytest.mark.parametrize('num_runs', [1, 2, 5, 7, 12])
def test_groups_hold_every_run_once_in_order(num_runs):
  """Groups hold every run once, in order; surplus places repeat the last run.

  The results of those places are dropped.
  """
  for most in (None, *range(1, 15)):
    groups = loop._run_groups(num_runs, most)
    size = len(groups[0])
    assert size <= (most or num_runs) and {len(g) for g in groups} == {size}
    numbers = np.concatenate(groups)
    assert numbers[:num_runs].tolist() == list(range(num_runs))
    assert set(numbers[num_runs:]) <= {num_runs - 1}
    # There are as few groups as possible, none for repeated runs alone.
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
  """The loop refuses any run whose smallest
  step multiplier is below its plan."""
  planned = np.array([0.8, 1.6, 3.2])
  plans = [types.SimpleNamespace(noise_multiplier=z) for z in planned]
  private = types.SimpleNamespace(private=True)
  honest = np.tile(planned, (4, 1)) * [[1.1], [1.0], [1.3], [1.05]]
  measured = loop._measured_multipliers(_info(honest), plans, private)
  np.testing.assert_array_equal(measured, planned)
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
  measured = loop._measured_multipliers(_info(endless), plans, public)
  assert jax.tree.all(np.isinf(measured).tolist())


LETTERS = 'xy'
"""Two groups: their keys, multipliers and rows are made of these."""


class _Saver:
  """Restores the given parts and records when it is asked to save."""

  def __init__(self, parts):
    self.parts, self.steps = parts, []

  def restore(self, like, structure):
    assert (like, structure) == (('start', 'x'), 'tree')
    return list(self.parts)

  def after_chunk(self, steps, parts, seconds):
    assert seconds >= 0 and sum(part.num_steps for part in parts) == steps
    self.steps.append(steps)


def _chunk(length):
  """Returns a chunk that appends its length to
  a state that starts as its group."""
  def run(state, multiplier, rows, records):
    assert (multiplier, rows, records) == (state[1], state[1], 'records')
    return (*state, length), StepInfo(*[np.zeros((length, 1))] * 5)
  run.out_tree = 'tree'
  return run


@pytest.mark.every(1)
@pytest.mark.parametrize('lengths', [[5], [4, 4], [3, 3, 2]])
def test_groups_run_to_their_end_from_where_they_were_saved(lengths):
  """Training resumes wherever it was saved,
  with no chunk left out or repeated."""
  program = types.SimpleNamespace(
      init=lambda keys, multiplier: ('start', keys),
      chunks={length: _chunk(length) for length in set(lengths)})
  arguments = [(letter,) * 3 for letter in LETTERS]
  every = [(letter, place) for letter in LETTERS
           for place in range(len(lengths))]
  for before in range(len(every) + 1):
    done = {}
    for letter, place in every[:before]:
      part = done.get(letter, Part(('start', letter), ()))
      state, info = _chunk(lengths[place])(part.state, letter, letter,
                                           'records')
      done[letter] = Part(state, (*part.infos, info))
    seen, saver = [], _Saver(done.values())
    trained = loop._train(program, arguments, 'records', lengths, saver,
                          lambda *progress: seen.append(progress))
    assert [part.state for part in trained] == [
        ('start', letter, *lengths) for letter in LETTERS]
    assert [part.num_steps for part in trained] == [sum(lengths)] * 2
    total = 2 * sum(lengths)
    left = [lengths[place] for _, place in every[before:]]
    ends = [int(end) for end in total - sum(left) + np.cumsum(left)]
    assert seen == [(end, total) for end in ends] and saver.steps == ends
