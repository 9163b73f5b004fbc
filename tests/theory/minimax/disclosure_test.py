"""Tests disclosure bounds by exact small cases and linear programs."""

import itertools
import math

import numpy as np
import pytest
from scipy import optimize
from scipy import sparse
from scipy import stats

from dpjax.privacy import notions
from dpjax.theory.minimax import disclosure
from dpjax.theory.minimax import scores
from dpjax.theory.minimax import sign_vectors

_PURE, _KL = notions.PureDP, notions.KullbackLeiblerPrivacy


def _cosine(radius, nodes=64):
  """Returns points and weights of the prior cos^2 on [-radius, radius]."""
  u = (np.arange(nodes) + 0.5) / nodes * 2 - 1
  return radius * u, np.cos(math.pi * u / 2)**2 * 2 / nodes


def _bayes(n, epsilon, radius, outputs=25):
  """Returns the least Bayes risk of a private proportion (linear program)."""
  points, weights = _cosine(radius)
  counts = stats.binom.pmf(np.arange(n + 1)[:, None], n, 0.5 + points) * weights
  answers = np.linspace(-radius, radius, outputs)
  loss = counts @ (answers[:, None] - points).T**2
  eye, steps = np.eye(outputs), np.eye(n + 1)
  rows = sparse.vstack([
      sparse.kron(steps[[k]] - math.exp(epsilon) * steps[[j]], eye)
      for k in range(n + 1) for j in (k - 1, k + 1) if 0 <= j <= n])
  return optimize.linprog(
      loss.ravel(), rows, np.zeros(rows.shape[0]),
      sparse.kron(steps, np.ones((1, outputs))), np.ones(n + 1)).fun


@pytest.mark.parametrize('n, epsilon, radius, earlier, program', [
    (10, 0.5, 0.45, 0.00315, 0.02028), (20, 0.25, 0.4, 0.00295, 0.01635),
    (40, 0.25, 0.3, 0.00104, 0.00781), (10, 2.0, 0.4, None, None),
    (3, 6.0, 0.45, None, None)])
def test_no_private_proportion_errs_less(n, epsilon, radius, earlier, program):
  """Bounds stay below the linear program's risk, and
  above G-11's older ones."""
  information = scores.cosine_mean(lambda p: 1 / (p * (1 - p)), centre=0.5,
                                   radius=radius)
  known = dict(dimension=1, num_examples=n, guarantee=_PURE(epsilon=epsilon),
               information=information,
               prior_information=scores.cosine_information(
                   dimension=1, radius=radius))
  bound, before = scores.bound(**known), scores.private(**known)
  exact = _bayes(n, epsilon, radius)
  # Errors of sampling and privacy add up.
  free = scores.bound(**known | dict(guarantee=None),
                      information_trace=information)
  both = scores.bound(**known, information_trace=information)
  assert max(bound, free / 2) <= both < exact
  if epsilon < 1:
    assert both > 1.05 * max(bound, free)
  assert 1.9 * before < bound < exact < radius**2
  if program is not None:
    assert before == pytest.approx(earlier, abs=1e-5)
    assert exact == pytest.approx(program, rel=0.01)


def test_one_record_under_divergences_is_exact():
  """The bound is below the exact risk of the best two output distributions."""
  for radius, level in itertools.product((0.1, 0.5, 0.9), (0.01, 0.3, 2, 9)):
    points, weights = _cosine(radius)
    variance = weights @ points**2
    logit = optimize.brentq(lambda x: x * math.tanh(x / 2) - level, 0, 50)
    exact = variance - (variance * math.tanh(logit / 2))**2
    bound = scores.bound(
        dimension=1, num_examples=1, guarantee=_KL(level=level),
        information=float(np.max((np.abs(points) / np.arctanh(np.abs(points)))
                                 / (1 - points**2)**2)),
        prior_information=scores.cosine_information(dimension=1, radius=radius),
        scores='sub_gaussian')
    assert 0 < bound < exact


def _least_risk(dimension, n, level, radius, rng, outputs=4):
  """Returns a small Bayes risk of n sign vectors under KL privacy."""
  points, weights = _cosine(radius, 24)
  signs = list(itertools.product((-1, 1), repeat=dimension))
  data = list(itertools.product(range(len(signs)), repeat=n))
  one = np.array([(1 + s * points) / 2 for s in (-1, 1)])
  total = np.array([[sum((signs[x][j] + 1) // 2 for x in row)
                     for j in range(dimension)] for row in data])
  likelihood = one[1]**total[..., None] * one[0]**(n - total[..., None])
  mass, first = likelihood @ weights, likelihood @ (weights * points)
  whole = np.prod(mass, 1)
  means = np.stack([first[:, j] / mass[:, j] * whole
                    for j in range(dimension)], 1)
  pairs = np.array([(a, b) for a, x in enumerate(data)
                    for b, y in enumerate(data)
                    if sum(u != v for u, v in zip(x, y)) == 1])
  variance = dimension * float(weights @ points**2)

  def channel_of(z):
    return np.exp(z - np.logaddexp.reduce(z, 1, keepdims=True))

  def risk(z):
    q = channel_of(z.reshape(len(data), outputs))
    return -1e3 * np.sum((q.T @ means)**2 / (q.T @ whole)[:, None])

  def slack(z):
    q = channel_of(z.reshape(len(data), outputs))
    a, b = q[pairs[:, 0]], q[pairs[:, 1]]
    return level - np.sum(a * np.log(a / b), 1)
  optimum = optimize.minimize(
      risk, rng.normal(size=len(data) * outputs) / 10, method='SLSQP',
      constraints={'type': 'ineq', 'fun': slack}, options={'maxiter': 60})
  assert slack(optimum.x).min() > -1e-6
  return variance + optimum.fun / 1e3


@pytest.mark.parametrize('dimension, n, level', [(1, 3, 0.05), (2, 1, 0.2),
                                                 (2, 2, 0.05)])
def test_programs_under_divergences_never_err_less(dimension, n, level):
  rng = np.random.default_rng(0)
  radius = 0.6
  least = _least_risk(dimension, n, level, radius, rng)
  v = radius
  bound = scores.bound(
      dimension=dimension, num_examples=n, guarantee=_KL(level=level),
      information=v / math.atanh(v) / (1 - v**2)**2, scores='sub_gaussian',
      prior_information=scores.cosine_information(dimension=dimension,
                                                  radius=radius))
  assert 0.1 * least < bound < least


def _largest_pull(probs, values, epsilon):
  """Returns max E f W / sd f over densities W with log-range epsilon."""
  size = len(probs)
  values = values - probs @ values
  eye, ones = np.eye(size), np.ones((size, 1))
  optimum = optimize.linprog(
      -np.append(probs * values, 0),
      np.vstack([np.hstack([-eye, ones]),
                 np.hstack([eye, -math.exp(epsilon) * ones])]),
      np.zeros(2 * size), np.append(probs, 0)[None], [1.0])
  return -optimum.fun / math.sqrt(probs @ values**2)


@pytest.mark.every(3)
@pytest.mark.parametrize('epsilon', [1e-3, 0.3, 2.0, 6.0])
def test_no_record_pulls_further(epsilon):
  most = disclosure.correlation(_PURE(epsilon=epsilon))
  rng = np.random.default_rng(1)
  for _ in range(20):
    probs = rng.dirichlet(np.ones(4) / 2)
    assert _largest_pull(probs, rng.normal(size=4), epsilon) <= most + 1e-9
  # A value of probability 1 / (1 + e^epsilon) attains it.
  rare = 1 / (1 + math.exp(epsilon))
  assert _largest_pull(np.array([rare, 1 - rare]), np.array([1.0, 0.0]),
                       epsilon) == pytest.approx(most, rel=1e-6)
  # These are scores of Gaussian means, in cells of equal mass.
  edges = stats.norm.ppf(np.linspace(0, 1, 801))
  cells = 800 * -np.diff(stats.norm.pdf(edges))
  gaussian = disclosure.correlation(_PURE(epsilon=epsilon), scores='gaussian')
  assert _largest_pull(np.full(800, 1 / 800), cells, epsilon) == pytest.approx(
      gaussian, rel=0.01)
  proxy = disclosure.correlation(_PURE(epsilon=epsilon), scores='sub_gaussian')
  assert gaussian <= proxy <= most
  assert disclosure.correlation(
      notions.ApproxDP(epsilon=epsilon, delta=0.0)) == most


@pytest.mark.parametrize('epsilon', [0.1, 1.0, 4.0])
def test_no_more_is_disclosed_of_a_record(epsilon):
  """Subset releases attain the disclosed information, and none exceeds it."""
  most, growth = disclosure.disclosed(_PURE(epsilon=epsilon)), math.exp(epsilon)
  informations = []
  for size in range(1, 200):
    share = size / 200
    low = 1 / (1 + share * (growth - 1))
    high = growth * low
    informations.append(share * high * math.log(high)
                        + (1 - share) * low * math.log(low))
  assert max(informations) <= most + 1e-12
  assert max(informations) == pytest.approx(most, rel=1e-3)
  assert most <= epsilon**2 / 8
  assert disclosure.disclosed(_PURE(epsilon=700.0)) == 700


def test_small_and_large_budgets_of_gaussian_scores():
  pull = lambda epsilon: disclosure.correlation(
      _PURE(epsilon=epsilon), scores='gaussian')
  assert pull(1e-6) == pytest.approx(1e-6 / math.sqrt(2 * math.pi), rel=1e-4)
  assert pull(500.0) == pytest.approx(math.sqrt(1000), rel=0.02)
  assert pull(500.0) <= pull(601.0) and pull(0.0) == 0
  # Gaussian means under zCDP have d^2 s^2 / (2 n^2 rho) for every rho.
  known = dict(dimension=3, num_examples=7, guarantee=notions.ZCDP(rho=2.0),
               information=1 / 4, prior_information=0.0)
  assert scores.bound(**known, scores='gaussian') == pytest.approx(
      9 * 4 / (2 * 49 * 2))
  assert scores.bound(**known) == pytest.approx(scores.private(**known))


_VECTORS = dict(dimension=20, num_examples=10**5)


def test_dimensions_count_under_divergences():
  """The bound exceeds LB-16 and grows with dimension as Gaussian noise does."""
  level, d = 1e-4, 20
  bound = sign_vectors.vectors(**_VECTORS, guarantee=_KL(level=level))
  printed = d / (512 * math.pi**2 * 10**10 * level)
  assert bound > 1000 * printed
  # Signs have size 1 / sqrt d, and noise of variance 2 / (n^2 level) each.
  assert bound < 2 * d / (10**10 * level) < 6 * bound
  assert sign_vectors.vectors(**_VECTORS, guarantee=notions.ZCDP(rho=level)) == (
      bound)
  # Releases without information leave nearly the prior's variance
  # R^2 (1/3 - 2/pi^2).
  for guarantee in (_KL(level=0.0), _PURE(epsilon=0.0)):
    assert 0.09 < sign_vectors.vectors(**_VECTORS, guarantee=guarantee) < (
        1 / 3 - 2 / math.pi**2)
  for moment in (2, 3, 8):
    # Noise dominates here.
    risks = [sign_vectors.vectors(
        dimension=40 * more, num_examples=10**7, guarantee=_KL(level=1e-8),
        moment=moment)
             for more in (1, 2)]
    assert math.log2(risks[1] / risks[0]) == pytest.approx(
        1 - 1 / moment, abs=0.03)
    share = (40 / 10**6)**(1 - 1 / moment)
    assert share / 50 < risks[0] < share


def test_what_delta_leaves_of_the_dimension():
  pure, approx = (sign_vectors.vectors(**_VECTORS, guarantee=notions.ApproxDP(
      epsilon=0.002, delta=delta)) for delta in (0, 1e-9))
  # Values and means differ like values, so 2 sinh holds for half an epsilon.
  assert pure / 4 <= approx < pure / 2.5
  half = sign_vectors.vectors(**_VECTORS, guarantee=notions.ApproxDP(
      epsilon=0.002, delta=1e-5))
  assert 0 < half < approx
  # A random thousandth of the records has a thousand times the mean's error.
  level = 1e-3
  assert sign_vectors.vectors(dimension=1, num_examples=10**5, guarantee=(
      notions.TotalVariationPrivacy(level=level))) < 1e-2
  # Without privacy it is 1 / n, and any guarantee has at least that.
  free = sign_vectors.vectors(**_VECTORS, guarantee=None)
  assert 0.9e-5 < free < 1e-5
  assert sign_vectors.vectors(**_VECTORS, guarantee=(
      notions.TotalVariationPrivacy(level=0.5))) == free


@pytest.mark.parametrize('seed', range(3))
def test_never_above_what_a_constant_errs(seed):
  rng = np.random.default_rng(seed)
  for _ in range(20):
    size = 10**rng.uniform(-12, 2)
    guarantee = (_PURE(epsilon=size), _KL(level=size), notions.ZCDP(rho=size),
                 notions.ApproxDP(epsilon=size, delta=min(size, 0.5)),
                 notions.TotalVariationPrivacy(level=min(size, 1.0)),
                 notions.ApproxDP(epsilon=0.0, delta=0.0))[rng.integers(6)]
    bound = sign_vectors.vectors(
        dimension=int(rng.integers(1, 500)), radius=3.0,
        num_examples=int(10**rng.uniform(0, 7)), guarantee=guarantee,
        moment=float(rng.choice([1, 2, 4, math.inf])))
    assert 0 <= bound < 9


@pytest.mark.parametrize('arguments, message', [
    (dict(moment=0.5), 'moment must be a number >= 1, got 0.5'),
    (dict(radius=0.0), 'radius must be a positive number'),
    (dict(dimension=0), 'dimension must be an integer >= 1'),
    (dict(num_examples=0), 'num_examples must be an integer >= 1')])
def test_refusals(arguments, message):
  known = _VECTORS | dict(guarantee=_KL(level=0.1)) | arguments
  with pytest.raises(ValueError, match=message):
    sign_vectors.vectors(**known)
