"""Audits of a training run that see every noisy gradient.

The strongest view an attacker can have, and the only one at which a sound
implementation is *tight*: with a canary whose contribution is known exactly,
the privacy loss of a run can be computed from what was released, and its law
compared with the accountant's.
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
from dpjax.grads.bounder import Certificate, Method
from dpjax.typing import Array, Batch, Params, PyTree


class RecorderState(NamedTuple):
  """State of `recorder`: what was observed at each step, [num_steps, ...]."""
  step: Array
  history: PyTree


def recorder(observe: Callable[[PyTree], PyTree],
             num_steps: int) -> optax.GradientTransformation:
  """An optax transform that keeps `observe(updates)` of every step.

  Given to `loop.fit` in front of an optimiser it sees exactly what leaves the
  privatizer, changes nothing, and costs no privacy.

  Args:
    observe: a function of the noisy mean.
    num_steps: how many steps to keep.
  """

  def init(params: PyTree) -> RecorderState:
    shapes = jax.eval_shape(observe, params)
    return RecorderState(jnp.int32(0), jax.tree.map(
        lambda s: jnp.zeros((num_steps,) + s.shape, s.dtype), shapes))

  def update(updates, state, params=None):
    del params
    history = jax.tree.map(lambda kept, new: kept.at[state.step].set(new),
                           state.history, observe(updates))
    return updates, RecorderState(state.step + 1, history)

  return optax.GradientTransformation(init, update)


def contribution(method: Method, params: Params, certificate: Certificate,
                 record: Batch, radii: PyTree = ()) -> tuple[PyTree, PyTree]:
  """What one record adds to the sums, and its norm over the claimed bound.

  Args:
    method: under audit.
    params: parameters the record meets.
    certificate: of these parameters.
    record: a batch of one; in views, if the bounder takes them.
    radii: of an adaptive bounder.

  Returns:
    (the contribution, a tree of block norms over their l2 sensitivities); a
    ratio above 1 refutes the sensitivity. For an adaptive bounder both are
    pairs, of the gradient's and of the indicators'.
  """
  bounder = bounders.at_radii(method.bounder, radii)
  sums = bounder.sums(params, record, jnp.ones([1], jnp.bool_))
  bounds = bounder.l2_sensitivity(certificate)
  blocks = jax.tree.structure(bounds).flatten_up_to(sums.total)
  ratios = jax.tree.unflatten(jax.tree.structure(bounds), [
      tree.global_norm(block) / bound for block, bound
      in zip(blocks, jax.tree.leaves(bounds), strict=True)])
  if method.bounder.adaptive is None:
    return sums.total, ratios
  shares = jax.tree.map(
      lambda moved: jnp.abs(moved) / quantiles.INDICATOR_SENSITIVITY,
      sums.indicators)
  return (sums.total, sums.indicators), (ratios, shares)


def matched_filter(canary: PyTree, stddevs: PyTree) -> tuple[PyTree, float]:
  """The best linear statistic for a canary, and its signal-to-noise ratio.

  Args:
    canary: its contribution to the sums.
    stddevs: tree prefix: noise of each block.

  Returns:
    (direction, mu): the inner product of a noisy sum with `direction` is
    N(1, 1/mu^2) if the canary is in the batch and all else is zero, and
    N(0, 1/mu^2) if it is not. 1/mu is the canary's noise multiplier, never
    below the claimed joint multiplier.
  """
  weighted = tree.map_blocks(lambda s, leaf: leaf / jnp.square(s), stddevs,
                             canary)
  energy = tree.dot(weighted, canary)
  return tree.scale(1 / energy, weighted), float(jnp.sqrt(energy))


def privacy_losses(statistics: np.ndarray, *, sampling_prob: float,
                   noise_multiplier: float) -> np.ndarray:
  """Log-likelihood ratios, canary in against out, of whole runs.

  Args:
    statistics: [num_runs, num_steps] matched-filter outputs.
    sampling_prob: probability that the canary joins a batch, if present.
    noise_multiplier: standard deviation of a statistic.

  Returns:
    [num_runs] sums over steps of ln(1 - q + q exp((2 y - 1) / (2 sigma^2))).
  """
  exponent = (2 * np.asarray(statistics, np.float64) - 1) / (
      2 * noise_multiplier**2)
  return empirical.subsampled_log_ratio(
      exponent, sampling_prob=sampling_prob).sum(-1)


class DeltaEstimate(NamedTuple):
  """Monte Carlo estimate of the delta at one epsilon.

  Attributes:
    value: mean over runs.
    standard_error: of the mean.
  """
  value: float
  standard_error: float


def estimate_delta(losses: np.ndarray, *, epsilon: float) -> DeltaEstimate:
  """E[(1 - exp(epsilon - L))_+] from runs of the first hypothesis.

  Args:
    losses: [num_runs] privacy losses ln(P/Q) drawn under P: runs with the
      canary for the remove direction; their negatives, of runs without it, for
      the add direction.
    epsilon: where to evaluate the privacy curve.
  """
  gains = np.maximum(0.0, -np.expm1(np.minimum(0.0, epsilon - losses)))
  error = gains.std(ddof=1) / np.sqrt(gains.size)
  return DeltaEstimate(float(gains.mean()), float(error))


def variance_p_value(noise: np.ndarray, *, stddev: float) -> float:
  """Two-sided p-value that `noise` is N(0, stddev^2), from its energy.

  Args:
    noise: independent draws, any shape.
    stddev: claimed.
  """
  values = np.asarray(noise, np.float64).ravel() / stddev
  energy = float(np.square(values).sum())
  lower = stats.chi2.cdf(energy, values.size)
  return float(2 * min(lower, stats.chi2.sf(energy, values.size)))


def correlation_p_value(first: np.ndarray, second: np.ndarray) -> float:
  """Two-sided p-value that two noise arrays of one shape are uncorrelated."""
  first = np.asarray(first, np.float64).ravel()
  second = np.asarray(second, np.float64).ravel()
  norms = np.linalg.norm(first) * np.linalg.norm(second)
  correlation = float(first @ second / norms)
  return float(2 * stats.norm.sf(abs(correlation) * np.sqrt(first.size)))
