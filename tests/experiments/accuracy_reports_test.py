"""These tests check what the records of accuracy report and claim."""

import dataclasses

import pytest

from experiments import registry
from experiments import selection
from experiments.accuracy_records import blocks
from experiments.accuracy_records import choosing
from experiments.accuracy_records import entries
from experiments.accuracy_records import published
from experiments.accuracy_records import report
from experiments.accuracy_records import results
from experiments.accuracy_records import sweep
from tests.experiments import accuracy_rows
from tests.experiments.accuracy_rows import ENTRY
from tests.experiments.accuracy_rows import NAME
from tests.experiments.accuracy_rows import RECIPES
from tests.experiments.accuracy_rows import scored


@pytest.fixture
def tiny(monkeypatch):
  """Makes `ENTRY` the only entry."""
  yield from accuracy_rows.only_entry(monkeypatch)


def test_without_rows_nothing_is_claimed():
  assert registry.load('accuracy_records').report is report
  verdicts = report.verdict([])
  assert {each.verdict for each in verdicts} == {'not run'}
  assert len(verdicts) == 3 * len(entries.ENTRIES) - 1
  assert report.table([])


def test_published_figures_are_compared_at_no_larger_budget():
  figures = published.figures()
  assert all(0.1 < each.accuracy < 1 and each.epsilon > 0 and each.where
             for each in figures)
  for entry in entries.ENTRIES.values():
    best = published.best(entry.dataset, entry.epsilon, entry.delta)
    if entry.dataset == 'digits':
      assert best is None
      continue
    assert best.epsilon <= entry.epsilon
    assert not any(each.accuracy > best.accuracy for each in figures if
                   each.dataset == entry.dataset and
                   each.epsilon <= entry.epsilon)
  assert published.best('mnist', 2.4, 1e-5).accuracy == .986
  assert published.best('mnist', 2.4, 1e-6) is None
  assert 'secondary source' in str(published.best('mnist', 2.4, 1e-5))


def _whole(make_row, chosen=1, lower=0.5, accuracy=.9):
  """Returns rows of all parts of `ENTRY`."""
  rows = scored(make_row)
  values = {
      'final': {'test_accuracy': accuracy, 'noise_multiplier': 1.25,
                'chosen': chosen, 'num_runs_of_choice': 4,
                'epsilon_with_choice': 7.5},
      'ablation': {choosing.SCORE: .8, 'noise_multiplier': 1.5},
      'audit': {'epsilon_lower': lower, 'largest_epsilon_lower': 3.0,
                'num_canaries': 60, 'num_guesses': 6, 'num_correct': 5}}
  return rows + [make_row(
      id=selection.setting_id(NAME, setting), seed=setting.seed, metric=metric,
      value=value + (setting.seed * .01 if 'accuracy' in metric else 0),
      epsilon=3.99, delta=1e-5, n=1437, adjacency='add_or_remove_one')
                 for setting in sweep.settings_of(ENTRY)
                 if setting.part != 'choose'
                 for metric, value in values[setting.part].items()]


def test_rows_become_a_table_a_block_and_a_claim(tiny, make_row):
  rows = _whole(make_row)
  result = results.of(ENTRY, rows)
  assert result.recipe == RECIPES[1] and result.price == 7.5
  assert result.accuracy.mean == pytest.approx(.92)
  table = report.table(rows)
  assert '0.9200 +- 0.0071' in table and '3.99' in table and '7.5' in table
  assert 'accountant: rdp instead of pld' in table
  block = blocks.block(ENTRY, rows)
  for text in ('tiny: test accuracy 0.9200 +- 0.0071', 'epsilon 3.99 at delta',
               '8 steps of Poisson batches at rate 0.2088', 'multiplier 1.25',
               'this choice of 4 runs and a final run cost epsilon 7.5 in all',
               'at least 0.5 at confidence 95 %', 'reported here as free'):
    assert text in block
  submission = report.documents(rows)[blocks.SUBMISSION]
  for label in ('Name', 'Authors', 'Paper', 'Code', 'Venue', 'Venue Date',
                'claims:', 'public_data:', 'model:', 'epsilon:', 'delta:',
                'private_accuracy:', 'dp_accountant:'):
    assert f'**{label}**' in submission
  assert '92.00%' in submission


@pytest.mark.parametrize('changes, verdicts', [
    ({}, 'a a'), ({'chosen': 0}, 'd a'), ({'lower': 4.2}, 'a d')])
def test_verdicts_notice_another_recipe_and_a_refuted_claim(
    tiny, make_row, changes, verdicts):
  found = report.verdict(_whole(make_row, **changes))
  assert ' '.join(each.verdict[0] for each in found) == verdicts


@pytest.mark.parametrize('accuracy, outcome', [(.99, 'agrees'),
                                               (.5, 'differs')])
def test_accuracies_are_compared_with_published_ones(
    tiny, make_row, monkeypatch, accuracy, outcome):
  monkeypatch.setattr(published, 'figures', lambda: (published.Figure(
      .95, 3.0, 1e-5, 'digits', 'Someone 2020', 'Table 1', True),))
  first = report.verdict(_whole(make_row, accuracy=accuracy - .02))[0]
  assert first.verdict == outcome
  assert first.printed == '0.950 at epsilon 3 (Someone 2020)'


def test_rows_of_a_shorter_list_are_not_the_result(tiny, make_row):
  rows = _whole(make_row)
  longer = dataclasses.replace(ENTRY, recipes=(*RECIPES, dataclasses.replace(
      RECIPES[0], num_steps=9)))
  assert results.of(longer, rows) is None
  assert blocks.missing(longer, rows).startswith('2 of 3 recipes tried, final '
                                                 'not run')


def test_the_event_names_everything_that_ran(tiny, make_row):
  result = results.of(ENTRY, _whole(make_row))
  changed = lambda **fields: blocks._event(result._replace(
      recipe=dataclasses.replace(result.recipe, **fields)))
  assert changed(whitening=10.0, batch_size=60_000) == (
      'three sums for whitening with Gaussian noise of multiplier 10, then 8 '
      'steps of all records, Gaussian noise of multiplier 1.25')
  assert changed(sampler='random_allocation').startswith(
      '8 steps of random allocation to 5 steps of an epoch, Gaussian')
