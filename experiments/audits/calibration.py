"""Is the auditor right as often as it says? (AUD-13)

Scores without signal, and mechanisms whose epsilon is known: how often a bound
exceeds the truth, which the significance must bound, and how near it comes.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import numpy as np
from scipy import optimize
from scipy import special
from scipy import stats

from dpjax.audit import auditor
from dpjax.audit import bounds
from dpjax.audit import empirical
from dpjax.audit import one_run
from dpjax.audit.target import Target
from dpjax.privacy import accounting

SIZE, DELTA, SIGNIFICANCE = 1000, 1e-5, 0.05
_GUESSES = 100


class Coverage(NamedTuple):
  """How a bound does on a mechanism that is known.

  Attributes:
    estimator: its name.
    mechanism: in words.
    epsilon: the truth, at the delta of the estimator.
    wrong: how many bounds were above it.
    trials: of how many.
    median: of the bounds.
  """
  estimator: str
  mechanism: str
  epsilon: float
  wrong: int
  trials: int
  median: float

  @property
  def holds(self) -> bool:
    """Whether so many wrong bounds are not too many (at 1e-4, binomial)."""
    return stats.binom.sf(self.wrong - 1, self.trials, SIGNIFICANCE) > 1e-4


def _many(present, absent, rng):
  del rng
  return empirical.audit(present, absent, delta=DELTA).epsilon_lower


def _many_gaussian(present, absent, rng):
  del rng
  shift = bounds.gaussian_shift_lower_bound(
      true_positives=int(np.sum(present > 1)), num_in=present.size,
      false_positives=int(np.sum(absent > 1)), num_out=absent.size)
  return bounds.shift_to_epsilon(shift, delta=DELTA)


def _coins(present, absent, rng):
  included = rng.random(present.size) < 0.5
  return np.where(included, present, absent), included


def _one(present, absent, rng):
  scores, included = _coins(present, absent, rng)
  return one_run.epsilon_lower_bound(
      num_canaries=scores.size, num_guesses=_GUESSES,
      num_correct=one_run.count_guesses(scores, included, _GUESSES),
      delta=DELTA)


def _one_grid(present, absent, rng):
  return one_run.grid_lower_bound(*_coins(present, absent, rng), delta=DELTA)


def _one_gaussian(present, absent, rng):
  scores, included = _coins(present, absent, rng)
  shift = one_run.gaussian_shift_lower_bound(
      num_canaries=scores.size, num_guesses=_GUESSES,
      num_correct=one_run.count_guesses(scores, included, _GUESSES))
  return bounds.shift_to_epsilon(shift, delta=DELTA)


def _anytime(present, absent, rng):
  scores, included = _coins(present, absent, rng)
  return one_run.anytime_lower_bound((scores > 0.5) == included)


ESTIMATORS: dict[str, Callable] = {
    'AUD-04 halves': _many,
    'AUD-05 fixed threshold': _many_gaussian,
    'AUD-06 fixed guesses': _one,
    'AUD-06 grid': _one_grid,
    'AUD-07 fixed guesses': _one_gaussian,
    'AUD-08 signs': _anytime,
}
_GAUSSIAN_ONLY = ('AUD-05 fixed threshold', 'AUD-07 fixed guesses')
_PURE_ONLY = ('AUD-08 signs',)


def _null(rng, size):
  return rng.normal(size=size), rng.normal(size=size)


def _gaussian(shift):
  return lambda rng, size: (rng.normal(shift, 1, size), rng.normal(size=size))


def _response(epsilon):
  def draw(rng, size):
    right = rng.random((2, size)) < special.expit(epsilon)
    return right[0] * 1.0, 1.0 - right[1]
  return draw


def coverages(*, trials: int, seed: int) -> Iterator[Coverage]:
  """Every estimator on scores without signal and on known mechanisms."""
  cases = [('no signal', 0.0, _null)]
  cases += [(f'Gaussian, mu {shift}', accounting.gaussian_epsilon(
      shift=shift, delta=DELTA), _gaussian(shift))
            for shift in (0.5, 1.0)]
  cases += [(f'randomised response, {epsilon}', epsilon, _response(epsilon))
            for epsilon in (1.0, 2.0)]
  for mechanism, epsilon, draw in cases:
    for number, (name, estimator) in enumerate(ESTIMATORS.items()):
      if ((name in _GAUSSIAN_ONLY and mechanism.startswith('random')) or
          (name in _PURE_ONLY and mechanism.startswith('Gauss'))):
        continue
      rng = np.random.default_rng([seed, number])
      found = np.array([estimator(*draw(rng, SIZE), rng)
                        for _ in range(trials)])
      yield Coverage(name, mechanism, epsilon, int(np.sum(found > epsilon)),
                     trials, float(np.median(found)))


class Power(NamedTuple):
  """Bounds from expected counts, at the best threshold or guess count."""
  epsilon: float
  many_runs: float
  many_runs_gaussian: float
  one_run: float


def expected_power(epsilon: float) -> Power:
  """What 1000 runs on each side, or 1000 canaries, show of a Gaussian.

  From counts at their expectations: no draw of them.
  """
  shift = _shift_of(epsilon)
  thresholds = np.linspace(-4, 6, 401)
  hits, alarms = (np.round(SIZE * special.ndtr(mean - thresholds))
                  for mean in (shift, 0.0))
  counts = dict(num_in=SIZE, num_out=SIZE)
  many = bounds.epsilon_lower_bounds(
      true_positives=hits, false_positives=alarms, delta=DELTA, **counts).max()
  gaussian = max(bounds.gaussian_shift_lower_bound(
      true_positives=hit, false_positives=alarm, **counts)
                 for hit, alarm in zip(hits, alarms, strict=True))
  return Power(epsilon, float(many), bounds.shift_to_epsilon(
      gaussian, delta=DELTA), max(
          _expected_one_run(shift, guesses) for guesses in (
              5, 10, 20, 50, 100, 200, 250, 330, 500, 1000)))


def _expected_one_run(shift: float, guesses: int) -> float:
  """Half of the guesses on either side of a mixture of two normal laws."""
  share = guesses / (2 * SIZE)
  points = np.linspace(-6, 10, 4001)
  upper = (special.ndtr(shift - points) + special.ndtr(-points)) / 2
  cut = points[np.argmin(np.abs(upper - share))]
  right = special.ndtr(shift - cut) / (2 * share)
  return one_run.epsilon_lower_bound(
      num_canaries=SIZE, num_guesses=guesses,
      num_correct=min(guesses, round(guesses * right)), delta=DELTA)


def _shift_of(epsilon: float) -> float:
  return float(optimize.brentq(
      lambda shift: bounds.shift_to_epsilon(shift, delta=DELTA) - epsilon,
      1e-3, 10.0))


def false_alarms(target: Target, *, trials: int, num_runs: int,
                 seed: int) -> int:
  """How many of so many audits of an honest target say `violated`."""
  keys = jax.random.split(jax.random.key(seed), trials)
  return sum(auditor.audit(key, target, num_runs=num_runs,
                           significance=SIGNIFICANCE).verdict ==
             auditor.VIOLATED for key in keys)
