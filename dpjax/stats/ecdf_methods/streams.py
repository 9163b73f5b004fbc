"""Releases the prefix sums of a stream as it goes: continual observation.

At every time the sum of all items so far is released with noise; changing one
item changes all later sums by at most 1. Noise is a function of the position in
the stream and a key, so a stream that was stopped and resumed continues exactly
as without the stop. It does not depend on the items, and items may depend on
earlier releases. Source: Barczewski (2025, Theorem 6.3.2; items EC-06, EC-07,
corrections C3, C26), and later work: Honaker 2015 (EC-43), Henzinger, Upadhyay
and Upadhyay 2023 (EC-47), Andersson et al. 2025 (EC-42).

A stream object is immutable; its state is a separate value that holds exact
sums and is as private as the items.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import draws
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import mechanisms
from dpjax.stats import precision
from dpjax.stats.ecdf_methods import dyadic
from dpjax.stats.ecdf_methods import dyadic_calibration
from dpjax.stats.ecdf_methods import stream_noise
from dpjax.stats.ecdf_methods import toeplitz
from dpjax.stats.ecdf_methods.stream_noise import StreamParameters
from dpjax.stats.ecdf_methods.stream_noise import StreamState
from dpjax.stats.ecdf_methods.stream_noise import Structure
from dpjax.typing import Array, PRNGKey

_MOST_PARTS = 64


@functools.lru_cache(64)
def best_base(horizon: int, pure: bool) -> int:
  """Returns the base for which `signed` sums have the least mean variance."""
  def cost(base: int) -> float:
    levels = stream_noise.num_levels(horizon, base)
    candidate = stream_noise.Structure('signed', horizon, pure, base, levels, 0)
    return float(np.mean(stream_noise.signed_nodes(candidate))) * levels**(
        2 if pure else 1)
  return min(range(2, min(_MOST_PARTS, horizon) + 1), key=cost)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrefixStream(mechanisms.Budgeted):
  """Releases the sum of all items so far, after each of them.

  Guarantee: epsilon-DP or rho-zCDP of all released sums together, if an item
  comes instead of none (0), or if one item changes: sums change by at most 1.
  The number of items at each time is public.

  Kinds. `dyadic`: noise of the nodes that contain the time, as in Barczewski
  (2025). `signed`: noise of the fewest nodes of `base` parts that add up to the
  time, where nodes may also be subtracted. `bottom_up`: node estimates from all
  nodes below them; its state has a number for each level. `square_root`: for
  rho, noise of nearly constant variance; its state has its N draws, and it is
  the most accurate. The other kinds keep no noise and draw it again.

  Attributes:
    horizon: N, the largest number of items.
    kind: one of `KINDS`; None for the most accurate.
    base: parts of a node of `signed`; None for the best.
    accounting: see `dyadic`: 'tight', or 'paper' for the published noise.
    item_bits: items are rounded to multiples of 2^-item_bits, the unit of the
      discrete Laplace noise; 0 for items that are 0 or 1.
  """
  adjacency: Adjacency = dataclasses.field(
      default=Adjacency.ADD_OR_REMOVE_ONE, init=False)
  horizon: int
  kind: str | None = None
  base: int | None = None
  accounting: str = 'tight'
  item_bits: int = 16

  # Read by the auditor.
  double_precision = True

  def __post_init__(self) -> None:
    errors.check_at_least('horizon', self.horizon, 2)
    mechanisms.check_budget(self.epsilon, self.rho)
    if self.kind is not None:
      errors.check_choice('kind', self.kind, stream_noise.KINDS)
    if self.kind == 'square_root' and self.pure:
      raise ValueError("kind='square_root' is for a budget of rho, not epsilon")
    errors.check_choice('accounting', self.accounting, dyadic.ACCOUNTING)
    if self.accounting == 'paper' and self.kind != 'dyadic':
      raise ValueError("accounting='paper' is for kind='dyadic', got "
                       f'kind={self.kind!r}')
    if self.base is not None:
      errors.check_at_least('base', self.base, 2)
      if self.structure.kind != 'signed':
        raise ValueError("base is for kind='signed', got "
                         f'kind={self.structure.kind!r}')
    if not 0 <= self.item_bits <= stream_noise.MOST_ITEM_BITS:
      raise ValueError('item_bits must lie between 0 and '
                       f'{stream_noise.MOST_ITEM_BITS}, got {self.item_bits}')

  # Cached in the instance's __dict__, which a frozen dataclass still allows.
  @functools.cached_property
  def structure(self) -> Structure:
    """Static parameters, for which the sampler is compiled."""
    kind = self.kind or ('signed' if self.pure else 'square_root')
    base, levels = 2, stream_noise.num_levels(self.horizon, 2)
    if kind == 'signed':
      base = self.base or best_base(self.horizon, self.pure)
      levels = stream_noise.num_levels(self.horizon, base)
    if kind == 'dyadic':
      levels += self._root
    if kind == 'square_root':
      levels = 1  # One draw for each item, and no nodes above it.
    return Structure(kind, self.horizon, self.pure, base, levels,
                     self.item_bits)

  def _unit_cost(self, root: bool) -> float:
    """Returns the epsilon, or the 2 rho, of dyadic noise of scale 1."""
    return dyadic_calibration.calibrate(
        self.horizon, adjacency=self.adjacency, root=root,
        norm='l1' if self.pure else 'l2')

  @functools.cached_property
  def _root(self) -> bool:
    """Whether dyadic noise has a root: the choice of smaller variance."""
    if self.accounting == 'paper':
      return True
    levels = stream_noise.num_levels(self.horizon, 2)
    # A sum has one node of each level; Laplace variances grow with cost^2.
    power = 2 if self.pure else 1
    return (self._unit_cost(True)**power * (levels + 1)
            <= self._unit_cost(False)**power * levels)

  @property
  def unit_cost(self) -> float:
    """The privacy cost of noise of scale 1: epsilon, or 2 rho."""
    structure = self.structure
    # Every later sum changes by 1, so the cost is that of the first column of
    # C in squared l2, or of one node on each level.
    if structure.kind == 'square_root':
      return float(np.sum(np.square(toeplitz.square_root(self.horizon))))
    if structure.kind != 'dyadic':
      return float(structure.levels)
    if self.accounting == 'paper':
      return float(-(-structure.levels // 2))  # ceil((L + 1) / 2) nodes.
    return self._unit_cost(self._root)

  @property
  def scale(self) -> float:
    """Laplace scale or standard deviation of the noise of a node."""
    return self.noise_scale(self.unit_cost)

  @property
  def parameters(self) -> StreamParameters:
    """Numerical parameters of the sampler."""
    weights = np.zeros(0)
    if self.structure.kind == 'square_root':
      # Reversed and padded, so that a slice is the row of C of any time.
      weights = np.append(toeplitz.square_root(self.horizon)[::-1],
                          np.zeros(self.horizon))
    return StreamParameters(np.float64(self.scale), weights)

  def variances(self) -> np.ndarray:
    """Returns exact error variances of the sums [N], without rounding of items.
    """
    structure, unit = self.structure, 2.0**self.item_bits
    one = (draws.discrete_laplace_variance(self.scale * unit) / unit**2
           if self.pure else self.scale**2)
    if structure.kind == 'dyadic':
      return np.full(self.horizon, one * structure.levels)
    if structure.kind == 'signed':
      return one * stream_noise.signed_nodes(structure)
    if structure.kind == 'square_root':
      return one * np.cumsum(np.square(toeplitz.square_root(self.horizon)))
    time, levels = np.arange(1, self.horizon + 1), np.arange(structure.levels)
    # Variance of a node estimated from all nodes below it: 2^l / (2^(l+1) - 1).
    widths = 2.0**levels / (2.0**(levels + 1) - 1)
    # A sum has a node for each one-bit of its time, more of the top level.
    bits = (time[:, None] >> levels) % 2
    bits[:, -1] = time >> levels[-1]
    return one * bits @ widths

  @precision.in_float64
  def init(self, key: PRNGKey) -> StreamState:
    """Returns the state before the first item; use `key` for nothing else."""
    structure = self.structure
    pending = {'bottom_up': structure.levels,
               'square_root': self.horizon}.get(structure.kind, 0)
    return StreamState(stream_noise.key_words(key), jnp.int32(0),
                       jnp.float64(0), jnp.zeros([pending], jnp.float64))

  @precision.in_float64
  def update(self, state: StreamState,
             item: Array) -> tuple[StreamState, Array]:
    """Returns the state after an item and the noisy sum so far, float64.

    Items are clipped to [0, 1]; NaN counts as 0. Call it only once for each
    state: two items for one state would get the same noise.

    Raises:
      ValueError: after `horizon` items. Under `jit` the state then stays as it
        is and the sum is NaN.
    """
    self._check_horizon(state, 1)
    step = stream_noise.compiled(stream_noise.stepper(self.structure))
    return step(self.parameters, state, jnp.asarray(item))

  @precision.in_float64
  def run(self, state: StreamState,
          items: Array) -> tuple[StreamState, Array]:
    """Calls `update` for each item of [n], compiled; returns sums [n]."""
    self._check_horizon(state, len(items))
    step = stream_noise.in_turn(stream_noise.stepper(self.structure))
    return step(self.parameters, state, jnp.asarray(items))

  def release(self, key: PRNGKey, data: Array) -> Array:
    """Releases noisy sums [n] of items [n], from the first on."""
    return self.run(self.init(key), data)[1]

  def _check_horizon(self, state: StreamState, more: int) -> None:
    """Raises if `more` items exceed the horizon; skipped for a traced state."""
    traced = isinstance(state.time, jax.core.Tracer)
    count = more if traced else int(state.time) + more
    if count > self.horizon:
      raise ValueError(f'the horizon is {self.horizon} items, got {count}')

  def risk(self, num_values: int) -> float:
    """Returns the mean variance of the sums, times `num_values`."""
    return num_values * float(np.mean(self.variances()))
