"""Rows to test with."""

import pytest

from dpjax.report import records


@pytest.fixture
def make_row():
  """Returns a function from what matters to a whole row."""
  def make(**changes):
    defaults = dict(
        experiment='toy', id=f'toy/seed={changes.get("seed", 0)}', seed=0,
        metric='accuracy', value=.5, n=100, epsilon_requested=1.,
        epsilon=.99, epsilon_valid=True, delta=.01,
        adjacency='add_or_remove', accountant='pld', method='dp_sgd',
        dataset='adult', wall_s=1.5, device='cpu', jax='1', commit='c0',
        fingerprint='f0')
    return records.Row(**{**defaults, **changes})
  return make
