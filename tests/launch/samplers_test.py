"""These tests check `dpjax train` with other samplers and correlated noise."""

import contextlib
import io
import json

from absl.testing import flagsaver
import numpy as np
import pytest

from dpjax.audit.suite import run_folders
from dpjax.audit.suite import runs
from dpjax.cli import train
from dpjax.privacy import correlated
from dpjax.runs import summary as summaries
from dpjax.train import loop

_TINY = ('--num_steps=40', '--width=2', '--depth=0')


def _call(*words):
  """Runs main with flags and returns what it printed."""
  out = io.StringIO()
  with flagsaver.flagsaver(), contextlib.redirect_stdout(out), \
      contextlib.redirect_stderr(out):
    assert train.main(train.parse(['train', *_TINY, *map(str, words)])) == 0
  return out.getvalue()


def _files(folder):
  """Returns the parameters and the claim of a run."""
  summary = json.loads((folder / 'summary.json').read_text())
  with np.load(folder / 'params.npz') as params:
    return {name: params[name].tobytes() for name in params}, {
        name: value for name, value in summary.items()
        if not name.endswith('_seconds')}


class _Killed(BaseException):
  pass


@pytest.mark.slow
def test_a_killed_run_with_correlated_noise_resumes_to_the_same_bits(
    tmp_path, monkeypatch):
  words = ('--noise_seed=0', '--sampler=cyclic', '--correlation=square_root',
           '--sampler_groups=8')
  whole, killed = tmp_path / 'whole', tmp_path / 'killed'
  out = _call(*words, '--checkpoint_seconds=0', f'--output_dir={whole}')
  assert ('40 steps of 8 random groups in turns, as a whole, ' in out and
          'floating-point noise correlated by square_root of 8 bands' in out)
  words += ('--checkpoint_seconds=1e-6', f'--output_dir={killed}')
  # Killed in the middle, where the history of the noise matters.
  honest, saved = loop.Saver.after_chunk, []

  def killing(saver, *args):
    honest(saver, *args)
    saved.append(1)
    if len(saved) == 10:
      raise _Killed

  with monkeypatch.context() as patch, pytest.raises(_Killed):
    patch.setattr(loop.Saver, 'after_chunk', killing)
    _call(*words)
  assert 'resuming at step 20' in _call(*words)
  assert _files(killed) == _files(whole)
  _, summary = _files(whole)
  assert summary['sampling_prob'] is None
  assert summary['sampler'] == '8 random groups in turns, as a whole'
  assert summary['strategy'] == repr(correlated.square_root(8))
  assert summary['noise'] == 'gaussian'


@pytest.mark.slow
@pytest.mark.parametrize('words', [
    ('--sampler=random_allocation',),
    ('--sampler=fixed_size', '--batch_size=200', '--adjacency=replace_one'),
    ('--sampler=cyclic', '--correlation=tree')])
def test_an_audit_judges_the_event_of_the_sampler(words, tmp_path):
  _call(*words, '--num_canaries=40', f'--output_dir={tmp_path}')
  run = run_folders.load(tmp_path)
  report = runs.audit(run, name='run')
  assert not any(check.failed for check in report.checks)
  assert repr(run.plan.event) == run.summary['event']
  # A claim below what the event costs is refuted.
  summary = json.loads((tmp_path / summaries.NAME).read_text())
  lied = dict(summary, epsilon=summary['epsilon'] * 0.99)
  (tmp_path / summaries.NAME).write_text(json.dumps(lied))
  assert runs.audit(run_folders.load(tmp_path), name='run').checks[0].failed
