"""Smooth sensitivity: noise scaled to the data, with a private scale.

Noise scaled to the local sensitivity leaks the records by its scale: for one of
two neighbours it may be 0. A beta-smooth upper bound S on the local
sensitivity, with S(X) <= e^beta S(X') for neighbours, can be used with noise
whose density changes little under shifts and dilations. Source: Nissim,
Raskhodnikova and Smith (2007; named in Lalanne 2023, section 2.3; item
MECH-08).

Statement. Adding S(X) / a times Cauchy noise Z, of density 1 / (pi (1 + z^2)),
is (a + beta)-DP.

Proof:
1. In units of the scale S(X) / a, the outputs for neighbours differ by a shift
  of at most a and a dilation e^l with |l| <= beta.
2. Shift: the slope of ln(1 + z^2) is at most 1, so a shift by at most a changes
  the log-density by at most a.
3. Dilation: the slope of ln(1 + z^2) in ln z lies in [0, 2], and the density of
  e^l z gains the factor e^l. So the log-density changes by l minus a number
  between 0 and 2 l, hence by at most |l| <= beta.
4. Together the log-density changes by at most a + beta.
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

# Terms below this fraction of the range are replaced by it.
_LEAST = 2.0**-20


def local_sensitivity(ordered: Array, rank: int, *, lower: float,
                      upper: float) -> Array:
  """Returns how far one rank's record moves if one record is replaced.

  Do not scale noise by it: that would leak the records, see the module.

  Args:
    ordered: records [n] in [lower, upper], in increasing order.
    rank: rank of the record, from 1.
    lower: lower end of the range.
    upper: upper end of the range.
  """
  return smooth_sensitivity(ordered, rank, lower=lower, upper=upper,
                            smoothing=math.inf)


def smooth_sensitivity(ordered: Array, rank: int, *, lower: float,
                       upper: float, smoothing: float) -> Array:
  """Returns the least beta-smooth bound on the local sensitivity of a rank.

  After k replacements the record of rank r moves by at most the largest gap
  between records l - j = k + 1 ranks apart with j <= r <= l, where the ends of
  the range stand before the first and after the last record. The bound is the
  maximum over k of e^(-k beta) times this gap. Terms below 2^-20 of the range
  are replaced by that value, which keeps the bound smooth and limits the work
  to (20 ln 2 / beta)^2 steps.

  Args:
    ordered: records [n] in [lower, upper], in increasing order.
    rank: r, from 1.
    lower: lower end of the range.
    upper: upper end of the range.
    smoothing: beta > 0.
  """
  num_terms = max(1, min(ordered.shape[0] + 1,
                         math.ceil(-math.log(_LEAST) / smoothing)))
  padding = jnp.ones([num_terms])
  padded = jnp.concatenate([lower * padding, ordered, upper * padding])
  # The record of rank i is at index num_terms + i - 1 of `padded`.
  low = jnp.flip(padded[rank - 1:rank + num_terms])
  high = padded[rank + num_terms - 1:rank + 2 * num_terms]
  steps = jnp.arange(num_terms + 1)
  # Row i, column j: ranks r - i and r + j, after i + j - 1 replacements.
  replaced = jnp.maximum(steps[:, None] + steps[None] - 1, 0)
  # The cap keeps an infinite smoothing from making NaN of inf * 0.
  weights = jnp.where(replaced < num_terms, jnp.exp(
      -min(smoothing, 100.0) * replaced.astype(jnp.float32)), 0.0)
  # All omitted terms are at most this.
  least = (upper - lower) * math.exp(-smoothing * num_terms)
  return jnp.maximum(jnp.max((high[None] - low[:, None]) * weights), least)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmoothSensitivityQuantile:
  """Releases a quantile with Cauchy noise scaled to the records.

  Guarantee: epsilon-DP under REPLACE_ONE, in real arithmetic; the release is
  clipped to the range and rounded to a public grid on it.

  Attributes:
    lower: lower end of the range, public; smaller records are clipped to it.
    upper: upper end of the range, likewise.
    num_examples: n, public.
    epsilon: budget of one release, positive.
    smoothing: beta, below epsilon: the part of epsilon that protects the noise
      scale; the rest protects the value.
    prob: quantile level p in (0, 1]; the target is the record of rank ceil(n
      p), at 1/2 the lower median.
    num_cells: number of cells of the grid, at most 2^20.
  """
  lower: float
  upper: float
  num_examples: int
  epsilon: float
  smoothing: float
  prob: float = 0.5
  num_cells: int = 2**16

  def __post_init__(self) -> None:
    inverse.check_quantile(self.lower, self.upper, self.num_examples,
                           self.prob, self.num_cells)
    errors.check_positive('epsilon', self.epsilon)
    errors.check_positive('smoothing', self.smoothing)
    if self.smoothing >= self.epsilon:
      raise ValueError(f'smoothing must be below epsilon = {self.epsilon}, got '
                       f'{self.smoothing}')

  @property
  def adjacency(self) -> Adjacency:
    """Replace-one: the number of records is public."""
    return Adjacency.REPLACE_ONE

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of one release."""
    return accounting.pure_event(epsilon=self.epsilon,
                                 adjacency=self.adjacency)

  def noise_parameters(self, data: Array) -> tuple[Array, Array]:
    """Returns (centre, scale) of the Cauchy noise before rounding; PRIVATE."""
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
    """Returns the noisy quantile, a float32 scalar, of records [n]."""
    centre, scale = self.noise_parameters(data)
    noisy = centre + scale * draws.standard_cauchy(key, ())
    cell = inverse.on_lattice(noisy, lower=self.lower, upper=self.upper,
                              num_cells=self.num_cells)
    spacing = (self.upper - self.lower) / self.num_cells
    return self.lower + cell.astype(jnp.float32) * spacing

  def risk(self, num_values: int) -> None:
    """Returns None: the noise scale depends on the gaps between records."""
    del num_values
