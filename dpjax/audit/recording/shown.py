"""Which noisy values a release reveals."""

import numpy as np

# Standard deviation of rounding to a release's grid, in those of the noise.
_ROUNDED = 2e-3


def revealed(outputs: np.ndarray, released: np.ndarray) -> np.ndarray:
  """Returns which noisy values [D] the released numbers determine.

  A released number that is a linear function of the noisy values [K, D] in all
  runs, up to rounding to a grid, is an equation for them. A noisy value counts
  if these equations determine it.
  """
  width = outputs.shape[1]
  if width == 0 or not np.isfinite(released).all():
    return np.zeros(width, bool)
  with np.errstate(invalid='ignore'):
    centred = outputs - outputs.mean(0)
  spread = np.where(np.isfinite(centred).all(0), centred.std(0), np.nan)
  noisy = spread > 0
  centred = np.where(noisy, centred, 0.0)
  scaled = np.where(noisy, centred / np.where(noisy, spread, 1), 0.0)
  targets = released - released.mean(0)
  sizes = targets.std(0)
  fixed = released[0, sizes == 0]
  # A value without noise is shown by a released number that is always it.
  shown = (spread == 0) & np.isclose(
      outputs[0][:, None], fixed[None], rtol=1e-5, atol=1e-12).any(1)
  targets = targets[:, sizes > 0] / sizes[sizes > 0]
  if not targets.size:
    return shown
  close = np.abs(scaled.T @ targets / len(scaled)) > 1 - _ROUNDED**2 / 2
  shown |= noisy & close.any(1)
  # Least squares needs more runs than values.
  if width > len(outputs) // 2 or not noisy.any():
    return shown
  equations, *_ = np.linalg.lstsq(scaled, targets, rcond=1e-9)
  rest = (targets - scaled @ equations).std(0)
  equations = equations[:, rest < _ROUNDED]
  if not equations.size:
    return shown
  # A unit vector in the span of the equations is a determined value.
  left, values, _ = np.linalg.svd(equations, full_matrices=False)
  basis = left[:, values > 0.01 * values.max()]
  return shown | noisy & (np.square(basis).sum(1) > 1 - 1e-3)
