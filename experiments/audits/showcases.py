"""Releases that are not what they claim; the auditor must say so.

Mistakes that papers and libraries made, small enough to be audited in seconds.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import claims
from dpjax.audit import wrapping
from dpjax.audit.target import Pair, Target
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import draws
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.quantiles import independent
from dpjax.stats.quantiles import joint
from dpjax.stats.quantiles import recursive
from experiments.audits import quantiles
from experiments.unsound import printed

_ADD_OR_REMOVE, _REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
_DELTA = 1e-5


def printed_algorithm_8() -> Target:
  """One step of Algorithm 8: the divisor of a batch lets one record move all.

  Eight copies of one record, and one of opposite label that is 100 times as
  large: all eight gradients shrink when it joins (erratum E1).
  """
  algorithm = printed.PrintedLipDpSgd(
      loss=lambda logits, y: jax.nn.relu(1 - (2 * y - 1.0) * logits[:, 0]),
      loss_lipschitz=1.0, noise_multiplier=3.0, weight_norm=1.0,
      learning_rate=0.0, sampling_prob=1.0, allow_unsound=True)
  x = np.ones([9, 1], np.float32)
  x[0] = 100
  y = np.ones([9], np.float32)
  y[0] = 0

  def release(key, members):
    state = algorithm.init([jnp.full([1, 1], 1e-3)])
    return algorithm.step(key, state, jnp.asarray(x), jnp.asarray(y),
                          members)[1]

  members = np.ones([9], bool)
  return Target(
      name='printed_algorithm_8', release=release, claim=claims.of_event(
          algorithm.claimed_event(1), delta=_DELTA, adjacency=_ADD_OR_REMOVE),
      pairs=(Pair(members, members & (np.arange(9) > 0),
                  'a record 100 times as large or none'),))


def classical_gaussian() -> Target:
  """sqrt(2 ln(1.25/delta)) / epsilon at epsilon = 10 (erratum E23)."""
  multiplier = math.sqrt(2 * math.log(1.25 / _DELTA)) / 10
  mechanism = additive.GaussianMechanism(
      record_norm=1.0, noise_multiplier=multiplier, adjacency=_ADD_OR_REMOVE)
  return wrapping.of_mechanism(
      mechanism, name='classical_gaussian', claim=claims.Claim(
          epsilon=10.0, delta=_DELTA, adjacency=_ADD_OR_REMOVE,
          event=mechanism.event))


def textbook_float32() -> Target:
  """Laplace noise in floating point, on no grid: which numbers can occur.

  A value of 1 rounds the noise to its own last bit, a value of 0 does not
  (Mironov 2012).
  """
  return Target(
      name='textbook_float32', floating_point=True,
      release=lambda key, data: data + jax.random.laplace(key, data.shape),
      claim=claims.Claim(epsilon=1.0, delta=0.0, adjacency=_ADD_OR_REMOVE),
      pairs=(Pair(np.ones([1], np.float32), np.zeros([1], np.float32),
                  '1 or 0'),))


def exponential_without_half() -> Target:
  """exp(epsilon s / sensitivity): the normaliser moves as well."""
  def release(key, scores):
    return jnp.argmax(scores + draws.standard_gumbel(key, scores.shape))

  return Target(
      name='exponential_without_half', release=release,
      claim=claims.Claim(epsilon=1.0, delta=0.0, adjacency=_REPLACE),
      log_probs=jax.nn.log_softmax, pairs=wrapping.scores(1.0))


def shuffled_as_poisson() -> Target:
  """One epoch of shuffled batches, accounted as Poisson samples.

  The record is in one of two batches for certain; Poisson sampling leaves it
  out of both with probability 1/4.
  """
  steps, sigma = 2, 0.35

  def release(key, present):
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
  """Eight answers of randomised response for the price of one.

  A composition that overlooks how often an event occurred says epsilon 1.
  """
  answer = accounting.randomized_response_event(
      uniform_prob=2 / (1 + math.e), num_categories=2)

  def release(key, truth):
    lies = jax.random.bernoulli(key, 1 / (1 + math.e), (8,))
    return jnp.where(lies, 1 - truth, truth)

  return Target(
      name='answers_counted_once', release=release, claim=claims.Claim(
          epsilon=1.0, delta=1e-9, adjacency=_REPLACE,
          event=accounting.repeated_event(answer, 8)),
      pairs=(Pair(np.asarray(1), np.asarray(0), '1 or 0'),))


def answers_counted_once_unseen() -> Target:
  """The same without its event: the answers must tell."""
  target = answers_counted_once()
  return Target(name='answers_counted_once_unseen', release=target.release,
                pairs=target.pairs, claim=claims.Claim(
                    epsilon=1.0, delta=1e-9, adjacency=_REPLACE))


_QUARTILES = dict(probs=(0.25, 0.5, 0.75), lower=0.0, upper=1.0)


def _quantiles_of_half(mechanism) -> Target:
  return quantiles.target(mechanism, claim=claims.Claim(
      epsilon=1.0, delta=0.0, adjacency=mechanism.adjacency))


def joint_quantiles_printed() -> Target:
  """JointExp with a sensitivity of 1/2 under addition (erratum QE-02).

  As if n in the wanted numbers of records did not move: epsilon / 2 for
  epsilon / (4 (1 - 1/4)).
  """
  return _quantiles_of_half(joint.JointQuantiles(
      epsilon=1.5, adjacency=_ADD_OR_REMOVE, **_QUARTILES))


def quantile_without_half() -> Target:
  """QExp as if its cost were monotone: the normaliser moves as well."""
  return _quantiles_of_half(independent.IndependentQuantiles(
      probs=(0.5,), lower=0.0, upper=1.0, cost='rounded', epsilon=2.0,
      adjacency=_ADD_OR_REMOVE))


def recursive_quantiles_unhalved() -> Target:
  """RecExp with rates of addition, when a record moves to another node."""
  return _quantiles_of_half(recursive.RecursiveQuantiles(
      epsilon=2.0, adjacency=_REPLACE, **_QUARTILES))


SHOWCASES = {made.__name__: made for made in (
    printed_algorithm_8, classical_gaussian, textbook_float32,
    exponential_without_half, shuffled_as_poisson, answers_counted_once,
    answers_counted_once_unseen, joint_quantiles_printed,
    quantile_without_half, recursive_quantiles_unhalved)}
