"""Every experiment loads, and its headlines are claims that it makes."""

import pathlib

import pytest

from experiments import records
from experiments import registry

pytestmark = pytest.mark.every(1)

_ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize('name', sorted(registry.EXPERIMENTS))
def test_headlines_begin_claims_that_are_made(name):
  experiment = registry.load(name)
  path = _ROOT / 'experiments' / name / 'results' / 'rows.csv'
  if not path.exists():
    pytest.skip('no rows')
  claims = [verdict.claim for verdict
            in experiment.report.verdict(records.read(path))]
  for headline in experiment.headlines:
    assert any(claim.startswith(headline) for claim in claims), headline
