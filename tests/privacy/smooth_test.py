"""Tests dpjax.privacy.smooth: its definition by enumeration, density ratios."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.privacy import neighbours
from dpjax.privacy import smooth
from dpjax.privacy.adjacency import Adjacency

REPLACE = Adjacency.REPLACE_ONE
KEY = jax.random.key(4)
GRID, SIZE = np.arange(4.), 3
SETS = list(itertools.combinations_with_replacement(GRID, SIZE))
PAIRS = {tuple(tuple(sorted(data)) for data in pair)
         for pair in neighbours.pairs(tuple(GRID), [SIZE], REPLACE)}


def gaps(data, rank):
  """Returns how far the record of a rank can move, either way."""
  line = [GRID[0], *sorted(data), GRID[-1]]
  return max(line[rank] - line[rank - 1], line[rank + 1] - line[rank])


def distance(data, other):
  """Returns how many records must be replaced, in any order."""
  left = list(data)
  for record in other:
    if record in left:
      left.remove(record)
  return len(left)


def bounds(rank, smoothing):
  """Returns data set -> its smooth sensitivity, as the library computes it."""
  ordered = jnp.asarray(SETS, jnp.float32)
  sensitivities = jax.vmap(lambda data: smooth.smooth_sensitivity(
    data, rank, lower=0., upper=3., smoothing=smoothing))(ordered)
  return dict(zip(SETS, np.float64(sensitivities), strict=True))


@pytest.mark.every(2)
@pytest.mark.parametrize('smoothing', [.2, 1.5])
@pytest.mark.parametrize('rank', [1, 2, 3])
def test_smooth_sensitivity_is_the_definition(rank, smoothing):
  """It is the maximum over data sets of e^(-beta
  distance) local sensitivity."""
  for data, sensitivity in bounds(rank, smoothing).items():
    expected = max(gaps(other, rank) * math.exp(-smoothing *
                                                distance(data, other))
                   for other in SETS)
    assert sensitivity == pytest.approx(expected, rel=1e-6)
    assert float(smooth.local_sensitivity(
      jnp.asarray(data, jnp.float32), rank, lower=0., upper=3.)) == (
        gaps(data, rank))


@pytest.mark.parametrize('smoothing', [1., 9., 15.])
def test_it_is_smooth_also_where_terms_are_left_out(smoothing):
  """It stays smooth where terms are dropped: two terms at 9, one at 15."""
  sensitivities = bounds(2, smoothing)
  assert all(sensitivities[one] <= sensitivities[other] * math.exp(smoothing)
             * (1 + 1e-6) for one, other in PAIRS)
  assert min(sensitivities.values()) > 0


def worst_ratio(noise):
  """Returns the largest log-ratio of Cauchy densities over all neighbours."""
  points = np.concatenate([np.linspace(-6, 9, 601), np.geomspace(9, 1e7, 50),
                           -np.geomspace(6, 1e7, 50)])
  logs = {data: np.log(scale) - np.log(scale**2 + (points - centre)**2)
          for data, (centre, scale) in noise.items()}
  return max(np.max(logs[one] - logs[other]) for one, other in PAIRS)


def noise_at(scale_of):
  return {data: (data[1], scale_of(data)) for data in SETS}


@pytest.mark.parametrize('epsilon, smoothing', [(1., .5), (3., .4), (.8, .7)])
def test_density_ratios_stay_within_epsilon(epsilon, smoothing):
  mechanism = smooth.SmoothSensitivityQuantile(
    lower=0., upper=3., num_examples=SIZE, epsilon=epsilon,
    smoothing=smoothing, num_cells=3)
  parameters = jax.jit(jax.vmap(mechanism.noise_parameters))(jnp.asarray(
      SETS, jnp.float32))
  centres, scales = map(np.float64, parameters)
  np.testing.assert_allclose(centres, np.asarray(SETS)[:, 1], atol=1e-6)
  worst = worst_ratio(dict(zip(SETS, zip(centres, scales), strict=True)))
  assert .3 * epsilon < worst <= epsilon * (1 + 1e-5)


def test_shifts_and_dilations_one_by_one():
  """Shifts and dilations change log-densities by slope 1, both attained."""
  z = np.linspace(-30, 30, 60_001)
  log_density = lambda z: -np.log1p(z * z)
  for amount in (.01, .3, 1.):
    shift = np.abs(log_density(z + amount) - log_density(z)).max()
    dilation = np.abs(amount + log_density(z * math.exp(amount))
                      - log_density(z)).max()
    assert shift <= amount and dilation <= amount * (1 + 1e-12)
    assert dilation > .99 * amount
  assert np.abs(log_density(z + .01) - log_density(z)).max() > .0099


def test_local_sensitivity_is_no_scale():
  """Local sensitivity is no scale: a neighbour may have no noise (MECH-08)."""
  local = lambda data: gaps(data, 2)
  here, there = (0., 0., 3.), (0., 0., 0.)
  assert (here, there) in PAIRS and local(here) == 3 and local(there) == 0
  # A floor that ignores the other data set fails: the ratio is that of the
  # floors, however large the noise is.
  for floor in (1e-2, 1e-4):
    assert worst_ratio(noise_at(lambda data, f=floor: max(local(data), f) * 1e3)
                       ) > math.log(1 / floor)
  # The smooth sensitivity keeps the same budget.
  sensitivities = bounds(2, .5)
  assert worst_ratio(noise_at(lambda data: sensitivities[data] / .5)) <= 1


def test_faults_are_seen():
  """Too little noise, or too rough a bound, exceeds epsilon = 1."""
  sensitivities, rough = bounds(2, .5), bounds(2, 3.)
  assert worst_ratio(noise_at(lambda data: sensitivities[data] / 1.5)) > 1.2
  assert worst_ratio(noise_at(lambda data: rough[data] / .5)) > 1.2


@pytest.mark.every(5)
def test_noise_fits_the_records():
  """Noise is below a hundredth of the range if records crowd at the median."""
  data = jnp.concatenate([jnp.linspace(.49, .51, 199), jnp.array([0., 1.])])
  mechanism = smooth.SmoothSensitivityQuantile(
    lower=0., upper=1., num_examples=201, epsilon=1., smoothing=.5)
  centre, scale = mechanism.noise_parameters(data)
  assert float(centre) == pytest.approx(.5, abs=1e-4)
  assert float(scale) < 1e-3
  released = np.asarray(jax.jit(jax.vmap(mechanism.release, (0, None)))(
    jax.random.split(KEY, 2000), data))
  assert np.median(np.abs(released - .5)) == pytest.approx(
    float(scale), rel=.15)
  steps = released * 2**16
  np.testing.assert_array_equal(steps, np.round(steps))
  assert released.min() >= 0 and released.max() <= 1
  assert mechanism.risk(1) is None


@pytest.mark.parametrize('smoothing, message', [
  (1., 'smoothing must be below epsilon = 1.0, got 1.0'),
  (0., 'smoothing must be a positive number')])
def test_refusals(smoothing, message):
  with pytest.raises(ValueError, match=message):
    smooth.SmoothSensitivityQuantile(
      lower=0., upper=1., num_examples=3, epsilon=1., smoothing=smoothing)
