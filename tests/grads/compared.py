"""Computes per-record gradients by book-keeping and by `vmap`."""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.grads import bookkeeping
from dpjax.grads import per_example
from dpjax.typing import Batch

SIZE = 6


def loss(logits, labels):
  """Returns a linear loss, so that record gradients do not vanish or cancel."""
  places = jnp.arange(logits.shape[1])[None] + labels[:, None]
  return jnp.sum(logits * jnp.cos(places.astype(jnp.float32)), 1)


def squares(apply, params, x, kernel):
  """Returns (squared norms by leaf [b], randomly weighted sums, usable)."""
  batch = Batch(x, jnp.arange(x.shape[0], dtype=jnp.int32) % 3)
  kept = jnp.arange(x.shape[0]) != 1
  rng = np.random.default_rng(0)
  weights = jax.tree.map(lambda leaf: jnp.asarray(
    np.where(kept, rng.uniform(0, 2, x.shape[0]), 0), jnp.float32), params)

  def run(params, batch):
    gradients = per_example.KERNELS[kernel](apply, loss, params, batch, kept)
    return (jax.tree.map(lambda leaf: jnp.where(kept, leaf, 0.),
                         gradients.squares), gradients.weighted(weights),
            gradients.usable)

  return jax.jit(run)(params, batch)


def check_equal(apply, params, x, rtol=1e-5, floor=1e-6):
  """Checks that norms and weighted sums of each leaf are those of `vmap`."""
  ours = squares(apply, params, x, 'bookkeeping')
  reference = squares(apply, params, x, 'vmap')
  np.testing.assert_array_equal(ours[2], reference[2])
  # Some gradients are zero up to rounding: attention ignores a bias of its
  # keys, and saturated units have no gradient.
  whole = np.sqrt(sum(jax.tree.leaves(reference[0])))

  def same_norms(a, b):
    assert np.all(np.abs(np.sqrt(a) - np.sqrt(b))
                  <= rtol * np.sqrt(b) + floor * whole.max())

  def same_sums(a, b):
    assert a.shape == b.shape and a.dtype == jnp.float32
    gap, size = np.linalg.norm(a - b), np.linalg.norm(b)
    assert gap <= rtol * size + floor * whole.sum(), (gap, size)

  jax.tree.map(same_norms, ours[0], reference[0])
  jax.tree.map(same_sums, ours[1], reference[1])


def kinds(apply, params, x):
  """Returns how each parameter's gradient is computed, by path."""
  batch = (x, jnp.zeros([x.shape[0]], jnp.int32))

  def record_loss(params, record):
    one = jax.tree.map(lambda leaf: leaf[None], record)
    return loss(apply(params, one[0]), one[1])[0]

  known = bookkeeping.planned(record_loss, params, batch).known
  paths = [jax.tree_util.keystr(path) for path, _ in
           jax.tree_util.tree_leaves_with_path(params)]
  names = lambda groups: 'formed' if groups is None else ' '.join(
    type(read.operation).__name__ for group in groups
    for read in group.reads) or 'none'
  return {path: names(known[i]) for i, path in enumerate(paths)}


def records(*shape, seed=0):
  rng = np.random.default_rng(seed)
  x = rng.normal(size=(SIZE, *shape))
  x *= np.logspace(-1, 0.5, SIZE).reshape((-1,) + (1,) * len(shape))
  return jnp.asarray(x, jnp.float32)


def perturbed(params, seed=0):
  """Returns perturbed parameters; zero biases and unit scales hide mistakes."""
  rng = np.random.default_rng(seed)
  return jax.tree.map(lambda leaf: leaf + jnp.asarray(
    0.1 * rng.normal(size=leaf.shape), leaf.dtype), params)


def linen(module, x, seed=0):
  """Returns (apply, params) of a Flax module."""
  params = module.init(jax.random.key(seed), x[:1])
  return module.apply, perturbed(params)
