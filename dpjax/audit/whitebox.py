"""White-box audits of training runs: the auditor sees every noisy gradient.

This is the strongest view an attacker can have, and the only one in which the
audit of a sound implementation is *tight*. If the canary's contribution is
known exactly, the privacy loss of a run can be computed from its releases, and
the distribution of losses can be compared with the accountant's.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy import stats

from dpjax import tree
from dpjax.audit import empirical
from dpjax.grads import bounder as bounders
from dpjax.grads import quantiles
from dpjax.grads.bounder import Certificate
from dpjax.grads.bounder import Method
from dpjax.typing import Array, Batch, Params, PyTree


class RecorderState(NamedTuple):
  """State of `recorder`.

  Attributes:
    step: number of the next step.
    history: observations of all steps, with leaves [num_steps, ...].
  """
  step: Array
  history: PyTree


def recorder(observe: Callable[[PyTree], PyTree],
             num_steps: int) -> optax.GradientTransformation:
  """Returns an optax transform that stores `observe(updates)` of every step.

  In front of the optimiser in `loop.fit` it sees exactly the output of the
  privatizer, the noisy mean. It changes nothing and has no privacy cost.
  """

  def init(params: PyTree) -> RecorderState:
    # A compiled loop needs fixed shapes, so the whole history is allocated.
    shapes = jax.eval_shape(observe, params)
    return RecorderState(jnp.int32(0), jax.tree.map(
        lambda s: jnp.zeros((num_steps,) + s.shape, s.dtype), shapes))

  def update(updates: PyTree, state: RecorderState,
             params: Params | None = None) -> tuple[PyTree, RecorderState]:
    del params  # Part of the interface of optax.
    history = jax.tree.map(lambda kept, new: kept.at[state.step].set(new),
                           state.history, observe(updates))
    return updates, RecorderState(state.step + 1, history)

  return optax.GradientTransformation(init, update)


def contribution(method: Method, params: Params, certificate: Certificate,
                 record: Batch, radii: PyTree = ()) -> tuple[PyTree, PyTree]:
  """Returns one record's contribution to the sums, with its bound ratios.

  Args:
    method: training method under audit.
    params: parameters at which the record is evaluated.
    certificate: certificate of these parameters.
    record: a batch of one, with augmented views if the bounder takes them.
    radii: current radii, for an adaptive bounder.

  Returns:
    The contribution, and a tree of its block norms divided by their l2
    sensitivities. A ratio above 1 refutes the sensitivity. For an adaptive
    bounder both are pairs, for the gradient and for the indicators.
  """
  bounder = bounders.at_radii(method.bounder, radii)
  sums = bounder.sums(params, record, jnp.ones([1], jnp.bool_))
  bounds = bounder.l2_sensitivity(certificate)
  blocks = tree.blocks(bounds, sums.total)
  ratios = jax.tree.unflatten(jax.tree.structure(bounds), [
      tree.global_norm(block) / bound for block, bound
      in zip(blocks, jax.tree.leaves(bounds), strict=True)])
  if method.bounder.adaptive is None:
    return sums.total, ratios
  indicator_ratios = jax.tree.map(
      lambda change: jnp.abs(change) / quantiles.INDICATOR_SENSITIVITY,
      sums.indicators)
  return (sums.total, sums.indicators), (ratios, indicator_ratios)


def matched_filter(canary: PyTree, stddevs: PyTree) -> tuple[PyTree, float]:
  """Returns the best linear statistic for a canary, and its signal-to-noise.

  Args:
    canary: the canary's contribution to the sums.
    stddevs: standard deviation of the noise of each block, a tree prefix.

  Returns:
    (direction, mu): the inner product of a noisy sum with `direction` is
    N(1, 1/mu^2) if the canary is in the batch and all else is zero, and
    N(0, 1/mu^2) if it is not. 1/mu is the canary's noise multiplier, never
    below the claimed joint multiplier.
  """
  # Neyman-Pearson for Gaussians: weights are signal over noise variance.
  weighted = tree.map_blocks(lambda s, leaf: leaf / jnp.square(s), stddevs,
                             canary)
  energy = tree.dot(weighted, canary)
  return tree.scale(1 / energy, weighted), float(jnp.sqrt(energy))


def privacy_losses(statistics: np.ndarray, *, sampling_prob: float,
                   noise_multiplier: float) -> np.ndarray:
  """Returns log-likelihood ratios of whole runs, canary in against out.

  Args:
    statistics: [num_runs, num_steps] matched-filter outputs.
    sampling_prob: probability that the canary joins a batch, if present.
    noise_multiplier: standard deviation of a statistic.

  Returns:
    Privacy losses [num_runs]: sums over steps of
    ln(1 - q + q exp((2 y - 1) / (2 sigma^2))).
  """
  # The log-ratio of N(1, sigma^2) to N(0, sigma^2) at a statistic y.
  exponent = (2 * np.asarray(statistics, np.float64) - 1) / (
      2 * noise_multiplier**2)
  return np.sum(empirical.subsampled_log_ratio(
      exponent, sampling_prob=sampling_prob), -1)


class DeltaEstimate(NamedTuple):
  """A Monte Carlo estimate of delta at one epsilon.

  Attributes:
    value: mean over runs.
    standard_error: standard error of the mean.
  """
  value: float
  standard_error: float


def estimate_delta(losses: np.ndarray, *, epsilon: float) -> DeltaEstimate:
  """Estimates delta = E[(1 - exp(epsilon - L))_+] from privacy losses L.

  Args:
    losses: [num_runs] privacy losses ln(P/Q) drawn under P. For the remove
      direction these are the losses of runs with the canary, for the add
      direction the negated losses of runs without it.
    epsilon: where to evaluate the privacy curve.
  """
  # The minimum keeps the exponential from overflowing at very negative losses.
  gains = np.maximum(0.0, -np.expm1(np.minimum(0.0, epsilon - losses)))
  error = gains.std(ddof=1) / np.sqrt(gains.size)
  return DeltaEstimate(float(gains.mean()), float(error))


def variance_p_value(noise: np.ndarray, *, stddev: float) -> float:
  """Returns the two-sided p-value, by energy, that noise is N(0, stddev^2).

  Args:
    noise: independent draws, any shape.
    stddev: claimed standard deviation.
  """
  # The sum of squares of n standard normal numbers is chi-square(n).
  values = np.asarray(noise, np.float64).ravel() / stddev
  energy = float(np.square(values).sum())
  lower = stats.chi2.cdf(energy, values.size)
  return float(2 * min(lower, stats.chi2.sf(energy, values.size)))


def correlation_p_value(first: np.ndarray, second: np.ndarray) -> float:
  """Returns the two-sided p-value that two noise arrays are uncorrelated.

  Both must have the same shape.
  """
  first = np.asarray(first, np.float64).ravel()
  second = np.asarray(second, np.float64).ravel()
  norms = np.linalg.norm(first) * np.linalg.norm(second)
  # The means are known to be 0. Independence makes this nearly N(0, 1 / n).
  correlation = float(first @ second / norms)
  return float(2 * stats.norm.sf(abs(correlation) * np.sqrt(first.size)))
