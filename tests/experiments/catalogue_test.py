"""These tests check that what the catalogue names exists."""

import dataclasses
import re
import sys
import types

import pytest

from experiments.catalogue import checks
from experiments.catalogue import items
from experiments.catalogue import pages
from experiments.verdicts import Verdict
from launch import coverage

pytestmark = pytest.mark.every(1)

_ERRATUM = items.Item(
    group='g', id='E-1', title='a bound', paper='000', place='line 3',
    kind='loose', printed='1', holds='2',
    functions=('experiments.catalogue.items.expand',),
    tests=('tests/experiments/catalogue_test.py::test_ranges_of_ids',))
_CLAIM = 'conversions: '


def _problems(**changes):
  item = dataclasses.replace(_ERRATUM, **changes)
  return checks.problems([items.Group('g', 'G', ('E-1',), (item,))])


@pytest.fixture(scope='module')
def groups():
  return items.groups()


def test_everything_that_is_named_is_there(groups):
  assert checks.problems(groups) == []


def test_the_page_of_errata_is_that_of_the_catalogue(groups):
  page = (items.FOLDER.parent / 'ERRATA.md').read_text(encoding='utf-8')
  assert pages.errata(groups) in page, 'run python -m launch.report'


def test_all_papers_have_items(groups):
  assert {item.paper for group in groups for item in group.items} == set(
      items.PAPERS)
  assert {group.name for group in groups} == {
      'density', 'ecdf', 'lip_dp_sgd', 'mechanisms', 'membership_inference',
      'minimax', 'quantiles'}


def test_ranges_of_ids():
  assert list(items.expand(['NET-08..10', 'SIM-1..2', 'EST-X', 'T-E01..02'])
              ) == ['NET-08', 'NET-09', 'NET-10', 'SIM-1', 'SIM-2', 'EST-X',
                    'T-E01', 'T-E02']


def test_an_honest_item_has_no_problem():
  assert _problems() == []


@pytest.mark.parametrize('changes, line', [
    (dict(paper='005'), 'paper must be'),
    (dict(kind='joke'), 'kind must be'),
    (dict(kind='erratum'), 'kind must be one of .*, false, loose, wording'),
    (dict(kind='rule', merged=('h/E-2',)), 'only an erratum can replace'),
    (dict(functions=('experiments.catalogue.items.expnd',)), 'no experiments'),
    (dict(functions=('nowhere.at_all',)), 'no nowhere'),
    (dict(tests=('tests/experiments/catalogue_test.py::test_none',)),
     'no test'),
    (dict(tests=('tests/none_test.py::test_none',)), 'no test'),
    (dict(tests=('tests/tree_test.py::test_zeros_like',)), ''),
    (dict(experiments=('nothing',)), 'no experiment nothing'),
    (dict(claims=(_CLAIM,)), 'of no experiment'),
    (dict(tests=()), 'no tests, and no note'),
    (dict(kind='algorithm', functions=()), 'no functions, and no note'),
    (dict(kind='artefact'), 'no experiments, and no note'),
    (dict(printed=''), 'what is printed')])
def test_what_is_wrong_is_a_line(changes, line):
  problems = _problems(**changes)
  assert problems and all(each.startswith('g/E-1: ') for each in problems)
  assert any(re.search(line, each) for each in problems)


def test_functions_of_tests_are_found_beside_another_package(monkeypatch):
  """Tests are found although another package installs a `tests` of its own.

  The extra `bench` brings such packages.
  """
  for name in [name for name in sys.modules if name.startswith('tests.')]:
    monkeypatch.delitem(sys.modules, name)
  monkeypatch.setitem(sys.modules, 'tests', types.ModuleType('tests'))
  name = 'tests.stats.quantile_methods.brute.block_log_probs'
  assert checks.place(name).startswith('tests/stats/quantile_methods/brute.py:')
  test = 'tests/stats/quantile_methods/joint_test.py::test_laws_are_those_of_enumeration'
  assert 'g/E-1: no tests.stats.quantile_methods.brute.block' in _problems(
    functions=('tests.stats.quantile_methods.brute.block',), tests=(test,))
  with pytest.raises(LookupError, match='no tests.stats.none.block_log_probs'):
    checks.place('tests.stats.none.block_log_probs')


def test_a_note_stands_for_what_is_missing():
  assert _problems(tests=(), note='nothing to compute') == []


@pytest.mark.parametrize('ids, line', [
    (('E-1', 'E-2'), 'g/E-2: is missing'), ((), 'g/E-1: is not in ids')])
def test_lost_items_are_noticed(ids, line):
  assert checks.problems([items.Group('g', 'G', ids, (_ERRATUM,))]) == [line]
  twice = items.Group('g', 'G', ('E-1',), (_ERRATUM, _ERRATUM))
  assert 'g/E-1: stands there twice' in checks.problems([twice])


@pytest.mark.parametrize('text, line', [
    ('title = "t"\n', 'ids is missing'),
    ('title = "t"\nids = []\n[[item]]\nid = "A"\nnme = "x"\n', "field 'nme'"),
    ('title = "t"\nids = []\n[[item]]\nid = "A"\ntests = "x"\n', 'a list'),
    ('title = "t"\nids = []\n[[item]]\nid = "A"\n', 'missing')])
def test_a_bad_file_is_refused(tmp_path, text, line):
  path = tmp_path / 'bad.toml'
  path.write_text(text)
  with pytest.raises(ValueError, match=line):
    items.read(path)


def test_claims_stand_beside_verdicts():
  item = dataclasses.replace(_ERRATUM, experiments=('conversions',),
                             claims=('conversions: sharp',))
  group = items.Group('g', 'Group', ('E-1',), (item,))
  verdicts = [Verdict('sharp at 1', '3', '4', 'differs', 'why'),
              Verdict('sharp at 2', '5', '5', 'agrees', 'why'),
              Verdict('loose', '6', '6', 'agrees', 'why')]
  table = pages.table([group], {'conversions': verdicts})
  assert table.startswith('### Group\n')
  assert 'sharp at 1' in table and 'sharp at 2' in table
  assert 'loose' not in table and 'differs' in table
  with pytest.raises(LookupError, match="g/E-1: no verdict 'conversions"):
    pages.table([group], {'conversions': verdicts[2:]})


def test_an_item_is_followed_to_file_and_line():
  card = pages.card(dataclasses.replace(_ERRATUM, experiments=('polls',)))
  assert 'Lalanne (2023)' in card
  assert 'experiments/catalogue/items.py:' in card
  assert 'tests/experiments/catalogue_test.py:' in card
  assert 'python -m launch.sweep --experiment=polls' in card
  page = pages.errata([items.Group('g', 'G', (), (_ERRATUM,))])
  assert '## Lalanne (2023)' in page
  assert '| line 3 | E-1 | loose | 1 | 2 |' in re.sub(' +', ' ', page)


def test_a_merged_erratum_is_found_by_its_old_ids(groups):
  """A merged erratum has one row and is found by each of its old ids."""
  merged = dataclasses.replace(_ERRATUM, merged=('g/E-2', 'h/E-9'))
  both = [items.Group('g', 'G', ('E-1', 'E-2'), (merged,)),
          items.Group('h', 'H', ('E-9',), ())]
  assert checks.problems(both) == []
  assert '| E-1 (also E-2, E-9) |' in pages.errata(both)
  twice = dataclasses.replace(both[1], items=(
      dataclasses.replace(_ERRATUM, group='h'),))
  page = pages.errata([both[0], twice])
  assert '| g/E-1 (also E-2, E-9) |' in page and '| h/E-1' in page
  old = [dataclasses.replace(both[0], items=(_ERRATUM,)), both[1]]
  assert checks.problems(old) == ['g/E-2: is missing', 'h/E-9: is missing']
  renyi, = coverage._named(groups, 'minimax/E-01')
  assert renyi.id == 'T-E04'
  assert renyi in coverage._named(groups, 'DEN-E1')


def test_no_two_errata_of_a_paper_have_one_title(groups):
  """No two errata share a title, so that no error is listed twice."""
  titles = [item.title for group in groups for item in group.items
            if item.kind in items.ERRATA]
  assert len(set(titles)) == len(titles)
