"""A training method through the loop that users run, with a canary and without.

Two neighbouring data sets: records that count as zero (they are NaN), with and
without one canary among them. At learning rate zero what is released is one
noisy sum after another at parameters that are known, so the privacy loss of
every run is known exactly, and its curve is held against the accountant's.
A canary whose contribution meets the claimed sensitivity in every block makes
the comparison tight; any other is still a valid test.
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
from dpjax.typing import Array, Batch, PRNGKey, PyTree

SIGNIFICANCE = 1e-6
"""Of the bound on epsilon of a game."""

_TOLERANCE = 1 + 1e-5
_P_VALUE = 1e-7
_ERRORS = 5.5
_GRID = 1e-4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Game:
  """What is played.

  Attributes:
    model: whose initial parameters the canary meets; the same for every key.
    method: under audit; without adaptive radii.
    plan: of each run.
    canary: a batch of one.
    num_runs: on each of the two data sets.
  """
  model: Model
  method: Method
  plan: TrainingPlan
  canary: Batch
  num_runs: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossGame:
  """Runs whose privacy losses are known in another way than `privacy_losses`.

  Attributes:
    name: of the method.
    plan: of each run.
    losses: key -> ([r], [r]) of runs with the canary and without.
  """
  name: str
  plan: TrainingPlan
  losses: Callable[[PRNGKey], tuple[np.ndarray, np.ndarray]]


class Shift(NamedTuple):
  """What the canary moves a release by, at the parameters of the start.

  Attributes:
    contribution: of the canary to the sums.
    ratios: tree of its block norms over their claimed bounds, in the norm of
      the noise.
    scales: tree prefix: noise scale of each block.
  """
  contribution: PyTree
  ratios: PyTree
  scales: PyTree


def shift(game: Game) -> Shift:
  """The canary beside the bounds; a ratio above 1 refutes the method."""
  method, order = game.method, game.method.noise_order

  @jax.jit
  def at_start(key):
    params, certificate = method.constraint.constrain(game.model.init(key))
    return (params, method.bounder.l2_sensitivity(certificate),
            whitebox.contribution(method, params, certificate, game.canary))

  params, sensitivity, (total, ratios) = at_start(jax.random.key(0))
  structure = jax.tree.structure(sensitivity)
  bounds = jnp.stack(jax.tree.leaves(sensitivity))
  options = dict(noise_multiplier=game.plan.noise_multiplier,
                 sizes=tree.block_sizes(sensitivity, params))
  if order is None:
    scales = blocks.allocate(bounds, **options)
  else:
    scales = k_norm.allocate(bounds, order=order, **options)
    norms = [_norms(_rows(part, ()), order)
             for part in structure.flatten_up_to(total)]
    ratios = structure.unflatten(
        [norm / bound for norm, bound in zip(norms, bounds, strict=True)])
  return Shift(total, ratios, structure.unflatten(list(scales)))


def release(key: PRNGKey, game: Game) -> tuple[PyTree, PyTree]:
  """What runs release with the canary and without it.

  The canary is the first record: padding of batches points at it, so that a
  mask that is not heeded shows.

  Args:
    key: fresh for this call.
    game: see `Game`.

  Returns:
    (with, without): noisy sums, leaves [num_runs, num_steps, ...].

  Raises:
    ValueError: by the loop, if it noised less than planned.
  """
  plan, runs = game.plan, game.num_runs
  result = loop.fit(
      jax.random.split(key, 2 * runs), plans=[plan] * 2 * runs,
      model=game.model, method=game.method,
      records=neighbouring_records(game.canary, plan.sampler.num_examples),
      rows=neighbouring_rows(plan.sampler.num_examples, runs),
      optimizer=optax.chain(whitebox.recorder(lambda u: u, plan.num_steps),
                            optax.sgd(0.0)))
  after = 1 if game.method.pullback is None else 2
  sums = jax.tree.map(np.asarray, tree.scale(
      plan.sampler.expected_batch_size,
      result.state.optimizer[after][0].history))
  return tuple(jax.tree.map(lambda leaf: leaf[part], sums)
               for part in (slice(runs), slice(runs, None)))


def neighbouring_records(canary: Batch, num_examples: int) -> Batch:
  """Returns the canary, and `num_examples` records that count as zero."""
  missing = jnp.full((num_examples, *canary.x.shape[1:]), jnp.nan,
                     canary.x.dtype)
  return Batch(jnp.concatenate([canary.x, missing]),
               jnp.repeat(canary.y, num_examples + 1, 0))


def neighbouring_rows(num_examples: int, num_runs: int) -> Array:
  """Returns rows [2 num_runs, num_examples], int32, with and without record 0.

  The first `num_runs` have it in front, the others the last record in its
  place; all other records are those of `neighbouring_records` in order.
  """
  numbers = jnp.arange(num_examples, dtype=jnp.int32)
  return jnp.tile(numbers[None], (2 * num_runs, 1)).at[num_runs:, 0].set(
      num_examples)


def _rows(part: PyTree, lead: tuple[int, ...]) -> np.ndarray:
  """All leaves of a block as one vector for each index of `lead`."""
  return np.concatenate([np.float64(leaf).reshape(*lead, -1)
                         for leaf in jax.tree.leaves(part)], -1)


def _norms(vectors: np.ndarray, order: float | None) -> np.ndarray:
  return np.linalg.norm(vectors, 2 if order is None else order, -1)


def _blocks(game: Game, moved: Shift, sums: PyTree):
  """[(noisy vectors [runs, steps, d], canary [d], scale)] of every block."""
  structure = jax.tree.structure(moved.scales)
  lead = game.num_runs, game.plan.num_steps
  return [(_rows(part, lead), _rows(total, ()), float(scale))
          for part, total, scale in zip(
              structure.flatten_up_to(sums),
              structure.flatten_up_to(moved.contribution),
              jax.tree.leaves(moved.scales), strict=True)]


def privacy_losses(game: Game, moved: Shift, sums: PyTree) -> np.ndarray:
  """[num_runs] log-likelihood ratios of what was released, canary in / out.

  Exact where the noise is what `moved` says: a step adds ln(1 - q + q e^l)
  with l the ratio of the two densities of all blocks of the step.
  """
  order, found = game.method.noise_order, 0.0
  for values, canary, scale in _blocks(game, moved, sums):
    if order is None:
      found += (values @ canary - canary @ canary / 2) / scale**2
    else:
      found += (_norms(values, order) - _norms(values - canary, order)) / scale
  return empirical.subsampled_log_ratio(
      found, sampling_prob=game.plan.sampler.sampling_prob).sum(-1)


class Played(NamedTuple):
  """What the runs of a game say.

  Attributes:
    findings: what refutes the claim of the method; empty if nothing does.
    epsilon_lower: of a threshold on privacy losses that was fixed on one half
      of the runs and counted on the other, at delta 1e-5.
    inside: [num_runs] privacy losses of runs with the canary; None if the
      method was refuted before there was need of them.
    outside: [num_runs] of runs without it.
  """
  findings: list[str]
  epsilon_lower: float = 0.0
  inside: np.ndarray | None = None
  outside: np.ndarray | None = None


def findings(key: PRNGKey, game: Game,
             epsilons: Sequence[float] = (0.5, 1.5, 3.0)) -> list[str]:
  """What refutes the claim of a method; see `play`."""
  return play(key, game, epsilons).findings


def play(key: PRNGKey, game: Game,
         epsilons: Sequence[float] = (0.5, 1.5, 3.0)) -> Played:
  """Looks for what refutes the claim of a method, cheapest checks first.

  Nothing is found unless a sensitivity is exceeded, noise is not what it
  should be, or the measured privacy curve is above the accountant's. A sound
  method fails with probability below 1e-5.

  Args:
    key: for the runs.
    game: see `Game`.
    epsilons: where curves are compared.
  """
  moved = shift(game)
  found = [f'sensitivity exceeded: {float(ratio)}'
           for ratio in jax.tree.leaves(moved.ratios)
           if not ratio <= _TOLERANCE]
  found += _toggle_findings(game)
  if found:
    return Played(found)
  present, absent = release(key, game)
  found = _noise_findings(game, moved, absent)
  if found:
    return Played(found)
  return judge(game.plan, privacy_losses(game, moved, present),
               privacy_losses(game, moved, absent), epsilons)


def judge(plan: TrainingPlan, inside: np.ndarray, outside: np.ndarray,
          epsilons: Sequence[float] = (0.5, 1.5, 3.0)) -> Played:
  """What privacy losses [r] of runs with a canary and without say of a plan."""
  lower, more = _count_findings(plan, inside, outside)
  return Played(_curve_findings(plan, inside, outside, epsilons) + more,
                lower, inside, outside)


def _toggle_findings(game: Game) -> list[str]:
  """Adding the canary to a batch of half of it, which pulls the other way."""
  method, canary = game.method, game.canary
  batch = Batch(jnp.concatenate([canary.x, 0.5 * canary.x]),
                jnp.concatenate([canary.y, 1 - canary.y]))

  @jax.jit
  def sums(mask: Array):
    params, certificate = method.constraint.constrain(
        game.model.init(jax.random.key(0)))
    return (method.bounder.sums(params, batch, mask).total,
            method.bounder.l2_sensitivity(certificate))

  mask = jnp.ones([2], jnp.bool_)
  both, bounds = sums(mask)
  changes = jax.tree.structure(bounds).flatten_up_to(jax.tree.map(
      jnp.subtract, both, sums(mask.at[0].set(False))[0]))
  found = ['masked records are summed'] * bool(
      tree.global_norm(sums(~mask)[0]) > 0)
  for block, limit in zip(changes, jax.tree.leaves(bounds), strict=True):
    length = float(_norms(_rows(block, ()), method.noise_order))
    if not length <= limit * _TOLERANCE:
      found.append(f'one record moves a sum by {length}')
  return found


def _noise_findings(game: Game, moved: Shift, sums: PyTree) -> list[str]:
  """Is what is released without the canary the claimed noise?"""
  order = game.method.noise_order
  units = [values / scale for values, _, scale in _blocks(game, moved, sums)]
  found = [f'noise of block {number} has another size'
           for number, unit in enumerate(units)
           if _size_p_value(unit, order) < _P_VALUE]
  first = units[0][:, :, 0]
  pairs = {'steps': (first[:, 1:], first[:, :-1]),
           'runs': (first[1:], first[:-1])}
  for number, unit in enumerate(units):
    if number or unit.shape[-1] > 1:
      pairs[f'blocks 0 and {number}'] = first, unit[:, :, -1]
  return found + [f'noise is correlated between {what}'
                  for what, pair in pairs.items()
                  if whitebox.correlation_p_value(*pair) < _P_VALUE]


def _size_p_value(unit: np.ndarray, order: float | None) -> float:
  """Two-sided, from energies of Gaussian noise, norms of K-norm noise."""
  if order is None:
    return whitebox.variance_p_value(unit, stddev=1.0)
  # ||b||_p of density exp(-||b||_p) has the law Gamma(d).
  total = float(_norms(unit, order).sum())
  return float(2 * min(stats.gamma.cdf(total, unit.size),
                       stats.gamma.sf(total, unit.size)))


@functools.lru_cache(maxsize=256)
def _claimed_delta(plan: TrainingPlan, epsilon: float) -> float:
  return accounting.delta_for(plan.event, target_epsilon=epsilon,
                              adjacency=plan.adjacency)


def _curve_findings(plan: TrainingPlan, inside: np.ndarray,
                    outside: np.ndarray,
                    epsilons: Sequence[float]) -> list[str]:
  """Does the measured privacy curve exceed the accountant's?"""
  found = []
  for epsilon in epsilons:
    most = _claimed_delta(plan, epsilon)
    for what, losses in (('remove', inside), ('add', -outside)):
      estimate = whitebox.estimate_delta(losses, epsilon=epsilon)
      if not (estimate.value <=
              most + _ERRORS * estimate.standard_error + _GRID):
        found.append(f'{what}: delta({epsilon}) is {estimate.value}, claimed '
                     f'{most}')
  return found


def _count_findings(plan: TrainingPlan, inside: np.ndarray,
                    outside: np.ndarray) -> tuple[float, list[str]]:
  """A threshold test fixed on one half of the runs, counted on the other."""
  half, delta = inside.size // 2, 1e-5
  threshold = np.quantile(outside[:half], 0.98)
  lower = audit_bounds.epsilon_lower_bound(
      true_positives=int(np.sum(inside[half:] > threshold)), num_in=half,
      false_positives=int(np.sum(outside[half:] > threshold)),
      num_out=half, delta=delta, significance=SIGNIFICANCE)
  claimed = plan.epsilon(delta)
  return lower, [f'epsilon is at least {lower}, claimed {claimed}'] * (
      lower > claimed)


def share_spent(game: Game) -> float:
  """How much of the noise's budget the canary uses; 1 is a tight audit.

  The canary's own multiplier over the plan's, in the measure that composes:
  root of summed squares for Gaussian noise, sum for K-norm noise.
  """
  moved, order = shift(game), game.method.noise_order
  structure = jax.tree.structure(moved.scales)
  shifts = np.asarray([
      _norms(_rows(total, ()), order) / float(scale)
      for total, scale in zip(structure.flatten_up_to(moved.contribution),
                              jax.tree.leaves(moved.scales), strict=True)])
  used = math.sqrt(np.sum(shifts**2)) if order is None else shifts.sum()
  return float(used * game.plan.noise_multiplier)
