"""Bands of private ROC curves and intervals of areas, by drawing anew.

Post-processing: what was released stands for the records, the release is drawn
again and again from it, and how far the draws are off tells how far the release
may be. The law of the noise is public, so that is a parametric bootstrap. Two
things can be covered, and they differ:

  records: the curve of these very records. Only noise is drawn.
  population: the curve of what the records are a sample of, on the same bins.
    Records are drawn too, Poisson in each cell, which given their numbers is
    sampling within the classes.

Intervals are as wide on either side as the draws miss on whichever: counts that
are made nonnegative are biased, and a bias that is estimated and taken off, as
basic intervals do, made curves worse (coverage .7 instead of .95).
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.stats import intervals
from dpjax.stats import precision
from dpjax.stats import roc
from dpjax.stats.roc import RocMechanism
from dpjax.typing import Array, PRNGKey, PyTree

OF = ('records', 'population')


class Bands(NamedTuple):
  """What is known of a curve and of the area under it.

  Attributes:
    fprs: [M] rates of false positives.
    tpr: [M] rates of true ones there; low and high hold at all of them at once.
    auc: [] the area, with an interval of its own.
  """
  fprs: np.ndarray
  tpr: intervals.Estimate
  auc: intervals.Estimate


def cells(ranks: Array) -> Array:
  """Counts [2, N] >= 0 that ranks stand for; raw ones are made monotone."""
  rising = jax.lax.cummax(jnp.maximum(ranks, 0), axis=1)
  return jnp.diff(rising, axis=1, prepend=jnp.zeros_like(rising[:, :1]))


def redrawn(draw: roc.Draw, of: str, num_draws: int) -> roc.Draw:
  """(key, cells [2, N], parameters) -> ranks [B, 2, N]."""
  def one(key: PRNGKey, expected: Array, parameters: PyTree) -> Array:
    noise_key, records_key = jax.random.split(key)
    if of == 'population':
      expected = poisson(records_key, expected)
    return draw(noise_key, expected, parameters)

  def law(key: PRNGKey, expected: Array, parameters: PyTree) -> Array:
    return jax.vmap(one, (0, None, None))(
        jax.random.split(key, num_draws), expected, parameters)
  return law


def poisson(key: PRNGKey, expected: Array) -> Array:
  """Counts of records where so many are expected, as float64."""
  return jax.random.poisson(key, expected).astype(expected.dtype)


@functools.cache
def _bands(draw: roc.Draw, positive: str, of: str, num_draws: int):
  def law(key: PRNGKey, ranks: Array, thresholds: Array, fprs: Array,
          confidence: Array, parameters: PyTree) -> Bands:
    def curve(ranks):
      return roc.of_ranks(ranks, thresholds, positive=positive)

    origin = cells(ranks)
    released = curve(ranks)
    drawn = curve(redrawn(draw, of, num_draws)(key, origin, parameters))
    # Draws miss what they were drawn from, of which raw ranks are not a curve.
    start = curve(jnp.cumsum(origin, 1))
    band = simultaneous(
        roc.tpr_at(released, fprs),
        roc.tpr_at(drawn, fprs) - roc.tpr_at(start, fprs)[None], confidence)
    auc = separate(released.auc, drawn.auc - start.auc, confidence)
    return Bands(fprs, intervals.clipped(band, 0.0, 1.0),
                 intervals.clipped(auc, 0.0, 1.0))
  return jax.jit(law)


@precision.in_float64
def bands(mechanism: RocMechanism, key: PRNGKey, ranks: Array, *,
          confidence: float = 0.95, of: str = 'population',
          fprs: np.ndarray | None = None, num_draws: int = 400) -> Bands:
  """A band that holds everywhere at once, and an interval of the area.

  The band is vertical: rates of true positives at given rates of false ones, on
  straight lines between points. It is as wide as the root mean square by which
  draws miss there, times one factor.

  Args:
    mechanism: what released.
    key: for the draws; not that of the release.
    ranks: [2, N] of `release_ranks` or `estimate`.
    confidence: of the band as a whole, and of the interval; nominal. Of .95,
      .88 to .97 was found where n epsilon is in the thousands.
    of: 'records' or 'population', see above.
    fprs: [M] in (0, 1) where the band is told; None for 1/20, ..., 19/20.
    num_draws: B.

  Raises:
    ValueError: for values outside their range.
  """
  errors.check_open_unit('confidence', confidence)
  errors.check_choice('of', of, OF)
  errors.check_at_least('num_draws', num_draws, 20)
  fprs = np.arange(1, 20) / 20 if fprs is None else np.asarray(fprs, np.float64)
  if fprs.ndim != 1 or not np.all((0 < fprs) & (fprs < 1)):
    raise ValueError(f'fprs must lie strictly between 0 and 1, got {fprs}')
  law = _bands(mechanism.draw, mechanism.positive, of, num_draws)
  return jax.tree.map(np.asarray, law(
      key, precision.double(ranks), mechanism.grid.thresholds, fprs,
      np.float64(confidence), mechanism.parameters))


def simultaneous(value: Array, misses: Array,
                 confidence: Array | float) -> intervals.Estimate:
  """Around values [M], a band that misses of draws [B, M] leave as a whole."""
  size = jnp.sqrt(jnp.mean(jnp.square(misses), 0))
  scaled = jnp.abs(misses) / jnp.where(size > 0, size, 1.0)[None]
  factor = jnp.quantile(jnp.max(scaled, 1), confidence)
  return intervals.symmetric(value, factor * size)


def separate(value: Array, misses: Array,
             confidence: Array | float) -> intervals.Estimate:
  """An interval around each of values [...], by misses [B, ...] of draws."""
  return intervals.symmetric(value, jnp.quantile(jnp.abs(misses), confidence,
                                                 axis=0))
