"""Private choice of hyperparameters: `tune`.

Choosing the best of several private runs by what they did on the data reveals
more than one of them. `tune` makes a random number of runs and releases only
the best one, at a cost that `privacy.tuning` proves.
"""

from collections.abc import Callable, Sequence
import functools
import itertools
import math
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import keys as key_lib
from dpjax.privacy import stopping as stoppings
from dpjax.privacy import tuning as costs
from dpjax.privacy.mechanism import Mechanism
from dpjax.privacy.stopping import RandomStopping
from dpjax.train.user_loop import Private
from dpjax.typing import PRNGKey

Candidate = TypeVar('Candidate')


class Tuned(NamedTuple, Generic[Candidate]):
  """The best run of a search: all that may be published of it.

  Attributes:
    candidate: the chosen one; None if there was no run, as can happen if their
      number is a Poisson number.
    model: what its run released; None likewise.
    score: its score, with its noise if there is any; -inf for no run.
    epsilon: cost of the whole search, at the delta that was asked for.
    run_epsilon: epsilon that each run was planned with.
  """
  candidate: Candidate | None
  model: Any
  score: float
  epsilon: float
  run_epsilon: float


def tune(make: Callable[[Candidate, float], Private],
         candidates: Sequence[Candidate],
         train: Callable[[Private, Candidate, PRNGKey], Any],
         score: Callable[[Any], Any], *, epsilon: float, delta: float,
         validation: Literal['public'] | Mechanism,
         stopping: RandomStopping, key: PRNGKey | None = None
         ) -> Tuned[Candidate]:
  """Returns the best of a random number of private runs.

  Each run draws a candidate, uniformly and with replacement, and trains it with
  a fresh key and less budget, so that the whole search is (epsilon, delta)-DP
  under the adjacency of the runs.

  The guarantee needs that nothing else leaves: not the number of runs, nor a
  log of them, nor the time that this function takes. Candidates must be fixed
  before, and scores are numbers, of which the largest is the best.

  Args:
    make: (candidate, epsilon of the run) -> a new object of `make_private`,
      with this epsilon, a number of steps, and a delta not above `delta`. It is
      called often, and must not look at records.
    candidates: hyperparameters to choose from.
    train: (private, candidate, key) -> model. It gives `key` to `Private.init`,
      takes the steps, and returns what may be published, such as
      `private.model(state)`.
    score: model -> number, exact. A score that is NaN is the worst.
    epsilon: target of the whole search.
    delta: target of the whole search, well above 1e-12 times the mean number.
    validation: what `score` reads: 'public' for public records, which cost
      nothing; for private records, be they those of the training or others, the
      mechanism that adds noise to the score, which each run pays for.
    stopping: distribution of the number of runs.
    key: typed key of everything, for research; None takes secret ones from the
      system, as a guarantee needs.

  Raises:
    ValueError: if there is no candidate; if `validation` is neither of both, or
      has another adjacency or too little noise; if `make` returns an object
      that is in use or has no guarantee.

  Examples:
    >>> import optax
    >>> from dpjax.privacy import RandomStopping
    >>> from dpjax.train import tuning
    >>> from dpjax.train.private import make_private
    >>> loss_fn = lambda w, x: jnp.square(x - w)
    >>> records = np.random.default_rng(0).normal(2, 1, 1000).astype('f')
    >>> def make(rate, epsilon):
    ...   return make_private(loss_fn, optax.sgd(rate), num_examples=1000,
    ...                       batch_size=1000, epsilon=epsilon, delta=1e-6,
    ...                       steps=10)
    >>> def train(private, rate, key):
    ...   state = private.init(jnp.float32(0), key=key)
    ...   for _ in range(10):
    ...     state, _ = private.step(state, records)
    ...   return state.params
    >>> # Reproducible: for research, not for a release.
    >>> key = jax.random.key(3)
    >>> best = tuning.tune(
    ...     make, [0.001, 0.3], train, lambda w: -abs(float(w) - 2),
    ...     validation='public', epsilon=4.0, delta=1e-5,
    ...     stopping=RandomStopping(mean=3), key=key)
    >>> best.candidate, best.epsilon <= 4, best.run_epsilon < 4
    (0.3, True, True)
  """
  if not len(candidates):
    raise ValueError('there must be at least one candidate')
  errors.check_positive('epsilon', epsilon)
  accounting.check_delta(delta)
  _check_validation(validation, epsilon, delta)
  cost = functools.cache(functools.partial(
      _cost, make, candidates, validation, stopping, delta))
  share = costs.run_epsilon(cost, epsilon)
  fresh = _fresh_keys(key)
  below = stoppings.integers_of(next(fresh))
  best = Tuned[Candidate](None, None, -math.inf, cost(share), share)
  for _ in range(stopping.draw(below)):
    candidate = candidates[below(len(candidates))]
    private = _unused(make(candidate, share))
    model = train(private, candidate, next(fresh))
    value = _noisy(score(model), validation, next(fresh))
    # Of equal scores the first stays: runs can be exchanged, so this has the
    # distribution of a choice among them by chance.
    if best.candidate is None or value > best.score:
      best = best._replace(candidate=candidate, model=model, score=value)
  return best


def _check_validation(validation: Any, epsilon: float, delta: float) -> None:
  """Raises if a score has no mechanism, or one that costs all of epsilon."""
  if isinstance(validation, str) and validation == 'public':
    return
  if not isinstance(validation, Mechanism):
    raise ValueError(
        "validation must be 'public' if the score reads no private record, or "
        'the mechanism that adds noise to it, such as privacy.GaussianMechanism'
        f'; got {validation!r}')
  spent = accounting.epsilon(validation.event, delta=delta,
                             adjacency=validation.adjacency)
  if spent >= epsilon:
    raise ValueError(f'validation must cost less than epsilon = {epsilon}: the '
                     f'noise of one score costs {spent:.3g} by itself; add more'
                     ' noise')


def _cost(make: Callable[[Candidate, float], Private],
          candidates: Sequence[Candidate], validation: Any,
          stopping: RandomStopping, delta: float, share: float) -> float:
  """Returns the epsilon of a search whose runs have the epsilon `share`."""
  objects = [_unused(make(candidate, share)) for candidate in candidates]
  relations = {each.adjacency for each in objects}
  events = [each.plan.event for each in objects]
  if validation != 'public':
    relations.add(validation.adjacency)
    events = [accounting.composed_event([event, validation.event])
              for event in events]
  if len(relations) > 1:
    names = ', '.join(sorted(each.value for each in relations))
    raise ValueError('all runs and the noise of the score need the same '
                     f'adjacency, got {names}')
  return costs.epsilon(events, stopping, delta=delta, adjacency=relations.pop())


def _unused(private: Private) -> Private:
  """Returns an object of `make_private`; raises if it cannot be charged."""
  if not isinstance(private, Private):
    raise TypeError('make must return an object of make_private, got a '
                    f'{type(private).__name__}')
  if private.noise_multiplier is None:
    raise ValueError('make must return private runs, got one without noise: '
                     'give the epsilon that make gets to make_private')
  if private.event != (private.plan.before or accounting.composed_event([])):
    raise ValueError('make must return a new object for each run, got one that '
                     'has already made steps')
  return private


def _fresh_keys(key: PRNGKey | None) -> Any:
  """Yields keys that are used once."""
  if key is None:
    while True:
      yield key_lib.system_keys(1)[0]
  for place in itertools.count():
    yield jax.random.fold_in(key, place)


def _noisy(score: Any, validation: Any, key: PRNGKey) -> float:
  """Returns the score that is compared; NaN becomes minus infinity."""
  if validation != 'public':
    score = validation.release(key, jnp.asarray(score, jnp.float32))
  value = float(np.asarray(score))
  return -math.inf if math.isnan(value) else value
