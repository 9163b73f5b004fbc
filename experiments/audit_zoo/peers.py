"""Auditors of other packages, run on the worst pair of a bug.

None of them is a requirement of dpjax. Two are not on package indices: get the
source, and name its folder in an environment variable.

  jax_privacy     pip install jax_privacy
  dp-auditorium   folder python/dp_auditorium of google/differential-privacy, in
                  DPJAX_DP_AUDITORIUM; it needs tensorflow and google-vizier
  StatDP          cmla-psu/statdp, in DPJAX_STATDP; it needs numba and tqdm

The kept rows are of dp-auditorium at its commit b5b0286e313b and of StatDP at
d1f1e8f; versions of installed packages are in `results/provenance.json`.

Each gets as many releases as the black-box audit of dpjax: a pilot to prepare
the outputs, see `samples`, and the rest to decide.
"""

from collections.abc import Iterator
import contextlib
import importlib.util
import io
from multiprocessing import pool
import os
import sys
from typing import Any

import jax
import numpy as np

from dpjax.typing import PRNGKey
from experiments.audit_zoo import auditors
from experiments.audit_zoo import bug
from experiments.audit_zoo import samples

# Above it, a test that ignores delta may refute a true claim.
_LARGEST_IGNORED_DELTA = 1e-4
_BINS = 20
_RENYI = dict(training_epochs=5, batch_size=128, optimizer_learning_rate=1e-3,
              model_output_coordinate_bound=1.5)
_RENYI_ORDER = 1.5


def _no_module(module: str, how: str, variable: str = '') -> str | None:
  """Returns what to do for a module that cannot be found, or None."""
  folder = os.environ.get(variable) if variable else None
  if folder and folder not in sys.path:
    sys.path.append(folder)
  if importlib.util.find_spec(module) is not None:
    return None
  return f'{module} is not installed: {how}' + (
      f', and name its folder in {variable}' if variable else '')


def no_jax_privacy() -> str | None:
  """Returns how to install jax_privacy, or None if it is installed."""
  return _no_module('jax_privacy', 'pip install jax_privacy')


def no_dp_auditorium() -> str | None:
  """Returns how to get dp-auditorium, or None if it can be imported."""
  return _no_module('dp_auditorium', 'get the folder python/dp_auditorium of '
                    'google/differential-privacy', 'DPJAX_DP_AUDITORIUM')


def no_statdp() -> str | None:
  """Returns how to get StatDP, or None if it can be imported."""
  return _no_module('statdp', 'get cmla-psu/statdp', 'DPJAX_STATDP')


def _draw(key: PRNGKey, item: bug.Bug, fixed: bool) -> samples.Samples:
  """Draws the pilot and the tested releases."""
  return samples.draw(key, item, fixed, num_pilot=auditors.NUM_PILOT,
                      num_tested=auditors.NUM_RUNS)


def jax_privacy(key: PRNGKey, item: bug.Bug, fixed: bool) -> auditors.Result:
  """Runs the bound of Clopper and Pearson over all thresholds of a score.

  The thresholds share the significance, as is its default; both directions of
  the score are tried.
  """
  from jax_privacy import auditing
  one, other = samples.scores(_draw(key, item, fixed))
  bound = float(auditing.CanaryScoreAuditor(one, other).epsilon_clopper_pearson(
      significance=auditors.SIGNIFICANCE, delta=item.claim.delta,
      one_sided=False))
  found = bound > item.claim.epsilon
  return auditors.Result(found, bound, 'Clopper-Pearson' if found else '')


def dp_auditorium(key: PRNGKey, item: bug.Bug, fixed: bool) -> auditors.Result:
  """Runs all testers of dp-auditorium, which share the significance.

  They are: hockey-stick with its default network and training, maximum mean
  discrepancy, histogram, and for pure claims Rényi.
  """
  import tensorflow as tf
  draw_key, seed_key = jax.random.split(key)
  tf.keras.utils.set_random_seed(int(jax.random.bits(seed_key) >> 1))
  tests = list(_testers(item, _draw(draw_key, item, fixed)))
  share = auditors.SIGNIFICANCE / len(tests)
  rejected = []
  for name, tester, one, other in tests:
    # Keras shows its progress on standard output.
    with contextlib.redirect_stdout(io.StringIO()):
      bound = tester.estimate_lower_bound(one, other, share)
      if bool(tester.reject_property(bound)):
        rejected.append(name)
  return auditors.Result(bool(rejected),
                         what=', '.join(dict.fromkeys(rejected)))


def _testers(item: bug.Bug, drawn: samples.Samples
             ) -> Iterator[tuple[str, Any, np.ndarray, np.ndarray]]:
  """Yields (name, tester, samples of one side, samples of the other)."""
  from dp_auditorium import testers
  from dp_auditorium.configs import privacy_property as properties
  from dp_auditorium.configs import property_tester_config as configs
  from dp_auditorium.testers import hockey_stick_tester
  claim = properties.ApproximateDp(epsilon=item.claim.epsilon,
                                   delta=item.claim.delta)
  scaled = samples.scaled(drawn).tested
  # Its runner offers tanh for outputs without bounds.
  one, other = np.tanh(scaled[0]), np.tanh(scaled[1])
  sides = ((one, other), (other, one))
  for first, second in sides:
    yield 'hockey stick', testers.HockeyStickPropertyTester(
        configs.HockeyStickPropertyTesterConfig(
            training_config=(
                hockey_stick_tester.make_default_hs_training_config()),
            approximate_dp=claim),
        hockey_stick_tester.make_default_hs_base_model()), first, second
  yield 'MMD', testers.MMDPropertyTester(configs.MMDPropertyTesterConfig(
      kernel=configs.Kernel.KERNEL_RBF, bandwidth=1.0, approximate_dp=claim)
      ), one, other
  yield from _histograms(claim, samples.coded(samples.projected(drawn)))
  if item.claim.delta == 0:
    yield 'Rényi', _renyi(item.claim.epsilon), one, other


def _histograms(claim: Any, line: samples.Samples
                ) -> Iterator[tuple[str, Any, np.ndarray, np.ndarray]]:
  """Yields the histogram tester of one number, with both orders of sides."""
  from dp_auditorium import testers
  from dp_auditorium.configs import property_tester_config as configs
  known = samples.values(line)
  low, high = np.quantile(np.concatenate(line.pilot), [0.01, 0.99])
  tester = testers.HistogramTester(configs.HistogramPropertyTesterConfig(
      test_discrete_mechanism=known is not None,
      histogram_size=_BINS if known is None else int(known.max()) + 1,
      min_value=float(low), max_value=float(max(high, low + 1e-6)),
      approximate_dp=claim))
  one, other = (rows[:, 0] if known is None else rows[:, 0].astype(int)
                for rows in line.tested)
  for first, second in ((one, other), (other, one)):
    yield 'histogram', tester, first, second


def _renyi(epsilon: float) -> Any:
  """Returns the Rényi tester of a pure claim, trained as in its own tests."""
  from dp_auditorium import testers
  from dp_auditorium.configs import privacy_property as properties
  from dp_auditorium.configs import property_tester_config as configs
  from dp_auditorium.testers import renyi_tester
  return testers.RenyiPropertyTester(
      configs.RenyiPropertyTesterConfig(
          alpha=_RENYI_ORDER, training_config=configs.TrainingConfig(**_RENYI),
          privacy_property=properties.PrivacyProperty(
              pure_dp=properties.PureDp(epsilon=epsilon))),
      renyi_tester.make_default_renyi_base_model())


class _Drawn:
  """Algorithm for StatDP that hands out releases drawn before, in their order.
  """

  def __init__(self, sides: list[np.ndarray]):
    # One row at a time, as StatDP calls an algorithm once for each release.
    self._rows = [iter(side) for side in sides]

  def __call__(self, prng: Any, side: int) -> Any:
    """Returns the next release of data set 0 or 1: a number or several."""
    row = next(self._rows[side])
    return row[0] if row.size == 1 else tuple(row)


def statdp(key: PRNGKey, item: bug.Bug, fixed: bool) -> auditors.Result:
  """Selects an event on the pilot and tests it on the rest, as StatDP does.

  StatDP knows no delta. Its events have probabilities of 0.001 at least, beside
  which a small delta does not count.
  """
  if item.claim.delta > _LARGEST_IGNORED_DELTA:
    return auditors.Result(None, what='it tests pure claims only')
  from statdp import hypotest
  from statdp import selectors
  # Two more releases of each side: it draws one to see the type.
  drawn = samples.draw(key, item, fixed, num_pilot=auditors.NUM_PILOT,
                       num_tested=auditors.NUM_RUNS + 2)
  # It tries all products of ten intervals per number: no more than two.
  drawn = samples.coded(drawn if drawn.pilot[0].shape[1] <= 2 else
                        samples.projected(drawn))
  algorithm = _Drawn([np.concatenate(side) for side in zip(*drawn)])
  with pool.ThreadPool(1) as threads:
    *_, event = selectors.select_event(
        algorithm, ((0, 1, {}),), item.claim.epsilon, auditors.NUM_PILOT,
        threads, quiet=True)
    p_value = float(hypotest.hypothesis_test(
        algorithm, 0, 1, {}, event, item.claim.epsilon, auditors.NUM_RUNS,
        threads, report_p2=False))
  found = p_value <= auditors.SIGNIFICANCE
  return auditors.Result(found, what=f'p-value {p_value:.2g}' if found else '')
