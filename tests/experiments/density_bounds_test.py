"""These tests check density bounds and packings: sweeps and committed rows."""

import dataclasses

import numpy as np
import pytest

from dpjax.privacy.adjacency import Adjacency
from experiments import registry
from experiments import verdicts
from experiments.density_bounds import run as bounds_run
from experiments.density_bounds import sweep as bounds
from experiments.density_packings import report as packings_report
from experiments.density_packings import run as packings_run
from experiments.density_packings import sweep
from experiments.density_packings import words
from experiments.methods.statistics import projection_tunings


@pytest.mark.every(2)
@pytest.mark.parametrize('name, module', [
    ('density_bounds', bounds_run), ('density_packings', packings_run)])
def test_settings_give_the_rows_that_are_kept(name, module, kept):
  experiment = registry.load(name)
  old = {(row.id.split('/', 1)[1], row.metric): row.value for row in kept(name)}
  few = experiment.settings[::40] if name == 'density_bounds' else (
      experiment.smoke)
  count = 0
  for setting, lines in module.run(few, None, lambda *a: None):
    for row in lines:
      same = [value for (key, metric), value in old.items()
              if metric == row.metric and key == registry.selection.setting_id(
                  name, setting).split('/', 1)[1]]
      np.testing.assert_allclose(row.value, same, rtol=1e-6, atol=1e-12)
      count += 1
  assert count > 10


def test_upper_bounds_are_those_of_the_table():
  """Upper bounds have the table's constants where noise dominates (DEN-B3)."""
  wanted = {('lipschitz', 'pure'): dict(histogram=1.633),
            ('lipschitz', 'zcdp'): dict(histogram=0.577, weighted=0.450),
            ('sobolev1', 'pure'): dict(spectral=1.107),
            ('sobolev1', 'zcdp'): dict(spectral=0.391, weighted=0.318,
                                       theorem_4=1.273),
            ('sobolev2', 'pure'): dict(spectral=1.201),
            ('sobolev2', 'zcdp'): dict(spectral=0.300, weighted=0.253,
                                       theorem_4=1.035),
            ('sobolev3', 'pure'): dict(spectral=1.233),
            ('sobolev3', 'zcdp'): dict(spectral=0.259, weighted=0.224)}
  for (name, notion), constants in wanted.items():
    setting, = (s for s in bounds.SETTINGS if s.kind == 'privacy' and (
        s.dataset, s.notion, s.amount) == (name, notion, 1e6))
    bound, beta = bounds_run.upper(setting), bounds.SMOOTHNESS[name]
    rate = 2 * beta / (beta + 1)
    for method, constant in constants.items():
      assert bound[method] * 1e6**rate * bounds.RADII[name]**(rate - 2) == (
          pytest.approx(constant, rel=0.025))


@pytest.mark.parametrize('name, basis', [
    ('lipschitz', 'cosine'), ('sobolev1', 'fourier'), ('sobolev3', 'fourier')])
def test_upper_bounds_are_those_of_the_estimator(name, basis):
  """Upper bounds exceed the estimator's worst case by at most 5 %.

  The bound rounds cuts and, at beta = 1, bounds a supremum.
  """
  setting, = (s for s in bounds.SETTINGS if (s.dataset, s.notion, s.kind) == (
      name, 'zcdp', 'records') and s.num_records == 10**4)
  worst = projection_tunings.pinsker_projection(
      num_records=10**4, rho=setting.alpha**2, basis=basis,
      radius=bounds.RADII[name], smoothness=bounds.SMOOTHNESS[name],
      adjacency=Adjacency.REPLACE_ONE).worst_case(
          bounds.SMOOTHNESS[name], bounds.RADII[name]).total
  bound = bounds_run.upper(setting)['weighted']
  assert 0.995 * worst < bound < 1.05 * worst


def _of(name, lines, start):
  verdict, = (v for v in registry.load(name).report.verdict(lines)
              if v.claim.startswith(start))
  return verdict.verdict


def _changed(lines, metric, factor, **fields):
  """Returns the rows with one metric of the matching settings multiplied."""
  def fits(row):
    return row.metric == metric and all(f'{key}={value}' in row.id
                                        for key, value in fields.items())
  return [dataclasses.replace(row, value=row.value * factor) if fits(row)
          else row for row in lines]


def test_claims_fail_on_rows_that_are_wrong(kept):
  lines = kept('density_bounds')
  assert _of('density_bounds', lines, 'lower bounds stay') == verdicts.AGREES
  assert _of('density_bounds', _changed(
      lines, 'sharp', 40.0, dataset='sobolev2'), 'lower bounds stay') == (
          verdicts.DIFFERS)
  assert _of('density_bounds', _changed(
      lines, 'cells', 1.03, dataset='sobolev1'), 'constants with') == (
          verdicts.DIFFERS)
  lines = kept('density_packings')
  for metric, start in (('variation', 'equations (16)'),
                        ('divergence', 'equations (23)')):
    assert _of('density_packings', _changed(
        lines, metric, 2.1, kernel='triangle'), start) == verdicts.DIFFERS
  assert _of('density_packings', _changed(
      lines, 'separation', 0.99, kernel='smooth'), 'equations (24)') == (
          verdicts.DIFFERS)


def test_what_is_drawn_is_what_the_reference_draws():
  """Figures draw the reference's levels and tops (DEN-F1 to F3)."""
  x = np.array([0.0, 0.25, 0.5, 0.75])
  wanted = {'Figure 1': (0.92, None, 1.32, None),
            'Figure 2': (0.92, 1.32, 0.92, 1.32)}
  for name, (setting, word) in sweep.FIGURES.items():
    packing = words.packing(setting)
    words.check(packing, np.array(word))
    density, = packing.densities(np.array(word)[None], x)
    for value, known in zip(density, wanted.get(name, ())):
      assert known is None or value == pytest.approx(known)
  # The amplitude is L h^beta nu / e.
  setting, word = sweep.FIGURES['Figure 3']
  density, = words.packing(setting).densities(np.array(word)[None], x)
  assert density[1] - density[0] == pytest.approx(
      150 * 0.2**2 * 0.1074126 / np.e, rel=1e-5)


def test_no_drawing_of_what_is_no_density():
  setting, word = sweep.FIGURES['Figure 3']
  good = words.packing(setting)
  kinds = {'not a density': dict(radius=3000.0),
           'class': dict(centres=(0.5, 0.5, 0.5))}
  for message, changes in kinds.items():
    bad = dataclasses.replace(good, **changes)
    with pytest.raises(ValueError, match=message):
      words.check(bad, np.array((1, 1, 1)))
  assert packings_report.figure([]).axes
