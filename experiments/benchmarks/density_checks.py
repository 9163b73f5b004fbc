"""Whether what is timed has the law it should have, and errs as it should.

Draws from one data set are compared with those in NumPy; of a linear estimator
the mean error over data sets is held against its closed form besides.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dpjax.stats.density_methods import estimate
from experiments.benchmarks import density_peers as peers
from experiments.benchmarks import density_work as work
from experiments.benchmarks import methods
from experiments.benchmarks import quantile_checks
from experiments.benchmarks.program import Spec

_COLUMNS = 4
"""Coefficients whose laws are compared."""

_MOST_ERROR = work.density().energy
"""Of the uniform density."""


class Finding(NamedTuple):
  """What a check saw.

  Attributes:
    error: mean integrated squared error, from one data set.
    least_p_value: of `quantile_checks.least_p_value`; NaN if there is no peer.
    passed: whether the laws are the same, and less is lost than by the uniform
      density.
  """
  error: float
  least_p_value: float
  passed: bool

  @property
  def cells(self) -> tuple[str, ...]:
    """As it is printed."""
    return tuple('-' if np.isnan(value) else f'{value:.1e}'
                 for value in self[:2])


def make_spec(model: str, method: str, *, size: int) -> Spec:
  """What is checked."""
  return Spec(suite='densities', model=model, size=size, method=method)


def judge(spec: Spec, audit: Mapping[str, Any]) -> Finding:
  """Compares draws of a program with those of NumPy.

  Args:
    spec: of the program.
    audit: 'draws' [R, c] from the one data set of `density_work.checked`.
  """
  given, draws = work.of_model(spec.model, spec.size), audit['draws']
  error = lambda found: estimate.errors_of(given.made.kind, found,
                                           work.density())
  errors = error(draws)
  close = float(errors.mean()) < _MOST_ERROR
  if methods.inapplicable('densities', 'numpy', spec.model):
    return Finding(float(errors.mean()), np.nan, close)
  wanted = peers.laws(spec.model, spec.size)(
      np.random.default_rng(4), work.checked(given))
  columns = np.unique(np.linspace(0, wanted.shape[1] - 1, _COLUMNS).astype(int))
  least = quantile_checks.least_p_value(
      _real(draws[:, columns]), _real(wanted[:, columns]), errors,
      error(wanted))
  return Finding(float(errors.mean()), least,
                 close and least >= quantile_checks.ERROR_RATE)


def _real(values: np.ndarray) -> np.ndarray:
  """Real and imaginary parts side by side."""
  return (np.concatenate([values.real, values.imag], 1)
          if np.iscomplexobj(values) else values)
