"""Inverse sensitivity: candidates scored by how many records stand in the way.

A candidate o has the score -min{d(X, X') : f(X') = o}: minus the number of
records that must change until o is the answer. Scores move by at most 1
between neighbours, whatever f is, and the exponential mechanism chooses.
Source: Asi and Duchi 2020 (thesis 000, Example 2.3.11; item MECH-07).
"""

from collections.abc import Callable, Hashable, Sequence
import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import draws
from dpjax.privacy import neighbours
from dpjax.privacy import ordering
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.selection import ExponentialMechanism
from dpjax.typing import Array, PRNGKey


def scores_by_enumeration(
    function: Callable[[neighbours.Dataset], Hashable],
    dataset: neighbours.Dataset, *, domain: Sequence[Hashable],
    candidates: Sequence[Hashable], sizes: Sequence[int],
    adjacency: Adjacency) -> np.ndarray:
  """Scores [m] of any function on a small domain; -inf out of reach.

  What is out of reach is so from all data sets of these sizes alike.

  Args:
    function: f, of a data set.
    dataset: X.
    domain: values of a record.
    candidates: [m], possible answers.
    sizes: of the data sets on the way.
    adjacency: what one step is.
  """
  found = dict.fromkeys(candidates, -math.inf)
  ways = neighbours.distances(dataset, domain, sizes, adjacency)
  for other, distance in ways.items():
    answer = function(other)
    if answer in found:
      found[answer] = max(found[answer], -float(distance))
  return np.array([found[candidate] for candidate in candidates])


def quantile_rank(prob: float, num_examples: int) -> int:
  """r = ceil(n p): which of n ordered records is the quantile; from 1."""
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_probability('prob', prob)
  # 100 * 0.29 is more than 29.
  return max(1, math.ceil(num_examples * prob - 1e-9))


def on_lattice(data: Array, *, lower: float, upper: float,
               num_cells: int) -> Array:
  """Records [n] as int32 from 0, `lower`, to `num_cells`, `upper`.

  Values beyond the bounds are clipped to them, NaN becomes `lower`: each
  record by itself, so neighbours stay neighbours.
  """
  share = (data.astype(jnp.float32) - lower) / (upper - lower)
  share = jnp.clip(jnp.where(jnp.isnan(share), 0.0, share), 0.0, 1.0)
  return jnp.round(share * num_cells).astype(jnp.int32)


def check_quantile(lower: float, upper: float, num_examples: int, prob: float,
                   num_cells: int) -> None:
  """Refuses what is no quantile on a public range: `ValueError`, one line."""
  errors.check_range(lower, upper)
  quantile_rank(prob, num_examples)
  errors.check_at_least('num_cells', num_cells, 1)
  if num_cells > 2**20:
    raise ValueError(f'num_cells must be at most 2^20, got {num_cells}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class InverseSensitivityQuantile:
  """A quantile of records on a public range, by inverse sensitivity.

  The range is cut into cells, and the middle of one is released. With i of n
  records below it, it is the record of rank r after r - i of them are replaced
  if i < r, and after i - r + 1 if not; so intervals between ordered records
  have one score each, and a draw takes time in n alone. Records are rounded to
  ends of cells, and what is released says nothing of bits below. Guarantee:
  epsilon-DP under REPLACE_ONE.

  Attributes:
    lower: of the range; records below it count as it.
    upper: of the range, likewise.
    num_examples: n, public.
    epsilon: of one release.
    prob: p in (0, 1]; the record of rank ceil(n p) is meant, at 1/2 the lower
      median.
    num_cells: of the range, at most 2^20.
  """
  lower: float
  upper: float
  num_examples: int
  epsilon: float
  prob: float = 0.5
  num_cells: int = 2**16

  def __post_init__(self):
    check_quantile(self.lower, self.upper, self.num_examples, self.prob,
                   self.num_cells)
    errors.check_positive('epsilon', self.epsilon)

  @property
  def adjacency(self) -> Adjacency:
    """One record is replaced; their number is public."""
    return Adjacency.REPLACE_ONE

  @property
  def selection(self) -> ExponentialMechanism:
    """The mechanism among cells of which this is a quick draw."""
    return ExponentialMechanism(sensitivity=1.0, epsilon=self.epsilon,
                                adjacency=self.adjacency)

  @property
  def event(self) -> accounting.DpEvent:
    """What one release costs."""
    return self.selection.event

  def log_probs(self, data: Array) -> np.ndarray:
    """Logarithms of the probabilities of cells [num_cells], float64."""
    ordered = ordering.sort(self._points(data))
    below = jnp.searchsorted(ordered, jnp.arange(self.num_cells), side='right')
    return self.selection.log_probs(self._scores(below))

  def release(self, key: PRNGKey, data: Array) -> Array:
    """The middle of a cell, a float32 scalar, of records [n]."""
    ordered = ordering.sort(self._points(data))
    ends = jnp.concatenate([jnp.zeros([1], jnp.int32), ordered,
                            jnp.full([1], self.num_cells, jnp.int32)])
    sizes = (ends[1:] - ends[:-1]).astype(jnp.float32)
    choice, place = jax.random.split(key)
    weights = (self._scores(jnp.arange(self.num_examples + 1))
               * self.selection.rate + jnp.log(sizes))
    noise = draws.standard_gumbel(choice, weights.shape)
    chosen = draws.place_of_largest(weights + noise)
    cell = jax.random.randint(place, (), ends[chosen], ends[chosen + 1])
    spacing = (self.upper - self.lower) / self.num_cells
    return self.lower + (cell.astype(jnp.float32) + 0.5) * spacing

  def risk(self, num_values: int) -> None:
    """Unknown without the records: it depends on the gaps between them."""
    del num_values

  def _points(self, data: Array) -> Array:
    errors.check_records(data.shape, self.num_examples)
    return on_lattice(data, lower=self.lower, upper=self.upper,
                      num_cells=self.num_cells)

  def _scores(self, below: Array) -> Array:
    """Of what has so many records below it."""
    lead = below - quantile_rank(self.prob, self.num_examples)
    return -jnp.where(lead < 0, -lead, lead + 1).astype(jnp.float32)
