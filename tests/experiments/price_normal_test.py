"""These tests check sweeps of normal means and their claims."""

import dataclasses

import pytest

from experiments import points
from experiments import registry
from experiments import verdicts


def _of(all_verdicts, start):
  verdict, = (v for v in all_verdicts if v.claim.startswith(start))
  return verdict.verdict


@pytest.mark.parametrize('name, keep, metric, factor, claim', [
    ('price_dimension', 'kind=dimension', 'lower', 300.0, 'risks lie between'),
    ('price_dimension', 'kind=dimension', 'rounds', 0.1, 'risks lie between'),
    ('price_dimension', 'kind=dimension', 'optimised', 1e-3, 'the optimised'),
    ('price_dimension', 'dimension=512', 'once', 1.5, 'one clipped mean under '
     'rho'),
    ('price_dimension', 'dimension=512', 'once', 0.7, 'one clipped mean under '
     'epsilon'),
    ('price_dimension', 'radius=10000', 'coinpress', 3.0, 'one round grows'),
    ('price_dimension', 'kind=rounds', 'coinpress', 1.5, 'CoinPress against'),
    ('price_dimension', 'kind=rounds', 'ours', 1.5, 'rounds beat'),
    ('price_intervals', 'method=tuned', 'coverage', 0.9, 'intervals with proved'),
    ('price_intervals', 'method=tuned', 'coverage', 1.08, 'their coverage is'),
    ('price_intervals', 'method=karwa', 'coverage', 0.95, 'coverage of the'),
    ('price_intervals', 'method=karwa', 'half', 1.05, 'half-widths'),
    ('price_intervals', 'method=karwa', 'risk', 2.0, 'risks of'),
    ('price_intervals', 'method=tuned', 'half', 2.5, "dpjax's intervals are"),
    ('price_intervals', 'method=tuned', 'risk', 0.3, 'no estimate has')])
def test_claims_can_fail(name, keep, metric, factor, claim, kept):
  """Claims agree on kept rows and differ on wrong ones."""
  report, lines = registry.load(name).report, kept(name)
  changed = [dataclasses.replace(line, value=line.value * factor)
             if line.metric == metric and keep in line.id else line
             for line in lines]
  assert _of(report.verdict(lines), claim) == verdicts.AGREES
  assert _of(report.verdict(changed), claim) == verdicts.DIFFERS


@pytest.mark.slow
def test_dimensions_end_to_end(smoke_rows):
  all_points = points.collect(smoke_rows(
      'price_dimension', lambda s: s.dimension == 2))
  assert len(all_points) == 2
  for point in all_points:
    assert point['lower'] <= point['ours'] + 4 * point['ours_se']
    assert point['ours'] - 4 * point['ours_se'] <= point['rounds']
    assert point['shrunk'] <= point['once']


@pytest.mark.slow
def test_intervals_end_to_end(smoke_rows):
  all_points = points.collect(smoke_rows('price_intervals',
                                         lambda s: s.num_examples == 500))
  by = {point['method']: point for point in all_points}
  assert set(by) == {'gaussian', 'karwa_vadhan', 'tuned'}
  assert by['gaussian']['half'] < by['tuned']['half'] < (
      by['karwa_vadhan']['half'])
  for point in all_points:
    assert point['coverage'] + 4 * point['coverage_se'] > 0.95
    assert point['lower'] < point['risk'] + 4 * point['risk_se']
