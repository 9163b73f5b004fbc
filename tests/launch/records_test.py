"""These tests check the command that makes an entry of the records."""

import json

import pytest

from dpjax.runs import environment
from experiments import fingerprints
from experiments import records
from experiments.accuracy_records import data
from experiments.accuracy_records import entries
from experiments.accuracy_records import sweep
from launch import records as command

_RECIPES = tuple(entries.Recipe(
    features='pixels', num_groups=0, batch_size=300, num_steps=3,
    learning_rate=rate, clip_norm=0.5) for rate in (1.0, 2.0))


@pytest.fixture
def tiny(monkeypatch):
  """Makes one entry with two recipes and one ablation the whole sweep."""
  entry = entries.Entry(name='tiny', dataset='digits', epsilon=4.0,
                        recipes=_RECIPES, num_canaries=50)
  monkeypatch.setattr(entries, 'ENTRIES', {'tiny': entry})
  monkeypatch.setattr(sweep, 'VARIANTS', (sweep.UNCHANGED, 'normalisation'))
  monkeypatch.setattr(sweep, 'SETTINGS', sweep.settings_of(entry))
  # To compute a fingerprint takes seconds.
  monkeypatch.setattr(fingerprints, 'streams', lambda: 'f0')
  monkeypatch.setattr(
      environment, 'current',
      lambda **_: environment.Environment('cpu', '1', 'c0', {'jax': '1'}))
  monkeypatch.setattr(environment, 'commit', lambda: 'c0')
  data._training_set.cache_clear()
  return entry


def _call(*words):
  return command.main(command.parse(['records', *words]))


@pytest.mark.slow
def test_an_entry_is_made_and_then_only_read(tiny, tmp_path, capsys):
  folder = f'--output_dir={tmp_path}'
  with pytest.raises(ValueError, match='tiny has no score .* part choose'):
    _call('--entry=tiny', folder, '--part=final')
  assert _call('--entry=tiny', folder, '--part=choose') == 0
  assert capsys.readouterr().out == (
      'tiny: 2 of 2 recipes tried, final not run, ablation not run, audit not '
      'run\n')
  assert _call('--entry=tiny', folder, '--data_dir=secret') == 0
  first = capsys.readouterr()
  assert first.out.startswith('tiny: test accuracy 0.')
  assert 'this choice of 2 runs and a final run cost epsilon' in first.out
  rows = records.read(tmp_path / 'rows.csv')
  assert len(records.ids(rows)) == 2 + 5 + 2 * 3 + 1 == len(sweep.SETTINGS)
  assert _call('--entry=tiny', folder) == 0
  again = capsys.readouterr()
  assert again.out == first.out and '14 of 14 settings have rows' in again.err
  assert records.read(tmp_path / 'rows.csv') == rows
  text = (tmp_path / 'provenance.json').read_text()
  assert {run['command'] for run in json.loads(text)['runs']} == {
      'python -m launch.records --entry=tiny',
      'python -m launch.records --entry=tiny --part=choose',
      'python -m launch.records --entry=tiny --part=final'}
  assert str(tmp_path) not in text and 'secret' not in text


def test_list_shows_entries_and_runs_nothing(tmp_path, capsys):
  folder = tmp_path / 'none'
  assert _call('--list', f'--output_dir={folder}') == 0
  shown = capsys.readouterr().out
  for name in entries.ENTRIES:
    assert f'| {name} ' in shown
  assert '0.987 at epsilon 2.5 (Tramer and Boneh 2021, secondary' in shown
  assert 'final not run' in shown and not folder.exists()


@pytest.mark.parametrize('words, says', [
    ([], '--entry must be one of digits_4, mnist_1.2'),
    (['--entry=mnist'], "entry must be one of cifar10_3.* got 'mnist'"),
    (['--entry=digits_4', '--part=test'], "part must be one of ablation.*'test'"),
    (['--entry=digits_4', '--output_dir=FILE'], 'is not a folder')])
def test_bad_input_is_refused(tmp_path, words, says):
  file = tmp_path / 'file'
  file.touch()
  with pytest.raises((ValueError, OSError), match=says):
    _call(*(word.replace('FILE', str(file)) for word in words))


def test_help_says_how_to_make_and_tune_an_entry(capsys):
  with pytest.raises(SystemExit):
    _call('--help')
  shown = capsys.readouterr().out
  assert shown.count('python -m launch.records') == 4
  for flag in ('--entry', '--part', '--list', '--data_dir', '--output_dir'):
    assert flag in shown
