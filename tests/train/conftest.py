"""This module has toy data, toy methods and checks for every training step."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from dpjax import tree
from dpjax.lipschitz import losses
from dpjax.models import mlp
from dpjax.privacy import additive
from dpjax.sampling import PoissonSampler
from dpjax.train import methods
from dpjax.train import step as steps
from dpjax.typing import Batch

LOSS = losses.cross_entropy()
MULTIPLIER = 1.3
LEARNING_RATE = 0.4
SAMPLER = PoissonSampler(num_examples=50, batch_size=12, max_batch_size=9)
ROWS = jnp.asarray(np.random.default_rng(5).permutation(60)[:50], jnp.int32)


@pytest.fixture(scope='module', autouse=True)
def _quick_compilation():
  """Turns off XLA optimisations, which take
  these programs longer than running."""
  jax.config.update('jax_disable_most_optimizations', True)
  yield
  jax.config.update('jax_disable_most_optimizations', False)


@pytest.fixture(scope='session')
def records():
  """Returns 60 records with 3 features and 2 classes."""
  rng = np.random.default_rng(0)
  x = rng.normal(size=(60, 3))
  y = (x[:, 0] + 0.5 * rng.normal(size=60) > 0)
  return Batch(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.int32))


@pytest.fixture(scope='session')
def make_model():
  """Returns a function (bounded: bool) -> a perceptron of layer sizes 3, 4, 2.
  """
  def make(bounded):
    radii = {'input_radius': 1.5, 'hidden_radius': 1.} if bounded else {}
    return mlp.mlp(num_features=3, num_classes=2, depth=1, width=4,
                   **radii)
  return make


@pytest.fixture(scope='session')
def make_method():
  """Returns a function (name, model) -> a training method, fixed settings."""
  def make(name, model):
    return {
      'sgd': lambda: methods.sgd(model, LOSS),
      'dp_sgd': lambda: methods.dp_sgd(model, LOSS, clip_norm=0.7),
      'lip_dp_sgd': lambda: methods.lip_dp_sgd(model, LOSS, weight_norm=0.9),
      'fix_lip_dp_sgd': lambda: methods.fix_lip_dp_sgd(
        model, LOSS, weight_norm=0.9)}[name]()
  return make


def _make_run(make_model, make_method, change=lambda method: method):
  """Returns a function from (name, records, ...) to (model, states, infos).

  Each setting compiles once, so a fault must be patched in before.

  Compiles once for each setting; a fault must be patched in before.

  Args:
    make_model: the fixture.
    make_method: the fixture.
    change: applied to the method, to plant a fault.
  """
  cache = {}

  def build(name, sampler):
    model = make_model(name not in ('dp_sgd', 'sgd'))
    method = change(make_method(name, model))
    transform_of = lambda key: steps.make_transform(
      method, sampler, optax.sgd(LEARNING_RATE), key=key,
      noise_multiplier=MULTIPLIER, allocation='optimal')
    init = lambda key: steps.init_state(key, model=model, method=method,
                                        transform_of=transform_of)
    step = steps.make_step(method=method, sampler=sampler,
                           transform_of=transform_of)
    return model, jax.jit(init), jax.jit(step)

  def run(name, records, *, num_steps=1, seed=0, sampler=SAMPLER):
    if (name, sampler) not in cache:
      cache[name, sampler] = build(name, sampler)
    model, init, step = cache[name, sampler]
    states, infos = [init(jax.random.key(seed))], []
    for _ in range(num_steps):
      state, info = step(states[-1], records, ROWS[:sampler.num_examples])
      states.append(state)
      infos.append(info)
    return model, states, infos

  return run


@pytest.fixture(scope='module')
def run(make_model, make_method):
  """Returns the honest step, compiled once per test file."""
  return _make_run(make_model, make_method)


@pytest.fixture
def faulty(make_model, make_method):
  """Returns a function like `run` that is
  compiled after faults are patched in."""
  return _make_run(make_model, make_method)


def _flat(values):
  return np.concatenate([np.ravel(np.asarray(leaf, np.float64))
                         for leaf in jax.tree.leaves(values)])


# The reference computes in float64, record by record, from the same keys.


def _forward_backward(params, x, y, radii):
  """Returns one record's gradients, computed by hand for tanh dense layers.

  Values lie in balls of the radii, unless these are None.
  """
  names, values = sorted(params), np.asarray(x, np.float64)
  inputs, jacobians = [], []
  for index, name in enumerate(names):
    jacobian = np.eye(values.size)
    if index > 0:
      cap = 1 if radii is None else radii[index] / np.sqrt(values.size)
      values = cap * np.tanh(values / cap)
      jacobian = np.diag(1 - (values / cap)**2)
    elif radii is not None and np.linalg.norm(values) > radii[index]:
      norm = np.linalg.norm(values)
      unit = values / norm
      jacobian = (np.eye(values.size) - np.outer(unit, unit)) @ jacobian * (
        radii[index] / norm)
      values = radii[index] * unit
    inputs.append(values)
    jacobians.append(jacobian)
    values = values @ params[name]['kernel'] + params[name]['bias']
  cotangent = np.exp(values - values.max())
  cotangent = cotangent / cotangent.sum() - np.eye(values.size)[y]
  gradient = {}
  for index in reversed(range(len(names))):
    gradient[names[index]] = {'kernel': np.outer(inputs[index], cotangent),
                              'bias': cotangent}
    cotangent = jacobians[index].T @ (
      params[names[index]]['kernel'] @ cotangent)
  return gradient


def _schatten(kernel):
  """Returns the certified norm: Schatten 32, or
  exact for at most two columns."""
  values = np.linalg.svd(kernel, compute_uv=False)
  if min(kernel.shape) <= 2:
    return values[0]
  return values[0] * np.sum((values / values[0])**32)**(1 / 32)


def _contributions(name, params, rows):
  """Returns (each record's gradient, its bounds
  by block, the sizes of the blocks)."""
  radii = None if name == 'dp_sgd' else [1.5, 1.]
  gradients = [_forward_backward(params, x, int(y), radii) for x, y in rows]
  if name == 'dp_sgd':
    for gradient in gradients:
      norm = np.linalg.norm(_flat(gradient))
      for layer in gradient.values():
        for leaf in layer.values():
          leaf *= min(1, 0.7 / norm)
    return gradients, [0.7], [tree.count(params)]
  names = sorted(params)
  sensitivities, cotangent = [], np.sqrt(2)
  for layer, radius in zip(reversed(names), reversed(radii)):
    sensitivities.insert(0, cotangent * np.sqrt(radius**2 + 1))
    cotangent *= _schatten(params[layer]['kernel'])
  return gradients, sensitivities, [tree.count(params[layer])
                                    for layer in names]


def _noisy_sums(gradients, params, draws, stddevs, sizes):
  """Returns the leaves of the sum with noise added by block, then rounded."""
  leaves = jax.tree.leaves(params)
  noise = np.split(draws * np.repeat(stddevs, sizes), np.cumsum(
    [leaf.size for leaf in leaves])[:-1])
  sums = [np.zeros_like(leaf) for leaf in leaves]
  for gradient in gradients:
    for total, leaf in zip(sums, jax.tree.leaves(gradient), strict=True):
      total += leaf
  # The release is rounded to the power of two in (s / 512, s / 256].
  grids = np.repeat(2.0**(np.floor(np.log2(stddevs)) - 8), [
    len(leaves) // len(sizes)] * len(sizes))
  return [grid * np.round((total + draw.reshape(total.shape)) / grid)
          for grid, total, draw in zip(grids, sums, noise, strict=True)]


def _reference_step(name, state):
  """Returns a float64 step function written from the text of the method."""
  def step(params, index, records):
    batch_key = jax.random.fold_in(state.keys.batch, index)
    words = additive.random_words(batch_key, (50,))
    chosen = np.asarray(words, np.int64) < round(12 / 50 * 2**32)
    gradients, sensitivities, sizes = _contributions(
      name, params, [(records.x[row], records.y[row])
                     for row in np.asarray(ROWS)[chosen]])
    root = np.sqrt(sizes)
    stddevs = MULTIPLIER * np.sqrt(
      np.sum(sensitivities * root) * np.array(sensitivities) / root)
    draws = _flat(additive.unit_noise(
      jax.random.fold_in(state.keys.noise, index), params))
    noisy = _noisy_sums(gradients, params, draws, stddevs, sizes)
    leaves, structure = jax.tree.flatten(params)
    params = jax.tree.unflatten(structure, [
      leaf - LEARNING_RATE * mean / 12
      for leaf, mean in zip(leaves, noisy, strict=True)])
    for layer in params if name != 'dp_sgd' else []:
      upper = _schatten(params[layer]['kernel'])
      factor = 0.9 / upper if name == 'fix_lip_dp_sgd' else min(
        1, 0.9 / upper)
      params[layer]['kernel'] = params[layer]['kernel'] * factor
    return params, int(chosen.sum()), sensitivities, stddevs

  return step


def _steps(run, name, records, num_steps=2):
  """Checks parameters, sensitivities and batch
  sizes of each step by reference."""
  model, states, infos = run(name, records, num_steps=num_steps)
  reference = _reference_step(name, states[0])
  for index, (state, info) in enumerate(zip(states, infos)):
    params = jax.tree.map(np.float64, state.params)
    expected, size, sensitivities, stddevs = reference(params, index, records)
    error = np.abs(_flat(states[index + 1].params) - _flat(expected))
    # Where a sum lies between two points of the grid float32 may take the
    # other one, and the constraint then rescales its whole layer.
    assert np.median(error) <= 1e-5
    assert error.max() <= 2 * LEARNING_RATE * stddevs.max() / 12 / 256
    assert int(info.batch_size) == size and int(info.num_nonfinite) == 0
    np.testing.assert_allclose(info.l2_sensitivity, sensitivities, rtol=1e-4)
    assert MULTIPLIER <= float(info.joint_noise_multiplier) < (
      MULTIPLIER * (1 + 1e-5))
    assert int(states[index + 1].step) == index + 1


# The checks pass for the real step and must fail for planted faults.


def _scales_do_not_read_records(run, name, records):
  """Checks that a step on NaN records is pure noise at unchanged scales."""
  poisoned = Batch(jnp.full_like(records.x, jnp.nan), records.y)
  _, (before, after), (info,) = run(name, poisoned)
  _, (_, clean), (clean_info,) = run(name, records)
  assert int(info.batch_size) == int(info.num_nonfinite) > 0
  assert int(clean_info.num_nonfinite) == 0
  assert float(info.mean_loss) == 0
  for public in ('l2_sensitivity', 'joint_noise_multiplier', 'batch_size'):
    np.testing.assert_array_equal(getattr(info, public),
                                  getattr(clean_info, public))
  assert np.all(np.isfinite(_flat(after.params)))
  if name == 'dp_sgd':
    moved = _flat(after.params) - _flat(before.params)
    draws = _flat(additive.unit_noise(
      jax.random.fold_in(before.keys.noise, 0), before.params))
    expected = -LEARNING_RATE * MULTIPLIER * 0.7 / 12 * draws
    np.testing.assert_allclose(moved, expected, atol=2e-4)
  assert not np.array_equal(_flat(after.params), _flat(clean.params))


def _empty_batches_are_stepped(run, name, records):
  """Checks that an empty batch is neither skipped nor redrawn, but noised."""
  sampler = PoissonSampler(num_examples=4, batch_size=0.5)
  _, states, infos = run(name, records, num_steps=20, sampler=sampler)
  sizes = np.array([int(info.batch_size) for info in infos])
  # P(empty) = (7/8)^4 = 0.586: none among 20 has probability 2e-8.
  assert np.any(sizes == 0)
  for index in np.flatnonzero(sizes == 0):
    moved = _flat(states[index + 1].params) - _flat(states[index].params)
    assert np.count_nonzero(moved) > 0.9 * moved.size


def _noise_is_fresh(run, records, num_steps=6):
  """Checks that noise-only steps neither repeat nor correlate."""
  poisoned = Batch(jnp.full_like(records.x, jnp.nan), records.y)
  moves = []
  for seed in (0, 1):
    _, states, _ = run('dp_sgd', poisoned, num_steps=num_steps, seed=seed)
    moves.extend(np.diff([_flat(state.params) for state in states], axis=0))
  moves = np.array(moves)
  # The chi-square test has 312 degrees of freedom or more: a scale that is off
  # by a third is beyond five deviations.
  statistic = np.sum((moves * 12 / (LEARNING_RATE * MULTIPLIER * 0.7))**2)
  distribution = stats.chi2(moves.size)
  assert distribution.ppf(5e-7) < statistic < distribution.isf(5e-7)
  # With 26 weights, the Fisher transform of r has deviation 1 / sqrt(23).
  off_diagonal = ~np.eye(len(moves), dtype=bool)
  correlations = np.corrcoef(moves)[off_diagonal]
  bound = np.tanh(stats.norm.isf(1e-6 / off_diagonal.sum()) / np.sqrt(23))
  assert np.abs(correlations).max() < bound


@pytest.fixture(scope='session')
def checks():
  """Returns the checks above and the helpers that they use."""
  return types.SimpleNamespace(
    flat=_flat, make_run=_make_run, forward_backward=_forward_backward,
    steps=_steps,
    scales_do_not_read_records=_scales_do_not_read_records,
    empty_batches_are_stepped=_empty_batches_are_stepped,
    noise_is_fresh=_noise_is_fresh)
