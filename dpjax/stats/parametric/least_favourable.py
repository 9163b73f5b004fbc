"""The best use of noisy means: Bayes estimates under least favourable priors.

A coordinate of known law given theta in [-b, b] is a statistical game: the
Bayes risk is concave in the prior on a grid of thetas, the risks of the Bayes
estimate are its gradient, and where it is largest they are nowhere above it.
Mirror ascent finds both sides. The estimate is post-processing: privacy does
not depend on how it was found. Records are products over coordinates and noise
has one variance, so what is best for a coordinate is best for their sum. Public
numbers alone; float64 on the host.
"""

import functools
import math
from typing import NamedTuple

import numpy as np
from scipy import special

from dpjax.privacy import notions
from dpjax.stats.minimax.bounds import Guarantee
from dpjax.stats.parametric.exponential_families import Model

_ROUNDS = 2000
_GAUSSIAN = (8.0, 241)  # reach and nodes
_FEWEST, _MOST = 41, 161  # thetas
_RESOLUTION = 0.75  # their distance, in standard deviations of an estimate
_PLACES = 801  # of noisy means
_REACH = 7.0
_HERMITE = 25


class Game(NamedTuple):
  """A prior and its Bayes estimate.

  Attributes:
    prior: [G].
    estimates: [Y].
    lower: the Bayes risk of the prior: less is impossible on its points.
    upper: the largest risk of the estimate on these.
  """
  prior: np.ndarray
  estimates: np.ndarray
  lower: float
  upper: float


def bayes(laws: np.ndarray, thetas: np.ndarray, prior: np.ndarray) -> Game:
  """The posterior mean given each outcome, and its risks.

  Args:
    laws: [G, Y], probabilities of outcomes given each theta.
    thetas: [G].
    prior: [G].
  """
  mass = prior @ laws
  estimates = np.divide((prior * thetas) @ laws, mass, where=mass > 0,
                        out=np.zeros_like(mass))
  risks = (laws @ estimates**2 - 2 * thetas * (laws @ estimates)
           + laws.sum(1) * thetas**2)
  return Game(prior, estimates, float(prior @ risks), float(risks.max()))


def solve(laws: np.ndarray, thetas: np.ndarray) -> Game:
  """The least favourable prior, symmetric; the estimate of least worst risk.

  Both are those of the best round: sides meet to a thousandth or so.

  Args:
    laws: [G, Y], symmetric under reversal of both.
    thetas: [G], symmetric.
  """
  prior, best = np.full(len(thetas), 1 / len(thetas)), None
  square = thetas**2
  for turn in range(_ROUNDS):
    mass = prior @ laws
    estimates = ((prior * thetas) @ laws) / np.maximum(mass, 1e-300)
    moments = laws @ np.stack([estimates**2, estimates], 1)
    risks = moments[:, 0] - 2 * thetas * moments[:, 1] + square
    if best is None or risks.max() < best.upper:
      best = Game(prior, estimates, float(prior @ risks), float(risks.max()))
    rate = 1 / math.sqrt(1 + turn / 30)
    prior = prior * np.exp(rate * (risks - best.upper) / risks.max())
    prior = prior + prior[::-1]
    prior = prior / prior.sum()
  return best


def noise_nodes(guarantee: Guarantee, dimension: int
                ) -> tuple[np.ndarray, np.ndarray]:
  """Nodes and weights [m] of the noise of one coordinate, before it is scaled.

  Normal; under pure privacy one of d of the noise of the cube's norm, of
  density Q(d, |x|) / (2 d) for the upper tail Q of the gamma law; 0 for None.
  """
  if guarantee is None:
    return np.zeros(1), np.ones(1)
  if isinstance(guarantee, notions.PureDP):
    reach = dimension + 10 * math.sqrt(dimension) + 30
    # Far apart where they are far out; there is a kink at 0.
    root = np.linspace(-1, 1, 401)
    nodes = reach * root**3
    weights = special.gammaincc(dimension, np.abs(nodes)) * root**2
  else:
    reach, size = _GAUSSIAN
    nodes = np.linspace(-reach, reach, size)
    weights = np.exp(-nodes**2 / 2)
  return nodes, weights / weights.sum()


def _thetas(model: Model, num_examples: int, noise: float) -> np.ndarray:
  """As many as tell estimates apart; more than `_MOST` where n is large."""
  grid = np.linspace(0, model.radius, 21)
  curvature = model.variance(grid)
  spread = np.sqrt(curvature / num_examples + noise**2) / curvature
  size = math.ceil(2 * model.radius / (_RESOLUTION * spread.min())) // 2 * 2 + 1
  return np.linspace(-model.radius, model.radius, max(_FEWEST, size))


def is_resolved(model: Model, *, num_examples: int, noise: float) -> bool:
  """Whether `design` can be had: where not, it would gain a few per cent."""
  return len(_thetas(model, num_examples, noise)) <= _MOST


class Design(NamedTuple):
  """A rule from noisy means to estimates, and the game it solves.

  Attributes:
    places: [Y] noisy means, rising.
    thetas: [G].
    game: of the normal approximation of means; risks are of one coordinate.
  """
  places: np.ndarray
  thetas: np.ndarray
  game: Game


@functools.lru_cache(maxsize=64)
def design(model: Model, *, num_examples: int, noise: float,
           guarantee: Guarantee) -> Design:
  """The rule for means with noise of this scale.

  Args:
    model: of the records.
    num_examples: n.
    noise: scale of `noise_nodes`.
    guarantee: tells which noise.

  Raises:
    ValueError: where n is too large for the grid of thetas.
  """
  thetas = _thetas(model, num_examples, noise)
  if len(thetas) > _MOST:
    raise ValueError(f'num_examples = {num_examples} is too large for the '
                     'grid of this rule: take SufficientStatistics')
  nodes, weights = noise_nodes(guarantee, model.dimension)
  means = model.mean(thetas)
  widths = np.sqrt(model.variance(thetas) / num_examples)
  if not isinstance(guarantee, notions.PureDP):
    nodes, weights = np.zeros(1), np.ones(1)
    widths = np.sqrt(widths**2 + noise**2)
  beyond = _REACH * widths.max() + noise * np.abs(nodes).max() / 2
  places = np.linspace(means[0] - beyond, means[-1] + beyond, _PLACES)
  if noise * math.sqrt(model.dimension) > widths.max() / 2 and isinstance(
      guarantee, notions.PureDP):
    laws = _cells(places, means, widths, noise, model.dimension)
  else:
    laws = np.stack([
        weights @ np.exp(-np.square(
            (places - mean - noise * nodes[:, None]) / width) / 2)
        for mean, width in zip(means, widths, strict=True)])
  laws = laws / laws.sum(1, keepdims=True)
  return Design(places, thetas, solve(laws, thetas))


def _cells(places: np.ndarray, means: np.ndarray, widths: np.ndarray,
           noise: float, dimension: int) -> np.ndarray:
  """[G, Y]: of cells around places; sampling by nodes, noise by its own law.

  Nodes of noise further apart than means spread would be told from each other.
  """
  half = (places[1] - places[0]) / 2
  edges = np.append(places - half, places[-1] + half)
  nodes, weights = special.roots_hermitenorm(_HERMITE)
  weights = weights / weights.sum()
  laws = []
  for mean, width in zip(means, widths, strict=True):
    x = (edges - mean - width * nodes[:, None]) / noise
    far = np.abs(x)
    beyond = (dimension * special.gammaincc(dimension + 1, far)
              - far * special.gammaincc(dimension, far)) / (2 * dimension)
    laws.append(weights @ np.diff(np.where(x > 0, 1 - beyond, beyond)))
  return np.maximum(np.stack(laws), 0.0)
