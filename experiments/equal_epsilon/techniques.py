"""Optimisers for noisy gradients, each with one parameter of its own.

All of them read noisy gradients and public numbers only, so a run costs what
DP-SGD costs. Two take gradients at another point than the weights, and one
evaluates another point. The optimiser keeps the offset of that point beside the
weights, see `Trained`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dpjax import tree
from dpjax.train import adam
from dpjax.typing import Array, PyTree

# Of the two gradients of DiSK, as in the experiments of its authors.
_LOOK_AHEAD = 0.5
# Gain of the filter that follows a mask of frequencies.
_GAIN = 0.7


class Trained(NamedTuple):
  """What a private loop keeps in the place of parameters.

  Gradients with respect to anything but the weights are zero. The optimiser
  sets the offset, and changes neither of the two numbers. Since they are arrays
  and no constants, one compiled program trains with all of them.

  Attributes:
    weights: parameters of the network.
    offset: a tree like `weights` that the optimiser sets, or ().
    rate: learning rate.
    own: own parameter of the optimiser.
  """
  weights: PyTree
  offset: PyTree
  rate: Array
  own: Array


Loss = Callable[[PyTree], Array]


class Technique(NamedTuple):
  """One optimiser.

  Attributes:
    source: who proposed it.
    own: values to try for its own parameter; (0.0,) if it has none.
    make: (learning rate, own parameter) -> optimiser of the weights.
    offset: (`Trained`, noisy gradients, change of the weights) -> the next
      offset; None without offset.
    loss: (`Trained`, loss of weights) -> loss.
    evaluated: `Trained` -> the weights to evaluate.
  """
  source: str
  own: tuple[float, ...]
  make: Callable[[Array, Array], optax.GradientTransformation]
  offset: Callable[[Trained, PyTree, PyTree], PyTree] | None = None
  loss: Callable[[Trained, Loss], Array] = lambda trained, at: at(
      trained.weights)
  evaluated: Callable[[Trained], PyTree] = lambda trained: trained.weights

  def start(self, weights: PyTree, rate: Array, own: Array) -> Trained:
    """Returns what is trained before the first step."""
    offset = () if self.offset is None else tree.zeros_like(weights)
    return Trained(weights, offset, rate, own)

  def optimizer(self) -> optax.GradientTransformationExtraArgs:
    """Returns the optimiser of `Trained`."""

    def inner(params: Trained) -> optax.GradientTransformationExtraArgs:
      return optax.with_extra_args_support(self.make(params.rate, params.own))

    def update(updates: Trained, state: PyTree, params: Trained, **noise: Any
               ) -> tuple[Trained, PyTree]:
      change, state = inner(params).update(updates.weights, state,
                                           params.weights, **noise)
      offset = params.offset
      if self.offset is not None:
        offset = jax.tree.map(jnp.subtract, self.offset(
            params, updates.weights, change), offset)
      return Trained(change, offset, *tree.zeros_like(
          (params.rate, params.own))), state

    return optax.GradientTransformationExtraArgs(
        lambda params: inner(params).init(params.weights), update)


def low_pass(pole: Array) -> optax.GradientTransformation:
  """Returns the first-order filter of DOPPLER, corrected for its start.

  m_t = a m_(t-1) + (1 - a) (g_t + g_(t-1)) / 2, divided by what the filter
  makes of a constant 1. Source: Zhang et al. (2024, Algorithm 2), with one
  pole and a zero at the highest frequency.

  Args:
    pole: a, in [0, 1); larger ones forget more slowly.
  """
  gain = (1 - pole) / 2

  def init(params: PyTree) -> tuple[PyTree, PyTree, Array, Array]:
    zeros = tree.zeros_like(params)
    return zeros, zeros, jnp.float32(0), jnp.float32(0)

  def update(updates: PyTree, state: Any, params: PyTree = None
             ) -> tuple[PyTree, Any]:
    del params
    mean, before, weight, seen = state
    mean = jax.tree.map(lambda m, g, h: pole * m + gain * (g + h), mean,
                        updates, before)
    weight = pole * weight + gain * (1 + seen)
    return (jax.tree.map(lambda m: m / weight, mean),
            (mean, updates, weight, jnp.float32(1)))

  return optax.GradientTransformation(init, update)


def smoothed(gain: Array) -> optax.GradientTransformation:
  """Returns the filter m_t = (1 - gain) m_(t-1) + gain g_t, from m_1 = g_1.

  Args:
    gain: in (0, 1].
  """

  def init(params: PyTree) -> tuple[PyTree, Array]:
    return tree.zeros_like(params), jnp.float32(1)

  def update(updates: PyTree, state: Any, params: PyTree = None
             ) -> tuple[PyTree, Any]:
    del params
    mean, first = state
    weight = jnp.maximum(first, gain)
    mean = jax.tree.map(lambda m, g: m + weight * (g - m), mean, updates)
    return mean, (mean, jnp.float32(0))

  return optax.GradientTransformation(init, update)


def masked_frequencies(share: Array) -> optax.GradientTransformation:
  """Returns a filter that halves high frequencies over the coordinates.

  Each leaf is a sequence of numbers. Source: Shin et al. (2025). Here the mask
  is applied to gradients that are noisy already, so it is post-processing.

  Args:
    share: part of the frequencies, the lowest ones, that is kept.
  """

  def filtered(leaf: Array) -> Array:
    spectrum = jnp.fft.rfft(leaf.ravel())
    places = jnp.arange(spectrum.size, dtype=jnp.float32)
    kept = places < share * jnp.float32(spectrum.size)
    mask = jnp.where(kept, jnp.float32(1), jnp.float32(0.5))
    return jnp.fft.irfft(spectrum * mask.astype(spectrum.dtype),
                         leaf.size).reshape(leaf.shape)

  return optax.stateless(lambda updates, _: jax.tree.map(filtered, updates))


def _aside(trained: Trained, at: Loss) -> Array:
  """The loss at weights + offset; the gradient is that of the weights."""
  return at(tree.add(trained.weights, jax.lax.stop_gradient(trained.offset)))


def _both(trained: Trained, at: Loss) -> Array:
  """The combination of two losses whose gradient DiSK clips as one."""
  gain = jax.lax.stop_gradient(trained.own)
  share = (1 - gain) / (gain * _LOOK_AHEAD)
  return share * _aside(trained, at) + (1 - share) * at(trained.weights)


def _ahead(trained: Trained, gradients: PyTree, change: PyTree) -> PyTree:
  """Returns the offset of DiSK: along the last change of the weights."""
  del trained, gradients
  return tree.scale(_LOOK_AHEAD, change)


def _uphill(trained: Trained, gradients: PyTree, change: PyTree) -> PyTree:
  """Returns the offset of DP-SAT: along the last noisy gradient."""
  del change
  length = jnp.maximum(optax.tree.norm(gradients), jnp.float32(1e-12))
  return tree.scale(trained.own / length, gradients)


def _mean(trained: Trained, gradients: PyTree, change: PyTree) -> PyTree:
  """Returns the difference of the next weights from their running mean.

  The mean starts at the first weights and keeps a part `own` in each step.
  """
  del gradients
  # Both terms are mean - weights, before and after the step.
  return jax.tree.map(lambda offset, move: trained.own * (offset - move),
                      trained.offset, change)


def _sgd_after(make: Callable[[Array], optax.GradientTransformation]
               ) -> Callable[[Array, Array], optax.GradientTransformation]:
  """Returns SGD on gradients that a filter has changed."""
  return lambda rate, own: optax.chain(make(own), optax.sgd(rate))


def _sgd(rate: Array, own: Array) -> optax.GradientTransformation:
  del own
  return optax.sgd(rate)


_NONE = (0.0,)
TECHNIQUES: Mapping[str, Technique] = {
    'sgd': Technique('Abadi et al. (2016)', _NONE, _sgd),
    'momentum': Technique(
        'Polyak (1964)', (0.5, 0.8, 0.95),
        _sgd_after(lambda decay: smoothed(1 - decay))),
    'adam': Technique('Kingma and Ba (2015)', _NONE,
                      lambda rate, own: optax.adam(rate)),
    'noise_corrected_adam': Technique(
        'Tang, Shpilevskiy and Lecuyer (2024)', _NONE,
        lambda rate, own: adam.noise_corrected(rate)),
    'averaged': Technique(
        'De et al. (2022)', (0.9, 0.97, 0.99), _sgd, _mean,
        evaluated=lambda trained: tree.add(trained.weights, trained.offset)),
    'low_pass': Technique('Zhang et al. (2024), DOPPLER', (0.5, 0.8, 0.95),
                          _sgd_after(low_pass)),
    'kalman': Technique('Zhang et al. (2025), DiSK', (0.4, 0.55, 0.7),
                        _sgd_after(smoothed), _ahead, _both),
    'sharpness': Technique('Park et al. (2023), DP-SAT', (0.01, 0.05, 0.2),
                           _sgd, _uphill, _aside),
    'frequencies': Technique(
        'Shin et al. (2025), FFTKF', (0.25, 0.5, 0.75),
        _sgd_after(lambda share: optax.chain(masked_frequencies(share),
                                             smoothed(jnp.float32(_GAIN))))),
}
"""Maps the name of an optimiser, as in the rows, to the optimiser."""
