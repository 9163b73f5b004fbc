"""Tests dpjax.privacy.k_norm: densities, losses, allocation, accounting."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize
from scipy import stats

from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import k_norm
from dpjax.privacy import laplace
from dpjax.privacy import mechanism as mechanisms
from dpjax.privacy import selection
from dpjax.privacy.adjacency import Adjacency

ADD = Adjacency.ADD_OR_REMOVE_ONE
REPLACE = Adjacency.REPLACE_ONE
ORDERS = k_norm.ORDERS
KEY = jax.random.key(9)
COUNT = 60_000


def norm(vectors, order):
  return np.linalg.norm(vectors, ord=order, axis=-1)


@functools.cache
def samples(order, size, count=COUNT):
  """Returns unit noise [count, size]."""
  draw = jax.jit(jax.vmap(
      lambda key: k_norm.unit_noise(key, size, order=order)))
  return np.asarray(draw(jax.random.split(KEY, count)), np.float64)


def chi_square(values, distribution, bins=50):
  """Returns the chi-square statistic over cells of equal probability."""
  edges = distribution.ppf(np.linspace(0, 1, bins + 1)[1:-1])
  counts = np.bincount(np.searchsorted(edges, values), minlength=bins)
  expected = values.size / bins
  return np.sum((counts - expected)**2) / expected


# -- The distribution.


@pytest.mark.every(4)
@pytest.mark.parametrize('order', ORDERS)
@pytest.mark.parametrize('size', [1, 2, 5, 30])
def test_norm_is_gamma(order, size):
  """The noise's p-norm is Gamma(d), by chi-square at 1e-6 (item LDP-03)."""
  limit = stats.chi2(49).isf(1e-6)
  norms = norm(samples(order, size), order)
  assert chi_square(norms, stats.gamma(size)) < limit
  # It detects a Gamma of one degree more, and a scale of 0.96.
  assert chi_square(norms, stats.gamma(size + 1)) > limit
  assert chi_square(.96 * norms, stats.gamma(size)) > limit


@pytest.mark.parametrize('order', ORDERS)
def test_density_in_the_plane(order):
  """Counts on a grid match exp(-||b||_p), and no other norm (item LDP-03)."""
  size, fine = 2, 40
  edges = np.linspace(-4, 4, 17)
  counts = np.histogram2d(*samples(order, size, 4 * COUNT).T, bins=edges)[0]
  middle = (np.linspace(-4, 4, 16 * fine + 1)[1:] +
            np.linspace(-4, 4, 16 * fine + 1)[:-1]) / 2
  points = np.stack(np.meshgrid(middle, middle, indexing='ij'), -1)
  cell = (8 / (16 * fine))**2
  # The volume of the unit ball times d! normalises.
  volume = {1: 2., 2: math.pi, math.inf: 4.}[order] * 2
  mass = np.exp(-norm(points, order)) / volume * cell
  expected = 4 * COUNT * mass.reshape(16, fine, 16, fine).sum((1, 3))
  limit = stats.chi2(expected.size).isf(1e-6)
  statistic = np.sum((counts - expected)**2 / expected)
  assert statistic < limit
  others = [o for o in ORDERS if o != order]
  for other in others:
    wrong = np.exp(-norm(points, other)) / {
      1: 4., 2: 2 * math.pi, math.inf: 8.}[other] * cell
    wrong = 4 * COUNT * wrong.reshape(16, fine, 16, fine).sum((1, 3))
    assert np.sum((counts - wrong)**2 / wrong) > limit


@pytest.mark.parametrize('order', ORDERS)
def test_coordinates_and_signs_are_exchangeable(order):
  vectors = samples(order, 5)
  second = np.mean(vectors**2, axis=0)
  standard_error = np.std(vectors**2, axis=0) / COUNT**.5
  assert np.all(np.abs(second - second.mean()) < 6 * standard_error)
  assert second.sum() == pytest.approx(
      k_norm.expected_square(5, order=order),
      rel=6 * standard_error.sum() / second.sum())
  moments = vectors.T @ vectors / COUNT
  off = moments[~np.eye(5, dtype=bool)] / second.mean()
  assert np.abs(off).max() < 6 * 3 / COUNT**.5
  assert np.abs(vectors.mean(0)).max() < 6 * (second.max() / COUNT)**.5


@pytest.mark.parametrize('order', ORDERS)
@pytest.mark.parametrize('size', [1, 2])
def test_exact_log_ratio_on_a_grid(order, size):
  """Losses reach epsilon exactly, over shifts by the whole bound (LDP-03)."""
  epsilon, bound = .8, 1.7
  mechanism = k_norm.KNormMechanism(order=order, record_norm=bound,
                                    epsilon=epsilon, adjacency=ADD)
  axis = np.linspace(-6, 6, 121)
  points = np.stack(np.meshgrid(*[axis] * size, indexing='ij'), -1)
  angles = np.linspace(0, 2 * math.pi, 17)
  shifts = [[1.], [-1.]] if size == 1 else np.stack(
      [np.cos(angles), np.sin(angles)], -1)
  worst = 0.
  for shift in np.asarray(shifts):
    shift = bound * shift / norm(shift, order)
    # Both have the same normaliser, which does not depend on the data.
    losses = (norm(points - shift, order) -
              norm(points, order)) / mechanism.scale
    worst = max(worst, np.abs(losses).max())
  assert worst <= epsilon * (1 + 1e-9)
  assert worst == pytest.approx(epsilon)


def test_general_exponential_mechanism_would_waste_half():
  """Scoring by -|o - G| is epsilon/2-DP, wasting half the budget (E14)."""
  candidates = jnp.linspace(-60, 60, 4001)
  general = selection.ExponentialMechanism(sensitivity=1., epsilon=1.,
                                           adjacency=ADD)
  logs = [np.float64(general.log_weights(-jnp.abs(candidates - value)))
          for value in (0., 1.)]
  here, there = (values - np.logaddexp.reduce(values) for values in logs)
  assert np.abs(here - there).max() == pytest.approx(.5, abs=1e-3)
  # At half the epsilon, K-norm noise has the same scale, 2 D / epsilon.
  assert k_norm.KNormMechanism(order=1, record_norm=1., epsilon=.5,
                               adjacency=ADD).scale == 2.


@pytest.mark.every(2)
@pytest.mark.parametrize('adjacency', Adjacency)
def test_order_one_is_the_laplace_mechanism(adjacency):
  """At p = 1 the K-norm mechanism is the Laplace mechanism (LDP-03, DP-10)."""
  fields = {'record_norm': 1.3, 'epsilon': .7, 'adjacency': adjacency}
  here = k_norm.KNormMechanism(order=1, **fields)
  there = laplace.LaplaceMechanism(**fields)
  assert here.scale == there.scale and here.event == there.event
  assert here.risk(9) == there.risk(9)
  one, two = (np.ravel(m.release(k, jnp.zeros(COUNT))) for m, k in zip(
      (here, there), jax.random.split(KEY), strict=True))
  # The grid makes ties, which only lower the statistic.
  assert stats.ks_2samp(one, two).statistic < 2.7 * (2 / COUNT)**.5


@pytest.mark.every(2)
def test_noise_grows_like_the_dimension():
  """At d = 1000, epsilon 1, noise is 1000 against a Gaussian's 118 (LDP-03)."""
  gaussian = additive.calibrated_gaussian(record_norm=1., epsilon=1.,
                                          delta=1e-5, adjacency=ADD)
  assert gaussian.stddev * 1000**.5 == pytest.approx(118, abs=.5)
  for order in ORDERS:
    norms = norm(samples(order, 1000, 400), order)
    assert norms.mean() == pytest.approx(1000, abs=6 * (1000 / 400)**.5)


# -- Releases.


@pytest.mark.slow
@pytest.mark.parametrize('order', ORDERS)
def test_releases_lie_on_a_grid_and_keep_the_tree(order):
  mechanism = k_norm.KNormMechanism(order=order, record_norm=.5, epsilon=2.,
                                    adjacency=REPLACE)
  data = {'a': jnp.ones((3, 4)), 'b': jnp.zeros(())}
  noisy = jax.jit(mechanism.release)(KEY, data)
  assert jax.tree.map(jnp.shape, noisy) == jax.tree.map(jnp.shape, data)
  flat = np.append(np.ravel(noisy['a']), noisy['b'])
  typical = {1: 1., 2: 13**.5, math.inf: 13.}[order]
  units = flat / float(additive.grid_spacing(mechanism.scale * typical))
  np.testing.assert_array_equal(units, np.round(units))
  plain = mechanism.release(KEY, data)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(
      a, b, atol=typical / 200), noisy, plain)
  other = mechanism.release(jax.random.key(1), data)
  assert not np.any(np.ravel(other['a']) == np.ravel(plain['a']))


@pytest.mark.every(3)
@pytest.mark.parametrize('order', ORDERS)
def test_law_of_a_release(order):
  """A release's distance from the value is Gamma(d) times the scale."""
  mechanism = k_norm.KNormMechanism(order=order, record_norm=2., epsilon=.5,
                                    adjacency=REPLACE)
  value = jnp.arange(5.)
  noisy = jax.jit(jax.vmap(mechanism.release, (0, None)))(
      jax.random.split(KEY, COUNT), value)
  noise = np.float64(noisy) - np.float64(value)
  norms = norm(noise, order) / mechanism.scale
  # The limit is Kolmogorov-Smirnov's at 1e-6, plus the grid's share.
  limit = 2.7 / COUNT**.5 + .005
  distance = lambda values: stats.kstest(values, stats.gamma(5).cdf).statistic
  assert distance(norms) < limit < distance(.97 * norms)
  assert np.mean(np.sum(noise**2, -1)) == pytest.approx(mechanism.risk(5),
                                                        rel=.03)


@pytest.mark.every(5)
@pytest.mark.parametrize('order', ORDERS)
def test_contract(order):
  mechanism = k_norm.KNormMechanism(order=order, record_norm=2., epsilon=.5,
                                    adjacency=REPLACE)
  assert isinstance(mechanism, mechanisms.Mechanism)
  assert mechanism.scale == 8.
  spent = mechanisms.epsilon(mechanism, delta=1e-12)
  assert .5 - 1e-6 <= spent <= .5 + 2e-4
  add = accounting.epsilon(mechanism.event, delta=1e-12, adjacency=ADD)
  assert add == pytest.approx(.25, abs=2e-4)


def test_a_scale_that_is_no_number_does_not_release_the_value():
  for order in ORDERS:
    noisy = k_norm.add_noise(KEY, jnp.array([1.25, -3.]),
                             jnp.float32(math.nan), order=order)
    assert not np.isin(noisy, [1.25, -3.]).any()


# -- Norms of gradients.


@pytest.mark.parametrize('order', ORDERS)
def test_p_norm_from_l2_norm(order):
  rng = np.random.default_rng(0)
  vectors = rng.normal(size=(200, 12)) * (rng.random((200, 12)) < .4)
  vectors = np.concatenate([vectors, np.eye(12), np.ones((1, 12))])
  bound = k_norm.p_norm_bound(norm(vectors, 2), 12, order=order)
  ratio = norm(vectors, order) / np.maximum(bound, 1e-30)
  assert ratio.max() == pytest.approx(1)


def test_constants_of_the_loss_in_each_norm():
  """Cross entropy's cotangent has norm 2, sqrt 2, 1 in norms 1, 2, inf (E14).

  The Lipschitz constant with respect to the inf norm of the logits is the dual
  norm: 2, not sqrt 2.
  """
  rng = np.random.default_rng(1)
  probs = rng.dirichlet(np.ones(5) * .05, 5000)
  sent = probs - np.eye(5)[0]
  for order, constant in [(1, 2.), (2, 2**.5), (math.inf, 1.)]:
    largest = norm(sent, order).max()
    assert constant * .999 < largest <= constant + 1e-12
  # A dense layer's outer product has the product of its factors' norms.
  x, cotangent = rng.normal(size=4), rng.normal(size=3)
  for order in ORDERS:
    assert norm(np.outer(x, cotangent).ravel(), order) == pytest.approx(
        norm(x, order) * norm(cotangent, order))


# -- Blocks.


@pytest.mark.parametrize('order', ORDERS)
@pytest.mark.parametrize('seed', range(3))
def test_allocation_spends_the_budget_and_is_best(order, seed):
  rng = np.random.default_rng(seed)
  bounds = np.float32(np.exp(rng.normal(size=4)))
  sizes = [int(d) for d in rng.integers(1, 200, 4)]
  z = float(np.exp(rng.normal()))
  scales = np.float64(k_norm.allocate(jnp.asarray(bounds), noise_multiplier=z,
                                      sizes=sizes, order=order))
  assert np.sum(bounds / scales) == pytest.approx(1 / z, rel=1e-5)
  assert float(k_norm.joint_noise_multiplier(
      jnp.asarray(bounds), jnp.asarray(scales, jnp.float32))) == (
          pytest.approx(z, rel=1e-5))
  squares = np.array([k_norm.expected_square(d, order=order) for d in sizes])

  def energy(logits):
    shares = np.exp(logits - logits.max())
    return math.log(np.sum(squares * (bounds / (shares / shares.sum()))**2))

  best = optimize.minimize(energy, np.zeros(4), tol=1e-12)
  assert np.sum(squares * scales**2) == pytest.approx(
      z**2 * math.exp(best.fun), rel=1e-4)


# -- Accounting.


@pytest.mark.parametrize('order', ORDERS)
def test_a_sampled_run_costs_no_more_than_basic_composition(order):
  q, steps, epsilon = .05, 30, .4
  event = accounting.poisson_event(
      k_norm.event(noise_multiplier=1 / epsilon, order=order),
      sampling_prob=q, num_steps=steps)
  amplified = math.log(1 + q * (math.exp(epsilon) - 1))
  spent = accounting.epsilon(event, delta=1e-6, adjacency=ADD)
  assert spent <= min(steps * amplified, steps * epsilon)
  # Steps of randomised response attain the amplified pure guarantee.
  pure = accounting.repeated_event(
      accounting.pure_event(epsilon=amplified, adjacency=ADD), steps)
  by_pure = accounting.epsilon(pure, delta=1e-6, adjacency=ADD)
  if order == 1:
    assert spent < by_pure
  else:
    assert spent == pytest.approx(by_pure, abs=1e-9)


@pytest.mark.every(3)
@pytest.mark.parametrize('order, adjacency, accountant', [
  (1, ADD, 'pld'), (2, ADD, 'pld'), (math.inf, REPLACE, 'pld'),
  (2, ADD, 'rdp')])
def test_calibration_keeps_its_target(order, adjacency, accountant):
  q, steps, target = .02, 200, 1.
  z = k_norm.calibrate_noise_multiplier(
      target_epsilon=target, target_delta=1e-5, sampling_prob=q,
      num_steps=steps, order=order, adjacency=adjacency, accountant=accountant)

  def spent(multiplier):
    return accounting.epsilon(
        accounting.poisson_event(
            k_norm.event(noise_multiplier=multiplier, order=order),
            sampling_prob=q, num_steps=steps),
        delta=1e-5, adjacency=adjacency, accountant=accountant)

  assert spent(z) <= target < spent(z * (1 - 3e-4))


def test_one_release_is_calibrated_to_its_epsilon():
  """One unsampled release is calibrated as pure; delta 1e-12 gains nothing."""
  for adjacency, factor in ((ADD, 1), (REPLACE, 2)):
    multiplier = k_norm.calibrate_noise_multiplier(
        target_epsilon=.5, target_delta=1e-12, sampling_prob=1., num_steps=1,
        order=2, adjacency=adjacency)
    assert factor / .5 * (1 - 1e-3) <= multiplier <= factor / .5 * (1 + 1e-3)


@pytest.mark.parametrize('call, message', [
  (lambda: k_norm.unit_noise(KEY, 3, order=3), 'order must be 1, 2 or inf, got'),
  (lambda: k_norm.event(noise_multiplier=0., order=2), 'noise_multiplier must '),
  (lambda: k_norm.event(noise_multiplier=-1., order=1), 'noise_multiplier must'),
  (lambda: k_norm.KNormMechanism(order=1.5, record_norm=1., epsilon=1.,
                                 adjacency=ADD), 'order must be 1, 2 or inf'),
  (lambda: k_norm.KNormMechanism(order=2, record_norm=0., epsilon=1.,
                                 adjacency=ADD), 'record_norm must be a posi'),
  (lambda: k_norm.KNormMechanism(order=2, record_norm=1., epsilon=0.,
                                 adjacency=ADD), 'epsilon must be a positive'),
  (lambda: k_norm.calibrate_noise_multiplier(
      target_epsilon=1., target_delta=1e-5, sampling_prob=.1, num_steps=0,
      order=2, adjacency=ADD), 'num_steps must be an integer >= 1, got 0'),
  (lambda: k_norm.calibrate_noise_multiplier(
      target_epsilon=0., target_delta=1e-5, sampling_prob=.1, num_steps=1,
      order=2, adjacency=ADD), 'epsilon must be a positive number'),
])
def test_refusals(call, message):
  with pytest.raises(ValueError, match=f'^{message}[^\n]*$'):
    call()
