"""Simulates and computes the settings of `sweep.py`."""

from collections.abc import Iterator, Sequence
import functools
import zlib

import jax
import numpy as np

from dpjax.privacy import notions
from dpjax.theory.parametric import estimator
from dpjax.theory.parametric import noisy_shares
from dpjax.theory.parametric import proportions
from experiments import records
from experiments import rows
from experiments import simulation
from experiments.methods.theory import risk_oracles
from experiments.methods.theory import thesis_proportions
from experiments.price_proportion import sweep

# The error is linear in (p - 1/2)^2, so that it is largest at 0 or 1/2. Only
# the error of `table` may be largest elsewhere.
_PROBS = {'table': (0.5, 0.35, 0.2, 0.1, 0.05, 0.0)}
_PROGRAM = 40


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.notion} {setting.method} '
             f'n={setting.num_examples} {setting.budget:g}')
    yield setting, rows.exact(setting, {
        **measured(setting),
        **bounds(setting.notion, setting.num_examples, setting.budget)})


def estimator_of(setting: sweep.Setting) -> estimator.Estimator:
  """Returns the estimator of a setting."""
  name = setting.method.removeprefix('shrunk_')
  n, budget = setting.num_examples, setting.budget
  if name == 'table':
    return noisy_shares.MinimaxShare(num_examples=n, epsilon=budget)
  values = {
      'laplace': lambda: noisy_shares.LaplaceShare(num_examples=n,
                                                   epsilon=budget),
      'geometric': lambda: noisy_shares.GeometricShare(num_examples=n,
                                                       epsilon=budget),
      'gaussian': lambda: noisy_shares.GaussianShare(num_examples=n,
                                                     rho=budget),
      'printed': lambda: noisy_shares.GaussianShare(num_examples=n, rho=budget,
                                                    printed=True)}[name]()
  return values if name == setting.method else values.shrunk()


def measured(setting: sweep.Setting) -> dict[str, float]:
  """Returns the largest mean squared error over p, and its closed form."""
  asked, worst, error = estimator_of(setting), -1.0, 0.0
  key = simulation.key_of(setting)
  for place, prob in enumerate(_PROBS.get(setting.method, (0.5, 0.0))):
    counts = np.random.default_rng([setting.seed, place, zlib.crc32(
        repr(setting).encode())]).binomial(
            setting.num_examples, prob, (setting.repetitions, 1))
    result = np.square(np.asarray(asked.estimates(
        jax.random.fold_in(key, place), counts.astype(np.float64))) - prob)
    if result.mean() > worst:
      worst, error = result.mean(), result.std() / setting.repetitions**0.5
  return dict(risk=worst, risk_se=error, closed_form=asked.worst_risk())


@functools.cache
def bounds(notion: str, n: int, budget: float) -> dict[str, float]:
  """Returns lower bounds, the best upper bound, and non-private risks."""
  guarantee = (notions.PureDP(epsilon=budget) if notion == 'pure'
               else notions.ZCDP(rho=budget))
  options = dict(num_examples=n, guarantee=guarantee)
  study = proportions.STUDY
  names = {'two proportions': 'lower_pair', 'scores': 'lower_scores',
           'minimax, solved': 'lower_solved'}
  values = dict(
      lower=study.best_lower(**options).value,
      upper=study.best_upper(**options).value,
      non_private=study.non_private(num_examples=n),
      thesis=thesis_proportions.thesis(printed=True, **options),
      thesis_derived=thesis_proportions.thesis(**options))
  values |= {names[bound.name]: bound.value for bound in study.lower(**options)
            if bound.name in names}
  if notion == 'pure':
    values['introduction'] = thesis_proportions.printed_introduction(
        num_examples=n, epsilon=budget)
    # The bound that the proof gives for proportions 1 / (n epsilon) apart.
    values['introduction_derived'] = float(thesis_proportions.two_point_bound(
        min(1.0, 1 / (n * budget)), num_examples=n, epsilon=budget))
    if n <= _PROGRAM:
      values['program'] = risk_oracles.proportion(num_examples=n,
                                                 guarantee=guarantee).value
  return values
