"""Risks of private maximum likelihood in closed form: Bernoulli coordinates.

Product Bernoulli laws in natural parameters, theta in [-b, b]^d; squared l2
error. The records of a coordinate are a count, and noise has the same law in
all of them: the largest risk over the box is d times that of one coordinate, a
sum over counts and an integral over noise.
"""

from collections.abc import Callable
import math

import numpy as np
from scipy import optimize, special, stats

from dpjax.privacy import notions
from dpjax.stats.parametric import least_favourable
from dpjax.stats.parametric import likelihood
from dpjax.stats.parametric.exponential_families import BERNOULLI

_COUNT_REACH = 9.0  # standard deviations of a count, on either side

Estimate = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(means [k, 1], unit noise [m]) -> estimates of a coordinate [k, m]."""


def coordinate_risk(theta: float, *, num_examples: int, estimate: Estimate,
                    noise: tuple[np.ndarray, np.ndarray]) -> float:
  """E (estimate - theta)^2 of one Bernoulli coordinate."""
  prob = special.expit(theta)
  reach = _COUNT_REACH * math.sqrt(num_examples * prob * (1 - prob)) + 30
  low = max(0, math.floor(num_examples * prob - reach))
  high = min(num_examples, math.ceil(num_examples * prob + reach))
  counts = np.arange(low, high + 1)
  nodes, weights = noise
  squares = np.square(estimate(counts[:, None] / num_examples, nodes) - theta)
  return float(stats.binom.pmf(counts, num_examples, prob)
               @ (squares @ weights))


def _maximum(means: np.ndarray, radius: float) -> np.ndarray:
  inside = np.clip(means, special.expit(-radius), special.expit(radius))
  return special.logit(inside)


def risk(theta: float, estimator: likelihood.LikelihoodEstimator) -> float:
  """Of an estimator where all coordinates are theta; exact.

  Args:
    theta: in [-b, b].
    estimator: of a Bernoulli model; any of `likelihood`.

  Raises:
    ValueError: for an estimator without a closed form.
  """
  model, guarantee = estimator.model, None
  if model.family is not BERNOULLI:
    raise ValueError('closed forms are of Bernoulli records, got '
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
  """(theta, largest risk) of an estimator over [0, b], and so over the box."""
  radius = estimator.model.radius
  grid = np.linspace(0, radius, 17)
  found = [risk(theta, estimator) for theta in grid]
  best = int(np.argmax(found))
  ends = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
  refined = optimize.minimize_scalar(
      lambda theta: -risk(theta, estimator), bounds=ends, method='bounded',
      options=dict(xatol=1e-3 * radius))
  if -refined.fun > found[best]:
    return float(refined.x), -float(refined.fun)
  return float(grid[best]), found[best]
