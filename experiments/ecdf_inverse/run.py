"""Simulates the settings in `sweep.py`; all methods see the same data."""

from collections.abc import Iterator, Sequence
import functools

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.privacy import draws
from dpjax.privacy import selection
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import mechanisms
from dpjax.stats.ecdf_methods import dyadic
from dpjax.stats.ecdf_methods import inverse
from dpjax.stats.ecdf_methods import trees
from dpjax.stats.quantile_methods import records as quantile_records
from dpjax.stats.quantile_methods.recursive import RecursiveQuantiles
from experiments import ecdf_data
from experiments import records
from experiments import rows
from experiments.ecdf_inverse import sweep
from experiments.ecdf_smoothing import run as ecdf_smoothing

_ADJACENCY = Adjacency.REPLACE_ONE
# Quantile levels that errors of inverses are averaged over.
_UNIFORM = (np.arange(1000) + 0.5) / 1000


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.method} '
             f'epsilon={setting.epsilon:g}')
    counts = ecdf_data.poisson_counts(
        rate=setting.rate, num_thresholds=setting.num_thresholds,
        repetitions=setting.repetitions, seed=setting.seed)
    truth = np.cumsum(counts, -1)
    if setting.method in sweep.CURVES:
      curve = _curve(setting, counts)
      places = inverse.search(curve, _wanted(truth, sweep.DECILES))
      result = _of_curve(truth, curve)
    else:
      places, result = _ASKED[setting.method](setting, counts, truth), {}
    yield setting, rows.released(
        setting, _of_deciles(truth, places) | result,
        n=int(np.mean(truth[:, -1])), epsilon=setting.epsilon,
        adjacency=_ADJACENCY)


def _wanted(truth: np.ndarray, probs: Sequence[float]) -> np.ndarray:
  """Returns the target ranks n p, [R, Q]."""
  return truth[:, -1:] * np.asarray(probs)


def _coins(setting: sweep.Setting, kind: str) -> str:
  return f'{kind}/{setting.num_quantiles}/{setting.epsilon!r}'


def _curve(setting: sweep.Setting, counts: np.ndarray) -> np.ndarray:
  """Returns noisy ranks [R, N]; smoothings share the noise."""
  kind, _, how = setting.method.partition('_')
  public = dict(num_thresholds=setting.num_thresholds, adjacency=_ADJACENCY,
                epsilon=setting.epsilon)
  if kind == 'tree':
    mechanism = trees.TreeEcdf(**public)
  else:
    mechanism = dyadic.DyadicEcdf(accounting=kind, monotone=how == 'p2',
                                  **public)
  ranks = ecdf_data.released(mechanism, counts, seed=setting.seed,
                             coins=_coins(setting, kind))
  if how == 'p1':
    return ecdf_smoothing.smoothed(how, ranks, counts.sum(-1))
  return ranks


def _of_curve(truth: np.ndarray, curve: np.ndarray) -> dict[str, float]:
  """Returns squared errors of F at thresholds, and of values over the range."""
  points = np.mean(np.square((curve - truth) / truth[:, -1:]), -1)
  wanted = _wanted(truth, _UNIFORM)
  off = inverse.search(curve, wanted) - inverse.search(truth, wanted)
  values = np.mean(np.square(off / truth.shape[-1]), -1)
  return dict(point_mse=points.mean(),
              point_mse_se=ecdf_data.standard_error(points),
              inverse_mse=values.mean(),
              inverse_mse_se=ecdf_data.standard_error(values))


def _of_deciles(truth: np.ndarray, places: np.ndarray) -> dict[str, float]:
  """Returns the root mean squared error of ranks over deciles and data sets."""
  off = np.take_along_axis(truth, places - 1, -1) - _wanted(
      truth, sweep.DECILES)
  squared = np.mean(np.square(off), -1)
  root = np.sqrt(squared.mean())
  return dict(rank_rmse=root,
              rank_rmse_se=ecdf_data.standard_error(squared) / (2 * root))


@functools.partial(jax.jit, static_argnames='size')
def _noise(key, scale, size):
  return draws.discrete_laplace(key, (size,), scale, jnp.float64)


def _searched(setting: sweep.Setting, counts: np.ndarray,
              truth: np.ndarray) -> np.ndarray:
  """Returns deciles by separate binary searches, with noise at each of L steps.

  No search visits a threshold twice. Independent noise at every threshold is
  therefore the same as fresh noise at every step.
  """
  del counts
  size = setting.num_thresholds
  steps = (size - 1).bit_length()
  scale = steps * setting.num_quantiles / setting.epsilon
  wanted, places = _wanted(truth, sweep.DECILES), []
  for place, target in enumerate(wanted.T):
    keys = ecdf_data.keys(setting.seed, _coins(setting, f'search{place}'),
                          len(truth))
    with jax.enable_x64(True):
      noise = np.asarray(jax.vmap(lambda key: _noise(key, scale, size))(keys))
    places.append(inverse.search(truth + noise, target[:, None]))
  return np.concatenate(places, -1)


def _exponential(setting: sweep.Setting, counts: np.ndarray,
                 truth: np.ndarray) -> np.ndarray:
  """Returns deciles, each by the exponential mechanism on distance in rank."""
  del counts
  each = selection.ExponentialMechanism(
      sensitivity=1.0, adjacency=_ADJACENCY,
      epsilon=setting.epsilon / setting.num_quantiles)
  choose = jax.jit(jax.vmap(each.release))
  wanted, places = _wanted(truth, sweep.DECILES), []
  for place, target in enumerate(wanted.T):
    keys = ecdf_data.keys(setting.seed, _coins(setting, f'choice{place}'),
                          len(truth))
    scores = -np.abs(truth - target[:, None]).astype(np.float32)
    places.append(np.asarray(choose(keys, scores)) + 1)
  return np.stack(places, -1)


def _recursive(setting: sweep.Setting, counts: np.ndarray,
               truth: np.ndarray) -> np.ndarray:
  """Returns deciles by RecExp on the records, rounded down to thresholds.

  Between two thresholds, ranks are those of the lower one.
  """
  del truth
  size = setting.num_thresholds
  mechanism = RecursiveQuantiles(
      probs=sweep.DECILES, epsilon=setting.epsilon, lower=1.0, upper=size + 1.0,
      adjacency=_ADJACENCY)
  draw = mechanisms.compiled(mechanism.draw)
  keys = ecdf_data.keys(setting.seed, _coins(setting, 'recursive'),
                        len(counts))
  values = np.arange(1, size + 1, dtype=np.float64)
  results = []
  with jax.enable_x64(True):
    for key, of in zip(keys, counts.astype(np.int64), strict=True):
      data = quantile_records.padded(np.repeat(values, of), 1.0, size + 1.0)
      results.append(np.asarray(draw(key, data, mechanism.parameters)))
  return np.clip(np.floor(results), 1, size).astype(np.int64)


_ASKED = {'search': _searched, 'exponential': _exponential,
          'recursive': _recursive}
