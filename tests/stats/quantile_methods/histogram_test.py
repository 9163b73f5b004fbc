"""Tests histograms: bins, noise, privacy by densities, reference errors."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize
from scipy import stats

from dpjax.privacy import draws
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.quantile_methods import curves
from dpjax.stats.quantile_methods import histogram
from dpjax.stats.quantile_methods import mechanism
from dpjax.stats.quantile_methods import rates
from dpjax.stats.quantile_methods import records

_ADD, _REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
_KEY = jax.random.key(0)
_SHARES = np.linspace(0, 1, 5)


@pytest.fixture(autouse=True)
def _double():
  with jax.enable_x64(True):
    yield


@functools.cache
def _compiled_ranks():
  return jax.jit(curves.ranks)


def _counts(values, lower=0.0, upper=1.0, shares=_SHARES):
  return np.diff(_compiled_ranks()(
      records.padded(np.asarray(values), lower, upper), shares))


def _mechanism(**changes):
  given = dict(probs=(0.3, 0.6), epsilon=1.0, lower=0.0, upper=1.0,
               adjacency=_REPLACE, num_bins=4)
  return histogram.HistogramQuantiles(**{**given, **changes})


def test_bins_are_closed_above_and_the_first_one_below():
  assert _counts([0, 0.25, 0.26, 0.5, 1, 1]).tolist() == [2, 2, 0, 2]
  assert _counts([np.nan, -5, 7, np.inf]).tolist() == [2, 0, 0, 2]
  assert _counts([0.6]).tolist() == [0, 0, 1, 0]
  rng = np.random.default_rng(0)
  values = rng.uniform(-0.3, 0.7, 30)
  wanted, _ = np.histogram(values, 4, (-0.3, 0.7))
  assert _counts(values, -0.3, 0.7).tolist() == wanted.tolist()


@pytest.mark.parametrize('adjacency, sensitivity', [(_REPLACE, 2), (_ADD, 1)])
def test_densities_of_neighbours_differ_by_epsilon(adjacency, sensitivity):
  """Neighbours' densities differ by epsilon exactly, at distant counts."""
  rng = np.random.default_rng(1)
  worst, epsilon = 0.0, 0.7
  scale = _mechanism(adjacency=adjacency, epsilon=epsilon).scale
  for _ in range(200):
    values = rng.choice(np.linspace(0, 1, 9), rng.integers(2, 8))
    other = (np.append(values[1:], rng.choice(9) / 8)
             if adjacency is _REPLACE else values[1:])
    first, second = _counts(values), _counts(other)
    change = np.abs(first - second)
    assert change.sum() <= sensitivity
    outputs = np.stack([first, second, first + 40, first - 40])
    ratio = (np.abs(outputs - second) - np.abs(outputs - first)).sum(1)
    worst = max(worst, np.max(np.abs(ratio)))
  assert worst / scale == pytest.approx(epsilon, rel=1e-12)
  # A scale of 1 / epsilon belongs to the other adjacency.
  assert (worst / (1 / epsilon) > 1.9 * epsilon) == (adjacency is _REPLACE)


def test_noise_is_whole_and_has_its_law():
  """Noise is whole with the exact probabilities, by chi-square at 10^-4."""
  mechanism = _mechanism(epsilon=0.8)
  scale = mechanism.scale
  assert scale == 2.5 == 1 / rates.counts(epsilon=0.8, adjacency=_REPLACE)
  data = records.padded(np.linspace(0, 1, 8), 0.0, 1.0)
  noisy = np.asarray(jax.jit(jax.vmap(
      histogram.noisy_counts, (0, None, None)))(
          jax.random.split(_KEY, 5000), data, mechanism.parameters))
  noise = (noisy - 2.0).ravel()
  assert np.all(noise == np.round(noise))
  ratio = np.exp(-1 / scale)
  places = np.arange(-10, 11)
  probs = (1 - ratio) / (1 + ratio) * ratio**np.abs(places)
  tail = (1 - probs.sum()) / 2
  counts = [np.sum(noise < -10), *(np.sum(noise == z) for z in places),
            np.sum(noise > 10)]
  assert stats.chisquare(counts, noise.size * np.array([tail, *probs, tail])
                         ).pvalue > 1e-4
  variance = draws.discrete_laplace_variance(scale)
  assert variance == pytest.approx(2 * ratio / (1 - ratio)**2)
  assert np.mean(noise**2) == pytest.approx(
      variance, abs=5 * np.sqrt(6) * variance / np.sqrt(noise.size))
  assert np.max(np.abs(np.corrcoef(noisy.T) - np.eye(4))) < 0.07


def test_noise_of_any_scale():
  noise = jax.jit(lambda scale: draws.discrete_laplace(_KEY, (4000,), scale,
                                                       jnp.float64))
  wide, none = noise(1e9), noise(0.01)
  assert np.mean(np.abs(wide)) == pytest.approx(1e9, rel=0.07)
  assert not np.any(none)


def _processed(noisy, total, post):
  """Returns processed counts by NumPy and root finding."""
  if post in ('bridge', 'isotonic'):
    noisy = noisy - (noisy.sum() - total) / noisy.size
  if post == 'simplex':
    level = optimize.brentq(lambda t: np.maximum(noisy - t, 0).sum() - total,
                            noisy.min() - total, noisy.max())
    noisy = np.maximum(noisy - level, 0)
  if post == 'clipnorm':
    noisy = np.maximum(noisy, 0)
    noisy = noisy * total / noisy.sum()
  inner = np.cumsum(noisy)[:-1] / total
  if post == 'isotonic':
    inner = np.clip(optimize.isotonic_regression(inner).x, 0, 1)
  return inner


@pytest.mark.every(3)
@pytest.mark.parametrize('post', histogram.POSTS)
def test_what_becomes_of_noisy_counts(post):
  rng = np.random.default_rng(2)
  noisy = np.round(rng.normal(5, 10, (20, 9)))
  total = 45.0
  fitted = np.asarray(jax.jit(jax.vmap(functools.partial(
      histogram.processed, total=jnp.float64(total), post=post)))(
          jnp.asarray(noisy)))
  wanted = np.stack([_processed(row, total, post) for row in noisy])
  np.testing.assert_allclose(fitted[:, 1:-1], wanted, atol=1e-12)
  assert np.all(fitted[:, 0] == 0)
  if post == 'raw':
    np.testing.assert_allclose(fitted[:, -1], noisy.sum(1) / total)
  else:
    np.testing.assert_allclose(fitted[:, -1], 1, atol=1e-12)
  if post not in ('raw', 'bridge'):
    assert np.all(np.diff(fitted) >= -1e-12)


def test_negative_counts_alone_are_a_uniform_law():
  curve = jax.jit(histogram.processed, static_argnums=2)(
      jnp.full(4, -3.0), jnp.float64(5), 'clipnorm')
  np.testing.assert_allclose(curve, [0, .25, .5, .75, 1])


def test_without_n_the_sum_of_counts_is_as_good():
  """Without n, the sum of counts is uncorrelated with the rest, so as good."""
  size = 6
  below = np.tril(np.ones((size, size)))
  share = np.arange(1, size + 1) / size
  left = below - np.outer(share, np.ones(size))
  np.testing.assert_allclose(left @ below[-1], 0, atol=1e-15)
  mechanism = _mechanism(num_bins=size, adjacency=_ADD)
  variance = draws.discrete_laplace_variance(mechanism.scale)
  np.testing.assert_allclose(
      mechanism.stddevs()[1:]**2, variance * np.sum(left**2, 1), atol=1e-12)


@pytest.mark.every(2)
def test_n_is_not_read_where_it_is_private():
  """A private n is not read: the curve is a function of noisy counts."""
  mechanism = _mechanism(adjacency=_ADD, post='raw', epsilon=0.2)
  data = records.padded(np.linspace(0, 1, 20), 0.0, 1.0)
  noisy, curve = (np.asarray(jax.jit(of)(_KEY, data, mechanism.parameters))
                  for of in (histogram.noisy_counts, mechanism.curve))
  assert noisy.sum() != 20
  np.testing.assert_allclose(curve[1:], np.cumsum(noisy) / noisy.sum())


@pytest.mark.every(3)
@pytest.mark.parametrize('values', [
    [0.4], [0.4] * 9, [0.0] * 9, [1.0] * 9, [np.nan, np.inf, -np.inf],
    np.linspace(0, 1, 30)])
@pytest.mark.parametrize('adjacency', [_ADD, _REPLACE])
def test_any_records(values, adjacency):
  mechanism = _mechanism(adjacency=adjacency, epsilon=40.0)
  answers = mechanism.estimate(_KEY, np.asarray(values))
  assert np.all((answers >= 0) & (answers <= 1))
  assert np.all(np.diff(answers) >= 0)
  known = np.sort(np.clip(np.nan_to_num(np.asarray(values), posinf=1), 0, 1))
  truth = known[np.ceil(len(known) * np.array(mechanism.probs)).astype(int) - 1]
  assert np.max(np.abs(answers - truth)) <= 0.25 + 1e-9


def test_the_curve_is_what_is_inverted():
  mechanism = _mechanism()
  values = jnp.linspace(-1, 2, 31)
  edges, curve = jax.jit(mechanism.release_curve)(_KEY, values)
  assert np.all(np.diff(curve) >= 0) and curve[0] == 0 and curve[-1] == 1
  np.testing.assert_allclose(np.interp(mechanism.estimate(_KEY, values), edges,
                                       curve), mechanism.probs, atol=1e-9)


@pytest.mark.slow
def test_more_orders_than_bins_by_one_program():
  """One compilation serves all epsilons, bounds and numbers of a capacity."""
  traces = []

  def draw(*args):
    traces.append(1)
    return _mechanism(num_bins=2).draw(*args)

  probs = tuple(np.linspace(0.1, 0.9, 17))
  run = jax.jit(draw)
  for epsilon, upper, size in [(1.0, 1.0, 10), (0.1, 3.0, 20), (9.0, 2.0, 32)]:
    mechanism = _mechanism(probs=probs, num_bins=2, epsilon=epsilon,
                           upper=upper)
    assert mechanism.draw is _mechanism(num_bins=2).draw
    answers = run(_KEY, records.padded(np.linspace(0, upper, size), 0.0, upper),
                  mechanism.parameters)
    assert np.all(np.diff(answers) >= 0) and answers[-1] <= upper
  assert len(traces) == 1


def test_bins_by_the_rule():
  rule = functools.partial(histogram.coarse_bins, epsilon=0.1)
  lines = functools.partial(rule, interpolation='linear')
  assert [lines(n, adjacency=_REPLACE) for n in (10**4, 10**5)] == [16, 40]
  assert lines(5000, adjacency=_ADD) == 16
  assert [rule(n, adjacency=_REPLACE) for n in (1, 10**4, 10**5)] == [4, 9, 18]
  mechanism = histogram.coarse((0.5,), epsilon=0.1, lower=0.0, upper=1.0,
                               adjacency=_REPLACE, num_examples=10**4)
  assert (mechanism.num_bins, mechanism.interpolation) == (9, 'smooth')


@pytest.mark.every(1)
@pytest.mark.parametrize('changes, message', [
    (dict(num_bins=1), 'num_bins must be an integer >= 2, got 1'),
    (dict(post='other'), 'post must be one of'),
    (dict(interpolation='cubic'), 'interpolation must be one of'),
    (dict(interpolation='smooth', post='raw'), 'interpolation must be linear'),
    (dict(epsilon=0.0), 'epsilon must be a positive number')])
def test_bad_arguments(changes, message):
  with pytest.raises(ValueError, match=message):
    _mechanism(**changes)


@functools.cache
def _samples(shape):
  values = stats.beta(*shape).rvs((50, 10**4),
                                  random_state=np.random.default_rng(5))
  rows = [records.padded(row, 0.0, 1.0) for row in values]
  return rows[0]._replace(ordered=np.stack([row.ordered for row in rows]))


def _errors(estimator, shape):
  """Returns max_j |q_j - F^-1(p_j)| of 50 repetitions."""
  answers = mechanism.repeated(estimator.draw)(
      jax.random.split(_KEY, 50), _samples(shape), estimator.parameters)
  return np.max(np.abs(np.asarray(answers) - stats.beta(*shape).ppf(_MANY)), 1)


_MANY = tuple(0.25 + np.arange(1, 101) / 202)
# From 50 repetitions at n = 10^4, epsilon = 0.1 and m = 100 (QF-19, QB-06).
_FEW = {(0.5, 0.5): 0.0161, (1, 1): 0.0101, (2, 5): 0.0046}
_PRINTED = {(0.5, 0.5): 0.0631, (2, 5): 0.0154, (5, 1): 0.0217,
            (1, 3): 0.0192}
_MORE = [(200, 'bridge', {(0.5, 0.5): .045, (1, 1): .032, (2, 5): .0130}),
         (50, 'isotonic', {(0.5, 0.5): .0243, (1, 1): .016, (2, 5): .0069}),
         (32, 'isotonic', {(0.5, 0.5): .0207, (1, 1): .013, (2, 5): .0059}),
         (8, 'isotonic', {(0.5, 0.5): .0119, (1, 1): .0083, (2, 5): .0060})]


@pytest.mark.slow
@pytest.mark.parametrize('bins, post, cells', [
    (200, 'raw', _PRINTED), (16, 'isotonic', _FEW),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in _MORE)])
def test_reference_errors(bins, post, cells):
  """Errors match the reference within 4 standard errors of both."""
  mechanism = _mechanism(probs=_MANY, epsilon=0.1, num_bins=bins, post=post)
  for shape, wanted in cells.items():
    errors = _errors(mechanism, shape)
    slack = 4 * np.sqrt(2) * errors.std(ddof=1) / np.sqrt(50)
    assert np.mean(errors) == pytest.approx(wanted, abs=slack)
    # The standard error is small enough for the test to mean something.
    assert slack < 0.5 * wanted


@pytest.mark.slow
def test_the_smooth_inverse_needs_fewer_bins():
  """The smooth inverse errs less than linear bins on every distribution."""
  smooth, lines = (histogram.coarse(
      _MANY, epsilon=0.1, lower=0.0, upper=1.0, adjacency=_REPLACE,
      num_examples=10**4, interpolation=each) for each in ('smooth', 'linear'))
  for shape in _FEW:
    assert _errors(smooth, shape).mean() < _errors(lines, shape).mean()


def test_a_total_is_public_or_noisy_and_at_least_one():
  data = records.padded(np.array([.2, .4, .9]), 0., 1.)
  with jax.enable_x64(True):
    for noisy in (-5., .3, .999, 1., 1.5, 4.):
      ended = jnp.float64(noisy)
      assert float(curves.total(data, ended, False)) == max(noisy, 1)
      assert float(curves.total(data, ended, True)) == 3
