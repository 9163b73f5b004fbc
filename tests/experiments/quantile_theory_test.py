"""These tests compare the theory of quantiles with simulations.

They cover QF-12 to QF-20, QF-29, QB-01 and QB-03.
"""

import math
import pathlib

import numpy as np
import pytest
from scipy import stats

from dpjax.studies import quantile_distributions
from experiments import points
from experiments import records
from experiments import registry
from experiments import verdicts
from experiments.methods.statistics import quantile_bounds as bounds

_ROOT = pathlib.Path(__file__).resolve().parents[2] / 'experiments'
# These verdicts on the kept rows are in the order of the table.
OUTCOMES = {'quantile_bounds': 'a a a a d n d a a',
            'quantile_rates': 'a a a a a a a'}


@pytest.fixture(name='kept', scope='module', params=OUTCOMES)
def _kept(request):
  return request.param, records.read(
      _ROOT / request.param / 'results' / 'rows.csv')


def test_kept_rows_are_the_sweep_and_give_these_verdicts(kept):
  name, lines = kept
  experiment = registry.load(name)
  assert len(records.ids(lines)) == len(experiment.settings)
  all_verdicts = verdicts.check(experiment.report.verdict(lines))
  assert ' '.join(v.verdict[0] for v in all_verdicts) == OUTCOMES[name]
  assert {v.verdict for v in experiment.report.verdict([])} == {
      verdicts.NOT_RUN}
  pytest.importorskip('matplotlib')
  assert all(ax.has_data() for ax in experiment.report.figure(lines).axes)


def test_one_beta_law_alone_has_what_the_theorems_ask_for():
  """Only the uniform beta density meets the theorems' assumptions (QE-06).

  It is bounded, and away from 0 up to the ends.
  """
  for name in quantile_distributions.BETAS:
    distribution = stats.beta(*map(float, name.split('_')[1:]))
    ends = distribution.pdf(np.array([1e-12, 1 - 1e-12]))
    assert (ends.min() > .1 and ends.max() < 10) == (name == 'beta_1_1'), name
  assert not bounds.applies(.1, num_examples=10_000, probs=(.5,),
                            density_min=0.0)


@pytest.mark.slow
def test_bounds_of_one_setting(smoke_rows):
  """Bounds of one setting keep their order and golden values (QF-14)."""
  all_points = points.collect(smoke_rows(
      'quantile_bounds', lambda s: s.method == 'independent'))
  upper, = points.select(all_points, kind='upper', dataset='mixed_0_0')
  assert upper['error'] < upper['sharp'] < upper['corrected'] < upper['printed']
  size = 200 * math.sqrt(2 * math.e)
  assert (12 * size * math.exp(-5 * 200 * upper['printed'] / 96)
          + 12 * math.exp(-upper['printed']**2 * 200 / 8)) == pytest.approx(
              0.05, rel=1e-3)
  beta, = points.select(all_points, dataset='beta_2_5')
  assert set(beta.values) == {'error', 'mean'}
  lower, = points.select(all_points, kind='lower')
  assert lower['printed'] == pytest.approx(math.exp(-5 / 6) / 2)
  assert lower['printed'] < lower['sharp'] < lower['far']


@pytest.mark.slow
def test_rates_of_one_setting(smoke_rows):
  all_points = points.collect(smoke_rows(
      'quantile_rates', lambda s: s.method == 'real' and s.num_examples == 400))
  swapped, = points.select(all_points, adjacency='replace_one')
  assert swapped['closed_form'] == pytest.approx(.25 / 400 + 8 / 400**2)
  assert abs(swapped['mse'] - swapped['closed_form']) < 5 * swapped['mse_se']
  added, = points.select(all_points, adjacency='add_or_remove_one')
  # Half the cost allows twice the rate, so a quarter of the variance.
  assert added['closed_form'] == pytest.approx(.25 / 400 + 2 / 40**2)
  assert 5 < added['rank_error'] < 15
  assert added['distance'] == pytest.approx(added['rank_error'] / 400, rel=.2)
