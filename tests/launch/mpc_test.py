"""These tests check the multi-party command: answers, faults and restarts."""

import json
import math
import pathlib
import secrets
import subprocess
import sys
import time

import numpy as np
import pytest

from dpjax.cli import mpc
from dpjax.cli import mpc_answers
from dpjax.cli import mpc_parties
from dpjax.mpc.parties import client
from dpjax.mpc.parties import setup
from dpjax.mpc.parties.parameters import Parameters
from dpjax.privacy.adjacency import Adjacency

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def _run(tmp_path, *words):
  done = subprocess.run(
      [sys.executable, '-m', 'launch.mpc', f'--output={tmp_path}/o.json',
       '--timeout=20', *words], cwd=_ROOT, capture_output=True, text=True,
      check=False)
  return done, (json.loads((tmp_path / 'o.json').read_text())
                if done.returncode == 0 else None)


_STUDY = ('--demo=40', '--lower=0', '--upper=1', '--epsilon=1',
          '--adjacency=replace_one', '--num_thresholds=16',
          '--thresholds=0.2,0.5,1')


def _parameters(**kwargs):
  return Parameters(**dict(
      session=secrets.token_hex(16), scheme='comparison', num_servers=2,
      num_colluding=1, num_classes=1, num_thresholds=8, lower=0.0, upper=1.0,
      grid='uniform', epsilon=1.0, adjacency='replace_one', sensitivity=3,
      root=True, shape=(), noise='contributions', value_bits=32, num_owners=3000,
      min_owners=0) | kwargs)


@pytest.mark.slow
def test_a_killed_server_is_named_and_the_study_goes_on(tmp_path):
  study = f'--study={tmp_path}/study'
  done, _ = _run(tmp_path, *_STUDY, study, '--fault=kill_server')
  assert done.returncode == 2
  assert done.stderr.startswith('error: server1: cannot be reached')
  assert done.stderr.count('\n') == 1
  words = (study, '--resume', '--thresholds=0.2,0.5,1')
  done, first = _run(tmp_path, *words)
  assert done.returncode == 0, done.stderr
  _, second = _run(tmp_path, *words)
  assert first['noisy_ranks'] == second['noisy_ranks']
  assert first['noisy_ranks'][0][-1] == first['num_records'] == 40
  assert not any(first['refused'].values())
  # Bits equal the formula and the count: three points of 4 bits, numbers of 32.
  assert first['bits']['answers'] == {
      'formula_bits': 2 * 3 * 36, 'payload_bytes': 2 * (2 + 12)}
  assert first['bits']['owners']['formula_bits'] == 40 * 2 * 808
  assert first['bits']['owners']['message_bytes'] == 40 * 2 * 101
  assert first['bits']['owners']['payload_bytes'] == 40 * 2 * (101 + 44)
  assert first['guarantee']['delta_of_drawing'] < 1e-12


@pytest.mark.slow
def test_a_server_that_is_killed_while_owners_send_loses_none(tmp_path):
  params, study = _parameters(), tmp_path / 'study'
  bins = np.arange(3000) % 8
  setup.create(study, params, bins)
  with mpc_parties.Processes(study, 20.0) as running:
    running.start_servers(params)
    running.start('owners0', 'relay')
    log = study / 'server1' / 'inbox.log'
    while not log.stat().st_size:
      time.sleep(.002)
    running.kill('server1')
    assert running.running['owners0'].poll() is None
    running.start('server1', 'server', '--index=1')
    assert running.wait('owners0') is None
    answer = client.ask(params, np.array([7]), folder=study / 'client',
                        addresses=study / 'addresses', timeout=20.0)
    assert answer.num_records == 3000 and answer.numbers.tolist() == [[3000]]
    # New shares of the same owners would not fit to those that are there.
    running.start('owners0', 'relay')
    assert 'has sent before' in running.wait('owners0')


@pytest.mark.slow
@pytest.mark.parametrize('fault, said, status', [
    ('kill_owners', 'owners0 was killed', 0), ('parameters', 'epsilon', 2),
    ('repeat', 'owner 4, 1 times: repeated', 0),
    ('truncate', 'owner 4, 1 times: its message has a wrong length', 0),
    ('flip', 'owner 4, 1 times: its seal', 0),
    ('forge', 'owner 9, 1 times: its seal', 0)])
def test_faults_are_found_and_named(tmp_path, fault, said, status):
  # So many owners take long enough that a relay is killed in the middle.
  done, _ = _run(tmp_path, *_STUDY, f'--fault={fault}', '--relays=2',
                 f'--demo={20000 if fault == "kill_owners" else 40}')
  assert done.returncode == status and said in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize('words', [
    ('--scheme=additive', '--servers=3', '--adjacency=add_or_remove_one'),
    ('--scheme=outer_product', '--servers=3', '--label=any')])
def test_schemes_and_labels(tmp_path, words):
  done, answer = _run(tmp_path, *_STUDY[:-1], '--epsilon=200', *words,
                      f'--plot={tmp_path}/o.svg')
  assert done.returncode == 0, done.stderr
  assert (tmp_path / 'o.svg').exists()
  if '--label=any' in words:
    assert abs(sum(line[-1] for line in answer['ranks']) - 40) <= 2
    assert 0 < answer['auc'] < 1
  else:
    assert not {'refused', 'num_records', 'bits', 'seconds'} & set(answer)
    assert abs(answer['ranks'][0][-1] - 40) <= 2


def test_sensitivities_are_those_of_the_reference():
  replaced, added = Adjacency.REPLACE_ONE, Adjacency.ADD_OR_REMOVE_ONE
  # The tree has a root only if the root lowers the sensitivity.
  assert mpc_answers.sensitivity(1024, replaced, 1) == (10, False)
  assert mpc_answers.sensitivity(1024, added, 1) == (6, False)
  assert mpc_answers.sensitivity(512, added, 1) == (5, True)
  # A record that changes its label moves both curves (EC-22).
  assert mpc_answers.sensitivity(1024, replaced, 2)[0] == 12
  assert mpc_answers.sensitivity(1024, added, 2) == (6, False)


@pytest.mark.slow
def test_monotone_curves_and_areas_of_an_answer():
  params = _parameters(num_classes=2, num_owners=20, sensitivity=6)
  exact = np.array([[1, 3, 5, 6, 8, 9, 10, 10], [0, 0, 1, 2, 4, 6, 8, 10]])
  answer = lambda numbers: client.Answer(
      numbers=numbers, num_records=20, faults=(), traffic={})
  curve = mpc_answers.curve(params, None, answer(exact))
  np.testing.assert_allclose(curve['ranks'], exact, atol=1e-9)
  zeros, ones = (np.repeat(np.arange(8), np.diff(line, prepend=0))
                 for line in exact)
  pairs = zeros[:, np.newaxis] - ones
  assert curve['auc'] == pytest.approx(
      np.mean(pairs < 0) + np.mean(pairs == 0) / 2)
  noisy = exact + np.array([3, -4] * 4)
  for line in mpc_answers.curve(params, None, answer(noisy))['ranks']:
    assert line[0] >= 0 and (np.diff(line) >= 0).all()
  np.testing.assert_allclose(
      mpc_answers.curve(params, np.array([1, 7]), answer(noisy))['thresholds'],
      [.25, 1.0])


def test_ranks_of_a_tree():
  params = _parameters(shape=(2, 5), num_classes=2, num_owners=20)
  counts = np.array([[1, 2, 2, 1, 2, 1, 1, 0], [0, 0, 1, 1, 2, 2, 2, 2]])
  exact = np.array([[8, 2, *counts[0]], [4, 6, *counts[1]]])
  answer = lambda numbers: client.Answer(
      numbers=numbers, num_records=20, faults=(), traffic={})
  curve = mpc_answers.curve(params, np.array([0, 7]), answer(exact))
  np.testing.assert_allclose(curve['ranks'], [[1, 10], [0, 10]], atol=1e-9)
  noisy = mpc_answers.curve(params, None, answer(
      exact + np.array([5, -4, 3, -3, 2] * 2)))['ranks']
  assert sum(line[-1] for line in noisy) == pytest.approx(20)
  assert all((np.diff(line, prepend=0) >= -1e-9).all() for line in noisy)
  # With one level and a known n, the variance of a rank is a bridge's.
  params = _parameters(shape=(8,))
  weights = np.exp(-np.abs(np.arange(-300, 301)) / 3.0)
  # This is the noise of both servers.
  variance = 2 * (weights / weights.sum()) @ np.arange(-300, 301)**2
  ranks = np.arange(1, 9)
  assert mpc_answers.standard_deviation(params) == pytest.approx(
      math.sqrt(variance * np.mean(ranks * (8 - ranks) / 8)))


_BAD = [
    ((), '--input .or --demo. and --column must'), (('--demo=9', '--epsilon=0'), 'epsilon'),
    (('--demo=9', '--colluding=2'), 'outer_product'),
    (('--demo=9', '--servers=3'), '2 servers'),
    (('--demo=9', '--value_bits=6'), 'bits'),
    (('--demo=9', '--plot=a.png'), '.svg'), (('--resume',), '--study')]


@pytest.mark.parametrize('more, message', _BAD)
def test_bad_input_costs_a_line(tmp_path, more, message):
  with pytest.raises(ValueError, match=message):
    mpc.main(mpc.parse(
        ['mpc', *_STUDY[1:], f'--output={tmp_path}/o.json', *more]))
  assert not (tmp_path / 'o.json').exists()
