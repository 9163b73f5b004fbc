"""Gaussian noise in floating point, and the Gaussian mechanism.

All Gaussian noise that is added as floats is drawn here.

Floating point: the guarantees hold in real arithmetic. A released float32
`value + jax.random.normal(...)` leaks the value: the sampler has 2^23 outputs,
so most noisy values are impossible under a neighbour, and the low-order bits of
the sum depend on the value. `add_gaussian_noise` prevents both. Its noise has
2^32 outcomes, whose tails are as finely resolved as the centre, and its result
is rounded to a public power-of-two grid of 1/512 to 1/256 of the noise's
standard deviation, on which every point within 5.4 standard deviations remains
possible. Rounding is post-processing.

Limits: unlike `lattice`, this is not an exact mechanism. A coordinate's noise
exceeds 5.4 standard deviations with probability 7e-8; there some grid points
are missing, and the noise ends at 6.3. Probabilities carry float32 rounding
errors. All of it is only as secret as the key: see `keys` for those of a
release.
"""

from collections.abc import Sequence
import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax import floats
from dpjax import tree
from dpjax.privacy import accounting
from dpjax.privacy import chacha
from dpjax.privacy import threefry
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.privacy.adjacency import sum_sensitivity
from dpjax.typing import Array, PRNGKey, PyTree

# The grid spacing is 2^-8 of the power of two below the standard deviation.
_GRID_BITS = 8

# Leaves of one tree are drawn together up to this number of values: one program
# for all of them is compiled faster than a program for each.
_TOGETHER = 2**16

# Two polynomials of `standard_normal`: the centre of the argument, then the
# coefficients from the highest power down. Least squares fits on Chebyshev
# nodes, for w in [0, 5] and for sqrt(w) in [sqrt(5), 4.75].
_CENTRAL = (2.5, 4.6426282551e-07, -4.4888174671e-06, -5.9787371356e-06,
            3.0720495852e-04, -1.7737596063e-03, -5.9057669714e-03,
            3.4880325198e-01, 2.1233131886e+00)
_OUTER = (3.493033988749895, -2.4661602220e-04, 8.0371793592e-04,
          -1.1143428273e-03, 1.4639245346e-03, -2.8989715502e-03,
          4.7227102332e-03, 1.4245618582e+00, 4.7071642876e+00)


def standard_normal(key: PRNGKey, shape: tuple[int, ...],
                    start: int = 0) -> Array:
  """Draws standard normal numbers with 2^32 outcomes, float32.

  Each draw uses one 32-bit word: its last bit is the sign, the others choose a
  lower-tail probability p in (0, 1/2), which float32 resolves most finely where
  this is needed, in the tail. With w = -log(4 p (1 - p)), the quantile is 1 - 2
  p times a smooth function of w (Giles 2010); two polynomials approximate this
  function to 1e-6 for all outcomes. On CPU this takes a third of the time of
  `jax.random.normal`.

  Args:
    key: used only for draws at other places.
    shape: shape of the draws.
    start: place of the first draw in the key's sequence, static. Draws of one
      key at places that do not overlap are independent.
  """
  return normal_of(random_words(key, shape, start))


def normal_of(word: Array) -> Array:
  """Returns the normal number of each word, see `standard_normal`."""
  # The middles of 2^31 cells of (0, 1/2): never 0, so the logarithm is finite.
  tail = (jax.lax.shift_right_logical(word, jnp.uint32(1)).astype(jnp.float32)
          + 0.5) * jnp.float32(2.0**-32)
  depth = -jnp.log(tail * (4 - 4 * tail))
  central = depth < 5
  place = jnp.where(central, depth - _CENTRAL[0], jnp.sqrt(depth) - _OUTER[0])
  # Horner's scheme for both polynomials at once.
  slope = jnp.zeros(word.shape, jnp.float32)
  for near, far in zip(_CENTRAL[1:], _OUTER[1:], strict=True):
    slope = slope * place + jnp.where(central, jnp.float32(near),
                                      jnp.float32(far))
  magnitude = slope * (1 - 2 * tail)
  return jnp.where(word % 2 == 1, -magnitude, magnitude)


def random_words(key: PRNGKey, shape: tuple[int, ...],
                 start: int = 0) -> Array:
  """Draws uniform 32-bit words [*shape], not those of `jax.random.bits`.

  All words of each block of the generator are used. With threefry this halves
  the time of a draw, because `jax.random.bits` combines two words into one so
  that its results do not depend on the shape.

  Args:
    key: used only for draws at other places.
    shape: shape of the result.
    start: place of the first word; blocks are numbered by places, static.

  Raises:
    ValueError: for places of 2^32 or more.
  """
  size = math.prod(shape)
  check_places(start + size)
  generator = str(jax.random.key_impl(key))
  if generator == chacha.NAME:
    return chacha.words(jax.random.key_data(key), start, size).reshape(shape)
  # With other generators of JAX, `start` selects a child of the key.
  if generator != 'threefry2x32':
    return jax.random.bits(jax.random.fold_in(key, start), shape, jnp.uint32)
  first, second = jax.random.key_data(key)
  return threefry.words((first, second), start, size).reshape(shape)


def words_of_several(key: PRNGKey, sizes: Sequence[int],
                     start: int = 0) -> Array:
  """Returns `random_words` of each size, each from where the last one ends.

  Args:
    key: see `random_words`.
    sizes: numbers of words, static.
    start: place of the first word, static.

  Returns:
    Words [r, n], r being 1, 2 or 16. A size s has its own ceil(s / r) columns,
    whose first s words, row by row, are those of a separate call.
  """
  check_places(start + sum(sizes))
  generator = str(jax.random.key_impl(key))
  if generator == chacha.NAME:
    return chacha.words_of_several(jax.random.key_data(key), start, sizes)
  if generator == 'threefry2x32':
    first, second = jax.random.key_data(key)
    return threefry.words_of_several((first, second), start, sizes)
  starts = itertools.accumulate(sizes[:-1], initial=start)
  return jnp.concatenate([random_words(key, (size,), place) for size, place in
                          zip(sizes, starts, strict=True)])[None]


def random_pairs(key: PRNGKey, shape: tuple[int, ...],
                 start: int = 0) -> tuple[Array, Array]:
  """Draws two uniform 32-bit words [*shape] for each place.

  `random_words` concatenates two halves, which slows down table look-ups by
  these words; this function does not.

  Args:
    key: used only for pairs at other places, not for `random_words`.
    shape: shape of each of the two results.
    start: place of the first pair, static.

  Raises:
    ValueError: for places of 2^32 or more.
  """
  size = math.prod(shape)
  check_places(start + size)
  generator = str(jax.random.key_impl(key))
  if generator == chacha.NAME:
    left, right = chacha.pairs(jax.random.key_data(key), start, size)
    return left.reshape(shape), right.reshape(shape)
  if generator != 'threefry2x32':
    return tuple(jax.random.bits(jax.random.fold_in(key, start), (2, *shape),
                                 jnp.uint32))
  first, second = jax.random.key_data(key)
  left, right = threefry.pairs_at(
      (first, second), jnp.uint32(start) + jax.lax.iota(jnp.uint32, size))
  return left.reshape(shape), right.reshape(shape)


def check_places(end: int) -> None:
  """Raises if a key has fewer places than `end`."""
  if end >= 2**32:
    raise ValueError(f'one key has 2^32 draws, {end} were asked for; split it')


def grid_spacing(stddev: Array | float) -> Array:
  """Returns the grid spacing, a power of two in (stddev/512, stddev/256].

  Args:
    stddev: standard deviation or scale of the noise, any shape.
  """
  return floats.power_of_two_below(stddev) * jnp.float32(2.0**-_GRID_BITS)


def on_grid(values: Array, stddev: Array | float) -> Array:
  """Returns values rounded to the grid of a release, in their own dtype.

  Args:
    values: noisy values.
    stddev: standard deviation or scale of the noise, see `grid_spacing`.
  """
  spacing = grid_spacing(stddev).astype(values.dtype)
  return jnp.round(values / spacing) * spacing


def unit_noise(key: PRNGKey, values: PyTree, start: int = 0) -> PyTree:
  """Draws standard normal noise with the structure and shapes of `values`.

  One sequence of draws serves all leaves, and each leaf takes its own range of
  places, from `start` on: its noise is that of `standard_normal` there.
  """
  leaves, structure = jax.tree.flatten(values)
  draws = []
  for shapes in _small_groups([leaf.shape for leaf in leaves]):
    draws += normals_of_several(key, shapes, start)
    start += sum(map(math.prod, shapes))
  return jax.tree.unflatten(structure, draws)


def _small_groups(shapes: Sequence[tuple[int, ...]]
                  ) -> list[list[tuple[int, ...]]]:
  """Returns the shapes in order, in groups of at most `_TOGETHER` values."""
  groups: list[list[tuple[int, ...]]] = []
  total = 0
  for shape in shapes:
    total += math.prod(shape)
    if not groups or total > _TOGETHER:
      groups.append([])
      total = math.prod(shape)
    groups[-1].append(shape)
  return groups


def normals_of_several(key: PRNGKey, shapes: Sequence[tuple[int, ...]],
                       start: int = 0) -> list[Array]:
  """Returns `standard_normal` of each shape, each from where the last one ends.

  The numbers are those of separate calls, up to rounding. They are computed by
  one program over the blocks of all shapes, which is compiled faster.

  Args:
    key: see `standard_normal`.
    shapes: shapes of the draws.
    start: place of the first draw, static.
  """
  if len(shapes) == 1:
    return [standard_normal(key, shapes[0], start)]
  sizes = [math.prod(shape) for shape in shapes]
  normals = normal_of(words_of_several(key, sizes, start))
  columns = [-(-size // len(normals)) for size in sizes]
  firsts = itertools.accumulate(columns[:-1], initial=0)
  return [normals[:, first:first + width].reshape(-1)[:size].reshape(shape)
          for first, width, size, shape in zip(firsts, columns, sizes, shapes,
                                               strict=True)]


def add_drawn_noise(draws: PyTree, values: PyTree, stddevs: PyTree) -> PyTree:
  """Returns `values` plus scaled `unit_noise`, rounded to the public grid.

  Args:
    draws: from `unit_noise`, used for nothing else.
    values: pytree of float32 arrays.
    stddevs: see `add_gaussian_noise`.
  """
  return tree.map_blocks(_perturb, stddevs, values, draws)


def add_gaussian_noise(key: PRNGKey, values: PyTree,
                       stddevs: PyTree) -> PyTree:
  """Returns `values` plus Gaussian noise, rounded to the public grid.

  Args:
    key: fresh for this call.
    values: pytree of float32 arrays.
    stddevs: standard deviations, a tree prefix of `values` with positive
      scalars that do not depend on the private data of this release; 0 leaves a
      block unchanged.
  """
  return add_drawn_noise(unit_noise(key, values), values, stddevs)


def _perturb(stddev: Array | float, value: Array, draw: Array) -> Array:
  """Returns one leaf plus scaled noise, rounded to its grid."""
  spacing = grid_spacing(stddev)
  # Multiplying by the reciprocal of a power of two is as exact as dividing by
  # it, and faster.
  noisy = jnp.round((value + stddev * draw) * (1 / spacing)) * spacing
  # Only an exact 0 leaves the value unchanged: a NaN scale must not disable the
  # noise, it makes the result NaN.
  return jnp.where(stddev == 0, value, noisy)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianMechanism:
  """Releases a sum of records, each of l2 norm at most `record_norm`.

  Guarantee: (epsilon, delta)-DP under `adjacency` for every pair that
  `accounting` returns for `event`: the exact Gaussian curve, for every epsilon.
  Source: Barczewski (2025, Algorithm 3; item DP-11). The classical scale sqrt(2
  ln(1.25/delta)) used there is proved for epsilon < 1 only, and fails above
  epsilon = 8.4 at delta = 1e-5 (erratum E23).

  Attributes:
    record_norm: l2 bound on one record's contribution; callers enforce it.
    noise_multiplier: standard deviation of the noise over `record_norm`.
    adjacency: neighbouring relation of the guarantee.
  """
  record_norm: float
  noise_multiplier: float
  adjacency: Adjacency

  def __post_init__(self) -> None:
    errors.check_scale('record_norm', self.record_norm)
    errors.check_scale('noise_multiplier', self.noise_multiplier)
    check_adjacency(self.adjacency)

  @property
  def l2_sensitivity(self) -> float:
    """Largest l2 change of the sum between neighbouring data sets."""
    return sum_sensitivity(self.adjacency, record_norm=self.record_norm)

  @property
  def stddev(self) -> float:
    """Standard deviation of the noise in every coordinate."""
    return self.noise_multiplier * self.record_norm

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of one release."""
    return accounting.gaussian_event(noise_multiplier=self.noise_multiplier)

  def release(self, key: PRNGKey, data: PyTree) -> PyTree:
    """Returns the noisy sum; `data` is the exact sum, a float32 pytree."""
    return add_gaussian_noise(key, data, self.stddev)

  def risk(self, num_values: int) -> float:
    """Returns the expected squared l2 error of `num_values` numbers."""
    return num_values * self.stddev**2


def calibrated_gaussian(*, record_norm: float, epsilon: float, delta: float,
                        adjacency: Adjacency) -> GaussianMechanism:
  """Returns the (epsilon, delta)-DP Gaussian mechanism of least noise.

  Args:
    record_norm: l2 bound on one record's contribution; callers enforce it.
    epsilon: budget of one release, positive.
    delta: delta of one release, in [1e-12, 1).
    adjacency: neighbouring relation of the guarantee.

  Examples:
    >>> from dpjax.privacy import additive
    >>> from dpjax.privacy.adjacency import Adjacency
    >>> noisy = additive.calibrated_gaussian(
    ...     record_norm=3.0, epsilon=1.0, delta=1e-5,
    ...     adjacency=Adjacency.ADD_OR_REMOVE_ONE)
    >>> round(noisy.stddev, 2)
    11.19
  """
  multiplier = accounting.calibrate_noise_multiplier(
      target_epsilon=epsilon, target_delta=delta, sampling_prob=1.0,
      num_steps=1, adjacency=adjacency)
  return GaussianMechanism(record_norm=record_norm,
                           noise_multiplier=multiplier, adjacency=adjacency)


def zcdp_gaussian(*, record_norm: float, rho: float,
                  adjacency: Adjacency) -> GaussianMechanism:
  """Returns the rho-zCDP Gaussian mechanism: stddev sensitivity/sqrt(2 rho).

  Source: Bun and Steinke (2016); Lalanne (2023, Fact 2.3.6; item MECH-03).
  """
  errors.check_scale('record_norm', record_norm)
  sensitivity = sum_sensitivity(adjacency, record_norm=record_norm)
  stddev = sensitivity / math.sqrt(2 * errors.check_positive('rho', rho))
  return GaussianMechanism(record_norm=record_norm,
                           noise_multiplier=stddev / record_norm,
                           adjacency=adjacency)


def classical_gaussian(*, record_norm: float, epsilon: float, delta: float,
                       adjacency: Adjacency) -> GaussianMechanism:
  """Returns the textbook mechanism of noise sqrt(2 ln(1.25/delta)) S/epsilon.

  S is the l2 sensitivity. A baseline for `calibrated_gaussian`, which needs
  less noise where the textbook formula is proved (epsilon < 1), and more where
  the formula is false: from epsilon = 8.42 on at delta = 1e-5. The event of the
  result gives its true cost. Source: lecture notes (chapter 7, Definition
  7.17), whose Proposition 7.18 claims the guarantee for all epsilon (item
  MECH-04, erratum E23).
  """
  errors.check_scale('record_norm', record_norm)
  errors.check_positive('epsilon', epsilon)
  errors.check_open_unit('delta', delta)
  sensitivity = sum_sensitivity(adjacency, record_norm=record_norm)
  stddev = math.sqrt(2 * math.log(1.25 / delta)) * sensitivity / epsilon
  return GaussianMechanism(record_norm=record_norm,
                           noise_multiplier=stddev / record_norm,
                           adjacency=adjacency)
