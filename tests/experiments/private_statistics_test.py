"""These tests check EXP-01 to EXP-04, EXP-08 and EXP-09."""

import dataclasses
import math
import pathlib

import jax
import numpy as np
import pytest

from experiments import points
from experiments import records
from experiments import registry
from experiments import verdicts
from experiments.finite_distributions import run as finite_run
from experiments.local_queries import run as queries_run
from experiments.local_queries import sweep as queries_sweep
from experiments.support_estimators import run as support_run
from experiments.support_estimators import sweep as support_sweep

_ROOT = pathlib.Path(__file__).resolve().parents[2] / 'experiments'

# These verdicts on the kept rows are in the order of the table.
OUTCOMES = {
  'bernoulli_risk': 'a a d a a',
  'ecdf_mechanisms': 'a a d d a a a a d a',
  'finite_distributions': 'a a a a a',
  'local_histograms': 'a a d a a a',
  'local_queries': 'd a a',
  'polls': 'a a a a d',
  'support_estimators': 'a d d d d a a a',
}


class _Kept(dict):
  """This dictionary reads an experiment's committed points when asked."""

  def __missing__(self, name):
    self[name] = points.collect(records.read(
        _ROOT / name / 'results' / 'rows.csv'))
    return self[name]


@pytest.fixture(name='kept', scope='module')
def _kept():
  return _Kept()


@pytest.mark.every(3)
@pytest.mark.parametrize('name', OUTCOMES)
def test_kept_rows_are_the_sweep_and_give_these_verdicts(name):
  experiment = registry.load(name)
  lines = records.read(_ROOT / name / 'results' / 'rows.csv')
  assert len(records.ids(lines)) == len(experiment.settings)
  all_verdicts = verdicts.check(experiment.report.verdict(lines))
  assert ' '.join(v.verdict[0] for v in all_verdicts) == OUTCOMES[name]
  assert {v.verdict for v in experiment.report.verdict([])} == {
      verdicts.NOT_RUN}
  pytest.importorskip('matplotlib')
  assert all(ax.has_data() for ax in experiment.report.figure(lines).axes)


def _one(all_points, **fields):
  point, = points.select(all_points, **fields)
  return point


def _near(point, name, wanted, sigmas=4):
  assert abs(point[name] - wanted) <= sigmas * point[f'{name}_se'] + 5e-5 * (
      wanted), (point, name)


def _live(smoke_rows, name, keep):
  return points.collect(smoke_rows(name, keep))


@pytest.mark.slow
def test_a_proportion(smoke_rows):
  """Risks of a proportion equal closed forms and bounds (INT-03, INT-04)."""
  all_points = _live(smoke_rows, 'bernoulli_risk',
                     lambda s: s.num_examples == 100 and s.epsilon > .01)
  point = _one(all_points, epsilon=.1)
  assert point['lower_printed_choice'] == pytest.approx(4.599e-4, rel=1e-3)
  assert point['lower_two_point'] == pytest.approx(6.767e-4, rel=1e-3)
  assert point['lower'] == pytest.approx(7.325e-4, rel=1e-3)
  assert point['closed_form'] == pytest.approx(.0225)
  for each in all_points:
    _near(each, 'risk', each['closed_form'], 5)
    assert each['lower_printed'] == pytest.approx(
        math.e * each['lower_printed_choice'])


def test_lower_bounds_are_below_the_risk_and_what_is_printed_is_not_proved(
    kept):
  for point in kept['bernoulli_risk']:
    assert point['lower_two_point'] <= point['lower'] <= point['closed_form']
    if point['num_examples'] * point['epsilon'] >= 2:
      assert point['lower_printed_choice'] == pytest.approx(
          point['lower_printed'] / math.e)


@pytest.mark.slow
def test_a_finite_distribution(smoke_rows):
  """Risks of a finite distribution equal the closed form (MECH-10).

  Projected estimates have less risk.
  """
  all_points = _live(smoke_rows, 'finite_distributions',
                     lambda s: s.num_categories == 10 and s.num_examples == 500)
  assert len(all_points) == 2
  for point in all_points:
    _near(point, 'raw', point['closed_form'], 5)
    assert point['farther'] == 0 and point['projected'] < point['raw']
    probs = finite_run.probabilities(point['dataset'],
                                     int(point['num_categories']))
    n, epsilon = point['num_examples'], point['epsilon']
    assert point['closed_form'] == pytest.approx(
        (1 - (probs**2).sum()) / n + 8 * len(probs) / (n * epsilon)**2)
    assert point['closed_form'] <= point['bound']
  ranks = finite_run.probabilities('zipf', 3)
  np.testing.assert_allclose(ranks, np.array([6, 3, 2]) / 11)


@pytest.mark.parametrize('k, n, epsilon, raw, projected', [
  (10, 1000, 1., .00098, .00098), (1000, 1000, 1., .00900, .00312),
  (100, 500, .1, .32198, .0667)])
def test_goldens_of_finite_distributions(kept, k, n, epsilon, raw, projected):
  point = _one(kept['finite_distributions'], dataset='uniform', epsilon=epsilon,
               num_categories=float(k), num_examples=float(n))
  _near(point, 'raw', raw)
  # Values are golden to three digits.
  assert point['projected'] == pytest.approx(
      projected, abs=5 * point['projected_se'] + 5e-3 * projected)


@pytest.mark.slow
def test_local_histograms(smoke_rows, kept):
  """Local histograms have their exact risks (LDP-07, LDP-08)."""
  for point in _live(smoke_rows, 'local_histograms',
                     lambda s: s.num_examples == 100 and s.epsilon == 1):
    _near(point, 'local', point['local_exact'], 5)
    _near(point, 'central', point['central_exact'], 5)
    assert point['central_exact'] == pytest.approx(8 * 10 / 100**2)
    assert point['central_add_remove'] == pytest.approx(2 * 10 / 100**2)
    assert point['local_exact'] <= point['local_printed']
  point = _one(kept['local_histograms'], epsilon=1., num_examples=1e4)
  assert point['local_exact'] == pytest.approx(4.0958e-3, rel=1e-4)
  assert point['central_exact'] == pytest.approx(8e-7)
  assert point['central_add_remove'] == pytest.approx(2e-7)


@pytest.mark.parametrize('epsilon, laplace, bernoulli, printed', [
  (.5, 377742, 22288, 400), (1., 94436, 6261, 100), (2., 23609, 2305, 25)])
def test_people_for_a_query(epsilon, laplace, bernoulli, printed):
  """Queries need the golden numbers of people (SQ-02)."""
  sizes = [queries_run.batch_size(queries_sweep.Setting(
      method=method, epsilon=epsilon)) for method in ('laplace', 'bernoulli',
                                                      'printed')]
  assert sizes == [laplace, bernoulli, printed]


@pytest.mark.slow
def test_failures_of_queries(smoke_rows, kept):
  """Failures of queries match exact probabilities and simulation."""
  for point in _live(smoke_rows, 'local_queries',
                     lambda s: s.epsilon == 2 and s.method != 'laplace'):
    exact = point['failure_exact']
    assert abs(point['failure'] - exact) <= 5 * math.sqrt(
        exact / point['simulated'])
  for point in kept['local_queries']:
    if point['method'] == 'printed':
      assert point['failure_exact'] > .6
    else:
      assert point['any_failure'] <= point['failure_prob']
  # With few people, two-valued answers have all their sums, noise a fine one.
  setting = queries_sweep.Setting(method='bernoulli', epsilon=2., tolerance=.9)
  size, half = 12, math.tanh(1.)
  sums = np.array([math.comb(size, k) for k in range(size + 1)]) / 2**size
  off = np.abs(2 * np.arange(size + 1) / size - 1) / half > .9
  assert queries_run.failure_prob(setting, size) == pytest.approx(
      sums[off].sum())
  noisy = dataclasses.replace(setting, method='laplace')
  tail = lambda t: np.where(t > 0, np.exp(-t) / 2, 1 - np.exp(t) / 2)
  above = (tail(np.array([.9 - 1, .9 + 1]))).mean()  # scale 2 / epsilon = 1
  assert queries_run.failure_prob(noisy, 1) == pytest.approx(2 * above,
                                                             rel=1e-3)


@pytest.mark.slow
def test_polls(smoke_rows, kept):
  """Polls cover as tabulated, with the known variance (EST-01, EST-02)."""
  live = _live(smoke_rows, 'polls', lambda s: s.share == .3 or s.kind ==
               'privacy')
  assert len(points.select(live, kind=('truthful', 'drowned'))) == 2
  for point in points.select(live, kind=('truthful', 'drowned')):
    _near(point, 'risk', point['closed_form'], 5)
    _near(point, 'mean', .3, 5)
    _near(point, 'coverage', .95, 5)
  assert _one(live, kind='privacy', parameter=.75)['epsilon'] == (
      pytest.approx(math.log(3)))
  for share, wanted in ((.02, .950), (.1, .949), (.3, .950), (.5, .948)):
    _near(_one(kept['polls'], kind='truthful', parameter=.75, share=share),
          'coverage', wanted)
  for point in points.select(kept['polls'], kind='drowned'):
    _near(point, 'coverage', .950)
  worst = _one(kept['polls'], kind='drowned', parameter=.7)
  _near(worst, 'mean', .05 - .0047)
  assert _one(kept['polls'], kind='truthful', parameter=.75, share=.02
              )['negative'] == pytest.approx(.147, abs=.02)


def test_support_estimators(kept):
  """Support estimators have their closed-form risks (EST-04 to EST-06)."""
  at = lambda method, epsilon=1.: _one(
      kept['support_estimators'], method=method, num_examples=1000.,
      epsilon=epsilon)
  for method, wanted in (
      ('noisy_largest', 2.), ('noisy_doubled_mean', 1.7133e-4),
      ('local_doubled_mean', 8.163e-3), ('largest', .49 / 1002000),
      ('doubled_mean', .49 / 3000), ('local_largest', 6.46**2 + 1.6449)):
    assert support_run.closed_form(support_sweep.Setting(
        method=method, num_examples=1000, epsilon=1., repetitions=2)
                                   ) == pytest.approx(wanted, rel=1e-3)
  assert at('local_largest')['bias'] + .7 == pytest.approx(7.16, abs=.2)
  for point in kept['support_estimators']:
    if 'closed_form' in point.values and point['method'] != 'local_largest':
      spread = max(point['risk_se'], point['closed_form'] * math.sqrt(
          2 / point['repetitions']))
      assert abs(point['risk'] - point['closed_form']) < 5 * spread
  order = [at('largest', math.inf)['risk'], at('doubled_mean', math.inf)['risk'],
           at('top_quantile')['risk']]
  assert order[0] < order[1] and order[2] < at('noisy_doubled_mean')['risk']


@pytest.mark.parametrize('method', ['noisy_doubled_mean', 'top_quantile',
                                    'local_largest'])
def test_an_estimator_of_the_support_runs(method):
  setting = support_sweep.Setting(method=method, num_examples=50, epsilon=2.,
                                  repetitions=20)
  estimate = jax.jit(support_run.estimator(setting))(
      jax.random.key(0), jax.random.uniform(jax.random.key(1), (50,)) * .7)
  assert estimate.value.shape == () and np.isfinite(estimate.value)
  assert np.isnan(estimate.low) == (method != 'noisy_doubled_mean')
