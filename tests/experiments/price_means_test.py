"""These tests check sweeps of private means and their claims."""

import dataclasses

import pytest

from experiments import points
from experiments import registry
from experiments import verdicts


def _of(all_verdicts, start):
  verdict, = (v for v in all_verdicts if v.claim.startswith(start))
  return verdict.verdict


def _field(line, name):
  return float(line.id.split(f'{name}=')[1].split(',')[0])


@pytest.mark.every(2)
@pytest.mark.parametrize('name, keep, metrics, factor, claims', [
    ('price_moments', 'moment=3', ('measured',), lambda line: 0.05,
     ('every measured risk',)),
    ('price_moments', 'moment=3', ('measured',), lambda line: 1.5,
     ('every measured risk',)),
    ('price_moments', 'moment=4', ('pareto',), lambda line: 1e9,
     ('every measured risk',)),
    ('price_moments', 'kind=budgets', ('tuned',),
     lambda line: _field(line, 'epsilon')**0.15, ('equation (15): the worst-case risk falls with eps',)),
    ('price_moments', 'kind=border', ('border',),
     lambda line: _field(line, 'num_examples')**0.15, ('the epsilon from which',)),
    ('price_moments', 'k', ('proposition_6',), lambda line: 0.5,
     ('Proposition 6',)),
    ('price_moments', 'k', ('printed',), lambda line: 0.1,
     ('tuned thresholds',)),
    ('price_moments', 'k', ('proposition_4',), lambda line: 100,
     ('Proposition 4',)),
    ('price_table', 'notion=approx,method=gaussian', ('slope',),
     lambda line: 1.3, ('upper bounds of Table 1',)),
    ('price_table', 'method=lower', ('slope',), lambda line: 1.3,
     ('upper and lower bounds of',)),
    ('price_table', 'method=lower', ('risk_3',), lambda line: 50,
     ('no risk is below',)),
    ('price_table', 'method=subsample', ('risk_3', 'slope'), lambda line: 9,
     ('a subsample', 'the lower bound of total'))])
def test_claims_can_fail(name, keep, metrics, factor, claims, kept):
  """Claims agree on kept rows and differ on wrong ones."""
  report, lines = registry.load(name).report, kept(name)
  off = [dataclasses.replace(line, value=line.value * factor(line))
         if line.metric in metrics and keep in line.id else line
         for line in lines]
  before, after = report.verdict(lines), report.verdict(off)
  for claim in claims:
    assert _of(before, claim) == verdicts.AGREES
    assert _of(after, claim) == verdicts.DIFFERS


def test_means_end_to_end(smoke_rows):
  all_points = points.collect(smoke_rows('price_moments'))
  for p in points.select(all_points, kind='records'):
    assert p['lower'] <= p['measured'] + 4 * p['measured_se']
    assert abs(p['measured'] - p['tuned']) < 4.5 * p['measured_se']
    assert p['tuned'] <= p['optimal'] * (1 + 1e-3)
    assert max(p['signs'], p['outliers'], p['pareto']) <= p['tuned'] * (
        1 + 1e-6)
  there, = points.select(all_points, kind='border')
  # The rate is (d / epsilon)^2 = n^((k - 2) / (k - 1)), up to a constant.
  assert 1 < there['border'] / (5 * 10**-2.0) < 5


@pytest.mark.slow
def test_table_end_to_end(smoke_rows):
  for p in points.collect(smoke_rows('price_table')):
    assert abs(p['slope'] - p['theory']) < 0.1
