"""These tests check what `launch.report` writes and what `--check` finds."""

import dataclasses
import re

import pytest

from experiments import figures
from experiments import records
from experiments import registry
from experiments import rendering
from experiments.catalogue import items
from launch import report
from launch import sweep

pytestmark = pytest.mark.every(1)

_TOP = ('G\n<!-- begin: gallery -->\n<!-- end: gallery -->\n'
        'A\n<!-- begin: results -->\nold\n<!-- end: results -->\nZ\n')
_INDEX = ('B\n<!-- begin: index -->\n<!-- end: index -->\nX\n'
          '<!-- begin: items -->\n<!-- end: items -->\nY\n')
_GUIDE = ''.join(
    f'<!-- begin: {name} -->\n<!-- end: {name} -->\n'
    for name in ('tables', 'images', 'depth', 'noise', 'cost'))
_ERRATA = 'C\n<!-- begin: errata -->\n<!-- end: errata -->\n'
_CLAIM = items.Item(
    group='toys', id='T-1', title='a table of nothing', paper='000',
    place='line 1', kind='artefact', experiments=('toy',),
    claims=('toy: numbers',))
_ERRATUM = items.Item(
    group='toys', id='T-2', title='a sum', paper='004', place='line 2',
    kind='false', printed='1 + 1 = 3', holds='2',
    tests=('tests/launch/report_test.py::test_readmes_keep_what_is_around'
           '_the_tables',))


@pytest.fixture
def root(call, tmp_path, monkeypatch):
  """Returns a root with READMEs and the rows of the toy experiment."""
  (tmp_path / 'README.md').write_text(_TOP)
  folder = rendering.results_dir(tmp_path, 'toy')
  call(sweep.main, '--experiment=toy', f'--output_dir={folder}')
  (tmp_path / 'experiments' / 'README.md').write_text(_INDEX)
  (tmp_path / 'experiments' / 'ERRATA.md').write_text(_ERRATA)
  (tmp_path / 'docs').mkdir()
  (tmp_path / 'docs' / 'lipschitz.md').write_text(_GUIDE)
  group = items.Group('toys', 'Toys', ('T-1', 'T-2'), (_CLAIM, _ERRATUM))
  monkeypatch.setattr(report.items, 'groups', lambda: (group,))
  return tmp_path


def _state(root):
  return {path: path.read_bytes() for path in root.rglob('*')
          if path.is_file()}


@pytest.mark.every(2)
def test_everything_is_written_and_then_fresh(root, capsys):
  folder = rendering.results_dir(root, 'toy')
  assert report.report(root, 'toy') == []
  table = (folder / 'table.md').read_text()
  assert table in capsys.readouterr().out
  rows = records.read(folder / 'rows.csv')
  assert figures.read_digest(folder / 'figure.svg') == records.digest(rows)
  before = _state(root)
  assert report.report(root, check=True) == []
  assert report.report(root, 'toy', check=True) == []
  assert _state(root) == before, '--check must change nothing'
  report.report(root)
  assert _state(root) == before, 'a second time must change nothing'
  assert not (folder / 'figure.png').exists()


def test_further_files_of_a_report_are_written_and_checked(root, monkeypatch):
  toy = registry.load('toy').report
  monkeypatch.setattr(toy, 'documents', lambda rows: {
      'claim.md': f'{len(rows)} rows\n'}, raising=False)
  report.report(root, 'toy')
  path = rendering.results_dir(root, 'toy') / 'claim.md'
  assert path.read_text() == '32 rows\n'
  assert report.report(root, 'toy', check=True) == []
  path.write_text('33 rows\n')
  assert report.report(root, 'toy', check=True) == [
      f'{path}: not what the rows give']
  path.unlink()
  assert len(report.report(root, 'toy', check=True)) == 1


def test_table_says_what_it_is_made_from(root):
  report.report(root)
  folder = rendering.results_dir(root, 'toy')
  table = (folder / 'table.md').read_text()
  assert table.startswith('# Table 0 of no paper\n')
  assert '| adult   | dp_sgd     | 0.5               | 0.' in table
  assert '| numbers are random | .333    | 0.' in table
  assert 'Rows: 16 of 16 settings, made on cpu with\nJAX 1 by code c0' in table
  assert records.digest(records.read(folder / 'rows.csv')) in table


def test_readmes_keep_what_is_around_the_tables(root):
  report.report(root)
  top = (root / 'README.md').read_text()
  assert top.startswith('G\n<!-- begin: gallery -->\n| ')
  assert '[![a figure](experiments/toy/results/figure.svg)](' in top
  assert 'A\n<!-- begin: results -->\n| experiment' in top
  assert top.endswith('|\n<!-- end: results -->\nZ\n')
  link = '[toy](experiments/toy/results/table.md)'
  assert f'| {link} | numbers are random | .333 ' in top
  assert 'old' not in top
  index = (root / 'experiments' / 'README.md').read_text()
  assert index.startswith('B\n') and index.endswith('Y\n')
  assert '`python -m launch.sweep --experiment=toy`' in index
  assert '16 of 16 settings | 1 agrees' in index
  assert '| Lalanne (2023), line 1 | T-1 | a table of nothing |' in index
  assert '| numbers are random | .333 | 0.' in index
  errata = (root / 'experiments' / 'ERRATA.md').read_text()
  assert '| line 2 | T-2 | false | 1 + 1 = 3 | 2 | [test_readmes' in re.sub(
      ' +', ' ', errata)


def test_an_experiment_without_rows_is_not_run(root, monkeypatch):
  monkeypatch.setattr(registry, 'EXPERIMENTS', {'toy': 'toy', 'new': 'toy'})
  report.report(root)
  assert 'not run' in (root / 'README.md').read_text()
  index = (root / 'experiments' / 'README.md').read_text()
  assert '| 0 of 16 settings  | not run' in index
  assert report.report(root, check=True) == []


@pytest.mark.parametrize('name, old, new', [
    ('table.md', '0.', '0.9'),
    ('figure.svg', 'sha256: ', 'sha256: 0')])
def test_check_finds_an_edit_of_results(root, name, old, new):
  report.report(root)
  path = rendering.results_dir(root, 'toy') / name
  text = path.read_text()
  assert old in text
  path.write_text(text.replace(old, new, 1))
  line, = report.report(root, check=True)
  assert str(path) in line and '\n' not in line


@pytest.mark.parametrize('name, old', [
    ('README.md', 'numbers'), ('experiments/README.md', 'of 16 settings'),
    ('experiments/README.md', 'a table of nothing'),
    ('experiments/ERRATA.md', '1 + 1 = 3')])
def test_check_finds_an_edit_of_a_page(root, name, old):
  report.report(root)
  path = root / name
  text = path.read_text()
  path.write_text(text.replace(old, 'else'))
  line, = report.report(root, check=True)
  assert str(path) in line
  # Text outside the markers is not generated and may change.
  path.write_text('more ' + text)
  assert report.report(root, check=True) == []


@pytest.mark.every(4)
def test_pages_of_this_checkout_are_those_of_its_rows():
  stale = report.update_indices(report.environment.ROOT, check=True)
  assert not stale, f'run python -m launch.report: {stale}'


@pytest.mark.parametrize('name', ['table.md', 'figure.svg'])
def test_check_finds_a_missing_file(root, name):
  report.report(root)
  (rendering.results_dir(root, 'toy') / name).unlink()
  line, = report.report(root, check=True)
  assert line.endswith(f'{name}: not there')


def test_check_finds_a_changed_row(root):
  report.report(root)
  path = rendering.results_dir(root, 'toy') / 'rows.csv'
  rows = records.read(path)
  records.write_sorted(path, [dataclasses.replace(rows[0], wall_s=99.),
                              *rows[1:]])
  assert report.report(root, check=True) == [], 'wall time is not a result'
  # The change is too small to show in the table, but the digests show it.
  rows[0] = dataclasses.replace(rows[0], value=rows[0].value + 1e-12)
  records.write_sorted(path, rows)
  assert [line.rpartition('/')[2] for line
          in report.report(root, check=True)] == [
              'table.md: not what the rows give',
              'figure.svg: drawn from other rows']


def test_check_fails_with_a_line_for_each_file(root, call, monkeypatch,
                                               capsys):
  monkeypatch.setattr(report.environment, 'ROOT', root)
  assert call(report.main, '--check') == 1
  note, *stale = capsys.readouterr().err.splitlines()
  assert 'needs a whole clone' in note and len(stale) == 12
  assert call(report.main) == 0
  assert call(report.main, '--check') == 0
  assert call(report.main, '--check', '--experiment=toy') == 0


def test_rows_elsewhere_leave_the_readmes_alone(call, tmp_path, capsys):
  folder = tmp_path / 'out'
  call(sweep.main, '--experiment=toy', '--smoke', f'--output_dir={folder}')
  capsys.readouterr()
  assert call(report.main, '--experiment=toy', f'--rows_dir={folder}',
              '--png') == 0
  assert '0 of 16 settings and 2 not of this sweep' in capsys.readouterr().out
  assert {path.name for path in folder.iterdir()} == {
      'rows.csv', 'provenance.json', 'table.md', 'figure.svg', 'figure.png'}
  assert call(report.main, '--experiment=toy', f'--rows_dir={folder}',
              '--check') == 0


def test_rows_made_now_are_of_no_older_code(root, toy, call, tmp_path,
                                            monkeypatch):
  """New rows are not marked as of older code;
  OLDER describes committed rows only."""
  declared = toy._replace(older={'of old': lambda setting: True})
  monkeypatch.setattr(registry, 'load', lambda name: declared)
  folder = tmp_path / 'out'
  call(sweep.main, '--experiment=toy', f'--output_dir={folder}')
  report.report(root, 'toy')
  report.report(root, 'toy', rows_dir=folder)
  committed = rendering.results_dir(root, 'toy') / 'table.md'
  assert '16 of them by older code' in committed.read_text()
  assert 'older code' not in (folder / 'table.md').read_text()


def test_an_experiment_may_have_no_figure(root, toy, monkeypatch):
  monkeypatch.delattr(toy.report, 'figure')
  report.report(root)
  assert not (rendering.results_dir(root, 'toy') / 'figure.svg').exists()
  assert report.report(root, check=True) == []


@pytest.mark.parametrize('name', ['README.md', 'experiments/README.md'])
def test_a_readme_without_markers_is_named(root, name):
  (root / name).write_text('nothing')
  with pytest.raises(ValueError, match=f'{name}: there must be one'):
    report.report(root)


@pytest.mark.every(5)
@pytest.mark.parametrize('words, says', [
    (['--rows_dir=x'], '--rows_dir needs --experiment'),
    (['--experiment=tot'], "no experiment 'tot'; there is toy"),
    (['--experiment=toy', '--rows_dir=x'],
     'no rows in x; make some with python -m launch.sweep --experiment=toy'),
    (['more'], 'unexpected more; see --help')])
def test_bad_input_is_one_line(start, words, says):
  process = start('report', *words)
  out, err = process.communicate(timeout=30)
  assert process.returncode == 2 and not out
  line, = err.splitlines()
  assert line.startswith('error: ') and says in line


def test_bad_rows_are_one_line(start, tmp_path):
  (tmp_path / 'rows.csv').write_text('a,b\n1,2\n')
  process = start('report', '--experiment=toy', f'--rows_dir={tmp_path}')
  _, err = process.communicate(timeout=30)
  assert process.returncode == 2
  assert err.startswith('error: ') and len(err.splitlines()) == 1
