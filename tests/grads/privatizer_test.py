"""Measures the privatizer's noise, and plants faults that must show."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from dpjax import tree
from dpjax.grads import privatizer
from dpjax.privacy import additive
from dpjax.privacy import blocks

MULTIPLIER = 1.7
EXPECTED_BATCH_SIZE = 6.5
BOUNDS = {'a': 0.3, 'b': 2.0, 'c': 11.0}
SIZES = {'a': 8000, 'b': 12000, 'c': 9000}
ALPHA = 1e-6  # Rate of false alarms of each check, over all its comparisons.


def _bounds():
  return {name: jnp.float32(bound) for name, bound in BOUNDS.items()}


def _sums(value=0.):
  """Returns sums of three blocks, of which 'b' has two leaves."""
  full = lambda *shape: jnp.full(shape, value, jnp.float32)
  return {'a': full(80, 100), 'b': {'u': full(4000), 'v': full(80, 100)},
          'c': full(9000)}


def _transform(key=None, allocation='optimal'):
  return privatizer.gaussian_privatizer(
    jax.random.key(0) if key is None else key, noise_multiplier=MULTIPLIER,
    expected_batch_size=EXPECTED_BATCH_SIZE, allocation=allocation)


def _run(transform, num_steps=1, value=0.):
  """Returns the released means of some steps, and the last state."""
  sums = _sums(value)
  state = transform.init(sums)
  released = []
  update = jax.jit(lambda sums, state, bounds: transform.update(
    sums, state, l2_sensitivity=bounds))
  for _ in range(num_steps):
    mean, state = update(sums, state, _bounds())
    released.append(mean)
  return released, state


def _flat(values):
  return np.concatenate([np.ravel(np.asarray(leaf, np.float64))
                         for leaf in jax.tree.leaves(values)])


def _expected_stddevs(allocation):
  """Returns the standard deviations that the stated rules give, in float64."""
  bounds = np.array(list(BOUNDS.values()))
  sizes = np.array(list(SIZES.values()))
  if allocation == 'equal':
    return MULTIPLIER * np.sqrt(3) * bounds
  if allocation == 'global':
    return np.full(3, MULTIPLIER * np.sqrt(np.sum(bounds**2)))
  total = np.sum(bounds * np.sqrt(sizes))
  return MULTIPLIER * np.sqrt(total * bounds) * sizes**-0.25


# Checks that the real privatizer passes and that planted faults must fail.


def check_stddevs(transform, stddevs, value=0.):
  """Checks each block's variance around `value` / divisor by chi-square.

  Power: with 8000 draws a standard deviation off by 10 % is 13 deviations
  of the variance estimate away.
  """
  noise = [_flat(block) - value / EXPECTED_BATCH_SIZE
           for block in _run(transform, value=value)[0][0].values()]
  for block, stddev in zip(noise, stddevs, strict=True):
    stddev = stddev / EXPECTED_BATCH_SIZE
    chi2 = stats.chi2(block.size)
    statistic = np.sum(block**2) / stddev**2
    assert chi2.ppf(ALPHA / 12) < statistic < chi2.isf(ALPHA / 12)
    bound = stats.norm.isf(ALPHA / 12) * stddev / np.sqrt(block.size)
    assert abs(block.mean()) < bound
    # Kolmogorov-Smirnov tests the shape, not only the second moment.
    assert stats.kstest(block / stddev, 'norm').pvalue > ALPHA / 6


def check_joint_multiplier(transform):
  """Checks by measured noise that the multiplier is not below the plan.

  The relative error of each measured variance has standard deviation
  sqrt(2 / 8000) = 0.016 at most, that of z at most half of it.
  """
  released, state = _run(transform)
  shares = [(bound / EXPECTED_BATCH_SIZE)**2 / np.mean(_flat(block)**2)
            for bound, block in zip(_bounds().values(),
                                    released[0].values(), strict=True)]
  measured = np.sum(shares)**-0.5
  assert MULTIPLIER * (1 - 0.04) < measured < MULTIPLIER * (1 + 0.04)
  assert float(state.joint_noise_multiplier) == pytest.approx(
    MULTIPLIER, rel=1e-5)
  assert float(state.joint_noise_multiplier) >= MULTIPLIER


def check_independence():
  """Checks that steps, leaves and runs are uncorrelated."""
  first, second = (
    _run(_transform(jax.random.key(seed)), num_steps=3)[0]
    for seed in (0, 1))
  noises = [leaf for means in first + second
            for leaf in (_flat(means['a']), _flat(means['c'])[:8000],
                         _flat(means['b']['v']),
                         np.repeat(_flat(means['b']['u']), 2))]
  correlations = np.corrcoef(noises)
  size = len(noises)
  others = correlations[~np.eye(size, dtype=bool)]
  # A repeated leaf has 4000 independent entries.
  assert np.abs(others).max() < stats.norm.isf(ALPHA / size**2) / np.sqrt(4000)
  # Neighbouring entries and halves of a leaf are uncorrelated, too.
  block = noises[0]
  for lag in (1, 100, 4000):
    lagged = np.corrcoef(block[lag:], block[:-lag])[0, 1]
    assert abs(lagged) < stats.norm.isf(ALPHA / 6) / np.sqrt(4000)


def check_divisor(transform):
  """Checks that the mean is the sum over a public constant, up to noise."""
  value = 1e4
  mean = _flat(_run(transform, value=value)[0][0]['a'])
  stddev = _expected_stddevs('optimal')[0] / EXPECTED_BATCH_SIZE
  assert abs(mean.mean() - value / EXPECTED_BATCH_SIZE) < 6 * stddev / np.sqrt(
    mean.size)


# The real privatizer passes these checks.


@pytest.mark.every(4)
@pytest.mark.parametrize('allocation', blocks.ALLOCATIONS)
def test_noise_is_as_allocated(allocation):
  transform = _transform(allocation=allocation)
  check_stddevs(transform, _expected_stddevs(allocation))
  check_joint_multiplier(transform)


@pytest.mark.every(2)
@pytest.mark.parametrize('allocation', blocks.ALLOCATIONS)
def test_rounding_errs_towards_more_noise(allocation, monkeypatch):
  """Rounding never lowers the joint multiplier, computed in float64."""
  monkeypatch.setattr(additive, 'add_gaussian_noise',
                      lambda key, values, stddevs: stddevs)
  rng = np.random.default_rng(0)
  for _ in range(60):
    bounds = tuple(np.float32(10**rng.uniform(-3, 3, 3)))
    multiplier = 10**rng.uniform(-1, 2)
    transform = privatizer.gaussian_privatizer(
      jax.random.key(0), noise_multiplier=jnp.float32(multiplier),
      expected_batch_size=1., allocation=allocation)
    sums = (jnp.zeros(7), jnp.zeros(31), jnp.zeros(2))
    stddevs, state = transform.update(
      sums, transform.init(sums),
      l2_sensitivity=tuple(jnp.float32(bound) for bound in bounds))
    shares = np.float64(bounds) / np.float64(stddevs)
    joint = np.sum(shares**2)**-0.5
    assert np.float64(np.float32(multiplier)) <= joint < multiplier * (1 + 1e-5)
    assert float(state.joint_noise_multiplier) == pytest.approx(joint,
                                                                rel=1e-6)


def test_noise_does_not_depend_on_the_sums():
  # Zero sums, those of an empty batch, get the same noise as others.
  check_stddevs(_transform(), _expected_stddevs('optimal'), value=40.)
  empty, full = (_flat(_run(_transform(), value=value)[0][0])
                 for value in (0., 40.))
  assert np.count_nonzero(empty) > 0.99 * empty.size
  # They are equal up to rounding to the grid, at most stddev / 256 apart.
  shift = full - empty - 40. / EXPECTED_BATCH_SIZE
  stddevs = np.repeat(_expected_stddevs('optimal'), list(SIZES.values()))
  assert np.all(np.abs(shift) <= stddevs / 200 / EXPECTED_BATCH_SIZE)


@pytest.mark.every(2)
def test_independent_across_steps_leaves_and_runs():
  check_independence()


def test_divisor_is_the_expected_batch_size():
  check_divisor(_transform())


@pytest.mark.every(2)
def test_same_key_same_noise_and_steps_are_counted():
  first, again, other = (_run(_transform(jax.random.key(seed)), num_steps=2)
                         for seed in (5, 5, 6))
  np.testing.assert_array_equal(_flat(first[0]), _flat(again[0]))
  assert np.mean(_flat(first[0]) == _flat(other[0])) < 0.05
  assert int(first[1].step) == 2
  assert jnp.array_equal(jax.random.key_data(first[1].key),
                         jax.random.key_data(jax.random.key(5)))


@pytest.mark.every(2)
def test_noise_drawn_ahead_is_the_same():
  released, state = _run(_transform(), num_steps=3, value=2.)
  transform, sums = _transform(), _sums(2.)
  drawn = jax.jit(lambda sums: privatizer.draw_ahead(
    jax.random.key(0), jnp.int32(1), 2, sums))(sums)
  update = jax.jit(lambda sums, state, draws: transform.update(
    sums, state, l2_sensitivity=_bounds(), draws=draws))
  ahead = state._replace(step=jnp.int32(1))
  for index in range(2):
    mean, ahead = update(sums, ahead, jax.tree.map(lambda leaf: leaf[index],
                                                   drawn))
    np.testing.assert_array_equal(_flat(mean), _flat(released[index + 1]))
  assert int(ahead.step) == 3


def test_smallest_multiplier_is_remembered():
  transform = _transform()
  sums = _sums()
  state = transform.init(sums)
  assert float(state.joint_noise_multiplier) == np.inf
  update = jax.jit(lambda state, bounds: transform.update(
    sums, state, l2_sensitivity=bounds))
  mean, state = update(state, _bounds())
  before = state._replace(joint_noise_multiplier=jnp.float32(0.5))
  after = update(before, _bounds())[1]
  assert float(after.joint_noise_multiplier) == 0.5
  missing = dict(_bounds(), a=jnp.float32(jnp.nan))
  broken = update(state, missing)[1]
  assert np.isnan(float(broken.joint_noise_multiplier))
  assert np.all(np.isfinite(_flat(mean)))


@pytest.mark.every(5)
@pytest.mark.parametrize('optimizer', [
  optax.sgd(0.1), optax.adam(0.1), optax.chain(optax.trace(0.9),
                                               optax.scale(-0.1))])
def test_comes_first_in_a_chain(optimizer):
  sums = {'w': jnp.arange(4, dtype=jnp.float32)}
  bound = jnp.float32(1.)
  alone = _transform()
  chain = optax.chain(alone, optax.with_extra_args_support(optimizer))
  state, own, seen = chain.init(sums), alone.init(sums), optimizer.init(sums)
  update = jax.jit(chain.update)
  for _ in range(3):
    mean, own = alone.update(sums, own, l2_sensitivity=bound)
    # Adam raises a Python number to an integer array's power.
    with jax.numpy_dtype_promotion('standard'):
      noisy, state = update(sums, state, sums, l2_sensitivity=bound)
      expected, seen = optimizer.update(mean, seen, sums)
    np.testing.assert_allclose(noisy['w'], expected['w'], rtol=2e-5,
                               atol=1e-6)
  assert float(state[0].joint_noise_multiplier) >= MULTIPLIER


@pytest.mark.every(2)
def test_one_bound_for_all_leaves():
  mean = _transform().update(_sums(), _transform().init(_sums()),
                             l2_sensitivity=jnp.float32(2.))[0]
  noise = _flat(mean) * EXPECTED_BATCH_SIZE / (2 * MULTIPLIER)
  chi2 = stats.chi2(noise.size)
  assert chi2.ppf(ALPHA / 2) < np.sum(noise**2) < chi2.isf(ALPHA / 2)


def test_public_mean_has_no_noise():
  transform = privatizer.public_mean(EXPECTED_BATCH_SIZE)
  sums = _sums(3.)
  mean, _ = transform.update(sums, transform.init(sums), None,
                             l2_sensitivity=jnp.float32(1.))
  np.testing.assert_allclose(_flat(mean), 3 / EXPECTED_BATCH_SIZE, rtol=1e-6)


@pytest.mark.parametrize('size', [0., -1., np.inf, np.nan])
def test_refuses_a_divisor_that_is_none(size):
  with pytest.raises(ValueError, match='expected_batch_size must be a posi'):
    privatizer.gaussian_privatizer(jax.random.key(0), noise_multiplier=1.,
                                   expected_batch_size=size)
  with pytest.raises(ValueError, match='expected_batch_size must be a posi'):
    privatizer.public_mean(size)


def test_refuses_an_unknown_allocation():
  with pytest.raises(ValueError, match="global, optimal; got 'best'"):
    _transform(allocation='best')


# Faults are planted from here on.


@pytest.mark.every(2)
def test_fault_less_noise(monkeypatch):
  honest = additive.add_gaussian_noise
  for factor in (0.9, 1 / EXPECTED_BATCH_SIZE, 0., 1.1):
    monkeypatch.setattr(
      additive, 'add_gaussian_noise', lambda key, values, stddevs, f=factor:
      honest(key, values, tree.scale(f, stddevs)))
    with pytest.raises(AssertionError):
      check_stddevs(_transform(), _expected_stddevs('optimal'))


def test_fault_one_key_for_all_steps(monkeypatch):
  monkeypatch.setattr(jax.random, 'fold_in', lambda key, data: key)
  with pytest.raises(AssertionError):
    check_independence()


@pytest.mark.every(2)
def test_fault_one_key_for_all_leaves(monkeypatch):
  def fault(key, values, stddevs):
    return tree.map_blocks(
      lambda stddev, leaf: leaf + stddev * additive.standard_normal(
        key, leaf.shape), stddevs, values)

  monkeypatch.setattr(additive, 'add_gaussian_noise', fault)
  with pytest.raises(AssertionError):
    check_independence()


@pytest.mark.every(2)
def test_fault_one_key_for_all_runs(monkeypatch):
  honest = jax.random.fold_in
  monkeypatch.setattr(jax.random, 'fold_in',
                      lambda key, data: honest(jax.random.key(3), data))
  with pytest.raises(AssertionError):
    check_independence()


def test_fault_each_block_as_if_alone(monkeypatch):
  """Noise sigma D_k on K blocks is only sigma / sqrt(K) jointly (E2)."""
  monkeypatch.setattr(
    blocks, 'allocate', lambda bounds, *, noise_multiplier, rule, sizes:
    noise_multiplier * bounds)
  with pytest.raises(AssertionError):
    check_joint_multiplier(_transform())
  monkeypatch.setattr(blocks, 'joint_noise_multiplier',
                      lambda bounds, stddevs: jnp.float32(MULTIPLIER))
  with pytest.raises(AssertionError):
    check_joint_multiplier(_transform())


@pytest.mark.every(2)
def test_fault_largest_block_only(monkeypatch):
  monkeypatch.setattr(
    blocks, 'allocate', lambda bounds, *, noise_multiplier, rule, sizes:
    noise_multiplier * jnp.max(bounds) * jnp.ones_like(bounds))
  with pytest.raises(AssertionError):
    check_joint_multiplier(_transform())


@pytest.mark.every(2)
def test_fault_no_noise_on_an_empty_batch(monkeypatch):
  honest = additive.add_gaussian_noise

  def fault(key, values, stddevs):
    empty = tree.squared_norm(values) == 0
    return jax.tree.map(lambda a, b: jnp.where(empty, a, b), values,
                        honest(key, values, stddevs))

  monkeypatch.setattr(additive, 'add_gaussian_noise', fault)
  with pytest.raises(AssertionError):
    check_stddevs(_transform(), _expected_stddevs('optimal'))


@pytest.mark.every(3)
@pytest.mark.parametrize('realised', [1, 7, 12])
def test_fault_realised_batch_size(monkeypatch, realised):
  """Dividing by the realised batch size is detected (erratum E4)."""
  honest = tree.scale
  monkeypatch.setattr(tree, 'scale', lambda factor, values: honest(
    1 / realised, values))
  with pytest.raises(AssertionError):
    check_divisor(_transform())
