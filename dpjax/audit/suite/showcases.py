"""Releases with false privacy claims, which the auditor must refute.

They are mistakes from papers and libraries, small enough for an audit to take
seconds.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit import wrapping
from dpjax.audit.suite import quantiles
from dpjax.audit.target import Pair
from dpjax.audit.target import Target
from dpjax.lipschitz import losses
from dpjax.models import mlp
from dpjax.models.model import network_of
from dpjax.papers import lip_printed
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import draws
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.quantile_methods import independent
from dpjax.stats.quantile_methods import joint
from dpjax.stats.quantile_methods import recursive
from dpjax.stats.quantile_methods.mechanism import QuantileMechanism
from dpjax.typing import Array, Batch, PRNGKey, PyTree

_ADD_OR_REMOVE, _REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
_DELTA = 1e-5


def printed_algorithm_8() -> Target:
  """Returns the noisy sum of Algorithm 8 as printed (erratum E1).

  Its data-dependent divisor lets one record change all contributions: with
  eight copies of one record, all eight gradients shrink when a record 100 times
  as large, with the opposite label, joins.
  """
  sigma = 3.0
  # A hinge of the difference of two logits has gradients of norm 1.
  hinge = losses.LipschitzLoss(lambda logits, y: jax.nn.relu(
      1 - jnp.where(y == 1, 1.0, -1.0) * (logits[:, 1] - logits[:, 0])
      / math.sqrt(2)), 1.0)
  model = mlp.mlp(num_features=1, num_classes=2, depth=0)
  bounder = lip_printed.as_printed(network_of(model), hinge, allow_unsound=True)
  params = {'dense_00': {'kernel': jnp.zeros([1, 2]), 'bias': jnp.zeros([2])}}
  claimed, = bounder.l2_sensitivity({'dense_00': jnp.float32(1.0)}).values()
  records = Batch(jnp.ones([9, 1]).at[0].set(100.0),
                  jnp.ones([9], jnp.int32).at[0].set(0))

  def release(key: PRNGKey, members: Array) -> PyTree:
    total = bounder.sums(params, records, jnp.asarray(members)).total
    return additive.add_gaussian_noise(key, total['dense_00']['kernel'],
                                       sigma * claimed)

  members = np.ones([9], bool)
  return Target(
      name='printed_algorithm_8', release=release, claim=claims.of_event(
          accounting.gaussian_event(noise_multiplier=sigma), delta=_DELTA,
          adjacency=_ADD_OR_REMOVE),
      pairs=(Pair(members, members & (np.arange(9) > 0),
                  'a record 100 times as large or none'),))


def classical_gaussian() -> Target:
  """Returns the classical Gaussian noise at epsilon = 10 (erratum E23).

  Its multiplier sqrt(2 ln(1.25/delta)) / epsilon is proven only for epsilon
  below 1.
  """
  multiplier = math.sqrt(2 * math.log(1.25 / _DELTA)) / 10
  mechanism = additive.GaussianMechanism(
      record_norm=1.0, noise_multiplier=multiplier, adjacency=_ADD_OR_REMOVE)
  return wrapping.of_mechanism(
      mechanism, name='classical_gaussian', claim=claims.Claim(
          epsilon=10.0, delta=_DELTA, adjacency=_ADD_OR_REMOVE,
          event=mechanism.event))


def textbook_float32() -> Target:
  """Returns Laplace noise in floating point without a grid.

  The set of possible outputs reveals the data: adding the noise to 1 rounds it
  to multiples of a power of two, adding it to 0 does not (Mironov, 2012).
  """
  return Target(
      name='textbook_float32', floating_point=True,
      release=lambda key, data: data + jax.random.laplace(key, data.shape),
      claim=claims.Claim(epsilon=1.0, delta=0.0, adjacency=_ADD_OR_REMOVE),
      pairs=(Pair(np.ones([1], np.float32), np.zeros([1], np.float32),
                  '1 or 0'),))


def exponential_without_half() -> Target:
  """Returns the exponential mechanism without its factor 1/2.

  Weights exp(epsilon s / sensitivity) ignore that the normaliser changes too.
  """
  def release(key: PRNGKey, scores: Array) -> Array:
    return jnp.argmax(scores + draws.standard_gumbel(key, scores.shape))

  return Target(
      name='exponential_without_half', release=release,
      claim=claims.Claim(epsilon=1.0, delta=0.0, adjacency=_REPLACE),
      log_probs=jax.nn.log_softmax,
      space=spaces.Scores(sensitivity=1.0, adjacency=_REPLACE))


def shuffled_as_poisson() -> Target:
  """Returns one epoch of shuffled batches accounted as Poisson samples.

  The record is in exactly one of two batches; Poisson sampling would leave it
  out of both with probability 1/4.
  """
  steps, sigma = 2, 0.35

  def release(key: PRNGKey, present: Array) -> Array:
    place_key, noise_key = jax.random.split(key)
    place = jax.random.randint(place_key, (), 0, steps)
    sums = jnp.where(present & (jnp.arange(steps) == place), 1.0, 0.0)
    return additive.add_gaussian_noise(noise_key, sums, sigma)

  event = accounting.poisson_gaussian_event(
      sampling_prob=1 / steps, noise_multiplier=sigma, num_steps=steps)
  return Target(
      name='shuffled_as_poisson', release=release, claim=claims.of_event(
          event, delta=_DELTA, adjacency=_ADD_OR_REMOVE),
      pairs=(Pair(np.asarray(True), np.asarray(False),
                  'a record, or one that counts as zero'),))


def answers_counted_once() -> Target:
  """Returns eight randomised responses accounted as one.

  A composition that overlooks repetitions of an event reports epsilon 1.
  """
  answer = accounting.randomized_response_event(
      uniform_prob=2 / (1 + math.e), num_categories=2)

  def release(key: PRNGKey, truth: Array) -> Array:
    lies = jax.random.bernoulli(key, 1 / (1 + math.e), (8,))
    return jnp.where(lies, 1 - truth, truth)

  return Target(
      name='answers_counted_once', release=release, claim=claims.Claim(
          epsilon=1.0, delta=1e-9, adjacency=_REPLACE,
          event=accounting.repeated_event(answer, 8)),
      pairs=(Pair(np.asarray(1), np.asarray(0), '1 or 0'),))


def answers_counted_once_unseen() -> Target:
  """Returns `answers_counted_once` without its event; only tests refute it."""
  target = answers_counted_once()
  return Target(name='answers_counted_once_unseen', release=target.release,
                pairs=target.pairs, claim=claims.Claim(
                    epsilon=1.0, delta=1e-9, adjacency=_REPLACE))


_QUARTILES = (0.25, 0.5, 0.75)


def _quantiles_of_half(mechanism: QuantileMechanism) -> Target:
  """Returns quantiles whose claim, epsilon 1, is too low for their rate."""
  return quantiles.target(mechanism, claim=claims.Claim(
      epsilon=1.0, delta=0.0, adjacency=mechanism.adjacency))


def joint_quantiles_printed() -> Target:
  """Returns JointExp with the wrong sensitivity under addition (QE-02).

  It ignores that n changes the target counts, and uses the rate epsilon / 2
  instead of epsilon / (4 (1 - 1/4)).
  """
  return _quantiles_of_half(joint.JointQuantiles(
      probs=_QUARTILES, lower=0.0, upper=1.0, epsilon=1.5,
      adjacency=_ADD_OR_REMOVE))


def quantile_without_half() -> Target:
  """Returns QExp with the rate of a monotone cost, which its cost is not."""
  return _quantiles_of_half(independent.IndependentQuantiles(
      probs=(0.5,), lower=0.0, upper=1.0, cost='rounded', epsilon=2.0,
      adjacency=_ADD_OR_REMOVE))


def recursive_quantiles_unhalved() -> Target:
  """Returns RecExp with rates for addition, under replacement.

  A replaced record moves from one node to another and changes both.
  """
  return _quantiles_of_half(recursive.RecursiveQuantiles(
      probs=_QUARTILES, lower=0.0, upper=1.0, epsilon=2.0, adjacency=_REPLACE))


SHOWCASES = {showcase.__name__: showcase for showcase in (
    printed_algorithm_8, classical_gaussian, textbook_float32,
    exponential_without_half, shuffled_as_poisson, answers_counted_once,
    answers_counted_once_unseen, joint_quantiles_printed,
    quantile_without_half, recursive_quantiles_unhalved)}
