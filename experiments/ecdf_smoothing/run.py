"""Simulates the settings of `sweep.py`; all smoothings use equal releases."""

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
    raw_errors = _released(setting, counts, monotone=False) - truth
    if setting.smoothing == 'none':
      errors = raw_errors
    elif setting.smoothing in ('p2', 'native'):
      errors = _released(setting, counts, monotone=True) - truth
    else:
      errors = smoothed(setting.smoothing, raw_errors + truth,
                        truth[:, -1]) - truth
    yield setting, rows.released(
        setting, _metrics(setting, raw_errors, errors),
        n=int(np.mean(truth[:, -1])),
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
  """Returns noisy ranks [R, N], made monotone by the mechanism if asked."""
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


def _metrics(setting: sweep.Setting, raw_errors: np.ndarray,
             errors: np.ndarray) -> dict[str, float]:
  """Returns mean errors of smoothed ranks, and ratios to those of raw ranks.

  Args:
    setting: the setting.
    raw_errors: [R, N] errors of the ranks before smoothing.
    errors: [R, N] errors after it.
  """
  squared, before = (np.mean(np.square(values), -1)
                     for values in (errors, raw_errors))
  ratio = squared.mean() / before.mean()
  levels = setting.num_thresholds.bit_length()
  return dict(
      mse=squared.mean(), mse_se=ecdf_data.standard_error(squared),
      ratio=ratio, ratio_se=ecdf_data.standard_error(
          squared - ratio * before) / before.mean(),
      run_ratio=np.mean(squared / before), worst=np.max(squared / before),
      absolute=np.mean(np.abs(errors)) / np.mean(np.abs(raw_errors)),
      of_printed=squared.mean() * setting.epsilon**2 / (2 * levels**3))
