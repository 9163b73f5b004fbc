"""Checks the distribution and the error of density estimates.

Draws from one data set are compared with draws in NumPy.
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
"""Number of coefficients whose distributions are compared."""

_MOST_ERROR = work.density().energy
"""Error of the uniform density, which every estimate must beat."""


class Finding(NamedTuple):
  """Result of a check.

  Attributes:
    error: mean integrated squared error of draws from one data set.
    least_p_value: `quantile_checks.least_p_value`; NaN if there is no peer.
    passed: whether the distributions are the same, and the error is below that
      of the uniform density.
  """
  error: float
  least_p_value: float
  passed: bool

  @property
  def cells(self) -> tuple[str, ...]:
    """Returns the cells of this finding in the printed table."""
    return tuple('-' if np.isnan(value) else f'{value:.1e}'
                 for value in self[:2])


def make_spec(model: str, method: str, *, size: int) -> Spec:
  """Returns the program to check."""
  return Spec(suite='densities', model=model, size=size, method=method)


def judge(spec: Spec, audit: Mapping[str, Any]) -> Finding:
  """Compares draws of a program with those of NumPy.

  Args:
    spec: specification of the program.
    audit: 'draws' [R, c] from the one data set of `density_work.checked`.
  """
  given, draws = work.of_model(spec.model, spec.size), audit['draws']
  error = lambda coefficients: estimate.errors_of(
      given.estimator.kind, coefficients, work.density())
  errors = error(draws)
  close = float(errors.mean()) < _MOST_ERROR
  if methods.inapplicable('densities', 'numpy', spec.model):
    return Finding(float(errors.mean()), np.nan, close)
  wanted = peers.sampler(spec.model, spec.size)(
      np.random.default_rng(4), work.checked(given))
  columns = np.unique(np.linspace(0, wanted.shape[1] - 1, _COLUMNS).astype(int))
  least = quantile_checks.least_p_value(
      _real(draws[:, columns]), _real(wanted[:, columns]), errors,
      error(wanted))
  return Finding(float(errors.mean()), least,
                 close and least >= quantile_checks.ERROR_RATE)


def _real(values: np.ndarray) -> np.ndarray:
  """Returns real and imaginary parts side by side."""
  return (np.concatenate([values.real, values.imag], 1)
          if np.iscomplexobj(values) else values)
