"""These tests check histogram sweeps on committed, fresh and invented rows."""

import dataclasses

import numpy as np
import pytest

from experiments import points
from experiments import registry
from experiments import verdicts


def _of(all_verdicts, start):
  verdict, = (v for v in all_verdicts if v.claim.startswith(start))
  return verdict.verdict


def _changed(lines, keep, metrics, factor):
  return [dataclasses.replace(line, value=line.value * factor(line))
          if line.metric in metrics and keep(line.id) else line
          for line in lines]


@pytest.mark.every(3)
@pytest.mark.parametrize('keep, metrics, factor, claims', [
    ('part=records', ('mse', 'privacy'), lambda line: float(
        line.id.split('num_records=')[1].split(',')[0])**0.1,
     ('errors of the printed histogram fall', 'where noise dominates')),
    ('part=budgets', ('mse',), lambda line: float(
        line.id.split('budget=')[1].split(',')[0])**-0.1,
     ('errors at n = 10^7 fall with eps', 'errors at n = 10^7 fall with sqrt', 'privacy is')),
    ('part=table', ('mse',), lambda line: 1.02, ('printed and oracle',)),
    ('part=table,method=tuned', ('mse',), lambda line: 1.2, ('tuned bins',)),
    ('part=bins,method=tuned', ('bins',), lambda line: 1.3, ('the error is smallest',)),
    ('part=largest', ('largest',), lambda line: 1.2, ('largest errors match',)),
    ('notion=none,num_records=1000000,', ('largest',), lambda line: 2.0,
     ('largest errors grow as ln m, no',))])
def test_claims_of_histograms_can_fail(keep, metrics, factor, claims, kept):
  """Claims on histograms agree on committed rows and differ on wrong ones."""
  report = registry.load('density_histograms').report
  lines = kept('density_histograms')
  all_verdicts = report.verdict(_changed(lines, lambda id_: keep in id_,
                                         metrics,
                                         factor))
  for claim in claims:
    assert _of(report.verdict(lines), claim) == verdicts.AGREES
    assert _of(all_verdicts, claim) == verdicts.DIFFERS


@pytest.mark.every(3)
@pytest.mark.parametrize('method, factor, claims', [
    ('james_stein', 2.0, ('gains are in the order', 'shrinkage', 'gains are s',
                          'errors match')),
    ('polygon', 2.0, ('lines halve', 'lines err less than the oracle',
                      'lines err less than the printed')),
    ('fix_mass', 1.1, ('closed forms',)), ('unimodal', 0.1, ('unimodal',)),
    ('tuned_simplex', 0.8, ('on tuned bins',))])
def test_claims_of_post_processing_can_fail(method, factor, claims, kept):
  report = registry.load('density_post_processing').report
  lines = kept('density_post_processing')
  all_verdicts = report.verdict(_changed(lines,
                                         lambda id_: f'method={method},' in id_,
                                         ('mse',), lambda line: factor))
  for claim in claims:
    assert _of(report.verdict(lines), claim) == verdicts.AGREES
    assert _of(all_verdicts, claim) == verdicts.DIFFERS


def test_histograms_end_to_end(smoke_rows):
  all_points = points.collect(smoke_rows(
      'density_histograms',
      lambda s: s.part != 'largest' or s.notion == 'pure'))
  by = {p['method']: p for p in points.select(all_points, part='table',
                                              notion='pure')}
  assert by['printed']['mse'] == pytest.approx(6.652e-3, rel=1e-3)
  assert by['oracle']['mse'] == pytest.approx(4.402e-3, rel=1e-3)
  assert by['polygon']['mse'] < by['oracle']['mse']
  for point in points.select(all_points, part='largest'):
    # The largest error is above that of any point, by a logarithm.
    assert 3 < point['largest'] / point['at_point'] < 20


@pytest.mark.slow
def test_post_processing_end_to_end(smoke_rows):
  """Methods that share a release give the same errors when run alone."""
  of = lambda keep: {p['method']: p for p in points.select(points.collect(
      smoke_rows('density_post_processing', keep)), grid='ladder')}
  by_method = of(lambda s: s.grid == 'ladder')
  assert by_method['simplex']['worst'] <= 1 + 1e-9
  assert by_method['simplex']['mse'] < by_method['fix_mass']['mse'] < (
      by_method['printed']['mse'])
  assert by_method['polygon']['mse'] < by_method['tuned_simplex']['mse']
  alone = of(lambda s: s.grid == 'ladder' and s.method == 'simplex')
  assert np.isclose(alone['simplex']['mse'], by_method['simplex']['mse'])
