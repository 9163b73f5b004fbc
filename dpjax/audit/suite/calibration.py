"""Measures the coverage and power of the auditor's bounds (AUD-13).

On scores without signal, and on mechanisms with known epsilon, it counts how
often a bound exceeds the true epsilon (at most a fraction `significance` of
trials may) and how close to it the bounds come.
"""

from collections.abc import Callable, Iterator
import functools
from typing import NamedTuple

import jax
import numpy as np
from scipy import optimize
from scipy import special
from scipy import stats

from dpjax.audit import auditor
from dpjax.audit import bounds
from dpjax.audit import curves
from dpjax.audit import empirical
from dpjax.audit import one_run
from dpjax.audit import one_run_tight
from dpjax.audit import sequential
from dpjax.audit.target import Target
from dpjax.privacy import accounting

# `SIZE` is the number of scores on each side, or of canaries, for one bound.
SIZE, DELTA, SIGNIFICANCE = 1000, 1e-5, 0.05
_GUESSES, _SEPARATE_GUESSES = 100, 500
# The sequential test updates its bets after this many runs.
_BATCH = 250

Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]
"""(generator, n) -> scores [n] with the canary, and scores [n] without it."""


class Coverage(NamedTuple):
  """Coverage of a bound on a mechanism with known epsilon.

  Attributes:
    estimator: name of the bound, a key of `ESTIMATORS`.
    mechanism: description of the mechanism.
    epsilon: true epsilon, at the delta of the estimator.
    wrong: number of bounds above the true epsilon.
    trials: number of bounds.
    median: median of the bounds.
  """
  estimator: str
  mechanism: str
  epsilon: float
  wrong: int
  trials: int
  median: float

  @property
  def holds(self) -> bool:
    """Whether a binomial test of level 1e-4 accepts `wrong`."""
    return stats.binom.sf(self.wrong - 1, self.trials, SIGNIFICANCE) > 1e-4


def _many(present: np.ndarray, absent: np.ndarray,
          rng: np.random.Generator) -> float:
  """Returns the many-run lower bound on epsilon."""
  del rng
  return empirical.audit(present, absent, delta=DELTA).epsilon_lower


def _many_gaussian(present: np.ndarray, absent: np.ndarray,
                   rng: np.random.Generator) -> float:
  """Returns the Gaussian many-run lower bound on epsilon, at threshold 1."""
  del rng
  shift = bounds.gaussian_shift_lower_bound(
      true_positives=int(np.sum(present > 1)), num_in=present.size,
      false_positives=int(np.sum(absent > 1)), num_out=absent.size)
  return bounds.shift_to_epsilon(shift, delta=DELTA)


def _coins(present: np.ndarray, absent: np.ndarray,
           rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
  """Draws fair coins; returns the scores that they select, and the coins."""
  included = rng.random(present.size) < 0.5
  return np.where(included, present, absent), included


def _one(present: np.ndarray, absent: np.ndarray,
         rng: np.random.Generator) -> float:
  """Returns the one-run lower bound on epsilon from `_GUESSES` guesses."""
  scores, included = _coins(present, absent, rng)
  return one_run.epsilon_lower_bound(
      num_canaries=scores.size, num_guesses=_GUESSES,
      num_correct=one_run.count_guesses(scores, included, _GUESSES),
      delta=DELTA)


def _one_grid(present: np.ndarray, absent: np.ndarray,
              rng: np.random.Generator) -> float:
  """Returns the best one-run bound over a grid of numbers of guesses."""
  return one_run.grid_lower_bound(*_coins(present, absent, rng), delta=DELTA)


def _separate_grid(present: np.ndarray, absent: np.ndarray,
                   rng: np.random.Generator) -> float:
  """Returns the best bound over the grid if each coin has its own run."""
  return one_run.grid_lower_bound(*_coins(present, absent, rng), delta=DELTA,
                                  independent=True)


def _guessed_gaussian(guesses: int, lower_bound: Callable[..., float],
                      present: np.ndarray, absent: np.ndarray,
                      rng: np.random.Generator) -> float:
  """Returns the epsilon of a lower bound on mu from so many guesses."""
  scores, included = _coins(present, absent, rng)
  shift = lower_bound(
      num_canaries=scores.size, num_guesses=guesses,
      num_correct=one_run.count_guesses(scores, included, guesses))
  return bounds.shift_to_epsilon(shift, delta=DELTA)


def _anytime(present: np.ndarray, absent: np.ndarray,
             rng: np.random.Generator) -> float:
  """Returns the anytime bound; a score above 1/2 guesses `included`."""
  scores, included = _coins(present, absent, rng)
  return one_run.anytime_lower_bound((scores > 0.5) == included)


def _sequential(present: np.ndarray, absent: np.ndarray,
                rng: np.random.Generator) -> float:
  """Returns the sequential bound; the event is a score above 1/2."""
  del rng
  test = sequential.init(curves.NOTHING, SIGNIFICANCE, delta=DELTA)
  hits, alarms = present > 0.5, absent > 0.5
  for start in range(0, hits.size, _BATCH):
    test = sequential.rebalance(test, hits[:start], alarms[:start])
    test = sequential.update(test, hits[start:start + _BATCH],
                             alarms[start:start + _BATCH])
  return test.epsilon_lower


ESTIMATORS: dict[str, Callable[
    [np.ndarray, np.ndarray, np.random.Generator], float]] = {
    'AUD-04 halves': _many,
    'AUD-05 fixed threshold': _many_gaussian,
    'AUD-06 fixed guesses': _one,
    'AUD-06 grid': _one_grid,
    'AUD-07 fixed guesses': functools.partial(
        _guessed_gaussian, _GUESSES, one_run.gaussian_shift_lower_bound),
    'AUD-07 tight, fixed guesses': functools.partial(
        _guessed_gaussian, _GUESSES, one_run_tight.gaussian_shift_lower_bound),
    'AUD-08 signs': _anytime,
    'separate runs, grid': _separate_grid,
    'separate runs, fixed guesses': functools.partial(
        _guessed_gaussian, _SEPARATE_GUESSES, functools.partial(
            one_run_tight.gaussian_shift_lower_bound, independent=True)),
    'sequential, fixed event': _sequential,
}
_GAUSSIAN_ONLY = ('AUD-05 fixed threshold', 'AUD-07 fixed guesses',
                  'AUD-07 tight, fixed guesses', 'separate runs, fixed guesses')
_PURE_ONLY = ('AUD-08 signs',)


def _null(rng: np.random.Generator,
          size: int) -> tuple[np.ndarray, np.ndarray]:
  """Draws scores whose distribution does not depend on the canary."""
  return rng.normal(size=size), rng.normal(size=size)


def _gaussian(shift: float) -> Draw:
  """Returns a sampler of normal scores, whose mean is `shift` with the canary.
  """
  return lambda rng, size: (rng.normal(shift, 1, size), rng.normal(size=size))


def _response(epsilon: float) -> Draw:
  """Returns a sampler of randomised responses to whether the canary is used."""
  def draw(rng: np.random.Generator,
           size: int) -> tuple[np.ndarray, np.ndarray]:
    right = rng.random((2, size)) < special.expit(epsilon)
    return right[0] * 1.0, 1.0 - right[1]
  return draw


def coverages(*, trials: int, seed: int) -> Iterator[Coverage]:
  """Yields the coverage of every estimator on every mechanism it is valid for.

  Each pair of estimator and mechanism gets `trials` bounds.
  """
  cases: list[tuple[str, float, Draw]] = [('no signal', 0.0, _null)]
  cases += [(f'Gaussian, mu {shift}', accounting.gaussian_epsilon(
      shift=shift, delta=DELTA), _gaussian(shift))
            for shift in (0.5, 1.0)]
  cases += [(f'randomised response, {epsilon}', epsilon, _response(epsilon))
            for epsilon in (1.0, 2.0)]
  for number, (mechanism, epsilon, draw) in enumerate(cases):
    for name, estimator in ESTIMATORS.items():
      if ((name in _GAUSSIAN_ONLY and mechanism.startswith('random')) or
          (name in _PURE_ONLY and mechanism.startswith('Gauss'))):
        continue
      # All estimators see the same draws, so that their medians compare.
      rng = np.random.default_rng([seed, number])
      values = np.array([estimator(*draw(rng, SIZE), rng)
                         for _ in range(trials)])
      yield Coverage(name, mechanism, epsilon, int(np.sum(values > epsilon)),
                     trials, float(np.median(values)))


class Power(NamedTuple):
  """Lower bounds on epsilon from expected counts, at the best threshold.

  Attributes:
    epsilon: true epsilon of the Gaussian mechanism.
    many_runs: bound from many runs (AUD-04).
    many_runs_gaussian: bound from many runs for Gaussian trade-offs (AUD-05).
    one_run: bound from one run, at the best number of guesses (AUD-06).
    separate_runs: the same for Gaussian trade-offs, if each coin has its own
      run.
  """
  epsilon: float
  many_runs: float
  many_runs_gaussian: float
  one_run: float
  separate_runs: float


def expected_power(epsilon: float) -> Power:
  """Returns the bounds that 1000 runs per side, or 1000 canaries, give.

  The mechanism is Gaussian. Counts are at their expected values; nothing is
  sampled.
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
  counts_of_guesses = [dict(num_canaries=SIZE, num_guesses=guesses,
                            num_correct=_expected_correct(shift, guesses))
                       for guesses in (
                           5, 10, 20, 50, 100, 200, 250, 330, 500, 1000)]
  separate = max(one_run_tight.gaussian_shift_lower_bound(
      **each, independent=True) for each in counts_of_guesses)
  return Power(
      epsilon, float(many), bounds.shift_to_epsilon(gaussian, delta=DELTA),
      max(one_run_tight.epsilon_lower_bound(**each, delta=DELTA)
          for each in counts_of_guesses),
      bounds.shift_to_epsilon(separate, delta=DELTA))


def _expected_correct(shift: float, guesses: int) -> int:
  """Returns the expected number of correct guesses, rounded.

  The most extreme scores are guessed, half of them in each tail of an equal
  mixture of N(0, 1) and N(shift, 1).
  """
  tail = guesses / (2 * SIZE)
  points = np.linspace(-6, 10, 4001)
  upper = (special.ndtr(shift - points) + special.ndtr(-points)) / 2
  # The score above which a fraction `tail` of all canaries lies.
  cut = points[np.argmin(np.abs(upper - tail))]
  # Half of the canaries are in, so this is P(in | above the cut). Guesses in
  # the lower tail are right as often, by symmetry.
  right = special.ndtr(shift - cut) / (2 * tail)
  return min(guesses, round(guesses * right))


def _shift_of(epsilon: float) -> float:
  """Returns the mu whose Gaussian trade-off has this epsilon at `DELTA`."""
  return float(optimize.brentq(
      lambda shift: bounds.shift_to_epsilon(shift, delta=DELTA) - epsilon,
      1e-3, 10.0))


def false_alarms(target: Target, *, trials: int, num_runs: int,
                 seed: int) -> int:
  """Counts the verdicts `violated` in `trials` audits of a sound target."""
  keys = jax.random.split(jax.random.key(seed), trials)
  return sum(auditor.audit(key, target, num_runs=num_runs,
                           significance=SIGNIFICANCE).verdict ==
             auditor.VIOLATED for key in keys)
