"""These tests check Figures 6.5.1 to 6.6.7: sweeps and claims."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special
from scipy import stats

from dpjax.stats.ecdf_methods import dyadic
from dpjax.stats.ecdf_methods import inverse as curves
from dpjax.stats.ecdf_methods import smoothing
from experiments import ecdf_data
from experiments import points
from experiments import registry
from experiments import rows
from experiments import selection
from experiments import verdicts
from experiments.ecdf_inverse import run as inverse_run
from experiments.ecdf_inverse import sweep as inverse
from experiments.ecdf_smoothing import sweep as smooth
from experiments.hosmer_lemeshow import run as tests_run
from experiments.hosmer_lemeshow import sweep as tests_sweep
from experiments.methods.mechanisms import protocol_costs
from experiments.mpc_communication import report as bits_report
from experiments.roc_curves import run as roc_run
from experiments.roc_curves import sweep as roc_sweep
from experiments.smoothing_time import problem
from experiments.smoothing_time import run as time_run
from experiments.smoothing_time import solvers
from experiments.smoothing_time import sweep as time_sweep


def _of(all_verdicts, start):
  verdict, = (v for v in all_verdicts if v.claim.startswith(start))
  return verdict


@pytest.mark.every(2)
def test_counts_are_poisson_and_the_same_for_all():
  counts = ecdf_data.poisson_counts(rate=3.0, num_thresholds=2000,
                                    repetitions=5, seed=0)
  assert abs(counts.mean() - 3) < 5 * (3 / counts.size)**0.5
  # A variance of 3 is estimated with variance (2 * 9 + 3) / n.
  assert abs(counts.var() - 3) < 5 * (21 / counts.size)**0.5
  assert not np.array_equal(counts[0], counts[1])
  np.testing.assert_array_equal(counts, ecdf_data.poisson_counts.__wrapped__(
      rate=3.0, num_thresholds=2000, repetitions=5, seed=0))


_MANY = inverse.Setting(method='search', num_quantiles=1, epsilon=0.7,
                        num_thresholds=16, repetitions=2000)


def _one_data_set():
  counts = ecdf_data.poisson_counts(rate=3.0, num_thresholds=16,
                                    repetitions=1, seed=0)
  return np.repeat(np.cumsum(counts, -1), _MANY.repetitions, 0)


def _answer_probs(truth, target):
  """Returns probabilities [N] of thresholds:
  binary search, exponential mechanism."""
  scale = 4 / _MANY.epsilon
  probs = np.zeros(16)

  def below(middle):
    # This is the probability of integer noise below target - S_m.
    excess = np.ceil(target - truth[middle - 1]) - 1
    ratio = np.exp(-1 / scale)
    tail = ratio**abs(excess) / (1 + ratio)
    return 1 - ratio * tail if excess >= 0 else tail

  def search(low, high, chance):
    if high - low == 1:
      probs[high - 1] += chance
      return
    middle = (low + high) // 2
    share = below(middle)
    search(middle, high, chance * share)
    search(low, middle, chance * (1 - share))
  search(0, 16, 1.0)
  return probs, special.softmax(-_MANY.epsilon / 2 * abs(truth - target))


@pytest.mark.slow
def test_answers_asked_anew_have_their_distribution():
  """Repeated answers have the stated distribution, by chi-square tests.

  Each of the 4 tests has level 1e-4.
  """
  truth = _one_data_set()
  for kind, ask in enumerate((inverse_run._searched, inverse_run._exponential)):
    places = ask(_MANY, np.diff(truth, prepend=0.0), truth)
    for decile in (2, 6):
      probs = _answer_probs(truth[0], truth[0, -1] * (decile + 1) / 10)[kind]
      assert probs.sum() == pytest.approx(1)
      seen = np.bincount(places[:, decile] - 1, minlength=16)
      often = probs * len(places) >= 5
      expected = np.append(probs[often], probs[~often].sum()) * len(places)
      seen = np.append(seen[often], seen[~often].sum())
      kept = expected > 0
      value = np.sum((seen - expected)[kept]**2 / expected[kept])
      assert stats.chi2.sf(value, kept.sum() - 1) > 1e-4


@pytest.mark.slow
def test_inverses_end_to_end(smoke_rows):
  """At a large epsilon all methods find the quantiles of the records."""
  all_points = points.collect(smoke_rows(
      'ecdf_inverse', lambda s: s.method in ('paper_raw', 'search',
                                             'exponential')))
  assert len(all_points) == 10
  for point in all_points:
    assert point['rank_rmse'] > 0
  setting = dataclasses.replace(_MANY, epsilon=1e6, repetitions=3)
  counts = ecdf_data.poisson_counts(rate=3.0, num_thresholds=16,
                                    repetitions=3, seed=1)
  truth = np.cumsum(counts, -1)
  exact = curves.search(truth, truth[:, -1:] * np.array(inverse.DECILES))
  for ask in (inverse_run._searched, inverse_run._recursive):
    places = ask(setting, counts, truth)
    off = np.take_along_axis(truth, places - 1, -1) - (
        truth[:, -1:] * np.array(inverse.DECILES))
    best = np.take_along_axis(truth, exact - 1, -1) - (
        truth[:, -1:] * np.array(inverse.DECILES))
    assert np.all(abs(off) <= np.maximum(best, counts.max()))
  np.testing.assert_array_equal(
      inverse_run._searched(setting, counts, truth), exact)


@pytest.mark.slow
def test_smoothing_end_to_end(smoke_rows):
  all_points = points.collect(smoke_rows(
      'ecdf_smoothing', lambda s: (s.method, s.smoothing) in (
          ('paper', 'none'), ('paper', 'p2'), ('paper', 'pava'))))
  for figure, field, value in (('epsilon', 'epsilon', 0.1),
                               ('lambda', 'rate', 0.1)):
    by = {p['smoothing']: p for p in points.select(
        all_points, figure=figure, **{field: value})}
    assert by['none']['ratio'] == 1
    assert by['p2']['ratio'] < by['pava']['ratio'] < 0.5
  # The 6 data sets have 16 ranks, whose errors share most of their noise.
  for point in points.select(all_points, smoothing='none'):
    assert 0.2 < point['of_printed'] < 3


def _smoothing_rows(ratio):
  lines = []
  for setting in smooth.SETTINGS:
    value = ratio(setting)
    lines += selection.named('ecdf_smoothing', setting, rows.released(
        setting, dict(mse=value, mse_se=value / 50, ratio=value,
                      ratio_se=0.01, run_ratio=value, worst=2 * value,
                      absolute=value, of_printed=value), n=100,
        epsilon=setting.epsilon))
  return lines


@pytest.mark.parametrize('low, outcome', [(0.3, verdicts.DIFFERS),
                                          (1.2, verdicts.AGREES)])
def test_claims_of_smoothing_go_either_way(low, outcome):
  def ratio(setting):
    if setting.smoothing == 'none':
      return 1.0
    small = setting.epsilon < 0.2
    return (low if small else 0.6) * (1.1 if setting.smoothing == 'p1' else 1)
  report = registry.load('ecdf_smoothing').report
  all_verdicts = report.verdict(_smoothing_rows(ratio))
  assert _of(all_verdicts, '2-norm smoothing helps from').verdict == outcome
  assert _of(all_verdicts, '2-norm smoothing outper').verdict == verdicts.AGREES
  assert _of(all_verdicts, '2-norm smoothing ceases to matter for large l'
             ).verdict == verdicts.DIFFERS
  # The values are invented, not ratios of other programs.
  assert _of(all_verdicts, 'values for p = 2').verdict == verdicts.DIFFERS


def _noisy(size):
  setting = time_sweep.Setting(method='p2', num_thresholds=size)
  return time_run.curve(setting)


@pytest.mark.slow
def test_other_programs_solve_our_problem():
  ranks, total = _noisy(16)
  posed, printed = problem.of(ranks, total), problem.printed_rows(ranks, total)
  nodes = np.random.default_rng(0).normal(size=31)
  with jax.enable_x64(True):
    layout = dyadic.Layout(16, True).rows(jnp.asarray(nodes))
    squares = np.asarray(jax.jit(smoothing.least_squares)(
        jnp.asarray(ranks), jnp.float64(total), jnp.ones(5)))
  np.testing.assert_allclose(problem.smoothed(np.zeros(16), nodes), layout)
  np.testing.assert_allclose(printed.last[:16, :31] @ nodes, layout)
  linear = solvers.highs_lp(posed)
  assert np.diff(problem.smoothed(ranks, linear), prepend=0.0).min() > -1e-9
  assert np.abs(solvers.highs_lp(printed)[:31]).sum() == pytest.approx(
      np.abs(linear).sum(), rel=1e-9)
  least = problem.least_squares_noise(squares - ranks)
  assert least < problem.least_squares_noise(
      problem.smoothed(ranks, linear) - ranks) <= np.sum(np.square(linear))
  pytest.importorskip('cvxopt')
  noise = solvers.cvxopt_qp(posed)
  assert np.sum(np.square(noise)) == pytest.approx(least, rel=1e-6)
  np.testing.assert_allclose(problem.smoothed(ranks, noise), squares,
                             atol=1e-2 * np.abs(ranks).max())


def test_smoothing_is_timed(smoke_rows):
  pytest.importorskip('cvxopt')
  all_points = points.collect(smoke_rows(
      'smoothing_time', lambda s: s.method in ('cvxopt_qp', 'qp_rows')))
  assert len(all_points) == 2
  assert all_points[0]['objective'] == pytest.approx(all_points[1]['objective'],
                                                     rel=1e-6)
  assert all(p['fastest'] <= p['seconds'] <= p['slowest'] for p in all_points)


def test_bits_end_to_end(smoke_rows):
  """Counted bits agree with formulas and with the crossings of EC-21."""
  lines = smoke_rows('mpc_communication')
  report = registry.load('mpc_communication').report
  all_verdicts = report.verdict(lines)
  assert ' '.join(v.verdict[0] for v in all_verdicts) == 'a a d d a d d a'
  along = [p for p in points.collect(lines) if p['figure'] == 'points'
           and p['num_servers'] == 2]
  at = bits_report._crossings(along, 'num_points')
  for name, value in at.items():
    # The difference is a share of a label for each server, and the answers.
    assert 0 < value - protocol_costs.break_even(10, 32, against=name) < (
        5 if name == 'one_shot' else 2)
  # A counter that misses a bit is seen.
  line = next(r for r in lines if r.metric == 'counted')
  less = [dataclasses.replace(r, value=r.value - 1) if r is line else r
          for r in lines]
  assert _of(report.verdict(less), 'formulas').verdict == verdicts.DIFFERS


def test_lines_cross():
  line = {1.0: 10.0, 2.0: 10.0, 4.0: 10.0}
  assert bits_report.crossing(line, {1.0: 4.0, 2.0: 8.0, 4.0: 16.0}) == 2.5
  assert np.isnan(bits_report.crossing(line, {1.0: 1.0, 4.0: 2.0}))


@pytest.mark.slow
@pytest.mark.parametrize('method', ['printed', 'tight', 'joint'])
def test_roc_curves_of_little_noise_are_the_true_ones(method):
  setting = dataclasses.replace(
      roc_sweep.SMOKE[1], method=method, smoothing='none', epsilon=1e6)
  counts = roc_run.counted(setting, None)
  ranks = roc_run.released(setting, counts)
  assert roc_run._areas(setting, ranks, counts)['area'] < 1e-9
  # Half of the negatives move to the positives, which the area shows.
  moved = counts.copy()
  moved[0] = counts[0] // 2 + counts[0, ::-1] // 2
  assert roc_run._areas(setting, ranks, moved)['area'] > 0.01


@pytest.mark.slow
def test_roc_curves_end_to_end(smoke_rows):
  lines = smoke_rows('roc_curves', lambda s: s.method in ('exact', 'joint'))
  all_points = points.collect(lines)
  by = {p['epsilon']: p for p in points.select(all_points, method='joint')}
  assert 0 < by[5.0]['area'] < by[0.5]['area'] < 0.1
  exact, = points.select(all_points, method='exact')
  assert exact['num_examples'] == 4238
  assert exact['fpr_00'] == exact['tpr_00'] == 0
  assert exact['fpr_64'] == exact['tpr_64'] == 1
  assert registry.load('roc_curves').report.table(lines)


@pytest.mark.slow
def test_hosmer_lemeshow_of_little_noise():
  setting = dataclasses.replace(tests_sweep.SMOKE[0], epsilon=1e7)
  scored = tests_run.scores.scores(setting.dataset, seed=0)
  of = lambda method: tests_run._metrics(
      setting, scored, getattr(tests_run, method)(dataclasses.replace(
          setting, method='release' if method == '_released' else 'tight'),
          scored))
  release, cells = of('_released'), of('_asked')
  assert release['mean'] == pytest.approx(release['binned'], rel=1e-4)
  assert release['largest'] == pytest.approx(
      abs(release['binned'] / release['exact'] - 1), rel=1e-3)
  # Cells sum predictions and not middles of bins.
  assert cells['median'] < release['median']
