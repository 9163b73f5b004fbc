"""These tests run `launch.train` and `launch.schema` on a user's CSV file."""

import contextlib
import io
import json

from absl.testing import flagsaver
import pytest

from dpjax.audit.suite import run_folders
from dpjax.cli import errors
from dpjax.cli import schema
from dpjax.cli import train
from dpjax.runs import summary as summaries

_INLINE = ('--label=outcome', '--classes=no|yes', '--bounds=age=18:90',
           '--categories=sex=F|M')
_TINY = ('--num_steps=3', '--width=4', '--depth=0', '--epsilon=2')


def _call(command, words):
  """Runs a command with flags and returns (status, stdout, stderr)."""
  out, err = io.StringIO(), io.StringIO()
  words = ['main', *map(str, words)]
  with flagsaver.flagsaver(), contextlib.redirect_stdout(out), \
      contextlib.redirect_stderr(err):
    try:
      status = command.main(command.parse(words))
    except (ValueError, OSError) as error:
      status = errors.BAD_INPUT
      print(error, file=err)
  return status, out.getvalue(), err.getvalue()


@pytest.fixture
def survey(tmp_path):
  """Returns a file of 120 records with missing, extreme and unknown values."""
  lines = ['id,sex,age,outcome']
  for i in range(120):
    age = '' if i % 20 == 0 else str(10 + (7 * i) % 90)
    lines.append(f'{i},{"FMX"[i % 3]},{age},{"yes" if i % 2 else "no"}')
  path = tmp_path / 'survey.csv'
  path.write_text('\n'.join(lines) + '\n')
  return path


@pytest.mark.slow
def test_training_resumes_and_can_be_audited(survey, tmp_path):
  words = (f'--dataset={survey}', *_INLINE, *_TINY, '--num_canaries=8',
           f'--output_dir={tmp_path / "run"}')
  status, out, err = _call(train, words)
  assert status == 0, err
  assert 'count as public' in err and 'at most (2, ' in out
  summary = summaries.read(tmp_path / 'run')
  assert summary['dataset'] == str(survey) and summary['n'] == 96
  assert 0 < summary['epsilon'] <= 2
  assert json.loads(summary['config']['schema'])['public'] is True
  run = run_folders.load(tmp_path / 'run')
  # The model has age, missing, F, M, other, two classes and biases.
  assert sum(leaf.size for layer in run.params.values()
             for leaf in layer.values()) == 5 * 2 + 2
  status, out, _ = _call(train, words)
  assert status == 0 and '1 of 1 runs are finished already' in out
  status, _, err = _call(train, [
      word.replace('18:90', '18:91') for word in words])
  assert status == errors.BAD_INPUT and 'is of another configuration' in err


@pytest.mark.every(3)
def test_a_draft_is_reviewed_checked_and_says_the_same_as_flags(
    survey, tmp_path):
  path = tmp_path / 'schema.json'
  status, _, err = _call(schema, (
      f'--dataset={survey}', '--label=outcome', f'--output={path}'))
  assert status == 0 and 'it reveals private records' in err
  assert path.stat().st_mode & 0o777 == 0o600
  words = (f'--dataset={survey}', f'--schema={path}', *_TINY,
           f'--output_dir={tmp_path / "run"}')
  status, _, err = _call(train, words)
  assert status == errors.BAD_INPUT and '"public" is not true' in err
  assert not (tmp_path / 'run').exists()
  status, _, err = _call(schema, (
      f'--dataset={survey}', '--label=outcome', f'--output={path}'))
  assert status == errors.BAD_INPUT and 'is not overwritten' in err
  draft = json.loads(path.read_text())
  columns = {'age': {'kind': 'numeric', 'lower': 18.0, 'upper': 90.0},
             'sex': {'kind': 'categorical', 'categories': ['F', 'M']},
             'outcome': draft['columns']['outcome']}
  path.write_text(json.dumps({**draft, 'public': True, 'columns': columns}))
  status, out, err = _call(schema, (
      f'--dataset={survey}', f'--schema={path}'))
  assert status == 0 and '120 records, 5 features, 2 classes' in out, err
  # Ages 8 + 10 i are out of bounds, every twentieth is missing, X is unlisted.
  ages = [10 + (7 * i) % 90 for i in range(120) if i % 20]
  clipped = sum(not 18 <= age <= 90 for age in ages)
  cells = [line.split()[1::2] for line in out.splitlines() if '|' in line]
  assert cells[2:] == [['age', str(clipped), '6', '0'], ['sex', '0', '0', '40']]
  assert _call(train, words)[0] == 0
  status, out, err = _call(train, (
      f'--dataset={survey}', *_INLINE, *_TINY,
      f'--output_dir={tmp_path / "run"}'))
  assert status == 0 and '1 of 1 runs are finished already' in out, err


@pytest.mark.every(1)
@pytest.mark.parametrize('words, message', [
  (('--dataset=none.csv', *_INLINE), 'no file none.csv'),
  (('--dataset=SURVEY',), '--label, --classes and --bounds or --categories (or --schema for'),
  (('--dataset=SURVEY', *_INLINE, '--bounds=ages=18:90'),
   'no column \'ages\'; there are id, sex, age, outcome; did you mean'),
  (('--dataset=SURVEY', *_INLINE, '--label=y'), 'has no column \'y\''),
  (('--dataset=SURVEY', *_INLINE, '--classes=no|YES'),
   'line 3, column \'outcome\': label must be one of no, YES; got \'yes\''),
  (('--dataset=SURVEY', *_INLINE, '--classes=no'), 'at least 2 different'),
  (('--dataset=SURVEY', *_INLINE, '--bounds=sex=0:1'), 'given two kinds'),
  (('--dataset=SURVEY', *_INLINE, '--bounds=age=90:18'), 'lower < upper'),
  (('--dataset=SURVEY', *_INLINE, '--bounds=age'), 'must be COLUMN=...'),
  (('--dataset=SURVEY', *_INLINE, '--bounds=age=old'), 'be lower:upper, got'),
  (('--dataset=SURVEY', *_INLINE, '--bounds=age=1:2,age=1:2'), 'twice'),
  (('--dataset=SURVEY', *_INLINE, '--separator=;'), 'is the separator a comma'),
  (('--dataset=SURVEY', *_INLINE, '--separator=ab'), 'one character or tab'),
  (('--dataset=SURVEY', '--label=y', '--schema=s.json'), 'give only one of them'),
  (('--dataset=SURVEY', '--schema=s.json'), 'No such file'),
  (('--dataset=breast_cancer', '--label=y'), '--label needs your own CSV'),
])
def test_each_mistake_is_one_line_before_anything_is_written(
    survey, tmp_path, words, message):
  words = [word.replace('SURVEY', str(survey)) for word in words]
  status, _, err = _call(train, [
      *words, *_TINY, f'--output_dir={tmp_path / "run"}'])
  assert status == errors.BAD_INPUT and message in err
  assert err.count('\n') == 1
  assert not (tmp_path / 'run').exists()


@pytest.mark.every(1)
def test_a_draft_says_what_it_leaves_out_and_how_its_file_is_written(tmp_path):
  """A draft names each column that it leaves out and records the file's format.

  The check then reads the file by that draft.
  """
  path, schema_path = tmp_path / 'own.tsv', tmp_path / 'schema.json'
  rows = [f'name{i}\t{i},5\t{i % 2}' for i in range(60)]
  path.write_text('\n'.join(['name\tx\ty', *rows]) + '\n')
  status, _, err = _call(schema, (
      f'--dataset={path}', '--label=y', f'--output={schema_path}',
      '--decimal=,'))
  assert status == 0
  assert "left out: column 'name', because it has 60 different texts" in err
  draft = json.loads(schema_path.read_text())
  assert list(draft['columns']) == ['x', 'y']
  assert draft['separator'] == '\t' and draft['decimal'] == ','
  schema_path.write_text(json.dumps({**draft, 'public': True}))
  status, out, _ = _call(schema, (
      f'--dataset={path}', f'--schema={schema_path}'))
  assert status == 0 and '60 records, 2 features, 2 classes' in out
  status, _, err = _call(schema, (
      f'--dataset={path}', f'--schema={schema_path}', '--decimal=,'))
  assert status == errors.BAD_INPUT and '--decimal is for a draft' in err
