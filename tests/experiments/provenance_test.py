"""These tests check `provenance.json`, which says how rows were made."""

import pathlib
import subprocess
import sys
import textwrap

import pytest

from experiments import provenance

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _write(path, **changes):
  provenance.write(path, **{**dict(
      configuration='d0', command='python -m launch.sweep', commit='c0',
      device='cpu', versions={'jax': '1'}), **changes})


def test_nothing_is_known_of_a_missing_file(tmp_path):
  assert provenance.read(tmp_path / 'p.json') == {
      'configuration': None, 'runs': []}


def test_what_is_written_is_read(tmp_path):
  path = tmp_path / 'p.json'
  _write(path)
  assert provenance.read(path) == {'configuration': 'd0', 'runs': [{
      'command': 'python -m launch.sweep', 'commit': 'c0',
      'configuration': 'd0', 'device': 'cpu', 'versions': {'jax': '1'}}]}


def test_samples_that_confirm_are_kept_beside_the_runs(tmp_path):
  path = tmp_path / 'p.json'
  _write(path)
  for _ in range(2):
    provenance.confirm(path, {'commit': 'c1', 'settings_confirmed': 3})
  _write(path, commit='c2')
  stored = provenance.read(path)
  assert stored['confirmed'] == [{'commit': 'c1', 'settings_confirmed': 3}]
  assert len(stored['runs']) == 2 and stored['configuration'] == 'd0'


def test_the_same_run_is_kept_once_and_others_are_added(tmp_path):
  path = tmp_path / 'p.json'
  _write(path)
  before = path.read_bytes()
  _write(path)
  assert path.read_bytes() == before
  _write(path, commit='c1', configuration='d1')
  stored = provenance.read(path)
  assert stored['configuration'] == 'd1'
  assert [run['commit'] for run in stored['runs']] == ['c0', 'c1']


def test_files_are_the_same_bytes_whatever_the_order_of_versions(tmp_path):
  for name, names in (('a', 'xyz'), ('b', 'zyx')):
    _write(tmp_path / name, versions={each: '1' for each in names})
  text = (tmp_path / 'a').read_text()
  assert (tmp_path / 'b').read_text() == text
  assert text.startswith('{\n  "configuration": "d0",\n  "runs": [\n    {\n'
                         '      "command"') and text.endswith('}\n')


def test_the_order_of_runs_does_not_matter(tmp_path):
  for name, commits in (('a', 'xy'), ('b', 'yx')):
    for commit in commits:
      _write(tmp_path / name, commit=commit)
  assert (tmp_path / 'a').read_bytes() == (tmp_path / 'b').read_bytes()


@pytest.mark.parametrize('content', ['{', '[]', '{"runs": []}', 'null'])
def test_another_file_is_refused(tmp_path, content):
  path = tmp_path / 'p.json'
  path.write_text(content)
  with pytest.raises(ValueError, match='not a provenance file'):
    provenance.read(path)
  with pytest.raises(ValueError, match='not a provenance file'):
    _write(path)
  assert path.read_text() == content


def test_processes_that_write_at_once_lose_nothing(tmp_path):
  path = tmp_path / 'p.json'
  code = textwrap.dedent('''
      import sys
      from experiments import provenance
      for index in range(40):
        provenance.write(
            sys.argv[1], configuration='d', command=sys.argv[2],
            commit=str(index), device='cpu', versions={})
      ''')
  writers = [subprocess.Popen([sys.executable, '-c', code, path, name],
                              cwd=ROOT) for name in 'ab']
  assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
  runs = provenance.read(path)['runs']
  assert {(run['command'], run['commit']) for run in runs} == {
      (name, str(index)) for name in 'ab' for index in range(40)}
