"""Attacks on membership: loss threshold, LiRA and RMIA, from log-odds alone.

An attack is a function of arrays,

  (target [N], shadows [M, N], inclusion [M, N] bool) -> scores [N],

of the log-odds of N records under the network that is attacked and under M
others, trained alike on sets of which it is known whether record n was in that
of network m. Scores are high for members. What is `vmap`ped or compiled is up
to the caller; `each_as_target` lets every network of a pool be attacked by all
others.

Log-odds are all there is to know: the probability of the true class is their
logistic function, the loss minus its logarithm. Where each record is asked
about A times, augmented, target is [N, A] and shadows are [M, N, A]; the score
is the mean over queries.

Shares of members need not be 1/2: LiRA compares two laws and RMIA weighs both
sides of the shadows alike, however many networks are on either. Sources:
Carlini et al. 2022 (LiRA), Zarifzadeh, Liu and Shokri 2024 (RMIA), Brannvall
2026 (priors of variances); AUD-10.
"""

from collections.abc import Callable
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.typing import Array

Attack = Callable[[Array, Array, Array], Array]
"""(target [N], shadows [M, N], inclusion [M, N]) -> scores [N]."""

_LEAST_VARIANCE = 1e-4  # of the pooled one: three equal values tell nothing


class Attacked(NamedTuple):
  """Every network of a pool in the role of the target.

  Attributes:
    scores: [K, N] float32, high for members of the training set of network k.
    num_in: [K, N] int32, shadows of network k that were trained on record n.
    num_out: [K, N] int32, shadows that were not; where either is 0 the attack
      fell back on what its docstring says.
  """
  scores: Array
  num_in: Array
  num_out: Array


class _Side(NamedTuple):
  """Shadows with each record, or those without it; counts as floats.

  Attributes:
    count: [N, 1].
    mean: [N, A], 0 where there are none.
    squares: [N, A], sum of squared deviations from the mean.
  """
  count: Array
  mean: Array
  squares: Array


class _Probability(NamedTuple):
  """p and 1 - p, [N, A], neither of which rounds to 0 where the other is 1."""
  hit: Array
  miss: Array


def log_odds(logits: Array, labels: Array) -> Array:
  """phi = z_y - log sum_{j != y} exp z_j, the logit of the true class.

  Not rounded to 0 or infinity where the softmax is to 1.

  Args:
    logits: [..., c] with c >= 2.
    labels: [...] integers below c.
  """
  errors.check_at_least('classes', logits.shape[-1], 2)
  own = jax.nn.one_hot(labels, logits.shape[-1], dtype=bool)
  rest = jax.nn.logsumexp(jnp.where(own, -jnp.inf, logits), axis=-1)
  return jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0] - rest


def loss_threshold(target: Array, shadows: Array, inclusion: Array) -> Array:
  """Minus the cross-entropy: one threshold for all records, no shadows."""
  target, _, _ = _with_queries(target, shadows, inclusion)
  return jnp.mean(jax.nn.log_sigmoid(target), axis=-1)


def lira(target: Array, shadows: Array, inclusion: Array, *,
         pooling: float = math.inf) -> Array:
  """Likelihood ratio of two Gaussians for each record: online LiRA.

  log N(phi; mean_in, var_in) - log N(phi; mean_out, var_out), means and
  variances of the record's own shadows. Over queries the mean, which orders
  records as the sum does: as if queries were independent, as published.

  A variance is (pooling * pooled + squares) / (pooling + count - 1), `squares`
  the sum of squared deviations from the record's mean: a conjugate prior of
  so many degrees of freedom. Infinity pools over all records, as advised
  below 64 shadows; 0 leaves each record its own. Deviations are from the
  means of records: the published code pools deviations from the mean of all
  records, for both sides that of members.

  Where records have no shadow on one side its mean is that of the other
  moved by the mean gap of records that have both; a pooled variance without a
  degree of freedom is that of the other side, or 1.

  Args:
    target: [N] or [N, A] log-odds.
    shadows: [M, N] or [M, N, A], M >= 2.
    inclusion: [M, N] bool.
    pooling: degrees of freedom that the pooled variance counts for, >= 0.
  """
  errors.check_at_least('shadows', shadows.shape[0], 2)
  target, shadows, inside = _with_queries(target, shadows, inclusion)
  in_, out = _side(shadows, inside), _side(shadows, ~inside)
  has_in, has_out = in_.count > 0, out.count > 0
  gap = _mean_over_records(in_.mean - out.mean, has_in & has_out)
  mean_in = jnp.where(has_in, in_.mean, out.mean + gap)
  mean_out = jnp.where(has_out, out.mean, in_.mean - gap)
  pooled_in, pooled_out = _pooled(in_), _pooled(out)
  var_in = _variance(in_, _first_known(pooled_in, pooled_out), pooling)
  var_out = _variance(out, _first_known(pooled_out, pooled_in), pooling)
  return jnp.mean(_log_normal(target, mean_in, var_in)
                  - _log_normal(target, mean_out, var_out), axis=-1)


def lira_offline(target: Array, shadows: Array, inclusion: Array, *,
                 pooling: float = math.inf) -> Array:
  """How far above its non-member law a record lies: offline LiRA.

  (phi - mean_out) / sd_out, by shadows without the record alone. The
  published score is Phi of it, of the same order, which float32 rounds to 1
  where false positives are rare. Pooled, this is the difference to reference
  networks, known as calibration by difficulty.

  Where a record was in all shadows its mean is the mean over records; see
  `lira` for arguments and variances. M >= 1.
  """
  target, shadows, inside = _with_queries(target, shadows, inclusion)
  out = _side(shadows, ~inside)
  has_out = out.count > 0
  mean = jnp.where(has_out, out.mean, _mean_over_records(out.mean, has_out))
  variance = _variance(out, _first_known(_pooled(out)), pooling)
  return jnp.mean((target - mean) / jnp.sqrt(variance), axis=-1)


def rmia(target: Array, shadows: Array, inclusion: Array, *, a: float,
         gamma: float = 1.0, population: np.ndarray | None = None) -> Array:
  """Share of the population that a record beats by `gamma`: online RMIA.

  The share of z with [p(x | target) / p(x)] / [p(z | target) / p(z)] >= gamma,
  where p(x) is the mean of the means of p(x | shadow) on both sides, and p(z)
  likewise. It rises with the record's own ratio: within one network only the
  order of the ratios counts, up to ties, of which a small population makes
  many. The population makes scores of many networks comparable.

  A record without shadows on one side has p_in = a p_out + 1 - a there, by
  which offline RMIA does without any. Shares are means over queries.

  Args:
    target: [N] or [N, A] log-odds.
    shadows: [M, N] or [M, N, A].
    inclusion: [M, N] bool.
    a: in (0, 1]; how much of 1 - p_out is left to members.
    gamma: positive.
    population: [Z] which of the N records are the z; all when None.
  """
  errors.check_probability('a', a)
  target, shadows, inside = _with_queries(target, shadows, inclusion)
  in_, out = _mean_probability(shadows, inside), _mean_probability(
      shadows, ~inside)
  in_ = _where(jnp.any(inside, axis=0), in_, _members(out, a))
  out = _where(jnp.any(~inside, axis=0), out, _non_members(in_, a))
  return _beaten(target, _average(in_, out), gamma, population)


def rmia_offline(target: Array, shadows: Array, inclusion: Array, *, a: float,
                 gamma: float = 1.0,
                 population: np.ndarray | None = None) -> Array:
  """RMIA by shadows without the record: p(x) = ((1 + a) p_out + 1 - a) / 2.

  A record that was in all shadows has p_out of the mean over records; see
  `rmia` for arguments. `a` may be chosen on shadows as targets.
  """
  errors.check_probability('a', a)
  target, shadows, inside = _with_queries(target, shadows, inclusion)
  has_out = jnp.any(~inside, axis=0)
  out = _mean_probability(shadows, ~inside)
  out = _where(has_out, out, _Probability(*(
      _mean_over_records(each, has_out) for each in out)))
  return _beaten(target, _average(_members(out, a), out), gamma, population)


@functools.partial(jax.jit, static_argnames='attack')
def each_as_target(attack: Attack, log_odds: Array,
                   inclusion: Array) -> Attacked:
  """Attacks each network of a pool with the K - 1 others as its shadows.

  The target's own row of `inclusion` is not among what the attack is given.
  One compiled program for each function object `attack`, network by network:
  memory is that of one attack. Scores of different targets share shadows and
  are not independent.

  Args:
    attack: such as `functools.partial(lira, pooling=0.)`.
    log_odds: [K, N] or [K, N, A], K >= 2.
    inclusion: [K, N] bool.
  """
  size = errors.check_at_least('networks', log_odds.shape[0], 2)

  def attacked(target: Array) -> Attacked:
    others = (target + 1 + jnp.arange(size - 1)) % size
    known = inclusion[others]
    num_in = jnp.sum(known, axis=0, dtype=jnp.int32)
    return Attacked(attack(log_odds[target], log_odds[others], known), num_in,
                    size - 1 - num_in)

  return jax.lax.map(attacked, jnp.arange(size))


def _with_queries(target: Array, shadows: Array, inclusion: Array
                  ) -> tuple[Array, Array, Array]:
  """target [N, A], shadows [M, N, A], inclusion [M, N, 1]."""
  if (inclusion.ndim != 2 or shadows.shape[:2] != inclusion.shape or
      shadows.shape[1:] != target.shape or shadows.ndim > 3):
    raise ValueError(
        'target, shadows and inclusion must be [N], [M, N], [M, N] or [N, A], '
        f'[M, N, A], [M, N]; got {target.shape}, {shadows.shape} and '
        f'{inclusion.shape}')
  if inclusion.dtype != bool:
    raise ValueError(f'inclusion must be bool, got {inclusion.dtype}')
  if target.ndim == 1:
    target, shadows = target[:, None], shadows[..., None]
  return target, shadows, inclusion[..., None]


def _side(values: Array, chosen: Array) -> _Side:
  count = jnp.sum(chosen, axis=0, dtype=values.dtype)
  mean = _masked_mean(values, chosen)
  squares = jnp.where(chosen, jnp.square(values - mean[None]), 0)
  return _Side(count, mean, jnp.sum(squares, axis=0))


def _masked_mean(values: Array, chosen: Array) -> Array:
  """Over the first axis; 0 where nothing is chosen."""
  count = jnp.sum(chosen, axis=0, dtype=values.dtype)
  return jnp.sum(jnp.where(chosen, values, 0), axis=0) / jnp.maximum(count, 1)


def _mean_over_records(values: Array, known: Array) -> Array:
  """[N, A] -> [1, A]."""
  return _masked_mean(values, known)[None]


def _pooled(side: _Side) -> Array:
  """[1, A]; 0 without a degree of freedom."""
  freedom = jnp.sum(jnp.maximum(side.count - 1, 0))
  return jnp.sum(side.squares, axis=0, keepdims=True) / jnp.maximum(freedom, 1)


def _first_known(*variances: Array) -> Array:
  """The first that is positive, and 1 if none is."""
  found = jnp.ones_like(variances[0])
  for variance in reversed(variances):
    found = jnp.where(variance > 0, variance, found)
  return found


def _variance(side: _Side, pooled: Array, pooling: float) -> Array:
  if not pooling >= 0:
    raise ValueError(f'pooling must be >= 0, got {pooling}')
  if math.isinf(pooling):
    return jnp.broadcast_to(pooled, side.mean.shape)
  freedom = pooling + jnp.maximum(side.count - 1, 0)
  own = (pooling * pooled + side.squares) / jnp.maximum(freedom, 1e-30)
  return jnp.where(freedom > 0, jnp.maximum(own, _LEAST_VARIANCE * pooled),
                   pooled)


def _log_normal(values: Array, mean: Array, variance: Array) -> Array:
  """Up to the constant, which ratios lose."""
  return -(jnp.log(variance) + jnp.square(values - mean) / variance) / 2


def _mean_probability(shadows: Array, chosen: Array) -> _Probability:
  return _Probability(_masked_mean(jax.nn.sigmoid(shadows), chosen),
                      _masked_mean(jax.nn.sigmoid(-shadows), chosen))


def _members(out: _Probability, a: float) -> _Probability:
  """What members are taken to have where non-members have `out`."""
  return _Probability(a * out.hit + (1 - a), a * out.miss)


def _non_members(in_: _Probability, a: float) -> _Probability:
  miss = jnp.minimum(in_.miss / a, 1)
  return _Probability(1 - miss, miss)


def _average(one: _Probability, other: _Probability) -> _Probability:
  return _Probability((one.hit + other.hit) / 2, (one.miss + other.miss) / 2)


def _where(chosen: Array, one: _Probability,
           other: _Probability) -> _Probability:
  return _Probability(jnp.where(chosen, one.hit, other.hit),
                      jnp.where(chosen, one.miss, other.miss))


def _log(of: _Probability) -> Array:
  rare = jnp.log(jnp.maximum(of.hit, jnp.finfo(of.hit.dtype).tiny))
  return jnp.where(of.miss < 0.5, jnp.log1p(-of.miss), rare)


def _beaten(target: Array, typical: _Probability, gamma: float,
            population: np.ndarray | None) -> Array:
  """[N] shares of the population that are beaten; `typical` is p(x)."""
  errors.check_positive('gamma', gamma)
  ratios = jax.nn.log_sigmoid(target) - _log(typical)
  others = ratios if population is None else ratios[population]
  ranks = jax.vmap(
      functools.partial(jnp.searchsorted, side='right'), in_axes=1)(
          jnp.sort(others, axis=0), ratios - math.log(gamma))
  return jnp.mean(ranks / others.shape[0], axis=0, dtype=target.dtype)
