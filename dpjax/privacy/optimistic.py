"""Lower bounds on epsilon, to refute claims; guarantees need `accounting`."""

from collections.abc import Sequence
import functools

from dp_accounting import pld

from dpjax import errors

# Privacy losses are rounded down to multiples of this.
_GRID = 2e-3


def poisson_gaussian_epsilon(steps: Sequence[tuple[float, float]], *,
                             delta: float) -> float:
  """Returns a lower bound on the epsilon of Poisson sampled Gaussian noise.

  Under ADD_OR_REMOVE_ONE, and within a few multiples of 0.002 of the epsilon.

  Args:
    steps: (sampling probability, shift over standard deviation) of each step.
    delta: of the bound, in (0, 1).

  Raises:
    ValueError: if delta, a probability or a shift is out of range.
  """
  errors.check_open_unit('delta', delta)
  for rate, shift in steps:
    errors.check_positive('shift', shift)
    if not 0 < rate <= 1:
      raise ValueError(f'a sampling probability must lie in (0, 1], got {rate}')
  losses = [pld.privacy_loss_distribution.from_gaussian_mechanism(
      1 / shift, pessimistic_estimate=False, use_connect_dots=False,
      value_discretization_interval=_GRID, sampling_prob=rate)
            for rate, shift in steps]
  if not losses:
    return 0.0
  return float(functools.reduce(lambda one, other: one.compose(other), losses
                                ).get_epsilon_for_delta(delta))
