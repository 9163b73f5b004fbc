"""Simulates and computes the settings of `sweep.py`."""

from collections.abc import Iterator, Sequence
import math
import zlib

import jax
import numpy as np

from dpjax.privacy import notions
from dpjax.theory.parametric import subsampling
from dpjax.theory.parametric import support_ranks
from dpjax.theory.parametric import supports
from experiments import records
from experiments import rows
from experiments import simulation
from experiments.methods.statistics import doubled_means
from experiments.methods.theory import thesis_supports
from experiments.price_support import sweep

# Number of records drawn for one setting.
_MOST = 2_000_000


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.part} {setting.notion} '
             f'{setting.method} n={setting.num_examples} {setting.budget:g}')
    yield setting, rows.exact(setting, {**measured(setting),
                                        **bounds(setting)})


def guarantee_of(setting: sweep.Setting):
  """Returns the privacy guarantee of a setting."""
  return {'pure': lambda b: notions.PureDP(epsilon=b),
          'zcdp': lambda b: notions.ZCDP(rho=b),
          'variation': lambda b: notions.TotalVariationPrivacy(level=b),
          'none': lambda b: None}[setting.notion](setting.budget)


def thetas_of(setting: sweep.Setting) -> tuple[float, ...]:
  """Returns the theta in (0, 1] among which the worst is searched.

  Errors are largest near 1, where the estimate is clipped, or at a theta that
  is about as small as the estimate can resolve.
  """
  total = setting.num_examples * (
      setting.budget if setting.notion == 'pure' else math.sqrt(
          8 * setting.budget))
  if setting.method in ('subset', 'largest'):
    return 1.0,
  if setting.method == 'doubled':
    return 1.0, 0.9, 0.7, 0.5
  near = {1 - gap / total for gap in (5.0, 10.0, 20.0) if gap < 0.9 * total}
  return (1.0, 0.9, 0.7, *near, 1 / total, *(
      (1 / total**2,) if setting.method == 'linear' else ()))


def measured(setting: sweep.Setting) -> dict[str, float]:
  """Returns the largest mean squared error over theta; absolute error at 1."""
  worst = near = -1.0
  repeated = max(200, min(setting.repetitions, _MOST // setting.num_examples))
  statistics = statistics_of(setting, repeated)
  for place, theta in enumerate(thetas_of(setting)):
    result = theta * statistics[:, 0] - theta
    if setting.method not in ('subset', 'largest'):
      result = np.asarray(estimator_of(setting).estimates(jax.random.fold_in(
          simulation.key_of(setting), place), theta * statistics))[:, 0] - theta
    squares = np.square(result)
    if theta > 0.4:
      near = max(near, squares.mean())
    if squares.mean() > worst:
      worst, where = squares.mean(), theta
      error = squares.std() / repeated**0.5
    if not place:
      absolute = np.abs(result).mean()
      spread = np.abs(result).std() / repeated**0.5
  return dict(risk=worst, risk_se=error, theta=where, near=near,
              absolute=absolute, absolute_se=spread)


def statistics_of(setting: sweep.Setting, repeated: int) -> np.ndarray:
  """Returns statistics [R, .] of records for theta = 1, to multiply by theta.

  Without noise they are the estimates: the largest of m is a Beta variable.
  """
  rng = np.random.default_rng([setting.seed, zlib.crc32(
      repr(setting).encode())])
  n = setting.num_examples
  if setting.method in ('subset', 'largest'):
    size = n if setting.method == 'largest' else subsampling.subset_size(
        n, setting.budget)
    return (size + 2) / (size + 1) * rng.beta(size, 1, (repeated, 1))
  if setting.method == 'doubled':
    return rng.uniform(size=(repeated, n)).sum(1)[:, None]
  # Order statistics of uniforms, as ratios of cumulative exponentials.
  sums = np.cumsum(rng.exponential(size=(repeated, n + 1)), 1)
  return sums[:, :-1] / sums[:, -1:]


def estimator_of(setting: sweep.Setting):
  """Returns the estimator of a setting, with central noise."""
  n, guarantee = setting.num_examples, guarantee_of(setting)
  if setting.method == 'doubled':
    return supports.MeanSupport(num_examples=n, guarantee=guarantee)
  if setting.notion == 'zcdp':
    return support_ranks.of_zcdp(num_examples=n, rho=setting.budget)
  return support_ranks.RankedSupport(num_examples=n, epsilon=setting.budget,
                                     printed=setting.method == 'linear')


def bounds(setting: sweep.Setting) -> dict[str, float]:
  """Returns lower bounds, an upper bound, and risks without privacy."""
  n, guarantee = setting.num_examples, guarantee_of(setting)
  options = dict(num_examples=n, guarantee=guarantee)
  values = dict(lower=supports.STUDY.best_lower(**options).value,
               absolute_lower=supports.ABSOLUTE.best_lower(**options).value,
               non_private=supports.STUDY.non_private(num_examples=n))
  if setting.method == 'ranks':
    values['upper'] = estimator_of(setting).worst_risk()
  elif setting.method == 'doubled':
    values['upper'] = estimator_of(setting).population_risk(1.0)
  elif setting.method in ('subset', 'largest'):
    values['upper'] = supports.STUDY.best_upper(**options).value
  if setting.notion == 'variation':
    values['thesis'] = thesis_supports.paper(printed=True, **options)
    values['derived'] = thesis_supports.paper(**options)
  else:
    values['thesis'] = thesis_supports.thesis(**options)
    if setting.notion == 'none':
      values['printed'] = thesis_supports.printed_two_supports(n)
      values['derived'] = thesis_supports.two_supports(n)
      values['plain'] = doubled_means.largest_risk(1.0, num_examples=n)
  return values
