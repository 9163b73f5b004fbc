"""The K-norm privatizer: noise of pure differential privacy in each step."""

import jax
import jax.numpy as jnp
import optax

from dpjax import errors
from dpjax import tree
from dpjax.grads import privatizer
from dpjax.grads.privatizer import PrivatizerState
from dpjax.privacy import k_norm
from dpjax.typing import Array, PRNGKey, PyTree

# Keeps float32 rounding of the scales on the side of more noise.
_ROUNDING_MARGIN = 1 + 1e-5


def k_norm_privatizer(
    key: PRNGKey, *, noise_multiplier: Array | float, order: float,
    expected_batch_size: float) -> optax.GradientTransformationExtraArgs:
  """Adds K-norm noise to bounded sums, then divides by a public constant.

  Guarantee: suppose a batch contains each record with probability q and each
  record's contribution to block k has p-norm at most `l2_sensitivity[k]`. Then
  a step costs `k_norm.event(noise_multiplier=..., order=p)` on that sample: K
  blocks get independent noise, and their epsilons add up before subsampling.
  It replaces `privatizer.gaussian_privatizer` in a chain (item LDP-03). Noise
  is added at every step; the divisor is public.

  Args:
    key: secret, and used for nothing else.
    noise_multiplier: 1 / epsilon of one release of all blocks under
      add-or-remove-one, before amplification by sampling.
    order: p, one of 1, 2 and inf.
    expected_batch_size: public divisor (`PoissonSampler.expected_batch_size`).

  Returns:
    An optax transform whose `update(sums, state, params, l2_sensitivity=...)`
    returns the noisy mean. Despite its name, `l2_sensitivity` holds *p-norm*
    bounds (`k_norm.p_norm_bound`), as a tree prefix of the sums. The state's
    joint multiplier is 1 / the largest epsilon of any step. `draws` are
    rejected, because noise drawn ahead is Gaussian.
  """
  errors.check_positive('expected_batch_size', expected_batch_size)
  k_norm.check_order(order)

  def init(params: PyTree) -> PrivatizerState:
    privatizer.check_whole(params)
    return PrivatizerState(key, jnp.int32(0), jnp.float32(jnp.inf))

  def update(sums: PyTree, state: PrivatizerState, params: PyTree = None, *,
             l2_sensitivity: PyTree, indicators: PyTree = (),
             draws: None = None
             ) -> tuple[PyTree, PrivatizerState]:
    del params
    if jax.tree.leaves(indicators):
      raise ValueError('adaptive radii are released with Gaussian noise only')
    if draws is not None:
      raise ValueError('K-norm noise cannot use Gaussian noise drawn ahead')
    leaves, structure = jax.tree.flatten(l2_sensitivity)
    bounds, parts = jnp.stack(leaves), tree.blocks(l2_sensitivity, sums)
    scales = k_norm.allocate(
        bounds, noise_multiplier=noise_multiplier, order=order,
        sizes=tree.block_sizes(l2_sensitivity, sums))
    scales = privatizer.at_least_visible(bounds, _ROUNDING_MARGIN * scales)
    # An independent key for each block of each step.
    keys = jax.random.split(jax.random.fold_in(state.key, state.step),
                            len(parts))
    noisy = [k_norm.add_noise(k, part, scale, order=order)
             for k, part, scale in zip(keys, parts, scales, strict=True)]
    mean = tree.scale(1 / expected_batch_size,
                      jax.tree.unflatten(structure, noisy))
    multiplier = k_norm.joint_noise_multiplier(bounds, scales)
    return mean, PrivatizerState(
        state.key, state.step + 1,
        jnp.minimum(state.joint_noise_multiplier, multiplier))

  return optax.GradientTransformationExtraArgs(init, update)
