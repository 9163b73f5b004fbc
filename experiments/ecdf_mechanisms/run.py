"""Computes and simulates the settings in `sweep.py`."""

from collections.abc import Iterator, Sequence
import math

import jax
import numpy as np

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import mechanisms
from dpjax.stats.ecdf_methods import dyadic
from dpjax.stats.ecdf_methods import hierarchy
from dpjax.stats.ecdf_methods import mechanism
from dpjax.stats.ecdf_methods import toeplitz
from dpjax.stats.ecdf_methods import trees
from experiments import records
from experiments import rows
from experiments import simulation
from experiments.ecdf_mechanisms import sweep
from experiments.methods.statistics import optimal_prefix_sums as optimal
from experiments.methods.statistics import smooth_binary_ecdf as smooth_binary

_RATE = 3.0
_DYADIC = {'paper': 'paper', 'dyadic': 'tight', 'tuned_dyadic': 'tuned'}
# Number of ranks drawn at once, which bounds memory.
_AT_ONCE = 2**20


def curve(setting: sweep.Setting) -> mechanism.EcdfMechanism:
  """Returns the mechanism of a setting."""
  size, method = setting.num_thresholds, setting.method
  public = dict(num_thresholds=size, monotone=setting.monotone,
                adjacency=Adjacency(setting.adjacency))
  pure = setting.notion == 'pure'
  budget = {'epsilon' if pure else 'rho': setting.budget}
  binary = (2,) * (size - 1).bit_length()
  if method in _DYADIC:
    return dyadic.DyadicEcdf(accounting=_DYADIC[method], **public, **budget)
  if method == 'square_root':
    return toeplitz.SquareRootEcdf(**public, **budget)
  if method == 'smooth_binary':
    del public['monotone']
    return smooth_binary.SmoothBinaryEcdf(**public, **budget)
  shares = None
  if method == 'tuned_binary':
    shares = hierarchy.tuned_shares(
        binary, size, pure=pure,
        known=public['adjacency'] is Adjacency.REPLACE_ONE)
  estimator = method.removesuffix('_binary')
  return trees.TreeEcdf(
      estimator=estimator if estimator in trees.ESTIMATORS
      else 'least_squares', shares=shares, shape=(
          (size,) if method == 'histogram' else
          binary if 'binary' in method else None), **public, **budget)


def simulated(setting: sweep.Setting,
              mechanism_: mechanism.EcdfMechanism) -> np.ndarray:
  """Returns mean squared errors of ranks, one for each repetition."""
  size, result = setting.num_thresholds, []
  # Data depend on size and seed only, so that all methods see the same.
  rng = np.random.default_rng([setting.seed, size])
  keys = jax.random.split(simulation.key_of(setting), setting.repetitions)
  step = max(1, min(setting.repetitions, _AT_ONCE // size))
  with jax.enable_x64(True):
    sampler = mechanisms.repeated(mechanism_.draw, 0)
    for start in range(0, setting.repetitions, step):
      part = keys[start:start + step]
      counts = rng.poisson(_RATE, (len(part), size)).astype(float)
      errors = (np.asarray(sampler(part, counts, mechanism_.parameters))
                - np.cumsum(counts, 1))
      result.append(np.mean(np.square(errors), 1))
  return np.concatenate(result)


def _limit(setting: sweep.Setting) -> dict[str, float]:
  if setting.method == 'bound':
    return dict(mse=optimal.mean_lower_bound(setting.num_thresholds))
  lower, upper = optimal.mean_optimum(
      setting.num_thresholds, adjacency=Adjacency(setting.adjacency),
      num_rounds=60)
  return dict(mse=upper, least=lower)


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.method} {setting.notion} '
             f'N={setting.num_thresholds} {setting.budget:g}')
    if setting.method in ('bound', 'optimum'):
      yield setting, rows.exact(setting, _limit(setting))
      continue
    mechanism_ = curve(setting)
    pure = setting.notion == 'pure'
    unit = setting.budget**2 if pure else 2 * setting.budget
    variances = unit * mechanism_.variances()
    metrics = dict(mse=np.mean(variances), largest=np.max(variances))
    if setting.repetitions:
      errors = unit * simulated(setting, mechanism_)
      metrics |= dict(simulated=np.mean(errors), simulated_se=np.std(
          errors, ddof=1) / np.sqrt(errors.size))
    yield setting, rows.released(
        setting, metrics, n=round(_RATE * setting.num_thresholds),
        # At delta = 0 no epsilon holds for Gaussian noise; its budget is rho.
        epsilon=setting.budget if pure else math.inf,
        adjacency=Adjacency(setting.adjacency))
