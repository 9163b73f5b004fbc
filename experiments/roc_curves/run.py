"""Simulates the settings in `sweep.py`; a group is of one data set."""

from collections.abc import Iterator, Sequence
import functools

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.data import columns
from dpjax.data import registry
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import roc_curves as roc
from dpjax.stats.ecdf_methods import dyadic
from dpjax.stats.ecdf_methods.grids import Grid
from experiments import ecdf_data
from experiments import records
from experiments import rows
from experiments import scores
from experiments.methods.statistics import flows
from experiments.roc_curves import sweep

_ADJACENCY = Adjacency.REPLACE_ONE
# Points at which areas between curves are summed.
_FPRS = np.linspace(0, 1, 4001)


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.dataset} {setting.method} '
             f'{setting.smoothing} epsilon={setting.epsilon:g}')
    counts = counted(setting, data_dir)
    if setting.method == 'exact':
      metrics = _of_data(setting, counts)
      ranks = _exact(counts)
    else:
      ranks = released(setting, counts)
      metrics = _areas(setting, ranks, counts)
    yield setting, rows.released(
        setting, metrics | _points(setting, ranks[0]), n=int(counts.sum()),
        epsilon=setting.epsilon, adjacency=_ADJACENCY)


def _grid(setting: sweep.Setting) -> Grid:
  return Grid(lower=0.0, upper=1.0, num_thresholds=setting.num_thresholds)


def counted(setting: sweep.Setting, data_dir: str | None) -> np.ndarray:
  """Returns the counts [2, N] of a data set."""
  scored = scores.scores(setting.dataset, data_dir=data_dir, seed=setting.seed)
  return roc.counts(_grid(setting), scored.predictions, scored.labels)


def _exact(counts: np.ndarray) -> np.ndarray:
  """Returns the ranks [1, 2, N] without noise."""
  return np.cumsum(counts, -1, np.float64)[None]


def mechanism_of(setting: sweep.Setting, *,
                 monotone: bool) -> roc.RocMechanism:
  """Returns the mechanism of a setting; monotone ranks are those of p2."""
  grid = _grid(setting)
  if setting.method != 'tight':
    return roc.make(
        grid, epsilon=setting.epsilon, adjacency=_ADJACENCY, monotone=monotone,
        accounting='paper' if setting.method == 'printed' else 'tight')
  curve = dyadic.DyadicEcdf(
      num_thresholds=setting.num_thresholds, epsilon=setting.epsilon / 2,
      adjacency=Adjacency.ADD_OR_REMOVE_ONE, monotone=monotone)
  return roc.ParallelRoc(grid=grid, adjacency=_ADJACENCY, curve=curve)


@functools.cache
def _drawn(draw: roc.Draw):
  return jax.jit(jax.vmap(draw, (0, None, None)))


def released(setting: sweep.Setting, counts: np.ndarray) -> np.ndarray:
  """Returns ranks [R, 2, N]; smoothings share the noise."""
  mechanism = mechanism_of(setting, monotone=setting.smoothing == 'p2')
  keys = ecdf_data.keys(
      setting.seed, f'{setting.dataset}/{setting.method}/{setting.epsilon!r}',
      setting.repetitions)
  with jax.enable_x64(True):
    ranks = _drawn(mechanism.draw)(keys, jnp.asarray(counts, jnp.float64),
                                   mechanism.parameters)
    if setting.smoothing == 'p1':
      ranks = _least_absolute(ranks, jnp.float64(counts.sum()))
    return np.asarray(ranks)


@jax.jit
def _least_absolute(ranks, total):
  """Returns ranks smoothed in norm p1, each class alone, with a public n."""
  one = lambda ranks: flows.least_absolute(ranks, total, 'free')
  result = jax.vmap(jax.vmap(one))(ranks)
  return jax.vmap(lambda ranks: roc.with_total(ranks, total,
                                               monotone=True))(result)


def _areas(setting: sweep.Setting, ranks: np.ndarray,
           counts: np.ndarray) -> dict[str, float]:
  """Returns areas between private and true curves, and areas below them."""
  if setting.smoothing == 'none':
    ranks = np.maximum.accumulate(np.maximum(ranks, 0.0), -1)
  with jax.enable_x64(True):
    true = _interpolated(_exact(counts))
    result = _interpolated(ranks)
  areas = np.mean(np.abs(result[0] - true[0]), -1)
  aucs = np.abs(result[1] - true[1])
  return dict(area=areas.mean(), area_se=ecdf_data.standard_error(areas),
              auc_error=aucs.mean(),
              auc_error_se=ecdf_data.standard_error(aucs))


def _interpolated(ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns true positive rates [R, M] and areas [R] of curves [R, 2, N]."""
  curve = roc.of_ranks(jnp.asarray(ranks), np.arange(1.0, ranks.shape[-1] + 1))
  return (np.asarray(roc.tpr_at(curve, jnp.asarray(_FPRS))),
          np.asarray(curve.auc))


def _points(setting: sweep.Setting, ranks: np.ndarray) -> dict[str, float]:
  """Returns some of the points of a curve, to draw."""
  if not setting.points:
    return {}
  with jax.enable_x64(True):
    curve = roc.of_ranks(jnp.asarray(ranks), _grid(setting).thresholds)
  fpr, tpr = np.asarray(curve.fpr), np.asarray(curve.tpr)
  # Points spaced evenly along the curve keep its shape.
  length = np.cumsum(np.hypot(np.diff(fpr, prepend=0.0),
                              np.diff(tpr, prepend=0.0)))
  wanted = np.linspace(0, length[-1], setting.points + 1)
  places = np.minimum(np.searchsorted(length, wanted), length.size - 1)
  return {f'{name}_{number:02}': values[place]
          for number, place in enumerate(places)
          for name, values in (('fpr', fpr), ('tpr', tpr))}


def _of_data(setting: sweep.Setting, counts: np.ndarray) -> dict[str, float]:
  """Returns the columns of Table 6.1, and the area below the curve."""
  totals = counts.sum(-1)
  with jax.enable_x64(True):
    curve = roc.of_ranks(jnp.asarray(_exact(counts)[0]),
                         _grid(setting).thresholds)
  values = dict(num_examples=totals.sum(), auc=float(curve.auc),
               positive_share=totals[1] / totals.sum())
  if setting.dataset in scores.FILES:
    kinds = [type(column) for column
             in registry.DATASETS[setting.dataset].schema.columns]
    values |= dict(num_columns=len(kinds) - kinds.count(columns.Label),
                  num_left_out=kinds.count(columns.Skip))
  return values
