"""The exact minimax risk of a private proportion, computed by a game.

n zeros and ones, epsilon-DP under REPLACE_ONE, squared error. For any prior, no
private estimate has a smaller Bayes risk than the posterior mean given the
count with truncated geometric noise (docs/theory/proportions.md, Theorem 2). So
the risk is that of a statistical game without privacy, of a prior on theta
against an estimate from the noisy count. The Bayes risk is concave in the
prior: cutting planes find its largest value, and a Bayes estimate whose worst
risk is as small (`solve`).

After Ghosh, Roughgarden and Sundararajan (2009) and Gupte and Sundararajan
(2010), who show the same for an agent who wants to know the count, and Awan and
Slavkovic (2018, 2020), who derive the best private tests of a proportion. We
know of no earlier statement for the squared error of theta.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy import optimize
from scipy import signal
from scipy import special
from scipy import stats

from dpjax import errors

# Atoms of a prior, cutting planes, and thetas where worst risks are evaluated.
_ATOMS = 61
_PLANES = 60
_FINE = 301
# Counts farther than this many standard deviations have probability 0 here.
_REACH = 12.0
# Noisy counts are grouped in steps of odd length: this fraction of 1 / epsilon,
# and for many records of sqrt n.
_STEP, _ROOT_STEP, _MANY = 0.06, 0.025, 20_000
# Relative error allowed for grouping; ten times the largest one observed.
_SLACK = 1e-4


class Solution(NamedTuple):
  """A prior and an estimate that bound the minimax risk from both sides.

  Attributes:
    lower: Bayes risk of the prior: no epsilon-DP estimate has a smaller worst
      risk.
    upper: worst risk of the estimate over [0, 1].
    values: [n + 1], the estimate of theta for each noisy count; None where
      noisy counts were grouped.
  """
  lower: float
  upper: float
  values: np.ndarray | None


class _Game(NamedTuple):
  """Distributions of the noisy count.

  Attributes:
    num_examples: n.
    epsilon: privacy budget that the noise gives.
    places: [Y] noisy counts.
    sizes: [Y] number of noisy counts that each stands for.
  """
  num_examples: int
  epsilon: float
  places: np.ndarray
  sizes: np.ndarray

  def likelihoods(self, thetas: np.ndarray) -> np.ndarray:
    """Returns probabilities [T, Y] of noisy counts, for theta [T]."""
    n, q = self.num_examples, math.exp(-self.epsilon)
    width = min(n + 1, int(_REACH * math.sqrt(n)) + 100)
    low = np.clip(np.round(n * thetas).astype(int) - width // 2, 0,
                  n + 1 - width)
    counts = stats.binom.pmf(low[:, None] + np.arange(width), n,
                             thetas[:, None])
    # Recursive filters sum q^|y - count| over all counts in linear time.
    below = signal.lfilter([1.0], [1.0, -q], counts)
    above = signal.lfilter([1.0], [1.0, -q], counts[:, ::-1])[:, ::-1]
    at = self.places - low[:, None]
    inner = np.clip(at, 0, width - 1)

    def at_inner(values: np.ndarray) -> np.ndarray:
      return np.take_along_axis(values, inner, 1)

    # Inside the window of likely counts the sums are exact; outside they are
    # geometric tails of the sums at its ends.
    sums = np.where(at < 0, at_inner(above), np.where(
        at >= width, at_inner(below),
        at_inner(above) + at_inner(below) - at_inner(counts)))
    sums *= np.exp(-self.epsilon * np.abs(at - inner))
    # Noise beyond 0 and n is collected there, which removes the factor 1 - q.
    ends = (self.places == 0) | (self.places == n)
    probs = sums * np.where(ends, 1, 1 - q) / (1 + q) * self.sizes
    return probs / probs.sum(1, keepdims=True)  # Steps miss 1e-4 at the ends.


def _game(num_examples: int, epsilon: float) -> _Game:
  """Returns the game, with noisy counts grouped if there are many."""
  length = _STEP / epsilon
  if num_examples > _MANY:
    length = max(length, _ROOT_STEP * math.sqrt(num_examples))
  step = max(1, 2 * int(length / 2) - 1)
  if step == 1 or num_examples < 100 * step:
    places = np.arange(num_examples + 1)
    return _Game(num_examples, epsilon, places, np.ones(num_examples + 1))
  # Groups of 1 .. n - 1 are represented by their middles; 0 and n stand alone.
  starts = np.arange(1, num_examples, step)
  lengths = np.minimum(step, num_examples - starts)
  places = np.concatenate([[0], starts + (lengths - 1) // 2, [num_examples]])
  return _Game(num_examples, epsilon, places,
               np.concatenate([[1], lengths, [1]]).astype(np.float64))


def _bayes(probs: np.ndarray, weights: np.ndarray,
           likelihoods: np.ndarray) -> tuple[float, np.ndarray]:
  """Returns the Bayes risk, and posterior means minus 1/2 [Y]."""
  centred = probs - 0.5
  mass, sums = weights @ likelihoods, (weights * centred) @ likelihoods
  means = np.divide(sums, mass, out=np.zeros_like(mass), where=mass > 0)
  return float(weights @ centred**2 - sums @ means), means


def _risks(probs: np.ndarray, likelihoods: np.ndarray,
           values: np.ndarray) -> np.ndarray:
  """Returns the risks [T] of values + 1/2 [Y] as estimates of theta."""
  centred = probs - 0.5
  return (likelihoods @ values**2 - 2 * centred * (likelihoods @ values)
          + centred**2)


def _beta_prior(shape: float, size: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns atoms and weights that approximate Beta(a, a).

  They form a valid prior, so bounds by them hold exactly.
  """
  if shape < 2:
    nodes, weights = special.roots_jacobi(size, shape - 1, shape - 1)
  else:
    half_width = min(1.0, 6 / math.sqrt(2 * shape + 1))
    nodes = half_width * (2 * np.arange(size) + 1 - size) / size
    weights = np.exp((shape - 1) * np.log1p(-nodes**2))
  return (1 + nodes) / 2, weights / weights.sum()


def non_private_risk(num_examples: int) -> float:
  """Returns the minimax risk without privacy, 1 / (4 (1 + sqrt n)^2)."""
  return 1 / (4 * (1 + math.sqrt(num_examples))**2)


def bayes_bound(*, num_examples: int, epsilon: float) -> float:
  """Returns the largest Bayes risk of Beta(a, a) priors, a fast lower bound.

  Within a tenth of the minimax risk; much closer where n epsilon^2 is not
  small.
  """
  return (1 - _SLACK) * _bayes_bound(_checked(num_examples, epsilon))


def _bayes_bound(game: _Game) -> float:
  """Returns the largest Bayes risk of Beta(a, a) priors in this game."""
  root = math.sqrt(game.num_examples)
  size = int(min(250, max(40, 10 * math.sqrt(root))))

  def negative(log_shape: float) -> float:
    atoms, weights = _beta_prior(math.exp(log_shape), size)
    return -_bayes(atoms, weights, game.likelihoods(atoms))[0]

  minimum = optimize.minimize_scalar(
      negative, bounds=(-6.0, math.log(4 * root + 2)), method='bounded',
      options=dict(xatol=0.03))
  return -float(minimum.fun)


def affine_risk(*, num_examples: int, epsilon: float) -> tuple[float, float]:
  """Returns the worst risk of 1/2 + s (y / n - 1/2), and the best s.

  y is the noisy count.
  """
  game = _checked(num_examples, epsilon)
  return _affine(game, *_fine(game))


def _fine(game: _Game) -> tuple[np.ndarray, np.ndarray]:
  """Returns thetas in [0, 1/2] for worst risks, with their distributions."""
  size = _FINE if len(game.places) <= 20_000 else _ATOMS
  probs = (1 - np.cos(np.linspace(0, math.pi / 2, size))) / 2
  return probs, game.likelihoods(probs)


def _affine(game: _Game, probs: np.ndarray,
            likelihoods: np.ndarray) -> tuple[float, float]:
  """Returns the least worst risk of affine estimates, and its slope."""
  centred, places = probs - 0.5, game.places / game.num_examples - 0.5
  first, second = likelihoods @ places, likelihoods @ places**2

  def worst(slope: float) -> float:
    return float(np.max(slope**2 * second - 2 * slope * centred * first
                        + centred**2))
  minimum = optimize.minimize_scalar(worst, bounds=(0.0, 3.0), method='bounded',
                                     options=dict(xatol=1e-7))
  return float(minimum.fun), float(minimum.x)


def solve(*, num_examples: int, epsilon: float,
          tolerance: float = 5e-3) -> Solution:
  """Returns the minimax risk to `tolerance`, with at most 60 cutting planes.

  Deterministic and public: it depends on n and epsilon only. Numbers are exact
  to about 10^-5 where noisy counts are grouped.

  Args:
    num_examples: n, from 1 to 2 * 10^5.
    epsilon: privacy budget of the release; at least 1e-6.
    tolerance: target for upper / lower - 1.

  Examples:
    >>> from dpjax.theory.minimax import proportions_exact
    >>> solution = proportions_exact.solve(num_examples=100, epsilon=0.5)
    >>> round(solution.lower, 4), round(solution.upper, 4)
    (0.0027, 0.0027)
    >>> round(proportions_exact.non_private_risk(100), 4)
    0.0021
  """
  game = _checked(num_examples, epsilon)
  fine, fine_likelihoods = _fine(game)
  upper, slope = _affine(game, fine, fine_likelihoods)
  lower = non_private_risk(num_examples)
  best = slope * (game.places / num_examples - 0.5)
  if upper > lower * (1 + tolerance):
    lower = max(lower, _bayes_bound(game))
  if upper > lower * (1 + tolerance):
    plane_lower, plane_upper, values = _planes(game, fine, fine_likelihoods,
                                               tolerance)
    lower = max(lower, plane_lower)
    upper, best = min((upper, best), (plane_upper, values),
                      key=lambda pair: pair[0])
  is_ungrouped = len(game.places) == num_examples + 1
  return Solution(lower * (1 if is_ungrouped else 1 - _SLACK), upper,
                  best + 0.5 if is_ungrouped else None)


def _planes(game: _Game, fine: np.ndarray, fine_likelihoods: np.ndarray,
            tolerance: float) -> tuple[float, float, np.ndarray]:
  """Runs cutting planes over symmetric priors on a grid, from the uniform one.
  """
  atoms = (1 - np.cos(np.linspace(0, math.pi, _ATOMS))) / 2
  likelihoods, half = game.likelihoods(atoms), (_ATOMS + 1) // 2
  mirror = (np.eye(_ATOMS) + np.eye(_ATOMS)[::-1])[:half] / 2
  prior = centre = np.full(half, 1 / half)
  # Before the first plane: the constant 1/2, and no bound of its risk.
  lower, upper, planes = 0.0, math.inf, []
  best = np.zeros(len(game.places))
  for _ in range(_PLANES):
    risk, values = _bayes(atoms, prior @ mirror, likelihoods)
    if risk > lower:
      lower, centre = risk, prior
    worst = float(np.max(_risks(fine, fine_likelihoods, values)))
    if worst < upper:
      upper, best = worst, values
    if upper <= lower * (1 + tolerance):
      break
    # The plane of this estimate: its risk at each prior is at least the value.
    plane = mirror @ _risks(atoms, likelihoods, values)
    planes.append(np.append(-plane, 1.0))
    solved = optimize.linprog(
        np.append(np.zeros(half), -1.0), A_ub=np.array(planes),
        b_ub=np.zeros(len(planes)), A_eq=[[1.0] * half + [0.0]], b_eq=[1.0],
        bounds=[(0, None)] * half + [(None, None)], method='highs')
    if not solved.success:
      break
    # Halfway to the best prior so far, which stabilises the cutting planes.
    prior = (centre + np.maximum(solved.x[:half], 0)) / 2
    prior = prior / prior.sum()
  return lower, upper, best


def _checked(num_examples: int, epsilon: float) -> _Game:
  """Checks n and epsilon and returns the game."""
  errors.check_at_least('num_examples', num_examples, 1)
  if num_examples > 200_000:
    raise ValueError('num_examples must be at most 200000, got '
                     f'{num_examples}')
  if not epsilon >= 1e-6:
    raise ValueError(f'epsilon must be at least 1e-6, got {epsilon}')
  return _game(num_examples, epsilon)
