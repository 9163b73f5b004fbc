"""Many runs of two mechanisms on a frozen logistic regression (AUD-01).

Both release, at each step, a noisy sum of scaled gradients over a Poisson
batch. 'lip_printed' divides the sum by the largest input norm of the batch
(Algorithm 8), 'lip_scaled' each gradient by the norm of its own input
(LDP-04), which one record changes by at most Delta = 1. The added record lies
far out on the wrong side of the boundary.

The attacker projects a release on the mean gradient, so that one number for
each step is enough, and runs are simulated as such. All mechanisms, records
and noise levels see the same batches: each is audited alone, so that sharing
them costs no validity.
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
    norms: [n] their input norms.
    canary_projections: [c] the same of the added records.
    canary_norms: [c].
  """
  projections: Array
  norms: Array
  canary_projections: Array
  canary_norms: Array


class Moments(NamedTuple):
  """Mean and variance of noiseless releases, [method, canary].

  Attributes:
    mean_out: of steps whose batch has no added record.
    variance_out: of these.
    mean_in: of steps whose batch has it.
    variance_in: of these.
  """
  mean_out: Array
  variance_out: Array
  mean_in: Array
  variance_in: Array


def make_records(key: PRNGKey, *, num_examples: int,
                 num_features: int) -> tuple[Array, Array, Array]:
  """Two Gaussian classes, each at distance 1 from the point between them.

  Returns:
    (x [n, p], y [n] in {-1, 1}, weights [p]): the model is frozen a short
    step from zero towards the classes.
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
  """The gradients of `make_records`, and the records that may be added.

  An added record lies in the direction of its wrong class, `canaries` times
  as far out as the median record; its loss has slope nearly 1, the largest
  there is.
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
  """Releases before the noise, for [r, n] batches without the added record.

  Returns:
    ([r, method, canary] without it, the same with it). An empty batch, which
    Algorithm 8 redraws, counts as zero.
  """
  weights = jnp.stack([problem.projections,
                       problem.projections / problem.norms], 1)
  sums = jnp.matmul(mask.astype(jnp.float32), weights,
                    precision=jax.lax.Precision.HIGHEST)[..., None]
  plain, scaled = sums[:, 0], sums[:, 1]
  largest = jnp.max(jnp.where(mask, problem.norms[None], 0.0), 1)[:, None]
  ratio = problem.canary_projections / problem.canary_norms
  joint = jnp.maximum(largest, problem.canary_norms[None])
  outside = jnp.stack([plain / jnp.maximum(largest, 1e-30), scaled], 1)
  inside = jnp.stack([(plain + problem.canary_projections[None]) / joint,
                      scaled + ratio[None]], 1)
  return jnp.broadcast_to(outside, inside.shape), inside


def _batches(key: PRNGKey, problem: Problem, sampling_prob: float,
             num_runs: int) -> tuple[Array, Array]:
  """[num_runs, n] batches, and [num_runs] whether they hold the addition."""
  size = problem.norms.shape[0]
  words = jax.random.bits(key, [num_runs, size + 1], jnp.uint32)
  drawn = words < jnp.uint32(round(sampling_prob * 2**32))
  return drawn[:, :size], drawn[:, size]


@functools.partial(jax.jit, static_argnames=('sampling_prob', 'num_batches'))
def estimate_moments(key: PRNGKey, problem: Problem, *, sampling_prob: float,
                     num_batches: int) -> Moments:
  """Estimates the moments that the attacker uses, by sampling batches."""
  mask, _ = _batches(key, problem, sampling_prob, num_batches)
  outside, inside = _noiseless(problem, mask)
  return Moments(outside.mean(0), outside.var(0), inside.mean(0),
                 inside.var(0))


@functools.partial(jax.jit, static_argnames=(
    'sampling_prob', 'num_steps', 'num_groups', 'num_parallel'))
def _simulate(key, problem, moments, noise_multipliers, present, *,
              sampling_prob, num_steps, num_groups, num_parallel):
  stddevs = noise_multipliers[None, None, None]
  shape = (num_parallel, *moments.mean_in.shape, noise_multipliers.shape[0])

  def step(totals, step_key):
    batch_key, noise_key = jax.random.split(step_key)
    mask, joined = _batches(batch_key, problem, sampling_prob, num_parallel)
    outside, inside = _noiseless(problem, mask)
    joined = (joined & present)[:, None, None]
    clean = jnp.where(joined, inside, outside)[..., None]
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
  """ln of two normal densities fitted to steps with the addition, without."""
  noise = jnp.square(noise_multipliers)[None, None]

  def log_density(mean, variance):
    spread = variance[..., None] + noise
    gap = release - mean[None, ..., None]
    return -0.5 * (jnp.square(gap) / spread[None] + jnp.log(spread)[None])
  return (log_density(moments.mean_in, moments.variance_in) -
          log_density(moments.mean_out, moments.variance_out))


def statistics(key: PRNGKey, problem: Problem, moments: Moments, *,
               noise_multipliers: Array, present: bool, sampling_prob: float,
               num_steps: int, num_runs: int) -> dict[str, np.ndarray]:
  """Two statistics of many runs, of each mechanism, record and noise level.

  Args:
    key: of batches and noise.
    problem: data and records to add.
    moments: the attacker's, from another key.
    noise_multipliers: [e].
    present: whether the data set holds the added record.
    sampling_prob: q, a multiple of 2^-32.
    num_steps: T.
    num_runs: R, of each.

  Returns:
    'sum' and 'likelihood': [R, method, canary, e]. The second is the sum over
    steps of ln(1 - q + q exp(llr)), llr from `moments`.
  """
  parallel = min(_PARALLEL, num_runs)
  groups = -(-num_runs // parallel)
  result = _simulate(key, problem, moments, noise_multipliers,
                    jnp.asarray(present), sampling_prob=sampling_prob,
                    num_steps=num_steps, num_groups=groups,
                    num_parallel=parallel)
  return {name: np.asarray(values).reshape(-1, *values.shape[2:])[:num_runs]
          for name, values in zip(STATISTICS, result, strict=True)}
