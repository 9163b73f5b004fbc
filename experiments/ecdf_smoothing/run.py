"""Simulates the settings in `sweep.py`, all smoothings on the same release."""

from collections.abc import Callable, Iterator, Sequence
import functools

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.ecdf_methods import dyadic
from dpjax.stats.ecdf_methods import mechanism as mechanisms
from dpjax.stats.ecdf_methods import smoothing
from dpjax.stats.ecdf_methods import trees
from experiments import ecdf_data
from experiments import records
from experiments import rows
from experiments.ecdf_smoothing import sweep
from experiments.methods.statistics import flows

_ADJACENCY = Adjacency.REPLACE_ONE


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.method} {setting.smoothing} '
             f'lambda={setting.rate:g} epsilon={setting.epsilon:g}')
    counts = ecdf_data.poisson_counts(
        rate=setting.rate, num_thresholds=setting.num_thresholds,
        repetitions=setting.repetitions, seed=setting.seed)
    truth = np.cumsum(counts, -1)
    raw = _released(setting, counts, monotone=False) - truth
    if setting.smoothing == 'none':
      metrics = raw
    elif setting.smoothing in ('p2', 'native'):
      metrics = _released(setting, counts, monotone=True) - truth
    else:
      metrics = smoothed(setting.smoothing, raw + truth, truth[:, -1]) - truth
    yield setting, rows.released(
        setting, _metrics(setting, raw, metrics), n=int(np.mean(truth[:, -1])),
        epsilon=setting.epsilon, adjacency=_ADJACENCY)


def mechanism_of(setting: sweep.Setting, *,
                 monotone: bool = False) -> mechanisms.EcdfMechanism:
  """Returns the mechanism of a setting."""
  public = dict(num_thresholds=setting.num_thresholds, monotone=monotone,
                epsilon=setting.epsilon, adjacency=_ADJACENCY)
  if setting.method == 'tree':
    return trees.TreeEcdf(**public)
  return dyadic.DyadicEcdf(accounting=setting.method, **public)


def _released(setting: sweep.Setting, counts: np.ndarray, *,
              monotone: bool) -> np.ndarray:
  return ecdf_data.released(
      mechanism_of(setting, monotone=monotone), counts, seed=setting.seed,
      coins=f'{setting.method}/{setting.rate!r}/{setting.epsilon!r}')


@functools.cache
def _smoother(name: str) -> Callable:
  """Returns a function (ranks [R, N], totals [R]) -> smooth ranks [R, N]."""
  return jax.jit(jax.vmap({'p1': flows.least_absolute,
                           'pava': smoothing.isotonic}[name]))


def smoothed(name: str, ranks: np.ndarray, totals: np.ndarray) -> np.ndarray:
  """Returns ranks [R, N] smoothed by 'p1' or 'pava', for any noise."""
  with jax.enable_x64(True):
    return np.asarray(_smoother(name)(
        jnp.asarray(ranks), jnp.asarray(totals, jnp.float64)))


def _metrics(setting: sweep.Setting, raw: np.ndarray,
             cells: np.ndarray) -> dict[str, float]:
  """Returns errors of ranks, absolute and relative to those unsmoothed."""
  squared, before = (np.mean(np.square(each), -1) for each in (cells, raw))
  ratio = squared.mean() / before.mean()
  levels = setting.num_thresholds.bit_length()
  return dict(
      mse=squared.mean(), mse_se=ecdf_data.standard_error(squared),
      ratio=ratio, ratio_se=ecdf_data.standard_error(
          squared - ratio * before) / before.mean(),
      run_ratio=np.mean(squared / before), worst=np.max(squared / before),
      absolute=np.mean(np.abs(cells)) / np.mean(np.abs(raw)),
      of_printed=squared.mean() * setting.epsilon**2 / (2 * levels**3))
