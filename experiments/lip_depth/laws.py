"""Computes bounds by depth, and the noise that they require; uses no data."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import tree
from dpjax.grads import privatizer
from dpjax.models import mlp
from dpjax.models import wide_resnet
from dpjax.models.bounding import Bounding
from dpjax.models.model import Model
from dpjax.privacy import blocks
from dpjax.typing import PRNGKey

LOSS_LIPSCHITZ = 0.35
_CLASSES = 10
_DRAWS = 300


class Bounds(NamedTuple):
  """Certified bounds of a network before training.

  Attributes:
    sensitivities: gradient bound of each parameter layer, a tree of names.
    sizes: numbers of parameters, in the order of the leaves of `sensitivities`.
    first: bound of the layer that takes the records.
    last: bound of the layer that returns the logits.
    num_blocks: number of residual sums between them.
  """
  sensitivities: dict
  sizes: tuple[int, ...]
  first: float
  last: float
  num_blocks: int


def chain(depth: int, *, weight_norm: float) -> Bounds:
  """Returns bounds of a perceptron whose layer inputs lie in balls.

  There are K = depth + 1 layers of norm C. The cotangent at the first is
  bounded by C^(K-1) times that of the loss (catalogue items LDP-05 and LIP-03;
  Barczewski 2025, section 5.2.3).

  """
  model = mlp.mlp(num_features=100, num_classes=_CLASSES, depth=depth,
                  width=16, input_radius=2.5, hidden_radius=3.0)
  return _bounds(model, weight_norm, 'dense_00', f'dense_{depth:02d}', 0)


def residual(depth: int, *, averaged: bool, weight_norm: float) -> Bounds:
  """Returns bounds of WRN-depth-4 whose layer inputs lie in balls.

  A plain sum of two branches of constant 1 doubles the cotangent that it sends
  back; an average of both keeps its size (catalogue item NET-08, erratum E12).

  """
  model = wide_resnet.wide_resnet(
      depth=depth, widening=4, averaged=averaged, num_classes=_CLASSES,
      input_radius=10.0, bounding=Bounding(kind='ball', radius=5.0))
  return _bounds(model, weight_norm, 'conv', 'dense', (depth - 4) // 2)


def _bounds(model: Model, weight_norm: float, first: str, last: str,
            num_blocks: int) -> Bounds:
  network = model.network
  result = network.gradient_bounds(network.fill(weight_norm),
                                  loss_lipschitz=LOSS_LIPSCHITZ)
  params = jax.eval_shape(network.init, jax.random.key(0))
  return Bounds(result, tuple(tree.block_sizes(result, params)), result[first],
                result[last], num_blocks)


def noise_energy(bounds: Bounds, rule: str) -> float:
  """Returns the mean squared norm of noise on a sum, at joint multiplier 1.

  Args:
    bounds: bounds of the network.
    rule: one of `blocks.ALLOCATIONS`, see catalogue item DP-20.
  """
  stddevs = blocks.allocate(
      jnp.asarray(jax.tree.leaves(bounds.sensitivities), jnp.float32),
      noise_multiplier=1.0, sizes=bounds.sizes, rule=rule)
  return float(np.sum(np.square(np.float64(stddevs)) *
                      np.asarray(bounds.sizes)))


def single_energy(bounds: Bounds) -> float:
  """Returns the noise energy if K layers are accounted as one (erratum E2).

  Equal multipliers that are accounted correctly need K times as much.
  """
  sensitivities = np.asarray(jax.tree.leaves(bounds.sensitivities))
  return float(np.sum(np.square(sensitivities) * np.asarray(bounds.sizes)))


class Measured(NamedTuple):
  """Noise of averaged updates, relative to its intended size.

  Attributes:
    largest_z_score: largest z-score of the noise variance of a layer.
    energy_ratio: squared norm over (multiplier / batch size)^2 times
      `single_energy`.
  """
  largest_z_score: float
  energy_ratio: float


def measure_noise(key: PRNGKey, bounds: Bounds, *, rule: str,
                  noise_multiplier: float, batch_size: float) -> Measured:
  """Measures the noise on empty batches, against `expected_stddevs`.

  Args:
    key: random key of the noise.
    bounds: bounds of the network.
    rule: one of `blocks.ALLOCATIONS`.
    noise_multiplier: joint multiplier z.
    batch_size: public divisor s_pub.
  """
  transform = privatizer.gaussian_privatizer(
      key, noise_multiplier=noise_multiplier, allocation=rule,
      expected_batch_size=batch_size)
  prefix, structure = jax.tree.flatten(bounds.sensitivities)
  sums = jax.tree.unflatten(structure, [jnp.zeros([size])
                                        for size in bounds.sizes])
  sensitivity = jax.tree.unflatten(structure, list(map(jnp.float32, prefix)))

  def draw(state, _):
    update, state = transform.update(sums, state, l2_sensitivity=sensitivity)
    return state, jnp.stack([jnp.mean(jnp.square(leaf))
                             for leaf in jax.tree.leaves(update)])

  squares = jax.jit(lambda: jax.lax.scan(
      draw, transform.init(sums), length=_DRAWS)[1])()
  sizes = np.asarray(bounds.sizes)
  variances = np.mean(np.float64(squares), 0)
  expected = np.square(expected_stddevs(
      prefix, bounds.sizes, rule=rule, noise_multiplier=noise_multiplier,
      batch_size=batch_size))
  scores = (variances / expected - 1) * np.sqrt(sizes * _DRAWS / 2)
  unit = (noise_multiplier / batch_size)**2 * single_energy(bounds)
  return Measured(float(np.max(np.abs(scores))),
                  float(np.sum(variances * sizes) / unit))


def expected_stddevs(sensitivities: Sequence[float], sizes: Sequence[int], *,
                     rule: str, noise_multiplier: float,
                     batch_size: float) -> np.ndarray:
  """Returns standard deviations [K] of the noise on an average (DP-20).

  For one layer all rules give z Delta / s_pub.
  """
  bounds, dims = np.asarray(sensitivities, np.float64), np.asarray(sizes)
  values = {
      'equal': len(dims)**0.5 * bounds,
      'global': np.full(len(dims), np.sqrt(np.sum(bounds**2))),
      'optimal': np.sqrt(bounds / dims**0.5 * np.sum(bounds * dims**0.5)),
  }[rule]
  return noise_multiplier / batch_size * values
