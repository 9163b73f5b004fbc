"""Compares the accountant with four claims of Barczewski (2025).

Each claim is compared with the exact privacy of the printed step, by quadrature
or enumeration on the worst pair of data sets, and with its replacement here.
"""

import itertools
import math

import numpy as np
import pytest
from scipy import optimize
from scipy import stats

from dpjax.privacy import accounting
from dpjax.privacy import blocks
from dpjax.privacy import divergences
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.notions import ApproxDP
from experiments.methods.theory import composition

ADD = Adjacency.ADD_OR_REMOVE_ONE


def spend(q, z, steps, delta=1e-5):
  return accounting.epsilon(
      accounting.poisson_gaussian_event(sampling_prob=q, noise_multiplier=z,
                                        num_steps=steps),
      delta=delta, adjacency=ADD)


def joint(sigma, num_blocks):
  """Returns the multiplier of K blocks noised with sigma times their bounds."""
  bounds = np.linspace(.5, 3., num_blocks).astype(np.float32)
  return float(blocks.joint_noise_multiplier(bounds, sigma * bounds))


# -- E2: K mechanisms on one subsample.


MNIST = (512 / 60000, 4688, 1e-5)
CIFAR = (512 / 50000, 4883, 1e-5)
ADULT = (256 / 48842, 3816, 1 / 48842)


@pytest.mark.parametrize('run, sigma, num_blocks, claimed, sound', [
  (MNIST, 2., 4, 1.20, 3.39),
  (ADULT, 2., 2, .595, .949),
  (ADULT, 2., 3, .595, 1.300),
  pytest.param(CIFAR, 5., 41, .51, 7.37, marks=pytest.mark.slow),
  pytest.param(MNIST, 1., 4, 3.39, 23.8, marks=pytest.mark.slow),
  pytest.param(CIFAR, 2., 17, 1.50, 32.6, marks=pytest.mark.slow),
  pytest.param(CIFAR, 2., 41, 1.50, 159., marks=pytest.mark.slow),
])
def test_blocks_accounted_as_one(run, sigma, num_blocks, claimed, sound):
  """Accounting sigma for K blocks understates sigma / sqrt(K)'s cost (E2)."""
  q, steps, delta = run
  assert spend(q, sigma, steps, delta) == pytest.approx(claimed, rel=6e-3)
  epsilon = spend(q, joint(sigma, num_blocks), steps, delta)
  assert epsilon == pytest.approx(sound, rel=3e-3)


@pytest.mark.every(2)
def test_blocks_accounted_as_one_in_one_step():
  """Delta at epsilon 1 is 2.7e-4 for four blocks, not 2.7e-9 (erratum E2)."""
  delta = lambda z: accounting.delta_for(
      accounting.poisson_gaussian_event(sampling_prob=.01, num_steps=1,
                                        noise_multiplier=z),
      target_epsilon=1., adjacency=ADD)
  assert delta(1.) == pytest.approx(2.7e-9, rel=.03)
  assert delta(joint(1., 4)) == pytest.approx(2.7e-4, rel=.03)


# -- E3: the product of norms from the layer itself on.


@pytest.mark.every(3)
@pytest.mark.parametrize('norms', [(.5, .5, .5), (.2, 1., .9), (2., .7, 1.)])
def test_product_from_the_layer_itself(norms):
  """Layer norms below 1 give less noise than claimed (erratum E3)."""
  after = np.array([np.prod(norms[k + 1:]) for k in range(3)])
  printed = np.array([np.prod(norms[k:]) for k in range(3)])
  sigma = 4.
  sound = joint(sigma, 3)
  multiplier = float(blocks.joint_noise_multiplier(
      np.float32(after), np.float32(sigma * printed)))
  shares = np.array([1 / c for c in norms])
  assert multiplier == pytest.approx(sigma / np.sqrt(np.sum(shares**2)),
                                     rel=1e-5)
  assert multiplier < sound
  assert spend(1., multiplier, 1) > spend(1., sound, 1)
  # A layer of zeros gets no noise at all.
  assert float(blocks.joint_noise_multiplier(
      np.float32([1.]), np.float32([1e-30]))) < 1e-20


# -- E4: division by the realised batch size.


def epsilon_of(pair, delta):
  """Returns epsilon at delta of two densities on a grid, in both orders."""
  def excess(epsilon):
    return max(np.maximum(p - math.exp(epsilon) * q, 0).sum()
               for p, q in (pair, pair[::-1])) - delta

  return optimize.brentq(excess, 0, 40, xtol=1e-6)


def normal_pair(size, sigma):
  """Returns densities of the noised mean of `size`
  gradients -1, and with a +1."""
  means, stddevs = ((-1., -1. + 2 / (size + 1)),
                    (sigma / size, sigma / (size + 1)))
  x = np.linspace(-1 - 14 * stddevs[0], means[1] + 14 * stddevs[0], 400_001)
  return [stats.norm.pdf(x, m, s) * (x[1] - x[0])
          for m, s in zip(means, stddevs, strict=True)]


@pytest.mark.every(2)
@pytest.mark.parametrize('size, true', [(10, 12.57), (100, 10.24),
                                        (10_000, 10.00)])
def test_realised_batch_size_without_sampling(size, true):
  """The realised size gives sensitivity 2 D / (m + 1) and reveals m (E4)."""
  assert spend(1., 1., 1) == pytest.approx(4.377, abs=1e-3)
  epsilon = epsilon_of(normal_pair(size, 1.), 1e-5)
  assert epsilon == pytest.approx(true, abs=6e-3)
  # Even half the multiplier is no upper bound for small batches.
  halved = spend(1., .5, 1)
  assert halved == pytest.approx(9.997, abs=1e-3)
  assert epsilon > halved - 5e-3


@pytest.mark.every(3)
@pytest.mark.parametrize('sigma, claimed, true', [(1., 1.68, 5.08),
                                                  (2., .369, 1.277)])
def test_realised_batch_size_with_poisson_sampling(sigma, claimed, true):
  """Dividing by the realised size costs more than the claim at q = 0.1 (E4)."""
  n, q = 1000, .1
  assert spend(q, sigma, 1) == pytest.approx(claimed, abs=6e-3)
  sizes = np.arange(40, 171)
  weights = stats.binom.pmf(sizes, n, q)
  x = np.linspace(-1 - .25 * sigma, -1 + .25 * sigma, 20_001)[None]
  step = x[0, 1] - x[0, 0]
  density = lambda means, counts: weights @ stats.norm.pdf(
      x, means[:, None], sigma / counts[:, None]) * step
  without = density(np.full(sizes.shape, -1.), sizes)
  drawn = density(-1 + 2 / (sizes + 1), sizes + 1)
  pair = (without, (1 - q) * without + q * drawn)
  assert epsilon_of(pair, 1e-5) == pytest.approx(true, abs=6e-3)


def test_the_public_divisor_costs_what_is_claimed():
  """A constant divisor, the replacement for E4, costs
  exactly what is claimed."""
  x = np.linspace(-14, 15, 400_001) / 100
  pair = [stats.norm.pdf(x, m / 100, 1 / 100) * (x[1] - x[0]) for m in (0, 1)]
  assert epsilon_of(pair, 1e-5) == pytest.approx(spend(1., 1., 1), abs=1e-3)


# -- E5: batches drawn again until one is not empty.


def inclusion(num_examples, q):
  """Returns P(record in batch | batch not empty), by enumeration."""
  kept = drawn = 0.
  for chosen in itertools.product((0, 1), repeat=num_examples):
    prob = math.prod(q if c else 1 - q for c in chosen)
    drawn += prob * any(chosen)
    kept += prob * chosen[0]
  return kept / drawn


@pytest.mark.parametrize('num_others, golden', [(1, .5025), (10, .0955),
                                                (100, .0157)])
def test_inclusion_probability_without_empty_batches(num_others, golden):
  """Without empty batches, inclusion has chance q / (1 - (1 - q)^n') (E5)."""
  formula = .01 / (1 - .99**(num_others + 1))
  assert formula == pytest.approx(golden, abs=6e-5)
  if num_others <= 10:
    assert inclusion(num_others + 1, .01) == pytest.approx(formula, rel=1e-9)
  assert .01 / (1 - .99**1001) / .01 == pytest.approx(1.00004, abs=1e-5)


@pytest.mark.parametrize('epsilon', [.5, 2.])
def test_amplification_is_lost_without_empty_batches(epsilon):
  """Redrawing empty batches loses the amplification, by enumeration (E5)."""
  q, truth = .01, 1 / (1 + math.exp(-epsilon))
  answer = lambda yes: np.array([truth, 1 - truth][::1 if yes else -1])

  def release(data, drawn_again):
    total, mass = np.zeros(2), 0.
    for chosen in itertools.product((0, 1), repeat=len(data)):
      if drawn_again and not any(chosen):
        continue
      prob = math.prod(q if c else 1 - q for c in chosen)
      yes = any(c and x for c, x in zip(chosen, data, strict=True))
      total, mass = total + prob * answer(yes), mass + prob
    return total / mass

  claim = composition.sampled_poisson(
      ApproxDP(epsilon=epsilon, delta=0.), sampling_prob=q).epsilon
  epsilon_spent, kept = (
      divergences.max_divergence(release((0, 1), again), release((0,), again))
      for again in (True, False))
  assert kept == pytest.approx(claim)
  assert epsilon_spent == pytest.approx(
      math.log(1 + .50251256 * (math.exp(epsilon) - 1)), rel=1e-6)
  assert epsilon_spent > 20 * claim
