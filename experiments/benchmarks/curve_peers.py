"""Curves in plain NumPy: releases, and comparisons key by key.

Releases have the distribution of dpjax, and comparisons its keys and its
cipher. All is written from descriptions (Boyle et al. 2021; items EC-44, EC-45,
EC-47).
"""

from collections.abc import Callable

import numpy as np
from scipy import fft
from scipy import sparse

from dpjax.mpc import comparison
from dpjax.mpc import prg
from dpjax.stats.ecdf_methods import toeplitz
from dpjax.stats.ecdf_methods import trees
from experiments.benchmarks import curve_work as work
from experiments.benchmarks import methods
from experiments.benchmarks.program import Program
from experiments.benchmarks.program import Spec

Release = Callable[[np.random.Generator, np.ndarray], np.ndarray]
"""(generator, counts [N]) -> ranks [N]."""


def make(spec: Spec) -> Program:
  """Returns a program of one call on prepared inputs."""
  if spec.model.startswith('release'):
    return _released(spec.model, spec.size)
  return _compared(spec.model, spec.size)


def _released(model: str, size: int) -> Program:
  """Returns a program that releases a curve."""
  release = releases(model, size)
  rng, counts = np.random.default_rng(3), work.counts(size)

  def audit():
    return {'draws': np.stack([release(rng, counts)
                               for _ in range(methods.CHECKED_DRAWS)])}

  return Program(step=lambda: release(rng, counts), info={}, audit=audit)


def releases(model: str, size: int) -> Release:
  """Returns the release of a model in NumPy."""
  mechanism = work.released(model, size)
  if model == 'release_tree':
    return lambda rng, counts: _tree(rng, counts, mechanism)
  return lambda rng, counts: _square_root(rng, counts, mechanism)


def _tree(rng: np.random.Generator, counts: np.ndarray,
          mechanism: trees.TreeEcdf) -> np.ndarray:
  """Returns ranks from node counts with discrete Laplace noise of one scale.

  Leaves that come out negative are set to zero, and the rest is fitted again.
  """
  size, shape = counts.size, mechanism.branching
  alpha = np.exp(-1 / mechanism.scale)
  leaves = np.pad(counts, (0, np.prod(shape) - size))
  noisy = []
  for nodes in np.cumprod(shape):
    up, down = rng.geometric(1 - alpha, (2, nodes))
    noisy.append(leaves.reshape(nodes, -1).sum(1) + up - down)
  alive = (np.arange(leaves.size) < size).astype(float)
  fitted = _consistent(noisy, shape, alive, counts.sum())
  while np.any(fitted < 0):
    alive *= fitted >= 0
    fitted = _consistent(noisy, shape, alive, counts.sum())
  return np.cumsum(fitted)[:size]


def _consistent(noisy: list[np.ndarray], shape: tuple[int, ...],
                alive: np.ndarray, total: float) -> np.ndarray:
  """Returns leaves by least squares, in a pass up and one down (item EC-44)."""
  values, spreads = [alive * noisy[-1]], [alive]
  for parts, own in zip(shape[:0:-1], noisy[-2::-1], strict=True):
    below, spread = (each[0].reshape(-1, parts).sum(1)
                     for each in (values, spreads))
    values.insert(0, (spread * own + below) / (spread + 1))
    spreads.insert(0, spread / (spread + 1))
  fitted = np.array([total])
  for parts, value, spread in zip(shape, values, spreads, strict=True):
    below, width = (each.reshape(-1, parts).sum(1) for each in (value, spread))
    lack = (fitted - below) / np.where(width > 0, width, 1.0)
    fitted = value + spread * np.repeat(lack, parts)
  return fitted


def _square_root(rng: np.random.Generator, counts: np.ndarray,
                 mechanism: toeplitz.SquareRootEcdf) -> np.ndarray:
  """Returns ranks from counts with noise C^-1 z, conditioned on their sum n.

  Negative counts are pushed up to zero: an active-set method, which finds the
  forces on each active set by conjugate gradients.
  """
  size, steps = counts.size, np.arange(1, counts.size)
  inverse = np.cumprod(np.concatenate([[1.0], (2 * steps - 3) / (2 * steps)]))
  transformed = fft.rfft(inverse, 2 * size)
  apply = lambda values: fft.irfft(
      transformed * fft.rfft(values, 2 * size), 2 * size)[:size]
  covariance = lambda values: apply(apply(values[::-1])[::-1])
  with_sum = covariance(np.ones(size))
  moved = lambda force: covariance(force) - with_sum * (
      with_sum @ force / with_sum.sum())
  start = counts + mechanism.scale * apply(rng.standard_normal(size))
  start += with_sum * (counts.sum() - start.sum()) / with_sum.sum()
  projected, pushed = start, np.zeros(size, bool)
  slack = 1e-9 * np.abs(start).max()
  while np.any(projected < -slack):
    pushed |= projected < -slack
    force = np.zeros(size)
    spread = lambda part: np.where(pushed, moved(np.where(pushed, part, 0)), 0)
    force = np.where(pushed, _conjugate_gradients(
        spread, np.where(pushed, -start, 0)), 0)
    projected = np.where(pushed, 0, start + moved(force))
  return np.cumsum(np.maximum(projected, 0))


def _conjugate_gradients(matrix: Callable, right: np.ndarray) -> np.ndarray:
  """Solves matrix(x) = right by conjugate gradients."""
  operator = sparse.linalg.LinearOperator((right.size,) * 2, matrix)
  return sparse.linalg.cg(operator, right, rtol=1e-9)[0]


def _compared(model: str, size: int) -> Program:
  """Returns a program with one server's part of a comparison."""
  given = work.compared(size)
  answer = (everywhere if model == 'comparison_everywhere'
            else lambda keys: evaluate(keys, given.points))
  return Program(step=lambda: answer(given.keys[0]), info={},
                 audit=lambda: {'results': work.opened(
                     [answer(keys) for keys in given.keys])})


def evaluate(keys: comparison.Keys, points: np.ndarray) -> np.ndarray:
  """Returns shares [n, m] of each key at its points, key by key."""
  def one(number, asked):
    place = np.arange(asked.size)
    state = _root(keys, number, asked.size)
    for level in range(keys.depth):
      side = asked >> (keys.depth - 1 - level) & 1
      both = _children(keys, number, level, *state)
      state = tuple(part[place, side] for part in both)
    return _leaves(keys, number, *state)

  return np.stack([one(*each) for each in enumerate(points)])


def everywhere(keys: comparison.Keys) -> np.ndarray:
  """Returns shares [2^L] of sums over keys; each node is visited once."""
  total = np.zeros(2**keys.depth, np.uint64)
  for number in range(keys.num_keys):
    state = _root(keys, number, 1)
    for level in range(keys.depth):
      state = tuple(part.reshape(-1, *part.shape[2:]) for part in _children(
          keys, number, level, *state))
    total += _leaves(keys, number, *state)
  return total


def _root(keys: comparison.Keys, number: int, count: int):
  """Returns (seeds [m, 2], control bits [m], values [m]) at the root."""
  return (np.repeat(keys.roots[number:number + 1], count, 0),
          np.full(count, keys.party, np.uint64), np.zeros(count, np.uint64))


def _children(keys: comparison.Keys, number: int, level: int,
              seeds: np.ndarray, control: np.ndarray, values: np.ndarray):
  """Returns seeds, control bits and values of both children, [m, 2, ...].

  The step follows Boyle et al. (2021, figure 1).
  """
  below = np.stack([prg.expand(seeds, side) for side in (0, 1)], 1)
  added = prg.expand(seeds, 2)
  bits = added >> np.uint64(63)
  marked = control[:, None]
  return (below ^ marked[..., None] * keys.seeds[level, number],
          bits ^ marked * keys.controls[level, number],
          values[:, None] + added + marked * keys.values[level, number])


def _leaves(keys: comparison.Keys, number: int, seeds: np.ndarray,
            control: np.ndarray, values: np.ndarray) -> np.ndarray:
  """Returns the shares at the leaves; the second server negates its own."""
  shares = values + seeds[..., 0] + control * keys.last[number]
  return np.uint64(0) - shares if keys.party else shares
