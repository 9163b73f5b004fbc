"""Choices of strategies of correlated noise, and the event of a run."""

import importlib
from typing import Any

import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import strategies


def square_root(bands: int) -> strategies.BandedStrategy:
  """Returns the first bands of the square root of the prefix sum matrix.

  Source: Kalinin and Lampert (2024). It needs no optimisation, and is near the
  best banded strategies for one step per record.
  """
  errors.check_at_least('bands', bands, 1)
  return strategies.BandedStrategy(tuple(_binomials(bands)))


def inverse_square_root(bands: int, num_steps: int
                        ) -> strategies.InverseBandedStrategy:
  """Returns the strategy whose inverse has bands of an inverse square root.

  Source: Kalinin et al. (2025).
  """
  errors.check_at_least('bands', bands, 1)
  coefficients = -_binomials(bands) / (2 * np.arange(bands) - 1)
  return strategies.InverseBandedStrategy(tuple(coefficients), num_steps)


def optimal_banded(bands: int, num_steps: int) -> strategies.BandedStrategy:
  """Returns the banded Toeplitz strategy of least mean square error.

  Needs `pip install dpjax[matrix]`.
  """
  errors.check_at_least('bands', bands, 1)
  errors.check_at_least('num_steps', num_steps, bands)
  toeplitz = _matrix_factorization('toeplitz')
  return strategies.BandedStrategy(_falling(toeplitz.optimize_banded_toeplitz(
      n=num_steps, bands=bands)))


def optimal_buffered(num_steps: int, separation: int
                     ) -> strategies.BufferedStrategy:
  """Returns a buffered strategy of small mean square error.

  Needs `pip install dpjax[matrix]`.

  Args:
    num_steps: T.
    separation: least distance of two steps of a record.
  """
  errors.check_at_least('num_steps', num_steps, 1)
  errors.check_at_least('separation', separation, 1)
  found = _matrix_factorization('buffered_toeplitz').optimize(
      n=num_steps, min_sep=separation, error='mean',
      max_participations=-(-num_steps // separation))
  return strategies.BufferedStrategy(tuple(map(float, found.buf_decay)),
                          tuple(map(float, found.output_scale)), num_steps)


def event(strategy: strategies.Strategy, *, noise_multiplier: float,
          num_steps: int, separation: int, prob: float) -> accounting.DpEvent:
  """Returns the event of the first steps of a run with correlated noise.

  With prob = 1 the steps are one Gaussian release of C g. With prob < 1 the
  steps of a record are Poisson samples; if columns reach at most `separation`
  steps, its contributions are in disjoint outputs of length at most 1, each
  known before the next one: a composition of sampled Gaussian releases
  (Choquette-Choo et al. 2023, Theorem 4).

  Args:
    strategy: C.
    noise_multiplier: standard deviation of z over the norm of a record's
      contribution to a step.
    num_steps: number of steps.
    separation: the possible steps of a record are at least so far apart.
    prob: probability with which a record takes part in each of them.

  Raises:
    ValueError: if amplification by sampling is not known for the strategy, or
      if there are more steps than it serves.
  """
  errors.check_positive('noise_multiplier', noise_multiplier)
  errors.check_probability('prob', prob)
  errors.check_at_least('separation', separation, 1)
  if errors.check_at_least('num_steps', num_steps, 0) == 0:
    return accounting.composed_event([])
  strategies.check_steps(strategy, num_steps)
  if prob == 1:
    return accounting.gaussian_event(
        noise_multiplier=noise_multiplier / strategy.sensitivity(
            num_steps=num_steps, separation=separation))
  if strategy.bands is None or strategy.bands > separation:
    reach = strategy.bands or 'all'
    raise ValueError(
        f'the columns of the strategy reach {reach} steps, more than the '
        f'{separation} between two steps of a record, so it is not known how '
        'much sampling amplifies privacy: take a banded strategy with fewer '
        'bands, or groups that take part as a whole')
  return accounting.poisson_gaussian_event(
      sampling_prob=prob, noise_multiplier=noise_multiplier,
      num_steps=-(-num_steps // separation))


def _binomials(count: int) -> np.ndarray:
  """Returns binomial(2 j, j) / 4^j of j = 0, ..., count - 1."""
  places = np.arange(1, count)
  return np.concatenate([[1.0], np.cumprod((2 * places - 1) / (2 * places))])


def _falling(values: Any) -> tuple[float, ...]:
  """Returns coefficients that do not increase, nor are negative."""
  return tuple(map(float, np.minimum.accumulate(np.maximum(
      np.asarray(values, np.float64), 0))))


def _matrix_factorization(module: str) -> Any:
  """Returns a module of jax_privacy that optimises strategies."""
  try:
    return importlib.import_module(f'jax_privacy.matrix_factorization.{module}')
  except ImportError as error:
    raise ImportError('optimised strategies need jax-privacy: pip install '
                      "'dpjax[matrix]', or take square_root") from error
