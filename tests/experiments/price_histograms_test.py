"""These tests check histograms on cubes: claims and kept rows."""

import dataclasses

import numpy as np
import pytest

from experiments import points
from experiments import registry
from experiments import verdicts
from experiments.price_histograms import run
from experiments.price_histograms import sweep


def _of(lines, start):
  verdict, = (v for v in registry.load('price_histograms').report.verdict(lines)
              if v.claim.startswith(start))
  return verdict.verdict


@pytest.mark.parametrize('metric, keep, factor, claim', [
    ('measured', 'part=records', lambda n: 12.0, 'measured risks'),
    ('upper', 'dimension=1', lambda n: 0.97, 'measured risks'),
    ('lower', 'dimension=2', lambda n: 12.0, 'measured risks'),
    ('measured', 'part=privacy', lambda n: 1.05, 'closed forms'),
    ('upper', 'part=golden', lambda n: 1.02, 'risks and bounds match'),
    ('lower', 'part=records', lambda n: n**0.15, 'risks fall with n at'),
    ('risk', 'method=rate', lambda n: n**0.15, 'the number of bins with')])
def test_claims_can_fail(metric, keep, factor, claim, kept):
  lines = kept('price_histograms')
  wrong = [dataclasses.replace(line, value=line.value * factor(float(
      line.id.split('num_records=')[1].split(',')[0])))
           if line.metric == metric and keep in line.id else line
           for line in lines]
  assert _of(lines, claim) == verdicts.AGREES
  assert _of(wrong, claim) == verdicts.DIFFERS


def test_settings_give_the_rows_that_are_kept(kept):
  lines = points.collect(kept('price_histograms'))
  setting = dataclasses.replace(sweep.SMOKE[0], num_records=10**4,
                                amount=10.0**4)
  old, = points.select(lines, part='records', method='tuned', dimension=1.0,
                       notion='pure', num_records=10_000.0)
  for metric, value in run.exact(setting).items():
    np.testing.assert_allclose(value, old[metric], rtol=1e-6)
  metrics = run.simulated(dataclasses.replace(setting, repetitions=300))
  assert abs(metrics['measured'] - old['risk']) < 4 * metrics['measured_se']
