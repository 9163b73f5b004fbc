"""Algorithm 8 (Lip-DP-SGD) as it is printed. NOT differentially private.

Quarantined: a positive control for audits, to be built with
`allow_unsound=True` only. Its accountant's epsilon holds for no data set size
(erratum E1), and errata E2 to E6 are in it as well: the batch maximum X_k, one
multiplier for K layers, the product from k instead of k + 1, power iteration,
division by the realised batch, empty batches redrawn, no word on biases (there
are none here). Source: thesis 003, Algorithm 8 and section 5.2.3 (LDP-01).

What the text leaves open: layers are updated together, from one backward
pass (lines 10-14 name K); the norm of a zero matrix is taken as tiny, for the
printed line 21 divides by it.
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
  """What the next step needs.

  Attributes:
    kernels: clipped weights.
    norms: c_k, [K].
  """
  kernels: Kernels
  norms: Array


class Released(NamedTuple):
  """What a step publishes: its noisy gradients, before the update."""
  gradients: Kernels


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrintedLipDpSgd:
  """Algorithm 8 for a chain of dense layers without biases.

  Guarantee: none. `claimed_event` is what the text accounts.

  Attributes:
    loss: (logits [b, c], labels [b]) -> [b].
    loss_lipschitz: tau, bound on the gradient of `loss` in the logits.
    noise_multiplier: sigma.
    weight_norm: C.
    learning_rate: eta.
    sampling_prob: s / |Z|.
    activation: between layers, 1-Lipschitz, zero at zero.
    num_iterations: of the power method.
    allow_unsound: must be True.
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

  def __post_init__(self):
    if not self.allow_unsound:
      raise ValueError('Algorithm 8 as printed is not private at the epsilon '
                       'it reports; allow_unsound must be True, got False')
    for name in ('loss_lipschitz', 'noise_multiplier', 'weight_norm'):
      errors.check_positive(name, getattr(self, name))
    errors.check_non_negative('learning_rate', self.learning_rate)
    errors.check_probability('sampling_prob', self.sampling_prob)

  @property
  def epsilon_valid(self) -> bool:
    """False: no epsilon that is reported for this is a bound."""
    return False

  def claimed_event(self, num_steps: int) -> accounting.DpEvent:
    """What line 16 and the text below it account: one block, sigma."""
    return accounting.poisson_gaussian_event(
        sampling_prob=self.sampling_prob, num_steps=num_steps,
        noise_multiplier=self.noise_multiplier)

  def init(self, kernels: Sequence[Array]) -> State:
    """Line 3: clips the initial weights."""
    return self.clip_weights(tuple(kernels))

  def clip_weights(self, kernels: Kernels) -> State:
    """Lines 17-24: c_k = min(C, ||theta_k||), theta_k <- c_k theta_k/||..||.

    The norm is the power method's: a lower bound, so that what is clipped to
    C may stay above it.
    """
    found = jnp.stack([self._norm(kernel) for kernel in kernels])
    clipped = jnp.minimum(jnp.float32(self.weight_norm), found)
    scales = clipped / jnp.maximum(found, _TINY)
    return State(tuple(scale * kernel for scale, kernel
                       in zip(scales, kernels, strict=True)), clipped)

  def _norm(self, kernel: Array) -> Array:
    # Any public vector that no symmetry of two classes is orthogonal to.
    start = jnp.cos(jnp.arange(1.0, kernel.shape[1] + 1))
    norm, _ = norms_lib.power_iteration(
        kernel, start, num_iterations=self.num_iterations)
    return norm

  def sensitivities(self, norms: Array) -> Array:
    """Line 5: Delta_k = tau prod_{i=k..K} c_i, [K]; k + 1 would be right."""
    return self.loss_lipschitz * jnp.cumprod(norms[::-1])[::-1]

  def draw_batch(self, key: PRNGKey, members: Array) -> Array:
    """Lines 6-9: Poisson, again while it is empty; a mask [n].

    Args:
      key: of this step.
      members: [n] bool, the rows that the data set holds; at least one.
    """
    def draw(carry):
      attempt, _ = carry
      draws = jax.random.uniform(jax.random.fold_in(key, attempt),
                                 members.shape)
      return attempt + 1, members & (draws < self.sampling_prob)
    start = (jnp.int32(0), jnp.zeros_like(members))
    return jax.lax.while_loop(lambda carry: ~jnp.any(carry[1]), draw, start)[1]

  def scaled_sums(self, kernels: Kernels, x: Array, y: Array,
                  mask: Array) -> Kernels:
    """Lines 11 and 13 before the noise: (1/X_k) sum of gradients over V.

    X_k is the largest norm of a layer's input in the batch, which depends on
    the private data: this is what no sensitivity below (|V| + 1) Delta_k
    covers.

    Args:
      kernels: of all layers.
      x: [n, p].
      y: [n].
      mask: [n] bool, the batch V.
    """
    def total(weights):
      logits, input_norms = self._forward(weights, x)
      losses = jnp.where(mask, self.loss(logits, y), 0.0)
      return jnp.sum(losses), input_norms
    gradients, input_norms = jax.grad(total, has_aux=True)(kernels)
    return tuple(
        gradient / jnp.max(jnp.where(mask, norm, 0.0))
        for gradient, norm in zip(gradients, input_norms, strict=True))

  def logits(self, kernels: Kernels, x: Array) -> Array:
    """The network: [n, p] -> [n, c]."""
    return self._forward(kernels, x)[0]

  def input_norms(self, kernels: Kernels, x: Array) -> list[Array]:
    """Norms [n] of each record's input, for each layer."""
    return self._forward(kernels, x)[1]

  def _forward(self, kernels, x):
    """Logits, and the norm of each record's input of each layer."""
    input_norms, last = [], len(kernels) - 1
    for layer, kernel in enumerate(kernels):
      input_norms.append(jax.lax.stop_gradient(
          jnp.sqrt(jnp.sum(jnp.square(x), -1))))
      x = x @ kernel
      x = x if layer == last else self.activation(x)
    return x, input_norms

  def step(self, key: PRNGKey, state: State, x: Array, y: Array,
           members: Array) -> tuple[State, Released]:
    """Lines 5-15: one update, and what it publishes."""
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
    """`num_steps` steps; jittable, and to be vmapped over keys.

    Args:
      key: fresh for this run.
      state: from `init`.
      x: [n, p].
      y: [n].
      members: [n] bool, the rows that the data set holds.
      num_steps: T; the text calls it epochs.
      observe: what to keep of (state before the step, its release).

    Returns:
      (last state, observations of all steps stacked).
    """
    def body(state, step_key):
      new_state, released = self.step(step_key, state, x, y, members)
      return new_state, observe(state, released)
    return jax.lax.scan(body, state, jax.random.split(key, num_steps))
