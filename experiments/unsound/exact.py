"""Computes claimed and true epsilon of settings that need no simulation."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.privacy import accounting
from dpjax.privacy import blocks
from dpjax.privacy.adjacency import Adjacency
from experiments import papers
from experiments.methods.attacks import mixtures
from experiments.methods.training import algorithm_8
from experiments.unsound import constants
from experiments.unsound import laws
from experiments.unsound import sweep

# With a smaller multiplier, a privacy loss distribution exceeds the memory.
_SMALLEST_PLD_MULTIPLIER = 0.25

Metrics = dict[str, float]


def event_epsilon(case: sweep.Case, *, noise_multiplier: float | None = None,
                  sampling_prob: float | None = None,
                  num_steps: int | None = None,
                  accountant: str = 'pld') -> float:
  """Returns the accountant's epsilon of a case, with some values replaced.

  A multiplier too small for the PLD accountant goes to the Renyi one; 0 means
  no noise.
  """
  multiplier = case.noise_multiplier if noise_multiplier is None else (
      noise_multiplier)
  if multiplier == 0:
    return math.inf
  event = accounting.poisson_gaussian_event(
      sampling_prob=sampling_prob or case.sampling_prob,
      noise_multiplier=multiplier, num_steps=num_steps or case.num_steps)
  if multiplier < _SMALLEST_PLD_MULTIPLIER:
    accountant = 'rdp'
  return accounting.epsilon(event, delta=case.delta, accountant=accountant,
                            adjacency=Adjacency.ADD_OR_REMOVE_ONE)


def joint_multiplier(case: sweep.Case) -> float:
  """Returns the joint noise multiplier sigma / sqrt K of K layers (E2)."""
  ones = np.ones(case.num_blocks)
  return float(blocks.joint_noise_multiplier(
      ones, case.noise_multiplier * ones))


def pair(case: sweep.Case) -> Metrics:
  """Returns claimed and true epsilon of a pair of neighbours (E1)."""
  outputs = laws.sum_pair(
      num_examples=case.num_examples, sampling_prob=case.sampling_prob,
      noise_multiplier=case.noise_multiplier, norm_ratio=case.norm_ratio)
  claimed = event_epsilon(case)
  if case.num_steps == 1:
    result = mixtures.epsilon(*outputs, delta=case.delta)
    return dict(epsilon_claimed=claimed, epsilon_true=result)
  test = laws.best_repeated_test(outputs, num_steps=case.num_steps,
                                 epsilon=claimed)
  return dict(
      epsilon_claimed=claimed, epsilon_true=test.epsilon_lower(case.delta),
      delta_at_claimed=test.delta_lower(claimed),
      true_positive_rate=test.true_positive_rate,
      log10_false_positive_rate=test.log_false_positive_rate / math.log(10))


def curve(case: sweep.Case, epsilon: float) -> Metrics:
  """Returns the true epsilon of noise that is calibrated to a claimed one."""
  accountant = 'pld' if case.num_blocks == 1 else 'rdp'
  sigma = accounting.calibrate_noise_multiplier(
      target_epsilon=epsilon, target_delta=case.delta,
      sampling_prob=case.sampling_prob, num_steps=case.num_steps,
      adjacency=Adjacency.ADD_OR_REMOVE_ONE, accountant=accountant)
  if case.num_blocks == 1:
    outputs = laws.sum_pair(
        num_examples=case.num_examples, sampling_prob=case.sampling_prob,
        noise_multiplier=sigma, norm_ratio=case.norm_ratio)
    result = mixtures.epsilon(*outputs, delta=case.delta)
  else:
    result = event_epsilon(
        case, noise_multiplier=sigma / case.num_blocks**0.5,
        accountant=accountant)
  return dict(epsilon_claimed=epsilon, epsilon_true=result)


def blocks_as_one(name: str, case: sweep.Case) -> Metrics:
  """Returns epsilons of K noised layers, one release of sigma / sqrt K (E2)."""
  if name == 'scalar_net':
    return _scalar_net(case)
  claimed = event_epsilon(case)
  if name == 'separate':
    # The claim here accounts K separate subsamples, which is another mistake
    # (catalogue item DP-19).
    claimed = event_epsilon(case, num_steps=case.num_blocks * case.num_steps)
  joint = joint_multiplier(case)
  return dict(
      epsilon_claimed=claimed,
      epsilon_true=event_epsilon(case, noise_multiplier=joint),
      epsilon_true_rdp=event_epsilon(case, noise_multiplier=joint,
                                     accountant='rdp'))


def scalar_net_shift(algorithm: algorithm_8.PrintedLipDpSgd) -> float:
  """Returns the shift by one record of f = w2 w1 x, over the noise deviation.

  The record attains the bounds of both layers, so the factor sqrt K is tight.
  """
  state = algorithm.init((jnp.ones([1, 1]), jnp.ones([1, 1])))
  x, y = jnp.ones([1, 1]), jnp.zeros([1], jnp.int32)
  shifts = algorithm.scaled_sums(state.kernels, x, y, jnp.ones([1], jnp.bool_))
  stddevs = algorithm.noise_multiplier * algorithm.sensitivities(state.norms)
  return float(jnp.linalg.norm(jnp.stack([
      block[0, 0] / stddev
      for block, stddev in zip(shifts, stddevs, strict=True)])))


def _scalar_net(case: sweep.Case) -> Metrics:
  algorithm = algorithm_8.PrintedLipDpSgd(
      loss=lambda logits, labels: logits[:, 0], loss_lipschitz=1.0,
      noise_multiplier=case.noise_multiplier, weight_norm=1.0,
      learning_rate=0.0, sampling_prob=1.0, allow_unsound=True,
      activation=jax.nn.identity)
  shift = scalar_net_shift(algorithm)
  empty, full = mixtures.mixture(1, 0, 1), mixtures.mixture(1, shift, 1)
  return dict(
      epsilon_claimed=event_epsilon(case),
      epsilon_true=mixtures.epsilon(empty, full, delta=case.delta),
      shift_times_multiplier=shift * case.noise_multiplier)


def batch(name: str, case: sweep.Case) -> Metrics:
  """Returns epsilons if batches divide by their size (E4) or are redrawn (E5).
  """
  claimed = event_epsilon(case)
  if name.startswith('redraw'):
    prob = laws.redrawn_inclusion_prob(num_examples=case.num_examples + 1,
                                       sampling_prob=case.sampling_prob)
    return dict(epsilon_claimed=claimed, inclusion_prob=prob,
                epsilon_true=event_epsilon(case, sampling_prob=prob))
  outputs = laws.mean_pair(
      num_examples=case.num_examples, sampling_prob=case.sampling_prob,
      noise_multiplier=case.noise_multiplier)
  return dict(epsilon_claimed=claimed,
              epsilon_true=mixtures.epsilon(*outputs, delta=case.delta))


def constant(name: str, plan: sweep.Case) -> Metrics:
  """Returns epsilons under wrong constants (E3, E6, E7, E11, E12, E17)."""
  result = constants.compute(name)
  ratio = result.multiplier_ratio
  return dict(
      epsilon_claimed=event_epsilon(plan), multiplier_ratio=ratio,
      epsilon_true=event_epsilon(
          plan, noise_multiplier=ratio * plan.noise_multiplier))


def published_run(name: str) -> papers.PublishedRun:
  """Returns the line of a data set in the table of the published code."""
  return next(run for run in papers.PUBLISHED_CODE if run.dataset == name)


def published(name: str) -> Metrics:
  """Returns the epsilons of the configured and of the actual batch sizes.

  The true epsilon is larger: the sums do not have the sensitivity 1 that is
  granted here, and batches are shuffled, not Poisson.
  """
  run = published_run(name)
  rate = run.accounted_batch_size / run.num_examples
  configured = sweep.Case(
      num_examples=run.num_examples, batch_size=run.accounted_batch_size,
      num_steps=math.ceil(run.epochs / rate), delta=run.delta,
      noise_multiplier=run.noise_multiplier)
  drawn = sweep.Case(
      num_examples=run.num_examples, batch_size=run.drawn_batch_size,
      num_steps=run.epochs * math.ceil(
          run.num_examples / run.drawn_batch_size), delta=run.delta,
      noise_multiplier=run.noise_multiplier * run.drawn_batch_size /
      run.accounted_batch_size)
  return dict(
      epsilon_claimed=run.epsilon,
      epsilon_configured=event_epsilon(configured, accountant='rdp'),
      epsilon_true=event_epsilon(drawn, accountant='rdp'),
      num_steps=drawn.num_steps, noise_multiplier=drawn.noise_multiplier)
