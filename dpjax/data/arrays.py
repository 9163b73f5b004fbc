"""The data set type for training, and its constructor from arrays."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dpjax import errors
from dpjax.typing import Array, Batch


class Dataset(NamedTuple):
  """Features and classes of n records, with public bounds.

  Attributes:
    name: name for reports.
    x: features, [n, p] float32 in [-1, 1].
    y: classes, [n] int32 in [0, num_classes).
    num_classes: number of classes, public.
    feature_names: p names, one for each column of x.
  """
  name: str
  x: Array
  y: Array
  num_classes: int
  feature_names: tuple[str, ...]

  @property
  def records(self) -> Batch:
    """Returns features and labels as the batch type of training."""
    return Batch(self.x, self.y)


def from_arrays(x: ArrayLike, y: ArrayLike, *, num_classes: int,
                name: str = 'user', lower: ArrayLike = -1.0,
                upper: ArrayLike = 1.0) -> Dataset:
  """Makes a data set from arrays: clips to public bounds, scales to [-1, 1].

  Guarantee: each row of the result depends on the same row of x and y alone,
  if the bounds are public. The minimum or maximum of `x` as a bound would leak.

  Args:
    x: features, [n, p], finite.
    y: classes, [n], integers in [0, num_classes).
    num_classes: public number of classes, at least 2.
    name: name for reports.
    lower: public lower bound of the features, a number or [p] numbers.
    upper: public upper bound, likewise; above `lower`.

  Returns:
    The data set, with features named x0, x1, ...

  Raises:
    ValueError: a shape, bound, feature or label is not valid.

  Examples:
    >>> from dpjax.data import arrays
    >>> data = arrays.from_arrays(
    ...     [[20.0, 1.0], [70.0, 9.0]], [0, 1], num_classes=2,
    ...     lower=[0.0, 0.0], upper=[100.0, 5.0])
    >>> data.x
    Array([[-0.6, -0.6],
           [ 0.4,  1. ]], dtype=float32)
  """
  errors.check_at_least('num_classes', num_classes, 2)
  features = _as_numbers('x', x)
  if features.ndim != 2 or 0 in features.shape:
    raise ValueError(f'x must be [n, p], n, p >= 1, got {features.shape}')
  if not np.isfinite(features).all():
    row, column = np.argwhere(~np.isfinite(features))[0]
    raise ValueError(f'x must be finite, got {features[row, column]} in row '
                     f'{row}, column {column}')
  num_examples, num_features = features.shape
  labels = _check_labels(y, num_examples, num_classes=num_classes)
  low = _check_bound('lower', lower, num_features=num_features)
  high = _check_bound('upper', upper, num_features=num_features)
  if not (low < high).all():
    raise ValueError(f'lower must be below upper, got {lower!r} and {upper!r}')
  # Only the result is rounded to float32, in which -1 and 1 are exact.
  scaled = 2.0 * (np.clip(features, low, high) - low) / (high - low) - 1.0
  return Dataset(
    name=name, x=jnp.asarray(scaled.astype(np.float32)),
    y=jnp.asarray(labels), num_classes=int(num_classes),
    feature_names=tuple(f'x{j}' for j in range(num_features)))


def _as_numbers(name: str, values: ArrayLike) -> np.ndarray:
  """Returns the values as float64; raises ValueError if they are no numbers."""
  try:
    return np.asarray(values, np.float64)
  except (TypeError, ValueError):
    raise ValueError(f'{name} must be an array of real numbers') from None


def _check_labels(y: ArrayLike, num_examples: int, *, num_classes: int
                  ) -> np.ndarray:
  """Returns y as [n] int32."""
  labels = _as_numbers('y', y)
  if labels.shape != (num_examples,):
    raise ValueError(f'y must have shape ({num_examples},) as x has '
                     f'{num_examples} rows, got {labels.shape}')
  # Labels may be floats such as 1.0, but not NaN: all comparisons with NaN
  # are false.
  valid = (labels == np.floor(labels)) & (labels >= 0) & (labels < num_classes)
  if not valid.all():
    row = int(np.argmin(valid))
    raise ValueError(f'y must hold integers in [0, {num_classes}), got '
                     f'{labels[row]:g} in row {row}')
  return labels.astype(np.int32)


def _check_bound(name: str, bound: ArrayLike, *, num_features: int
                 ) -> np.ndarray:
  """Returns the bound as a number or as [p] numbers."""
  values = _as_numbers(name, bound)
  if values.shape not in ((), (num_features,)):
    raise ValueError(f'{name} must be a number or {num_features} numbers, got '
                     f'shape {values.shape}')
  if not np.isfinite(values).all():
    raise ValueError(f'{name} must be finite, got {bound!r}')
  return values
