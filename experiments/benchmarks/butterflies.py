"""Products with square butterflies, beside dense matrices and fast transforms.

A step multiplies `BATCH` vectors of N numbers, or takes the gradients of a sum
of such products by the factors and the vectors. `numpy` goes from factor to
factor, 2 x 2 blocks in the open; of `fft` and `hadamard` the factors are known
beforehand, and nothing can be learned of them.
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
  """What is multiplied.

  Attributes:
    factors: [L, N/2, 2, 2] float32.
    x: vectors [BATCH, N] float32.
    weight: of the products in the sum whose gradients are taken, like x.
  """
  factors: np.ndarray
  x: np.ndarray
  weight: np.ndarray


def given(size: int) -> Given:
  """Of entries of the product of variance 1/N, so that products are like x."""
  rng = np.random.default_rng(0)
  factors = np.asarray(butterfly.init(jax.random.key(0), size,
                                      variance=1 / size))
  return Given(factors, *rng.standard_normal((2, BATCH, size), np.float32))


def one_by_one(factors: np.ndarray, x: np.ndarray) -> np.ndarray:
  """x W^T in NumPy, by the definition, in the dtype of its arguments."""
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
  """The Hadamard transform in NumPy: sums and differences."""
  width = x.shape[1]
  while width > 1:
    halves = x.reshape(len(x), -1, 2, width // 2)
    first, second = halves[:, :, 0], halves[:, :, 1]
    x = np.stack([first + second, first - second], 2).reshape(x.shape)
    width //= 2
  return x


def _dense(factors: np.ndarray) -> np.ndarray:
  return one_by_one(factors, np.eye(2 * factors.shape[1],
                                    dtype=factors.dtype)).T


def _on_host(name: str, made: Given) -> Callable[[], np.ndarray]:
  if name == 'blas':
    matrix = _dense(made.factors)
    return lambda: made.x @ matrix.T
  return {'numpy': lambda: one_by_one(made.factors, made.x),
          'fft': lambda: scipy.fft.fft(made.x),
          'hadamard': lambda: signs(made.x)}[name]


def make(spec: Spec) -> Program:
  """A product, or its gradients."""
  name, made = methods.split(spec.method)[0], given(spec.size)
  if name not in ('ours', 'dense'):
    product = _on_host(name, made)
    return Program(step=product, info={}, audit=lambda: {'found': [product()]})
  weights, product = (
      (made.factors, butterfly.apply) if name == 'ours' else
      (_dense(made.factors), lambda matrix, x: x @ matrix.T))
  work = jax.jit(jax.grad(lambda w, x, weight: jnp.sum(
      weight * product(w, x)), (0, 1)) if spec.model == 'gradients' else
      lambda w, x, weight: (product(w, x),))
  arguments = jax.device_put((weights, made.x, made.weight))
  found, info = programs.compiled(work, *arguments)
  # The peak that an accelerator tells is that of trying kernels out.
  peak = (None if jax.default_backend() == 'cpu'
          else lambda: info['temp_kib'])
  return Program(
      step=lambda: jax.block_until_ready(found(*arguments)), info=info,
      peak_kib=peak, audit=lambda: {
          'found': [np.asarray(each) for each in found(*arguments)]})


class Finding(NamedTuple):
  """What a check saw.

  Attributes:
    error: over the largest value, the worst of all that was computed.
    passed: whether that is rounding.
  """
  error: float
  passed: bool

  @property
  def cells(self) -> tuple[str, ...]:
    """As it is printed."""
    return (f'{self.error:.1e}',)


def make_spec(model: str, method: str, *, size: int) -> Spec:
  """What is checked."""
  return Spec(suite='butterfly', model=model, size=size, method=method)


def judge(spec: Spec, audit: Mapping[str, Any]) -> Finding:
  """Compares with dense matrices in float64."""
  wanted = _wanted(spec)
  error = max(float(np.max(abs(ours - theirs)) / np.max(abs(theirs)))
              for ours, theirs in zip(audit['found'], wanted, strict=True))
  return Finding(error, error <= _TOLERANCE)


def _wanted(spec: Spec) -> list[np.ndarray]:
  name = methods.split(spec.method)[0]
  factors, x, weight = (part.astype(np.float64) for part in given(spec.size))
  if name in ('fft', 'hadamard'):
    made = getattr(butterfly, {'fft': 'fourier'}.get(name, name))(spec.size)
    order = (butterfly.bit_reversal(spec.size) if name == 'fft'
             else np.arange(spec.size))
    return [x[:, order] @ _dense(np.asarray(made)).T]
  matrix = _dense(factors)
  if spec.model == 'product':
    return [x @ matrix.T]
  outer = weight.T @ x
  return [outer if name == 'dense' else _by_factors(factors, outer),
          weight @ matrix]


def _by_factors(factors: np.ndarray, outer: np.ndarray) -> np.ndarray:
  """X_before^T G X_after^T on the support of each factor."""
  found, size = np.empty_like(factors), len(outer)
  eye = np.broadcast_to(np.eye(2), factors.shape)
  for level, support in enumerate(butterfly.supports(size)):
    outside = np.arange(len(factors))[:, None, None, None]
    before, after = (_dense(np.where(kept, factors, eye)) for kept in (
        outside < level, outside > level))
    rows, columns = np.nonzero(support)
    gradient = (before.T @ outer @ after.T)[rows, columns]
    # Indices of a row are (a, i, c), those of its two entries j.
    found[level] = gradient.reshape(2**level, 2, -1, 2).transpose(
        0, 2, 1, 3).reshape(-1, 2, 2)
  return found
