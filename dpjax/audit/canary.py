"""Audits a training method in the loop that users run, by one canary.

The two neighbouring data sets hold records that contribute zero (they are NaN),
with and without one canary. At learning rate zero the parameters stay known, so
every release is a noisy sum with a known mean. The privacy loss of every run is
then known exactly, and the measured privacy curve is compared with the
accountant's. A canary that attains the claimed sensitivity in every block makes
the comparison tight; any other canary is still a valid test.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy import stats

from dpjax import tree
from dpjax.audit import bounds as audit_bounds
from dpjax.audit import empirical
from dpjax.audit import whitebox
from dpjax.grads.bounder import Method
from dpjax.models.model import Model
from dpjax.privacy import accounting
from dpjax.privacy import blocks
from dpjax.privacy import k_norm
from dpjax.train import loop
from dpjax.train.plan import TrainingPlan
from dpjax.typing import Array, Batch, Params, PRNGKey, PyTree

SIGNIFICANCE = 1e-6
"""Significance of the lower bound on epsilon from a game."""

# Factor by which float32 norms may exceed a claimed bound.
_TOLERANCE = 1 + 1e-5
# A noise test with a smaller p-value refutes the method.
_P_VALUE = 1e-7
# Standard errors by which a measured delta may exceed the accountant's.
_ERRORS = 5.5
# Allowance for the accountant's discretisation of delta.
_GRID = 1e-4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Game:
  """A training method, its plan and the canary that audits it.

  Attributes:
    model: model whose initial parameters are the same for every key.
    method: training method under audit, without adaptive radii.
    plan: training plan of each run.
    canary: the canary record, a batch of one.
    num_runs: number of runs on each of the two data sets.
  """
  model: Model
  method: Method
  plan: TrainingPlan
  canary: Batch
  num_runs: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossGame:
  """A game with its own computation of privacy losses.

  Attributes:
    name: name of the method.
    plan: training plan of each run.
    losses: function of a key that returns the privacy losses [r] of runs with
      the canary and [r] of runs without it.
  """
  name: str
  plan: TrainingPlan
  losses: Callable[[PRNGKey], tuple[np.ndarray, np.ndarray]]


class Shift(NamedTuple):
  """The canary's contribution at the initial parameters, with its bounds.

  Attributes:
    contribution: tree of the canary's contribution to the sums.
    ratios: tree of the contribution's block norms divided by the claimed
      bounds, in the norm of the noise.
    scales: noise scale of each block, a tree prefix of `contribution`.
  """
  contribution: PyTree
  ratios: PyTree
  scales: PyTree


def shift(game: Game) -> Shift:
  """Returns the canary's contribution; a ratio above 1 refutes the method."""
  method, order = game.method, game.method.noise_order

  @jax.jit
  def at_start(key: PRNGKey) -> tuple[Params, PyTree, tuple[PyTree, PyTree]]:
    params, certificate = method.constraint.constrain(game.model.init(key))
    return (params, method.bounder.l2_sensitivity(certificate),
            whitebox.contribution(method, params, certificate, game.canary))

  params, sensitivity, (total, ratios) = at_start(jax.random.key(0))
  structure = jax.tree.structure(sensitivity)
  bounds = jnp.stack(jax.tree.leaves(sensitivity))
  sizes, multiplier = tree.block_sizes(sensitivity, params), _multiplier(game)
  if order is None:
    scales = blocks.allocate(bounds, noise_multiplier=multiplier, sizes=sizes)
  else:
    scales = k_norm.allocate(bounds, order=order, noise_multiplier=multiplier,
                             sizes=sizes)
    # `contribution` divides l2 norms, so ratios in this norm replace its own.
    ratios = jax.tree.unflatten(structure, [
        _norms(_rows(part, ()), order) / bound for part, bound in zip(
            tree.blocks(sensitivity, total), bounds, strict=True)])
  return Shift(total, ratios, jax.tree.unflatten(structure, list(scales)))


def _multiplier(game: Game) -> float:
  """Returns the noise multiplier of the game's plan."""
  assert game.plan.noise_multiplier is not None
  return game.plan.noise_multiplier


def release(key: PRNGKey, game: Game) -> tuple[PyTree, PyTree]:
  """Trains with and without the canary and returns all noisy sums.

  The canary is the first record. Padding of batches points at row 0, so a
  method that ignores the mask reveals itself.

  Returns:
    The noisy sums (with, without) the canary, with leaves
    [num_runs, num_steps, ...].

  Raises:
    ValueError: if the loop added less noise than planned.
  """
  plan, runs = game.plan, game.num_runs
  result = loop.fit(
      jax.random.split(key, 2 * runs), plans=[plan] * 2 * runs,
      model=game.model, method=game.method,
      records=neighbouring_records(game.canary, plan.sampler.num_examples),
      rows=neighbouring_rows(plan.sampler.num_examples, runs),
      optimizer=optax.chain(whitebox.recorder(lambda u: u, plan.num_steps),
                            optax.sgd(0.0)))
  # In the chain come the privatizer, the pullback if any, then the recorder.
  after = 1 if game.method.pullback is None else 2
  sums = jax.tree.map(np.asarray, tree.scale(
      plan.sampler.expected_batch_size,
      result.state.optimizer[after][0].history))
  return (jax.tree.map(lambda leaf: leaf[:runs], sums),
          jax.tree.map(lambda leaf: leaf[runs:], sums))


def neighbouring_records(canary: Batch, num_examples: int) -> Batch:
  """Returns the canary and `num_examples` records that contribute zero."""
  missing = jnp.full((num_examples, *canary.x.shape[1:]), jnp.nan,
                     canary.x.dtype)
  return Batch(jnp.concatenate([canary.x, missing]),
               jnp.repeat(canary.y, num_examples + 1, 0))


def neighbouring_rows(num_examples: int, num_runs: int) -> Array:
  """Returns rows [2 num_runs, num_examples], int32, with and without record 0.

  The first `num_runs` rows start with record 0; the others start with the last
  record instead. The rest are the rows of `neighbouring_records` in order.
  """
  rows = jnp.tile(jnp.arange(num_examples, dtype=jnp.int32), (2 * num_runs, 1))
  return rows.at[num_runs:, 0].set(num_examples)


def _rows(part: PyTree, lead: tuple[int, ...]) -> np.ndarray:
  """Concatenates the leaves of a block into vectors [*lead, d]."""
  leaves = jax.tree.leaves(part)
  return np.concatenate([np.float64(x).reshape(*lead, -1) for x in leaves], -1)


def _norms(vectors: np.ndarray, order: float | None) -> np.ndarray:
  """Returns l_order norms over the last axis; None means l2."""
  return np.asarray(np.linalg.norm(vectors, 2 if order is None else order, -1))


def _blocks(game: Game, canary_shift: Shift,
            sums: PyTree) -> list[tuple[np.ndarray, np.ndarray, float]]:
  """Lists (noisy sums [runs, steps, d], canary [d], scale) of all blocks."""
  lead = game.num_runs, game.plan.num_steps
  return [(_rows(part, lead), _rows(total, ()), float(scale))
          for part, total, scale in zip(
              tree.blocks(canary_shift.scales, sums),
              tree.blocks(canary_shift.scales, canary_shift.contribution),
              jax.tree.leaves(canary_shift.scales), strict=True)]


def privacy_losses(game: Game, canary_shift: Shift, sums: PyTree) -> np.ndarray:
  """Returns log-likelihood ratios [num_runs], canary in against out.

  They are exact if the noise has the scales of `canary_shift`. A step adds
  ln(1 - q + q e^l), where l is the log-ratio of the step's two joint densities
  over all blocks.
  """
  order = game.method.noise_order
  log_ratios = np.zeros([game.num_runs, game.plan.num_steps])
  # Up to a constant, the noise b of a block has the density
  # exp(-|b|^2 / (2 s^2)), or exp(-||b|| / s) for K-norm noise.
  for values, canary, scale in _blocks(game, canary_shift, sums):
    if order is None:
      log_ratios += (values @ canary - canary @ canary / 2) / scale**2
    else:
      others = _norms(values - canary, order)
      log_ratios += (_norms(values, order) - others) / scale
  return np.sum(empirical.subsampled_log_ratio(
      log_ratios, sampling_prob=game.plan.poisson.sampling_prob), -1)


class GameResult(NamedTuple):
  """The result of a game: refutations, a bound and privacy losses.

  Attributes:
    findings: reasons that refute the method's claim; empty if there are none.
    epsilon_lower: lower bound on epsilon at delta 1e-5, by a threshold on
      privacy losses fixed on one half of the runs and counted on the other.
    inside: [num_runs] privacy losses of runs with the canary; None if an
      earlier check refuted the method.
    outside: [num_runs] privacy losses of runs without the canary, or None.
  """
  findings: list[str]
  epsilon_lower: float = 0.0
  inside: np.ndarray | None = None
  outside: np.ndarray | None = None


def findings(key: PRNGKey, game: Game,
             epsilons: Sequence[float] = (0.5, 1.5, 3.0)) -> list[str]:
  """Returns the reasons that refute a method's claim; see `play`."""
  return play(key, game, epsilons).findings


def play(key: PRNGKey, game: Game,
         epsilons: Sequence[float] = (0.5, 1.5, 3.0)) -> GameResult:
  """Checks a method's claim, cheapest checks first.

  A method fails if a record exceeds its sensitivity, if the noise has another
  size or is correlated, or if the measured privacy curve lies above the
  accountant's at `epsilons`. A sound method fails with probability below 1e-5.
  """
  canary_shift = shift(game)
  # `not <=` also refutes a NaN.
  reasons = [f'sensitivity exceeded: {float(ratio)}'
             for ratio in jax.tree.leaves(canary_shift.ratios)
             if not ratio <= _TOLERANCE]
  reasons += _toggle_findings(game)
  if reasons:
    return GameResult(reasons)
  present, absent = release(key, game)
  reasons = _noise_findings(game, canary_shift, absent)
  if reasons:
    return GameResult(reasons)
  return judge(game.plan, privacy_losses(game, canary_shift, present),
               privacy_losses(game, canary_shift, absent), epsilons)


def judge(plan: TrainingPlan, inside: np.ndarray, outside: np.ndarray,
          epsilons: Sequence[float] = (0.5, 1.5, 3.0)) -> GameResult:
  """Tests a plan by the privacy losses [r] of runs with and without canary."""
  lower, more = _count_findings(plan, inside, outside)
  return GameResult(_curve_findings(plan, inside, outside, epsilons) + more,
                    lower, inside, outside)


def _toggle_findings(game: Game) -> list[str]:
  """Checks how far the canary moves the sum of a batch with another record.

  The other record has half the canary's features and the opposite label, so
  its gradient points the other way.
  """
  method, canary = game.method, game.canary
  batch = Batch(jnp.concatenate([canary.x, 0.5 * canary.x]),
                jnp.concatenate([canary.y, 1 - canary.y]))

  @jax.jit
  def sums(mask: Array) -> tuple[PyTree, PyTree]:
    params, certificate = method.constraint.constrain(
        game.model.init(jax.random.key(0)))
    return (method.bounder.sums(params, batch, mask).total,
            method.bounder.l2_sensitivity(certificate))

  mask = jnp.ones([2], jnp.bool_)
  both, bounds = sums(mask)
  changes = tree.blocks(bounds, jax.tree.map(
      jnp.subtract, both, sums(mask.at[0].set(False))[0]))
  reasons = ['masked records are summed'] * bool(
      tree.global_norm(sums(~mask)[0]) > 0)
  for block, limit in zip(changes, jax.tree.leaves(bounds), strict=True):
    length = float(_norms(_rows(block, ()), method.noise_order))
    if not length <= limit * _TOLERANCE:
      reasons.append(f'one record moves a sum by {length}')
  return reasons


def _noise_findings(game: Game, canary_shift: Shift, sums: PyTree) -> list[str]:
  """Tests size and independence of the noise in runs without the canary."""
  order = game.method.noise_order
  units = [values / scale
           for values, _, scale in _blocks(game, canary_shift, sums)]
  reasons = [f'noise of block {number} has another size'
             for number, unit in enumerate(units)
             if _size_p_value(unit, order) < _P_VALUE]
  first = units[0][:, :, 0]
  pairs = {'steps': (first[:, 1:], first[:, :-1]),
           'runs': (first[1:], first[:-1])}
  for number, unit in enumerate(units):
    if number or unit.shape[-1] > 1:
      pairs[f'blocks 0 and {number}'] = first, unit[:, :, -1]
  return reasons + [f'noise is correlated between {what}'
                    for what, pair in pairs.items()
                    if whitebox.correlation_p_value(*pair) < _P_VALUE]


def _size_p_value(unit: np.ndarray, order: float | None) -> float:
  """Returns a two-sided p-value that the noise has the declared scale.

  It uses the energy of Gaussian noise, or the sum of norms of K-norm noise.
  """
  if order is None:
    return whitebox.variance_p_value(unit, stddev=1.0)
  # If b in R^d has a density proportional to exp(-||b||_p), then ||b||_p has
  # the distribution Gamma(d).
  total = float(_norms(unit, order).sum())
  return float(2 * min(stats.gamma.cdf(total, unit.size),
                       stats.gamma.sf(total, unit.size)))


@functools.lru_cache(maxsize=256)
def _claimed_delta(plan: TrainingPlan, epsilon: float) -> float:
  """Returns the accountant's delta of a plan at `epsilon`, cached."""
  return accounting.delta_for(plan.event, target_epsilon=epsilon,
                              adjacency=plan.adjacency)


def _curve_findings(plan: TrainingPlan, inside: np.ndarray,
                    outside: np.ndarray,
                    epsilons: Sequence[float]) -> list[str]:
  """Lists where the measured privacy curve exceeds the accountant's."""
  reasons = []
  for epsilon in epsilons:
    claimed = _claimed_delta(plan, epsilon)
    for what, losses in (('remove', inside), ('add', -outside)):
      estimate = whitebox.estimate_delta(losses, epsilon=epsilon)
      if not (estimate.value <=
              claimed + _ERRORS * estimate.standard_error + _GRID):
        reasons.append(f'{what}: delta({epsilon}) is {estimate.value}, claimed '
                       f'{claimed}')
  return reasons


def _count_findings(plan: TrainingPlan, inside: np.ndarray,
                    outside: np.ndarray) -> tuple[float, list[str]]:
  """Returns `GameResult.epsilon_lower`, and a reason if it refutes."""
  half, delta = inside.size // 2, 1e-5
  # About 2 % of false alarms: rare, but still counted often enough.
  threshold = np.quantile(outside[:half], 0.98)
  lower = audit_bounds.epsilon_lower_bound(
      true_positives=int(np.sum(inside[half:] > threshold)), num_in=half,
      false_positives=int(np.sum(outside[half:] > threshold)),
      num_out=half, delta=delta, significance=SIGNIFICANCE)
  claimed = plan.epsilon(delta)
  return lower, [f'epsilon is at least {lower}, claimed {claimed}'] * (
      lower > claimed)


def fraction_spent(game: Game) -> float:
  """Returns the fraction of the noise budget that the canary uses.

  1 means a tight audit. Ratios of block norm to noise scale are joined as they
  compose (root of summed squares for Gaussian noise, sum for K-norm noise) and
  multiplied by the plan's noise multiplier.
  """
  contribution, _, scales = shift(game)
  order = game.method.noise_order
  shifts = np.asarray([
      _norms(_rows(total, ()), order) / float(scale)
      for total, scale in zip(tree.blocks(scales, contribution),
                              jax.tree.leaves(scales), strict=True)])
  used = math.sqrt(np.sum(shifts**2)) if order is None else shifts.sum()
  return float(used * _multiplier(game))
