"""Iterative magnitude pruning, Lalanne (2023, sections 1.2.1 and 1.3). MIA-06.

All functions act on one network and work under `jax.jit`. For packs of
networks use `jax.vmap`, also for `Rounds.init` and `Rounds.update`.
"""

import dataclasses
import fractions
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.typing import Array, Params, PRNGKey, PyTree
from experiments.methods.sparsity import masks

Scope = Literal['global', 'layer']
SCOPES = ('global', 'layer')
RESTARTS = ('continue', 'rewind')
_MOST_PARTS = 10_000


def prunable(params: Params) -> PyTree:
  """Returns a tree that is True for leaves named 'kernel'.

  Biases and normalisations are not pruned. A dense ResNet-20 has 270,896
  prunable parameters of 272,474. Leaves are Python booleans, so the tree is
  static.
  """
  def named(path, leaf):
    del leaf
    return bool(path) and getattr(path[-1], 'key', None) == 'kernel'

  return jax.tree_util.tree_map_with_path(named, params)


def prune(params: Params, mask: PyTree, *, fraction: float,
          scope: Scope = 'global', selected: PyTree | None = None) -> PyTree:
  """Masks a fraction of the remaining parameters, those of least magnitude.

  Of m remaining selected parameters, exactly floor(fraction m) are removed. The
  floor is computed in integers: `fraction` is read as the nearest ratio with a
  denominator up to 10^4, so a fifth of 10 is 2. Equal magnitudes are removed
  in the order of leaves and then of rows; NaN is removed last.

  Args:
    params: parameters of one network; masked values are not used.
    mask: True for parameters that remain.
    fraction: fraction of the remaining parameters to remove, in [0, 1).
    scope: 'global' ranks all layers together; 'layer' ranks each leaf by
      itself, with its own floor. Lalanne (2023, section 1.3) does not say
      which is meant (item M-E08).
    selected: tree of Python booleans with the structure of `params`; default
      `prunable(params)`.

  Returns:
    The new mask; it keeps a subset of the old one.

  Raises:
    ValueError: the fraction, the scope or the mask is not valid.

  Examples:
    >>> from experiments.methods.sparsity import magnitude, masks
    >>> params = {'dense': {'kernel': jnp.array([[0.1, -2.0], [3.0, -0.2]])}}
    >>> mask = magnitude.prune(params, masks.ones_like(params), fraction=0.5)
    >>> mask['dense']['kernel']
    Array([[False,  True],
           [ True, False]], dtype=bool)
  """
  scores = jax.tree.map(jnp.abs, params)
  return _without_lowest(scores, mask, fraction, scope,
                         prunable(params) if selected is None else selected)


def random_prune(key: PRNGKey, params: Params, mask: PyTree, *,
                 fraction: float, scope: Scope = 'global',
                 selected: PyTree | None = None) -> PyTree:
  """Masks as many parameters as `prune`, uniformly at random.

  This is a control for magnitude pruning, item MIA-12 (c). Parameters get
  random scores of 32 bits; of two equal scores the first is removed.

  Args:
    key: random key, used for nothing else.
    params: only shapes are used.
    mask: True for parameters that remain.
    fraction: fraction of the remaining parameters to remove, in [0, 1).
    scope: as in `prune`.
    selected: as in `prune`.

  Raises:
    ValueError: the fraction, the scope or the mask is not valid.
  """
  leaves, structure = jax.tree.flatten(params)
  keys = jax.random.split(key, len(leaves))
  scores = structure.unflatten([
      jax.random.bits(key, leaf.shape)
      for key, leaf in zip(keys, leaves, strict=True)])
  return _without_lowest(scores, mask, fraction, scope,
                         prunable(params) if selected is None else selected)


def _without_lowest(scores: PyTree, mask: PyTree, fraction: float,
                    scope: Scope, selected: PyTree) -> PyTree:
  """Returns the mask without the lowest scores of the selected leaves."""
  ratio = _ratio(fraction)
  errors.check_choice('scope', scope, SCOPES)
  masks.check(scores, mask)
  leaves, structure = jax.tree.flatten(mask)
  chosen = [i for i, is_chosen in enumerate(structure.flatten_up_to(selected))
            if is_chosen]
  flat = jax.tree.leaves(scores)
  groups = [chosen] if scope == 'global' else [[i] for i in chosen]
  for group in filter(None, groups):
    kept = _kept(jnp.concatenate([flat[i].ravel() for i in group]),
                 jnp.concatenate([leaves[i].ravel() for i in group]), ratio)
    start = 0
    for i in group:
      size = leaves[i].size
      leaves[i] = kept[start:start + size].reshape(leaves[i].shape)
      start += size
  return structure.unflatten(leaves)


def _kept(scores: Array, remaining: Array, ratio: fractions.Fraction) -> Array:
  """Returns a mask [n] of the parameters that stay after the lowest go."""
  # Remaining parameters come first, by score; the sort is stable.
  order = jnp.lexsort((scores, ~remaining))
  removed = _floor(jnp.sum(remaining, dtype=jnp.int32), ratio)
  kept = jnp.arange(scores.size, dtype=jnp.int32) >= removed
  return remaining & jnp.zeros_like(remaining).at[order].set(
      kept, unique_indices=True)


def _floor(count: int | Array, ratio: fractions.Fraction) -> int | Array:
  """Returns floor(ratio count) in int32, even if the product overflows."""
  # count = whole * denominator + rest, and whole * numerator is an integer.
  whole, rest = count // ratio.denominator, count % ratio.denominator
  return whole * ratio.numerator + rest * ratio.numerator // ratio.denominator


def _ratio(fraction: float) -> fractions.Fraction:
  """Returns the nearest ratio of integers with denominator up to 10^4."""
  if not 0 <= fraction < 1:
    raise ValueError(f'fraction must lie in [0, 1), got {fraction}')
  return fractions.Fraction(fraction).limit_denominator(_MOST_PARTS)


def remaining(num_prunable: int, fraction: float, num_rounds: int) -> int:
  """Returns exactly how many parameters `prune` leaves after `num_rounds`.

  Because of the floors, a few more remain than (1 - fraction)^num_rounds of
  them: fewer than 1 / fraction parameters in one ranking.
  """
  ratio = _ratio(fraction)
  for _ in range(num_rounds):
    num_prunable -= _floor(num_prunable, ratio)
  return num_prunable


def nonzero_fraction(num_prunable: int, num_params: int, fraction: float,
                     num_rounds: int) -> float:
  """Returns (others + prunable (1 - fraction)^rounds) / all, without floors.

  Lalanne (2023, Table 1.1) gives (1 - fraction)^rounds, without the parameters
  that are never pruned: for ResNet-20
  `nonzero_fraction(270896, 272474, 0.2, 24)` is 1.05 %, not 0.47 % (erratum
  M-E04). Item MIA-06.
  """
  kept = (1 - fraction)**num_rounds
  return (num_params - num_prunable + num_prunable * kept) / num_params


def continued(trained: Params, initial: Params, mask: PyTree) -> Params:
  """Returns the trained parameters with removed ones at 0, to continue from.

  This is the rule of Lalanne (2023, section 1.3), where "rewound" means back
  to the epoch of best validation accuracy of the last round: `trained` is the
  checkpoint of that epoch.
  """
  del initial
  return masks.apply(trained, mask)


def rewound(trained: Params, initial: Params, mask: PyTree) -> Params:
  """Returns the initial parameters with removed ones at 0, to restart from.

  `initial` is the initialisation (Frankle and Carbin 2019) or a checkpoint of
  early training (Frankle et al. 2020). Lalanne (2023) does not do this.
  """
  del trained
  return masks.apply(initial, mask)


class PruneState(NamedTuple):
  """The state between two rounds; arrays only, so checkpoints can hold it.

  Attributes:
    round: number of prunings done, int32.
    mask: True for parameters that remain.
    initial: parameters to rewind to.
  """
  round: Array
  mask: PyTree
  initial: Params


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rounds:
  """A pruning schedule: train, `update`, train again from its result.

  Each training restarts its step-size schedule, with momentum 0. Lalanne (2023,
  section 1.3) does not say so; item MIA-06.

  Attributes:
    fraction: fraction of the remaining prunable parameters removed each time.
    num_rounds: number of prunings; the number of trainings is one more.
    scope: scope of the ranking, as in `prune`.
    restart: 'continue' from the trained parameters, as in Lalanne (2023), or
      'rewind' to the initial ones.
  """
  fraction: float = 0.2
  num_rounds: int = 24
  scope: Scope = 'global'
  restart: Literal['continue', 'rewind'] = 'continue'

  def __post_init__(self):
    _ratio(self.fraction)
    errors.check_at_least('num_rounds', self.num_rounds, 0)
    errors.check_choice('scope', self.scope, SCOPES)
    errors.check_choice('restart', self.restart, RESTARTS)

  def init(self, initial: Params) -> PruneState:
    """Returns the state before the first pruning.

    Args:
      initial: initial parameters, or the early checkpoint to rewind to.
    """
    return PruneState(jnp.int32(0), masks.ones_like(initial), initial)

  def update(self, state: PruneState,
             trained: Params) -> tuple[PruneState, Params]:
    """Prunes once and returns where the next training starts.

    Args:
      state: state before the pruning.
      trained: parameters of the round with the best validation accuracy;
        masked values are not used.

    Returns:
      The new state, and the parameters that the next training starts from.
    """
    mask = prune(trained, state.mask, fraction=self.fraction, scope=self.scope)
    start = rewound if self.restart == 'rewind' else continued
    return (PruneState(state.round + 1, mask, state.initial),
            start(trained, state.initial, mask))
