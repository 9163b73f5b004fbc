"""Times the settings of `sweep.py`."""

from collections.abc import Callable, Iterator, Sequence
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.ecdf_methods import dyadic
from dpjax.stats.ecdf_methods import smoothing
from experiments import ecdf_data
from experiments import records
from experiments import rows
from experiments.methods.statistics import flows
from experiments.smoothing_time import problem
from experiments.smoothing_time import solvers
from experiments.smoothing_time import sweep

_RATE, _EPSILON = 3.0, 0.5
_FEWEST = 3
# Programs of other authors are timed up to this number of thresholds.
_COMPARED = 2**15


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`.

  Raises:
    ImportError: programs of others are not installed; all else comes first.
  """
  del data_dir
  left_out = {}
  for done, setting in enumerate(settings):
    progress(done / len(settings),
             f'{setting.method} N={setting.num_thresholds}')
    ranks, total = curve(setting)
    try:
      metrics = (_ours if setting.method in _OURS else _others)(
          setting, ranks, total)
    except ImportError as error:
      left_out[setting.method] = error
      continue
    yield setting, rows.released(
        setting, metrics, n=int(total), epsilon=_EPSILON,
        adjacency=Adjacency.REPLACE_ONE)
  if left_out:
    raise ImportError(f'{", ".join(left_out)} left out: '
                      f'{"; ".join(sorted(set(map(str, left_out.values()))))}; '
                      'pip install "dpjax[bench]"')


def curve(setting: sweep.Setting) -> tuple[np.ndarray, float]:
  """Returns noisy ranks [N] with noise of the printed scale, and n."""
  counts = ecdf_data.poisson_counts(
      rate=_RATE, num_thresholds=setting.num_thresholds, repetitions=1,
      seed=setting.seed)
  noisy = dyadic.DyadicEcdf(
      num_thresholds=setting.num_thresholds, epsilon=_EPSILON, monotone=False,
      adjacency=Adjacency.REPLACE_ONE, accounting='paper')
  ranks = ecdf_data.released(noisy, counts, seed=setting.seed, coins='curve')
  return ranks[0], float(counts.sum())


def _timed(call: Callable[[], object], at_least: float) -> list[float]:
  """Returns the seconds of each call, of three or more calls."""
  values = []
  while len(values) < _FEWEST or sum(values) < at_least:
    start = time.perf_counter()
    call()
    values.append(time.perf_counter() - start)
  return values


def _seconds(cells: list[float]) -> dict[str, float]:
  return dict(seconds=statistics.median(cells), fastest=min(cells),
              slowest=max(cells), calls=len(cells))


def _others(setting: sweep.Setting, ranks: np.ndarray,
            total: float) -> dict[str, float]:
  solve = solvers.SOLVERS[setting.method]
  make = (problem.printed_rows if setting.method.endswith('_rows')
          else problem.of)
  posed = make(ranks, total)
  noise = solve(posed)[:2 * len(ranks) - 1]
  return _seconds(_timed(lambda: solve(posed), setting.at_least)) | dict(
      objective=_objective(setting, noise))


def _objective(setting: sweep.Setting, noise: np.ndarray) -> float:
  return float(np.sum(np.square(noise)) if setting.method in sweep.QUADRATIC
               else np.sum(np.abs(noise)))


_OURS = {
    'p2': lambda ranks, total: smoothing.least_squares(
        ranks, total, jnp.ones([ranks.size.bit_length()])),
    'p1': flows.absolute_and_value,
    'pava': smoothing.isotonic,
}


def _ours(setting: sweep.Setting, ranks: np.ndarray,
          total: float) -> dict[str, float]:
  with jax.enable_x64(True):
    data = jnp.asarray(ranks), jnp.float64(total)
    start = time.perf_counter()
    program = jax.jit(_OURS[setting.method]).lower(*data).compile()
    compiling = time.perf_counter() - start
    values = jax.tree.map(np.asarray, program(*data))
    result = _timed(lambda: jax.block_until_ready(program(*data)),
                   setting.at_least)
  metrics = _seconds(result) | dict(compile_seconds=compiling)
  if setting.method == 'p2' and len(ranks) <= _COMPARED:
    metrics['objective'] = problem.least_squares_noise(values - ranks)
  if setting.method == 'p1':
    metrics['objective'] = float(values[1])
  return metrics
