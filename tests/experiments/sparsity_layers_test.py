"""These tests check counted networks and their claims."""

import dataclasses

import pytest

from experiments import points
from experiments import registry
from experiments import verdicts


def _of(rows, claim):
  verdict, = (v for v in registry.load('sparsity_layers').report.verdict(rows)
              if v.claim.startswith(claim))
  return verdict.verdict


def _with(lines, keep, metrics, change):
  return [dataclasses.replace(line, value=change(line.value))
          if keep in line.id and line.metric in metrics else line
          for line in lines]


@pytest.mark.parametrize('keep, metrics, claim', [
    ('kind=network', ('dense',), 'number of parameters of ResNet-20'),
    ('segments=1', ('parameters',), 'Table 1.1: parameters of S = 1, L = 2'),
    ('segments=3', ('parameters',), 'Table 1.1: parameters of S = 3, L = 3'),
    ('kind=square', ('in_a_row',), 'Figure 1.3'),
    ('kind=square', ('parameters',), 'square butterflies'),
    ('kind=layer', ('paths_most',), 'the product')])
def test_claims_can_fail(keep, metrics, claim, kept):
  lines = kept('sparsity_layers')
  assert _of(lines, claim) == verdicts.AGREES
  off = _with(lines, keep, metrics, lambda value: 1.02 * value)
  assert _of(off, claim) == verdicts.DIFFERS


@pytest.mark.parametrize('keep, parameters, claim', [
    ('num_factors=3,segments=2', 35_066,
     'Table 1.1: parameters of S = 2, L = 3'),
    ('num_rows=16,num_columns=144', 320, 'Table 1.1: S = 2 and S = 3')])
def test_claims_that_differ_could_agree(keep, parameters, claim, kept):
  """Claims that differ would agree on other counts (M-E05).

  The test plants next larger chains and smaller layers.
  """
  lines = kept('sparsity_layers')
  assert _of(lines, claim) == verdicts.DIFFERS
  assert _of(_with(lines, keep, ('parameters',), lambda _: parameters),
             claim) == verdicts.AGREES


def test_end_to_end(smoke_rows):
  all_points = points.collect(smoke_rows('sparsity_layers'))
  counts = {(p['kind'], p['num_factors']): (p['parameters'],
                                            p.values.get('next_parameters'))
            for p in all_points}
  # Six layers 16 x 144 form the first segment: 416 or 432, and 384 or 400.
  assert counts == {('network', 2): (32_122, 32_218),
                    ('network', 3): (23_162, 23_258),
                    ('layer', 2): (416, 432), ('layer', 3): (384, 400),
                    ('square', 4): (128, None)}
  square, = points.select(all_points, kind='square')
  assert (square['in_a_row'], square['in_a_column']) == (2, 2)
  assert (square['paths_least'], square['paths_most']) == (1, 1)
  assert square['chains'] == square['as_few'] == 1
