"""A few records in the open: what privacy in total variation allows.

Any estimate from a subset of m of n records, drawn uniformly, has total
variation privacy of level m / n: with probability 1 - m / n the record that
differs is not looked at. The error is that of m records in every dimension, and
m people are told of in full. No event of an accountant says so: that of a
release without any privacy is told. Source: paper 004, Example 2 (item
EXT-SUBS).
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
  """m = floor(n level), at most n.

  Raises:
    ValueError: if not a single record may be looked at.
  """
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_non_negative('level', level)
  # 100 * 0.29 is 28.999999999999996.
  size = min(num_examples, math.floor(num_examples * level * (1 + 1e-12)))
  if size < 1:
    raise ValueError('level must be at least 1 / num_examples, got '
                     f'{level} for {num_examples}')
  return size


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subsampled:
  """An estimate from `size` of n records.

  Attributes:
    num_examples: n, public.
    level: of total variation privacy, 1 / n at least.
    estimate: records [m, ...] -> estimate; without privacy.
  """
  num_examples: int
  level: float
  estimate: Callable[[Array], Array]

  def __post_init__(self):
    _ = self.size  # Checks.

  @property
  def size(self) -> int:
    """m."""
    return subset_size(self.num_examples, self.level)

  @property
  def guarantee(self) -> TotalVariationPrivacy:
    """m / n; attained where the estimate tells its records."""
    return TotalVariationPrivacy(level=self.size / self.num_examples)

  @property
  def adjacency(self) -> Adjacency:
    """One record is replaced; their number is public."""
    return Adjacency.REPLACE_ONE

  @property
  def event(self) -> accounting.DpEvent:
    """Of no privacy: there is no epsilon for a delta below m / n."""
    return accounting.non_private_event()

  def release(self, key: PRNGKey, data: Array) -> Array:
    """The estimate from a random subset of records [n, ...]."""
    errors.check_records(data.shape[:1], self.num_examples)
    return self.estimate(jax.random.choice(key, data, (self.size,),
                                           replace=False))

  def risk(self, num_values: int) -> None:
    """That of m records, which depends on their law."""
    del num_values
