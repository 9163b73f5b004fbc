"""Smooth sensitivity: noise that fits the records, and hides how well it fits.

Noise scaled to the local sensitivity gives the records away by its scale: of
two neighbours one may have no noise at all. A beta-smooth bound S on it, with
S(X) <= e^beta S(X') for neighbours, can be used with noise whose density
changes little under shifts and dilations alike. Source: Nissim, Raskhodnikova
and Smith 2007 (named in thesis 000, section 2.3; item MECH-08).

Cauchy noise, density 1 / (pi (1 + z^2)), keeps pure privacy. The slope of
ln(1 + z^2) is at most 1, so a shift by a changes its logarithm by at most a. As
a function of ln z it lies in [0, 2], and the density of e^l z gains e^l: a
dilation by e^l changes the logarithm by l - [0, 2] l, at most |l|. With noise
S(X) / a Z neighbours differ by a shift of at most a and a dilation of at most
e^beta: (a + beta)-DP.
"""

import dataclasses
import math

import jax.numpy as jnp

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import draws
from dpjax.privacy import inverse
from dpjax.privacy import ordering
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Array, PRNGKey

_LEAST = 2.0**-20


def local_sensitivity(ordered: Array, rank: int, *, lower: float,
                      upper: float) -> Array:
  """How far the record of a rank moves when one record is replaced.

  Not to scale noise by: see the module.

  Args:
    ordered: records [n] in [lower, upper], in order.
    rank: from 1.
    lower: of the range.
    upper: of the range.
  """
  return smooth_sensitivity(ordered, rank, lower=lower, upper=upper,
                            smoothing=math.inf)


def smooth_sensitivity(ordered: Array, rank: int, *, lower: float,
                       upper: float, smoothing: float) -> Array:
  """The least beta-smooth bound on the local sensitivity of one rank.

  After k replacements the record of rank r moves by at most the largest gap
  between records l - j = k + 1 ranks apart with j <= r <= l, where beyond the
  first and the last stand the ends of the range: the maximum over k of e^(-k
  beta) times that. Terms below 2^-20 of the range are replaced by that, which
  keeps it smooth and of (20 ln 2 / beta)^2 steps at most.

  Args:
    ordered: records [n] in [lower, upper], in order.
    rank: r, from 1.
    lower: of the range.
    upper: of the range.
    smoothing: beta > 0.
  """
  num_terms = max(1, min(ordered.shape[0] + 1,
                         math.ceil(-math.log(_LEAST) / smoothing)))
  beyond = jnp.ones([num_terms])
  padded = jnp.concatenate([lower * beyond, ordered, upper * beyond])
  # The record of rank i stands at num_terms + i - 1.
  low = jnp.flip(padded[rank - 1:rank + num_terms])
  high = padded[rank + num_terms - 1:rank + 2 * num_terms]
  steps = jnp.arange(num_terms + 1)
  replaced = jnp.maximum(steps[:, None] + steps[None] - 1, 0)
  weights = jnp.where(replaced < num_terms, jnp.exp(
      -min(smoothing, 100.0) * replaced.astype(jnp.float32)), 0.0)
  least = (upper - lower) * math.exp(-smoothing * num_terms)
  return jnp.maximum(jnp.max((high[None] - low[:, None]) * weights), least)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmoothSensitivityQuantile:
  """A quantile of records on a public range, with Cauchy noise that fits.

  Guarantee: epsilon-DP under REPLACE_ONE, for real arithmetic; what is released
  is clipped to the range and rounded to a public grid on it.

  Attributes:
    lower: of the range; records below it count as it.
    upper: of the range, likewise.
    num_examples: n, public.
    epsilon: of one release.
    smoothing: beta, the part of epsilon that hides the scale; the rest hides
      the value.
    prob: p in (0, 1]; the record of rank ceil(n p) is meant, at 1/2 the lower
      median.
    num_cells: of the grid, at most 2^20.
  """
  lower: float
  upper: float
  num_examples: int
  epsilon: float
  smoothing: float
  prob: float = 0.5
  num_cells: int = 2**16

  def __post_init__(self):
    inverse.check_quantile(self.lower, self.upper, self.num_examples,
                           self.prob, self.num_cells)
    errors.check_positive('epsilon', self.epsilon)
    errors.check_positive('smoothing', self.smoothing)
    if self.smoothing >= self.epsilon:
      raise ValueError(f'smoothing must be below epsilon = {self.epsilon}, got '
                       f'{self.smoothing}')

  @property
  def adjacency(self) -> Adjacency:
    """One record is replaced; their number is public."""
    return Adjacency.REPLACE_ONE

  @property
  def event(self) -> accounting.DpEvent:
    """What one release costs."""
    return accounting.pure_event(epsilon=self.epsilon,
                                 adjacency=self.adjacency)

  def law(self, data: Array) -> tuple[Array, Array]:
    """(centre, scale) of the Cauchy distribution before rounding; private."""
    errors.check_records(data.shape, self.num_examples)
    spacing = (self.upper - self.lower) / self.num_cells
    points = ordering.sort(inverse.on_lattice(
        data, lower=self.lower, upper=self.upper, num_cells=self.num_cells))
    rank = inverse.quantile_rank(self.prob, self.num_examples)
    bound = smooth_sensitivity(
        points.astype(jnp.float32), rank, lower=0.0,
        upper=float(self.num_cells), smoothing=self.smoothing)
    centre = self.lower + points[rank - 1].astype(jnp.float32) * spacing
    return centre, bound * (spacing / (self.epsilon - self.smoothing))

  def release(self, key: PRNGKey, data: Array) -> Array:
    """The noisy quantile, a float32 scalar, of records [n]."""
    centre, scale = self.law(data)
    noisy = centre + scale * draws.standard_cauchy(key, ())
    cell = inverse.on_lattice(noisy, lower=self.lower, upper=self.upper,
                              num_cells=self.num_cells)
    spacing = (self.upper - self.lower) / self.num_cells
    return self.lower + cell.astype(jnp.float32) * spacing

  def risk(self, num_values: int) -> None:
    """Unknown without the records, as their gaps decide the scale."""
    del num_values
