"""Tests a study's noise, and the length of its parts."""

import fractions

import numpy as np
import pytest

from dpjax.mpc import noise
from dpjax.mpc import prg
from dpjax.mpc.parties import noising
from tests.mpc.studies import parameters

_STUDIES = (
    dict(), dict(root=False), dict(num_thresholds=9),
    dict(adjacency='add_or_remove_one'), dict(num_classes=2),
    dict(num_classes=2, adjacency='add_or_remove_one', root=False),
    dict(shape=(2, 3, 2)), dict(shape=(2, 5), num_classes=2),
    dict(scheme='additive', num_servers=3, num_colluding=2),
    dict(scheme='outer_product', num_servers=4, num_colluding=1,
         adjacency='add_or_remove_one'),
    dict(scheme='additive', num_servers=3, num_colluding=2, shape=(10,)))


def _matrix(params):
  """Returns what one unit of noise in each node adds to the numbers."""
  return np.stack([noising.released_noise(params, one).ravel()
                   for one in np.eye(noising.num_nodes(params), dtype=int)], 1)


@pytest.mark.every(1)
@pytest.mark.parametrize('kwargs', _STUDIES, ids=str)
def test_the_variance_is_that_of_the_nodes_in_a_number(kwargs):
  params = parameters(**kwargs)
  nodes = _matrix(params)
  assert set(np.unique(nodes)) <= {0, 1} and nodes.any(0).all()
  assert len(nodes) == params.num_classes * noising.num_released(params)
  counts = nodes.sum(1).reshape(params.num_classes, -1)
  if params.knows_total and params.num_classes == 1 and not params.shape:
    assert counts[0, -1] == 0  # The last number is n itself.
    counts = counts[:, :-1]
  else:
    assert counts.all()
  of_node = noise.variance(fractions.Fraction(4))
  if params.noise == 'contributions':
    of_node *= params.num_servers / (params.num_servers - params.num_colluding)
  assert noising.released_variance(params) == pytest.approx(
      counts.max() * of_node, rel=1e-12)


@pytest.mark.every(1)
@pytest.mark.parametrize('kwargs', _STUDIES, ids=str)
def test_distances_from_the_law_add_up_over_nodes(kwargs):
  params = parameters(**kwargs)
  count = _matrix(params).shape[1]
  assert noising.num_nodes(params) == count
  if params.noise == 'joint':
    distribution = noising.joint_distribution(params)
    assert (distribution.count, distribution.scale,
            distribution.value_bits) == (count, 4, 32)
    wanted = distribution.total_variation
  else:
    distribution = noising.contributions(params)
    assert (distribution.num_parties, distribution.num_colluding) == (
        params.num_servers, params.num_colluding)
    wanted = count * distribution.total_variation
  assert noising.total_variation(params) == pytest.approx(wanted, rel=1e-12)


def test_epsilon_is_taken_as_it_is_written():
  assert noising.scale(parameters(epsilon=0.1, sensitivity=3)) == 30


@pytest.mark.parametrize('kwargs', [
    dict(), dict(num_thresholds=4, value_bits=9)])
def test_a_dealer_sends_keys_of_the_length_with_the_same_mark(kwargs):
  params = parameters(**kwargs)
  dealt = noising.deal(params, prg.Stream(bytes(32)))
  assert [len(part) for part in dealt] == [noising.dealt_bytes(params)] * 2
  assert dealt[0][:8] == dealt[1][:8] and dealt[0] != dealt[1]
  assert noising.dealt_bytes(parameters(noise='contributions')) == 0
