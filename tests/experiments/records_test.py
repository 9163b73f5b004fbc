"""These tests check that a results file keeps whole rows."""

import dataclasses
import math
import os
import pathlib
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from dpjax.report import files
from experiments import records

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_rows_read_back_equal(tmp_path, make_row):
  rows = [
      make_row(value=.1 + .2, epsilon=math.inf, epsilon_requested=math.inf,
               epsilon_valid=False),
      make_row(seed=1, id='toy/a=1,b="x"', value=1e-300, dataset='ü'),
      make_row(seed=2, value=-math.inf)]
  records.append(tmp_path / 'rows.csv', rows)
  assert records.read(tmp_path / 'rows.csv') == rows


def test_columns_are_the_long_form(tmp_path, make_row):
  path = tmp_path / 'rows.csv'
  records.append(path, [make_row(epsilon=math.inf)])
  header, line = path.read_text().splitlines()
  assert header == (
      'experiment,id,seed,metric,value,n,epsilon_requested,epsilon,'
      'epsilon_valid,delta,adjacency,accountant,method,dataset,wall_s,device,'
      'jax,commit,fingerprint')
  assert line == ('toy,toy/seed=0,0,accuracy,0.5,100,1.0,inf,true,0.01,'
                  'add_or_remove,pld,dp_sgd,adult,1.5,cpu,1,c0,f0')


def test_numpy_scalars_are_written_as_numbers(tmp_path, make_row):
  path = tmp_path / 'rows.csv'
  records.append(path, [make_row(
      value=np.float64(.1), seed=np.int64(3), epsilon_valid=np.bool_(True))])
  row, = records.read(path)
  assert (row.value, row.seed, row.epsilon_valid) == (.1, 3, True)


def test_the_header_is_written_once(tmp_path, make_row):
  path = tmp_path / 'rows.csv'
  for seed in range(3):
    records.append(path, [make_row(seed=seed)])
  assert path.read_text().count('experiment,id') == 1
  assert [row.seed for row in records.read(path)] == [0, 1, 2]


@pytest.mark.parametrize('name', ['experiment', 'id', 'metric'])
def test_a_row_without_a_name_is_refused(tmp_path, make_row, name):
  with pytest.raises(ValueError, match=f'must have its {name}'):
    records.append(tmp_path / 'rows.csv', [make_row(**{name: ''})])
  assert not (tmp_path / 'rows.csv').exists()


def test_a_line_end_in_a_cell_is_refused(tmp_path, make_row):
  with pytest.raises(ValueError, match='printable'):
    records.append(tmp_path / 'rows.csv', [make_row(method='a\nb')])


def test_a_torn_line_is_dropped_and_not_read(tmp_path, make_row):
  path = tmp_path / 'rows.csv'
  records.append(path, [make_row(seed=0)])
  records.append(path, [make_row(seed=1)])
  whole = path.read_bytes()
  records.append(path, [make_row(seed=2)])
  for size in range(len(whole) + 1, path.stat().st_size):
    data = path.read_bytes()[:size]
    torn = tmp_path / 'torn.csv'
    torn.write_bytes(data)
    # Seed 1 goes too, because the torn line might be another metric of it.
    assert [row.seed for row in records.read(torn)] == [0]
    assert torn.read_bytes() == data, 'reading must not change a file'
    records.append(torn, [make_row(seed=1), make_row(seed=2)])
    assert torn.read_bytes() == path.read_bytes()


def test_the_other_metrics_of_a_torn_setting_go_too(tmp_path, make_row):
  path = tmp_path / 'rows.csv'
  records.append(path, [make_row(seed=0)])
  records.append(path, [make_row(seed=1, metric=name) for name in 'abc'])
  path.write_bytes(path.read_bytes()[:-5])
  assert records.ids(records.read(path)) == {'toy/seed=0'}
  records.append(path, [make_row(seed=2)])
  assert [row.seed for row in records.read(path)] == [0, 2]


@pytest.mark.parametrize('size', [0, 1, 60])
def test_a_torn_header_is_written_again(tmp_path, make_row, size):
  path = tmp_path / 'rows.csv'
  records.append(path, [make_row()])
  whole = path.read_bytes()
  path.write_bytes(whole[:size])
  assert records.read(path) == []
  records.append(path, [make_row()])
  assert path.read_bytes() == whole


@pytest.mark.parametrize('content', ['a,b\n1,2\n', 'notes', 'notes\nmore'])
def test_other_columns_are_refused_and_kept(tmp_path, make_row, content):
  path = tmp_path / 'rows.csv'
  path.write_text(content)
  for act in (lambda: records.read(path),
              lambda: records.append(path, [make_row()]),
              lambda: records.sort_file(path)):
    with pytest.raises(ValueError, match='the columns must be') as caught:
      act()
    assert '\n' not in str(caught.value)
  assert path.read_text() == content


@pytest.mark.every(1)
@pytest.mark.parametrize('old, new, says', [
    ('0.5', 'half', 'could not convert'), ('true', 'yes', 'neither true'),
    (',c0', ',c0,more', '20 cells'), (',cpu', '', '18 cells'),
    ('adult', '"adult"s', 'expected after')])
def test_a_bad_line_is_named(tmp_path, make_row, old, new, says):
  path = tmp_path / 'rows.csv'
  records.append(path, [make_row(seed=0), make_row(seed=1)])
  head, _, last = path.read_text().rpartition('toy,')
  path.write_text(head + 'toy,' + last.replace(old, new))
  with pytest.raises(ValueError, match=f'rows.csv:3: .*{says}'):
    records.read(path)


def test_a_missing_file_is_said(tmp_path):
  with pytest.raises(FileNotFoundError):
    records.read(tmp_path / 'rows.csv')


def test_a_full_disk_leaves_nothing_half_done(tmp_path, make_row,
                                              monkeypatch):
  path = tmp_path / 'rows.csv'
  records.append(path, [make_row(seed=0)])
  before = path.read_bytes()
  write = os.write
  monkeypatch.setattr(os, 'write',
                      lambda file, data: write(file, data[:10]))
  with pytest.raises(OSError, match='could not write'):
    records.append(path, [make_row(seed=1)])
  assert path.read_bytes() == before


def test_rows_are_on_disk_before_an_append_returns(tmp_path, make_row,
                                                   monkeypatch):
  path, synced, fsync = tmp_path / 'rows.csv', [], os.fsync

  def note(descriptor):
    synced.append((os.fstat(descriptor).st_ino, path.read_bytes()))
    fsync(descriptor)

  monkeypatch.setattr(os, 'fsync', note)
  for seed in range(2):
    records.append(path, [make_row(seed=seed)])
    assert synced == [(path.stat().st_ino, path.read_bytes())]
    synced.clear()


def test_sorted_files_are_the_same_bytes(tmp_path, make_row):
  rows = [make_row(seed=seed, metric=metric)
          for seed in (3, 1, 2) for metric in ('loss', 'accuracy')]
  records.write_sorted(tmp_path / 'a.csv', rows)
  records.write_sorted(tmp_path / 'b.csv', rows[::-1])
  assert (tmp_path / 'a.csv').read_bytes() == (tmp_path / 'b.csv').read_bytes()
  keys = [(row.seed, row.metric) for row in records.read(tmp_path / 'a.csv')]
  assert keys == sorted(keys)
  assert sorted(os.listdir(tmp_path)) == ['a.csv', 'b.csv'], 'a draft is left'


def test_sorting_a_file_keeps_its_rows(tmp_path, make_row):
  path = tmp_path / 'rows.csv'
  rows = [make_row(seed=seed) for seed in (2, 0, 1)]
  records.append(path, rows)
  records.sort_file(path)
  assert records.read(path) == sorted(rows, key=lambda row: row.seed)


def test_merging_adds_settings_that_are_not_there(tmp_path, make_row):
  path, other = tmp_path / 'rows.csv', tmp_path / 'other.csv'
  rows = [make_row(id=f'toy/seed={seed}', value=float(seed))
          for seed in range(3)]
  records.append(other, [rows[2], dataclasses.replace(rows[1], value=9.),
                         rows[0]])
  records.append(path, rows[1:2])
  records.merge(path, other)
  assert records.read(path) == rows
  records.merge(tmp_path / 'new.csv', path)
  assert records.read(tmp_path / 'new.csv') == rows


def test_digest_ignores_order_and_wall_time_only(make_row):
  rows = [make_row(seed=0), make_row(seed=1)]
  digest = records.digest(rows)
  assert records.digest(rows[::-1]) == digest
  assert records.digest(
      [dataclasses.replace(row, wall_s=9.) for row in rows]) == digest
  for change in ({'value': .5000000001}, {'commit': 'c1'}, {'n': 101}):
    assert records.digest(
        [dataclasses.replace(rows[0], **change), rows[1]]) != digest
  assert records.digest(rows[:1]) != digest


_WRITER = textwrap.dedent('''
    import sys, dataclasses
    from experiments import records
    path, name = sys.argv[1:]
    row = records.read(path)[0]
    for seed in range(60):
      records.append(path, [
          dataclasses.replace(row, id=f'toy/{name}={seed}', metric=metric,
                              dataset='x' * 500)
          for metric in ('a', 'b')])
      if name == 'sorter' and seed % 5 == 0:
        records.sort_file(path)
    ''')


@pytest.mark.slow
def test_processes_that_append_at_once_lose_nothing(tmp_path, make_row):
  path = tmp_path / 'rows.csv'
  records.append(path, [make_row()])
  names = ('first', 'second', 'sorter')
  writers = [subprocess.Popen([sys.executable, '-c', _WRITER, path, name],
                              cwd=ROOT) for name in names]
  assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
  keys = {(row.id, row.metric) for row in records.read(path)}
  assert keys == {('toy/seed=0', 'accuracy')} | {
      (f'toy/{name}={seed}', metric)
      for name in names for seed in range(60) for metric in ('a', 'b')}
  assert len(records.read(path)) == len(keys)


def test_a_lock_waits_for_the_file_that_replaces_this_one(tmp_path):
  path = tmp_path / 'file'
  path.write_text('old')
  seen = []
  flock = files.portalocker.lock

  def replace_while_waiting(descriptor, how):
    if not seen:
      seen.append(True)
      files.replace(path, b'new')
    flock(descriptor, how)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(files.portalocker, 'lock', replace_while_waiting)
    with files.locked(path) as descriptor:
      assert files.read_all(descriptor) == b'new'


@pytest.mark.slow
def test_reports_need_neither_jax_nor_matplotlib():
  code = ('import sys\n'
          'from dpjax.report import files, plots, tables\n'
          'from experiments import provenance, records, summary, verdicts\n'
          'print({"jax", "matplotlib", "absl"} & set(sys.modules))')
  result = subprocess.run([sys.executable, '-c', code], cwd=ROOT, text=True,
                          capture_output=True, check=True)
  assert result.stdout == 'set()\n'
