"""These tests check `dpjax train --user_column` on files, and its page."""

import contextlib
import io
import pathlib
import re
import shlex

from absl.testing import flagsaver
import numpy as np
import pytest

from dpjax.audit.suite import run_folders
from dpjax.cli import errors
from dpjax.cli import train
from dpjax.data import schema_files
from dpjax.data import user_tables
from dpjax.runs import summary as summaries

_GUIDE = (pathlib.Path(__file__).resolve().parents[2] /
          'docs/user_privacy.md')
_SCHEMA = schema_files.of_parts(
    label='outcome', classes=['no', 'yes'], bounds={'age': (18, 90)},
    categories={})


def _call(*words):
  """Runs main with flags and returns (status, stdout and stderr)."""
  out = io.StringIO()
  with flagsaver.flagsaver(), contextlib.redirect_stdout(out), \
      contextlib.redirect_stderr(out):
    try:
      status = train.main(train.parse(['train', *map(str, words)]))
    except (ValueError, OSError) as error:
      status = errors.BAD_INPUT
      print(error)
  return status, out.getvalue()


@pytest.fixture
def visits(tmp_path):
  """Returns a file of 60 patients with 1 to 5 visits each."""
  rng = np.random.default_rng(0)
  owners = rng.permutation(np.repeat(np.arange(60), 1 + np.arange(60) % 5))
  lines = ['patient,age,income,outcome'] + [
      f'{owner},{rng.integers(15, 95)},{rng.integers(0, 200000)},'
      f'{"yes" if rng.integers(2) else "no"}' for owner in owners]
  path = tmp_path / 'visits.csv'
  path.write_text('\n'.join(lines) + '\n')
  return path


@pytest.mark.slow
def test_the_command_of_the_page_trains_on_users(visits, tmp_path):
  command, = re.findall(r'```\ndpjax (train .*?)```', _GUIDE.read_text(),
                        re.DOTALL)
  words = [word for word in shlex.split(command.replace('\\\n', ''))
           if not word.startswith('--output_dir')][1:]
  status, out = _call(*words, f'--data_dir={visits.parent}', '--num_steps=5',
                      f'--output_dir={tmp_path / "run"}')
  assert status == 0, out
  assert 'n = 48 users' in out and '(one user with all their records)' in out
  summary = summaries.read(tmp_path / 'run')
  assert (summary['unit'], summary['n'], summary['num_test']) == (
      'user', 48, 12)
  assert 1.99 < summary['epsilon'] <= 2
  assert summary['delta'] == pytest.approx(48**-1.1)
  with pytest.raises(ValueError, match='is private for users'):
    run_folders.load(tmp_path / 'run')


def test_ids_are_read_from_csv_and_parquet(visits, tmp_path):
  arrow = pytest.importorskip('pyarrow.csv')
  from pyarrow import parquet
  path = tmp_path / 'visits.parquet'
  parquet.write_table(arrow.read_csv(visits), path)
  table, ids = user_tables.load_with_ids(str(visits), _SCHEMA, 'patient')
  again, parquet_ids = user_tables.load_with_ids(str(path), _SCHEMA, 'patient')
  np.testing.assert_array_equal(table.x, again.x)
  np.testing.assert_array_equal(ids, parquet_ids)
  lines = visits.read_text().splitlines()[1:]
  assert ids.tolist() == [line.split(',')[0] for line in lines]


def test_a_missing_id_and_a_missing_column_are_refused(visits, tmp_path):
  lines = visits.read_text().splitlines()
  lines[7] = ' ,' + lines[7].split(',', 1)[1]
  visits.write_text('\n'.join(lines) + '\n')
  words = (f'--dataset={visits}', '--label=outcome', '--classes=no|yes',
           '--bounds=age=18:90', f'--output_dir={tmp_path / "run"}')
  status, out = _call(*words, '--user_column=patient')
  assert status == errors.BAD_INPUT and out.count('\n') == 1
  assert "line 8, column 'patient': the id of a user is missing" in out
  status, out = _call(*words, '--user_column=person')
  assert status == errors.BAD_INPUT and "has no column 'person'" in out
