"""Gaussian noise on a lattice: float arithmetic that keeps an exact guarantee.

A value is first rounded to the lattice s Z, s a public power of two, and then
noised by s times an integer. Rounding commutes with adding a lattice value v:
v + s round(N(0, sigma^2) / s) *is* v + N(0, sigma^2) rounded, post-processing
of the Gaussian mechanism. So accounting of the latter, Poisson subsampling and
all, holds for the lattice values, which move by at most

  D + sqrt(d) s

where d numbers moved by D in l2: each was moved by rounding by s / 2 at most,
before and after. Under replace-one it is 2 D + sqrt(d) s, less than twice that.
Everything between the rounding and the last product with s is int32.

The integers are Z1 + 104 Z2 + m Z3 with discrete Gaussians of parameter 180
from one table (`integers`) and a public integer m that makes the width, of 2^19
and more. Such a sum is a discrete Gaussian of parameter r, and that is the
rounded Gaussian of r^2 - 1/12, up to `total_variation` in all: 10^9 values add
less than 10^-11 to delta at epsilon 8. What is beyond 2^30 steps is clamped
first, which moves neighbours no further apart.

What is left: the key has to be secret, see `keys`, and what is rounded is a
float32 sum, see `sum_error`.
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
from dpjax.privacy.integers import Law
from dpjax.typing import Array, PRNGKey, PyTree

_STDDEV = 180.0
_INNER = 104
_MOST_OUTER = 11_000
_LEAST_RATIO = 2.0**19
_LARGEST_VALUE = 2.0**30

# (1 + 104^2) 180^2 is the variance of the first two terms.
_INNER_SQUARE = 1 + _INNER**2


def spacing(stddev: Array | float) -> Array:
  """s for noise of `stddev`: a power of two of 2^-20 to 2^-19 of it."""
  return floats.power_of_two_below(stddev) * jnp.float32(1 / _LEAST_RATIO)


def outer_multiplier(stddev: Array, step: Array) -> Array:
  """The integer m, int32, for noise of at least `stddev` on the lattice.

  Args:
    stddev: asked for, from 2^19 to 3.7 * 2^19 of `step`; of more, m stays at
      the largest, and `real_stddev` tells what came of it.
    step: s.
  """
  ratio = stddev / (step * jnp.float32(_STDDEV))
  wanted = jnp.ceil(jnp.sqrt(jnp.square(ratio) - _INNER_SQUARE))
  return jnp.clip(wanted, 1, _MOST_OUTER).astype(jnp.int32)


def real_stddev(outer: Array, step: Array) -> Array:
  """Standard deviation of the Gaussian that is rounded; float32.

  The 1/12 by which its square is less, in s^2, is below float32.
  """
  square = jnp.square(outer.astype(jnp.float32)) + _INNER_SQUARE
  return step * jnp.float32(_STDDEV) * jnp.sqrt(square)


def rounded(values: Array, step: Array) -> Array:
  """Values in units of s, int32, within 2^30 of zero; NaN counts as zero."""
  units = jnp.round(values * floats.inverse_power_of_two(step))
  units = jnp.where(jnp.isnan(units), 0.0, units)
  return jnp.clip(units, -_LARGEST_VALUE, _LARGEST_VALUE).astype(jnp.int32)


def add_noise(key: PRNGKey, values: PyTree, steps: PyTree,
              outers: PyTree) -> PyTree:
  """Values on the lattice, plus noise on it; as float32, by rounding again.

  Args:
    key: fresh for this call.
    values: pytree of float32 arrays.
    steps: spacings s, a tree prefix of `values`; powers of two. Where s is 0,
      zeros are released.
    outers: `outer_multiplier` of each, of the structure of `steps`.
  """
  noise = tree.map_blocks(
      lambda outer, near, middle, far: near + _INNER * middle + outer * far,
      outers, *_draws(key, values))
  return tree.map_blocks(
      lambda step, value, drawn: (rounded(value, step) + drawn).astype(
          jnp.float32) * step, steps, values, noise)


def _draws(key: PRNGKey, values: PyTree) -> list[PyTree]:
  """Z1, Z2 and Z3 of every value."""
  leaves, structure = jax.tree.flatten(values)
  rows = integers.draw_rows(_law(), key, (3, tree.count(values)))
  ends = list(itertools.accumulate(leaf.size for leaf in leaves))
  return [
      structure.unflatten([
          row[end - leaf.size:end].reshape(leaf.shape)
          for leaf, end in zip(leaves, ends, strict=True)]) for row in rows]


def total_variation(*, num_values: int, num_steps: int) -> float:
  """Of the noise of a run from rounded Gaussian noise, at most.

  Of each value: three tables, two convolutions, and Sheppard's correction.
  The logarithms of the masses at x = y r of a rounded Gaussian of parameter r
  and of a discrete one of r^2 + 1/12 differ by at most
  (y^4 / 2880 + y^2 / 150 + 1/300) / r^4, hence the laws by r^-4 / 100.

  Args:
    num_values: released in each step.
    num_steps: that are released.
  """
  errors.check_at_least('num_values', num_values, 0)
  errors.check_at_least('num_steps', num_steps, 0)
  law = _law()
  inner = _STDDEV * math.sqrt(_INNER_SQUARE)
  value = (3 * law.total_variation + 1e-2 * _LEAST_RATIO**-4
           + integers.convolution_variation(_STDDEV, _STDDEV, _INNER)
           + integers.convolution_variation(inner, _STDDEV, _MOST_OUTER))
  return num_steps * (num_values * value
                      + integers.tie_variation(law, 3 * num_values))


def sum_error(num_terms: int) -> float:
  """How much further a float32 sum moves than an exact one, at most, over D.

  In whatever order n terms of norm D are added, with unit roundoff u, the error
  is below n u / (1 - n u) times the sum of their magnitudes: n D of that in l2,
  for each of two neighbours. It is reached by no order in use: blocks, trees
  and signs that alternate leave a few u. Of 256 terms 0.8 percent.

  Args:
    num_terms: public bound of what is added.
  """
  errors.check_at_least('num_terms', num_terms, 0)
  unit = num_terms * 2.0**-24
  if unit >= 1:
    raise ValueError(f'no bound for a float32 sum of {num_terms} terms')
  return 2 * num_terms * unit / (1 - unit)


@functools.cache
def _law() -> Law:
  return integers.discrete_gaussian(_STDDEV)
