"""Defines the distribution of four attributes that the experiment estimates.

It is a random walk around a circle of eight bins, one step for each attribute.

Item DEN-B13 describes its distribution as a wrapped random walk of four steps,
whose cells have an energy of 6.91; independent attributes do not explain 6.27
of it. The distribution here, whose step is a discrete Gaussian, has 6.88 and
6.28.
"""

import functools

import numpy as np

from experiments.methods.statistics import compared_densities

NUM_ATTRIBUTES = 4
NUM_BINS = 8
TREE = tuple((i, i + 1) for i in range(NUM_ATTRIBUTES - 1))
_DEVIATION = 1.2


@functools.cache
def probabilities() -> np.ndarray:
  """Returns probabilities [8^4] of all cells; the last attribute runs fastest.
  """
  places = np.arange(-40, 41)
  step = np.zeros(NUM_BINS)
  np.add.at(step, places % NUM_BINS, np.exp(-(places / _DEVIATION)**2 / 2))
  step /= step.sum()
  # Rows: where a step goes from each bin.
  moves = np.stack([np.roll(step, start) for start in range(NUM_BINS)])
  cells = compared_densities.beta(2, 2).masses(NUM_BINS)
  for _ in range(NUM_ATTRIBUTES - 1):
    cells = (cells.reshape(-1, NUM_BINS, 1) * moves).ravel()
  return cells


def energy() -> float:
  """Returns the mean of (f - 1)^2, the error of the uniform density."""
  cells = probabilities()
  return cells.size * float(np.sum(cells**2)) - 1
