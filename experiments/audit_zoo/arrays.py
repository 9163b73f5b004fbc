"""Arrays of data sets from lists, with the types that NumPy's own lack."""

import numpy as np
from numpy.typing import ArrayLike


def float32(values: ArrayLike) -> np.ndarray:
  """Returns an array of 32-bit floats."""
  return np.asarray(values, np.float32)


def int32(values: ArrayLike) -> np.ndarray:
  """Returns an array of 32-bit integers."""
  return np.asarray(values, np.int32)
