"""These tests check that every experiment loads and makes its claims."""

import pathlib

import pytest

from experiments import records
from experiments import registry
from experiments.catalogue import items

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


def test_an_experiment_measures_an_item_of_the_catalogue():
  measured = {name for group in items.groups() for item in group.items
              for name in item.experiments}
  missing = sorted(set(registry.EXPERIMENTS) - measured)
  assert not missing, ('name them in `experiments` of an item of '
                       f'experiments/catalogue: {missing}')


def test_verdicts_of_an_experiment_are_pinned_by_a_test():
  """A test pins the verdicts of every experiment.

  Otherwise new rows could turn a claim unnoticed.
  """
  texts = [path.read_text() for path in pathlib.Path(
      __file__).parent.rglob('*_test.py')]
  tests = ''.join(text for text in texts if 'report.verdict(' in text)
  missing = [name for name in registry.EXPERIMENTS if f"'{name}'" not in tests]
  assert not missing, ('add them to OUTCOMES of '
                       f'tests/experiments/kept_rows_test.py: {missing}')
