"""These tests check the costs of proportions and supports and their claims."""

import dataclasses

import pytest

from experiments import points
from experiments import registry
from experiments import verdicts


def _of(all_verdicts, start):
  verdict, = (v for v in all_verdicts if v.claim.startswith(start))
  return verdict.verdict


def _field(line, name):
  return line.id.split(f'{name}=')[1].split(',')[0]


@pytest.mark.slow
@pytest.mark.parametrize('name, keep, metrics, factor, claim', [
    ('price_proportion', 'method=laplace,', ('risk',), lambda line: 0.3,
     'risks lie between the'),
    ('price_proportion', 'method=geometric,', ('closed_form',),
     lambda line: 0.5, 'risks lie between the'),
    ('price_proportion', 'method=laplace,', ('risk',),
     lambda line: float(_field(line, 'budget'))**0.2, 'the rate under pure'),
    ('price_proportion', 'method=gaussian,', ('risk',),
     lambda line: float(_field(line, 'budget'))**0.2, 'the rate under zCDP'),
    ('price_proportion', 'method=laplace,', ('closed_form',),
     lambda line: 1.2, 'the Laplace mechanism is free'),
    ('price_proportion', 'method=gaussian,', ('closed_form',),
     lambda line: 1.2, 'the Gaussian mechanism is free'),
    ('price_proportion', 'method=table,', ('closed_form',),
     lambda line: 1.1, 'tables of geometric'),
    ('price_proportion', '', ('thesis',), lambda line: 60.0, 'the bounds 1'),
    ('price_support', 'method=ranks,', ('risk', 'risk_se'), lambda line: 0.01,
     'risks lie between the'),
    ('price_support', 'method=ranks,', ('risk',), lambda line: 3.0,
     'risks lie between the'),
    ('price_support', 'method=ranks,', ('risk',),
     lambda line: float(_field(line, 'num_examples'))**0.5,
     'privacy always costs'),
    ('price_support', 'method=doubled,', ('risk',),
     lambda line: float(_field(line, 'num_examples'))**0.3, 'the risk of twice the mean'),
    ('price_support', 'notion=variation,', ('absolute_lower',),
     lambda line: 0.2, 'under total variation')])
def test_claims_can_fail(name, keep, metrics, factor, claim, kept):
  """Claims agree on kept rows and differ on wrong ones."""
  report, lines = registry.load(name).report, kept(name)
  assert _of(report.verdict(lines), claim) == verdicts.AGREES
  off = [dataclasses.replace(line, value=line.value * factor(line))
         if keep in line.id and line.metric in metrics else line
         for line in lines]
  assert _of(report.verdict(off), claim) == verdicts.DIFFERS


def test_claims_that_differ_would_agree(kept):
  """Claims that differ would agree if the printed numbers were true."""
  for name, metrics, factor, claim in (
      ('price_proportion', ('introduction_derived',), 2.7183, 'E (M - p)^2'),
      ('price_support', ('derived',), 1.01, 'without privacy, the end'),
      ('price_support', ('plain',), 0.5, 'max X has')):
    report, lines = registry.load(name).report, kept(name)
    assert _of(report.verdict(lines), claim) == verdicts.DIFFERS
    other = [dataclasses.replace(line, value=line.value * factor)
             if line.metric in metrics else line for line in lines]
    assert _of(report.verdict(other), claim) == verdicts.AGREES


@pytest.mark.slow
def test_proportions_end_to_end(smoke_rows):
  all_points = points.collect(smoke_rows(
      'price_proportion', lambda s: s.num_examples == 20 and s.budget == 1.0))
  for point in all_points:
    assert point['lower'] <= point['closed_form'] * (1 + 1e-9)
    assert abs(point['risk'] - point['closed_form']) < 5 * point['risk_se'] or (
        point['method'] == 'table')
    assert point['thesis'] <= point['lower']


@pytest.mark.slow
def test_supports_end_to_end(smoke_rows):
  all_points = points.collect(smoke_rows(
      'price_support', lambda s: s.part == 'n' and s.num_examples == 200))
  by = {(p['notion'], p['method']): p for p in all_points}
  for point in all_points:
    assert point['lower'] <= point['risk'] + 5 * point['risk_se']
    if 'upper' in point.values:
      assert point['risk'] - 5 * point['risk_se'] <= point['upper']
  assert by['pure', 'linear']['risk'] > 10 * by['pure', 'ranks']['risk']
  assert by['pure', 'linear']['theta'] == pytest.approx(1e-4)
