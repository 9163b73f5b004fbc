"""These tests check which faults `launch.mutate` plants in a toy package."""

import contextlib
import subprocess
import textwrap

import pytest

from launch import mutate
from launch.mutation import coverage
from launch.mutation import drawing
from launch.mutation import operators
from launch.mutation import outcomes
from launch.mutation import places
from launch.mutation import pool
from launch.mutation import table

_SOURCE = '''
"""Sums: 1 + 1."""
import functools


def add(a, b):
  """Adds, 2 + 2."""
  return a + b


@functools.lru_cache(maxsize=None)
def double(a):
  if a >= 10:
    return 20
  return 2 * a


def unused(a):
  return a - 1
'''
_TESTS = '''
import pytest

from toy.small import sums


@pytest.fixture(scope='module')
def seven():
  return sums.add(3, 4)


def test_of_a_fixture_that_is_shared(seven):
  assert seven > 6


def test_of_a_fixture(seven):
  assert seven == 7


def test_first_call():
  assert sums.double(2) > 3


def test_second_call_is_cached():
  assert sums.double(2) == 4


@pytest.mark.skip
def test_skipped():
  assert sums.unused(1) == 0
'''


@pytest.fixture
def toy(tmp_path):
  """Returns the root of a repository with a library and its tests."""
  root = tmp_path / 'toy'
  for name, text in {
      'toy/__init__.py': '', 'toy/small/__init__.py': '',
      'toy/small/sums.py': _SOURCE, 'tests/small/sums_test.py': _TESTS,
      'setup.cfg': '[tool:pytest]\naddopts = --import-mode=importlib\n',
      '.gitignore': '/results/\n'}.items():
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.lstrip())
  subprocess.run(['git', 'init', '-q'], cwd=root, check=True)
  return root


def _mutants(text):
  """Returns (operator, changed line) of all valid mutants of a source."""
  source = textwrap.dedent(text).encode()
  mutants = operators.find('a.py', source, operators.declared([source]))
  return {(mutant.operator, mutant.after) for mutant in mutants
          if mutant.is_valid(source)}


def _run(root, *words):
  return mutate.main(mutate.parse([
      'mutate', f'--root={root}', '--library=toy', '--package=small',
      '--table=tests/MUTANTS.md', *words]))


def _rows(root):
  return root / 'results/mutants/small.json'


def test_a_constant_is_shown_to_all_tests_that_import_it():
  """A changed constant runs all tests that import the module, its own first.

  Then come the tests that run any of its lines.
  """
  tests = ['tests/c_test.py::test_imports', 'tests/b_test.py::test_runs',
           'tests/a_test.py::test_own', 'tests/c_test.py::test_slow']
  covered = coverage.Coverage(
      dict(zip(tests, (0.1, 2., 3., 4.), strict=True)),
      {('p/a.py', 1): set(), ('p/a.py', 2): {tests[1]}},
      {'p/a.py': {tests[1]}}, {'p/a.py': set(tests)}, [])
  assert covered.of('p/a.py', 1) == [tests[2], tests[1], tests[0], tests[3]]
  assert covered.of('p/a.py', 2) == [tests[1]]
  assert covered.of('p/a.py', 3) == []


@pytest.mark.every(2)
def test_a_run_finds_what_no_test_notices(toy, capsys):
  before = (toy / 'toy/small/sums.py').read_text()
  assert _run(toy, '--num=1000', '--seed=1') == 1
  assert (toy / 'toy/small/sums.py').read_text() == before
  results = outcomes.read(_rows(toy))
  by_source = {one.mutant.before: one for one in results}
  assert len(by_source) == len(results) == 5
  added = by_source['return a + b']
  # The fixture runs once, but all tests of the file may rely on it.
  assert added.num_tests == 4 and added.outcome == 'killed'
  doubled = by_source['return 2 * a']
  # A cache hides the line from the second caller of the same process.
  assert doubled.num_tests == 2 and doubled.outcome == 'killed'
  assert by_source['return a - 1'].outcome == 'not executed'
  assert by_source['return 20'].outcome == 'not executed'
  assert by_source['if a >= 10:'].outcome == 'survived'
  out, err = capsys.readouterr()
  assert '3 survive' in out and 'no test executes it' in out
  assert 'test_skipped' in err
  listed = (toy / 'tests/MUTANTS.md').read_text()
  assert '`return 20`' in listed and '`return 2 * a`' not in listed


@pytest.mark.every(3)
def test_tests_added_later_notice_survivors(toy):
  (toy / 'tests/MUTANTS.md').write_text('# Old\n\n## aside\n\nkept\n')
  assert _run(toy, '--num=1000', '--seed=1') == 1
  compared, = [one.mutant for one in outcomes.read(_rows(toy))
               if one.mutant.before == 'if a >= 10:']
  (toy / 'tests/small/more_test.py').write_text(
      'from toy.small import sums\n\n\ndef test_more():\n'
      '  assert sums.double(11) == 20\n  assert sums.unused(2) == 1\n')
  (toy / 'tests/mutants.toml').write_text(
      f'[[mutant]]\nfile = "toy/small/sums.py"\nbefore = "{compared.before}"\n'
      f'after = "{compared.after}"\nreason = "2 * 10 is 20."\n')
  assert _run(toy, '--again') == 0
  results = outcomes.read(_rows(toy))
  assert len(results) == 5
  assert {one.mutant for one in results if not one.is_noticed()} == {compared}
  listed = (toy / 'tests/MUTANTS.md').read_text()
  assert '## aside\n\nkept\n' in listed and '## small' in listed
  assert 'with seed 1' in listed and '2 * 10 is 20.' in listed


@pytest.mark.every(2)
def test_tests_that_are_edited_during_a_run_are_run_again(toy, tmp_path):
  """Tests that are edited during a coverage run are run again.

  Results belong to the worker's copy, not to later edits.
  """
  place = places.Place(toy, 'toy', 'small')
  path, seconds = toy / 'tests/small/sums_test.py', []
  for k in range(2):
    with contextlib.closing(pool.Worker(place, tmp_path / str(k))) as worker:
      if not k:
        path.write_text(path.read_text() + '\n\ndef test_new():\n  pass\n')
      each = lambda function, items, worker=worker: [
          function(worker, item) for item in items]
      copied = place._replace(root=worker.root)
      seconds.append(coverage.collect(copied, tmp_path / 'lines', each).seconds)
  new = 'tests/small/sums_test.py::test_new'
  assert new not in seconds[0] and new in seconds[1]


@pytest.mark.every(3)
def test_a_loop_without_end_is_noticed(toy, tmp_path):
  (toy / 'toy/small/loops.py').write_text(
      'def loop(n):\n  while n > 0:\n    n -= 1\n  return n\n')
  test = 'tests/small/loops_test.py::test_loop'
  (toy / test.split('::')[0]).write_text(
      'from toy.small import loops\n\n\n'
      'def test_loop():\n  assert loops.loop(3) == 0\n')
  place = places.Place(toy, 'toy', 'small')
  loop, = [mutant for mutant in drawing.every(place)
           if mutant.after == 'n += 1']
  with contextlib.closing(pool.Worker(place, tmp_path / 'worker')) as worker:
    watch = lambda limit_s, grace_s: worker.watch(
        [test], {test: .01}, limit_s=limit_s, grace_s=grace_s)
    with worker.mutated(loop):
      hung, stopped = watch(60, .5), watch(2, 60)
    passed = watch(60, 30)
  assert hung['outcome'] == 'hung' and hung['test'] == test
  assert stopped['outcome'] == 'limit' and passed['outcome'] == 'passed'


@pytest.mark.parametrize('text, expected', [
    ('x = a < b', {('comparison', 'x = a <= b')}),
    ('x = max(a, b)', {('function', 'x = min(a, b)')}),
    ('x = where(a, b)', {('arguments swapped', 'x = where(b, a)')}),
    ('x = (a + b) * mask', {
        ('arithmetic', 'x = (a - b) * mask'), ('term dropped', 'x = (a) * mask'),
        ('term dropped', 'x = (b) * mask'), ('arithmetic', 'x = (a + b) / mask'),
        ('factor dropped', 'x = (a + b)'), ('factor dropped', 'x = mask')}),
    ('x = 1 / 2', {
        ('constant', 'x = 2 / 2'), ('constant', 'x = 1 / 3'),
        ('arithmetic', 'x = 1 * 2'), ('factor dropped', 'x = 1')}),
    ('x = math.sqrt(-y)', {('call dropped', 'x = (-y)'),
                           ('negation dropped', 'x = math.sqrt(y)')}),
    ('x = jnp.sum(y, axis=0)', {
        ('function', 'x = jnp.mean(y, axis=0)'),
        ('argument dropped', 'x = jnp.sum(y)'),
        ('constant', 'x = jnp.sum(y, axis=1)')}),
    ('x = not (a and b)', {
        ('not dropped', 'x = (a and b)'),
        ('logic', 'x = not (((a) or (b)))'),
        ('condition dropped', 'x = not (((a)))'),
        ('condition dropped', 'x = not (((b)))')}),
    ('x = -np.inf if flag else y', {
        ('branch', 'x = (-np.inf)'), ('branch', 'x = (y)'),
        ('negation dropped', 'x = np.inf if flag else y'),
        ('infinity', 'x = -(-np.inf) if flag else y')}),
    ('''
     def round_up(x, digits=3):
       return x
     y = round_up(x, digits=d)
     def round_down(x):
       return x
     ''', {('constant', 'def round_up(x, digits=4):'),
           ('function', 'y = round_down(x, digits=d)'),
           ('argument dropped', 'y = round_up(x)')}),
    ('''
     if a:
       raise ValueError(f'{a + 1} > 2')
     check(a)
     ''', {('check dropped', 'if False:'), ('statement dropped', 'None')}),
    ('''
     @cached(size=3)
     def facts(x: Size[3] = None) -> Size[4]:
       """1 + 1"""
       return {'x': 1 + 2}
     y: Size[4] = 'a' + b
     ''', set()),
])
@pytest.mark.every(1)
def test_mutants_of_a_source(text, expected):
  assert _mutants(text) == expected


def test_positions_are_right_beside_wide_characters_and_comments():
  source = "x = f('äöü', a < b)  # <\ny = (a  # +, not -\n     + b)\n"
  assert {('comparison', "x = f('äöü', a <= b) # <"),
          ('arithmetic', '- b)')} <= _mutants(source)


def test_drawn_mutants_are_of_different_lines_and_repeatable(toy):
  place = places.Place(toy, 'toy', 'small')
  mutants = drawing.every(place)
  draw = lambda seed: drawing.draw(place, mutants, num=4, seed=seed)
  assert draw(0) == draw(0) != draw(1)
  assert len({mutant.line for mutant in draw(0)}) == 4


def test_known_mutants_are_found_where_lines_have_moved(toy):
  place = places.Place(toy, 'toy', 'small')
  old = drawing.every(place)
  path = toy / 'toy/small/sums.py'
  path.write_text('\n\n' + path.read_text().replace('a - 1', 'a - 3'))
  new = drawing.find_again(drawing.every(place), old)
  kept = [mutant for mutant in old if mutant.before != 'return a - 1']
  assert [one.line for one in new] == [one.line + 2 for one in kept]


@pytest.mark.parametrize('words, message', [
    (('--package=none',), "no package 'none' in toy; there are small"),
    (('--library=none',), "no library 'none'"),
    (('--tests=none',), '--tests: none is not there'),
    (('--num=0',), '--num must be > 0, got 0'),
    (('--again',), 'no earlier run'),
])
@pytest.mark.every(1)
def test_mistakes_are_refused(toy, words, message):
  with pytest.raises(ValueError, match=message):
    _run(toy, *words)


def test_an_equivalent_mutant_needs_a_reason(tmp_path):
  path = tmp_path / 'mutants.toml'
  assert table.read_equivalents(path) == []
  path.write_text('[[mutant]]\nfile = "a"\nbefore = "b"\nafter = "c"\n')
  with pytest.raises(ValueError, match='must have the texts file, before'):
    table.read_equivalents(path)


@pytest.mark.every(2)
def test_broken_tests_are_not_taken_for_killed_mutants(toy):
  (toy / 'tests/small/sums_test.py').write_text('import none\n')
  with pytest.raises(ValueError, match='no test passes without a fault'):
    _run(toy)


def test_help_names_the_defaults(capsys):
  with pytest.raises(SystemExit):
    mutate.parse(['mutate', '--help'])
  assert 'tests/MUTANTS.md' in capsys.readouterr().out
