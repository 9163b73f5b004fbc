"""Optimal post-processing of noisy means: Bayes estimates under worst priors.

Estimating one coordinate, whose distribution given theta in [-b, b] is known,
is a statistical game. The Bayes risk is concave in the prior on a grid of
thetas, and its gradient is the vector of risks of the Bayes estimate. At the
maximum no risk exceeds the Bayes risk, so that estimate is minimax. Mirror
ascent finds both. The estimate is post-processing: privacy does not depend on
how it was found. Records are products over coordinates and noise has one
variance, so the best rule for a coordinate is the best for their sum. Public
numbers only; float64 on the host.
"""

import functools
import math
from typing import NamedTuple

import numpy as np
from scipy import special

from dpjax.privacy import notions
from dpjax.theory.minimax.bounds import Guarantee
from dpjax.theory.parametric.exponential_families import Model

_ROUNDS = 2000
_GAUSSIAN = (8.0, 241)  # range of Gaussian noise, and number of nodes
_FEWEST, _MOST = 41, 161  # number of thetas
_RESOLUTION = 0.75  # their distance, in standard deviations of an estimate
_PLACES = 801  # number of grid points of noisy means
_REACH = 7.0  # range of noisy means, in standard deviations
_HERMITE = 25


class Game(NamedTuple):
  """A prior on thetas and its Bayes estimate.

  Attributes:
    prior: [G] probabilities of the thetas.
    estimates: [Y] estimate for each outcome.
    lower: Bayes risk of the prior, a lower bound for every estimate.
    upper: largest risk of the estimate on the grid of thetas.
  """
  prior: np.ndarray
  estimates: np.ndarray
  lower: float
  upper: float


def bayes(likelihoods: np.ndarray, thetas: np.ndarray, prior: np.ndarray
          ) -> Game:
  """Returns the posterior mean given each outcome, and its risks.

  Args:
    likelihoods: [G, Y], probabilities of outcomes given each theta.
    thetas: [G].
    prior: [G].
  """
  # Posterior means; outcomes of probability 0 get 0 and cost nothing.
  mass = prior @ likelihoods
  estimates = np.divide((prior * thetas) @ likelihoods, mass, where=mass > 0,
                        out=np.zeros_like(mass))
  risks = (likelihoods @ estimates**2 - 2 * thetas * (likelihoods @ estimates)
           + likelihoods.sum(1) * thetas**2)
  return Game(prior, estimates, float(prior @ risks), float(risks.max()))


def solve(likelihoods: np.ndarray, thetas: np.ndarray) -> Game:
  """Returns a nearly least favourable, symmetric prior and its estimate.

  It returns the best round; lower and upper value agree to about a thousandth.

  Args:
    likelihoods: [G, Y], symmetric if both axes are reversed.
    thetas: [G], symmetric.
  """
  prior = np.full(len(thetas), 1 / len(thetas))
  best = Game(prior, thetas, 0.0, math.inf)  # Replaced in the first round.
  square = thetas**2
  for round_ in range(_ROUNDS):
    mass = prior @ likelihoods
    estimates = ((prior * thetas) @ likelihoods) / np.maximum(mass, 1e-300)
    moments = likelihoods @ np.stack([estimates**2, estimates], 1)
    risks = moments[:, 0] - 2 * thetas * moments[:, 1] + square
    if risks.max() < best.upper:
      best = Game(prior, estimates, float(prior @ risks), float(risks.max()))
    # Mirror ascent with a decreasing step.
    rate = 1 / math.sqrt(1 + round_ / 30)
    prior = prior * np.exp(rate * (risks - best.upper) / risks.max())
    # The game is symmetric, so a symmetric prior is best.
    prior = prior + prior[::-1]
    prior = prior / prior.sum()
  return best


def noise_nodes(guarantee: Guarantee, dimension: int
                ) -> tuple[np.ndarray, np.ndarray]:
  """Returns nodes and weights [m] of the unit noise of one coordinate.

  Normal noise in general. Under pure privacy it is one of d coordinates of
  noise of the cube's norm, with density Q(d, |x|) / (2 d) for the upper tail Q
  of the gamma distribution. A single node 0 for None.
  """
  if guarantee is None:
    return np.zeros(1), np.ones(1)
  if isinstance(guarantee, notions.PureDP):
    largest = dimension + 10 * math.sqrt(dimension) + 30
    # Nodes are dense near 0, where the density has a kink, and sparse far out.
    root = np.linspace(-1, 1, 401)
    nodes = largest * root**3
    weights = special.gammaincc(dimension, np.abs(nodes)) * root**2
  else:
    largest, size = _GAUSSIAN
    nodes = np.linspace(-largest, largest, size)
    weights = np.exp(-nodes**2 / 2)
  return nodes, weights / weights.sum()


def _thetas(model: Model, num_examples: int, noise: float) -> np.ndarray:
  """Returns thetas close enough to resolve estimates; many where n is large."""
  # The standard deviation of an estimate is that of the mean over A''.
  grid = np.linspace(0, model.radius, 21)
  curvature = model.variance(grid)
  stddev = np.sqrt(curvature / num_examples + noise**2) / curvature
  size = math.ceil(2 * model.radius / (_RESOLUTION * stddev.min())) // 2 * 2 + 1
  return np.linspace(-model.radius, model.radius, max(_FEWEST, size))


def is_resolved(model: Model, *, num_examples: int, noise: float) -> bool:
  """Checks whether `design` is available.

  Where n is too large for it, the gain would be a few per cent only.
  """
  return len(_thetas(model, num_examples, noise)) <= _MOST


class Design(NamedTuple):
  """A rule from noisy means to estimates, and the game it solves.

  Attributes:
    places: [Y] noisy means, increasing.
    thetas: [G].
    game: game for the normal approximation of means; risks are of one
      coordinate.
  """
  places: np.ndarray
  thetas: np.ndarray
  game: Game


@functools.lru_cache(maxsize=64)
def design(model: Model, *, num_examples: int, noise: float,
           guarantee: Guarantee) -> Design:
  """Returns the rule for means with noise of this scale.

  Args:
    model: model of the records.
    num_examples: n.
    noise: scale of `noise_nodes`.
    guarantee: decides the kind of noise.

  Raises:
    ValueError: if n is too large for the grid of thetas.
  """
  thetas = _thetas(model, num_examples, noise)
  if len(thetas) > _MOST:
    raise ValueError(f'num_examples = {num_examples} is too large for the '
                     'grid of this rule: take SufficientStatistics')
  nodes, weights = noise_nodes(guarantee, model.dimension)
  means = model.mean(thetas)
  widths = np.sqrt(model.variance(thetas) / num_examples)
  if not isinstance(guarantee, notions.PureDP):
    # Gaussian noise and a normal mean add up to one normal variable.
    nodes, weights = np.zeros(1), np.ones(1)
    widths = np.sqrt(widths**2 + noise**2)
  margin = _REACH * widths.max() + noise * np.abs(nodes).max() / 2
  places = np.linspace(means[0] - margin, means[-1] + margin, _PLACES)
  if noise * math.sqrt(model.dimension) > widths.max() / 2 and isinstance(
      guarantee, notions.PureDP):
    likelihoods = _cells(places, means, widths, noise, model.dimension)
  else:
    likelihoods = np.stack([
        weights @ np.exp(-np.square(
            (places - mean - noise * nodes[:, None]) / width) / 2)
        for mean, width in zip(means, widths, strict=True)])
  likelihoods = likelihoods / likelihoods.sum(1, keepdims=True)
  return Design(places, thetas, solve(likelihoods, thetas))


def _cells(places: np.ndarray, means: np.ndarray, widths: np.ndarray,
           noise: float, dimension: int) -> np.ndarray:
  """Returns [G, Y], exact noise probabilities of cells around the places.

  Sampling uses quadrature nodes. Nodes of the noise would be farther apart than
  the means spread, and would be visible in the result.
  """
  half = (places[1] - places[0]) / 2
  edges = np.append(places - half, places[-1] + half)
  nodes, weights = special.roots_hermitenorm(_HERMITE)
  weights = weights / weights.sum()
  likelihoods = []
  for mean, width in zip(means, widths, strict=True):
    x = (edges - mean - width * nodes[:, None]) / noise
    size = np.abs(x)
    tail = (dimension * special.gammaincc(dimension + 1, size)
            - size * special.gammaincc(dimension, size)) / (2 * dimension)
    likelihoods.append(weights @ np.diff(np.where(x > 0, 1 - tail, tail)))
  return np.maximum(np.stack(likelihoods), 0.0)
