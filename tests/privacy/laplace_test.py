"""Tests dpjax.privacy.laplace: samples, losses, composition and the grid."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate
from scipy import stats

from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import laplace
from dpjax.privacy import mechanism as mechanisms
from dpjax.privacy.adjacency import Adjacency

ADD = Adjacency.ADD_OR_REMOVE_ONE
REPLACE = Adjacency.REPLACE_ONE
KEY = jax.random.key(11)
COUNT = 300_000


@pytest.fixture(params=[(ADD, .5, 2.), (REPLACE, .5, 2.), (ADD, 3., .1)])
def mechanism(request):
  adjacency, record_norm, epsilon = request.param
  return laplace.LaplaceMechanism(record_norm=record_norm, epsilon=epsilon,
                                  adjacency=adjacency)


def test_fields_and_event(mechanism):
  """Fields and event state the scale, and cost epsilon (item DP-10)."""
  factor = 2 if mechanism.adjacency is REPLACE else 1
  assert mechanism.l1_sensitivity == factor * mechanism.record_norm
  assert mechanism.scale == mechanism.l1_sensitivity / mechanism.epsilon
  assert mechanism.risk(7) == pytest.approx(14 * mechanism.scale**2)
  assert isinstance(mechanism, mechanisms.Mechanism)
  # For almost no delta the accountant returns epsilon itself.
  for accountant, slack in [('pld', 2e-4), ('rdp', .05)]:
    spent = mechanisms.epsilon(mechanism, delta=1e-12, accountant=accountant)
    assert mechanism.epsilon - 1e-6 <= spent <= mechanism.epsilon + slack
  with pytest.raises(dataclasses.FrozenInstanceError):
    mechanism.epsilon = 1.


@pytest.mark.every(2)
def test_release_law(mechanism):
  values = jnp.linspace(-1, 1, COUNT).reshape(1000, 300)
  noisy = np.asarray(mechanism.release(KEY, values), np.float64)
  draws = np.sort(np.ravel(noisy - values) / mechanism.scale)
  levels = stats.laplace.cdf(draws)
  steps = np.arange(COUNT + 1) / COUNT
  distance = max((steps[1:] - levels).max(), (levels - steps[:-1]).max())
  # The bound is Dvoretzky-Kiefer-Wolfowitz at 1e-6, plus half a grid cell.
  assert distance < 2.7 / COUNT**.5 + .5 / 512
  # The variance is 2 within five standard errors, as the fourth moment is 24.
  assert draws.var() == pytest.approx(2, abs=5 * math.sqrt(20 / COUNT) + 1e-5)


def half_line_counts(key, value, scale):
  """Counts noisy copies of `value` below, then above, each of 30 cuts, [60]."""
  noisy = laplace.add_laplace_noise(key, jnp.full((2 * COUNT,), value), scale)
  cuts = (np.arange(-15, 15) + .5) / 4
  below = np.searchsorted(np.sort(np.asarray(noisy, np.float64)), cuts)
  return np.concatenate([below, 2 * COUNT - below])


def worst_breach(scale_factor):
  """Returns the largest excess of P(S) over e^epsilon Q(S), standardised."""
  epsilon, keys = 1.2, jax.random.split(KEY)
  scale = scale_factor * 1 / epsilon
  counts_0, counts_1 = (half_line_counts(k, value, scale)
                        for k, value in zip(keys, (0., 1.), strict=True))
  worst = -math.inf
  for p, q in ((counts_0, counts_1), (counts_1, counts_0)):
    error = np.sqrt(p + math.exp(2 * epsilon) * q + 1)
    worst = max(worst, ((p - math.exp(epsilon) * q) / error).max())
  return worst


@pytest.mark.every(2)
def test_log_ratio_is_at_most_epsilon_on_half_lines():
  """No half-line exceeds e^epsilon by 6 standard errors,
  in 120 events (DP-10)."""
  assert worst_breach(1.) < 6
  # Noise that is four per cent too small fails.
  assert worst_breach(.96) > 6


def test_exact_log_ratio_of_the_rounded_release(mechanism):
  # These are cells of the real grid, from the distribution function.
  spacing = float(additive.grid_spacing(mechanism.scale))
  noise = stats.laplace(scale=mechanism.scale)
  points = np.arange(-3000, 3000) * spacing
  mass = lambda v: noise.cdf(points + spacing / 2 - v) - noise.cdf(
      points - spacing / 2 - v)
  ratio = np.log(mass(mechanism.l1_sensitivity) / mass(0.))
  assert np.abs(ratio).max() <= mechanism.epsilon * (1 + 1e-6)
  assert np.abs(ratio).max() >= mechanism.epsilon * (1 - 1e-6)


# -- Several coordinates: the worst shift is all in one.


def one_delta(shift, epsilon):
  """Returns the hockey-stick divergence of Laplace noise under a shift."""
  if epsilon >= shift:
    return 0.
  if epsilon <= -shift:
    return 1 - math.exp(epsilon)
  return 1 - math.exp((epsilon - shift) / 2)


def two_delta(a, b, epsilon):
  """Returns the same for two coordinates, integrated over the second's loss."""
  middle, _ = integrate.quad(
      lambda y: math.exp(-(b - y) / 2) / 4 * one_delta(a, epsilon - y), -b, b,
      points=[np.clip(epsilon - a, -b, b), np.clip(epsilon + a, -b, b)])
  return (one_delta(a, epsilon - b) / 2 + middle +
          math.exp(-b) / 2 * one_delta(a, epsilon + b))


def test_closed_form_of_one_coordinate():
  x, step = np.linspace(-40, 40, 800_001, retstep=True)
  p, q = stats.laplace.pdf(x, 1.3), stats.laplace.pdf(x)
  for epsilon in (-2., -.4, 0., .7, 1.25):
    exact = np.maximum(p - math.exp(epsilon) * q, 0).sum() * step
    assert one_delta(1.3, epsilon) == pytest.approx(exact, abs=1e-4)


def test_a_shift_in_one_coordinate_dominates():
  """One shifted coordinate is worst, so one Laplace event covers l1 bounds."""
  rng = np.random.default_rng(0)
  for _ in range(300):
    a, b = rng.exponential(size=2)
    epsilon = rng.uniform(-1.2, 1.2) * (a + b)
    assert two_delta(a, b, epsilon) <= one_delta(a + b, epsilon) + 1e-9
  # Two shifts by the whole bound are worse, so the sum matters.
  assert two_delta(1., 1., .5) > one_delta(1., .5)


def test_laplace_composes_better_than_its_epsilon():
  event = laplace.LaplaceMechanism(record_norm=1., epsilon=.1,
                                   adjacency=REPLACE).event
  pure = accounting.pure_event(epsilon=.1, adjacency=REPLACE)
  by_event, by_epsilon = (
      accounting.epsilon(accounting.repeated_event(e, 100), delta=1e-5,
                         adjacency=REPLACE) for e in (event, pure))
  assert by_event < by_epsilon


# -- The grid.


@pytest.mark.every(2)
@pytest.mark.parametrize('scale', [.7, 1., 1000.])
def test_releases_lie_on_the_grid(scale):
  values = jax.random.normal(KEY, (1000,)) * scale * 3
  noisy = laplace.add_laplace_noise(KEY, values, scale)
  units = np.asarray(noisy, np.float64) / float(additive.grid_spacing(scale))
  np.testing.assert_array_equal(units, np.round(units))
  assert len(np.unique(units)) > 500


@pytest.mark.every(3)
@pytest.mark.parametrize('value', [0., 1., -.3337])
def test_every_grid_point_in_reach_is_released(monkeypatch, value):
  """Words exist for every grid point within 30 scales,
  so none is impossible."""
  scale = 1.
  spacing = float(additive.grid_spacing(scale))
  first = math.ceil((value - 30) / spacing)
  targets = np.arange(first, math.floor((value + 30) / spacing)) * spacing
  tail = np.exp(-np.abs(targets - value)) / 2
  whole = np.minimum(tail * 2.**64, 2.**63 - 2.**12).astype(np.uint64)
  high = (whole >> np.uint64(31)).astype(np.uint32)
  low = ((whole % np.uint64(2**31)).astype(np.uint32) * np.uint32(2) +
         (targets < value).astype(np.uint32))
  words = jnp.stack([jnp.asarray(high), jnp.asarray(low)])
  monkeypatch.setattr(additive, 'random_words', lambda key, shape: words)
  noisy = laplace.add_laplace_noise(
      KEY, jnp.full(targets.shape, value, jnp.float32), scale)
  np.testing.assert_array_equal(np.asarray(noisy, np.float64), targets)


def test_a_scale_that_is_no_number_does_not_release_the_value():
  values = jnp.array([1.25, -3.])
  noisy = laplace.add_laplace_noise(KEY, values, jnp.float32(math.nan))
  assert not np.isin(noisy, values).any()


# -- Keys and trees.


@pytest.mark.slow
def test_keys_decide():
  mechanism = laplace.LaplaceMechanism(record_norm=1., epsilon=.5,
                                       adjacency=ADD)
  data = {'sum': jnp.arange(5.), 'count': jnp.array(3.)}
  one = mechanism.release(KEY, data)
  keys = jnp.concatenate([KEY[None], jax.random.split(KEY, 9)])
  many = jax.jit(jax.vmap(mechanism.release, (0, None)))(keys, data)
  jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[0]), one, many)
  assert len(np.unique(many['sum'], axis=0)) == 10


def test_leaves_and_coordinates_have_noise_of_their_own():
  noisy = laplace.add_laplace_noise(
      KEY, {'a': jnp.zeros(50_000), 'b': jnp.zeros(50_000)},
      {'a': 1., 'b': 20.})
  a, b = np.float64(noisy['a']), np.float64(noisy['b']) / 20
  assert abs(np.corrcoef(a, b)[0, 1]) < 5 / 50_000**.5
  assert abs(np.corrcoef(a[1:], a[:-1])[0, 1]) < 5 / 50_000**.5
  assert np.abs(b).mean() == pytest.approx(1, abs=5 / 50_000**.5)


@pytest.mark.parametrize('arguments, message', [
  ({'record_norm': 0.}, 'record_norm must be a positive number, got 0.0'),
  ({'epsilon': 0.}, 'epsilon must be a positive number, got 0.0'),
  ({'epsilon': math.inf}, 'epsilon must be a positive number, got inf'),
])
def test_refusals(arguments, message):
  """Bad numbers are refused, and epsilon = 0, which
  Theorem 3.1.7 admits (E23)."""
  good = {'record_norm': 1., 'epsilon': 1., 'adjacency': ADD}
  with pytest.raises(ValueError, match=f'^{message}$'):
    laplace.LaplaceMechanism(**{**good, **arguments})
  with pytest.raises(TypeError):
    laplace.LaplaceMechanism(record_norm=1., epsilon=1.)
