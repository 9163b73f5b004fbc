"""Attacks many runs of two mechanisms on a frozen logistic regression (AUD-01).

Both release, at each step, a noisy sum of scaled gradients over a Poisson
batch. 'lip_printed' divides the sum by the largest input norm of the batch
(Algorithm 8). 'lip_scaled' divides each gradient by the norm of its own input
(LDP-04), so that one record changes the sum by at most Delta = 1. The added
record lies far out on the wrong side of the boundary.

The attacker projects a release on the mean gradient, so only this number is
simulated for each step. All mechanisms, added records and noise levels use the
same batches. Each is audited alone, so its p-value stays valid.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import empirical
from dpjax.privacy import additive
from dpjax.typing import Array, PRNGKey

METHODS = ('lip_printed', 'lip_scaled')
STATISTICS = ('sum', 'likelihood')

_DISTANCE = 1.0
_STEP = 0.1
_PARALLEL = 500


class Problem(NamedTuple):
  """Gradients of a frozen model, and the records that may be added.

  Attributes:
    projections: [n] gradients of the records along the mean gradient.
    norms: [n] norms of the records' inputs.
    canary_projections: [c] projections of the gradients of the added records.
    canary_norms: [c] norms of their inputs.
  """
  projections: Array
  norms: Array
  canary_projections: Array
  canary_norms: Array


class Moments(NamedTuple):
  """Mean and variance of noiseless releases, each [method, canary].

  Attributes:
    mean_out: mean over batches without the added record.
    variance_out: variance over these.
    mean_in: mean over batches with the added record.
    variance_in: variance over these.
  """
  mean_out: Array
  variance_out: Array
  mean_in: Array
  variance_in: Array


def make_records(key: PRNGKey, *, num_examples: int,
                 num_features: int) -> tuple[Array, Array, Array]:
  """Draws two Gaussian classes, with means at distance 1 from the origin.

  Returns:
    (x [n, p], y [n] in {-1, 1}, weights [p]). The weights of the frozen model
    are a short step from zero towards the mean of class 1.
  """
  centre_key, label_key, noise_key = jax.random.split(key, 3)
  centre = jax.random.normal(centre_key, [num_features])
  centre = _DISTANCE * centre / jnp.linalg.norm(centre)
  y = jax.random.rademacher(label_key, [num_examples], jnp.float32)
  x = y[:, None] * centre[None] + jax.random.normal(
      noise_key, [num_examples, num_features])
  return x, y, _STEP * centre


@functools.partial(jax.jit, static_argnames=(
    'num_examples', 'num_features', 'canaries'))
def make_problem(key: PRNGKey, *, num_examples: int, num_features: int,
                 canaries: tuple[float, ...]) -> Problem:
  """Returns the gradients of `make_records`, and records that may be added.

  An added record lies in the direction of the other class. Its norm is the
  median norm times an entry of `canaries`. The slope of its loss is nearly 1,
  the largest possible.
  """
  x, y, theta = make_records(key, num_examples=num_examples,
                             num_features=num_features)
  slopes = -y * jax.nn.sigmoid(-y * (x @ theta))
  mean_gradient = jnp.tensordot(slopes, x, 1)
  direction = mean_gradient / jnp.linalg.norm(mean_gradient)
  norms = jnp.linalg.norm(x, axis=1)
  canary_norms = jnp.asarray(canaries, jnp.float32) * jnp.median(norms)
  # x0 = norm * direction with y0 = 1: its gradient points away from the mean.
  canary_margin = canary_norms * jnp.dot(direction, theta)
  canary_slopes = jax.nn.sigmoid(-canary_margin)
  return Problem(slopes * (x @ direction), norms,
                 -canary_slopes * canary_norms, canary_norms)


def _noiseless(problem: Problem, mask: Array) -> tuple[Array, Array]:
  """Returns releases before noise, for batches without and with a canary.

  Args:
    problem: gradients of the records and of the canaries.
    mask: [r, n] bool, the records in each of r batches.

  Returns:
    Releases [r, method, canary] without the canary, and with it. An empty
    batch, which Algorithm 8 redraws, releases 0.
  """
  weights = jnp.stack([problem.projections,
                       problem.projections / problem.norms], 1)
  sums = jnp.matmul(mask.astype(jnp.float32), weights,
                    precision=jax.lax.Precision.HIGHEST)[..., None]
  plain, scaled = sums[:, 0], sums[:, 1]
  largest = jnp.max(jnp.where(mask, problem.norms[None], 0.0), 1)[:, None]
  ratio = problem.canary_projections / problem.canary_norms
  largest_with = jnp.maximum(largest, problem.canary_norms[None])
  without = jnp.stack([plain / jnp.maximum(largest, 1e-30), scaled], 1)
  with_canary = jnp.stack(
      [(plain + problem.canary_projections[None]) / largest_with,
       scaled + ratio[None]], 1)
  return jnp.broadcast_to(without, with_canary.shape), with_canary


def _batches(key: PRNGKey, problem: Problem, sampling_prob: float,
             num_runs: int) -> tuple[Array, Array]:
  """Draws batches [num_runs, n], and [num_runs] whether a canary is in them."""
  size = problem.norms.shape[0]
  words = jax.random.bits(key, [num_runs, size + 1], jnp.uint32)
  drawn = words < jnp.uint32(round(sampling_prob * 2**32))
  return drawn[:, :size], drawn[:, size]


@functools.partial(jax.jit, static_argnames=('sampling_prob', 'num_batches'))
def estimate_moments(key: PRNGKey, problem: Problem, *, sampling_prob: float,
                     num_batches: int) -> Moments:
  """Estimates the moments that the attacker uses, by sampling batches."""
  mask, _ = _batches(key, problem, sampling_prob, num_batches)
  without, with_canary = _noiseless(problem, mask)
  return Moments(without.mean(0), without.var(0), with_canary.mean(0),
                 with_canary.var(0))


@functools.partial(jax.jit, static_argnames=(
    'sampling_prob', 'num_steps', 'num_groups', 'num_parallel'))
def _simulate(key, problem, moments, noise_multipliers, present, *,
              sampling_prob, num_steps, num_groups, num_parallel):
  """Returns both `statistics`, [num_groups, num_parallel, method, canary, e].
  """
  stddevs = noise_multipliers[None, None, None]
  shape = (num_parallel, *moments.mean_in.shape, noise_multipliers.shape[0])

  def step(totals, step_key):
    batch_key, noise_key = jax.random.split(step_key)
    mask, joined = _batches(batch_key, problem, sampling_prob, num_parallel)
    without, with_canary = _noiseless(problem, mask)
    joined = (joined & present)[:, None, None]
    clean = jnp.where(joined, with_canary, without)[..., None]
    release = clean + stddevs * additive.standard_normal(noise_key, shape)
    ratio = empirical.subsampled_log_ratio(
        _log_ratio(release, moments, noise_multipliers),
        sampling_prob=sampling_prob)
    return jax.tree.map(jnp.add, totals, (release, ratio)), None

  def group(group_key):
    start = (jnp.zeros(shape), jnp.zeros(shape))
    return jax.lax.scan(step, start,
                        jax.random.split(group_key, num_steps))[0]

  return jax.lax.map(group, jax.random.split(key, num_groups))


def _log_ratio(release, moments, noise_multipliers):
  """Returns the log-ratio of normal densities, with the canary over without."""
  noise = jnp.square(noise_multipliers)[None, None]

  def log_density(mean, variance):
    total = variance[..., None] + noise
    gap = release - mean[None, ..., None]
    return -0.5 * (jnp.square(gap) / total[None] + jnp.log(total)[None])
  return (log_density(moments.mean_in, moments.variance_in) -
          log_density(moments.mean_out, moments.variance_out))


def statistics(key: PRNGKey, problem: Problem, moments: Moments, *,
               noise_multipliers: Array, present: bool, sampling_prob: float,
               num_steps: int, num_runs: int) -> dict[str, np.ndarray]:
  """Returns two attack statistics of R runs at all settings.

  Args:
    key: key of batches and noise.
    problem: gradients of the records and of the canaries.
    moments: moments that the attacker estimated with another key.
    noise_multipliers: [e] noise levels.
    present: whether the data set holds the added record.
    sampling_prob: q, a multiple of 2^-32.
    num_steps: T, steps of a run.
    num_runs: R, runs at each setting.

  Returns:
    'sum' and 'likelihood', each [R, method, canary, e]: the sum of a run's
    releases, and the sum over its steps of ln(1 - q + q e^r), where r is the
    log-ratio of normal densities with these `moments`.
  """
  parallel = min(_PARALLEL, num_runs)
  groups = -(-num_runs // parallel)
  sums_and_ratios = _simulate(
      key, problem, moments, noise_multipliers, jnp.asarray(present),
      sampling_prob=sampling_prob, num_steps=num_steps, num_groups=groups,
      num_parallel=parallel)
  return {name: np.asarray(values).reshape(-1, *values.shape[2:])[:num_runs]
          for name, values in zip(STATISTICS, sums_and_ratios, strict=True)}
