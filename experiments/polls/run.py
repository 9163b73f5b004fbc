"""Simulates the settings in `sweep.py`."""

from collections.abc import Iterator, Sequence
import math

import jax
import jax.numpy as jnp

from dpjax.privacy import local
from experiments import records
from experiments import rows
from experiments import simulation
from experiments.methods.mechanisms import forced_response
from experiments.methods.statistics import polls
from experiments.polls import sweep


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), setting.kind)
    if setting.kind == 'privacy':
      yield setting, rows.exact(setting, dict(
          epsilon=forced_response.epsilon_of_truth_prob(setting.parameter)))
      continue
    compute = {'truthful': _truthful, 'drowned': _drowned}[setting.kind]
    metrics = compute(setting)
    yield setting, rows.released(
        setting, metrics, n=setting.num_examples, epsilon=_epsilon(setting))


def _epsilon(setting: sweep.Setting) -> float:
  """Returns epsilon; infinite for a drowned poll, where a no reveals both."""
  return (forced_response.epsilon_of_truth_prob(setting.parameter)
          if setting.kind == 'truthful' else math.inf)


def _costs(estimate, share):
  """Returns estimate, squared error, coverage, and whether it is negative."""
  covered = (estimate.low <= share) & (share <= estimate.high)
  return jnp.stack([estimate.value, jnp.square(estimate.value - share),
                    covered.astype(jnp.float32),
                    (estimate.value < 0).astype(jnp.float32)])


def _metrics(setting, costs, sampler, size) -> dict[str, float]:
  means, errors = simulation.means(
      simulation.key_of(setting), costs, sampler,
      num_repetitions=setting.repetitions, size=size)
  names = ('mean', 'risk', 'coverage', 'negative')
  return {**dict(zip(names, means)),
          **{f'{name}_se': error for name, error in zip(names, errors)}}


def _truthful(setting: sweep.Setting) -> dict[str, float]:
  """Returns a poll by randomised response, truthful with probability phi.

  Item EST-01. If phi is below 1/2, all answers are negated.
  """
  phi, size = setting.parameter, setting.num_examples
  response = local.RandomizedResponse(
      num_categories=2, epsilon=forced_response.epsilon_of_truth_prob(phi))

  def sampler(key):
    yes = jax.random.bernoulli(key, setting.share, (size,))
    return (yes if phi > 0.5 else ~yes).astype(jnp.int32)

  def costs(key, data):
    num_yes = jnp.sum(response.release(key, data))
    return _costs(polls.proportion(num_yes, size, truth_prob=phi,
                                   method='wald'), setting.share)

  return _metrics(setting, costs, sampler, size) | dict(
      closed_form=polls.variance(setting.share, size, truth_prob=phi))


def _drowned(setting: sweep.Setting) -> dict[str, float]:
  """Returns a poll of the larger of two answers, and of the second (EST-02)."""
  size, others = setting.num_examples, setting.num_other
  poll = forced_response.ForcedYes(yes_prob=setting.parameter)

  def sampler(key):
    return jax.random.bernoulli(key, setting.share, (size,)).astype(jnp.int32)

  def costs(key, data):
    both, alone = jax.random.split(key)
    other = jax.random.bernoulli(alone, setting.parameter, (others,))
    return _costs(polls.proportion_drowned(
        jnp.sum(poll.release(both, data)), size,
        num_other_yes=jnp.sum(other), num_other_examples=others),
        setting.share)

  return _metrics(setting, costs, sampler, size + others) | dict(
      closed_form=polls.variance_drowned(setting.share, setting.parameter,
                                         size, others))
