"""Products with square butterflies, beside dense matrices and fast transforms.

A step multiplies `BATCH` vectors of length N, or computes the gradients of a
sum of such products in the factors and the vectors. `numpy` multiplies by one
factor after the other. The factors of `fft` and `hadamard` are fixed; they have
no trainable parameters.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.fft

from experiments.benchmarks import methods
from experiments.benchmarks import program as programs
from experiments.benchmarks.program import Program
from experiments.benchmarks.program import Spec
from experiments.methods.sparsity import butterfly

BATCH = 64
_TOLERANCE = 1e-5


class Given(NamedTuple):
  """Inputs of a product.

  Attributes:
    factors: [L, N/2, 2, 2] float32.
    x: vectors [BATCH, N] float32.
    weight: [BATCH, N] weights of the products in the differentiated sum.
  """
  factors: np.ndarray
  x: np.ndarray
  weight: np.ndarray


def given(size: int) -> Given:
  """Returns random inputs; products have about the same variance as x."""
  rng = np.random.default_rng(0)
  factors = np.asarray(butterfly.init(jax.random.key(0), size,
                                      variance=1 / size))
  return Given(factors, *rng.standard_normal((2, BATCH, size), np.float32))


def one_by_one(factors: np.ndarray, x: np.ndarray) -> np.ndarray:
  """Returns x W^T in NumPy by definition, in the dtype of the arguments."""
  for level in reversed(range(len(factors))):
    outer, inner = 2**level, x.shape[1] >> level + 1
    (a, b), (c, d) = factors[level].reshape(outer, inner, 2, 2).transpose(
        2, 3, 0, 1)
    x = x.reshape(-1, outer, 2, inner)
    first, second = x[:, :, 0], x[:, :, 1]
    x = np.stack([a * first + b * second, c * first + d * second], 2)
    x = x.reshape(len(x), -1)
  return x


def signs(x: np.ndarray) -> np.ndarray:
  """Returns the Hadamard transform in NumPy, by sums and differences."""
  width = x.shape[1]
  while width > 1:
    halves = x.reshape(len(x), -1, 2, width // 2)
    first, second = halves[:, :, 0], halves[:, :, 1]
    x = np.stack([first + second, first - second], 2).reshape(x.shape)
    width //= 2
  return x


def _dense(factors: np.ndarray) -> np.ndarray:
  """Returns the dense matrix [N, N] of the factors."""
  return one_by_one(factors, np.eye(2 * factors.shape[1],
                                    dtype=factors.dtype)).T


def _on_host(name: str, inputs: Given) -> Callable[[], np.ndarray]:
  """Returns the product of a method that does not use JAX."""
  if name == 'blas':
    matrix = _dense(inputs.factors)
    return lambda: inputs.x @ matrix.T
  return {'numpy': lambda: one_by_one(inputs.factors, inputs.x),
          'fft': lambda: scipy.fft.fft(inputs.x),
          'hadamard': lambda: signs(inputs.x)}[name]


def make(spec: Spec) -> Program:
  """Returns a program of a product, or of its gradients."""
  name, inputs = methods.split(spec.method)[0], given(spec.size)
  if name not in ('ours', 'dense'):
    product = _on_host(name, inputs)
    return Program(step=product, info={},
                   audit=lambda: {'results': [product()]})
  weights, product = (
      (inputs.factors, butterfly.apply) if name == 'ours' else
      (_dense(inputs.factors), lambda matrix, x: x @ matrix.T))
  work = jax.jit(jax.grad(lambda w, x, weight: jnp.sum(
      weight * product(w, x)), (0, 1)) if spec.model == 'gradients' else
      lambda w, x, weight: (product(w, x),))
  arguments = jax.device_put((weights, inputs.x, inputs.weight))
  executable, info = programs.compiled(work, *arguments)
  # The peak reported by an accelerator includes the autotuning of kernels.
  peak = (None if jax.default_backend() == 'cpu'
          else lambda: info['temp_kib'])
  return Program(
      step=lambda: jax.block_until_ready(executable(*arguments)), info=info,
      peak_kib=peak, audit=lambda: {
          'results': [np.asarray(each) for each in executable(*arguments)]})


class Finding(NamedTuple):
  """Result of a check.

  Attributes:
    error: largest error of all results, divided by their largest value.
    passed: whether the error is within rounding.
  """
  error: float
  passed: bool

  @property
  def cells(self) -> tuple[str, ...]:
    """Returns the cells of this finding in the printed table."""
    return (f'{self.error:.1e}',)


def make_spec(model: str, method: str, *, size: int) -> Spec:
  """Returns the program to check."""
  return Spec(suite='butterfly', model=model, size=size, method=method)


def judge(spec: Spec, audit: Mapping[str, Any]) -> Finding:
  """Compares the results with products of dense matrices in float64."""
  wanted = _wanted(spec)
  error = max(float(np.max(abs(ours - theirs)) / np.max(abs(theirs)))
              for ours, theirs in zip(audit['results'], wanted, strict=True))
  return Finding(error, error <= _TOLERANCE)


def _wanted(spec: Spec) -> list[np.ndarray]:
  """Returns the correct results in float64."""
  name = methods.split(spec.method)[0]
  factors, x, weight = (part.astype(np.float64) for part in given(spec.size))
  if name in ('fft', 'hadamard'):
    fixed = getattr(butterfly, {'fft': 'fourier'}.get(name, name))(spec.size)
    order = (butterfly.bit_reversal(spec.size) if name == 'fft'
             else np.arange(spec.size))
    return [x[:, order] @ _dense(np.asarray(fixed)).T]
  matrix = _dense(factors)
  if spec.model == 'product':
    return [x @ matrix.T]
  outer = weight.T @ x
  return [outer if name == 'dense' else _by_factors(factors, outer),
          weight @ matrix]


def _by_factors(factors: np.ndarray, outer: np.ndarray) -> np.ndarray:
  """Returns X_before^T G X_after^T on the support of each factor."""
  gradients, size = np.empty_like(factors), len(outer)
  eye = np.broadcast_to(np.eye(2), factors.shape)
  for level, support in enumerate(butterfly.supports(size)):
    outside = np.arange(len(factors))[:, None, None, None]
    before, after = (_dense(np.where(kept, factors, eye)) for kept in (
        outside < level, outside > level))
    rows, columns = np.nonzero(support)
    gradient = (before.T @ outer @ after.T)[rows, columns]
    # A row has the indices (a, i, c), and its two entries the index j.
    gradients[level] = gradient.reshape(2**level, 2, -1, 2).transpose(
        0, 2, 1, 3).reshape(-1, 2, 2)
  return gradients
