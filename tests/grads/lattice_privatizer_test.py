"""Measures the privatizer's lattice noise, and plants faults that must show."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.grads import lattice_privatizer
from dpjax.grads import privatizer
from dpjax.grads import quantiles
from dpjax.privacy import additive
from dpjax.privacy import lattice

MULTIPLIER, BATCH = 1.7, 6.5
BOUNDS = {'a': .3, 'b': 2.}
SHAPES = {'a': (80, 100), 'b': {'u': (4000,), 'v': (80, 50)}}
SIZES = {'a': 8000, 'b': 8000}
ALPHA = 1e-6  # Rate of false alarms of each check.
ADAPTIVE = quantiles.geometric({'a': 1., 'b': 5.}, target_quantile=.5,
                               learning_rate=.2, noise_stddev=2.5)


def _sums(value=0.):
  return jax.tree.map(lambda shape: jnp.full(shape, value), SHAPES,
                      is_leaf=lambda leaf: isinstance(leaf, tuple))


def _bounds():
  return {name: jnp.float32(bound) for name, bound in BOUNDS.items()}


def _transform(seed=0, **changes):
  return lattice_privatizer.lattice_privatizer(
    jax.random.key(seed), **{'noise_multiplier': MULTIPLIER,
                             'expected_batch_size': BATCH, **changes})


def _released(sums, transform=None, step=0, compiled=True, **extra):
  """Returns (mean, new state) of one update."""
  transform = transform or _transform()
  state = transform.init(sums)._replace(step=jnp.int32(step))
  update = lambda sums, state, bounds: transform.update(
    sums, state, l2_sensitivity=bounds, **extra)
  return (jax.jit(update) if compiled else update)(sums, state, _bounds())


def _flat(values):
  return np.concatenate([np.ravel(np.float64(leaf))
                         for leaf in jax.tree.leaves(values)])


def _stddevs():
  """Returns the optimal split's standard deviations without a lattice."""
  total = sum(bound * math.sqrt(SIZES[name]) for name, bound in BOUNDS.items())
  return {name: MULTIPLIER * math.sqrt(total * bound) * SIZES[name]**-.25
          for name, bound in BOUNDS.items()}


def check_stddevs(value=0.):
  """Checks variance and mean of each block's noise around `value`."""
  mean = _released(_sums(value))[0]
  for name, stddev in _stddevs().items():
    noise = (_flat(mean[name]) * BATCH - value) / stddev
    chi2 = stats.chi2(noise.size)
    assert chi2.ppf(ALPHA / 4) < np.sum(noise**2) < chi2.isf(ALPHA / 4)
    assert abs(noise.mean()) < 5 / noise.size**.5


def check_joint_multiplier(monkeypatch):
  """Checks the joint multiplier against rounded bounds and the drawn noise."""
  used, honest = [], lattice.add_noise
  with monkeypatch.context() as patch:
    patch.setattr(lattice, 'add_noise', lambda *args: (
      used.append(args), honest(*args))[1])
    state = _released(_sums(), compiled=False)[1]
  (_, _, steps, outers, _), = used
  share = 0.
  for name, bound in BOUNDS.items():
    step, outer = float(steps[name]), int(outers[name])
    assert math.frexp(step)[0] == .5
    assert 2.**19 <= _stddevs()[name] / step < 2.**20
    stddev = step * 180 * math.sqrt(1 + 104**2 + outer**2)
    share += ((bound + math.sqrt(SIZES[name]) * step) / stddev)**2
  spent = float(state.joint_noise_multiplier)
  assert spent == pytest.approx(share**-.5, rel=2e-6)
  assert MULTIPLIER <= spent <= MULTIPLIER * 1.0005


def check_cells():
  """Checks that sums with equal lattice points give bit-identical releases."""
  step = float(lattice.spacing(jnp.float32(_stddevs()['a'])))
  rng = np.random.default_rng(0)
  units = rng.integers(-2**18, 2**18, SHAPES['a'])
  means = [_released(dict(_sums(), a=jnp.asarray(
    np.float32((units + inside) * step))))[0]['a']
    for inside in (0., .4, -.4)]
  for mean in means[1:]:
    np.testing.assert_array_equal(means[0], mean)
  other = _released(dict(_sums(), a=jnp.asarray(
    np.float32((units + 1) * step))))[0]['a']
  # It is the next point, to float32 accuracy after a division.
  difference = np.float64(other) - np.float64(means[0])
  np.testing.assert_allclose(difference * BATCH / step, 1, atol=3)
  assert np.mean(difference > 0) > .5


@pytest.mark.every(2)
@pytest.mark.parametrize('value', [0., 37.])
def test_stddevs(value):
  check_stddevs(value)


@pytest.mark.every(2)
def test_joint_multiplier(monkeypatch):
  check_joint_multiplier(monkeypatch)


@pytest.mark.every(2)
def test_releases_know_lattice_points_only():
  check_cells()


@pytest.mark.every(2)
@pytest.mark.parametrize('allocation', ['optimal', 'equal', 'global'])
@pytest.mark.parametrize('adaptive', [None, ADAPTIVE])
def test_bounds_on_the_lattice(allocation, adaptive):
  """Rounding adds sqrt(d_k) s_k to a gradient bound; indicators fit exactly."""
  split = dict(noise_multiplier=MULTIPLIER, allocation=allocation,
               adaptive=adaptive)
  rounded, steps = lattice_privatizer.on_lattice(_bounds(), _sums(), **split)
  bounds, stddevs = privatizer.scales(rounded, _sums(), **split)
  for name, step in zip('ab', steps[:2], strict=True):
    assert float(rounded[name]) == pytest.approx(
      BOUNDS[name] + math.sqrt(SIZES[name]) * float(step), rel=1e-6)
    assert rounded[name] > BOUNDS[name] * (1 + 1e-6)
  ratio = np.float64(stddevs) / np.float64(steps)
  assert ratio.min() >= 2.**19 and ratio.max() < 3.7 * 2.**19
  if adaptive is not None:
    np.testing.assert_array_equal(bounds[2:], .5)
    assert steps.shape == (4,) and float(steps[2]) <= .5


def test_indicators_are_noised_beside_the_gradient():
  """Indicators have their own deviation and share the joint multiplier."""
  sums = {'a': jnp.zeros(2), 'b': jnp.zeros(2)}
  indicators = {'a': jnp.float32(1.5), 'b': jnp.float32(-3.)}
  transform = _transform(adaptive=ADAPTIVE)

  def step(state, _):
    _, state = transform.update(sums, state, l2_sensitivity=_bounds(),
                                indicators=indicators)
    return state, state.indicators

  state, counts = jax.jit(lambda: jax.lax.scan(
    step, transform.init(sums), length=2000))()
  noise = (np.stack([counts['a'], counts['b']], 1) * BATCH
           - np.array([1.5, -3.])).ravel() / 2.5
  chi2 = stats.chi2(noise.size)
  assert chi2.ppf(ALPHA / 2) < np.sum(noise**2) < chi2.isf(ALPHA / 2)
  assert abs(noise.mean()) < 5 / noise.size**.5
  assert len(np.unique(noise)) > .99 * noise.size
  assert MULTIPLIER <= float(state.joint_noise_multiplier) < 1.0005 * MULTIPLIER


@pytest.mark.every(2)
def test_steps_runs_and_leaves_have_noise_of_their_own():
  noises = []
  for seed, step in ((0, 0), (0, 1), (1, 0)):
    mean = _released(_sums(), _transform(seed), step)[0]
    noises += [_flat(mean['a'])[:4000], _flat(mean['a'])[4000:],
               _flat(mean['b']['u']), _flat(mean['b']['v'])]
  others = np.corrcoef(noises)[~np.eye(12, dtype=bool)]
  assert np.abs(others).max() < 6 / 4000**.5


def test_an_error_of_the_sum_is_paid_for():
  """The proven error of a 256-term sum costs 0.8 percent more noise."""
  error = lattice.sum_error(256)
  plain, paid = (_flat(_released(_sums(), _transform(sum_error=share))[0]['a'])
                 for share in (0., error))
  assert np.std(paid) / np.std(plain) == pytest.approx(1 + error, rel=1e-3)


@pytest.mark.every(2)
def test_no_number_is_no_release_of_the_sum():
  """A NaN sum releases only noise, and a NaN bound shows in the multiplier."""
  mean, state = _released(_sums(math.nan))
  assert np.isfinite(_flat(mean)).all()
  assert float(state.joint_noise_multiplier) >= MULTIPLIER
  missing = dict(_bounds(), a=jnp.float32(jnp.nan))
  transform = _transform()
  sums = _sums(5.)
  mean, state = transform.update(sums, transform.init(sums),
                                 l2_sensitivity=missing)
  assert np.isnan(float(state.joint_noise_multiplier))
  assert not np.isin(_flat(mean), np.float32(5 / BATCH)).any()
  nothing = {name: jnp.float32(0.) for name in BOUNDS}
  mean, _ = transform.update(sums, transform.init(sums),
                             l2_sensitivity=nothing)
  assert not np.any(_flat(mean))


@pytest.mark.parametrize('changes, message', [
  ({'expected_batch_size': 0.}, 'expected_batch_size must be a positive'),
  ({'allocation': 'best'}, 'allocation must be one of equal, global'),
  ({'sum_error': -.1}, 'sum_error must be a number >= 0'),
  ({'adaptive': ADAPTIVE._replace(noise_stddev=.1)}, 'noise_stddev of 2 adapt'),
  ({'adaptive': ADAPTIVE._replace(noise_stddev=2.**18)}, 'noise_stddev of ada'),
])
def test_refusals(changes, message):
  with pytest.raises(ValueError, match=f'^{message}'):
    _transform(**changes)


def test_refuses_noise_drawn_ahead():
  with pytest.raises(ValueError, match='^noise on a lattice cannot use'):
    _released(_sums(), draws=_sums())


# Faults are planted from here on.


@pytest.mark.every(3)
@pytest.mark.parametrize('factor', [.9, 1.1])
def test_fault_other_noise(monkeypatch, factor):
  honest = lattice.outer_multiplier
  monkeypatch.setattr(lattice, 'outer_multiplier', lambda stddev, step: honest(
    factor * stddev, step))
  with pytest.raises(AssertionError):
    check_stddevs()
  with pytest.raises(AssertionError):
    check_joint_multiplier(monkeypatch)


def test_fault_no_rounding_in_the_sensitivity(monkeypatch):
  honest = lattice_privatizer.on_lattice
  monkeypatch.setattr(
    lattice_privatizer, 'on_lattice',
    lambda l2, sums, *split: (l2, honest(l2, sums, *split)[1]))
  with pytest.raises(AssertionError):
    check_joint_multiplier(monkeypatch)


@pytest.mark.every(3)
def test_fault_rounding_after_the_noise(monkeypatch):
  def fault(key, values, steps, outers, _):
    del outers
    return jax.tree.map(
      lambda value: jnp.round((value + additive.standard_normal(
        key, value.shape)) / steps['a']) * steps['a'], values)

  monkeypatch.setattr(lattice, 'add_noise', fault)
  with pytest.raises(AssertionError):
    check_cells()


def test_fault_a_sign_that_is_biased(monkeypatch):
  honest = lattice.add_noise

  def fault(key, values, steps, outers, _):
    noisy = honest(key, values, steps, outers)
    return jax.tree.map(lambda leaf: jnp.where(
      jnp.arange(leaf.size).reshape(leaf.shape) % 10 == 0, jnp.abs(leaf),
      leaf), noisy)

  monkeypatch.setattr(lattice, 'add_noise', fault)
  with pytest.raises(AssertionError):
    check_stddevs()
