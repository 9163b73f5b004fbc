"""These tests check Algorithm 8 as printed, step by step (LDP-01)."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.lipschitz import losses
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from experiments.methods.training import algorithm_8
from experiments.unsound import constants
from experiments.unsound import laws


def _hinge(logits, labels):
  signs = (2 * labels - 1).astype(jnp.float32)
  return jnp.maximum(0.0, 1 - signs * logits[:, 0])


def _algorithm(**kwargs):
  return algorithm_8.PrintedLipDpSgd(**{**dict(
      loss=_hinge, loss_lipschitz=1.0, noise_multiplier=1.0, weight_norm=1.0,
      learning_rate=0.1, sampling_prob=0.5, allow_unsound=True), **kwargs})


def test_it_refuses_to_be_built_by_accident():
  with pytest.raises(ValueError, match='set allow_unsound=True'):
    _algorithm(allow_unsound=False)
  arguments = {f.name: f.default for f in dataclasses.fields(
      algorithm_8.PrintedLipDpSgd)}
  assert arguments['allow_unsound'] is False
  assert _algorithm().epsilon_valid is False
  with pytest.raises(ValueError, match='sampling_prob must lie in'):
    _algorithm(sampling_prob=1.5)


def test_claimed_event_is_one_block_of_sigma():
  event = _algorithm(sampling_prob=0.01).claimed_event(1000)
  epsilon = lambda accountant: accounting.epsilon(
      event, delta=1e-5, adjacency=Adjacency.ADD_OR_REMOVE_ONE,
      accountant=accountant)
  assert epsilon('rdp') == pytest.approx(2.101367, abs=1e-3)
  assert epsilon('pld') == pytest.approx(1.828244, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize('ratio', [2.0, 10.0, 1000.0])
def test_e1_scaled_sums_are_those_of_the_adjacent_pair(ratio):
  size = 6
  direction = jnp.eye(3)[0]
  x = jnp.concatenate([jnp.tile(direction, (size, 1)),
                       ratio * direction[None]])
  y = jnp.asarray([1] * size + [0])
  kernels = (jnp.zeros([3, 1]),)  # every margin is active
  pair = laws.sum_pair(num_examples=size, sampling_prob=1.0,
                       noise_multiplier=1.0, norm_ratio=ratio)
  for members, distribution in zip((y == 1, y >= 0), pair, strict=True):
    sums, = _algorithm().scaled_sums(kernels, x, y, members)
    np.testing.assert_allclose(sums, distribution.means[0] * direction[:, None],
                               rtol=1e-5)


@pytest.mark.slow
def test_scaled_sums_equal_the_sum_of_single_gradients():
  rng = np.random.default_rng(0)
  x = jnp.asarray(rng.normal(size=(9, 4)), jnp.float32)
  y = jnp.asarray(rng.integers(0, 3, 9), jnp.int32)
  mask = jnp.asarray(rng.random(9) < 0.6)
  kernels = tuple(jnp.asarray(rng.normal(size=shape), jnp.float32)
                  for shape in ((4, 5), (5, 3)))
  algorithm = _algorithm(loss=losses.cross_entropy().values)
  sums = algorithm.scaled_sums(kernels, x, y, mask)
  hidden = jax.nn.relu(x @ kernels[0])
  single = lambda row: jax.grad(lambda k: algorithm.loss(
      algorithm.logits(k, x[row][None]), y[row][None])[0])(kernels)
  gradients = jax.jit(jax.vmap(single))(jnp.arange(9))
  for layer, inputs in enumerate((x, hidden)):
    total = np.asarray(gradients[layer])[mask].sum(0)
    largest = np.linalg.norm(np.asarray(inputs), axis=1)[mask].max()
    np.testing.assert_allclose(sums[layer], total / largest, rtol=1e-4,
                               atol=1e-5)


def test_line_5_is_the_inclusive_product():
  # E3: the bounds are tau c_1 c_2 c_3, tau c_2 c_3 and tau c_3.
  sensitivities = _algorithm(loss_lipschitz=2.0).sensitivities(
      jnp.asarray([0.5, 2.0, 0.25]))
  np.testing.assert_allclose(
      sensitivities, 2 * np.asarray(constants.products((0.5, 2.0, 0.25),
                                                       inclusive=True)))


@pytest.mark.slow
def test_clip_weights_uses_a_lower_bound_of_the_norm():
  rng = np.random.default_rng(1)
  large = jnp.asarray(rng.normal(size=(60, 60)), jnp.float32)
  small = 0.01 * large
  state = _algorithm(num_iterations=1).clip_weights((large, small))
  norms = [np.linalg.norm(np.asarray(k), 2) for k in state.kernels]
  assert norms[0] > 1.05  # clipped to 1 by a norm that is too small
  assert float(state.norms[0]) == 1.0
  np.testing.assert_allclose(state.kernels[1], small, rtol=1e-5)
  assert float(state.norms[1]) < norms[1]
  exact = _algorithm(num_iterations=2000).clip_weights((large, small))
  assert np.linalg.norm(np.asarray(exact.kernels[0]), 2) == (
      pytest.approx(1.0, abs=1e-4))
  again = _algorithm(num_iterations=2000).clip_weights(exact.kernels)
  np.testing.assert_allclose(again.kernels[0], exact.kernels[0], atol=1e-5)
  zero = _algorithm().clip_weights((jnp.zeros([2, 2]),))
  assert float(zero.norms[0]) == 0 and not zero.kernels[0].any()


def test_batches_are_poisson_given_that_they_are_not_empty():
  # E5: with n = 2 and q = 0.1 a record is in 0.526 of batches, not in 0.1.
  members = jnp.asarray([True, True, False])
  algorithm = _algorithm(sampling_prob=0.1)
  masks = jax.jit(jax.vmap(lambda key: algorithm.draw_batch(key, members)))(
      jax.random.split(jax.random.key(0), 20_000))
  assert not masks[:, 2].any() and masks.any(1).all()
  expected = laws.redrawn_inclusion_prob(num_examples=2, sampling_prob=0.1)
  share = float(masks[:, 0].mean(dtype=jnp.float32))
  # At 5 standard errors a false alarm has probability 6e-7.
  assert abs(share - expected) < 5 * (expected * (1 - expected) / 2e4)**0.5
  assert share > 0.4


def _steps(algorithm, runs, x, y, kernels):
  state = algorithm.init(kernels)
  members = jnp.ones(y.shape, jnp.bool_)
  return jax.jit(jax.vmap(
      lambda key: algorithm.step(key, state, x, y, members)))(
          jax.random.split(jax.random.key(3), runs)), state


@pytest.mark.every(2)
def test_a_step_adds_noise_of_sigma_delta_over_the_realised_batch():
  runs, sigma = 4000, 3.0
  x, y = jnp.ones([5, 2]) / 2**0.5, jnp.ones([5], jnp.int32)
  algorithm = _algorithm(noise_multiplier=sigma, sampling_prob=1.0)
  kernels = (jnp.full([2, 1], 0.5),)
  (new, released), state = _steps(algorithm, runs, x, y, kernels)
  delta = float(algorithm.sensitivities(state.norms)[0])
  assert delta == pytest.approx(0.5**0.5)
  noise = np.asarray(released.gradients[0])[..., 0] + 1 / 2**0.5
  stddev = sigma * delta / 5  # E4: divided by |V| = 5
  energy = np.square(noise / stddev).sum()
  # The chi-square has 2 x 4000 degrees of freedom; 5 standard errors.
  assert abs(energy - 2 * runs) < 5 * (4 * runs)**0.5
  assert abs(noise.mean()) < 5 * stddev / (2 * runs)**0.5
  moved = state.kernels[0][None] - 0.1 * released.gradients[0]
  sizes = np.linalg.norm(np.asarray(moved)[..., 0], axis=1)
  np.testing.assert_allclose(
      new.kernels[0], moved / np.maximum(sizes, 1.0)[:, None, None],
      rtol=1e-4)


def test_zero_weights_get_no_noise():
  # E3: K = 1 and theta = 0 give Delta = 0, so the release is exact.
  x, y = jnp.eye(2), jnp.ones([2], jnp.int32)
  (_, released), _ = _steps(_algorithm(sampling_prob=1.0), 3, x, y,
                            (jnp.zeros([2, 1]),))
  np.testing.assert_array_equal(released.gradients[0], -0.5)


@pytest.mark.slow
def test_dead_units_divide_by_zero():
  # E6: all hidden activations are zero, so X_2 is zero.
  kernels = (-jnp.ones([2, 3]), jnp.ones([3, 1]))
  sums = _algorithm().scaled_sums(kernels, jnp.ones([4, 2]),
                                  jnp.ones([4], jnp.int32),
                                  jnp.ones([4], jnp.bool_))
  assert np.isnan(sums[1]).all()


def test_hidden_norms_move_when_inputs_do_not():
  # E1: inputs have norm one, and no other record resembles this one.
  rng = np.random.default_rng(3)
  x = rng.normal(size=(65, 20)) * np.r_[np.ones(4), 0.1 * np.ones(16)]
  x[-1] = np.r_[np.zeros(4), np.ones(16)]
  x /= np.linalg.norm(x, axis=1, keepdims=True)
  kernel = rng.normal(size=(20, 64)) * np.r_[np.full(4, 0.1), np.ones(16)][
      :, None]
  norms = _algorithm().input_norms(
      (jnp.asarray(kernel, jnp.float32), jnp.ones([64, 2])),
      jnp.asarray(x, jnp.float32))
  assert np.ptp(np.asarray(norms[0])) < 1e-5
  assert float(norms[1][-1]) > 1.5 * float(norms[1][:-1].max())
