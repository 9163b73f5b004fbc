"""These tests check density baselines: sweeps and claims on invented rows."""

import dataclasses
import math

import numpy as np
import pytest

from experiments import points
from experiments import verdicts
from experiments.density_marginals import chain
from experiments.density_marginals import report as marginals_report
from experiments.density_stress import report as stress_report
from experiments.density_stress import run as stress_run
from experiments.density_stress import sweep as stress_sweep


def test_the_chain_has_the_energies_of_the_reference():
  cells = chain.probabilities().reshape((8,) * 4)
  assert cells.sum() == pytest.approx(1)
  apart = np.einsum('a,b,c,d->abcd', *(
      cells.sum(tuple({0, 1, 2, 3} - {axis})) for axis in range(4)))
  assert chain.energy() == pytest.approx(6.91, abs=0.05)
  assert 4096 * np.sum((cells - apart)**2) == pytest.approx(6.27, abs=0.05)
  # Attributes after attribute 1 do not depend on attribute 0.
  given = cells.sum(3) / cells.sum((2, 3))[..., None]
  np.testing.assert_allclose(given, given[:1].repeat(8, 0))


@pytest.mark.slow
def test_marginals_end_to_end(smoke_rows):
  by_method = {point['method']: point for point in points.collect(smoke_rows(
      'density_marginals'))}
  assert by_method['flat']['mse'] == pytest.approx(1.72, rel=0.01)
  assert by_method['not_private']['mse'] == pytest.approx(0.409, rel=0.01)
  assert by_method['private_tree']['mse'] == pytest.approx(0.119, rel=0.15)
  assert by_method['independent']['mse'] == pytest.approx(6.28, rel=0.01)


@pytest.mark.slow
def test_stress_end_to_end(smoke_rows):
  by_method = {point['method']: point for point in points.collect(smoke_rows(
      'density_stress'))}
  assert len(by_method) == len(stress_sweep.SMOKE)
  assert by_method['oracle']['mise'] <= by_method['printed']['mise']
  assert by_method['oracle']['mise'] <= by_method['dyadic']['mise'] < (
      by_method['tree']['mise']) < by_method['leaves']['mise']
  assert by_method['exact']['mise'] < by_method['projection']['mise']
  for point in by_method.values():
    assert math.isfinite(point['mise']) and point['mise'] > 0


def test_settings_are_what_they_are_called():
  by_method = {setting.method: stress_run.estimator(setting)
               for setting in stress_sweep.SETTINGS
               if (setting.num_records, setting.epsilon) == (10**4, 0.1)
               and setting.density in ('blocks', 'cos30')}
  assert by_method['printed'].num_bins == 22
  assert by_method['tree'].level is not None
  assert by_method['leaves'].level is None
  assert by_method['merged'].penalty == 4
  assert by_method['sparse_8'].num_rounds == 8
  assert by_method['sums'].rho == pytest.approx(0.005)
  assert by_method['projection'].tuning == 'printed'


@pytest.mark.parametrize('report,name,method,factor', [
    (marginals_report, 'density_marginals', 'private_tree', 4.0),
    (marginals_report, 'density_marginals', 'independent', 1.3),
    (stress_report, 'density_stress', 'tree', 0.2),
    (stress_report, 'density_stress', 'haar', 0.1),
    (stress_report, 'density_stress', 'merged', 0.5),
    (stress_report, 'density_stress', 'sparse_1', 3.0)])
def test_claims_fall_with_the_errors_they_are_about(report, name, method,
                                                    factor, kept):
  lines = [dataclasses.replace(line, value=factor * line.value)
           if line.method == method and line.metric in ('mse', 'mise')
           else line for line in kept(name)]
  assert any(verdict.verdict == verdicts.DIFFERS
             for verdict in report.verdict(lines))
