"""Computes and simulates the settings in `sweep.py`."""

from collections.abc import Iterator, Sequence
import math

import numpy as np

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import histograms
from experiments import records
from experiments import rows
from experiments import simulation
from experiments.density_marginals import chain
from experiments.density_marginals import sweep
from experiments.methods.statistics import marginals

_REPLACE = Adjacency.REPLACE_ONE
_STRUCTURES = {'independent': 'independent', 'tree': chain.TREE,
               'private_tree': 'private'}


def mechanism(setting: sweep.Setting):
  """Returns the mechanism of a setting."""
  public = dict(num_records=setting.num_records, adjacency=_REPLACE,
                epsilon=setting.epsilon)
  if setting.method in _STRUCTURES:
    return marginals.TreeMarginals(
        num_attributes=chain.NUM_ATTRIBUTES, num_bins=chain.NUM_BINS,
        structure=_STRUCTURES[setting.method], **public)
  # Noise does not depend on the arrangement of cells: treat them as bins.
  return histograms.Histogram(
      num_bins=chain.probabilities().size, fix_mass=False,
      post='simplex' if setting.method == 'flat_simplex' else 'none', **public)


def _exact(setting: sweep.Setting) -> dict[str, float]:
  cells = chain.probabilities()
  error = cells.size * float(1 - np.sum(cells**2)) / setting.num_records
  if setting.method == 'flat':
    error += cells.size**2 * (mechanism(setting).noise_variance
                              / setting.num_records**2)
  return dict(mse=error)


def _simulated(setting: sweep.Setting) -> dict[str, float]:
  cells = chain.probabilities()
  # Records depend on size and seed only, so that all methods see the same.
  counts = np.random.default_rng([setting.seed, setting.num_records]
                                 ).multinomial(setting.num_records, cells,
                                               setting.repetitions)
  asked, key = mechanism(setting), simulation.key_of(setting)
  if setting.method in _STRUCTURES:
    tables = asked.coefficients(key, asked.statistic_of_cells(counts))
    result = marginals.cells_of(tables)
  else:
    result = asked.coefficients(key, counts)
  errors = np.mean((result - cells.size * cells)**2, -1)
  metrics = dict(mse=np.mean(errors), mse_se=np.std(errors, ddof=1)
                 / math.sqrt(errors.size))
  if setting.method == 'private_tree':
    metrics['right'] = np.mean([
        {frozenset(edge) for edge in edges.tolist()}
        == set(map(frozenset, chain.TREE)) for edges in tables.edges])
  return metrics


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.method} '
             f'n={setting.num_records} {setting.epsilon:g}')
    if setting.repetitions:
      yield setting, rows.released(
          setting, _simulated(setting), n=setting.num_records,
          epsilon=setting.epsilon)
    else:
      yield setting, rows.exact(setting, _exact(setting))
