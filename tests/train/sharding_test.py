"""Tests that training on 8 devices equals training on one, noise included."""

import json
import os
import pathlib
import re
import subprocess
import sys

import jax
import numpy as np
import optax
import pytest
from scipy import stats

from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.train import loop
from dpjax.train import sharding

_MAIN = pathlib.Path(__file__).with_name('sharding_main.py')
_CASES = ('dp_sgd', 'dp_sgd_adaptive', 'sgd', 'lip_dp_sgd', 'dp_sgd_per_layer',
          'convolved', 'layer_clipped')
_STDDEV = 1.3 * 0.7 / 28  # noise of the mean gradient in sharding_main's dp_sgd
_ERROR = 1e-6  # error rate of each statistical test of the noise


@pytest.fixture(name='outputs', scope='module')
def _outputs(request, tmp_path_factory):
  """Returns outputs of `sharding_main` by name, on 1 and on 8 devices.

  '{case}/{quantity}/{devices}' are arrays; 'program' is the compiled step. Only
  the cases and faults that the selected tests use are run.
  """
  cases = {'dp_sgd'}
  for item in request.session.items:
    if item.path == request.path:
      params = item.callspec.params if hasattr(item, 'callspec') else {}
      cases |= {params.get('case', 'dp_sgd'), params.get('fault', 'dp_sgd')}
      if item.originalname == 'test_indicators_are_noised_once_as_well':
        cases.add('dp_sgd_adaptive')
  path = tmp_path_factory.mktemp('sharding') / 'arrays.npz'
  environ = {name: value for name, value in os.environ.items()
             if name != 'XLA_FLAGS'}
  done = subprocess.run(
      [sys.executable, '-W', 'error', _MAIN, path, *sorted(cases)],
      check=False, text=True, capture_output=True, env=environ,
      cwd=_MAIN.parents[2])
  assert done.returncode == 0, done.stderr
  with np.load(path) as arrays:
    return dict(arrays) | json.loads(done.stdout)


def _pair(outputs, name):
  """Returns an output for 1 and for 8 devices."""
  return outputs[f'{name}/1'], outputs[f'{name}/8']


def _without_records(outputs, case):
  """Returns releases [L, T, P] of L runs of T steps whose records count as 0.

  For 1 and for 8 devices; such releases are pure noise.
  """
  return (means[2:] for means in _pair(outputs, f'{case}/means'))


@pytest.mark.every(5)
def test_there_are_eight_devices(outputs):
  assert outputs['devices'] == 8


@pytest.mark.every(20)
@pytest.mark.parametrize('case', _CASES)
def test_eight_devices_train_what_one_trains(outputs, case):
  """Training on 8 devices equals training on one, up to rounding.

  Noisy sums are rounded to a grid, so all bits are equal, unless a sum lies
  within 1e-7 of the middle of two grid points. Then it moves by at most 1/256
  of its noise. Without noise the largest relative difference after 20 steps is
  1e-7.
  """
  one, eight = _pair(outputs, f'{case}/sizes')
  np.testing.assert_array_equal(one, eight)
  # Batches have one part of at most 53 rows, or several parts.
  several = case in ('sgd', 'dp_sgd_adaptive', 'convolved', 'lip_dp_sgd')
  assert 16 < one.max() <= (100 if several else 53)
  one, eight = _pair(outputs, f'{case}/params')
  assert one.shape == (6, 26) and not np.allclose(one[0], one[1], rtol=.1)
  difference = np.abs(one - eight).max() / np.abs(one).max()
  assert difference <= (1e-6 if case == 'sgd' else 1e-3)
  if case != 'sgd':
    one, eight = _pair(outputs, f'{case}/means')
    assert one.shape == (6, 20, 26) and np.mean(one != eight) <= 0.01


def _noise_is_drawn_once(means, stddev):
  """Checks that releases [L, T, P] of 0 are independent noise, drawn once.

  A chi-square test with L T P degrees of freedom at error rate 1e-6 refutes a
  standard deviation that is more than 8 % off, such as 8 times `stddev`.
  """
  draws = np.float64(means) / stddev
  distribution = stats.chi2(draws.size)
  assert (distribution.ppf(_ERROR / 2) < np.sum(draws**2) <
          distribution.isf(_ERROR / 2))
  # No values repeat among runs and steps (rows) or leaves and shards (parts).
  rows = draws.reshape(-1, draws.shape[-1])
  for vectors in (rows, rows[:, :24].reshape(-1, 3)):
    assert len(np.unique(vectors, axis=0)) == len(vectors)
  off_diagonal = ~np.eye(len(rows), dtype=bool)
  bound = np.tanh(stats.norm.isf(_ERROR / off_diagonal.sum())
                  / np.sqrt(rows.shape[1] - 3))
  assert np.abs(np.corrcoef(rows)[off_diagonal]).max() < bound


@pytest.mark.every(2)
@pytest.mark.parametrize('case', ['dp_sgd', 'lattice'])
def test_noise_is_neither_repeated_nor_missing(outputs, case):
  """Noise is drawn once: with zero records a
  release is its noise, bit by bit."""
  one, eight = _without_records(outputs, case)
  assert one.shape == (4, 20, 26)
  np.testing.assert_array_equal(one, eight)
  _noise_is_drawn_once(eight, _STDDEV)


@pytest.mark.every(4)
@pytest.mark.parametrize('fault', ['repeated', 'missing'])
def test_fault_noise_in_every_shard(outputs, fault):
  """Noise drawn in every shard has 8 times or
  1/8 of the variance and must fail."""
  means = outputs[fault][2:]
  ratio = np.var(means / _STDDEV) * (1 / 8 if fault == 'repeated' else 8)
  assert 0.8 < ratio < 1.25
  assert np.mean(means == next(_without_records(outputs, 'dp_sgd'))) < 0.1
  with pytest.raises(AssertionError):
    _noise_is_drawn_once(means, _STDDEV)


@pytest.mark.every(3)
def test_indicators_are_noised_once_as_well(outputs):
  """Indicators are noised once: without
  records, radii move by that noise alone."""
  one, eight = (radii[0, :, 2:]
                for radii in _pair(outputs, 'dp_sgd_adaptive/radii'))
  assert one.shape == (20, 4)
  np.testing.assert_array_equal(one, eight)
  np.testing.assert_array_equal(*_without_records(outputs, 'dp_sgd_adaptive'))
  moves = np.diff(np.log(np.float64(eight)), axis=0) / 0.2 * 30 / 4.0
  distribution = stats.chi2(moves.size)
  assert (distribution.ppf(_ERROR / 2) < np.sum(moves**2) <
          distribution.isf(_ERROR / 2))


def test_rows_are_divided_and_sums_reduced_once(outputs):
  """A compiled step puts 7 of 56 rows on each device and only reduces sums."""
  program = outputs['program']
  assert not re.findall(r'f32\[56[\],]', program)
  products = re.findall(r'= f32\[(\d+),4\]\S* dot\(', program)
  assert '7' in products
  reduced = re.findall(r'= (.*) all-reduce\(', program)
  # All sums are reduced at once; the number of bad records is an integer.
  assert len(reduced) == 2
  assert sorted(re.findall(r'[fs]32\[[\d,]*\]', ' '.join(reduced))) == sorted([
    'f32[]', 'f32[4]', 'f32[2]', 'f32[3,4]', 'f32[4,2]', 's32[]'])
  assert program.count('{{0,1,2,3,4,5,6,7}}') == 2
  for other in ('all-gather', 'all-to-all', 'collective-permute',
                'reduce-scatter'):
    assert other not in program


@pytest.mark.every(2)
def test_a_mesh_that_does_not_fit_is_refused(make_model, make_method, records):
  model = make_model(True)
  plan = loop.TrainingPlan(
      sampler=PoissonSampler(num_examples=60, batch_size=12,
                                        max_batch_size=9),
      num_steps=1, noise_multiplier=1., adjacency=Adjacency.REPLACE_ONE)
  rows = jax.numpy.arange(60, dtype=jax.numpy.int32)[None]
  for mesh, message in (
      (sharding.data_mesh(2), 'max_batch_size must be a multiple of the 2 '
       'devices of the mesh, got 9; 10 is one'),
      (jax.sharding.Mesh(np.array(jax.devices()[:2]), ('model',)),
       "the mesh must have one axis, 'data', got 'model'")):
    with pytest.raises(ValueError) as caught:
      loop.fit(jax.random.split(jax.random.key(0), 1), plans=[plan],
               model=model, method=make_method('lip_dp_sgd', make_model(True)),
               optimizer=optax.sgd(.1), records=records, rows=rows, mesh=mesh)
    assert str(caught.value) == message


@pytest.mark.parametrize('number, message', [
  (3, 'num_devices must be at most 2, the number of devices, got 3'),
  (0, 'num_devices must be an integer >= 1, got 0'),
  (1.5, 'num_devices must be an integer >= 1, got 1.5')])
def test_devices_that_are_not_there_are_refused(number, message):
  with pytest.raises(ValueError) as caught:
    sharding.data_mesh(number, devices=jax.devices()[:2])
  assert str(caught.value) == message
