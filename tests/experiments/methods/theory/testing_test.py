"""These tests compare bounds on tests with the best private tests."""

import math

import numpy as np
import pytest
from scipy import optimize
from scipy import stats

from experiments.methods.theory import testing

# The linear programs are solved to this accuracy.
_SOLVED = 1e-6


def _counts(n, p):
  return stats.binom.pmf(np.arange(n + 1), n, p)


def _best_errors(n, probs, epsilon, delta=0.0):
  """Returns the least mean and least maximum of two errors, by linear programs.

  Tests of Bernoulli records are functions of the count, and neighbours are
  counts that differ by 1.
  """
  p, q = (_counts(n, prob) for prob in probs)
  step = np.eye(n + 1)
  lines = [(step[k] - math.exp(epsilon) * step[j], delta)
           for k in range(n + 1) for j in (k - 1, k + 1) if 0 <= j <= n]
  # This is the same for 1 - phi.
  lines += [(-line, delta + math.exp(epsilon) - 1) for line, _ in lines]
  rows, sides = map(np.array, zip(*lines))
  mean = optimize.linprog((p - q) / 2, rows, sides, bounds=(0, 1))
  rows = np.pad(rows, ((0, 0), (0, 1)))
  rows = np.vstack([rows, np.append(p, -1), np.append(-q, -1)])
  worst = optimize.linprog(np.append(np.zeros(n + 1), 1), rows,
                           np.append(sides, [0, -1]), bounds=(0, 1))
  return mean.fun + 0.5, worst.fun


CASES = [(n, epsilon, probs) for n in (1, 2, 5, 12) for epsilon in (0.1, 1, 2)
         for probs in ((0.4, 0.5), (0.1, 0.9), (0, 1))]


@pytest.mark.parametrize('n, epsilon, probs', CASES)
def test_no_private_test_errs_less(n, epsilon, probs):
  t = probs[1] - probs[0]
  mean, worst = _best_errors(n, probs, epsilon)
  pair = testing.pair_pure(t, num_records=n, epsilon=epsilon)
  power = testing.le_cam_pure(t, num_records=n, epsilon=epsilon)
  exponential = testing.le_cam_pure(t, num_records=n, epsilon=epsilon,
                                    exponential=True)
  assert mean <= worst + _SOLVED
  assert exponential <= power + 1e-12
  assert power <= pair + 1e-12
  assert pair <= mean + _SOLVED
  if n == 1 or t == 1:
    # With randomised response the bound is exact.
    assert pair == pytest.approx(mean, abs=_SOLVED)


def test_randomised_response_is_the_best_test_of_one_record():
  epsilon = np.array([0.2, 1.0, 3.0])
  lie = 1 / (1 + np.exp(epsilon))
  for e, wanted in zip(epsilon, lie):
    assert testing.pair_pure(1.0, num_records=1, epsilon=e) == (
        pytest.approx(wanted, rel=1e-12))
    assert testing.le_cam_pure(1.0, num_records=1, epsilon=e) < wanted


@pytest.mark.parametrize('delta', [1e-3, 0.02, 0.1])
def test_no_approximate_private_test_errs_less(delta):
  for n, epsilon, probs in ((1, 0.5, (0, 1)), (3, 0.3, (0.2, 0.6)),
                            (6, 1, (0.4, 0.7))):
    bound = testing.le_cam_pure(probs[1] - probs[0], num_records=n,
                                epsilon=epsilon, delta=delta)
    mean, worst = _best_errors(n, probs, epsilon, delta)
    assert bound <= mean + _SOLVED and mean <= worst + _SOLVED
    # Without the term in delta the bound would be wrong in the first case.
    if n == 1 and delta == 0.1:
      assert mean < testing.pair_pure(1.0, num_records=1, epsilon=epsilon)


def test_what_delta_takes_off():
  alike = (1 - (1 - math.exp(-0.5)) * 0.3)**4
  assert testing.le_cam_pure(
      0.3, num_records=4, epsilon=0.5, delta=0.01) == pytest.approx(
          alike / 2 - 4 * math.exp(-0.5) * 0.01 * 0.3)


def test_powers_keep_what_rounding_would_lose():
  n, t = 10**12, 3e-12
  assert testing.le_cam_pure(t, num_records=n, epsilon=0.5) == pytest.approx(
      math.exp(-n * t * -math.expm1(-0.5)) / 2, rel=1e-10)
  assert testing.pair_pure(t, num_records=n, epsilon=1e-6) == pytest.approx(
      math.exp(-n * t * 5e-7) / 2, rel=1e-6)


def _gaussian_outputs(n, probs, rho):
  """Returns (densities [2, G] of a count with Gaussian noise, the step)."""
  sigma = (2 * rho)**-0.5
  grid = np.linspace(-9 * sigma, n + 9 * sigma, 6001)
  noise = stats.norm.pdf(grid[None] - np.arange(n + 1)[:, None], scale=sigma)
  return np.stack([_counts(n, p) @ noise for p in probs]), grid[1] - grid[0]


def _geometric_outputs(n, probs, epsilon):
  grid_end = int(40 / epsilon) + 1
  grid = np.arange(-grid_end, n + grid_end + 1)
  noise = math.tanh(epsilon / 2) * np.exp(-epsilon * np.abs(
      grid[None] - np.arange(n + 1)[:, None]))
  return np.stack([_counts(n, p) @ noise for p in probs]), 1.0


SPOTS = [(1, 0.5, (0, 1)), (4, 0.05, (0.2, 0.7)), (30, 0.002, (0.3, 0.6)),
         (30, 0.02, (0.45, 0.5)), (3, 2.0, (0, 1))]


@pytest.mark.parametrize('n, rho, probs', SPOTS)
def test_gaussian_counts_obey_the_bounds_of_concentrated_privacy(n, rho, probs):
  (p, q), step = _gaussian_outputs(n, probs, rho)
  t = probs[1] - probs[0]
  mean_error = np.sum(np.minimum(p, q)) * step / 2
  assert testing.le_cam_zcdp(t, num_records=n, rho=rho) <= mean_error
  share = testing.squared_share(t, num_records=n, rho=rho)
  risk = 2 * np.sum(p * q / (p + q)) * step
  assert share <= risk <= 1
  # The bound loses no more than a factor of two to the best test.
  assert share >= 2 * testing.le_cam_zcdp(t, num_records=n, rho=rho)


@pytest.mark.parametrize('n, epsilon, probs', [
    (1, 1.0, (0, 1)), (4, 0.3, (0.2, 0.7)), (30, 0.05, (0.3, 0.6)),
    (3, 2.0, (0, 1)), (12, 0.4, (0.4, 0.6))])
def test_geometric_counts_obey_the_bound_on_squares(n, epsilon, probs):
  (p, q), _ = _geometric_outputs(n, probs, epsilon)
  share = testing.squared_share(probs[1] - probs[0], num_records=n,
                                epsilon=epsilon)
  risk = 2 * np.sum(p * q / (p + q))
  assert share <= risk <= 1
  # Four times the bound would be wrong somewhere here.
  assert 4 * share > risk


def test_squares_at_two_points_by_randomised_response():
  """The share of squared loss left at two points is below the best test's.

  The best test of one record is randomised response.
  """
  for epsilon in (0.1, 1.0, 3.0):
    share = testing.squared_share(1.0, num_records=1, epsilon=epsilon)
    best = np.cosh(epsilon / 2)**-2
    assert share <= best
    assert share == pytest.approx(max(2 / (1 + math.exp(epsilon)),
                                      math.exp(-epsilon**2 / 4)))


def test_fano_against_response_among_many():
  for num_hypotheses in (3, 16, 200):
    apart = 1.0 - np.eye(num_hypotheses)
    for epsilon in (0.1, 1.0, 4.0):
      error = (num_hypotheses - 1) / (math.exp(epsilon) + num_hypotheses - 1)
      bound = testing.fano_pure(apart, num_records=1, epsilon=epsilon)
      assert bound <= error
      assert bound == pytest.approx(1 - (1 + epsilon * (1 - 1 / num_hypotheses))
                                    / math.log(num_hypotheses))
    # Pure epsilon-DP is zCDP with rho = epsilon tanh(epsilon / 2).
    rho = math.tanh(0.5)
    assert testing.fano_zcdp(apart, num_records=1, rho=rho) <= (
        (num_hypotheses - 1) / (math.e + num_hypotheses - 1))


def test_fano_forgives_one_outlier():
  """Fano's bound uses the mean distance, so it forgives one outlier."""
  t = np.full((1000, 1000), 0.01)
  t[0], t[:, 0] = 1.0, 1.0
  np.fill_diagonal(t, 0)
  assert testing.fano_pure(t, num_records=100, epsilon=0.1) == (
      pytest.approx(0.824, abs=1e-3))


def test_fano_of_concentrated_privacy_is_its_formula():
  t = np.array([[0, 0.1, 0.3], [0.1, 0, 0.2], [0.3, 0.2, 0]])
  total = sum((2 * x / (1 + x)) / 7 + (2 * x / (1 + x))**2 for x in t.ravel())
  assert testing.fano_zcdp(t, num_records=7, rho=0.01) == pytest.approx(
      1 - (1 + 49 * 0.01 / 9 * total) / math.log(3))
  # A binomial distribution has a smaller second moment than that.
  p = 2 * t / (1 + t)
  squares = sum(math.comb(7, d) * p**d * (1 - p)**(7 - d) * d**2
                for d in range(8))
  assert testing.fano_zcdp(t, num_records=7, rho=0.01, exact=True) == (
      pytest.approx(1 - (1 + 0.01 * squares.mean()) / math.log(3)))


def test_fano_and_le_cam_without_privacy():
  """Fano's and Le Cam's bounds hold for the likelihood-ratio test."""
  probs = np.random.default_rng(0).dirichlet(np.full(4, 0.3), 60)
  base = probs.mean(0)
  kl = np.sum(probs * np.log(np.maximum(probs, 1e-300) / base), 1)
  error = 1 - np.sum(np.max(probs, 0)) / 60
  assert testing.fano(kl) < testing.decoding(kl.mean(), math.log(60)) <= error
  assert testing.fano([0.1, 0.2, 0.6]) == pytest.approx(1 - 1.3 / math.log(3))
  t = testing.variations(probs[:2], np.ones(4))[0, 1]
  assert testing.le_cam(t) == pytest.approx(np.sum(np.min(probs[:2], 0)) / 2)
  assert t <= testing.pinsker(np.sum(probs[0] * np.log(probs[0] / probs[1])))


def test_words_are_many_and_far_apart():
  for num_bits in range(8, 49):
    # Words of few bits are close by chance, so more seeds are tried.
    for seed in range(40 if num_bits < 13 else 1):
      words = testing.varshamov_gilbert(num_bits, seed=seed)
      apart = np.sum(words[:, None] != words[None], -1)
      assert len(words) >= 1 + 2**(num_bits / 8)
      assert not words[0].any()
      assert np.min(apart[~np.eye(len(words), dtype=bool)]) >= num_bits / 8
  again = testing.varshamov_gilbert(48, seed=0)
  np.testing.assert_array_equal(words, again)
  assert not np.array_equal(again, testing.varshamov_gilbert(48, seed=1))


def test_a_cube_of_one_bit_is_two_points():
  distances = np.array([[0, 0.3], [0.3, 0]])
  error = testing.le_cam_zcdp(0.2, num_records=5, rho=0.01)
  wanted = testing.packing(distances, error)
  assert wanted == pytest.approx(0.15**2 * error)
  bounds = [testing.assouad(0.3**2 / 2, 1, error, statement=statement)
            for statement in testing.STATEMENTS]
  assert bounds == pytest.approx([wanted, wanted / 4, wanted / 8])


def test_mixtures_of_single_records_prove_nothing():
  """A cube may hide each bit from single records (DEN-E4).

  Walsh functions of two and three of three bits give both halves of the cube
  the same mean. Words are known after enough records, yet (13) with the
  mixtures (14) stays constant in n.
  """
  words = np.array(np.meshgrid(*[[0, 1]] * 3)).reshape(3, -1).T
  signs = 1 - 2 * words
  pairs = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 1, 1]], bool)
  waves = np.array([np.prod(np.where(pair, signs, 1), 1) for pair in pairs]).T
  probs = (1 + waves @ waves.T / 4) / 8  # [word, bin]
  np.testing.assert_allclose(probs.sum(1), 1)
  assert probs.min() >= 0
  for bit in words.T:
    np.testing.assert_allclose(probs[bit == 0].mean(0), probs[bit == 1].mean(0))
  # Densities are 8 times as high, on bins of 1/8.
  squares = testing.distances(8 * probs, np.full(8, 1 / 8))**2
  hamming = np.sum(words[:, None] != words[None], -1)
  apart = ~np.eye(8, dtype=bool)
  tau = np.min(squares[apart] / hamming[apart]) / 2
  assert tau == pytest.approx(2 / 3 / 16)
  # The mixtures are one distribution: each mean error is 1/2.
  printed = testing.assouad(tau, 3, 0.5, statement='paper')
  risks = lambda n: 8 * (1 - np.sum(probs**2, 1)) / n
  assert max(risks(10**4)) < printed / 8
  assert min(risks(100)) > printed


def test_quadrature_of_gaussians():
  x = np.linspace(-12, 13, 4001)
  weights = np.full(x.size, x[1] - x[0])
  densities = stats.norm.pdf(x[None], loc=np.array([[0.], [1.]]))
  assert testing.variations(densities, weights)[0, 1] == pytest.approx(
      2 * stats.norm.cdf(0.5) - 1, abs=1e-5)
  np.testing.assert_allclose(testing.divergences(densities, weights),
                             [[0, 0.5], [0.5, 0]], atol=1e-9)
  assert testing.distances(densities, weights)[1, 0]**2 == pytest.approx(
      (1 - math.exp(-0.25)) / math.sqrt(math.pi))


@pytest.mark.every(1)
@pytest.mark.parametrize('call', [
    lambda: testing.varshamov_gilbert(7, seed=0),
    lambda: testing.varshamov_gilbert(49, seed=0),
    lambda: testing.squared_share(0.1, num_records=2),
    lambda: testing.squared_share(0.1, num_records=2, epsilon=1.0, rho=1.0),
    lambda: testing.fano([0.1]),
    lambda: testing.assouad(1.0, 1, 0.5, statement='folklore'),
    lambda: testing.le_cam_zcdp(0.1, num_records=2, rho=-1.0),
    lambda: testing.divergences(np.array([[0., 2.]]), np.full(2, 0.5))])
def test_bad_input_is_named(call):
  with pytest.raises(ValueError):
    call()
