"""Programs that draw noise by several generators, or Poisson batches."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.privacy import additive
from dpjax.privacy import chacha
from dpjax.privacy import lattice
from dpjax.sampling import PoissonSampler
from dpjax.typing import Array, PRNGKey
from experiments.benchmarks import methods
from experiments.benchmarks import program as programs
from experiments.benchmarks.program import Program
from experiments.benchmarks.program import Spec

WORK = ('noise', 'poisson')
_BATCH = 256
_GENERATORS = {'rbg': 'rbg', 'ours_rbg': 'rbg', 'unsafe_rbg': 'unsafe_rbg',
               'ours_chacha': chacha.GENERATOR,
               'ours_release': chacha.GENERATOR}


def make(spec: Spec) -> Program:
  """Returns a program that draws `size` values, or a batch of `size` records.

  A batch has about 256 records.
  """
  name, _ = methods.split(spec.method)
  if name == 'numpy':
    return Program(step=_numpy(spec), info={})
  if name == 'torch':
    import torch
    return Program(step=lambda: torch.randn(spec.size), info={})
  draw = _noise if spec.model == 'noise' else _poisson
  return _compile(draw(name, spec.size),
                  jax.random.key(0, impl=_GENERATORS.get(name, 'threefry2x32')))


def _probability(size: int) -> float:
  """Returns the sampling probability of batches of about 256 records."""
  return min(_BATCH / size, 0.25)


def _numpy(spec: Spec) -> Callable[[], object]:
  """Returns a step that draws by NumPy."""
  rng = np.random.default_rng(0)
  if spec.model == 'noise':
    return lambda: rng.standard_normal(spec.size, np.float32)
  return lambda: np.flatnonzero(rng.random(spec.size, np.float32)
                                < _probability(spec.size))


def _noise(name: str, size: int) -> Callable[[PRNGKey], Array]:
  """Returns the sampler of Gaussian noise of a method."""
  if name in ('ours_lattice', 'ours_release'):
    step = lattice.spacing(1.0)
    outer = lattice.outer_multiplier(jnp.float32(1.0), step)
    return lambda key: lattice.add_noise(key, jnp.zeros([size]), step, outer)
  if name.startswith('ours'):
    return lambda key: additive.standard_normal(key, (size,))
  return lambda key: jax.random.normal(key, (size,))


def _poisson(name: str, size: int) -> Callable[[PRNGKey], Array]:
  """Returns the batch sampler of dpjax, or the usual one by `bernoulli`."""
  probability = _probability(size)
  sampler = PoissonSampler(num_examples=size, batch_size=probability * size)
  if name in ('ours', 'ours_chacha', 'rbg'):
    return lambda key: sampler.draw(key).rows
  return lambda key: jnp.flatnonzero(
      jax.random.bernoulli(key, probability, (size,)), size=sampler.part_size)


def _compile(draw: Callable[[PRNGKey], Array], key: PRNGKey) -> Program:
  """Returns a program that draws with a new key in every step."""
  def following(key: PRNGKey) -> tuple[PRNGKey, Array]:
    key, own = jax.random.split(key)
    return key, draw(own)

  compiled, info = programs.compiled(jax.jit(following), key)
  state = [key]

  def step() -> None:
    state[0], drawn = compiled(state[0])
    drawn.block_until_ready()

  return Program(step=step, info=info)
