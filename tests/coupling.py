"""Computes privacy losses of releases with additive noise, by couplings.

The samplers of a release are replaced by numbers that the caller gives, so that
a release becomes an ordinary function of its noise and of the records. For two
neighbours, `loss` moves the noise of the second until it releases what the
first one does. Where noise has the density e^-|z|, or that of a normal, the
least such move bounds the privacy loss: by its l1 norm, or by half its squared
l2 norm as rho of zCDP. Choices of an exponential mechanism are given too, and
cost the difference of their log-probabilities. Nothing except its event is read
from a mechanism.
"""

from collections.abc import Callable, Sequence
import contextlib
import math
from typing import Any, NamedTuple
from unittest import mock

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize

from dpjax.privacy import additive
from dpjax.privacy import draws
from dpjax.privacy import k_norm
from dpjax.privacy import notions
from dpjax.privacy import restating
from dpjax.privacy import selection
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import sparse

Release = Callable[[Any, Any], Any]
"""(key, what a mechanism sees of the records) -> released numbers."""


class Block(NamedTuple):
  """Noise that one call of a sampler returns.

  Attributes:
    kind: 'laplace', 'normal', or the order of a norm: density e^-norm.
    size: how many numbers it returns.
  """
  kind: str | float
  size: int


class Tape:
  """Standard noise that samplers take, in the order of their calls.

  Attributes:
    blocks: the blocks that were taken.
    noisy: noisy numbers whose maximum was asked for.
    log_probs: log-probabilities of all candidates, for each choice.
  """

  def __init__(self, values=None, places=()):
    """Takes all noise [T], or None to learn its shape, and all choices."""
    self._values, self._places = values, list(places)
    self.blocks, self.noisy, self.log_probs = [], [], []

  def _take(self, kind, shape, dtype):
    start = sum(block.size for block in self.blocks)
    self.blocks.append(Block(kind, math.prod(shape)))
    if self._values is None:
      return jnp.zeros(shape, dtype)
    return self._values[start:start + math.prod(shape)].reshape(shape).astype(
        dtype)

  def _choose(self, log_weights):
    self.log_probs.append(jax.nn.log_softmax(log_weights.reshape(-1)))
    return jnp.int32(self._places.pop(0))

  def _largest(self, noisy):
    self.noisy.append(noisy)
    return jnp.int32(self._places.pop(0))

  @contextlib.contextmanager
  def as_noise(self):
    """Makes samplers take from the tape, on infinitely fine grids."""
    def discrete_laplace(key, shape, scale, dtype):
      del key
      scale = jnp.asarray(scale, dtype)
      scale = jnp.broadcast_to(scale, (1, *shape))[0] if scale.ndim else scale
      return scale * self._take('laplace', shape, dtype)

    def laplace(key, shape, dtype=jnp.float32):
      del key
      return self._take('laplace', shape, dtype)

    def normal(key, shape, start=0):
      del key, start
      return self._take('normal', shape, jnp.float32)

    def unit_noise(key, size, *, order):
      del key
      return self._take(float(order), (size,), jnp.float32)
    patched = ((draws, 'standard_laplace', laplace),
               (draws, 'discrete_laplace', discrete_laplace),
               (additive, 'standard_normal', normal),
               (additive, 'on_grid', lambda values, stddev: values),
               (k_norm, 'unit_noise', unit_noise),
               (draws, 'place_of_largest', self._largest),
               (selection.ExponentialMechanism, 'release',
                lambda mechanism, key, data: self._choose(
                    mechanism.log_weights(data))),
               (sparse, 'chosen',
                lambda key, scores, rate: self._choose(rate * scores)),
               (jnp, 'round', lambda values: values),
               (jax, 'vmap', _one_by_one), (jax.lax, 'scan', _in_turn))
    with contextlib.ExitStack() as stack:
      for module, name, function in patched:
        stack.enter_context(mock.patch.object(module, name, function))
      yield


def _one_by_one(function, in_axes=(0,)):
  """Replaces `jax.vmap` by a loop, so that each row asks for its noise."""
  def run(*args):
    def row(i):
      return function(*(jax.tree.map(lambda leaf: leaf[i], arg)
                        if axis == 0 else arg
                        for arg, axis in zip(args, in_axes, strict=True)))
    size = next(len(arg) for arg, axis in zip(args, in_axes, strict=True)
                if axis == 0)
    return jax.tree.map(lambda *rows: jnp.stack(rows), *map(row, range(size)))
  return run


def _in_turn(function, carry, rows, reverse=False):
  """Replaces `jax.lax.scan` by a loop, so that each step asks for its noise."""
  size, step = len(jax.tree.leaves(rows)[0]), -1 if reverse else 1
  outputs = [None] * size
  for i in range(size)[::step]:
    row = jax.tree.map(lambda leaf: leaf[i], rows)
    carry, outputs[i] = function(carry, row)
  return carry, jax.tree.map(lambda *of: jnp.stack(of), *outputs)


def _flat(released) -> jax.Array:
  """Returns all released numbers as one float64 vector."""
  leaves = [part for leaf in jax.tree.leaves(released)
            for part in ((leaf.real, leaf.imag) if jnp.iscomplexobj(leaf)
                         else (leaf,))]
  return jnp.concatenate([leaf.reshape(-1).astype(float) for leaf in leaves])


class Coupling:
  """A release as a function of its noise, under 64-bit types."""

  def __init__(self, release: Release, data: Any, places: Sequence[int] = ()):
    """Takes a release, data of the shapes to be coupled, and all choices."""
    def run(tape, data):
      with tape.as_noise():
        output = release(jax.random.key(0), data)
        return _flat((output, tape.noisy)), tape.log_probs

    def both(values, data):
      function = lambda noise: run(Tape(noise, places), data)
      outputs, log_probs = function(values)
      return outputs, jax.jacfwd(lambda noise: function(noise)[0])(
          values), log_probs
    blank = Tape(None, places)
    jax.eval_shape(lambda data: run(blank, data), data)
    self.blocks = tuple(blank.blocks)
    self._both = jax.jit(both)

  @property
  def size(self) -> int:
    """The number of noise values."""
    return sum(block.size for block in self.blocks)

  def outputs(self, noise: np.ndarray, data: Any
              ) -> tuple[np.ndarray, np.ndarray]:
    """Returns released numbers [m] for noise [T], and their slopes [m, T]."""
    return tuple(map(np.asarray, self._both(jnp.asarray(noise), data)[:2]))

  def log_ratios(self, one: Any, other: Any, noise: np.ndarray,
                 move: np.ndarray) -> list[np.ndarray]:
    """Returns log-ratios of the probabilities of all candidates, by choice."""
    choices = self._both(jnp.asarray(noise), one)[2]
    moved_choices = self._both(jnp.asarray(noise + move), other)[2]
    ratios = []
    for log_probs, others in zip(choices, moved_choices, strict=True):
      possible = np.isfinite(log_probs)
      np.testing.assert_array_equal(np.isfinite(others), possible)
      ratios.append(np.asarray(log_probs)[possible]
                    - np.asarray(others)[possible])
    return ratios

  def move(self, one: Any, other: Any, noise: np.ndarray, *,
           steps: int = 4) -> np.ndarray:
    """Returns noise [T] that turns the release of `other` into that of `one`.

    The least move is found by Newton's method, of which one step is exact where
    releases are linear in their noise.

    Raises:
      AssertionError: if no move makes the releases equal, because not only
        noisy numbers are released.
    """
    (wanted, slopes), shift = self.outputs(noise, one), np.zeros(self.size)
    close = 1e-5 * (np.abs(wanted).max() + np.abs(slopes).max())
    for _ in range(steps):
      here, slopes = self.outputs(noise + shift, other)
      if np.abs(here - wanted).max() <= close:
        return shift
      shift = self._least(slopes, wanted - here + slopes @ shift)
    here, _ = self.outputs(noise + shift, other)
    np.testing.assert_allclose(here, wanted, rtol=0, atol=close)
    return shift

  def _least(self, slopes: np.ndarray, change: np.ndarray) -> np.ndarray:
    least = np.linalg.lstsq(slopes, change, rcond=1e-6)[0]
    kinds = {block.kind for block in self.blocks}
    if 'laplace' not in kinds or np.linalg.matrix_rank(
        slopes, tol=1e-6 * np.abs(slopes).max()) == self.size:
      return least
    # Several moves do, and the least squares one is not the cheapest.
    turned = np.linalg.svd(slopes)[2][:np.linalg.matrix_rank(
        slopes, tol=1e-6 * np.abs(slopes).max())]
    optimum = optimize.linprog(np.ones(2 * self.size), A_eq=np.hstack(
        [turned, -turned]), b_eq=turned @ least)
    return optimum.x[:self.size] - optimum.x[self.size:]

  def cost(self, shift: np.ndarray) -> tuple[float, float]:
    """Returns the (epsilon, rho) of a move [T] of pure and normal noise."""
    epsilon, rho, start = 0.0, 0.0, 0
    for block in self.blocks:
      part = shift[start:start + block.size]
      start += block.size
      if block.kind == 'normal':
        rho += float(part @ part) / 2
      else:
        order = 1 if block.kind == 'laplace' else block.kind
        epsilon += float(np.linalg.norm(part, order))
    return epsilon, rho


def claim(event: dp_accounting.DpEvent, adjacency: Adjacency
          ) -> tuple[float, float]:
  """Returns the (epsilon, rho) that an event claims; one of them is 0."""
  records = 2 if adjacency is Adjacency.REPLACE_ONE else 1
  match event:
    case restating.PureDpEvent(epsilon=epsilon, adjacency=known):
      return epsilon * (1 if known is adjacency else 2), 0.0
    case restating.ConcentratedDpEvent(rho=rho):
      return 0.0, rho
    case dp_accounting.LaplaceDpEvent(noise_multiplier=multiplier):
      return records / multiplier, 0.0
    case dp_accounting.GaussianDpEvent(noise_multiplier=multiplier):
      return 0.0, (records / multiplier)**2 / 2
    case dp_accounting.ComposedDpEvent(events=events):
      parts = [claim(part, adjacency) for part in events]
      return tuple(map(math.fsum, zip(*parts, strict=True)))
    case dp_accounting.SelfComposedDpEvent(event=event, count=count):
      return tuple(count * part for part in claim(event, adjacency))
  raise TypeError(f'no claim is known of {event}')


def losses(release: Release, pairs: Sequence[tuple[Any, Any]],
           places: Sequence[int] = (), *, concentrated: bool = False
           ) -> np.ndarray:
  """Returns [pairs, 2]: the epsilon and rho between neighbours' releases.

  They are local: near one release with almost no noise.

  Args:
    release: the mechanism's release, (key, data) -> released numbers.
    pairs: pairs of neighbouring data sets.

    places: indices that the private choices return, in order of the choices.
    concentrated: whether choices cost rho, by the range of their log-ratios.
  """
  costs = []
  with jax.enable_x64(True):
    coupling = Coupling(release, pairs[0][0], places)
    noise = 0.01 * np.random.default_rng(0).normal(size=coupling.size)
    for pair in pairs:
      shift = coupling.move(*pair, noise)
      cost = np.array(coupling.cost(shift))
      for ratios in coupling.log_ratios(*pair, noise, shift):
        cost += (0, notions.zcdp_from_mechanism(notions.PureDP(
            epsilon=np.ptp(ratios)), 'exponential').rho) if concentrated else (
                np.abs(ratios).max(), 0)
      costs.append(cost)
  return np.array(costs)
