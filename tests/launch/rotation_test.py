"""These tests check that shares of tests by commit cover everything."""

import itertools
import pathlib
import subprocess
import sys

import pytest

from launch import rotation

_ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.every(1)


@pytest.mark.parametrize('count', [1, 4, 7])
def test_shares_are_disjoint_and_together_everything(count):
  names = [f'tests/x_test.py::test_{i}' for i in range(1000)]
  shares = [rotation.parse(f'{i}/{count}', 0) for i in range(1, count + 1)]
  for name in names:
    assert sum(rotation.takes(share, name) for share in shares) == 1
  sizes = [sum(rotation.takes(share, name) for name in names)
           for share in shares]
  assert min(sizes) > 0.7 * 1000 / count
  dealt = [rotation.deal(share, names) for share in shares]
  assert sorted(sum(dealt, [])) == sorted(names)
  assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


@pytest.mark.parametrize('count', [1, 4, 8])
def test_consecutive_rotations_pick_all_shares(count):
  shares = {rotation.parse(f'rotating/{count}', 10 + r) for r in range(count)}
  assert shares == {rotation.Share(i + 1, count) for i in range(count)}
  assert str(rotation.Share(3, 8)) == '3/8'


@pytest.mark.parametrize('step', [1, 2, 3, 8])
def test_every_case_of_a_table_is_taken_by_one_of_its_rotations(step):
  for table in ('a_test.py::test_a', 'b_test.py::test_b'):
    taken = [{i for i in range(20) if rotation.keeps(table, i, step, r)}
             for r in range(5, 5 + step)]
    assert sorted(i for each in taken for i in each) == list(range(20))
  # Tables are shifted against each other.
  first = {rotation.keeps(f'test_{i}', 0, 2, 0) for i in range(20)}
  assert first == {True, False}


@pytest.mark.parametrize('step', [2, 3, 4])
@pytest.mark.sound
def test_no_run_takes_one_value_of_a_parameter_alone(step):
  """Each share of a table covers all values of its fastest changing parameter.

  The step and the number of values may have a common factor.
  """
  for size, run in itertools.product((2, 3, 4, 6, 8), range(step)):
    taken = [i for i in range(4 * step * size) if rotation.keeps(
      'a_test.py::test_a', i, step, run)]
    assert {i % size for i in taken} == set(range(size))
  # Two adjacencies by two other values are covered together by both runs.
  taken = [i for i in range(4) if rotation.keeps('test_b', i, 2, 0)]
  assert {i % 2 for i in taken} == {0, 1}


@pytest.mark.parametrize('text', ['0/4', '5/4', '1/0', '4', 'rotating', '-1/4',
                                  'rotating/0', '1/4/4', 'all/4', ''])
def test_what_is_no_share_is_refused(text):
  with pytest.raises(ValueError, match='a share is I/N with 1 <= I <= N'):
    rotation.parse(text, 3)


def _git(folder, *words):
  subprocess.run(['git', '-c', 'user.name=n', '-c', 'user.email=e', *words],
                 cwd=folder, check=True, capture_output=True)


def test_the_commit_decides(tmp_path, monkeypatch):
  # Git must not find a repository around the folder.
  monkeypatch.setenv('GIT_CEILING_DIRECTORIES', str(tmp_path.parent))
  alone = rotation.of_checkout(tmp_path)
  assert 700_000 < alone < 900_000  # a day, without git
  _git(tmp_path, 'init')
  rotations = []
  for text in 'abcdefgh':
    _git(tmp_path, 'commit', '--allow-empty', '-m', text)
    rotations.append(rotation.of_checkout(tmp_path))
    assert rotation.of_checkout(tmp_path) == rotations[-1]
  assert len(set(rotations)) == 8 and all(0 <= each < 2**32
                                          for each in rotations)


_MODULE = '''
import pytest

@pytest.mark.parametrize('i', range(6))
def test_table(i):
  pass

@pytest.mark.sound
@pytest.mark.parametrize('i', range(6))
def test_sound(i):
  pass

@pytest.mark.slow
@pytest.mark.parametrize('i', range(8))
def test_slow(i):
  assert i
'''


@pytest.fixture(scope='module')
def chosen(tmp_path_factory):
  """Returns a function from flags to (exit status, passed names, output).

  It runs a small suite that chooses tests as this one does, without its
  settings of JAX.
  """
  folder = tmp_path_factory.mktemp('suite')
  (folder / 'tests').mkdir()
  text = (_ROOT / 'tests' / 'conftest.py').read_text()
  start, end = (text.index(each) for each in (
    '_ROOT = pathlib', "@pytest.fixture(scope='module', autouse=True)"))
  (folder / 'tests' / 'conftest.py').write_text(
    'import collections, os, pathlib, tempfile, time\nimport pytest\n'
    'from launch import rotation as rotations\n' + text[start:end])
  (folder / 'tests' / 'some_test.py').write_text(_MODULE)
  (folder / 'setup.cfg').write_text((_ROOT / 'setup.cfg').read_text())

  def run(*flags):
    process = subprocess.run(
      [sys.executable, '-m', 'pytest', '-v', '-p', 'no:cacheprovider',
       *(('-n0',) if not any(flag.startswith('-n') for flag in flags) else ()),
       *flags], cwd=folder, capture_output=True, text=True, check=False,
      env={'PYTHONPATH': str(_ROOT), 'PATH': '/usr/bin:/bin'})
    passed = {line.split('::')[1].split()[0]
              for line in process.stdout.splitlines() if ' PASSED' in line}
    return process.returncode, passed, process.stdout + process.stderr

  return run


def test_runs_take_turns_with_tables_and_keep_what_is_sound(chosen):
  sound = {f'test_sound[{i}]' for i in range(6)}
  parts = []
  for r in range(3, 9):  # A table of six cases takes six turns.
    status, passed, output = chosen(f'--rotation={r}')
    assert status == 0 and f'chosen by --rotation={r}' in output
    assert sound <= passed
    parts.append(passed - sound)
  assert sum(map(len, parts)) == 6
  assert set().union(*parts) == {f'test_table[{i}]' for i in range(6)}


@pytest.mark.slow
def test_what_is_asked_for_alone_is_run(chosen):
  assert chosen('--rotation=4', 'tests/some_test.py::test_table[0]')[1] == (
    chosen('--rotation=5', 'tests/some_test.py::test_table[0]')[1]) == {
      'test_table[0]'}


@pytest.mark.slow
def test_shares_of_slow_tests_and_what_is_cut_off(chosen):
  runs = [chosen('--rotation=4', f'--slow_share={i}/2', '-n2')
          for i in (1, 2)]
  assert sorted(status for status, _, _ in runs) == [0, 1]
  assert not runs[0][1] & runs[1][1]
  # Cases that a run leaves out of a table are among its slow tests.
  _, default, _ = chosen('--rotation=4')
  assert runs[0][1] | runs[1][1] | default == {
    f'test_{name}[{i}]' for name, size in (('table', 6), ('sound', 6),
                                           ('slow', 8))
    for i in range(size)} - {'test_slow[0]'}
  again = chosen('--rotation=4', '--slow_share=rotating/2')
  assert again[1] == runs[0][1]
  assert 'chosen by --rotation=4 --slow_share=1/2' in again[2]
  status, passed, output = chosen('--rotation=4', '--slow_share=1/1',
                                  '--time_limit=1e-9', '-n1')
  assert status == 0 and not passed
  assert '13 TESTS NOT RUN: cut off by --time_limit' in output
  status, _, output = chosen('--slow_share=3/2')
  assert status == 4 and '--slow_share: a share is I/N' in output
