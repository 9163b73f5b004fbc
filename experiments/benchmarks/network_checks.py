"""Checks that the methods of `--suite=models` compute the right sums."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.benchmarks.program import Spec

_TOLERANCE = 1e-4
# Below the norms of most records, so that wrong norms are seen.
_CLIP_NORM = 0.1


class Finding(NamedTuple):
  """Result of a check.

  Attributes:
    error: relative error of the sums, of the worst parameter.
    passed: whether the error is within rounding.
  """
  error: float
  passed: bool

  @property
  def cells(self) -> tuple[str, ...]:
    """Returns the cells of this finding in the printed table."""
    return (f'{self.error:.1e}',)


def make_spec(model: str, method: str, *, size: int) -> Spec:
  """Returns the program to check."""
  return Spec(suite='models', model=model, size=size, method=method,
              clip_norm=_CLIP_NORM)


def judge(spec: Spec, audit: Mapping[str, Any]) -> Finding:
  """Compares the sums of a method with those of a loop over records.

  Args:
    spec: specification of the program.
    audit: trees of arrays: 'sums' of the method, and 'wanted'.
  """
  del spec
  pairs = [(np.asarray(ours, np.float64), theirs) for ours, theirs in zip(
      *(jax.tree.leaves(audit[name]) for name in ('sums', 'wanted')),
      strict=True)]
  # A parameter whose gradients nearly cancel may be off by rounding.
  floor = 1e-3 * np.sqrt(sum(np.sum(theirs**2) for _, theirs in pairs))
  error = max(float(np.linalg.norm(ours - theirs) / (
      np.linalg.norm(theirs) + floor)) for ours, theirs in pairs)
  return Finding(error, error <= _TOLERANCE)
