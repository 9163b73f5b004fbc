"""Settings of every test of the room."""

import itertools

import jax
import numpy as np
import pytest


@pytest.fixture(scope='module', autouse=True)
def _quick_compilation():
  """Programs this small take longer to optimise than to run."""
  jax.config.update('jax_disable_most_optimizations', True)
  yield
  jax.config.update('jax_disable_most_optimizations', False)


@pytest.fixture(name='operator_matrix', scope='session')
def _operator_matrix():
  """(kernels [..., kh, kw, ci, co], shape) -> matrices of x -> conv(x).

  Tap by tap in float64, [..., h_out w_out co, h w ci], with nothing shared
  with the package but the definition of the zeros that 'SAME' adds.
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
