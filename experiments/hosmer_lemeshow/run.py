"""Simulates the settings in `sweep.py`; a group is of one data set."""

from collections.abc import Iterator, Sequence
import functools

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import hosmer_lemeshow
from dpjax.stats import roc_curves as roc
from dpjax.stats.ecdf_methods.grids import Grid
from experiments import ecdf_data
from experiments import records
from experiments import rows
from experiments import scores
from experiments.hosmer_lemeshow import sweep
from experiments.methods.statistics import hosmer_lemeshow_cells as cells

_ADJACENCY = Adjacency.REPLACE_ONE


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.dataset} {setting.method} '
             f'epsilon={setting.epsilon:g}')
    data = scores.scores(setting.dataset, data_dir=data_dir, seed=setting.seed)
    metrics = (_released if setting.method == 'release' else _asked)(
        setting, data)
    yield setting, rows.released(
        setting, _metrics(setting, data, metrics), n=len(data.labels),
        epsilon=setting.epsilon, adjacency=_ADJACENCY)


def _grid(setting: sweep.Setting) -> Grid:
  return Grid(lower=0.0, upper=1.0, num_thresholds=setting.num_thresholds)


def _keys(setting: sweep.Setting):
  return ecdf_data.keys(
      setting.seed, f'{setting.dataset}/{setting.method}/{setting.epsilon!r}',
      setting.repetitions)


@functools.cache
def _statistics(draw, num_groups: int, min_expected: float, by_cells: bool):
  """Returns a sampler (keys [R], data, parameters, predictions) -> H [R]."""
  def one(key, data, parameters, chances):
    result = draw(key, data, parameters)
    if by_cells:
      return cells.statistic(result, min_expected=min_expected)
    return hosmer_lemeshow.statistic(
        hosmer_lemeshow.table(result, chances, num_groups=num_groups),
        min_expected=min_expected)
  return jax.jit(jax.vmap(one, (0, None, None, None)))


def _simulated(setting: sweep.Setting, mechanism, data) -> np.ndarray:
  with jax.enable_x64(True):
    return np.asarray(_statistics(
        mechanism.draw, setting.num_groups, setting.min_expected,
        setting.method != 'release')(
            _keys(setting), jax.tree.map(
                lambda part: jnp.asarray(part, jnp.float64), data),
            mechanism.parameters, hosmer_lemeshow.chances(_grid(setting))))


def _released(setting: sweep.Setting, of: scores.Scores) -> np.ndarray:
  """Returns H [R] from one release of both classes."""
  grid = _grid(setting)
  mechanism = roc.make(grid, epsilon=setting.epsilon, adjacency=_ADJACENCY)
  return _simulated(setting, mechanism,
                    roc.counts(grid, of.predictions, of.labels))


def _asked(setting: sweep.Setting, of: scores.Scores) -> np.ndarray:
  """Returns H [R] by Algorithm 10."""
  grid = _grid(setting)
  mechanism = cells.CellwiseHosmerLemeshow(
      grid=grid, epsilon=setting.epsilon, adjacency=_ADJACENCY,
      num_groups=setting.num_groups, accounting=setting.method)
  return _simulated(setting, mechanism,
                    cells.bins(grid, of.predictions, of.labels))


def _metrics(setting: sweep.Setting, of: scores.Scores,
             outcome: np.ndarray) -> dict[str, float]:
  """Returns relative errors, and the expected count of the first group."""
  true = hosmer_lemeshow.exact(
      of.predictions, of.labels, num_groups=setting.num_groups,
      min_expected=setting.min_expected)
  off = outcome / true - 1
  grid = _grid(setting)
  ranks = np.cumsum(roc.counts(grid, of.predictions, of.labels), -1)
  with jax.enable_x64(True):
    binned = hosmer_lemeshow.statistic(
        hosmer_lemeshow.table(
            jnp.asarray(ranks, jnp.float64), hosmer_lemeshow.chances(grid),
            num_groups=setting.num_groups),
        min_expected=setting.min_expected)
  first = np.sort(of.predictions)[:len(of.predictions) // setting.num_groups]
  return dict(
      relative_mse=np.mean(np.square(off)),
      relative_mse_se=ecdf_data.standard_error(np.square(off)),
      median=np.median(np.abs(off)), largest=np.max(np.abs(off)),
      mean=outcome.mean(), exact=true, binned=float(binned),
      first_expected=first.sum(), first_records=len(first))
