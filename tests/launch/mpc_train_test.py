"""Tests training on secure sums: bounds of gradients, steps, the command."""

import json
import math
import pathlib
import secrets
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.cli import mpc_task
from dpjax.cli import mpc_training
from dpjax.cli.mpc_task import Task
from dpjax.features import combining
from dpjax.mpc.parties.channel import Fault
from tests.mpc.sum_studies import SumStudy

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def _task(model='linear', **kwargs):
  return Task(**dict(model=model, num_features=4, num_classes=3, seed=0,
                     depth=2, width=6, weight_norm=2.0) | kwargs)


def _records(count, seed=0):
  rng = np.random.default_rng(seed)
  x = np.asarray(combining.UnitNorm()(rng.normal(size=(count, 3))))
  return x, rng.integers(0, 3, count).astype(np.int32)


def _parameters(task, num_owners, **kwargs):
  return mpc_training.parameters_for(task, **dict(
      session=secrets.token_hex(16), num_owners=num_owners, num_servers=2,
      num_rounds=3, epsilon=1.0, delta=1e-5) | kwargs)


@pytest.mark.sound
@pytest.mark.parametrize('model', mpc_task.MODELS)
def test_no_gradient_is_above_the_bound_and_some_are_near(model):
  """Weights of all scales, records in and beyond the ball, all classes."""
  task, rng = _task(model, weight_norm=8.0), np.random.default_rng(1)
  x, y = _records(200)
  x = np.concatenate([x, 1e6 * x, 0 * x[:1]])
  y = np.concatenate([y, y, y[:1]])
  norms = []
  weights = [scale * rng.normal(size=task.start.shape)
             for scale in (0, 1e-3, 1, 30, 1e4, 1e8)]
  # Orthogonal layers before a head that is surely wrong along one direction.
  worst = task.start.copy()
  last = len(worst) - (18 if model == 'orthogonal' else 12)  # of the head
  worst[last:] = 0
  worst[last:last + 2] = 1e3, -1e3
  for flat in (*weights, worst):
    flat = flat.astype(np.float32)
    gradients = task.gradients(flat, x, y)
    norms.append(np.linalg.norm(gradients.astype(np.float64), axis=1).max())
  assert max(norms) <= task.gradient_bound
  assert max(norms) > (0.999 if model == 'linear' else 0.9) * (
      task.gradient_bound)
  known = {'linear': 2**.5, 'orthogonal': (2 * (1 + 2 * 8.0**2))**.5}[model]
  assert task.gradient_bound == pytest.approx(known, rel=2e-4)


@pytest.mark.parametrize('model', mpc_task.MODELS)
def test_the_sum_of_gradients_is_that_of_one_backward_pass(model):
  task = _task(model)
  x, y = _records(7)
  flat = task.start + np.float32(0.1)

  def total(flat):
    logits = task.network.apply(task._unravel[1](flat), jnp.asarray(x))
    return -jnp.sum(jax.nn.log_softmax(logits)[jnp.arange(7), y])

  np.testing.assert_allclose(task.gradients(flat, x, y).sum(0),
                             jax.grad(total)(task.constrain(flat)), atol=2e-6)


@pytest.mark.sound
def test_the_bound_covers_all_certificates_of_orthogonal_layers():
  """Weights of norm 2, whose certificate is largest, and wide layers."""
  for p, width, depth in ((3, 64, 1), (300, 20, 2), (50, 50, 3)):
    task = _task('orthogonal', num_features=p, width=width, depth=depth)
    start = task.constrain(task.constrain(task.start))
    bounds = [float(task._constrained(np.float32(scale) * start)[1])
              for scale in (0, 0.5, 1, 1.9, 1.99, 2, 2.1, 1e4)]
    assert max(bounds) <= task.gradient_bound <= 1.01 * max(bounds)


def test_parameters_that_are_not_finite_are_refused():
  task = _task()
  x, y = _records(2)
  for value in (math.nan, math.inf):
    flat = task.start.copy()
    flat[3] = value
    with pytest.raises(ValueError, match='the parameters of this round'):
      task.gradients(flat, x, y)
  message = task.start.astype('<f4').tobytes()
  np.testing.assert_array_equal(mpc_training.read_message(message, 12),
                                task.start)
  with pytest.raises(ValueError, match='does not hold 12 parameters'):
    mpc_training.read_message(message[:-1], 12)


@pytest.mark.sound
def test_parameters_of_a_study_have_the_bound_and_the_budget():
  task = _task()
  parameters = _parameters(task, 1000, num_rounds=20, epsilon=2.0)
  assert parameters.bound >= task.gradient_bound
  assert parameters.length == len(task.start) == 12
  spent = parameters.vector_sum.epsilon(delta=1e-5, num_sums=20)
  assert 1.99 < spent <= 2.0


@pytest.mark.parametrize('model', mpc_task.MODELS)
def test_rounds_without_noise_are_steps_of_gradient_descent(tmp_path, model):
  """Granularity 2^-20 moves the mean by less than 1e-5."""
  task = _task(model)
  x, y = _records(5)
  study = SumStudy(tmp_path / 'study', _parameters(
      task, 5, granularity_bits=20).replaced(noise_variance=0))
  try:
    # The fourth owner drops out of the first round; the divisor stays 5.
    sent = []
    study.owners(
        vectors=lambda number, message: task.gradients(
            mpc_training.read_message(message, len(task.start)), x, y),
        change=lambda owner, entry: sent.append(owner) or (
            b'' if owner == 3 and len(sent) <= 10 else entry))
    with study.client() as client:
      flat, took_part, seconds = mpc_training.train(
          task, study.params, client, learning_rate=0.5, patience=1.5)
      study.finish(client)
  finally:
    study.stop()
  wanted = task.start
  for kept in ([0, 1, 2, 4], range(5), range(5)):
    gradients = task.gradients(wanted, x[list(kept)], y[list(kept)])
    wanted = task.constrain(wanted) - np.float32(0.5) * gradients.sum(0) / 5
  wanted = task.constrain(wanted)
  np.testing.assert_allclose(flat, wanted, atol=1e-4)
  assert took_part == [4, 5, 5] and len(seconds) == 3


def test_a_task_and_sums_that_do_not_match_are_refused(tmp_path):
  task = _task()
  x, y = _records(5)
  good = _parameters(task, 5)
  for wrong in (good.replaced(bound=1.0), good.replaced(length=11)):
    with pytest.raises(ValueError, match='the task has 12 parameters'):
      mpc_training.run(tmp_path / 'study', task, wrong, x, y,
                       learning_rate=1.0, num_relays=1, timeout=5.0,
                       patience=1.0)
  assert not (tmp_path / 'study').exists()
  with pytest.raises(ValueError, match='model must be one of'):
    _task('convnet')


def _run(tmp_path, *words):
  done = subprocess.run(
      [sys.executable, '-m', 'launch.mpc_train', f'--output={tmp_path}/o.json',
       *words], cwd=_ROOT, capture_output=True, text=True, check=False)
  return done, (json.loads((tmp_path / 'o.json').read_text())
                if done.returncode == 0 else None)


@pytest.mark.slow
@pytest.mark.parametrize('words', [
    (), ('--model=orthogonal', '--servers=3', '--relays=3',
         '--learning_rate=1')])
def test_the_command_trains_with_real_processes(tmp_path, words):
  done, release = _run(tmp_path, '--epsilon=30', '--rounds=8', *words)
  assert done.returncode == 0, done.stderr
  # Runs have no seed, so the limit is far below what they attain.
  assert release['accuracy'] > 0.7
  assert f'accuracy {release["accuracy"]:.3f}' in done.stdout
  assert 29.5 < release['guarantee']['epsilon'] <= 30
  assert release['took_part'] == [455] * 8 and release['faults'] == []
  length, bits = (release['parameters'][name]
                  for name in ('length', 'value_bits'))
  servers = release['parameters']['num_servers']
  sizes = [16 + 44] * (servers - 1) + [-(-length * bits // 8) + 44]
  assert list(release['bytes_per_owner_and_round']['payload'].values()) == sizes
  assert not any(any(refused.values()) if isinstance(refused, dict) else
                 refused for refused in release['refused'].values())


@pytest.mark.slow
def test_a_relay_that_is_killed_leaves_its_owners_out(tmp_path, monkeypatch):
  """The run goes on with the other owners, and names the relay."""
  task = _task()
  x, y = _records(9)
  ask = mpc_training.sum_client.SumClient.ask
  started = []
  init = mpc_training.mpc_parties.Processes.__init__

  def record(self, *args):
    init(self, *args)
    started.append(self)

  def kill_then_ask(self, number, *, patience):
    if number == 1:
      started[0].kill('owners1')
    return ask(self, number, patience=patience)

  monkeypatch.setattr(mpc_training.mpc_parties.Processes, '__init__', record)
  monkeypatch.setattr(mpc_training.sum_client.SumClient, 'ask', kill_then_ask)
  trained = mpc_training.run(
      tmp_path / 'study', task, _parameters(task, 9), x, y, learning_rate=0.1,
      num_relays=2, timeout=20.0, patience=1.0)
  assert trained.took_part[0] == 9 and trained.took_part[2] == 5
  assert trained.faults == ('owners1 was killed by signal 9',)


@pytest.mark.slow
def test_a_server_that_is_killed_ends_the_run(tmp_path, monkeypatch):
  task = _task()
  x, y = _records(4)
  processes = mpc_training.mpc_parties.Processes
  start = processes.start_servers

  def start_then_kill(self, parameters):
    start(self, parameters)
    self.kill('server1')

  monkeypatch.setattr(processes, 'start_servers', start_then_kill)
  with pytest.raises(Fault, match='owners0: .*server1: cannot be reached|'
                     'server1: '):
    mpc_training.run(tmp_path / 'study', task, _parameters(task, 4), x, y,
                     learning_rate=0.1, num_relays=1, timeout=20.0,
                     patience=1.0)
