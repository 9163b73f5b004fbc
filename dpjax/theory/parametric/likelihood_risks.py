"""Closed-form risks of private maximum likelihood for Bernoulli coordinates.

Product Bernoulli distributions in natural parameters, theta in [-b, b]^d, with
squared l2 error. The statistic of a coordinate is a count, and noise has the
same distribution in every coordinate. So the largest risk over the box is d
times that of one coordinate, a sum over counts and an integral over noise.
"""

from collections.abc import Callable
import math

import numpy as np
from scipy import optimize
from scipy import special
from scipy import stats

from dpjax.privacy import notions
from dpjax.theory.parametric import least_favourable
from dpjax.theory.parametric import likelihood
from dpjax.theory.parametric.exponential_families import BERNOULLI

_COUNT_REACH = 9.0  # standard deviations of a count, on either side

Estimate = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(means [k, 1], unit noise [m]) -> estimates of a coordinate [k, m]."""


def coordinate_risk(theta: float, *, num_examples: int, estimate: Estimate,
                    noise: tuple[np.ndarray, np.ndarray]) -> float:
  """Returns E (estimate - theta)^2 of one Bernoulli coordinate.

  Args:
    theta: its natural parameter, the log-odds.
    num_examples: n.
    estimate: the estimator.
    noise: nodes and weights [m] of the unit noise; see `noise_nodes`.
  """
  prob = special.expit(theta)
  # The range of counts with non-negligible probability.
  half_width = _COUNT_REACH * math.sqrt(num_examples * prob * (1 - prob)) + 30
  low = max(0, math.floor(num_examples * prob - half_width))
  high = min(num_examples, math.ceil(num_examples * prob + half_width))
  counts = np.arange(low, high + 1)
  nodes, weights = noise
  squares = np.square(estimate(counts[:, None] / num_examples, nodes) - theta)
  return float(stats.binom.pmf(counts, num_examples, prob)
               @ (squares @ weights))


def _maximum(means: np.ndarray, radius: float) -> np.ndarray:
  """Returns the maximum likelihood estimate in [-radius, radius]."""
  inside = np.clip(means, special.expit(-radius), special.expit(radius))
  return special.logit(inside)


def risk(theta: float, estimator: likelihood.LikelihoodEstimator) -> float:
  """Returns the exact risk of an estimator where all coordinates are theta.

  Args:
    theta: in [-b, b].
    estimator: an estimator of `likelihood` for a Bernoulli model.

  Raises:
    ValueError: if the estimator has no closed form.
  """
  model, guarantee = estimator.model, None
  if model.family is not BERNOULLI:
    raise ValueError('closed forms exist for Bernoulli records only, got '
                     f'{model.family.name}')
  match estimator:
    case likelihood.MaximumLikelihood():
      estimate = lambda means, _: _maximum(means, model.radius)
    case likelihood.MinimaxStatistics():
      rule, guarantee = estimator.design, estimator.guarantee
      estimate = lambda means, unit: np.interp(
          means + estimator.noise * unit, rule.places, rule.game.estimates)
    case likelihood.SufficientStatistics():
      guarantee = estimator.guarantee
      estimate = lambda means, unit: _maximum(
          means + estimator.noise * unit, model.radius)
    case likelihood.OutputPerturbation():
      guarantee = notions.ZCDP(rho=estimator.rho)
      estimate = lambda means, unit: np.clip(
          _maximum(means, model.radius) + estimator.noise * unit,
          -model.radius, model.radius)
    case _:
      raise ValueError(f'{type(estimator).__name__} has no closed form')
  return model.dimension * coordinate_risk(
      theta, num_examples=estimator.num_examples, estimate=estimate,
      noise=least_favourable.noise_nodes(guarantee, model.dimension))


def worst_theta(estimator: likelihood.LikelihoodEstimator
                ) -> tuple[float, float]:
  """Returns (theta, largest risk) of an estimator over the box.

  By symmetry theta is in [0, b], equal in all coordinates.
  """
  radius = estimator.model.radius
  grid = np.linspace(0, radius, 17)
  risks = [risk(theta, estimator) for theta in grid]
  best = int(np.argmax(risks))
  # The maximum lies between the neighbours of the best point of the grid.
  bracket = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
  refined = optimize.minimize_scalar(
      lambda theta: -risk(theta, estimator), bounds=bracket, method='bounded',
      options=dict(xatol=1e-3 * radius))
  if -refined.fun > risks[best]:
    return float(refined.x), -float(refined.fun)
  return float(grid[best]), risks[best]
