"""A score of outputs with several coordinates, learnt by a small network.

The network estimates the logarithm of the likelihood ratio of two samples. It
is trained with the cross entropy of telling them apart, on one half of a pilot,
in NumPy: a compiled program would take longer to compile than this to train.
"""

from collections.abc import Callable
import itertools

import numpy as np
from scipy import special

# Sizes of the two hidden layers, and the training by Adam.
_HIDDEN, _BATCH, _STEPS = 32, 256, 600
_RATE, _DECAY = 1e-2, 1e-4
# Coordinates that the network sees, and those whose products it sees.
_COORDINATES, _PAIRED = 24, 5

Score = Callable[[np.ndarray], np.ndarray]
_Parameters = list[np.ndarray]


def score(ours: np.ndarray, theirs: np.ndarray) -> Score:
  """Returns an estimate of the log-likelihood ratio, learnt from two samples.

  Args:
    ours: [n, d] outputs of one data set.
    theirs: [m, d] outputs of its neighbour.

  Returns:
    A function of outputs [k, d] that returns numbers [k], larger where the
    first data set is likelier.
  """
  both = np.concatenate([ours, theirs])
  features = _features(both)
  inputs = features(both)
  # Each sample has half of the weight, whatever its size.
  labels = np.repeat([1.0, 0.0], [len(ours), len(theirs)])
  parameters = _train(inputs, labels)
  return lambda outputs: _forward(parameters, features(outputs))[-1][:, 0]


def _features(outputs: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
  """Returns a function from outputs [n, d] to standardised inputs [n, f].

  Inputs are quantile levels, which heavy tails cannot spoil, a logarithm of
  the size, and products and differences of the first coordinates.
  """
  width = min(outputs.shape[1], _COORDINATES)
  knots = np.quantile(np.nan_to_num(outputs[:, :width], posinf=1e30,
                                    neginf=-1e30), np.linspace(0, 1, 65), 0)
  middle, spread = knots[32], knots[48] - knots[16]
  spread = np.where(spread > 0, spread, np.ptp(knots, axis=0))
  spread = np.where(spread > 0, spread, 1.0)
  pairs = np.array(list(itertools.combinations(range(min(width, _PAIRED)), 2)),
                   int).reshape(-1, 2)
  levels = np.linspace(-1.7, 1.7, 65)

  def raw(new: np.ndarray) -> np.ndarray:
    new = np.nan_to_num(new[:, :width], posinf=1e30, neginf=-1e30)
    ranks = np.stack([np.interp(x, knot, levels)
                      for x, knot in zip(new.T, knots.T, strict=True)], 1)
    sizes = np.arcsinh((new - middle) / spread)
    one, other = ranks[:, pairs[:, 0]], ranks[:, pairs[:, 1]]
    gaps = np.arcsinh(4 * (new[:, pairs[:, 0]] - new[:, pairs[:, 1]]) /
                      spread[pairs[:, 0]])
    return np.concatenate([ranks, sizes, one * other, gaps], 1)

  sample = raw(outputs)
  shift, scale = sample.mean(0), sample.std(0)
  scale = np.where(scale > 1e-9, scale, 1.0)
  return lambda new: (raw(new) - shift) / scale


def _train(inputs: np.ndarray, labels: np.ndarray) -> _Parameters:
  """Returns the parameters that tell labels [n] from inputs [n, f] best."""
  # A fixed seed: the audit's key already determines the samples.
  rng = np.random.default_rng(0)
  sizes = [inputs.shape[1], _HIDDEN, _HIDDEN, 1]
  parameters = [part for rows, columns in itertools.pairwise(sizes)
                for part in (rng.normal(size=(rows, columns)) *
                             (1.0 if columns > 1 else 0.1) / np.sqrt(rows),
                             np.zeros(columns))]
  means = [np.zeros_like(part) for part in parameters]
  squares = [np.zeros_like(part) for part in parameters]
  average = [np.zeros_like(part) for part in parameters]
  for step in range(_STEPS):
    batch = rng.integers(0, len(inputs), _BATCH)
    gradients = _gradients(parameters, inputs[batch], labels[batch])
    rate = _RATE * (1 - step / _STEPS)
    for number, gradient in enumerate(gradients):
      means[number] += 0.1 * (gradient - means[number])
      squares[number] += 0.01 * (gradient**2 - squares[number])
      change = means[number] / (1 - 0.9**(step + 1)) / (
          np.sqrt(squares[number] / (1 - 0.99**(step + 1))) + 1e-8)
      parameters[number] -= rate * (change + _DECAY * parameters[number])
      # The mean of the last third of the path has less noise than its end.
      if step >= 2 * _STEPS // 3:
        average[number] += parameters[number] / (_STEPS - 2 * _STEPS // 3)
  return average


def _forward(parameters: _Parameters, inputs: np.ndarray) -> list[np.ndarray]:
  """Returns the values of both hidden layers, and the outputs [n, 1]."""
  first, shift, second, other_shift, last, offset = parameters
  hidden = np.tanh(inputs @ first + shift)
  deeper = np.tanh(hidden @ second + other_shift)
  return [hidden, deeper, deeper @ last + offset]


def _gradients(parameters: _Parameters, inputs: np.ndarray,
               labels: np.ndarray) -> _Parameters:
  """Returns the gradients of the mean cross entropy, by the chain rule."""
  hidden, deeper, logits = _forward(parameters, inputs)
  outer = (special.expit(logits) - labels[:, None]) / len(labels)
  inner = (outer @ parameters[4].T) * (1 - deeper**2)
  first = (inner @ parameters[2].T) * (1 - hidden**2)
  return [inputs.T @ first, first.sum(0), hidden.T @ inner, inner.sum(0),
          deeper.T @ outer, outer.sum(0)]
