"""These tests check that committed rows are the
sweep's and give the verdicts."""

import pytest

from experiments import records
from experiments import registry
from experiments import verdicts

pytestmark = pytest.mark.every(2)

# Verdicts are in the order of the table: agrees, differs, not comparable.
OUTCOMES = {
    'audit_zoo': 'a a a d a',
    'density_adaptive': 'a a a a a a a a a a a a a a a',
    'density_bounds': 'a a d a d d a d d a',
    'density_crossover': 'a a a d a a',
    'density_draws': 'a',
    'density_histograms': 'a a a a a a d d a a a a d a a a a',
    'density_marginals': 'a a a a a',
    'density_packings': 'a a a a d a a',
    'density_post_processing': 'a a a a a a a a a a a',
    'density_rates': 'a a a a a a a a a',
    'density_relaxation': 'a d a a a a d a d d a a',
    'density_sensitivities': 'd d a a a a a a a a a d',
    'density_stress': 'a a a a a a a a a a a',
    'density_table': 'a a a a a a d a',
    'ecdf_inverse': 'a a a a a a',
    'ecdf_smoothing': 'a a d a a a d a a a a',
    'equal_epsilon': 'd d d d d d a a d d d d d d d d d d',
    'hosmer_lemeshow': 'a a a a a n',
    'mpc_communication': 'a a d d a d d a',
    'price_definitions': 'a d a a a d a a a',
    'price_dimension': 'a d a d a a a a a',
    'price_histograms': 'a a a a a d a a a',
    'price_intervals': 'd a a a a a a a',
    'price_likelihood': 'a a a a a a a a d a a d a a a d',
    'price_moments': 'a a a a a a a a a a',
    'price_proportion': 'a d a a a a a d d a',
    'price_samples': 'a d a a a a a d a',
    'price_support': 'a a d a d d a d',
    'price_table': 'a a d a a a a',
    'quantile_atoms': 'd a a a d a d a a d a d a a',
    'quantile_beta': 'a d a d a a d a a a a',
    'quantile_distributions': 'a a a',
    'roc_curves': 'd d a a a a a',
    'smoothing_time': 'a d a a a a a',
    'sparsity_layers': 'a a a a d a a d a a a'}


@pytest.mark.every(4)
@pytest.mark.parametrize('name', OUTCOMES)
def test_kept_rows_are_the_sweep_and_give_these_verdicts(name, kept):
  lines = kept(name)
  experiment = registry.load(name)
  assert len(records.ids(lines)) == len(experiment.settings)
  all_verdicts = verdicts.check(experiment.report.verdict(lines))
  assert ' '.join(v.verdict[0] for v in all_verdicts) == OUTCOMES[name]
  pytest.importorskip('matplotlib')
  if hasattr(experiment.report, 'figure'):
    assert all(ax.has_data() for ax in experiment.report.figure(lines).axes)


@pytest.mark.parametrize('name', OUTCOMES)
def test_without_rows_nothing_is_claimed(name):
  report = registry.load(name).report
  all_verdicts = verdicts.check(report.verdict([]))
  assert {verdict.verdict for verdict in all_verdicts} == {verdicts.NOT_RUN}
  assert report.table([])
