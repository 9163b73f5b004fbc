"""Prefix sums of a stream of items, told as it goes: continual observation.

At every time the sum of all items so far is told with noise; who changes one
item changes all later sums by at most 1. Noise belongs to places of the stream
and a key, so that what stopped and goes on tells what it would have told. It
does not depend on items, and items may depend on what was told before. Source:
thesis 003, Theorem 6.3.2 (item EC-06, EC-07; corrections C3, C26), and what
came later: Honaker 2015 (EC-43), Henzinger, Upadhyay and Upadhyay 2023 (EC-47),
Andersson et al. 2025 (EC-42).

A stream is a value, and so is its state: sums are exact in it, and as private
as the items.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import draws
from dpjax.privacy.accounting import DpEvent
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import precision
from dpjax.stats.ecdf import dyadic
from dpjax.stats.ecdf import dyadic_calibration
from dpjax.stats.ecdf import stream_noise
from dpjax.stats.ecdf import toeplitz
from dpjax.stats.ecdf.stream_noise import Parameters, StreamState, Structure
from dpjax.typing import Array, PRNGKey

_MOST_PARTS = 64


@functools.lru_cache(64)
def best_base(horizon: int, pure: bool) -> int:
  """Parts of a node for which sums of signed nodes err least on average."""
  def cost(base):
    levels = stream_noise.num_levels(horizon, base)
    made = stream_noise.Structure('signed', horizon, pure, base, levels, 0)
    return np.mean(stream_noise.signed_nodes(made)) * levels**(2 if pure else 1)
  return min(range(2, min(_MOST_PARTS, horizon) + 1), key=cost)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrefixStream:
  """Sums of all items so far, after each of them.

  Guarantee: epsilon-DP or rho-zCDP of all that is told together, when an item
  comes instead of none (0), or when one item is another: sums move by 1 at
  most. How many items there are by when is public.

  `dyadic`: as in thesis 003, noise of the nodes that a time lies in. `signed`:
  noise of the fewest nodes of `base` parts that add up to a time, or exceed it
  and are taken off. `bottom_up`: nodes as estimated from all below them; keeps
  a number for each level. `square_root`: for rho, noise of nearly one size;
  keeps what it drew, N numbers, and is the most exact. Others keep nothing, and
  draw noise of a node again.

  Attributes:
    horizon: N, the most items that come.
    epsilon: of all sums together.
    rho: of the same; one of the two.
    kind: one of `KINDS`; None for the most exact.
    base: of `signed`; None for the best.
    accounting: of `dyadic`: 'tight', or 'paper' for the printed noise.
    item_bits: items are rounded to multiples of 2^-item_bits, and discrete
      Laplace noise is of them; 0 for items that are 0 or 1.
  """
  horizon: int
  epsilon: float | None = None
  rho: float | None = None
  kind: str | None = None
  base: int | None = None
  accounting: str = 'tight'
  item_bits: int = 16

  # For the auditor.
  adjacency = Adjacency.ADD_OR_REMOVE_ONE
  double_precision = True

  def __post_init__(self):
    errors.check_at_least('horizon', self.horizon, 2)
    if (self.epsilon is None) == (self.rho is None):
      raise ValueError('the budget is epsilon or rho, one of them, got '
                       f'{self.epsilon} and {self.rho}')
    name = 'rho' if self.epsilon is None else 'epsilon'
    errors.check_positive(name, getattr(self, name))
    if self.kind is not None:
      errors.check_choice('kind', self.kind, stream_noise.KINDS)
    if self.kind == 'square_root' and self.pure:
      raise ValueError("kind='square_root' is for a budget of rho")
    errors.check_choice('accounting', self.accounting, dyadic.ACCOUNTING)
    if self.accounting == 'paper' and self.kind != 'dyadic':
      raise ValueError("accounting='paper' is of kind='dyadic'")
    if self.base is not None:
      errors.check_at_least('base', self.base, 2)
      if self.structure.kind != 'signed':
        raise ValueError("a base is of kind='signed'")
    if not 0 <= self.item_bits <= stream_noise.MOST_ITEM_BITS:
      raise ValueError('item_bits must lie between 0 and '
                       f'{stream_noise.MOST_ITEM_BITS}, got {self.item_bits}')

  @property
  def pure(self) -> bool:
    """Whether the budget is epsilon."""
    return self.rho is None

  @functools.cached_property
  def structure(self) -> Structure:
    """What the law is compiled for."""
    kind = self.kind or ('signed' if self.pure else 'square_root')
    base, levels = 2, stream_noise.num_levels(self.horizon, 2)
    if kind == 'signed':
      base = self.base or best_base(self.horizon, self.pure)
      levels = stream_noise.num_levels(self.horizon, base)
    if kind == 'dyadic':
      levels += self._root
    if kind == 'square_root':
      levels = 1
    return Structure(kind, self.horizon, self.pure, base, levels,
                     self.item_bits)

  def _price(self, root: bool) -> float:
    return dyadic_calibration.calibrate(
        self.horizon, adjacency=self.adjacency, root=root,
        norm='l1' if self.pure else 'l2')

  @functools.cached_property
  def _root(self) -> bool:
    if self.accounting == 'paper':
      return True
    levels = stream_noise.num_levels(self.horizon, 2)
    power = 2 if self.pure else 1
    return (self._price(True)**power * (levels + 1)
            <= self._price(False)**power * levels)

  @property
  def price(self) -> float:
    """Epsilon, or 2 rho, of noise of scale 1."""
    structure = self.structure
    if structure.kind == 'square_root':
      return float(np.sum(np.square(toeplitz.square_root(self.horizon))))
    if structure.kind != 'dyadic':
      return float(structure.levels)
    if self.accounting == 'paper':
      return float(-(-structure.levels // 2))
    return self._price(self._root)

  @property
  def scale(self) -> float:
    """Of the noise of a node; of Gaussian noise its standard deviation."""
    if self.pure:
      return self.price / self.epsilon
    return math.sqrt(self.price / (2 * self.rho))

  @property
  def event(self) -> DpEvent:
    """What all sums together cost."""
    if self.pure:
      return accounting.pure_event(epsilon=self.epsilon,
                                   adjacency=self.adjacency)
    return accounting.gaussian_event(
        noise_multiplier=1 / math.sqrt(2 * self.rho))

  @property
  def parameters(self) -> Parameters:
    """Of the law."""
    weights = np.zeros(0)
    if self.structure.kind == 'square_root':
      weights = np.append(toeplitz.square_root(self.horizon)[::-1],
                          np.zeros(self.horizon))
    return Parameters(np.float64(self.scale), weights)

  def variances(self) -> np.ndarray:
    """Of the errors of the sums [N], exact but for the rounding of items."""
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
    widths = 2.0**levels / (2.0**(levels + 1) - 1)
    bits = (time[:, None] >> levels) % 2
    bits[:, -1] = time >> levels[-1]
    return one * bits @ widths

  @precision.in_float64
  def init(self, key: PRNGKey) -> StreamState:
    """Before the first item; `key` is for nothing else."""
    structure = self.structure
    pending = {'bottom_up': structure.levels,
               'square_root': self.horizon}.get(structure.kind, 0)
    return StreamState(stream_noise.key_words(key), jnp.int32(0),
                       jnp.float64(0), jnp.zeros([pending], jnp.float64))

  @precision.in_float64
  def update(self, state: StreamState,
             item: Array) -> tuple[StreamState, Array]:
    """The state after an item, and the sum so far with noise, float64.

    Items are clipped to [0, 1]; NaN counts as 0. To be called once with each
    state: two items for one state would get the same noise.

    Raises:
      ValueError: after `horizon` items. Under `jit` the state stays as it is
        and the sum is NaN.
    """
    self._check_room(state, 1)
    step = stream_noise.compiled(stream_noise.law(self.structure))
    return step(self.parameters, state, jnp.asarray(item))

  @precision.in_float64
  def run(self, state: StreamState,
          items: Array) -> tuple[StreamState, Array]:
    """`update` with one item [n] after the other, compiled; sums [n]."""
    self._check_room(state, len(items))
    step = stream_noise.in_turn(stream_noise.law(self.structure))
    return step(self.parameters, state, jnp.asarray(items))

  def release(self, key: PRNGKey, data: Array) -> Array:
    """Noisy sums [n] of items [n], from the first on."""
    return self.run(self.init(key), data)[1]

  def _check_room(self, state: StreamState, more: int) -> None:
    traced = isinstance(state.time, jax.core.Tracer)
    count = more if traced else int(state.time) + more
    if count > self.horizon:
      raise ValueError(f'the horizon is {self.horizon} items, got {count}')

  def risk(self, num_values: int) -> float:
    """Mean over the sums of their variances, times `num_values`."""
    return num_values * float(np.mean(self.variances()))
