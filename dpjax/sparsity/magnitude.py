"""Iterative magnitude pruning: thesis 000, sections 1.2.1 and 1.3 (MIA-06).

Functions of one network, under `jax.jit`; packs of networks by `jax.vmap`,
`Rounds.init` and `Rounds.update` included.
"""

import dataclasses
import fractions
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.sparsity import masks
from dpjax.typing import Array, Params, PRNGKey, PyTree

Scope = Literal['global', 'layer']
SCOPES = ('global', 'layer')
RESTARTS = ('continue', 'rewind')
_MOST_PARTS = 10_000


def prunable(params: Params) -> PyTree:
  """True for leaves named 'kernel': no biases, no normalisations.

  Of a dense ResNet-20 270896 of 272474 parameters. Leaves are Python booleans,
  so the tree is static.
  """
  def named(path, leaf):
    del leaf
    return bool(path) and getattr(path[-1], 'key', None) == 'kernel'

  return jax.tree_util.tree_map_with_path(named, params)


def prune(params: Params, mask: PyTree, *, fraction: float,
          scope: Scope = 'global', selected: PyTree | None = None) -> PyTree:
  """Masks a fraction of what remains, of smallest magnitude.

  Of m remaining selected parameters exactly floor(fraction m) are removed, in
  whole numbers: `fraction` is read as the nearest ratio of integers up to
  10^4, so a fifth of 10 is 2. Equal magnitudes go by position, in the order of
  leaves and then of rows; NaN goes last.

  Args:
    params: of one network; what is masked already is not looked at.
    mask: which of them remain.
    fraction: of those to remove, in [0, 1).
    scope: 'global' ranks all layers together, 'layer' each leaf by itself,
      with a floor of its own. The thesis does not say which (M-E08).
    selected: tree of Python booleans, of the structure of `params`;
      `prunable(params)` when not given.

  Returns:
    The new mask, nested in the old one.

  Raises:
    ValueError: the fraction, scope or mask is none.

  Examples:
    >>> from dpjax.sparsity import magnitude, masks
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
  """Masks as many as `prune`, uniformly at random: the control of MIA-12 (c).

  Scores are words of 32 bits; of two equal ones the first goes.

  Args:
    key: used for nothing else.
    params: shapes only.
    mask: which of them remain.
    fraction: of those to remove, in [0, 1).
    scope: as in `prune`.
    selected: as in `prune`.

  Raises:
    ValueError: the fraction, scope or mask is none.
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
  """The mask without the lowest scores of the selected leaves."""
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
  """Which remain [n] after the lowest are removed; sorting is stable."""
  order = jnp.lexsort((scores, ~remaining))
  removed = _floor(jnp.sum(remaining, dtype=jnp.int32), ratio)
  kept = jnp.arange(scores.size, dtype=jnp.int32) >= removed
  return remaining & jnp.zeros_like(remaining).at[order].set(
      kept, unique_indices=True)


def _floor(count: int | Array, ratio: fractions.Fraction) -> int | Array:
  """floor(ratio count) in int32, where the product itself may overflow."""
  whole, rest = count // ratio.denominator, count % ratio.denominator
  return whole * ratio.numerator + rest * ratio.numerator // ratio.denominator


def _ratio(fraction: float) -> fractions.Fraction:
  if not 0 <= fraction < 1:
    raise ValueError(f'fraction must lie in [0, 1), got {fraction}')
  return fractions.Fraction(fraction).limit_denominator(_MOST_PARTS)


def remaining(num_prunable: int, fraction: float, num_rounds: int) -> int:
  """How many of them `prune` leaves after so many rounds, exactly.

  Floors remove a little less than (1 - fraction)^num_rounds says: fewer than
  1 / fraction parameters in all of one ranking.
  """
  ratio = _ratio(fraction)
  for _ in range(num_rounds):
    num_prunable -= _floor(num_prunable, ratio)
  return num_prunable


def nonzero_fraction(num_prunable: int, num_params: int, fraction: float,
                     num_rounds: int) -> float:
  """(others + prunable (1 - fraction)^rounds) / all, without floors (MIA-06).

  Table 1.1 of thesis 000 prints (1 - fraction)^rounds, without the others:
  for ResNet-20 `nonzero_fraction(270896, 272474, 0.2, 24)` is 1.05 % and not
  0.47 % (M-E04).
  """
  kept = (1 - fraction)**num_rounds
  return (num_params - num_prunable + num_prunable * kept) / num_params


def continued(trained: Params, initial: Params, mask: PyTree) -> Params:
  """Training goes on from the trained parameters, those removed at 0.

  The rule of thesis 000, section 1.3: `trained` is the checkpoint of best
  validation accuracy of the last round; "rewound" there means to that epoch.
  """
  del initial
  return masks.apply(trained, mask)


def rewound(trained: Params, initial: Params, mask: PyTree) -> Params:
  """All parameters go back to where they were, those removed to 0.

  `initial` is the initialisation (Frankle and Carbin 2019) or a checkpoint of
  early training (Frankle et al. 2020). Not what the thesis does.
  """
  del trained
  return masks.apply(initial, mask)


class PruneState(NamedTuple):
  """Between two rounds; arrays only, so checkpoints can hold it.

  Attributes:
    round: prunings done, int32.
    mask: what remains.
    initial: parameters to rewind to.
  """
  round: Array
  mask: PyTree
  initial: Params


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rounds:
  """A schedule of prunings: train, `update`, train again from what it returns.

  Training starts anew every time: step sizes from the first one, momentum from
  0 (the thesis does not say; MIA-06).

  Attributes:
    fraction: of the remaining prunable parameters, removed each time.
    num_rounds: prunings; training happens once more.
    scope: of the ranking.
    restart: 'continue' from the trained parameters as the thesis does, or
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
    """Nothing is pruned yet.

    Args:
      initial: what training starts from, or the early checkpoint to rewind to.
    """
    return PruneState(jnp.int32(0), masks.ones_like(initial), initial)

  def update(self, state: PruneState,
             trained: Params) -> tuple[PruneState, Params]:
    """Prunes once.

    Args:
      state: before the pruning.
      trained: the best parameters of the round, by validation; what is masked
        in them is not looked at.

    Returns:
      The state after it, and the parameters that training starts from.
    """
    mask = prune(trained, state.mask, fraction=self.fraction, scope=self.scope)
    start = rewound if self.restart == 'rewind' else continued
    return (PruneState(state.round + 1, mask, state.initial),
            start(trained, state.initial, mask))
