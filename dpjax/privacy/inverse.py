"""Inverse sensitivity mechanism: scores count the records in the way.

A candidate o has the score -min{d(X, X') : f(X') = o}: minus the number of
records that must change until o is the answer. Scores change by at most 1
between neighbouring data sets, whatever f is, and the exponential mechanism
chooses a candidate. Source: Asi and Duchi (2020); Lalanne (2023, Example
2.3.11; item MECH-07).
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import draws
from dpjax.privacy import ordering
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.selection import ExponentialMechanism
from dpjax.typing import Array, PRNGKey


def quantile_rank(prob: float, num_examples: int) -> int:
  """Returns the rank r = ceil(n p), from 1, of the quantile among n records."""
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_probability('prob', prob)
  # Guards against rounding: 100 * 0.29 is slightly more than 29 in floats.
  return max(1, math.ceil(num_examples * prob - 1e-9))


def on_lattice(data: Array, *, lower: float, upper: float,
               num_cells: int) -> Array:
  """Returns records [n] as int32 cells, 0 at `lower`, `num_cells` at `upper`.

  Values outside the bounds are clipped to them, NaN becomes `lower`. Each
  record is treated separately, so neighbouring data sets stay neighbours.
  """
  position = (data.astype(jnp.float32) - lower) / (upper - lower)
  position = jnp.clip(jnp.where(jnp.isnan(position), 0.0, position), 0.0, 1.0)
  return jnp.round(position * num_cells).astype(jnp.int32)


def check_quantile(lower: float, upper: float, num_examples: int, prob: float,
                   num_cells: int) -> None:
  """Checks the parameters of a quantile; raises a one-line `ValueError`."""
  errors.check_range(lower, upper)
  quantile_rank(prob, num_examples)
  errors.check_at_least('num_cells', num_cells, 1)
  if num_cells > 2**20:
    raise ValueError(f'num_cells must be at most 2^20, got {num_cells}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class InverseSensitivityQuantile:
  """Releases a quantile of records on a public range.

  The range is divided into cells, and the midpoint of one cell is released.
  With i of n records below it, a cell becomes the record of rank r after
  replacing r - i records if i < r, and i - r + 1 records if not. So all cells
  between two ordered records have the same score, and a draw takes time that
  depends on n only. Records are rounded to ends of cells, so the release
  reveals nothing of lower bits. Guarantee: epsilon-DP under REPLACE_ONE.

  Attributes:
    lower: lower end of the range, public; smaller records are clipped to it.
    upper: upper end of the range, likewise.
    num_examples: n, public.
    epsilon: budget of one release, positive.
    prob: quantile level p in (0, 1]; the target is the record of rank ceil(n
      p), at 1/2 the lower median.
    num_cells: number of cells, at most 2^20.
  """
  lower: float
  upper: float
  num_examples: int
  epsilon: float
  prob: float = 0.5
  num_cells: int = 2**16

  def __post_init__(self) -> None:
    check_quantile(self.lower, self.upper, self.num_examples, self.prob,
                   self.num_cells)
    errors.check_positive('epsilon', self.epsilon)

  @property
  def adjacency(self) -> Adjacency:
    """Replace-one: the number of records is public."""
    return Adjacency.REPLACE_ONE

  @property
  def selection(self) -> ExponentialMechanism:
    """Exponential mechanism over all cells, equivalent to `release`."""
    return ExponentialMechanism(sensitivity=1.0, epsilon=self.epsilon,
                                adjacency=self.adjacency)

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of one release."""
    return self.selection.event

  def log_probs(self, data: Array) -> np.ndarray:
    """Returns the log-probabilities of all cells [num_cells], float64."""
    ordered = ordering.sort(self._points(data))
    below = jnp.searchsorted(ordered, jnp.arange(self.num_cells), side='right')
    return self.selection.log_probs(self._scores(below))

  def release(self, key: PRNGKey, data: Array) -> Array:
    """Returns the midpoint of a cell, a float32 scalar, for records [n]."""
    ordered = ordering.sort(self._points(data))
    edges = jnp.concatenate([jnp.zeros([1], jnp.int32), ordered,
                             jnp.full([1], self.num_cells, jnp.int32)])
    sizes = (edges[1:] - edges[:-1]).astype(jnp.float32)
    choice, place = jax.random.split(key)
    # Log-weights of the n + 1 gaps between records: score and number of cells.
    # A gap without cells has log-weight -inf, so it is never chosen.
    weights = (self._scores(jnp.arange(self.num_examples + 1))
               * self.selection.rate + jnp.log(sizes))
    noise = draws.standard_gumbel(choice, weights.shape)
    chosen = draws.place_of_largest(weights + noise)
    # Cells between two records have one score: draw one of them uniformly.
    cell = jax.random.randint(place, (), edges[chosen], edges[chosen + 1])
    spacing = (self.upper - self.lower) / self.num_cells
    return self.lower + (cell.astype(jnp.float32) + 0.5) * spacing

  def risk(self, num_values: int) -> None:
    """Returns None: the error depends on the gaps between records."""
    del num_values

  def _points(self, data: Array) -> Array:
    """Returns the records as cells, int32."""
    errors.check_records(data.shape, self.num_examples)
    return on_lattice(data, lower=self.lower, upper=self.upper,
                      num_cells=self.num_cells)

  def _scores(self, below: Array) -> Array:
    """Returns scores of cells that have `below` records below them."""
    lead = below - quantile_rank(self.prob, self.num_examples)
    return -jnp.where(lead < 0, -lead, lead + 1).astype(jnp.float32)
