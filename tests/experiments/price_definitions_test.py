"""These tests check definitions against kept rows and wrong ones."""

import dataclasses
import math

import pytest

from experiments import points
from experiments import registry
from experiments import verdicts


@pytest.mark.every(2)
@pytest.mark.parametrize('keep, metrics, factor, claim', [
    ('kind=conditional', ('found',), 16.2, 'Theorem 1: conditional'),
    ('method=laplace', ('found',), 1.01, 'for delta = 0'),
    ('method=response', ('sharp',), 0.99, 'for delta = 0'),
    ('method=choice', ('found',), 1.01, 'the exponential mechanism has'),
    ('kind=approximate', ('found',), 0.99, 'the sharp bound for delta'),
    ('kind=approximate', ('sharp',), 0.99, 'the sharp bound for delta'),
    ('method=parity', ('posterior',), 1.01, 'posteriors'),
    ('kind=release', ('variation',), 2.0, 'publishing a random record'),
    ('method=one_at_random', ('found',), 0.9, 'publishing a random record'),
    ('kind=beside', ('found',), 1.02, 'conditional testing')])
def test_claims_can_fail(keep, metrics, factor, claim, kept):
  report = registry.load('price_definitions').report
  lines = kept('price_definitions')
  changed = [dataclasses.replace(line, value=line.value * factor)
             if line.metric in metrics and keep in line.id else line
             for line in lines]
  for rows, wanted in ((lines, verdicts.AGREES), (changed, verdicts.DIFFERS)):
    verdict, = (v for v in report.verdict(rows) if v.claim.startswith(claim))
    assert verdict.verdict == wanted


def test_end_to_end(smoke_rows):
  all_points = points.collect(smoke_rows('price_definitions',
                                         lambda s: s.amount in (
                                             1.0, 0.3, 5, 4)))
  at = {(p['kind'], p['method'], p['amount']): p for p in all_points}
  assert at['conditional', 'laplace', 1]['found'] == pytest.approx(
      math.tanh(0.5), rel=1e-6)
  assert at['conditional', 'parity', 1]['posterior'] == pytest.approx(
      0.4621, abs=1e-4)
  assert at['conditional', 'choice', 1]['found'] == pytest.approx(
      math.tanh(0.25), rel=1e-6)
  assert at['approximate', 'told', 0.3]['found'] == pytest.approx(0.551,
                                                                  abs=1e-3)
  assert at['release', 'one_at_random', 5]['found'] == pytest.approx(1)
  assert at['beside', 'binary', 4]['found'] == pytest.approx(0.269, abs=1e-3)
