"""These tests check clipping bias by golden values and exact oracles.

They cover BIAS-01 to BIAS-04 and EXP-F5.3.3.
"""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

from dpjax.runs import grouping
from dpjax.typing import Batch
from experiments import papers
from experiments import records
from experiments import registry
from experiments import selection
from experiments import verdicts
from experiments.clipping_bias import descent
from experiments.clipping_bias import lookup
from experiments.clipping_bias import regression
from experiments.clipping_bias import report
from experiments.clipping_bias import run
from experiments.clipping_bias import sweep

_PRINTED = papers.CLIPPING_EXAMPLE


def _quadrature(offset, weight):
  """Returns the mean of weight(norm) times the gradient, by quadrature."""
  total = np.zeros(2)
  for error, probability in regression.ERRORS:
    residual = lambda x, e=error: offset[0] * x + offset[1] - e
    # Corners come from a bisected fine grid, unlike the quartic of the code.
    grid = np.linspace(0, 1, 4001)
    norms = lambda x, r=residual: 2 * np.abs(r(x)) * np.hypot(1, x)
    kinks = np.flatnonzero(np.diff(np.sign(norms(grid) - weight.corner)))
    signs = np.flatnonzero(np.diff(np.sign(residual(grid))))
    points = [0, *sorted({*grid[kinks], *grid[kinks + 1], *grid[signs],
                          *grid[signs + 1]}), 1]
    for axis in range(2):
      def value(x, r=residual, n=norms, axis=axis):
        return weight(n(x)) * 2 * r(x) * (x, 1)[axis]
      total[axis] += probability * sum(
          integrate.quad(value, low, high, epsabs=1e-13, limit=200)[0]
          for low, high in zip(points, points[1:]) if high > low)
  return total


class _Clip:
  """Returns the weight min(1, C / norm), or 1 / norm, of a norm."""

  def __init__(self, clip_norm, *, normalise=False):
    self.corner = 0.0 if normalise else clip_norm
    self._clip_norm, self._normalise = clip_norm, normalise

  def __call__(self, norm):
    if self._normalise:
      return 1 / norm if norm else 0.0
    return min(1.0, self._clip_norm / norm) if norm else 1.0


@pytest.fixture(scope='module')
def offsets():
  return np.random.default_rng(0).normal(scale=3, size=(12, 2))


def test_mean_clipped_gradient_is_the_quadrature(offsets):
  cases = [*zip(offsets, np.geomspace(0.2, 40, len(offsets))),
           (np.zeros(2), 2.2), (np.zeros(2), 20.0)]
  for offset, clip_norm in cases:
    np.testing.assert_allclose(
        regression.mean_clipped_gradient(offset, clip_norm=clip_norm),
        _quadrature(offset, _Clip(clip_norm)), atol=1e-10)
    np.testing.assert_allclose(
        regression.mean_normalised_gradient(offset),
        _quadrature(offset, _Clip(1.0, normalise=True)), atol=1e-10)


def test_without_clipping_it_is_the_mean_gradient(offsets):
  for offset in offsets:
    np.testing.assert_allclose(
        regression.mean_clipped_gradient(offset, clip_norm=1e3),
        regression.mean_gradient(offset), atol=1e-11)
  assert np.all(regression.mean_gradient(np.zeros(2)) == 0)


def test_bias_01_golden_values():
  """The mean clipped gradient and its zero have
  the reference values (BIAS-01)."""
  at_optimum = regression.mean_clipped_gradient(np.zeros(2), clip_norm=1.0)
  np.testing.assert_allclose(
      at_optimum, 0.8 * np.array([math.sqrt(2) - 1, math.asinh(1)]),
      atol=1e-14)
  np.testing.assert_allclose(at_optimum, [0.3313708, 0.7050989], atol=1e-7)
  assert np.linalg.norm(at_optimum) == pytest.approx(0.7790835, abs=1e-7)
  zero = regression.clipped_zero(clip_norm=1.0)
  np.testing.assert_allclose(zero, [-0.01764882, -0.94221039], atol=1e-8)
  assert regression.excess_risk(zero) == pytest.approx(0.9045, abs=5e-5)
  assert regression.LARGEST_LINEAR == pytest.approx(17.93, abs=0.005)
  assert regression.UNBIASED_FROM == pytest.approx(25.46, abs=0.005)


@pytest.mark.parametrize('clip_norm,zero,digits', [
    (5, (-0.08824, -0.71105), 5), (10, (-0.17649, -0.42210), 5),
    (15, (-0.26473, -0.13316), 5), (20, (-0.2159, 0.0525), 4)])
def test_zeros_for_other_clip_norms(clip_norm, zero, digits):
  actual = regression.clipped_zero(clip_norm=float(clip_norm))
  np.testing.assert_allclose(actual, zero, atol=0.51 * 10**-digits)
  assert np.linalg.norm(_quadrature(actual, _Clip(clip_norm))) < 1e-9


def test_the_closed_form_ends_where_it_says_and_the_bias_vanishes():
  edge = regression.LARGEST_LINEAR
  for clip_norm in (0.01, edge * (1 - 1e-9), edge * (1 + 1e-9), 22.0, 25.4):
    zero = regression.clipped_zero(clip_norm=clip_norm)
    assert np.linalg.norm(zero) > 1e-6
    norm = np.linalg.norm(
        regression.mean_clipped_gradient(zero, clip_norm=clip_norm))
    assert norm < 1e-10
  linear = np.array([-0.01764882, 0.05778961]) * 20 + [0, -1]
  assert np.linalg.norm(
      regression.mean_clipped_gradient(linear, clip_norm=20.0)) > 0.01
  edge = regression.UNBIASED_FROM
  assert not regression.clipped_zero(clip_norm=edge).any()
  origin = lambda c: np.linalg.norm(
      regression.mean_clipped_gradient(np.zeros(2), clip_norm=c))
  assert origin(edge) < 1e-12 < 1e-6 < origin(edge - 0.1)


def test_e21_the_printed_root_is_none():
  """At the printed root the mean clipped gradient is far from zero (E21).

  At the opposite sign it vanishes.
  """
  there = regression.mean_clipped_gradient(np.array(_PRINTED.zero),
                                           clip_norm=_PRINTED.clip_norm)
  assert np.linalg.norm(there) > 0.7
  turned = regression.mean_clipped_gradient(-np.array(_PRINTED.zero),
                                            clip_norm=_PRINTED.clip_norm)
  assert np.linalg.norm(turned) < 2e-5


def test_the_clipped_field_is_monotone(offsets):
  """The clipped field is monotone, so its zero is unique."""
  for clip_norm in (0.5, 4.0, 20.0):
    fields = [regression.mean_clipped_gradient(u, clip_norm=clip_norm)
              for u in offsets]
    for i, j in itertools.combinations(range(len(offsets)), 2):
      assert (offsets[i] - offsets[j]) @ (fields[i] - fields[j]) > -1e-12
    zero = regression.clipped_zero(clip_norm=clip_norm)
    assert all((u - zero) @ field > 0.01
               for u, field in zip(offsets, fields))


@pytest.mark.slow
def test_sampling_agrees_with_the_integral():
  """Sampling through dpjax's clipping agrees with the integral.

  A false alarm at 4.9 standard errors has probability below 1e-6.
  """
  norm, error = descent.sampled_norm(jax.random.key(3), 100_000,
                                     clip_norm=1.0)
  assert abs(norm - 0.7790835) < 4.9 * error < 0.016


@pytest.fixture(scope='module')
def rows(smoke_rows):
  # optax.adam is not strict.
  return smoke_rows('clipping_bias', promotion='standard')


@pytest.fixture(scope='module')
def rests(rows):
  """Returns the end points of noiseless full-batch descents of 300 steps."""
  return {key.method: np.array([metrics['rest_1'][0], metrics['rest_2'][0]])
          for key, metrics in lookup.of_kind(lookup.collect(rows),
                                             'descent').items()}


def test_noiseless_dp_sgd_reaches_the_zero(rests):
  zero = regression.clipped_zero(clip_norm=1.0)
  assert np.linalg.norm(rests['clipped_sgd'] - zero) < 1e-3
  assert np.linalg.norm(rests['clipped_sgd'] - _PRINTED.zero) > 1.8


def test_e21_algorithm_7_as_printed_goes_elsewhere(rests):
  """Algorithm 7 as printed minimises absolute deviations instead (E21).

  It ends at (a, b - 1).
  """
  median = np.array([0.0, -1.0])
  assert np.linalg.norm(rests['normalised_sgd'] - median) < 1e-3
  assert np.linalg.norm(rests['clipped_sgd'] - median) > 0.05
  # Its field points away from (0, -1) everywhere, and does not vanish near.
  for angle in np.linspace(0, 2 * np.pi, 9):
    away = 0.01 * np.array([np.cos(angle), np.sin(angle)])
    assert regression.mean_normalised_gradient(median + away) @ away > 1e-4


@pytest.mark.slow
def test_normalised_contributions_are_bounded():
  bounder = descent.normalised(descent.predict, descent.squared_loss)
  batch = Batch(jnp.array([[0.5], [0.5], [jnp.nan], [0.1]]),
                jnp.array([7.0, 0.0, 1.0, jnp.inf]))
  theta = jnp.zeros([2], jnp.float32)
  alone = [bounder.sums(theta, batch, jnp.arange(4) == i) for i in range(4)]
  norms = [float(jnp.linalg.norm(sums.total)) for sums in alone]
  np.testing.assert_allclose(norms, [1, 0, 0, 0], atol=1e-6)
  assert [int(sums.num_nonfinite) for sums in alone] == [0, 0, 1, 1]
  together = bounder.sums(theta, batch, jnp.ones([4], jnp.bool_))
  np.testing.assert_allclose(together.total, alone[0].total, rtol=1e-6)
  assert bounder.l2_sensitivity(()) == 1


@pytest.mark.every(2)
def test_grid_records_have_the_exact_shares():
  batch = descent.grid_records(200)
  noise = np.asarray(batch.y - descent.SLOPE * batch.x[:, 0] -
                     descent.INTERCEPT)
  for error, share in regression.ERRORS:
    assert np.mean(np.abs(noise - error) < 1e-5) == pytest.approx(share)
  assert abs(noise.mean()) < 1e-6
  assert abs(np.corrcoef(noise, batch.x[:, 0])[0, 1]) < 1e-6


@pytest.fixture(scope='module')
def field_rows():
  """Returns rows of the sweep's whole field."""
  settings = [s for s in sweep.SETTINGS if s.kind == 'field']
  return [row
          for setting, lines in run.run(settings, None, lambda *_: None)
          for row in selection.named('clipping_bias', setting, lines)]


def test_bias_02_zero_crossings_of_the_field(field_rows):
  """The figure's rows show the zeros of both fields (BIAS-02)."""
  grid = lookup.grid(lookup.collect(field_rows))
  plain = lookup.crossings(grid.first, grid.second, grid.plain)
  clipped = lookup.crossings(grid.first, grid.second, grid.clipped)
  np.testing.assert_allclose(plain, [[0, 0]], atol=1e-12)
  # Around its zero the clipped field is linear, hence interpolated exactly.
  np.testing.assert_allclose(clipped, [[-0.01764882, -0.94221039]],
                             atol=1e-8)


def test_crossings_finds_all_zeros_once():
  axis = np.linspace(-1, 1, 5)
  x, y = np.meshgrid(axis, axis, indexing='ij')
  zeros = lookup.crossings(axis, axis, np.stack([x, y - 0.3], -1))
  np.testing.assert_allclose(zeros, [[0, 0.3]], atol=1e-12)
  assert not lookup.crossings(axis, axis, np.stack([x, y - 3], -1)).size


def test_rows_tell_what_they_cost(rows):
  assert records.ids(rows) == {selection.setting_id('clipping_bias', s)
                               for s in sweep.SMOKE}
  diagnostics = [row for row in rows if row.dataset == 'breast_cancer' and
                 row.metric != 'test_accuracy']
  assert diagnostics and all(math.isinf(row.epsilon) for row in diagnostics)
  released = [row for row in rows if row.metric == 'test_accuracy']
  assert len(released) == 2
  assert all(1.6 < row.epsilon <= row.epsilon_requested == 1.672
             for row in released)
  exact = [row for row in rows if row.n == 0]
  assert exact and all(row.epsilon == 0 for row in exact)
  assert all(row.epsilon_valid for row in rows)
  noisy = [row for row in rows if row.dataset == 'regression_small' and
           row.method == 'dp_sgd']
  assert len(noisy) == 4 and all(0.99 < row.epsilon <= 1 for row in noisy)


def test_verdicts_of_the_smoke_sweep(rows):
  by_claim = {verdict.claim: verdict
              for verdict in verdicts.check(report.verdict(rows))}
  zero = by_claim['the mean clipped gradient is zero at (a, b) plus']
  assert (zero.printed, zero.ours, zero.verdict) == (
      '(0.01765, 0.94221)', '(-0.01765, -0.94221)', verdicts.DIFFERS)
  assert 'E21' in zero.reason and '0.7791' in zero.reason
  outcome = {claim.split(':')[0]: v.verdict for claim, v in by_claim.items()}
  assert outcome['norm of the mean clipped gradient at (a, b)'] == 'agrees'
  assert outcome['Figure 5.2.1'] == 'agrees'
  rest = [v for claim, v in by_claim.items() if 'comes to rest' in claim or
          'come to rest' in claim]
  assert [v.verdict for v in rest] == ['agrees', 'agrees', 'differs']
  theorem = {claim: v.verdict for claim, v in by_claim.items()
             if 'Theorem 5.2.3' in claim}
  assert sorted(theorem.values()) == ['agrees', 'agrees', 'differs',
                                      'differs']
  assert [v.verdict for claim, v in by_claim.items() if 'batches' in claim] == [
      'differs']
  assert {v.verdict for claim, v in by_claim.items()
          if claim.startswith(('dropout', 'adult'))} == {'not run'}


def test_nothing_is_claimed_without_rows():
  all_verdicts = verdicts.check(report.verdict([]))
  assert {v.verdict for v in all_verdicts} == {verdicts.NOT_RUN,
                                               verdicts.NOT_COMPARABLE}


def test_the_sweep_covers_figures_and_theorem():
  experiment = registry.load('clipping_bias')
  kinds = {setting.kind for setting in experiment.settings}
  assert kinds == {'zero', 'field', 'descent', 'ball', 'batches', 'curve'}
  for setting in experiment.settings:
    key = lookup.parse(selection.setting_id('clipping_bias', setting))
    assert key == (setting.kind, setting.dataset, setting.method,
                   setting.clip_norm, setting.at)
  groups = grouping.groups(experiment.settings, experiment.batched)
  assert len([g for g in groups if g[0].kind == 'curve']) == 16


def test_table_and_figure(rows, field_rows):
  pytest.importorskip('matplotlib')
  text = report.table(rows)
  assert '-0.94221' in text and 'frobenius_adam' in text
  kept = [row for row in rows if '/kind=field' not in row.id]
  axes = report.figure(kept + field_rows).axes
  assert 'clipped' in axes[1].get_title()
  points = [tuple(np.round([line.get_xdata()[0], line.get_ydata()[0]], 5))
            for line in axes[1].get_lines()]
  assert points == [(0, 0), (-0.01765, -0.94221)]
  assert axes[3].get_title() == 'breast_cancer: along training'
  report.figure([])
