"""These tests check what `launch.train` writes, resumes and refuses."""

import contextlib
import io
import json
import math
import pathlib
import subprocess
import sys

from absl.testing import flagsaver
import numpy as np
import pytest

from dpjax.cli import errors
from dpjax.cli import train
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.runs import options

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_TINY = ('--num_steps=5', '--width=4')
_KEYS = {
    'method', 'dataset', 'n', 'epsilon_requested', 'epsilon', 'epsilon_valid',
    'delta', 'adjacency', 'accountant', 'noise_multiplier',
    'joint_noise_multiplier', 'sampling_prob', 'num_steps', 'test_accuracy',
    'wall_seconds', 'seed', 'versions'
}


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


def _summary(folder):
  return json.loads((folder / 'summary.json').read_text())


_IMAGES = ('--dataset=digits', '--num_examples=455', '--num_groups=2',
           '--depth=1', '--batch_size=40', '--max_batch_size=80')
# These are the flags that a method needs beyond the common ones.
_WORDS = {'lip_norm': _IMAGES, 'lip_k_norm': ('--noise_order=inf',),
          'bassily': ('--depth=0', '--num_steps=300')}
_OTHER_NOISE = ('lip_k_norm', 'bassily')


_QUICK_METHODS = ('sgd', 'dp_sgd', 'lip_dp_sgd', 'lip_adaptive')


@pytest.mark.slow
@pytest.mark.every(4)
@pytest.mark.parametrize('method', [
  pytest.param(method, marks=() if method in _QUICK_METHODS
               else pytest.mark.slow)
  for method in options.METHODS
  if method not in ('lip_printed', *_OTHER_NOISE)])
def test_every_method_writes_what_its_claim_needs(method, tmp_path):
  status, out, _ = _call(f'--method={method}', '--epsilon=2', '--seed=3',
                         f'--output_dir={tmp_path}', *_TINY,
                         *_WORDS.get(method, ()))
  summary = _summary(tmp_path)
  assert status == 0 and _KEYS <= set(summary)
  assert summary['method'] == method and summary['n'] == 455
  assert 0 <= summary['test_accuracy'] <= 1 and summary['seed'] == 3
  assert summary['epsilon_valid'] is True
  if method == 'sgd':
    assert summary['epsilon'] is None and 'epsilon = inf' in out
    return
  assert summary['delta'] == pytest.approx(455**-1.1)
  # The epsilon is recomputed from the file alone, by either multiplier.
  for name in ('noise_multiplier', 'joint_noise_multiplier'):
    event = accounting.poisson_gaussian_event(
        sampling_prob=summary['sampling_prob'],
        noise_multiplier=summary[name], num_steps=summary['num_steps'])
    again = accounting.epsilon(event, delta=summary['delta'],
                               adjacency=Adjacency(summary['adjacency']))
    assert again == pytest.approx(summary['epsilon'], rel=1e-3)
    assert again <= summary['epsilon_requested']
  assert summary['epsilon'] <= 2.0 <= summary['epsilon'] * 1.001
  assert summary['epsilon_rdp'] >= summary['epsilon']
  assert 'at most (2, ' in out.splitlines()[0]


@pytest.mark.slow
@pytest.mark.parametrize('method', [
  'dp_sgd_adaptive', pytest.param('bassily', marks=pytest.mark.slow)])
def test_noise_on_a_lattice(method, tmp_path):
  """Lattice noise follows the plan of Gaussian
  noise and pays for the difference."""
  status, _, error = _call(f'--method={method}', '--epsilon=2', *_TINY,
                           *_WORDS.get(method, ()), '--noise=lattice_gaussian',
                           f'--output_dir={tmp_path}')
  assert status == 0, error
  summary = _summary(tmp_path)
  assert summary['noise'] == 'lattice_gaussian'
  assert 0 < summary['noise_variation'] < 1e-15
  assert summary['epsilon'] <= 2 and 'GaussianDpEvent' in summary['event']
  assert 1 - 1e-6 <= (summary['joint_noise_multiplier']
                      / summary['noise_multiplier']) < 1.0005


@pytest.mark.slow
@pytest.mark.parametrize('method', _OTHER_NOISE)
def test_methods_with_noise_of_their_own(method, tmp_path):
  """Methods with their own noise use their plan's event (LDP-03, DP-15).

  The event is not a calibrated Gaussian.
  """
  status, _, error = _call(f'--method={method}', '--epsilon=2',
                           f'--output_dir={tmp_path}', *_TINY, *_WORDS[method])
  assert status == 0, error
  summary = _summary(tmp_path)
  assert 0 < summary['epsilon'] <= 2 and summary['epsilon_valid'] is True
  assert ('PureDpEvent' in summary['event']) == (method == 'lip_k_norm')
  assert summary['joint_noise_multiplier'] >= summary['noise_multiplier'] * (
    1 - 1e-6)


@pytest.mark.slow
def test_the_printed_method_is_quarantined(tmp_path):
  """The printed method is refused without --allow_unsound (LDP-01).

  With the flag it runs, and its epsilon is marked as not valid.
  """
  words = ('--method=lip_printed', '--epsilon=2', f'--output_dir={tmp_path}',
           *_TINY)
  status, _, error = _call(*words)
  assert status == errors.BAD_INPUT and 'allow_unsound' in error
  assert not list(tmp_path.iterdir())
  status, out, _ = _call(*words, '--allow_unsound')
  assert status == 0 and 'NOT private' in out.splitlines()[0]
  assert _summary(tmp_path)['epsilon_valid'] is False


@pytest.mark.slow
@pytest.mark.parametrize('words, message', [
  (('--method=lip_norm',), 'lip_norm needs images'),
  (('--method=dp_sgd', '--views=4'), 'tables have none'),
  (('--method=layer_clipped', '--views=4', *_IMAGES), 'bounds single views'),
  (('--method=bassily', '--depth=2'), 'bassily trains a linear model'),
  (('--method=lip_k_norm', *_IMAGES), 'for perceptrons on tables'),
  (('--method=lip_dp_sgd', '--model=convnet'), 'model on tables must be one'),
  (('--method=lip_dp_sgd', '--compute_dtype=bfloat16'),
   'with compute_dtype = bfloat16, method must be one of sgd, dp_sgd,'),
  (('--method=lip_k_norm', '--noise=lattice_gaussian'),
   'lip_k_norm has no Gaussian noise to put on a lattice'),
  (('--method=lip_dp_sgd', '--alpha=0'), 'alpha must be a positive number'),
  (('--method=lip_adaptive', '--target_quantile=1'), 'target_quantile must'),
  (('--method=lip_adaptive', '--count_noise=1e-4'), 'noise_stddev of')])
def test_what_cannot_run_is_refused_before_it_costs(words, message, tmp_path):
  status, _, error = _call('--epsilon=2', f'--output_dir={tmp_path}', *_TINY,
                           *words)
  assert status == errors.BAD_INPUT and message in error
  assert not list(tmp_path.glob('**/summary.json'))


@pytest.mark.slow
@pytest.mark.every(1)
@pytest.mark.parametrize('words, noise, short', [
    ((), 'lattice_gaussian', []),
    (('--epsilon=9',), 'gaussian', ['in floating point: Gaussian']),
    (('--noise=gaussian',), 'gaussian', ['in floating point: Gaussian']),
    (('--method=lip_k_norm', '--noise_order=inf'), 'gaussian',
     ['K-norm noise is drawn in floating point']),
    (('--noise_seed=3', '--num_canaries=20', '--canary_seed=4'), 'gaussian',
     ['come from noise_seed', 'in floating point: Gaussian',
      'reveals which canaries'])])
def test_a_summary_says_where_a_run_falls_short(words, noise, short, tmp_path):
  status, out, error = _call(*words, f'--output_dir={tmp_path}', *_TINY)
  assert status == 0, error
  summary, seeded = _summary(tmp_path), '--noise_seed=3' in words
  assert summary['noise'] == summary['config']['noise'] == noise
  assert ('noise on a lattice' in out.splitlines()[0]) == (
      noise == 'lattice_gaussian')
  assert summary['epsilon_valid'] is not seeded
  assert ('warning: noise_seed = 3 is for research' in error) == seeded
  always = ['float32', 'duration of training', 'test_accuracy is']
  sentences = summary['falls_short']
  assert len(sentences) == len(short) + len(always)
  for part in (*short, *always):
    assert any(part in sentence for sentence in sentences), part


@pytest.mark.slow
def test_saved_weights_obey_the_bound(tmp_path):
  _call('--method=lip_dp_sgd', '--weight_norm=0.5', '--learning_rate=5',
        f'--output_dir={tmp_path}', *_TINY)
  with np.load(tmp_path / 'params.npz') as params:
    kernels = [params[name] for name in params if name.endswith('kernel')]
    assert len(kernels) == 2
    for kernel in kernels:
      assert np.linalg.norm(kernel.astype(np.float64), 2) <= 0.5 * (1 + 1e-6)


@pytest.mark.slow
def test_comma_lists_sweep_into_folders_and_resume(tmp_path):
  words = ('--method=dp_sgd', '--epsilon=1,4', '--depth=0,1', '--seed=0,1',
           '--num_examples=100', f'--output_dir={tmp_path}', *_TINY,
           '--accountant=rdp', '--noise_seed=0')
  assert _call(*words)[0] == 0
  folders = sorted(path.parent.name for path in tmp_path.glob('*/summary.json'))
  assert len(folders) == 8 and folders[0] == 'epsilon=1.0,depth=0,seed=0'
  before = {path: path.read_bytes() for path in tmp_path.glob('*/summary.json')}
  (tmp_path / folders[3] / 'summary.json').unlink()
  status, out, _ = _call(*words)
  assert status == 0 and '7 of 8 runs are finished already' in out
  assert 'the 8 private runs together, or the best of them, cost epsilon' in out
  for path, content in before.items():
    old, new = json.loads(content), _summary(path.parent)
    assert old['test_accuracy'] == new['test_accuracy']
  accuracies = {_summary(tmp_path / name)['n'] for name in folders}
  assert accuracies == {100}


@pytest.mark.slow
def test_small_convnets_on_small_images(tmp_path):
  words = ('--dataset=digits', '--method=layer_clipped', '--num_steps=2',
           '--channels=2,3', '--stride=2', '--kernel_size=2', '--pool=none',
           '--nouse_bias', '--downsample=2', '--pixels=unsigned', '--width=4',
           '--batch_size=20', f'--output_dir={tmp_path}')
  status, _, err = _call(*words)
  assert status == 0, err
  # The images have 4 x 4 pixels, then 2 x 2, then one.
  assert _summary(tmp_path)['num_parameters'] == 4 * 2 + 8 * 3 + 3 * 4 + 40
  before = (tmp_path / 'summary.json').read_bytes()
  assert _call(*words)[0] == 0
  assert (tmp_path / 'summary.json').read_bytes() == before
  assert _call(*words, '--channels=3')[0] == 2


@pytest.mark.slow
def test_a_folder_of_another_configuration_is_refused(tmp_path):
  words = ('--method=dp_sgd', f'--output_dir={tmp_path}', *_TINY)
  assert _call(*words)[0] == 0
  status, _, err = _call(*words, '--clip_norm=2')
  assert status == 2 and 'another configuration: clip_norm = 0.5, now 2' in err
  assert _call(*words, '--seed=1')[0] == 2
  (tmp_path / 'summary.json').write_text('{"half')
  status, _, err = _call(*words)
  assert status == 2 and 'is not the summary of a run' in err


@pytest.mark.slow
def test_delta_forms(tmp_path):
  status, _, err = _call('--delta=1/n', f'--output_dir={tmp_path}', *_TINY)
  assert status == 0 and math.isclose(_summary(tmp_path)['delta'], 1 / 455)
  assert 'warning: delta' in err and 'not below 1/n' in err


@pytest.mark.parametrize('word, message', [
    ('--epsilon=0', 'epsilon must be a positive number, got 0'),
    ('--epsilon=-1', 'epsilon must be a positive number, got -1'),
    ('--epsilon=nan', 'epsilon must be a positive number, got nan'),
    ('--epsilon=1,two', "--epsilon must be numbers separated by commas"),
    ('--epsilon=1,1', "must not repeat a value"),
    ('--delta=1', 'delta must lie in [1e-12, 1), got 1'),
    ('--delta=0', 'delta must lie in [1e-12, 1), got 0'),
    ('--delta=1/m', "--delta must be a number or 1/n, got '1/m'"),
    ('--batch_size=456', 'batch_size must be at most num_examples = 455'),
    ('--batch_size=0', 'batch_size must be a positive number'),
    ('--num_examples=456', 'num_examples must be at most 455'),
    ('--num_examples=0', 'num_examples must be an integer >= 1'),
    ('--method=dpsgd', "names, got 'dpsgd'; did you mean 'dp_sgd'"),
    ('--dataset=iris', "dataset must be one of 14 names, got 'iris'"),
    ('--depth=-1', 'depth must be an integer >= 0, got -1'),
    ('--width=0', 'width must be an integer >= 1, got 0'),
    ('--num_steps=0', 'num_steps must be an integer >= 1, got 0'),
    ('--learning_rate=0', 'learning_rate must be a positive number'),
    ('--seed=-1', 'seed must be an integer >= 0, got -1'),
    ('--noise_seed=-1', 'noise_seed must be an integer >= 0, got -1'),
    ('--noise_seed=4294967296', 'noise_seed'),
    ('--clip_norm=0', 'clip_norm must be a positive number'),
    ('--channels=8,x', '--channels must be integers separated by commas'),
    ('--channels=8,0', 'channels must be an integer >= 1, got 0'),
    ('--stride=0', 'stride must be an integer >= 1, got 0'),
    ('--downsample=2', 'downsample needs images; tables have no pixels'),
    ('--num_devices=two', "--num_devices must be an integer or all, got 'two'"),
    ('--num_devices=0', 'num_devices must be an integer >= 1, got 0'),
    ('--num_devices=99', 'the number of devices, got 99'),
    ('--mesh=model:2', '--mesh must be data:N, or data:N and model:M'),
    ('--mesh=data:2,expert:2', "integers >= 1, got 'data:2,expert:2'"),
    ('--mesh=data:0', "integers >= 1, got 'data:0'"),
    ('--mesh=data', "integers >= 1, got 'data'"),
    ('--mesh=data:2,data:1', "integers >= 1, got 'data:2,data:1'"),
    ('--mesh=data:2,model:3', 'the number of devices, got 6'),
    ('--process_id=0', '--coordinator_address and --num_processes must be'),
])
def test_bad_input_costs_one_line_and_nothing_is_trained(word, message,
                                                         tmp_path):
  folder = tmp_path / 'out'
  status, _, err = _call('--method=lip_dp_sgd', word,
                         f'--output_dir={folder}', *_TINY[:0])
  assert status == 2 and message in err
  assert err.strip().count('\n') == 0
  assert not folder.exists()


def test_missing_and_corrupt_files_say_where_to_get_them(tmp_path,
                                                         monkeypatch):
  monkeypatch.delenv('DPJAX_DATA_DIR', raising=False)
  words = ('--dataset=nursery', f'--data_dir={tmp_path}',
           f'--output_dir={tmp_path / "out"}')
  status, _, err = _call(*words)
  assert status == 2 and 'nursery.data' in err and 'doi.org' in err
  (tmp_path / 'nursery.data').write_text('usual,proper\n')
  status, _, err = _call(*words)
  assert status == 2 and 'is not the original nursery.data' in err
  assert err.strip().count('\n') == 0


def _process(*words):
  return subprocess.run([sys.executable, '-m', 'launch.train', *words],
                        cwd=_ROOT, capture_output=True, text=True,
                        check=False)


@pytest.mark.slow
def test_the_command_itself(tmp_path):
  bad = _process('--epsilon=-3', f'--output_dir={tmp_path / "bad"}')
  assert bad.returncode == 2
  assert bad.stderr.strip() == (
      'error: epsilon must be a positive number, got -3.0')
  unknown = _process('--epsilom=3', f'--output_dir={tmp_path / "bad"}')
  assert unknown.returncode != 0 and 'epsilom' in unknown.stderr
  helped = _process('--help')
  # There is a line for each example, one of them for a user's file.
  assert helped.stdout.count('\n  dpjax train ') == 7
  for flag in ('--epsilon', '--delta', '--output_dir'):
    assert f'\n  {flag}: ' in helped.stdout
  assert '\n  --weight_norm: ' in _process('--helpfull').stdout


def test_rows_that_do_not_divide_are_refused(tmp_path):
  status, out, err = _call('--num_devices=2', '--max_batch_size=51',
                           f'--output_dir={tmp_path}', *_TINY)
  assert status == 2 and not out and not list(tmp_path.iterdir())
  assert err == ('max_batch_size must be a multiple of the 2 devices of the '
                 'mesh, got 51; 52 is one\n')
