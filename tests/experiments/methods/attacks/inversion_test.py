"""These tests compare inverted records with the records used."""

import numpy as np
import pytest

from experiments.methods.attacks import inversion

pytestmark = pytest.mark.every(1)

QUERIES = 100_001


@pytest.fixture(name='attack', scope='module', params=[0, 1, 2])
def _attack(request):
  rng = np.random.default_rng(request.param)
  x, y = rng.uniform(size=10), rng.normal(size=10)

  def predict(queries):
    return y[np.abs(queries[:, None] - x[None]).argmin(1)]

  order = np.argsort(x)
  return x[order], y[order], inversion.invert_nearest_neighbour(
      predict, num_queries=QUERIES)


def test_every_label_is_exact(attack):
  """The inversion recovers every label exactly (INT-01)."""
  _, y, inverted = attack
  np.testing.assert_array_equal(inverted.labels, y)


def test_borders_and_positions_are_as_near_as_the_grid(attack):
  x, _, inverted = attack
  error = np.abs(inverted.borders - (x[1:] + x[:-1]) / 2).max()
  assert 0 < error <= .5 / (QUERIES - 1) + 1e-12
  positions = inverted.positions(x[0])
  assert positions[0] == x[0]
  assert np.abs(positions - x).max() <= 2 * 9 * error
  assert np.abs(positions - x).max() < 1e-4


def test_one_record_has_no_border_and_one_query_is_refused():
  inverted = inversion.invert_nearest_neighbour(np.zeros_like, num_queries=5)
  assert inverted.labels.tolist() == [0.] and inverted.borders.size == 0
  assert inverted.positions(.3).tolist() == [.3]
  with pytest.raises(ValueError, match='^num_queries must be an integer >= 2'):
    inversion.invert_nearest_neighbour(np.zeros_like, num_queries=1)
