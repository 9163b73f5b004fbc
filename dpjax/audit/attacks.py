"""Membership inference attacks by log-odds: loss threshold, LiRA and RMIA.

An attack is a function of arrays,

  (target [N], shadows [M, N], inclusion [M, N] bool) -> scores [N].

`target` holds the log-odds of N records under the attacked network, `shadows`
those under M shadow networks trained in the same way. `inclusion[m, n]` says
whether record n was in the training set of network m. Scores are high for
members. Callers decide what to `vmap` or compile; `each_as_target` attacks
every network of a pool with all others as shadows.

Log-odds suffice: the probability of the true class is their logistic function,
and the loss is minus its logarithm. With A augmented queries for each record,
target is [N, A] and shadows are [M, N, A]; the score is the mean over queries.

The fraction of members need not be 1/2: LiRA compares two distributions, and
RMIA gives shadows with and without a record equal weight, however many there
are. Sources: Carlini et al. (2022, LiRA), Zarifzadeh, Liu and Shokri (2024,
RMIA), Brannvall (2026, priors of variances); AUD-10.
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

# Smallest variance of a record, relative to the pooled variance: a few equal
# values do not mean that a record's variance is zero.
_LEAST_VARIANCE = 1e-4


class Attacked(NamedTuple):
  """The scores of an attack on every network of a pool.

  Attributes:
    scores: [K, N] float32, high for members of the training set of network k.
    num_in: [K, N] int32, number of shadows of network k trained on record n.
    num_out: [K, N] int32, number of shadows not trained on it. Where either
      is 0, the attack used the fallback that its docstring states.
  """
  scores: Array
  num_in: Array
  num_out: Array


class _Side(NamedTuple):
  """Statistics of the shadows trained on each record, or of the others.

  Attributes:
    size: [N, 1], number of these shadows, as a float.
    mean: [N, A], mean of their log-odds; 0 if there are none.
    squares: [N, A], sum of squared deviations from the mean.
  """
  size: Array
  mean: Array
  squares: Array


class _Probability(NamedTuple):
  """Probabilities p and 1 - p, [N, A]; near 0 or 1 only one is accurate."""
  hit: Array
  miss: Array


def log_odds(logits: Array, labels: Array) -> Array:
  """Returns the log-odds z_y - log sum_{j != y} exp z_j of the true class.

  They stay finite and accurate where the softmax rounds to 0 or 1.

  Args:
    logits: [..., c] with c >= 2 classes.
    labels: [...] integers, the true classes, below c.
  """
  errors.check_at_least('classes', logits.shape[-1], 2)
  # The true class is masked out; 1 - softmax would round to 0.
  own = jax.nn.one_hot(labels, logits.shape[-1], dtype=bool)
  rest = jax.nn.logsumexp(jnp.where(own, -jnp.inf, logits), axis=-1)
  return jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0] - rest


def loss_threshold(target: Array, shadows: Array, inclusion: Array) -> Array:
  """Returns minus the cross-entropy; this attack ignores the shadows."""
  target, _, _ = _with_queries(target, shadows, inclusion)
  return jnp.mean(jax.nn.log_sigmoid(target), axis=-1)


def lira(target: Array, shadows: Array, inclusion: Array, *,
         pooling: float = math.inf) -> Array:
  """Returns online LiRA scores: a likelihood ratio of Gaussians per record.

  The score is log N(phi; mean_in, var_in) - log N(phi; mean_out, var_out), with
  means and variances of the record's own shadows, averaged over queries. This
  treats queries as independent, as published; their sum ranks records alike.

  A variance is (pooling * pooled + squares) / (pooling + count - 1), where
  `squares` is the sum of squared deviations from the record's mean: a conjugate
  prior with `pooling` degrees of freedom. Infinity pools over all records, as
  advised below 64 shadows; 0 uses only the record's own shadows. The published
  code pools deviations from the mean over all records instead, for both sides
  from that of members.

  If a record has no shadow on one side, that side's mean is the other side's,
  shifted by the mean gap of records with shadows on both sides. A pooled
  variance without a degree of freedom is replaced by the other side's, or 1.

  Args:
    target: [N] or [N, A] log-odds under the attacked network.
    shadows: [M, N] or [M, N, A] log-odds under M >= 2 shadow networks.
    inclusion: [M, N] bool, True if shadow m was trained on record n.
    pooling: degrees of freedom of the pooled variance, >= 0.
  """
  errors.check_at_least('shadows', shadows.shape[0], 2)
  target, shadows, inside = _with_queries(target, shadows, inclusion)
  in_, out = _side(shadows, inside), _side(shadows, ~inside)
  has_in, has_out = in_.size > 0, out.size > 0
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
  """Returns offline LiRA scores (phi - mean_out) / sd_out.

  Only shadows without the record are used. The published score is Phi of this,
  which ranks alike but rounds to 1 in float32 where false positives are rare.
  With a pooled variance the score is the difference to reference networks,
  known as difficulty calibration.

  If a record was in all shadows, its mean is the mean over records. See `lira`
  for arguments and variances; M >= 1.
  """
  target, shadows, inside = _with_queries(target, shadows, inclusion)
  out = _side(shadows, ~inside)
  has_out = out.size > 0
  mean = jnp.where(has_out, out.mean, _mean_over_records(out.mean, has_out))
  variance = _variance(out, _first_known(_pooled(out)), pooling)
  return jnp.mean((target - mean) / jnp.sqrt(variance), axis=-1)


def rmia(target: Array, shadows: Array, inclusion: Array, *, a: float,
         gamma: float = 1.0, population: np.ndarray | None = None) -> Array:
  """Returns online RMIA scores: the fraction of the population x dominates.

  It is the fraction of z with
  [p(x | target) / p(x)] / [p(z | target) / p(z)] >= gamma. Here p(x) is the
  mean of two averages of p(x | shadow), over shadows with x and without x; p(z)
  likewise. Within one network, scores rank records as the ratios do, with ties
  if the population is small. It makes scores of several networks comparable.

  If a record has shadows on one side only, the other side follows from
  p_in = a p_out + 1 - a, as in offline RMIA. Scores are means over queries.

  Args:
    target: see `lira`.
    shadows: see `lira`; M >= 1.
    inclusion: see `lira`.
    a: in (0, 1]; members have the miss probability a (1 - p_out).
    gamma: factor by which a record must dominate, positive.
    population: [Z] indices of the population among the N records; None for all.
  """
  errors.check_probability('a', a)
  target, shadows, inside = _with_queries(target, shadows, inclusion)
  in_, out = _mean_probability(shadows, inside), _mean_probability(
      shadows, ~inside)
  in_ = _where(jnp.any(inside, axis=0), in_, _members(out, a))
  out = _where(jnp.any(~inside, axis=0), out, _non_members(in_, a))
  return _dominated(target, _average(in_, out), gamma, population)


def rmia_offline(target: Array, shadows: Array, inclusion: Array, *, a: float,
                 gamma: float = 1.0,
                 population: np.ndarray | None = None) -> Array:
  """Returns offline RMIA scores: p(x) = ((1 + a) p_out + 1 - a) / 2.

  Only shadows without the record are used. For a record that was in all
  shadows, p_out is the mean over records. See `rmia` for arguments. `a` may be
  chosen by attacking shadows.
  """
  errors.check_probability('a', a)
  target, shadows, inside = _with_queries(target, shadows, inclusion)
  has_out = jnp.any(~inside, axis=0)
  out = _mean_probability(shadows, ~inside)
  out = _where(has_out, out, _Probability(*(
      _mean_over_records(each, has_out) for each in out)))
  return _dominated(target, _average(_members(out, a), out), gamma, population)


@functools.partial(jax.jit, static_argnames='attack')
def each_as_target(attack: Attack, log_odds: Array,
                   inclusion: Array) -> Attacked:
  """Attacks each network of a pool with the K - 1 others as its shadows.

  The attack never sees the target's own row of `inclusion`. Networks are
  attacked one at a time, so memory is that of one attack; each function object
  `attack` is compiled once. Scores of different targets share shadows and are
  not independent.

  Args:
    attack: attack function, e.g. `functools.partial(lira, pooling=0.)`.
    log_odds: [K, N] or [K, N, A] log-odds under K >= 2 networks.
    inclusion: [K, N] bool, True if network k was trained on record n.
  """
  size = errors.check_at_least('networks', log_odds.shape[0], 2)

  def attacked(target: Array) -> Attacked:
    # All networks but the target, in a shape that does not depend on it.
    others = (target + 1 + jnp.arange(size - 1)) % size
    known = inclusion[others]
    num_in = jnp.sum(known, axis=0, dtype=jnp.int32)
    return Attacked(attack(log_odds[target], log_odds[others], known), num_in,
                    size - 1 - num_in)

  return jax.lax.map(attacked, jnp.arange(size))


def _with_queries(target: Array, shadows: Array, inclusion: Array
                  ) -> tuple[Array, Array, Array]:
  """Checks shapes and adds a query axis if there is none.

  Returns:
    target [N, A], shadows [M, N, A], inclusion [M, N, 1].
  """
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
  """Returns the statistics of the chosen shadows of each record."""
  count = jnp.sum(chosen, axis=0, dtype=values.dtype)
  mean = _masked_mean(values, chosen)
  # Two passes: E[x^2] - mean^2 would cancel in float32.
  squares = jnp.where(chosen, jnp.square(values - mean[None]), 0)
  return _Side(count, mean, jnp.sum(squares, axis=0))


def _masked_mean(values: Array, chosen: Array) -> Array:
  """Returns means over the first axis; 0 where nothing is chosen."""
  count = jnp.sum(chosen, axis=0, dtype=values.dtype)
  # A product with the mask would turn excluded infinities into NaN.
  return jnp.sum(jnp.where(chosen, values, 0), axis=0) / jnp.maximum(count, 1)


def _mean_over_records(values: Array, known: Array) -> Array:
  """Returns the mean [1, A] over known records of values [N, A]."""
  return _masked_mean(values, known)[None]


def _pooled(side: _Side) -> Array:
  """Returns pooled variances [1, A]; 0 without a degree of freedom."""
  freedom = jnp.sum(jnp.maximum(side.size - 1, 0))
  return jnp.sum(side.squares, axis=0, keepdims=True) / jnp.maximum(freedom, 1)


def _first_known(*variances: Array) -> Array:
  """Returns the first variance that is positive, or 1 if none is."""
  chosen = jnp.ones_like(variances[0])
  for variance in reversed(variances):
    chosen = jnp.where(variance > 0, variance, chosen)
  return chosen


def _variance(side: _Side, pooled: Array, pooling: float) -> Array:
  """Returns variances [N, A] of records, shrunk towards the pooled one."""
  if not pooling >= 0:
    raise ValueError(f'pooling must be >= 0, got {pooling}')
  if math.isinf(pooling):  # The limit of the quotient below.
    return jnp.broadcast_to(pooled, side.mean.shape)
  freedom = pooling + jnp.maximum(side.size - 1, 0)
  own = (pooling * pooled + side.squares) / jnp.maximum(freedom, 1e-30)
  return jnp.where(freedom > 0, jnp.maximum(own, _LEAST_VARIANCE * pooled),
                   pooled)


def _log_normal(values: Array, mean: Array, variance: Array) -> Array:
  """Returns normal log-densities up to a constant that ratios cancel."""
  return -(jnp.log(variance) + jnp.square(values - mean) / variance) / 2


def _mean_probability(shadows: Array, chosen: Array) -> _Probability:
  """Returns the mean probability of the true class over chosen shadows."""
  # sigmoid(-z) is 1 - sigmoid(z) without cancellation near 1.
  return _Probability(_masked_mean(jax.nn.sigmoid(shadows), chosen),
                      _masked_mean(jax.nn.sigmoid(-shadows), chosen))


def _members(out: _Probability, a: float) -> _Probability:
  """Returns the probability assumed for members, given non-members' `out`."""
  return _Probability(a * out.hit + (1 - a), a * out.miss)


def _non_members(in_: _Probability, a: float) -> _Probability:
  """Inverts `_members`: the probability for non-members, given `in_`."""
  # `_members` gives a miss of at most a, but a measured one may be larger.
  miss = jnp.minimum(in_.miss / a, 1)
  return _Probability(1 - miss, miss)


def _average(one: _Probability, other: _Probability) -> _Probability:
  """Returns the mean of two probabilities, for hit and miss."""
  return _Probability((one.hit + other.hit) / 2, (one.miss + other.miss) / 2)


def _where(chosen: Array, one: _Probability,
           other: _Probability) -> _Probability:
  """Returns `one` where chosen, and `other` elsewhere."""
  return _Probability(jnp.where(chosen, one.hit, other.hit),
                      jnp.where(chosen, one.miss, other.miss))


def _log(probability: _Probability) -> Array:
  """Returns ln p, accurate near p = 1 and finite at p = 0."""
  hit, miss = probability
  rare = jnp.log(jnp.maximum(hit, jnp.finfo(hit.dtype).tiny))
  return jnp.where(miss < 0.5, jnp.log1p(-miss), rare)


def _dominated(target: Array, typical: _Probability, gamma: float,
               population: np.ndarray | None) -> Array:
  """Returns the fraction [N] of the population that each record dominates.

  `typical` is p(x), the probability under an average shadow.
  """
  errors.check_positive('gamma', gamma)
  ratios = jax.nn.log_sigmoid(target) - _log(typical)
  others = ratios if population is None else ratios[population]
  # A rank counts the z whose ratio is at most that of x divided by gamma.
  ranks = jax.vmap(
      functools.partial(jnp.searchsorted, side='right'), in_axes=1)(
          jnp.sort(others, axis=0), ratios - math.log(gamma))
  return jnp.mean(ranks / others.shape[0], axis=0, dtype=target.dtype)
