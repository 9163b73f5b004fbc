"""These helpers differentiate one record's loss
to get gradient norms by layer."""

import functools

import jax
import jax.numpy as jnp

from dpjax.lipschitz import losses
from dpjax.lipschitz.node import Context

LOSS = losses.cross_entropy()


def dig(tree, path):
  """Returns the entry at a path of a nested dict."""
  return functools.reduce(lambda inner, key: inner[key], path, tree)


def _paths(bounds, prefix=()):
  """Returns paths of parameter layers in `jax.tree.leaves(bounds)` order."""
  if not isinstance(bounds, dict):
    return [prefix]
  return [path for name in sorted(bounds)
          for path in _paths(bounds[name], prefix + (name,))]


def paths_of(network):
  """Returns the paths of the parameter layers of a network."""
  return _paths(network.gradient_bounds(network.fill(1.0), loss_lipschitz=1.0))


def lengths_of(network, rule=None):
  """Returns a function (params, x, y) -> gradient norms of all layers."""
  paths = paths_of(network)
  context = Context(rule=rule)

  def lengths(params, x, y):
    total = lambda p: LOSS.values(network.apply(p, x[None], context), y[None])[0]
    gradients = jax.grad(total)(params)
    # The constant keeps the root differentiable.
    return jnp.stack([jnp.sqrt(1e-20 + sum(
      jnp.sum(jnp.square(leaf)) for leaf in dig(gradients, path).values()))
      for path in paths])

  return lengths
