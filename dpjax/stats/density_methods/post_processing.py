"""Post-processing of noisy heights of equal bins.

Heights [..., m] are those of a density if they are nonnegative and have a mean
of 1. Projection on a convex set that contains the truth never increases the
distance to it (item DEN-B9). All functions are jittable, along the last axis.
"""

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.stats import frequencies
from dpjax.stats.quantile_methods import inversion
from dpjax.typing import Array

SHAPES = ('increasing', 'decreasing', 'unimodal')
POSTS = ('none', 'clip', 'simplex', 'james_stein', *SHAPES)


def fix_mass(heights: Array) -> Array:
  """Shifts heights to a mean of 1: the nearest heights of that mean."""
  return heights + (1 - jnp.mean(heights, -1, keepdims=True))


def clip(heights: Array) -> Array:
  """Sets negative heights to 0 and divides by the mean; all 1 if none is left.
  """
  positive = jax.nn.relu(heights)
  mean = jnp.mean(positive, -1, keepdims=True)
  # The inner `where` keeps the division defined in the branch not taken.
  return jnp.where(mean > 0, positive / jnp.where(mean > 0, mean, 1.0), 1.0)


def simplex(heights: Array) -> Array:
  """Returns the nearest density; never farther from any other density."""
  size = heights.shape[-1]
  return size * _on_simplex(heights / size)


_on_simplex = jnp.vectorize(frequencies.project_on_simplex,
                            signature='(m)->(m)')


def james_stein(heights: Array, noise: Array) -> Array:
  """Shrinks heights towards the uniform density by positive-part James-Stein.

  1 + (v - 1) max(0, 1 - noise / mean (v - 1)^2).

  Args:
    heights: v [..., m].
    noise: variance of a height, public; m^2 V / n^2 + m / n bounds it on
      average.
  """
  spread = jnp.mean(jnp.square(heights - 1), -1, keepdims=True)
  factor = jax.nn.relu(1 - noise / jnp.where(spread > 0, spread, 1.0))
  return 1 + (heights - 1) * jnp.where(spread > 0, factor, 0.0)


def monotone(heights: Array, *, decreasing: bool = False) -> Array:
  """Returns the nearest increasing (or decreasing) density.

  It is the nearest density to the isotonic regression, because a shift and a
  cut at 0 keep pooled heights equal.
  """
  if decreasing:
    return jnp.flip(monotone(jnp.flip(heights, -1)), -1)
  return simplex(_isotonic(heights))


_isotonic = jnp.vectorize(inversion.isotonic, signature='(m)->(m)')


def unimodal(heights: Array) -> Array:
  """Returns the nearest density that increases up to some bin, then decreases.

  Isotonic fits of the first k heights, for all k, are running minima of one
  row, so all m positions of the mode take O(m^2 log m).
  """
  return _unimodal(heights)


def _rising(heights: Array) -> Array:
  """Returns isotonic fits [m, m] of the heights up to each place; inf beyond.
  """
  places = jnp.arange(heights.shape[0])
  head = places[None, :] <= places[:, None]
  last = inversion.last_fits(heights)
  return jax.lax.cummin(jnp.where(head, last[None, :], jnp.inf), axis=1,
                        reverse=True)


def _of_all_modes(heights: Array) -> Array:
  """Returns fits [m, m] that increase up to each place and then decrease."""
  falling = jnp.flip(_rising(jnp.flip(heights)))
  # Row k of the flipped fits begins at place k; the mode before it is k - 1.
  falling = jnp.roll(falling, -1, 0).at[-1].set(jnp.inf)
  return jnp.minimum(_rising(heights), falling)


def _nearest_unimodal(heights: Array) -> Array:
  """Returns the nearest of the densities of all modes."""
  # Projection keeps the order of heights, so each fit stays unimodal.
  fits = simplex(_of_all_modes(heights))
  distances = jnp.sum(jnp.square(fits - heights[None, :]), -1)
  return fits[jnp.argmin(distances)]


_unimodal = jnp.vectorize(_nearest_unimodal, signature='(m)->(m)')


def processed(heights: Array, post: str, noise: Array) -> Array:
  """Returns heights after one of `POSTS`.

  Args:
    heights: [..., m].
    post: one of `POSTS`.
    noise: variance of a height, for 'james_stein'.
  """
  errors.check_choice('post', post, POSTS)
  if post == 'james_stein':
    return james_stein(heights, noise)
  if post in ('increasing', 'decreasing'):
    return monotone(heights, decreasing=post == 'decreasing')
  return {'none': lambda values: values, 'clip': clip, 'simplex': simplex,
          'unimodal': unimodal}[post](heights)
