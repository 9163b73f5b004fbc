"""Tests the comparison of samplers and strategies."""

import numpy as np
import pytest

from dpjax.train import comparison

RUN = dict(num_examples=32, batch_size=8, num_steps=8, epsilon=2.0, delta=1e-4)


@pytest.fixture(scope='module')
def compared():
  return comparison.compare(**RUN, adjacency='add_or_remove_one')


@pytest.mark.every(5)
def test_every_choice_meets_the_target(compared):
  choices, left_out = compared
  assert list(left_out) == ['fixed size']
  assert 'known under replace_one only' in left_out['fixed size']
  for choice in choices:
    assert 1.99 < choice.plan.epsilon(1e-4) <= 2.0
    assert choice.plan.sampler.expected_batch_size == pytest.approx(8)
  names = [(comparison.name_of(choice.plan.sampler), choice.noise)
           for choice in choices]
  assert len(set(names)) == len(names)
  assert set(names) == {
      ('Poisson', 'independent'), ('random allocation', 'independent'),
      ('cyclic, 2 groups', 'square_root'), ('cyclic, 4 groups', 'square_root'),
      ('cyclic, 4 groups', 'inverse_square_root'), ('cyclic, 4 groups', 'tree')}


@pytest.mark.every(3)
def test_noise_is_that_of_the_matrices(compared):
  """The noise is recomputed from C, with loops over its entries."""
  choices, _ = compared
  noises = [choice.prefix_noise for choice in choices]
  assert noises == sorted(noises)
  for choice in choices:
    strategy, scale = choice.plan.strategy, choice.plan.noise_multiplier / 8
    if choice.noise == 'independent':
      inverse = np.eye(8)
    elif choice.noise == 'tree':
      continue
    else:
      column = strategy.column(8)
      inverse = strategy.norm * np.linalg.inv(np.array(
          [[column[t - s] if t >= s else 0 for s in range(8)]
           for t in range(8)]))
    for value, matrix in ((choice.step_noise, inverse),
                          (choice.prefix_noise, np.tril(np.ones((8, 8)))
                           @ inverse)):
      assert value == pytest.approx(
          scale * np.linalg.norm(matrix) / 8**0.5, rel=1e-5)


@pytest.mark.slow
def test_replacements_leave_out_allocations():
  choices, left_out = comparison.compare(**RUN, adjacency='replace_one')
  assert list(left_out) == ['random allocation']
  assert 'fixed size' in {comparison.name_of(choice.plan.sampler)
                          for choice in choices}


@pytest.mark.parametrize('changed, message', [
  ({'batch_size': 65}, 'batch_size must be at most num_examples = 32, got 65'),
  ({'delta': 0.0}, 'delta must lie in'), ({'epsilon': 0.0}, 'epsilon must be'),
  ({'num_steps': 0}, 'num_steps must be an integer >= 1'),
  ({'adjacency': 'both'}, 'adjacency must be one of')])
def test_refusals(changed, message):
  with pytest.raises(ValueError, match=message):
    comparison.compare(**RUN | {'adjacency': 'add_or_remove_one'} | changed)
