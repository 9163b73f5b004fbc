"""These fixtures are the package's test
settings and its slow, obvious oracles."""

import itertools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.lipschitz.node import Context


@pytest.fixture(scope='module', autouse=True)
def _quick_compilation():
  """Turns off XLA optimisations, which take
  these programs longer than running."""
  jax.config.update('jax_disable_most_optimizations', True)
  yield
  jax.config.update('jax_disable_most_optimizations', False)


@pytest.fixture(name='operator_matrix', scope='session')
def _operator_matrix():
  """Returns a function that builds the dense matrices of x -> conv(x).

  It maps (kernels [..., kh, kw, ci, co], shape) to float64 matrices [..., h_out
  w_out co, h w ci], tap by tap. It shares nothing with the package but the
  definition of the zeros that 'SAME' adds.
  """
  def build(kernels, shape):
    kernels = np.asarray(kernels, np.float64)
    size, (kh, kw, c_in, c_out) = shape.input_size, kernels.shape[-4:]
    pads = _zeros(shape, (kh, kw))
    outputs = [(n + sum(pad) - k) // s + 1 for n, pad, k, s in zip(
      size, pads, (kh, kw), shape.strides, strict=True)]
    lead = kernels.shape[:-4]
    matrix = np.zeros((*lead, *outputs, c_out, *size, c_in))
    for a, b, r, s in itertools.product(*map(range, (*outputs, kh, kw))):
      i = a * shape.strides[0] + r - pads[0][0]
      j = b * shape.strides[1] + s - pads[1][0]
      if shape.padding == 'circular':
        i, j = i % size[0], j % size[1]
      if 0 <= i < size[0] and 0 <= j < size[1]:
        matrix[..., a, b, :, i, j, :] += np.swapaxes(kernels[..., r, s, :, :],
                                                     -2, -1)
    return matrix.reshape((*lead, outputs[0] * outputs[1] * c_out, -1))

  return build


def _zeros(shape, taps):
  if shape.padding == 'zero':
    return jax.lax.padtype_to_pads(shape.input_size, taps, shape.strides,
                                   'SAME')
  if shape.padding == 'circular':
    return [((k - 1) // 2, k // 2) for k in taps]
  return ((0, 0), (0, 0)) if shape.padding == 'valid' else shape.padding


def _dense_jacobians(of, argument, records) -> np.ndarray:
  """Returns float64 Jacobians [records, outputs, entries of the argument]."""
  argument, records = jax.tree.map(
    lambda leaf: jnp.asarray(leaf, jnp.float64), (argument, records))
  jacobians = jax.jit(jax.vmap(jax.jacrev(of), (None, 0)))(argument, records)
  leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(jacobians)]
  return np.concatenate([leaf.reshape(leaf.shape[:2] + (-1,))
                         for leaf in leaves], 2)


def _outputs(node):
  """Returns a function (params, record) -> flat outputs of the record."""
  return lambda params, x: node.apply(params, x[None], Context()).reshape((-1,))


def input_jacobians(node, params, records) -> np.ndarray:
  """Returns float64 Jacobians [records, outputs, inputs] by `jax.jacrev`."""
  with jax.enable_x64(True):
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), params)
    shifted = lambda x, start: _outputs(node)(params, start + x)
    return _dense_jacobians(shifted, np.zeros(np.shape(records)[1:]), records)


def parameter_jacobians(node, params, records) -> np.ndarray:
  """Returns float64 Jacobians [records,
  outputs, parameters] by `jax.jacrev`."""
  with jax.enable_x64(True):
    return _dense_jacobians(_outputs(node), params, records)


def norms(matrices) -> np.ndarray:
  """Returns the largest singular value of each matrix."""
  return np.linalg.norm(matrices, 2, axis=(-2, -1))


def lip_lower(function, key, num_pairs: int, *, size: int, scale=1.0,
              num_steps: int = 60) -> float:
  """Returns a lower estimate of sup ||f(x) - f(y)|| / ||x - y|| (LIP-00).

  It tries random pairs far and near, then power iteration on the Jacobian at
  the points and small ascents of its norm over the points.

  Args:
    function: [size] -> [m].
    key: of the pairs.
    num_pairs: points to start from.
    size: of x.
    scale: of the points.
    num_steps: of ascent.
  """
  first, second, vectors = (
    jax.random.normal(k, [num_pairs, size]) for k in jax.random.split(key, 3))
  first, second = scale * first, scale * second
  values = jax.vmap(function)
  slopes = []
  for near in (1.0, 1e-2):
    other = first + near * (second - first)
    slopes.append(jnp.linalg.norm(values(first) - values(other), axis=1)
                  / jnp.linalg.norm(first - other, axis=1))

  def stretch(x, v):
    return jnp.linalg.norm(jax.jvp(function, (x,), (v,))[1])

  def climb(x, v):
    def turn(carry, _):
      x, v = carry
      pushed = jax.jvp(function, (x,), (v,))[1]
      pulled, = jax.vjp(function, x)[1](pushed)
      v = pulled / (jnp.linalg.norm(pulled) + 1e-30)
      slope = jax.grad(stretch)(x, v)
      slope = jnp.where(jnp.isfinite(slope), slope, 0.0)
      x = x + 0.05 * scale * slope / (jnp.linalg.norm(slope) + 1e-9)
      return (x, v), stretch(x, v)

    start = v / jnp.linalg.norm(v)
    return jnp.max(jax.lax.scan(turn, (x, start), length=num_steps)[1])

  slopes.append(jax.jit(jax.vmap(climb))(first, vectors))
  return float(max(jnp.max(each) for each in slopes))


@pytest.fixture(name='oracles', scope='session')
def _oracles():
  """Returns the oracles: dense float64 Jacobians and searches from below."""
  return types.SimpleNamespace(
    input_jacobians=input_jacobians, parameter_jacobians=parameter_jacobians,
    norms=norms, lip_lower=lip_lower)
