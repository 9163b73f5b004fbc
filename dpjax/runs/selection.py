"""Chooses hyperparameters privately: the best of a random number of runs.

A geometric number of runs is made. Each draws a candidate uniformly, with
replacement, is trained on all folds of the training part but the first, and is
scored by the number of records of that fold that it classifies right, plus
discrete Laplace noise. Only the run of the best score is written.

Guarantee: the choice is (epsilon, delta)-DP for every record of the training
part, under the adjacency of the runs. Proof. The folds depend on the public
seed and the public size of the data set, so a record is either trained on or
held out, on both of two neighbouring data sets: a replaced record keeps its
place, and for an added or removed one the other records keep theirs.

1. If neighbours differ in a record that is trained on, the output of a run (its
   parameters and its score) is a function of the parameters, of other records,
   and of noise: by post-processing it has the privacy profile of the training.
2. If they differ in a held-out record, the parameters of a run have the same
   distribution on both data sets. Given them, the number of right answers
   differs by at most 1, also for a replacement. So the run has the profile of
   discrete Laplace noise at sensitivity 1.
3. The theorem of `privacy.tuning` holds for each such pair with the profile of
   its case. The cost of the choice is the larger one of both cases, so training
   and score each get the largest budget that the target allows.
4. Noise on a lattice is within total variation t of the noise of the event. The
   outputs of k runs are then within k t, and the choice within E N t. So in the
   first case (1 + e^epsilon) E N t of delta is kept for this difference.

The candidates, the number's distribution and all budgets are public. The number
of runs is not, and nothing of another run may become known.
"""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpjax.privacy import accounting
from dpjax.privacy import exact
from dpjax.privacy import keys as key_lib
from dpjax.privacy import stopping as stoppings
from dpjax.privacy import tuning
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.stopping import RandomStopping
from dpjax.runs import building
from dpjax.runs import configuration
from dpjax.runs import settings
from dpjax.runs import training
from dpjax.runs import training_methods
from dpjax.runs.configuration import TrainingConfig
from dpjax.train.plan import TrainingPlan
from dpjax.typing import PRNGKey

TUNED = ('depth', 'learning_rate', 'clip_norm', 'batch_size', 'num_steps')
"""Options in which the candidates of a choice may differ."""

SHAPE = 1.0
"""Shape of the number of runs: the geometric distribution.

At one expected rank of the best run, it allows runs about the budget that
larger shapes do, and more than smaller ones.
"""
# Up to here, a float32 accuracy determines the number of right answers.
_MOST_HELD = 2**20


class Search(NamedTuple):
  """A choice before its first run; everything in it is public.

  Attributes:
    runs: resolved configuration of each candidate, with the budget of a run.
    plans: plan of each candidate.
    stopping: distribution of the number of runs.
    score_epsilon: pure epsilon of the score of a run, for a held-out record.
    num_held: number of records that are held out for the scores.
    target: epsilon asked for.
    epsilon: cost of the whole choice at `delta`, at most the target.
    delta: of the whole choice, and of each run.
  """
  runs: tuple[TrainingConfig, ...]
  plans: tuple[TrainingPlan, ...]
  stopping: RandomStopping
  score_epsilon: float
  num_held: int
  target: float
  epsilon: float
  delta: float


def check(candidates: Sequence[TrainingConfig], mean_runs: float) -> None:
  """Raises a ValueError of one line if there can be no choice among these.

  Args:
    candidates: checked configurations, with the budget of the whole choice.
    mean_runs: mean number of runs, above 1.
  """
  first = candidates[0]
  if any(candidate != dataclasses.replace(first, **values(candidate, TUNED))
         for candidate in candidates):
    raise ValueError('a private choice is among values of '
                     f'{", ".join(TUNED)}; give one value of every other '
                     'option')
  if len(candidates) < 2:
    raise ValueError('there is nothing to choose: give at least two values of '
                     f'one of {", ".join(TUNED)}')
  if first.method == 'sgd' or not (
      training_methods.METHODS[first.method].epsilon_valid):
    raise ValueError(f'a private choice needs private runs; {first.method} is '
                     'not private')
  if first.accountant != 'pld':
    raise ValueError('the cost of a private choice is computed by accountant = '
                     f'pld, not by {first.accountant}')
  if first.num_canaries:
    raise ValueError('a private choice cannot be audited by canaries: train a '
                     'single run with num_canaries')
  if first.user_column is not None:
    # A user with many records would change the score by more than 1.
    raise ValueError('the score of a private choice counts records: with a '
                     'user_column, train single runs')
  if first.stream:
    raise ValueError('a private choice needs records in memory: stream must be '
                     'false')
  if first.fold is not None:
    raise ValueError('a private choice holds out fold 0 for its scores; fold '
                     'must not be given')
  RandomStopping(mean=mean_runs, shape=SHAPE)  # Raises for a bad mean.


def values(config: TrainingConfig, names: Sequence[str]) -> dict[str, Any]:
  """Returns the values of these options."""
  return {name: getattr(config, name) for name in names}


def plan(candidates: Sequence[TrainingConfig], mean_runs: float,
         dataset: building.Dataset) -> Search:
  """Returns the budgets with which the whole choice meets its target.

  Args:
    candidates: see `check`.
    mean_runs: mean number of runs, above 1.
    dataset: as it was loaded, before `building.prepare`.

  Raises:
    ValueError: if the target is too small for this many runs, or if a candidate
      does not fit the data set.
  """
  first = candidates[0]
  dataset = building.prepare(first, dataset)
  stopping = RandomStopping(mean=mean_runs, shape=SHAPE)
  num_held = training.num_available(first, dataset) // first.num_folds
  if not 1 <= num_held <= _MOST_HELD:
    raise ValueError(f'fold 0, which is held out for the scores, must have 1 '
                     f'to {_MOST_HELD} records, got {num_held}: change '
                     '--num_folds')
  resolved = _resolved(candidates, num_held, dataset)
  for config in resolved:
    # An error here stops the choice before a run; later it would show a run.
    building.make_method(config, building.make_model(config, dataset), dataset)
  sizes = [training.lattice_size(config, dataset) for config in resolved]
  adjacency, delta = Adjacency(first.adjacency), settings.known(
      resolved[0].delta)

  def plans(share: float) -> tuple[TrainingPlan, ...]:
    return tuple(
        training.make_plan(dataclasses.replace(config, epsilon=share), size)
        for config, size in zip(resolved, sizes, strict=True))

  @functools.cache
  def of_training(share: float) -> float:
    return training_cost(plans(share), stopping, delta=delta,
                         target=first.epsilon)

  @functools.cache
  def of_score(share: float) -> float:
    return tuning.epsilon([score_event(share)], stopping, delta=delta,
                          adjacency=adjacency)

  share = tuning.run_epsilon(of_training, first.epsilon)
  score = tuning.run_epsilon(of_score, first.epsilon)
  return Search(
      runs=tuple(dataclasses.replace(each, epsilon=share) for each in resolved),
      plans=plans(share), stopping=stopping, score_epsilon=score,
      num_held=num_held, target=first.epsilon, delta=delta,
      epsilon=max(of_training(share), of_score(score)))


def training_cost(plans: Sequence[TrainingPlan], stopping: RandomStopping, *,
                  delta: float, target: float) -> float:
  """Returns the epsilon of the choice for a record that is trained on.

  Args:
    plans: plan of each candidate; each run draws one of them uniformly.
    stopping: distribution of the number of runs.
    delta: of the whole choice.
    target: the result holds if it is at most this epsilon.

  Raises:
    ValueError: if delta is too small for noise on a lattice.
  """
  variation = max(each.noise_variation for each in plans)
  # The step 4 of the proof, with the largest epsilon that can be accepted.
  left = delta - (1 + math.exp(min(target, 700.0))) * stopping.mean * variation
  if not left >= accounting.MIN_DELTA:
    raise ValueError(f'delta = {delta:g} is too small for noise on a lattice '
                     f'at epsilon {target:g}: use a larger delta, or '
                     'floating-point noise (gaussian)')
  return tuning.epsilon([each.event for each in plans], stopping, delta=left,
                        adjacency=plans[0].adjacency)


def score_event(epsilon: float) -> accounting.DpEvent:
  """Returns the event of a score for a held-out record.

  Args:
    epsilon: discrete Laplace noise z has weight exp(-epsilon |z|).
  """
  return accounting.discrete_laplace_event(noise_parameter=epsilon,
                                           sensitivity=1)


def best_run(search: Search,
             train: Callable[[TrainingConfig], training.TrainingResult],
             fresh: Iterator[PRNGKey]
             ) -> tuple[int, int, training.TrainingResult]:
  """Returns candidate, noisy score and result of the best run, no other.

  Args:
    search: the budgets.
    train: trains one run, evaluated on the held-out fold, with a key that no
      other run has; with a noise_seed, the configuration has one of its own.
    fresh: keys, each for one use; secret ones for a release.
  """
  below = stoppings.integers_of(next(fresh))
  scale = 1 / exact.Fraction(search.score_epsilon)
  best: tuple[int, int, training.TrainingResult] | None = None
  for _ in range(search.stopping.draw(below)):
    index, key = below(len(search.runs)), next(fresh)
    config = search.runs[index]
    if config.noise_seed is not None:
      config = dataclasses.replace(config, noise_seed=_seed_of(key))
    result = train(config)
    # With at most `_MOST_HELD` records, rounding gives the exact number.
    score = (round(result.test_accuracy * result.num_test) +
             exact.discrete_laplace(scale, below))
    # Of equal scores the first stays: runs can be exchanged, so this has the
    # distribution of a choice among them by chance.
    if best is None or score > best[1]:
      best = index, score, result
  assert best is not None  # The number of runs is at least 1.
  return best


def _resolved(candidates: Sequence[TrainingConfig], num_held: int,
              dataset: building.Dataset) -> list[TrainingConfig]:
  """Returns the candidates as they are trained, still with the whole budget."""
  runs = [dataclasses.replace(each, fold=0) for each in candidates]
  available = training.num_available(runs[0], dataset)
  resolved = [configuration.resolve(each, num_available=available)
              for each in runs]
  if candidates[0].delta is not None:
    return resolved
  # Held-out records are protected, too: the default delta is that of them all.
  size = settings.known(resolved[0].num_examples) + num_held
  return [dataclasses.replace(each, delta=size**-each.delta_power)
          for each in resolved]


def fresh_keys(noise_seed: int | None) -> Iterator[PRNGKey]:
  """Yields keys that are used once: secret ones, or those of a seed."""
  if noise_seed is None:
    while True:
      yield key_lib.system_keys(1)[0]
  for place in itertools.count():
    yield jax.random.fold_in(jax.random.key(noise_seed), place)


def _seed_of(key: PRNGKey) -> int:
  """Returns the noise_seed of one run of a reproducible search."""
  return int(jax.random.bits(key, (), jnp.uint32))
