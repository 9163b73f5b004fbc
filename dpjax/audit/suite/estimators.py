"""Audit targets for parameter estimators, whose data are records.

Records are extreme; without a declared bound they may be huge, infinite or NaN.
The noised statistic is measured in units of the noise, so its shift between
neighbours bounds the privacy loss. Output distributions with a density, or with
finitely many outcomes, are compared directly.
"""

from collections.abc import Callable
import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from dpjax.audit import claims
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
from dpjax.theory.parametric import truncated_means
from dpjax.theory.parametric.estimator import Estimator
from dpjax.theory.parametric.exponential_families import maximum

_FAR = (-1e3, 1e3)
"""Bounds of records beyond any clipping radius, on either side."""


def target(made: Estimator | normal_intervals.NormalInterval, *,
           shape: tuple[int, ...] = (),
           bounds: tuple[float, float] | None = None,
           claim: claims.Claim | None = None, **known: Any) -> Target:
  """Returns the target of an estimator of a few records.

  Args:
    made: the estimator.
    shape: shape of a record.
    bounds: bounds on the numbers of a record; None if every number is legal.
    claim: the audited claim; by default that of the estimator's event.
    **known: further fields of `Target`.
  """
  pure = isinstance(_guarantee(made), notions.PureDP)
  pairs = [pair for tried in ((bounds,) if bounds else (None, _FAR))
           for pair in wrapping.search(
               Adjacency.REPLACE_ONE, shape=shape, bounds=tried,
               num_records=made.num_examples)]
  return dataclasses.replace(wrapping.of_mechanism(
      made, delta=0.0 if pure else wrapping.DELTA, claim=claim, pairs=pairs,
      **known), double_precision=True)


def _guarantee(estimator) -> notions.PureDP | notions.ZCDP:
  """Returns the privacy guarantee that an estimator declares."""
  if hasattr(estimator, 'guarantee'):
    return estimator.guarantee
  if hasattr(estimator, 'rho'):
    return notions.ZCDP(rho=estimator.rho)
  return notions.PureDP(epsilon=estimator.epsilon)


def query(made: Estimator, value: Callable, order: float = 2) -> Query:
  """Returns the query of an estimator's statistic in units of its noise.

  Its sensitivity must be at most epsilon for pure DP, or sqrt(2 rho) for zCDP.

  Args:
    made: estimator with a guarantee.
    value: function of records that returns an array in units of the noise.
    order: order of the norm, for pure DP that of the noise; zCDP uses l2.
  """
  kept = _guarantee(made)
  if isinstance(kept, notions.PureDP):
    return Query(_doubled(value), kept.epsilon, order)
  return Query(_doubled(value), math.sqrt(
      2 * gaussian_noise.rho(kept)))


def _doubled(value: Callable) -> Callable:
  """Returns the function evaluated in float64."""
  return precision.in_float64(lambda data: value(jnp.asarray(
      data, jnp.float64)))


def share(made: noisy_shares.NoisyShare, **said: Any) -> Target:
  """Returns the target of a noisy proportion.

  For Laplace and geometric noise it declares the output distribution, too.
  """
  known = {}
  if hasattr(made, 'epsilon'):
    known['log_density'] = lambda data, outputs: _count_law(made, data, outputs)
  return target(made, query=query(
      made, lambda data: made.statistic(data) / made.scale, 1), **known, **said)


def _count_law(made: noisy_shares.NoisyShare, data, outputs) -> np.ndarray:
  """Returns log-densities, or log-probabilities, of released proportions."""
  counts = made.num_examples * ((np.asarray(outputs)[:, 0] - 0.5) / made.weight
                                + 0.5)
  noise = counts - np.sum(np.asarray(data) == 1)
  peak = (math.tanh(made.epsilon / 2)
          if isinstance(made, noisy_shares.GeometricShare) else
          made.epsilon / 2)
  return math.log(peak) - np.abs(noise) * made.epsilon


def looked_up(made: noisy_shares.MinimaxShare, **said: Any) -> Target:
  """Returns the target of a proportion looked up in a table.

  The release is the index in the table, with n + 1 possible outcomes.
  """
  values = made.parameters.values

  def release(key, data):
    estimate = made.release(key, data)
    return jnp.argmin(jnp.abs(precision.double(values) - estimate))

  def log_probs(data):
    n, epsilon = made.num_examples, made.epsilon
    away = np.abs(np.arange(n + 1) - np.sum(np.asarray(data) == 1))
    ends = (np.arange(n + 1) == 0) | (np.arange(n + 1) == n)
    return -epsilon * away + np.where(
        ends, -np.log1p(math.exp(-epsilon)), math.log(math.tanh(epsilon / 2)))
  return dataclasses.replace(target(made, log_probs=log_probs, **said),
                             release=release)


def ranked(made: support_ranks.RankedSupport, **said: Any) -> Target:
  """Returns the target of a release near the largest record.

  It declares the density, which has atoms at both ends.
  """
  def log_density(data, outputs):
    ordered = made.statistic(jnp.asarray(data, jnp.float64))
    ends, logs = map(np.asarray, support_ranks.log_weights(
        ordered, made.parameters))
    probs = np.exp(logs - np.logaddexp.reduce(logs))
    top = -math.log(made.parameters.factor)
    widths = np.diff(ends)
    dense = np.divide(probs, widths, out=np.zeros_like(probs),
                      where=widths > 0)
    above = np.clip(ends[1:] - np.maximum(ends[:-1], top), 0, None) @ dense
    places = np.log(np.asarray(outputs)[:, 0]) + top
    inside = np.clip(np.searchsorted(ends, places) - 1, 1, probs.size - 1)
    with np.errstate(divide='ignore'):
      return np.log(np.where(
          np.asarray(outputs)[:, 0] >= 1, above, np.where(
              places <= ends[1] + 1e-12, probs[0], dense[inside])))
  return target(made, log_density=precision.in_float64(log_density), **said)


def scaled(made: Estimator, **said: Any) -> Target:
  """Returns the target of one statistic with noise of one scale."""
  return target(made, query=query(
      made, lambda data: made.statistic(data) / made.scale, 1), **said)


def truncated(made: truncated_means.TruncatedMean, **said: Any) -> Target:
  """Returns the target of a mean of records truncated to a ball."""
  norm = 1 if made.noise.endswith('laplace') else 2
  return target(made, shape=(made.dimension,), query=query(
      made, lambda data: made.statistic(data) / made.scale, norm), **said)


def normal(made: normal_means.NormalMean, **said: Any) -> Target:
  """Returns the target of noisy means around centres.

  Centres are public once released. The query joins all rounds, at centres on a
  line through the ball.
  """
  def value(data):
    records = made.statistic(data)
    centres = made.radius * jnp.linspace(0, 1, len(made.rounds))
    return jnp.stack([
        jnp.mean(normal_means._within(records - centre, turn.clip), 0) / scale
        for centre, turn, scale in zip(centres, made.rounds, made.scales,
                                       strict=True)])
  known = {}
  if len(made.rounds) == 1 or not isinstance(made.guarantee, notions.PureDP):
    known['query'] = query(made, value)
  return target(made, shape=(made.dimension,), **known, **said)


def interval(made: normal_intervals.NormalInterval, **said: Any) -> Target:
  """Returns the target of a normal mean's interval.

  The query is the noisy mean around the centre; the centre itself is selected
  by scores of sensitivity 1.
  """
  return target(made, query=Query(_doubled(
      lambda data: jnp.mean(jnp.clip(jnp.where(
          jnp.isfinite(data), data, 0.0), -made.clip, made.clip))
      / made.scale), (1 - made.share) * made.guarantee.epsilon, 1), **said)


def statistics(made: likelihood.SufficientStatistics, **said: Any) -> Target:
  """Returns the target of noisy means of a sufficient statistic.

  Under pure DP the noise is that of the l-infinity norm.
  """
  return target(made, shape=(made.model.dimension,), query=query(
      made, lambda data: made.statistic(data) / made.noise, math.inf), **said)


def output(made: likelihood.OutputPerturbation, **said: Any) -> Target:
  """Returns the target of a noisy maximum likelihood estimate."""
  model = made.model
  return target(made, shape=(model.dimension,), query=query(
      made, lambda data: maximum(
          model.family, made.statistic(data),
          precision.double(model.radius)) / made.noise), **said)


def descent(made: likelihood.LikelihoodEstimator, **said: Any) -> Target:
  """Returns the target of a noisy descent, audited by its last iterate only."""
  return target(made, shape=(made.model.dimension,), **said)
