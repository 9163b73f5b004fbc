"""These tests check numbers of records for private tests and claims."""

import dataclasses

import pytest

from experiments import registry
from experiments import verdicts
from experiments.price_samples import run
from experiments.price_samples import sweep


def _of(lines, start):
  all_verdicts = registry.load('price_samples').report.verdict(lines)
  verdict, = (v for v in all_verdicts if v.claim.startswith(start))
  return verdict.verdict


def test_the_smoke_sweep_gives_the_rows_that_are_kept(kept):
  old = {(row.id, row.metric): row.value for row in kept('price_samples')}
  for setting, lines in run.run(sweep.SMOKE, None, lambda *a: None):
    place = registry.selection.setting_id('price_samples', setting)
    for row in lines:
      assert row.value == pytest.approx(old[place, row.metric], rel=1e-6)


def test_the_half_way_bound_is_its_mean():
  for n in (1, 2, 9):
    wanted = sum(p * 2.718281828459045**(-0.3 * ((d + 1) // 2)) / 2
                 for d, p in enumerate(_binomial(n, 0.01)))
    assert run.midpoint(n, 0.3) == pytest.approx(wanted)


def _binomial(n, t):
  probs = [1.0]
  for _ in range(n):
    probs = [a * (1 - t) + b * t for a, b in zip(probs + [0], [0] + probs)]
  return probs


@pytest.mark.parametrize('keep, metric, factor, claim', [
    ('amount=0.1,', 'theorem', 1.01, '381'),
    ('amount=0.1,', 'midpoint', 1.01, 'half'),
    ('amount=0.01,', 'path', 1.001, 'numbers'),
    ('notion=pure', 'path', 1.1, 'privacy increases'),
    ('amount=1e-06', 'path', 2.0, 'no test'),
    ('amount=0.002', 'test', 1.2, 'bounds are near'),
    ('notion=zcdp,amount=0.01', 'path', 2.0, 'the number of records')])
def test_claims_can_fail(keep, metric, factor, claim, kept):
  lines = kept('price_samples')
  assert _of(lines, claim) == verdicts.AGREES
  assert _of([dataclasses.replace(row, value=row.value * factor) if (
      keep in row.id + ',' and row.metric == metric) else row
              for row in lines], claim) == verdicts.DIFFERS
