"""Computes the rows of the settings in `sweep.py`; no records, no noise."""

from collections.abc import Iterator, Sequence
import itertools
import math

import numpy as np
from scipy import optimize

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import mechanism
from dpjax.stats.density_methods import projections
from dpjax.stats.density_methods import sensitivities
from experiments import records
from experiments import rows
from experiments.density_sensitivities import sweep
from experiments.methods.statistics import projection_tunings

_PAIRS = 4096


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.method} {setting.size}')
    metrics = {'sums': _sums, 'counts': _counts, 'inverse': _inverse,
             'pinsker': _pinsker, 'cosine': _cosine}[setting.method](setting)
    yield setting, rows.exact(setting, metrics)


def _sums(setting: sweep.Setting) -> dict[str, float]:
  public = dict(order=setting.order, adjacency=Adjacency(setting.adjacency))
  return dict(
      exact=sensitivities.trigonometric(setting.size, **public),
      printed=sensitivities.trigonometric(setting.size, printed=True, **public),
      attained=attained(setting.size, **public))


def attained(num_functions: int, *, order: int, adjacency: Adjacency) -> float:
  """Returns the largest change of sums found: a lower bound of sensitivity.

  Climbs from the best of many random pairs, or records. Half of the pairs are
  close together, where sines differ most.
  """
  k = np.arange(1, num_functions // 2 + 1)

  def change(places):
    phases = 2 * np.pi * np.multiply.outer(places, k)
    functions = math.sqrt(2) * np.concatenate([np.sin(phases),
                                               np.cos(phases)], -1)
    if adjacency is Adjacency.REPLACE_ONE:
      functions = functions[..., 0, :] - functions[..., 1, :]
    else:
      functions = functions[..., 0, :]
    return np.linalg.norm(functions, order, -1)
  rng = np.random.default_rng(0)
  pairs = rng.uniform(size=(_PAIRS, 2))
  pairs[::2, 1] = pairs[::2, 0] + 3 / num_functions * rng.uniform(
      -1, 1, _PAIRS // 2)
  # Points at which all waves are in phase with both ends.
  pairs[::4] -= pairs[::4].mean(1, keepdims=True)
  starts = pairs[np.argsort(change(pairs))[-4:]]
  return max(-optimize.minimize(
      lambda pair: -change(pair[None])[0], start, method='Nelder-Mead',
      options=dict(xatol=1e-11, fatol=1e-11, maxiter=600,
                   initial_simplex=start + np.array(
                       [[0, 0], [0.1, 0], [0, 0.1]]) / num_functions)).fun
             for start in starts)


def _counts(setting: sweep.Setting) -> dict[str, float]:
  """Returns sensitivities by trying records in each bin, or pair of bins."""
  middles = (np.arange(setting.size) + 0.5) / setting.size
  single = [mechanism.bin_counts(np.array([place]), setting.size)
            for place in middles]
  moves = single
  if setting.adjacency == Adjacency.REPLACE_ONE.value:
    moves = [a - b for a, b in itertools.product(single, repeat=2)]
  return {name: max(float(np.linalg.norm(move, order)) for move in moves)
          for name, order in (('l1', 1), ('l2', 2), ('largest', np.inf))}


def _inverse(setting: sweep.Setting) -> dict[str, float]:
  return dict(supremum=sensitivities.weighted_circle(
      1 / np.arange(1, setting.size + 1), adjacency=Adjacency.REPLACE_ONE))


def _pinsker(setting: sweep.Setting) -> dict[str, float]:
  """Returns privacy errors over the bound 4 (sum of weights)^2 / (n^2 rho)."""
  weights = (1.0,) * setting.size if not setting.order else (
      projection_tunings.pinsker_weights(
          setting.size, smoothness=setting.order))
  values = {}
  for allocation in projections.ALLOCATIONS:
    projection = projections.WeightedProjection(
        num_records=1, rho=1.0, adjacency=Adjacency.REPLACE_ONE,
        coefficient_weights=weights, allocation=allocation)
    error = 2 * np.sum(projection.weights**2 * projection.noise_variances[1:])
    values[allocation] = error / (4 * np.sum(projection.weights)**2)
  return values


def _cosine(setting: sweep.Setting) -> dict[str, float]:
  weights = projection_tunings.pinsker_weights(setting.size, smoothness=1)
  return dict(ratio=sensitivities.weighted_cosine(
      weights, adjacency=Adjacency.REPLACE_ONE) / sum(weights))
