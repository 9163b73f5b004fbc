"""A step against one built anew, on poisoned data, and with planted faults."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from dpjax import tree
from dpjax.grads import bounder as bounders
from dpjax.grads import privatizer
from dpjax.lipschitz.network import Network
from dpjax.privacy import additive
from dpjax.privacy import blocks
from dpjax.sampling import PoissonSampler
from dpjax.train import step as steps
from dpjax.typing import Batch

MULTIPLIER = 1.3
LEARNING_RATE = 0.4
SAMPLER = PoissonSampler(num_examples=50, batch_size=12, max_batch_size=9)
ROWS = jnp.asarray(np.random.default_rng(5).permutation(60)[:50], jnp.int32)
PRIVATE = ('dp_sgd', 'lip_dp_sgd', 'fix_lip_dp_sgd')


def _make_run(make_model, make_method, change=lambda method: method):
  """(name, records, ...) -> (model, states, infos) of some steps.

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


@pytest.fixture(name='run', scope='module')
def _run(make_model, make_method):
  return _make_run(make_model, make_method)


@pytest.fixture(name='faulty')
def _faulty(make_model, make_method):
  """Like `run`, compiled anew with the faults that were patched in."""
  return _make_run(make_model, make_method)


def _flat(values):
  return np.concatenate([np.ravel(np.asarray(leaf, np.float64))
                         for leaf in jax.tree.leaves(values)])


# The reference: float64, record by record, sharing the keys' bits only.


def _forward_backward(params, x, y, radii):
  """One record's gradients by hand: tanh, dense layers, values in balls."""
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
  """The certified norm by its definition, order 32, two columns exactly."""
  values = np.linalg.svd(kernel, compute_uv=False)
  if min(kernel.shape) <= 2:
    return values[0]
  return values[0] * np.sum((values / values[0])**32)**(1 / 32)


def _reference_step(name, state):
  """The next parameters, from the text of the method."""
  def step(params, index, records):
    batch_key = jax.random.fold_in(state.keys.batch, index)
    words = jax.random.bits(batch_key, [50], jnp.uint32)
    chosen = np.asarray(words, np.int64) < round(12 / 50 * 2**32)
    names = sorted(params)
    radii = None if name == 'dp_sgd' else [1.5, 1.]
    gradients = [_forward_backward(params, records.x[row], int(records.y[row]),
                                   radii)
                 for row in np.asarray(ROWS)[chosen]]
    if name == 'dp_sgd':
      for gradient in gradients:
        norm = np.linalg.norm(_flat(gradient))
        for layer in gradient.values():
          for leaf in layer.values():
            leaf *= min(1, 0.7 / norm)
      sensitivities, sizes = [0.7], [tree.count(params)]
    else:
      sensitivities, cotangent = [], np.sqrt(2)
      for layer, radius in zip(reversed(names), reversed(radii)):
        sensitivities.insert(0, cotangent * np.sqrt(radius**2 + 1))
        cotangent *= _schatten(params[layer]['kernel'])
      sizes = [tree.count(params[layer]) for layer in names]
    root = np.sqrt(sizes)
    stddevs = MULTIPLIER * np.sqrt(
      np.sum(sensitivities * root) * np.array(sensitivities) / root)
    draws = np.float64(additive.standard_normal(
      jax.random.fold_in(state.keys.noise, index), (sum(sizes),)))
    noise = np.split(draws * np.repeat(stddevs, sizes), np.cumsum(
      [leaf.size for leaf in jax.tree.leaves(params)])[:-1])
    leaves, structure = jax.tree.flatten(params)
    sums = [np.zeros_like(leaf) for leaf in leaves]
    for gradient in gradients:
      for total, leaf in zip(sums, jax.tree.leaves(gradient), strict=True):
        total += leaf
    # The release is rounded to the power of two in (s / 512, s / 256].
    grids = np.repeat(2.0**(np.floor(np.log2(stddevs)) - 8), [
      len(leaves) // len(sizes)] * len(sizes))
    noisy = [grid * np.round((total + draw.reshape(total.shape)) / grid)
             for grid, total, draw in zip(grids, sums, noise, strict=True)]
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


def check_steps(run, name, records, num_steps=2):
  """Parameters, sensitivities and batch sizes, step after step."""
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


@pytest.mark.parametrize('name', PRIVATE)
def test_steps_are_those_of_the_reference(run, name, records):
  check_steps(run, name, records, num_steps=4)


def test_non_private_step_is_a_mean_gradient(run, records):
  _, states, infos = run('sgd', records)
  params = jax.tree.map(np.float64, states[0].params)
  words = jax.random.bits(jax.random.fold_in(states[0].keys.batch, 0), [50],
                          jnp.uint32)
  chosen = np.asarray(words, np.int64) < round(12 / 50 * 2**32)
  total = sum(_flat(_forward_backward(params, records.x[row],
                                      int(records.y[row]), None))
              for row in np.asarray(ROWS)[chosen])
  np.testing.assert_allclose(
    _flat(states[1].params), _flat(params) - LEARNING_RATE * total / 12,
    atol=1e-5)
  assert float(infos[0].joint_noise_multiplier) == np.inf
  assert float(infos[0].l2_sensitivity[0]) == np.inf


# Checks that the real step passes and that planted faults must fail.


def check_scales_do_not_read_records(run, name, records):
  """With every record NaN the step is its noise, at unchanged scales."""
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
    draws = np.float64(additive.standard_normal(
      jax.random.fold_in(before.keys.noise, 0), (moved.size,)))
    expected = -LEARNING_RATE * MULTIPLIER * 0.7 / 12 * draws
    np.testing.assert_allclose(moved, expected, atol=2e-4)
  assert not np.array_equal(_flat(after.params), _flat(clean.params))


def check_empty_batches_are_stepped(run, name, records):
  """No step is skipped or drawn again: noise is there all the same."""
  sampler = PoissonSampler(num_examples=4, batch_size=0.5)
  _, states, infos = run(name, records, num_steps=20, sampler=sampler)
  sizes = np.array([int(info.batch_size) for info in infos])
  # P(empty) = (7/8)^4 = 0.586: none among 20 has probability 2e-8.
  assert np.any(sizes == 0)
  for index in np.flatnonzero(sizes == 0):
    moved = _flat(states[index + 1].params) - _flat(states[index].params)
    assert np.count_nonzero(moved) > 0.9 * moved.size


def check_noise_is_fresh(run, records, num_steps=6):
  """Steps on no signal at all: increments neither repeat nor correlate."""
  poisoned = Batch(jnp.full_like(records.x, jnp.nan), records.y)
  moves = []
  for seed in (0, 1):
    _, states, _ = run('dp_sgd', poisoned, num_steps=num_steps, seed=seed)
    moves.extend(np.diff([_flat(state.params) for state in states], axis=0))
  moves = np.array(moves)
  # Chi-square with 312 degrees of freedom or more: a scale that is off by a
  # third is beyond five deviations.
  statistic = np.sum((moves * 12 / (LEARNING_RATE * MULTIPLIER * 0.7))**2)
  law = stats.chi2(moves.size)
  assert law.ppf(5e-7) < statistic < law.isf(5e-7)
  # 26 weights: the Fisher transform of r has deviation 1 / sqrt(23).
  off_diagonal = ~np.eye(len(moves), dtype=bool)
  correlations = np.corrcoef(moves)[off_diagonal]
  bound = np.tanh(stats.norm.isf(1e-6 / off_diagonal.sum()) / np.sqrt(23))
  assert np.abs(correlations).max() < bound


@pytest.mark.parametrize('name', PRIVATE)
def test_scales_do_not_read_records(run, name, records):
  check_scales_do_not_read_records(run, name, records)


def test_empty_batches_are_stepped(run, records):
  check_empty_batches_are_stepped(run, 'dp_sgd', records)


@pytest.mark.parametrize('name', ['lip_dp_sgd', 'fix_lip_dp_sgd'])
def test_norms_hold_after_every_step(run, name, records):
  """Whatever the records are, by float64 SVD."""
  hostile = Batch(records.x * 1e25, records.y)
  _, states, _ = run(name, hostile, num_steps=8)
  for state in states:
    for layer, certified in state.certificate.items():
      norm = np.linalg.norm(np.float64(state.params[layer]['kernel']), 2)
      assert norm <= min(0.9, float(certified))
      if name == 'fix_lip_dp_sgd':
        assert norm >= 0.9 / 1.03


def test_noise_is_fresh_at_every_step(run, records):
  check_noise_is_fresh(run, records, num_steps=40)


def test_keys_of_batch_noise_and_start_differ(run, records):
  _, (state, _), _ = run('dp_sgd', records)
  words = [tuple(np.ravel(jax.random.key_data(key))) for key in state.keys]
  assert len(set(words)) == 3
  assert state.optimizer[0].key == state.keys.noise


def test_parts_of_a_batch_change_nothing(run, records):
  """Batches larger than `max_batch_size` are worked off, not cut."""
  whole = PoissonSampler(num_examples=50, batch_size=12, max_batch_size=50)
  _, states, infos = run('dp_sgd', records, num_steps=2, sampler=whole)
  assert int(infos[0].batch_size) > SAMPLER.part_size
  _, in_parts, _ = run('dp_sgd', records, num_steps=2)
  # One point of the release's grid, if a rounding falls the other way.
  slack = LEARNING_RATE * MULTIPLIER * 0.7 / 12 / 256 + 1e-6
  np.testing.assert_allclose(_flat(states[-1].params),
                             _flat(in_parts[-1].params), atol=slack)


# Planted faults.


def _fails(check, *arguments):
  """The check turns the fault down, and not by a crash."""
  with pytest.raises(AssertionError):
    check(*arguments)


def test_fault_no_noise(faulty, records, monkeypatch):
  monkeypatch.setattr(additive, 'add_gaussian_noise',
                      lambda key, values, stddevs: values)
  _fails(check_steps, faulty, 'dp_sgd', records)
  _fails(check_noise_is_fresh, faulty, records)


def test_fault_noise_divided_twice(faulty, records, monkeypatch):
  honest = additive.add_gaussian_noise
  monkeypatch.setattr(
    additive, 'add_gaussian_noise', lambda key, values, stddevs: honest(
      key, values, tree.scale(1 / 12, stddevs)))
  _fails(check_steps, faulty, 'dp_sgd', records)
  _fails(check_noise_is_fresh, faulty, records)


def test_fault_same_noise_at_every_step(faulty, records, monkeypatch):
  honest = privatizer.gaussian_privatizer

  def frozen(key, **settings):
    made = honest(key, **settings)
    return made._replace(update=lambda sums, state, params, **given:
                         made.update(sums, state._replace(step=jnp.int32(0)),
                                     params, **given))

  monkeypatch.setattr(privatizer, 'gaussian_privatizer', frozen)
  _fails(check_noise_is_fresh, faulty, records)
  _fails(check_steps, faulty, 'dp_sgd', records)


def test_fault_same_batch_at_every_step(faulty, records, monkeypatch):
  honest = PoissonSampler.draw
  monkeypatch.setattr(PoissonSampler, 'draw', lambda self, key: honest(
    self, jax.random.key(0)))
  _fails(check_steps, faulty, 'dp_sgd', records)


def test_fault_empty_batches_are_drawn_again(faulty, records, monkeypatch):
  """Erratum E5."""
  honest = PoissonSampler.draw

  def again(self, key):
    draws = jax.vmap(lambda k: honest(self, k))(jax.random.split(key, 30))
    first = jnp.argmax(draws.count > 0)
    return jax.tree.map(lambda leaf: leaf[first], draws)

  monkeypatch.setattr(PoissonSampler, 'draw', again)
  _fails(check_empty_batches_are_stepped, faulty, 'dp_sgd', records)


def test_fault_empty_batches_are_skipped(faulty, records, monkeypatch):
  honest = additive.add_gaussian_noise

  def skipping(key, values, stddevs):
    empty = tree.squared_norm(values) == 0
    return jax.tree.map(lambda a, b: jnp.where(empty, a, b), values,
                        honest(key, values, stddevs))

  monkeypatch.setattr(additive, 'add_gaussian_noise', skipping)
  _fails(check_scales_do_not_read_records, faulty, 'dp_sgd', records)


def _with_sums(make_model, make_method, sums_of):
  """A run whose bounder's sums are `sums_of(honest sums)`."""
  return _make_run(
    make_model, make_method, change=lambda method: method._replace(
      bounder=method.bounder._replace(sums=sums_of(method.bounder.sums))))


def test_fault_mask_ignored(make_model, make_method, records):
  run = _with_sums(make_model, make_method, lambda sums: (
    lambda params, batch, mask: sums(params, batch, jnp.ones_like(mask))))
  _fails(check_steps, run, 'lip_dp_sgd', records)


def test_fault_realised_batch_size(make_model, make_method, records):
  """Erratum E4: the mean over the records that happened to be drawn."""
  def realised(sums):
    def mean(params, batch, mask):
      honest = sums(params, batch, mask)
      share = 12 / jnp.maximum(jnp.sum(mask, dtype=jnp.float32), 1)
      return honest._replace(total=tree.scale(share, honest.total))
    return mean

  run = _with_sums(make_model, make_method, realised)
  _fails(check_steps, run, 'lip_dp_sgd', records)


def test_fault_large_batches_are_cut(faulty, records, monkeypatch):
  honest = PoissonSampler.draw

  def cut(self, key):
    drawn = honest(self, key)
    return drawn._replace(count=jnp.minimum(drawn.count, self.part_size))

  monkeypatch.setattr(PoissonSampler, 'draw', cut)
  _fails(check_steps, faulty, 'dp_sgd', records)


def test_fault_product_over_the_wrong_layers(faulty, records, monkeypatch):
  """Erratum E3, in the loop: sensitivities are checked, not only used."""
  honest = Network.gradient_bounds

  def own_included(network, norms, *, loss_lipschitz, rule):
    found = honest(network, norms, loss_lipschitz=loss_lipschitz, rule=rule)
    return {name: bound * norms[name] for name, bound in found.items()}

  monkeypatch.setattr(Network, 'gradient_bounds', own_included)
  _fails(check_steps, faulty, 'lip_dp_sgd', records)


def test_fault_blocks_noised_each_as_if_alone(faulty, records, monkeypatch):
  """Erratum E2."""
  monkeypatch.setattr(
    blocks, 'allocate', lambda found, *, noise_multiplier, rule, sizes:
    noise_multiplier * found)
  _fails(check_steps, faulty, 'lip_dp_sgd', records)


def test_fault_scale_read_off_the_batch(faulty, records, monkeypatch):
  """Erratum E1's family: noise that depends on the records."""
  honest = additive.add_gaussian_noise

  def adaptive(key, values, stddevs):
    size = jnp.minimum(1.0, tree.global_norm(values))
    return honest(key, values, tree.scale(size, stddevs))

  monkeypatch.setattr(additive, 'add_gaussian_noise', adaptive)
  _fails(check_scales_do_not_read_records, faulty, 'dp_sgd', records)


def test_fault_weights_left_free(make_model, make_method, records):
  # A large start, so that there is something to hold back.
  fixed = {'dense_00': jnp.float32(0.9), 'dense_01': jnp.float32(0.9)}
  free = bounders.WeightConstraint(
    lambda params: (tree.scale(3., params), fixed))
  run = _make_run(make_model, make_method, lambda method: (
    method._replace(constraint=free)))
  _fails(check_steps, run, 'lip_dp_sgd', records)
