"""Total variation privacy by using only a random subset of the records.

Any estimate from a uniformly drawn subset of m of n records has total variation
privacy of level m / n: with probability 1 - m / n the differing record is not
in the subset. The error is that of m records in every dimension, but the m
chosen records may be revealed in full. No accounting event expresses this, so
the event is that of a release without privacy. Source: Barber and Duchi (2014,
Example 2) (item EXT-SUBS).
"""

from collections.abc import Callable
import dataclasses
import math

import jax

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.notions import TotalVariationPrivacy
from dpjax.typing import Array, PRNGKey


def subset_size(num_examples: int, level: float) -> int:
  """Returns m = floor(n level), at most n.

  Raises:
    ValueError: if the level allows not even one record.
  """
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_non_negative('level', level)
  # The slack offsets rounding: 100 * 0.29 is 28.999999999999996 in floats.
  size = min(num_examples, math.floor(num_examples * level * (1 + 1e-12)))
  if size < 1:
    raise ValueError('level must be at least 1 / num_examples, got '
                     f'{level} for {num_examples}')
  return size


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subsampled:
  """An estimate from a random subset of `size` of n records.

  Attributes:
    num_examples: n, public.
    level: level of total variation privacy, at least 1 / n.
    estimate: records [m, ...] -> estimate; without privacy.
  """
  num_examples: int
  level: float
  estimate: Callable[[Array], Array]

  def __post_init__(self) -> None:
    _ = self.size  # Checks.

  @property
  def size(self) -> int:
    """Number of records in the subset, m."""
    return subset_size(self.num_examples, self.level)

  @property
  def guarantee(self) -> TotalVariationPrivacy:
    """Total variation m / n; attained if the estimate reveals its records."""
    return TotalVariationPrivacy(level=self.size / self.num_examples)

  @property
  def adjacency(self) -> Adjacency:
    """REPLACE_ONE: one record is replaced; n is public."""
    return Adjacency.REPLACE_ONE

  @property
  def event(self) -> accounting.DpEvent:
    """No privacy: no epsilon holds with a delta below m / n."""
    return accounting.non_private_event()

  def release(self, key: PRNGKey, data: Array) -> Array:
    """Returns the estimate from a random subset of records [n, ...]."""
    errors.check_records(data.shape[:1], self.num_examples)
    return self.estimate(jax.random.choice(key, data, (self.size,),
                                           replace=False))

  def risk(self, num_values: int) -> None:
    """Returns None: the risk of m records depends on their distribution."""
    del num_values
