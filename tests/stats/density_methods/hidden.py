"""Draws random densities that no estimator was designed for."""

from collections.abc import Callable
import math

import numpy as np
from scipy import special

from dpjax.stats.density_methods import densities
from experiments.methods.statistics import compared_densities

_GRID = 4096


def fourier(rng: np.random.Generator) -> densities.Density:
  """Draws up to 12 frequencies of random smoothness with f positive."""
  count, decay = rng.integers(1, 13), rng.uniform(0.5, 3)
  theta = (rng.normal(size=count) + 1j * rng.normal(size=count)) * np.arange(
      1, count + 1)**-decay
  raw = compared_densities.series('raw', theta)
  lowest = 1 - np.min(raw.pdf(np.arange(_GRID) / _GRID))
  return compared_densities.series('fourier', rng.uniform(0.3, 0.95) * theta / lowest)


def mixture(rng: np.random.Generator) -> densities.Density:
  """Draws a mixture of 2 to 4 Beta distributions that does not wrap around."""
  count = rng.integers(2, 5)
  shapes, weights = rng.uniform(2, 9, (count, 2)), rng.dirichlet(np.ones(count))
  a, b = shapes.T

  def products():
    logs = (special.betaln(np.add.outer(a, a) - 1, np.add.outer(b, b) - 1)
            - np.add.outer(*[special.betaln(a, b)] * 2))
    return weights @ np.exp(logs) @ weights
  parts = [compared_densities.beta(*shape) for shape in shapes]
  mixed = lambda of: lambda x: sum(
      weight * of(part)(x) for weight, part in zip(weights, parts, strict=True))
  return densities.Density(
      name='mixture', pdf=mixed(lambda part: part.pdf),
      cdf=mixed(lambda part: part.cdf), square=float(products()),
      lipschitz=sum(weight * part.lipschitz for weight, part in zip(
          weights, parts, strict=True)), periodic=False)


def lipschitz(rng: np.random.Generator) -> densities.Density:
  """Draws straight lines between 3 to 9 random heights, some of them 0."""
  count = rng.integers(3, 10)
  # Quadratures have an edge there.
  inner = rng.choice(np.arange(1, 2**16), count - 2, replace=False) / 2**16
  ends = np.concatenate([[0], np.sort(inner), [1]])
  heights = np.maximum(rng.uniform(-0.3, 1, count), 0)
  heights[rng.integers(count)] = 1
  widths = np.diff(ends)
  areas = lambda values: widths * (values[:-1] + values[1:]) / 2
  heights = heights / np.sum(areas(heights))
  low, high = heights[:-1], heights[1:]
  tops = np.concatenate([[0], np.cumsum(areas(heights))])

  def cdf(x):
    place = np.clip(np.searchsorted(ends, x, side='right') - 1, 0, count - 2)
    part = np.asarray(x) - ends[place]
    slope = (high - low)[place] / widths[place]
    return tops[place] + part * (low[place] + slope * part / 2)
  return densities.Density(
      name='lipschitz', pdf=lambda x: np.interp(x, ends, heights), cdf=cdf,
      square=float(np.sum(widths * (low**2 + low * high + high**2)) / 3),
      lipschitz=float(np.max(np.abs(high - low) / widths)),
      periodic=math.isclose(heights[0], heights[-1]))


KINDS: tuple[Callable[[np.random.Generator], densities.Density], ...] = (
    fourier, mixture, lipschitz)
