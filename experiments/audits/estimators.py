"""Estimators of parameters under audit, from records.

Records may be anything that a release must bear: where no bound is stated also
huge ones, infinite and none. What a release adds noise to is measured in units
of the noise, so that the shift between neighbours bounds what is told; of laws
with a density, or of finitely many outcomes, the law itself is compared.
"""

from collections.abc import Callable
import dataclasses
import math

import jax.numpy as jnp
import numpy as np

from dpjax.audit import claims
from dpjax.audit import wrapping
from dpjax.audit.target import Query, Target
from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import precision
from dpjax.stats.parametric import gaussian_noise
from dpjax.stats.parametric import likelihood
from dpjax.stats.parametric import noisy_shares
from dpjax.stats.parametric import normal_intervals
from dpjax.stats.parametric import normal_means
from dpjax.stats.parametric import support_ranks
from dpjax.stats.parametric import truncated_means
from dpjax.stats.parametric.estimator import Estimator
from dpjax.stats.parametric.exponential_families import maximum

_FAR = (-1e3, 1e3)
"""Of records that clip on either side."""


def target(made: Estimator | normal_intervals.NormalInterval, *,
           shape: tuple[int, ...] = (),
           bounds: tuple[float, float] | None = None,
           claim: claims.Claim | None = None, **known) -> Target:
  """An estimator of few records.

  Args:
    made: as it runs.
    shape: of a record.
    bounds: of its numbers; None if every number is legal.
    claim: what is said of it; what its event says when not given.
    **known: fields of `Target`.
  """
  pure = isinstance(_guarantee(made), notions.PureDP)
  pairs = [pair for tried in ((bounds,) if bounds else (None, _FAR))
           for pair in wrapping.search(
               Adjacency.REPLACE_ONE, shape=shape, bounds=tried,
               num_records=made.num_examples)]
  return dataclasses.replace(wrapping.of_mechanism(
      made, delta=0.0 if pure else wrapping.DELTA, claim=claim, pairs=pairs,
      **known), double_precision=True)


def _guarantee(made) -> notions.PureDP | notions.ZCDP:
  if hasattr(made, 'guarantee'):
    return made.guarantee
  if hasattr(made, 'rho'):
    return notions.ZCDP(rho=made.rho)
  return notions.PureDP(epsilon=made.epsilon)


def query(made: Estimator, value: Callable, order: float = 2) -> Query:
  """What is shifted, in units of the noise; by epsilon or sqrt(2 rho) at most.

  Args:
    made: with a guarantee.
    value: records -> an array in these units.
    order: of the norm; of pure privacy that of its noise.
  """
  kept = _guarantee(made)
  if isinstance(kept, notions.PureDP):
    return Query(_doubled(value), kept.epsilon, order)
  return Query(_doubled(value), math.sqrt(
      2 * gaussian_noise.rho(kept)))


def _doubled(value: Callable) -> Callable:
  return precision.in_float64(lambda data: value(jnp.asarray(
      data, jnp.float64)))


def share(made: noisy_shares.NoisyShare, **said) -> Target:
  """A noisy count of ones; laws of Laplace and geometric noise besides."""
  known = {}
  if hasattr(made, 'epsilon'):
    known['log_density'] = lambda data, outputs: _count_law(made, data, outputs)
  return target(made, query=query(
      made, lambda data: made.statistic(data) / made.scale, 1), **known, **said)


def _count_law(made: noisy_shares.NoisyShare, data, outputs) -> np.ndarray:
  counts = made.num_examples * ((np.asarray(outputs)[:, 0] - 0.5) / made.share
                                + 0.5)
  noise = counts - np.sum(np.asarray(data) == 1)
  most = (math.tanh(made.epsilon / 2)
          if isinstance(made, noisy_shares.GeometricShare) else
          made.epsilon / 2)
  return math.log(most) - np.abs(noise) * made.epsilon


def looked_up(made: noisy_shares.MinimaxShare, **said) -> Target:
  """The place in the table is released, of a law of n + 1 outcomes."""
  values = made.parameters.values

  def release(key, data):
    found = made.release(key, data)
    return jnp.argmin(jnp.abs(precision.double(values) - found))

  def log_probs(data):
    n, epsilon = made.num_examples, made.epsilon
    away = np.abs(np.arange(n + 1) - np.sum(np.asarray(data) == 1))
    ends = (np.arange(n + 1) == 0) | (np.arange(n + 1) == n)
    return -epsilon * away + np.where(
        ends, -np.log1p(math.exp(-epsilon)), math.log(math.tanh(epsilon / 2)))
  return dataclasses.replace(target(made, log_probs=log_probs, **said),
                             release=release)


def ranked(made: support_ranks.RankedSupport, **said) -> Target:
  """A record near the largest; its density, with atoms at both ends."""
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


def scaled(made: Estimator, **said) -> Target:
  """A statistic with noise of a scale, one number."""
  return target(made, query=query(
      made, lambda data: made.statistic(data) / made.scale, 1), **said)


def truncated(made: truncated_means.TruncatedMean, **said) -> Target:
  """A mean of records on a ball; it knows its density."""
  norm = 1 if made.noise.endswith('laplace') else 2
  return target(made, shape=(made.dimension,), query=query(
      made, lambda data: made.statistic(data) / made.scale, norm), **said)


def normal(made: normal_means.NormalMean, **said) -> Target:
  """Noisy means around centres, which are public once they are told.

  The shift is that of all rounds, at centres on a line through the ball.
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


def interval(made: normal_intervals.NormalInterval, **said) -> Target:
  """A centre by scores that move by 1, and a noisy mean around it."""
  return target(made, query=Query(_doubled(
      lambda data: jnp.mean(jnp.clip(jnp.where(
          jnp.isfinite(data), data, 0.0), -made.clip, made.clip))
      / made.scale), (1 - made.share) * made.guarantee.epsilon, 1), **said)


def statistics(made: likelihood.SufficientStatistics, **said) -> Target:
  """Noisy means of T; pure noise is that of the largest coordinate."""
  return target(made, shape=(made.model.dimension,), query=query(
      made, lambda data: made.statistic(data) / made.noise, math.inf), **said)


def output(made: likelihood.OutputPerturbation, **said) -> Target:
  """A maximum with noise."""
  model = made.model
  return target(made, shape=(model.dimension,), query=query(
      made, lambda data: maximum(
          model.family, made.statistic(data),
          precision.double(model.radius)) / made.noise), **said)


def descent(made: likelihood.LikelihoodEstimator, **said) -> Target:
  """A last iterate: no law, told apart by what is released."""
  return target(made, shape=(made.model.dimension,), **said)
