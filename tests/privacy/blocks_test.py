"""Tests dpjax.privacy.blocks: the joint multiplier and its best split."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from dpjax.privacy import accounting
from dpjax.privacy import blocks
from dpjax.privacy.adjacency import Adjacency


def joint(sensitivities, stddevs):
  return float(blocks.joint_noise_multiplier(
      jnp.asarray(sensitivities, jnp.float32),
      jnp.asarray(stddevs, jnp.float32)))


def split(sensitivities, z, sizes, rule):
  return np.asarray(blocks.allocate(
      jnp.asarray(sensitivities, jnp.float32), noise_multiplier=z,
      sizes=sizes, rule=rule), np.float64)


def random_blocks(seed):
  rng = np.random.default_rng(seed)
  count = int(rng.integers(1, 7))
  return (np.exp(rng.normal(size=count)).astype(np.float32),
          [int(d) for d in np.exp(rng.uniform(0, 12, count)) + 1],
          float(np.exp(rng.normal())))


def test_formula():
  assert joint([2.], [3.]) == pytest.approx(1.5)
  assert joint([1., 2.], [2., 3.]) == pytest.approx(
      (1 / 4 + 4 / 9)**-.5, rel=1e-6)
  # K blocks with the multiplier sigma have sigma / sqrt(K), not sigma.
  assert joint([.1, 5., 7., 2.], [.3, 15., 21., 6.]) == pytest.approx(1.5)


@pytest.mark.every(3)
@pytest.mark.parametrize('epsilon', [.25, 1.])
def test_joint_multiplier_is_tight(epsilon):
  # One record moves both blocks by their whole bound: integrate in the plane.
  sensitivities, stddevs = (1., .5), (1.4, .9)
  axes = [np.linspace(-9 * s, 9 * s, 1501) for s in stddevs]

  def density(means):
    one, two = (np.exp(-.5 * ((x - m) / s)**2) / (s * math.sqrt(2 * math.pi))
                for x, m, s in zip(axes, means, stddevs, strict=True))
    return one[:, None] * two[None, :]

  shifted, still = density(sensitivities), density((0., 0.))
  cell = math.prod(a[1] - a[0] for a in axes)
  exact = np.maximum(shifted - math.exp(epsilon) * still, 0).sum() * cell
  claimed = accounting.delta_for(
      accounting.gaussian_event(noise_multiplier=joint(sensitivities, stddevs)),
      target_epsilon=epsilon, adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  assert exact == pytest.approx(claimed, abs=2e-4)
  # No smaller multiplier would be enough.
  too_good = accounting.delta_for(
      accounting.gaussian_event(
          noise_multiplier=1.02 * joint(sensitivities, stddevs)),
      target_epsilon=epsilon, adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  assert too_good < exact - 1e-3


def test_golden_allocation():
  """The optimal split has the golden deviations and least energy (DP-20)."""
  sizes = (320, 18496, 1605760, 1290)
  np.testing.assert_allclose(
      split(np.ones(4), 1., sizes, 'optimal'),
      (9.02487, 3.27310, 1.07228, 6.36914), rtol=1e-5)
  energy = {rule: float(np.dot(sizes, split(np.ones(4), 1., sizes, rule)**2))
            for rule in blocks.ALLOCATIONS}
  assert energy['optimal'] == pytest.approx(2.1228e6, rel=1e-4)
  assert energy['equal'] == pytest.approx(6.5035e6, rel=1e-4)
  assert energy['global'] == pytest.approx(6.5035e6, rel=1e-4)


@pytest.mark.parametrize('num_blocks, joint_multiplier, golden', [
  (4, 1.3712, 2.74), (41, 1.0340, 6.62)])
def test_golden_multipliers_of_each_block(num_blocks, joint_multiplier, golden):
  """An equal split gives each of K blocks z sqrt(K), as
  in the golden values."""
  bounds = np.linspace(.5, 3., num_blocks)
  stddevs = split(bounds, joint_multiplier, [7] * num_blocks, 'equal')
  np.testing.assert_allclose(stddevs / bounds, golden, atol=5e-3)
  assert joint(bounds, stddevs) == pytest.approx(joint_multiplier, rel=1e-5)


@pytest.mark.every(3)
@pytest.mark.parametrize('seed', range(8))
def test_each_rule_reaches_the_multiplier_and_optimal_is_best(seed):
  sensitivities, sizes, z = random_blocks(seed)
  energy = {}
  for rule in blocks.ALLOCATIONS:
    stddevs = split(sensitivities, z, sizes, rule)
    assert stddevs.shape == (len(sizes),) and (stddevs > 0).all()
    assert joint(sensitivities, stddevs) == pytest.approx(z, rel=2e-6)
    energy[rule] = float(np.dot(sizes, stddevs**2))
  assert energy['optimal'] <= min(energy.values()) * (1 + 1e-6)


@pytest.mark.parametrize('seed', range(8))
def test_optimal_agrees_with_a_numeric_optimiser(seed):
  sensitivities, sizes, z = random_blocks(seed)
  costs = sensitivities.astype(np.float64)**2 * np.asarray(sizes)
  costs /= costs.sum()

  # Shares of the budget z^-2 lie on the simplex, by softmax.
  def energy(logits):
    shares = np.exp(logits - logits.max())
    shares /= shares.sum()
    value = np.sum(costs / shares)
    return np.log(value), (shares * value - costs / shares) / value

  optimum = optimize.minimize(energy, np.zeros(len(sizes)), jac=True,
                              method='L-BFGS-B',
                              options={'ftol': 1e-16, 'gtol': 1e-12})
  scale = z**2 * np.sum(sensitivities.astype(np.float64)**2 * sizes)
  ours = float(np.dot(sizes, split(sensitivities, z, sizes, 'optimal')**2))
  assert ours / scale == pytest.approx(math.exp(optimum.fun), rel=1e-6)


def test_rules_by_name():
  sensitivities = np.array([1., 2.])
  np.testing.assert_allclose(
      split(sensitivities, .5, (3, 9), 'equal'),
      .5 * math.sqrt(2) * sensitivities, rtol=1e-6)
  np.testing.assert_allclose(
      split(sensitivities, .5, (3, 9), 'global'),
      [.5 * math.sqrt(5)] * 2, rtol=1e-6)
  with pytest.raises(ValueError, match='^rule must be one of equal, global, '
                     "optimal; got 'best'$"):
    split(sensitivities, .5, (3, 9), 'best')


@pytest.mark.every(2)
@pytest.mark.parametrize('rule', blocks.ALLOCATIONS)
def test_traces_and_maps(rule):
  function = functools.partial(blocks.allocate, sizes=(4, 90, 1), rule=rule)
  many = jnp.exp(jax.random.normal(jax.random.key(0), (5, 3)))
  mapped = jax.vmap(lambda s: function(s, noise_multiplier=1.3))(many)
  for row, expected in zip(many, mapped, strict=True):
    plain = function(row, noise_multiplier=1.3)
    np.testing.assert_allclose(plain, expected, rtol=1e-6)
    np.testing.assert_allclose(
        jax.jit(function)(row, noise_multiplier=1.3), plain, rtol=1e-6)
    np.testing.assert_allclose(
        jax.jit(blocks.joint_noise_multiplier)(row, plain), 1.3, rtol=2e-6)
