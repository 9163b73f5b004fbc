"""Algorithm 8 (Lip-DP-SGD) as it is printed. NOT differentially private.

A positive control for audits, which can be built only with
`allow_unsound=True`. The epsilon its accountant reports holds for no data set
size (erratum E1). It also contains errata E2 to E6: division by the batch
maximum X_k, one noise multiplier for K layers, a product from k instead of k +
1, power iteration, division by the realised batch size, redrawing of empty
batches, and no treatment of biases (there are none here). Source: Barczewski
(2025, Algorithm 8 and section 5.2.3); item LDP-01. Line numbers below are those
of Algorithm 8.

The algorithm leaves two choices open. Here all layers are updated together,
after one backward pass (lines 10-14 loop over K layers). The norm of a zero
matrix counts as tiny, because line 21 divides by it.
"""

from collections.abc import Callable, Sequence
import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.lipschitz import norms as norms_lib
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.typing import Array, LossFn, PRNGKey, PyTree

Kernels = tuple[Array, ...]
"""One matrix [n_in, n_out] for each layer, from input to output."""

_TINY = 1e-30


class State(NamedTuple):
  """State between two steps.

  Attributes:
    kernels: clipped weights.
    norms: c_k, [K] norms of the clipped weights.
  """
  kernels: Kernels
  norms: Array


class Released(NamedTuple):
  """Output of one step: the noisy gradients before the update."""
  gradients: Kernels


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrintedLipDpSgd:
  """Algorithm 8 for a chain of dense layers without biases.

  Guarantee: none. `claimed_event` is the event that Barczewski (2025)
  accounts for.

  Attributes:
    loss: (logits [b, c], labels [b]) -> losses [b].
    loss_lipschitz: tau, bound on the gradient of `loss` in the logits.
    noise_multiplier: sigma, noise deviation over the claimed sensitivity.
    weight_norm: C, the largest norm of a layer's weights.
    learning_rate: eta, the learning rate.
    sampling_prob: s / |Z|, in (0, 1].
    activation: applied between layers; 1-Lipschitz, zero at zero.
    num_iterations: iterations of the power method.
    allow_unsound: must be True, to confirm that no privacy is needed.
  """
  loss: LossFn
  loss_lipschitz: float
  noise_multiplier: float
  weight_norm: float
  learning_rate: float
  sampling_prob: float
  activation: Callable[[Array], Array] = jax.nn.relu
  num_iterations: int = 5
  allow_unsound: bool = False

  def __post_init__(self) -> None:
    if not self.allow_unsound:
      raise ValueError('Algorithm 8 as printed is not differentially private '
                       'at the epsilon it reports; set allow_unsound=True to '
                       'run it anyway')
    for name in ('loss_lipschitz', 'noise_multiplier', 'weight_norm'):
      errors.check_positive(name, getattr(self, name))
    errors.check_non_negative('learning_rate', self.learning_rate)
    errors.check_probability('sampling_prob', self.sampling_prob)

  @property
  def epsilon_valid(self) -> bool:
    """Returns False: no reported epsilon is a bound for this algorithm."""
    return False

  def claimed_event(self, num_steps: int) -> accounting.DpEvent:
    """Returns the event of line 16: one noised block with multiplier sigma."""
    return accounting.poisson_gaussian_event(
        sampling_prob=self.sampling_prob, num_steps=num_steps,
        noise_multiplier=self.noise_multiplier)

  def init(self, kernels: Sequence[Array]) -> State:
    """Returns the initial state, with clipped weights (line 3)."""
    return self.clip_weights(tuple(kernels))

  def clip_weights(self, kernels: Kernels) -> State:
    """Clips the weights: c_k = min(C, ||theta_k||), theta_k c_k / ||theta_k||.

    Lines 17-24. The norm comes from the power method, which gives a lower
    bound, so clipped weights may still have a norm above C.
    """
    norms = jnp.stack([self._norm(kernel) for kernel in kernels])
    clipped = jnp.minimum(jnp.float32(self.weight_norm), norms)
    scales = clipped / jnp.maximum(norms, _TINY)
    return State(tuple(scale * kernel for scale, kernel
                       in zip(scales, kernels, strict=True)), clipped)

  def _norm(self, kernel: Array) -> Array:
    """Returns a lower bound on the spectral norm, by the power method."""
    # A public start vector. A constant one would be orthogonal to (1, -1), the
    # leading singular vector of a symmetric layer with two classes.
    start = jnp.cos(jnp.arange(1.0, kernel.shape[1] + 1))
    norm, _ = norms_lib.power_iteration(
        kernel, start, num_iterations=self.num_iterations)
    return norm

  def sensitivities(self, norms: Array) -> Array:
    """Returns the claimed Delta_k = tau prod_{i=k..K} c_i, [K] (line 5).

    The correct product starts at k + 1.
    """
    return self.loss_lipschitz * jnp.cumprod(norms[::-1])[::-1]

  def draw_batch(self, key: PRNGKey, members: Array) -> Array:
    """Draws Poisson batches until one is not empty; a mask [n] (lines 6-9).

    Args:
      key: key of this step.
      members: [n] bool, the rows that the data set holds; at least one.
    """
    def draw(carry: tuple[Array, Array]) -> tuple[Array, Array]:
      attempt, _ = carry
      draws = jax.random.uniform(jax.random.fold_in(key, attempt),
                                 members.shape)
      return attempt + 1, members & (draws < self.sampling_prob)
    start = (jnp.int32(0), jnp.zeros_like(members))
    return jax.lax.while_loop(lambda carry: ~jnp.any(carry[1]), draw, start)[1]

  def scaled_sums(self, kernels: Kernels, x: Array, y: Array,
                  mask: Array) -> Kernels:
    """Returns sums of gradients over the batch V, divided by X_k.

    Lines 11 and 13 before the noise is added. X_k is the largest norm of a
    layer's input in the batch. It depends on the private data, so no
    sensitivity below (|V| + 1) Delta_k covers the sum.

    Args:
      kernels: weights of all layers.
      x: [n, p] features.
      y: [n] labels.
      mask: [n] bool, the batch V.
    """
    def total(weights: Kernels) -> tuple[Array, list[Array]]:
      logits, input_norms = self._forward(weights, x)
      losses = jnp.where(mask, self.loss(logits, y), 0.0)
      return jnp.sum(losses), input_norms
    gradients, input_norms = jax.grad(total, has_aux=True)(kernels)
    return tuple(
        gradient / jnp.max(jnp.where(mask, norm, 0.0))
        for gradient, norm in zip(gradients, input_norms, strict=True))

  def logits(self, kernels: Kernels, x: Array) -> Array:
    """Returns the network's logits [n, c] for features [n, p]."""
    return self._forward(kernels, x)[0]

  def input_norms(self, kernels: Kernels, x: Array) -> list[Array]:
    """Returns, for each layer, the norms [n] of the records' inputs to it."""
    return self._forward(kernels, x)[1]

  def _forward(self, kernels: Kernels, x: Array
               ) -> tuple[Array, list[Array]]:
    """Returns the logits and, for each layer, the norms [n] of its inputs."""
    input_norms, last = [], len(kernels) - 1
    for layer, kernel in enumerate(kernels):
      input_norms.append(jax.lax.stop_gradient(
          jnp.sqrt(jnp.sum(jnp.square(x), -1))))
      x = x @ kernel
      x = x if layer == last else self.activation(x)
    return x, input_norms

  def step(self, key: PRNGKey, state: State, x: Array, y: Array,
           members: Array) -> tuple[State, Released]:
    """Runs one update (lines 5-15); returns the new state and the release."""
    batch_key, noise_key = jax.random.split(key)
    stddevs = self.noise_multiplier * self.sensitivities(state.norms)
    mask = self.draw_batch(batch_key, members)
    noisy = additive.add_gaussian_noise(
        noise_key, self.scaled_sums(state.kernels, x, y, mask),
        tuple(stddevs))
    size = jnp.sum(mask, dtype=jnp.float32)
    gradients = tuple(block / size for block in noisy)
    kernels = tuple(kernel - self.learning_rate * gradient for kernel, gradient
                    in zip(state.kernels, gradients, strict=True))
    return self.clip_weights(kernels), Released(gradients)

  def run(self, key: PRNGKey, state: State, x: Array, y: Array,
          members: Array, *, num_steps: int,
          observe: Callable[[State, Released], PyTree],
          ) -> tuple[State, PyTree]:
    """Runs `num_steps` steps; jittable, and can be vmapped over keys.

    Args:
      key: fresh for this run.
      state: initial state, from `init`.
      x: [n, p] features.
      y: [n] labels.
      members: [n] bool, the rows that the data set holds.
      num_steps: T; Barczewski (2025) calls it epochs.
      observe: (state before the step, its release) -> the values to keep.

    Returns:
      (last state, observations of all steps stacked).
    """
    def body(state: State, step_key: PRNGKey) -> tuple[State, PyTree]:
      new_state, released = self.step(step_key, state, x, y, members)
      return new_state, observe(state, released)
    return jax.lax.scan(body, state, jax.random.split(key, num_steps))
