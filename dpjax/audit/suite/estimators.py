"""Audit targets for parameter estimators, whose data are records.

Records are extreme; without a declared bound they may be huge, infinite or NaN.
The noised statistic is measured in units of the noise, so its shift between
neighbours bounds the privacy loss. Output distributions with a density, or with
finitely many outcomes, are compared directly.
"""

from collections.abc import Callable
import dataclasses
import functools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit import wrapping
from dpjax.audit.target import Query
from dpjax.audit.target import Target
from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import precision
from dpjax.theory.parametric import gaussian_noise
from dpjax.theory.parametric import likelihood
from dpjax.theory.parametric import noisy_shares
from dpjax.theory.parametric import normal_intervals
from dpjax.theory.parametric import normal_means
from dpjax.theory.parametric import support_ranks
from dpjax.theory.parametric import supports
from dpjax.theory.parametric import truncated_means
from dpjax.theory.parametric.estimator import Estimator
from dpjax.theory.parametric.exponential_families import maximum
from dpjax.typing import Array, PRNGKey

_FAR = (-1e3, 1e3)
"""Bounds of records beyond any clipping radius, on either side."""

Value = Callable[[Array], Array]
"""Function of records that returns an array in units of the noise."""


def target(estimator: Estimator | normal_intervals.NormalInterval, *,
           shape: tuple[int, ...] = (),
           bounds: tuple[float, float] | None = None,
           claim: claims.Claim | None = None, **fields: Any) -> Target:
  """Returns the target of an estimator of a few records.

  Args:
    estimator: the estimator.
    shape: shape of a record.
    bounds: bounds on the numbers of a record; None if every number is legal.
    claim: the audited claim; by default that of the estimator's event.
    **fields: further fields of `Target`.
  """
  pure = isinstance(_guarantee(estimator), notions.PureDP)
  pairs = [pair for tried in ((bounds,) if bounds else (None, _FAR))
           for pair in spaces.Records(
               adjacency=Adjacency.REPLACE_ONE, shape=shape, bounds=tried,
               sizes=(estimator.num_examples,)).pairs()]
  return dataclasses.replace(wrapping.of_mechanism(
      estimator, delta=0.0 if pure else wrapping.DELTA, claim=claim,
      pairs=pairs, **fields), double_precision=True)


def _guarantee(estimator: Any) -> notions.PureDP | notions.ZCDP:
  """Returns the privacy guarantee that an estimator declares."""
  if hasattr(estimator, 'guarantee'):
    return estimator.guarantee
  if hasattr(estimator, 'rho'):
    return notions.ZCDP(rho=estimator.rho)
  return notions.PureDP(epsilon=estimator.epsilon)


ScaledEstimator = (noisy_shares.NoisyShare | supports.MeanSupport
                   | truncated_means.TruncatedMean)


def query(estimator: Estimator, value: Value, order: float = 2) -> Query:
  """Returns the query of an estimator's statistic in units of its noise.

  Its sensitivity must be at most epsilon for pure DP, in the norm of this order
  (that of the noise), or sqrt(2 rho) in l2 for zCDP.
  """
  guarantee = _guarantee(estimator)
  if isinstance(guarantee, notions.PureDP):
    return Query(_in_float64(value), guarantee.epsilon, order)
  return Query(_in_float64(value), math.sqrt(2 * gaussian_noise.rho(guarantee)))


def _in_float64(value: Value) -> Value:
  """Returns the function with records and arithmetic in float64."""
  return precision.in_float64(lambda data: value(jnp.asarray(
      data, jnp.float64)))


def share(estimator: noisy_shares.NoisyShare, **fields: Any) -> Target:
  """Returns the target of a noisy proportion.

  For Laplace and geometric noise it declares the output distribution, too.
  """
  if isinstance(estimator, (noisy_shares.LaplaceShare,
                            noisy_shares.GeometricShare)):
    fields['log_density'] = functools.partial(_log_density, estimator)
  return scaled(estimator, **fields)


def _log_density(
    estimator: noisy_shares.LaplaceShare | noisy_shares.GeometricShare,
    data: np.ndarray, outputs: np.ndarray) -> np.ndarray:
  """Returns log-densities, or log-probabilities, of released proportions."""
  # Inverts the estimate 1/2 + weight (count / n - 1/2). The constant factor
  # of the change of variables cancels in ratios.
  proportions = (np.asarray(outputs)[:, 0] - 0.5) / estimator.weight + 0.5
  counts = estimator.num_examples * proportions
  noise = counts - np.sum(np.asarray(data) == 1)
  peak = (math.tanh(estimator.epsilon / 2)
          if isinstance(estimator, noisy_shares.GeometricShare) else
          estimator.epsilon / 2)
  return math.log(peak) - np.abs(noise) * estimator.epsilon


def looked_up(estimator: noisy_shares.MinimaxShare, **fields: Any) -> Target:
  """Returns the target of a proportion looked up in a table.

  The release is the index in the table, with n + 1 possible outcomes.
  """
  values = np.asarray(estimator.parameters.values)

  def release(key: PRNGKey, data: Array) -> Array:
    estimate = estimator.release(key, data)
    return jnp.argmin(jnp.abs(jnp.asarray(values) - estimate))

  def log_probs(data: np.ndarray) -> np.ndarray:
    # Counts below 0 and above n join the outcomes 0 and n, whose geometric
    # tails sum to e^(-epsilon distance) / (1 + e^-epsilon).
    n, epsilon = estimator.num_examples, estimator.epsilon
    away = np.abs(np.arange(n + 1) - np.sum(np.asarray(data) == 1))
    outermost = (np.arange(n + 1) == 0) | (np.arange(n + 1) == n)
    return -epsilon * away + np.where(
        outermost, -np.log1p(math.exp(-epsilon)),
        math.log(math.tanh(epsilon / 2)))
  return dataclasses.replace(target(estimator, log_probs=log_probs, **fields),
                             release=release)


def ranked(estimator: support_ranks.RankedSupport, **fields: Any) -> Target:
  """Returns the target of a release near the largest record.

  It declares the density, which has atoms at both ends.
  """
  parameters = estimator.parameters

  def log_density(data: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    ordered = estimator.statistic(jnp.asarray(data, jnp.float64))
    edges, logs = map(np.asarray, support_ranks.log_weights(
        ordered, parameters))
    probs = np.exp(logs - np.logaddexp.reduce(logs))
    top = -math.log(float(np.asarray(parameters.factor)))
    widths = np.diff(edges)
    dense = np.divide(probs, widths, out=np.zeros_like(probs),
                      where=widths > 0)
    # Estimates are factor * e^u, clipped at 1: an atom holds the mass above.
    above = np.clip(edges[1:] - np.maximum(edges[:-1], top), 0, None) @ dense
    places = np.log(np.asarray(outputs)[:, 0]) + top
    inside = np.clip(np.searchsorted(edges, places) - 1, 1, probs.size - 1)
    # Densities of ln t: the Jacobian cancels in ratios. At or below edges[1]
    # lies the lower atom, up to rounding.
    with np.errstate(divide='ignore'):
      return np.log(np.where(
          np.asarray(outputs)[:, 0] >= 1, above, np.where(
              places <= edges[1] + 1e-12, probs[0], dense[inside])))
  return target(estimator, log_density=precision.in_float64(log_density),
                **fields)


def scaled(estimator: ScaledEstimator, **fields: Any) -> Target:
  """Returns the target of one statistic with noise of one scale."""
  return target(estimator, **fields, query=query(
      estimator, lambda data: estimator.statistic(data) / estimator.scale, 1))


def truncated(estimator: truncated_means.TruncatedMean,
              **fields: Any) -> Target:
  """Returns the target of a mean of records truncated to a ball."""
  norm = 1 if estimator.noise.endswith('laplace') else 2
  return target(
      estimator, shape=(estimator.dimension,), **fields, query=query(
          estimator, lambda data: estimator.statistic(data) / estimator.scale,
          norm))


def normal(estimator: normal_means.NormalMean, **fields: Any) -> Target:
  """Returns the target of noisy means around centres.

  Centres are public once released. The query joins all rounds, at centres on a
  line through the ball.
  """
  def value(data: Array) -> Array:
    records = estimator.statistic(data)
    centres = estimator.radius * jnp.linspace(0, 1, len(estimator.rounds))
    return jnp.stack([
        jnp.mean(normal_means._within(
            records - centre, jnp.asarray(turn.clip)), 0) / scale
        for centre, turn, scale in zip(centres, estimator.rounds,
                                       estimator.scales, strict=True)])
  # Gaussian rounds join in one l2 norm; rounds of pure DP add up in no norm.
  if (len(estimator.rounds) == 1
      or not isinstance(estimator.guarantee, notions.PureDP)):
    fields['query'] = query(estimator, value)
  return target(estimator, shape=(estimator.dimension,), **fields)


def interval(estimator: normal_intervals.NormalInterval,
             **fields: Any) -> Target:
  """Returns the target of a normal mean's interval.

  The query is the noisy mean around the centre; the centre itself is selected
  by scores of sensitivity 1.
  """
  if not isinstance(estimator.guarantee, notions.PureDP):
    raise ValueError('the query of an interval has Laplace noise, so guarantee '
                     f'must be PureDP; got {estimator.guarantee}')
  clip, epsilon = estimator.clip, estimator.guarantee.epsilon
  # `share` of epsilon pays for the centre, the rest for this mean.
  return target(estimator, **fields, query=Query(_in_float64(
      lambda data: jnp.mean(jnp.clip(jnp.where(
          jnp.isfinite(data), data, 0.0), -clip, clip)) / estimator.scale),
      (1 - estimator.share) * epsilon, 1))


def statistics(estimator: likelihood.SufficientStatistics,
               **fields: Any) -> Target:
  """Returns the target of noisy means of a sufficient statistic.

  Under pure DP the noise is that of the l-infinity norm.
  """
  return target(
      estimator, shape=(estimator.model.dimension,), **fields, query=query(
          estimator, lambda data: estimator.statistic(data) / estimator.noise,
          math.inf))


def output(estimator: likelihood.OutputPerturbation, **fields: Any) -> Target:
  """Returns the target of a noisy maximum likelihood estimate."""
  model = estimator.model
  return target(estimator, shape=(model.dimension,), **fields, query=query(
      estimator, lambda data: maximum(
          model.family, estimator.statistic(data),
          jnp.asarray(model.radius, jnp.float64)) / estimator.noise))


def descent(estimator: likelihood.LikelihoodEstimator, **fields: Any) -> Target:
  """Returns the target of a noisy descent, audited by its last iterate only."""
  return target(estimator, shape=(estimator.model.dimension,), **fields)
