"""These tests check sensitivities and relaxations of densities and verdicts."""

import dataclasses

import numpy as np
import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import sensitivities
from experiments import registry
from experiments import verdicts
from experiments.density_relaxation import run as relaxation_run
from experiments.density_relaxation import sweep as relaxation
from experiments.density_sensitivities import report as sensitivity_report
from experiments.density_sensitivities import run as sensitivity_run
from experiments.methods.statistics import compared_densities


@pytest.mark.slow
@pytest.mark.parametrize('name', ['density_relaxation',
                                  'density_sensitivities'])
def test_sweeps_end_to_end(name, smoke_rows, kept):
  """Smoke sweeps reproduce the committed rows."""
  lines = smoke_rows(name)
  known = {(row.id, row.metric): row.value for row in kept(name)}
  values = {(row.id, row.metric): row.value for row in lines}
  shared = sorted(values.keys() & known.keys())
  assert len(shared) > 20
  assert [values[key] for key in shared] == pytest.approx(
      [known[key] for key in shared], rel=1e-6)
  experiment = registry.load(name)
  assert experiment.report.table(lines)
  outcomes = {v.verdict for v in verdicts.check(
      experiment.report.verdict(lines))}
  assert verdicts.AGREES in outcomes


def test_a_search_that_finds_farther_pairs_is_seen(kept):
  """A sensitivity that is too small by 1e-6 turns the verdict."""
  lines = kept('density_sensitivities')
  for factor, wanted in ((1, verdicts.AGREES), (1 - 1e-6, verdicts.DIFFERS)):
    changed = [dataclasses.replace(row, value=row.value * factor)
               if row.metric == 'exact' else row for row in lines]
    verdict, = (v for v in sensitivity_report.verdict(changed)
                if v.claim.startswith('no pair'))
    assert verdict.verdict == wanted


def test_pairs_that_move_sums_farthest_are_found():
  for order in (1, 2):
    for adjacency in Adjacency:
      attained = sensitivity_run.attained(11, order=order, adjacency=adjacency)
      assert attained == pytest.approx(sensitivities.trigonometric(
          11, order=order, adjacency=adjacency), rel=1e-6)


def test_best_histograms_by_brute_force():
  setting = relaxation.Setting(kind='cells', num_records=10**4, epsilon=0.1,
                               size=2)
  density = compared_densities.random_phases(2)
  size, best = relaxation_run._best_histogram(setting, density)
  risks = {(bins, top): relaxation_run._histogram(
      setting, bins, top).expected(density).total
           for top in range(1, 9) for bins in range(2 * top + 1, 60, 2)}
  least = min(risks, key=risks.get)
  # Only some numbers of bins are tried.
  assert risks[least] <= best < 1.02 * risks[least]
  assert size == 2 * least[1] + 1


def test_constants_are_those_of_the_error_they_bound():
  """Constants minimise bias (pi N)^(-2 beta) + noise N^2 over N."""
  sizes = np.exp(np.linspace(-3, 3, 200_001))
  for beta in (1, 2, 3):
    brute = np.min(1.3 * (np.pi * sizes)**(-2.0 * beta) + 0.7 * sizes**2)
    assert relaxation_run._constant(beta, 1.3, 0.7) == pytest.approx(brute)
