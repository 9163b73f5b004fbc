"""These tests check `dpjax train --select=private` and lists of its options."""

import contextlib
import io
import json
import pathlib
import shlex

from absl.testing import flagsaver
import pytest

from dpjax.cli import errors
from dpjax.cli import train

_PAGE = (pathlib.Path(__file__).resolve().parents[2] / 'docs' / 'theory' /
         'private_selection.md')
_QUICK = ('--num_steps=2', '--width=4', '--batch_size=364')
_LISTS = ('--select=private', '--learning_rate=1,2')


def _call(*words):
  """Runs main with flags and returns (status, stdout, stderr)."""
  out, err = io.StringIO(), io.StringIO()
  with flagsaver.flagsaver(), contextlib.redirect_stdout(out), \
      contextlib.redirect_stderr(err):
    rest = train.parse(['train', *map(str, words)])
    try:
      status = train.main(rest)
    except (ValueError, OSError) as error:
      status = errors.BAD_INPUT
      print(error, file=err)
  return status, out.getvalue(), err.getvalue()


@pytest.mark.slow
def test_the_command_of_the_page(tmp_path):
  """It runs with fewer steps and runs, and writes one run and its cost."""
  command = _PAGE.read_text().split('```')[1].replace('\\\n', ' ')
  program, name, *words = shlex.split(command)
  assert (program, name) == ('dpjax', 'train') and '--mean_runs=8' in words
  status, out, error = _call(*words, *_QUICK, '--mean_runs=1.2',
                             f'--output_dir={tmp_path}')
  assert status == 0, error
  summary = json.loads((tmp_path / 'summary.json').read_text())
  selection = summary['selection']
  own = selection['runs'][selection['chosen']]
  assert len(selection['runs']) == len(selection['candidates']) == 9
  assert 2.9 < summary['epsilon'] <= summary['epsilon_requested'] == 3
  # The noise that was drawn is that which the choice was charged for.
  assert 1 - 1e-6 <= (summary['joint_noise_multiplier']
                      / own['noise_multiplier']) < 1.001
  assert summary['joint_noise_multiplier'] >= own['noise_multiplier'] * (
      1 - 1e-6)
  assert summary['n'] == 364 and summary['num_test'] == 114
  assert 0 <= summary['test_accuracy'] <= 1
  chosen = selection['candidates'][selection['chosen']]
  assert (f'chosen: depth = {chosen["depth"]}, learning_rate = '
          f'{chosen["learning_rate"]:g}\n') in out
  assert not (tmp_path / 'checkpoints').exists()
  # Repeated, it spends nothing; as a single run, it is refused.
  again = _call(*words, *_QUICK, '--mean_runs=1.2', f'--output_dir={tmp_path}')
  assert again[0] == 0 and 'finished already' in again[1]
  status, _, error = _call(*_QUICK, f'--output_dir={tmp_path}')
  assert status == errors.BAD_INPUT and 'is of a choice' in error


@pytest.mark.parametrize('words, message', [
    (('--mean_runs=3',), '--mean_runs needs --select=private'),
    ((*_LISTS, '--num_devices=2'), 'trains on one device'),
    ((*_LISTS, '--epsilon=1,2'), 'one value of every other option'),
    ((*_LISTS, '--seed=1,2'), 'one value of every other option'),
    ((*_LISTS, '--mean_runs=1'), 'mean must be'),
    (('--select=private',), 'nothing to choose'),
    ((*_LISTS, '--method=sgd'), 'sgd is not private'),
    ((*_LISTS, '--num_canaries=5'), 'canaries'),
    ((*_LISTS, '--num_folds=500'), 'must have 1 to'),
    ((*_LISTS, '--method=lip_adaptive', '--depth=0,1', '--noise=gaussian'),
     'depth must be at least 1'),
    ((*_LISTS, '--epsilon=0.0001', '--mean_runs=1e9', '--num_steps=1',
      '--delta=1e-11'), 'delta must be above')])
def test_bad_choices_are_refused_in_one_line(words, message, tmp_path):
  status, out, error = _call(*words, f'--output_dir={tmp_path}')
  assert status == errors.BAD_INPUT and not out
  assert message in error and error.count('\n') == 1
  assert not list(tmp_path.iterdir())


def test_lists_make_folders_of_their_values():
  with flagsaver.flagsaver():
    train.parse(['train', '--learning_rate=0.5,1', '--clip_norm=1,2',
                 '--depth=1', '--num_steps=5,6', '--batch_size=40'])
    configs = train._configs()
    folders = train._folders(configs, 'out')
  assert len(set(configs)) == len(set(folders)) == 8
  assert folders[0] == pathlib.Path(
      'out/learning_rate=0.5,clip_norm=1.0,num_steps=5')
  assert {type(each.num_steps) for each in configs} == {int}
