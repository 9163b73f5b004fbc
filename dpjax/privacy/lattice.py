"""Gaussian noise on a lattice: float arithmetic with an exact guarantee.

A value is first rounded to the lattice s Z, where s is a public power of two;
then s times an integer is added as noise. Rounding commutes with adding a
lattice value v: v + s round(N(0, sigma^2) / s) *is* v + N(0, sigma^2) rounded
to the lattice, which is post-processing of the Gaussian mechanism. So the
accounting of the Gaussian mechanism, including Poisson subsampling, applies to
the lattice values, whose l2 sensitivity is at most

  D + sqrt(d) s

for d numbers of l2 sensitivity D: rounding moves each number by at most s / 2
in each of two neighbouring data sets. Under replace-one it is 2 D + sqrt(d) s,
less than twice the bound above. All computations between the rounding and the
last product with s are in int32.

The integers are Z1 + 104 Z2 + m Z3. The Z's are discrete Gaussians of parameter
180 from one table (`integers`), and the public integer m sets the standard
deviation, at least 2^19 in units of s. Such a sum is a discrete Gaussian of
some parameter r, which equals the rounded Gaussian of variance r^2 - 1/12, both
up to `total_variation`: 10^9 values add less than 10^-11 to delta at epsilon 8.
Values beyond 2^30 s are clamped first, which never increases the distance of
neighbours.

The guarantee needs two more things: the key must be secret, see `keys`; and the
rounded values are float32 sums, whose error is bounded by `sum_error`.
"""

import functools
import itertools
import math

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax import floats
from dpjax import tree
from dpjax.privacy import integers
from dpjax.privacy.integers import NoiseTable
from dpjax.typing import Array, PRNGKey, PyTree

# Parameter of the discrete Gaussians, multiplier of Z2, largest multiplier m.
_STDDEV = 180.0
_INNER = 104
_MOST_OUTER = 11_000
# Least stddev / s, and the largest magnitude of a value in units of s.
_LEAST_RATIO = 2.0**19
_LARGEST_VALUE = 2.0**30

# (1 + 104^2) 180^2 is the variance of the first two terms.
_INNER_SQUARE = 1 + _INNER**2


def spacing(stddev: Array | float) -> Array:
  """Returns the lattice spacing s, a power of two, for noise of `stddev`.

  s lies between 2^-20 and 2^-19 of `stddev`.
  """
  return floats.power_of_two_below(stddev) * jnp.float32(1 / _LEAST_RATIO)


def outer_multiplier(stddev: Array, step: Array) -> Array:
  """Returns the integer m, int32, for noise of at least `stddev`.

  Args:
    stddev: requested standard deviation, from 2^19 to 3.7 * 2^19 times `step`.
      For larger ones m stays at its maximum; `real_stddev` returns the actual
      standard deviation.
    step: lattice spacing s.
  """
  # (1 + 104^2 + m^2) 180^2 s^2 is the variance; m is rounded up.
  ratio = stddev / (step * jnp.float32(_STDDEV))
  outer = jnp.ceil(jnp.sqrt(jnp.square(ratio) - _INNER_SQUARE))
  return jnp.clip(outer, 1, _MOST_OUTER).astype(jnp.int32)


def real_stddev(outer: Array, step: Array) -> Array:
  """Returns the standard deviation of the Gaussian that is rounded, float32.

  Its variance in units of s^2 is 1/12 below that of the discrete Gaussian, a
  difference that float32 cannot represent.
  """
  square = jnp.square(outer.astype(jnp.float32)) + _INNER_SQUARE
  return step * jnp.float32(_STDDEV) * jnp.sqrt(square)


def rounded(values: Array, step: Array) -> Array:
  """Returns values in units of s, int32, clamped to 2^30; NaN becomes 0."""
  units = jnp.round(values * floats.inverse_power_of_two(step))
  # Converting NaN to int32 is undefined.
  units = jnp.where(jnp.isnan(units), 0.0, units)
  return jnp.clip(units, -_LARGEST_VALUE, _LARGEST_VALUE).astype(jnp.int32)


def add_noise(key: PRNGKey, values: PyTree, steps: PyTree, outers: PyTree,
              shardings: PyTree | None = None) -> PyTree:
  """Returns values rounded to the lattice plus noise on it, as float32.

  The int32 result is rounded to float32, which is post-processing.

  Args:
    key: fresh for this call.
    values: pytree of float32 arrays.
    steps: spacings s, a tree prefix of `values`; powers of two. Where s is 0,
      zeros are released.
    outers: `outer_multiplier` of each spacing, with the structure of `steps`.
    shardings: a `NamedSharding` for each leaf of `values` if they are divided:
      each device draws the noise of its own parts, the same numbers.
  """
  noise = tree.map_blocks(
      lambda outer, near, middle, far: near + _INNER * middle + outer * far,
      outers, *_draws(key, values, shardings))
  # No int32 overflow: values are within 2^30, noise is below 2^25.
  return tree.map_blocks(
      lambda step, value, drawn: (rounded(value, step) + drawn).astype(
          jnp.float32) * step, steps, values, noise)


def _draws(key: PRNGKey, values: PyTree,
           shardings: PyTree | None) -> list[PyTree]:
  """Draws Z1, Z2 and Z3 for every value; three trees like `values`."""
  if shardings is not None:
    return integers.draw_rows_in_parts(_noise_table(), key, 3, values,
                                       shardings)
  leaves, structure = jax.tree.flatten(values)
  rows = integers.draw_rows(_noise_table(), key, (3, tree.count(values)))
  # Numbers of all leaves in a row: leaf by leaf, up to these places.
  stops = list(itertools.accumulate(leaf.size for leaf in leaves))
  return [
      jax.tree.unflatten(structure, [
          row[stop - leaf.size:stop].reshape(leaf.shape)
          for leaf, stop in zip(leaves, stops, strict=True)]) for row in rows]


def total_variation(*, num_values: int, num_steps: int) -> float:
  """Returns a bound on the distance of a run's noise from rounded Gaussians.

  Total variation distance. Each value contributes three tables, two
  convolutions and Sheppard's correction. For the correction: at y r, the
  log-masses of a rounded Gaussian of parameter r and of a discrete one of
  variance r^2 + 1/12 differ by at most (y^4 / 2880 + y^2 / 150 + 1/300) / r^4,
  so the distributions differ by at most r^-4 / 100.

  Args:
    num_values: number of values released in each step.
    num_steps: number of steps.
  """
  errors.check_at_least('num_values', num_values, 0)
  errors.check_at_least('num_steps', num_steps, 0)
  table = _noise_table()
  inner = _STDDEV * math.sqrt(_INNER_SQUARE)
  per_value = (3 * table.total_variation + 1e-2 * _LEAST_RATIO**-4
               + integers.convolution_variation(_STDDEV, _STDDEV, _INNER)
               + integers.convolution_variation(inner, _STDDEV, _MOST_OUTER))
  return num_steps * (num_values * per_value
                      + integers.tie_variation(table, 3 * num_values))


def sum_error(num_terms: int) -> float:
  """Returns a bound on a float32 sum's extra sensitivity, as a multiple of D.

  Let n terms of norm at most D be added in any order, with unit roundoff u. The
  error is at most n u / (1 - n u) times the sum of their magnitudes, hence n D
  times this factor in l2, in each of two neighbouring data sets. No summation
  order in use comes close: blocks, trees and alternating signs leave errors of
  a few u. For 256 terms the bound is 0.8 percent.

  Args:
    num_terms: public bound on the number of terms.
  """
  errors.check_at_least('num_terms', num_terms, 0)
  unit = num_terms * 2.0**-24
  if unit >= 1:
    raise ValueError(f'no bound for a float32 sum of {num_terms} terms')
  return 2 * num_terms * unit / (1 - unit)


@functools.cache
def _noise_table() -> NoiseTable:
  """Returns the table that Z1, Z2 and Z3 are drawn from."""
  return integers.discrete_gaussian(_STDDEV)
