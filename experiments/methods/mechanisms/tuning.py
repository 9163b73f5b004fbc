"""Privacy cost of a search over hyper-parameters.

Training many times on the same private data and keeping the best run is a
release of its own. Reporting the epsilon of one run omits the cost of the
search, as in Barczewski (2025, section 5.3; erratum E30). Two sound accounts
(item DP-21): composition of all trials, for any search; or, if the *number* of
trials is random and the trials are drawn independently of each other, the
theorem of Papernot and Steinke (2022), whose cost grows with the logarithm of
their number.
"""

import math

import jax
import numpy as np
from scipy import optimize

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.typing import PRNGKey

_MAX_TABLE = 10**7


def all_trials_event(event: accounting.DpEvent, *,
                     num_trials: int) -> accounting.DpEvent:
  """Returns the event of releasing every trial.

  Covers adaptive searches too, such as Bayesian optimisation.

  Args:
    event: event of one trial; trials may differ in everything that does not
      change the event.
    num_trials: number of trials, fixed before the search.
  """
  errors.check_at_least('num_trials', num_trials, 1)
  return accounting.repeated_event(event, num_trials)


def best_trial_event(event: accounting.DpEvent, *, mean: float,
                     shape: float) -> accounting.DpEvent:
  """Returns the event of the best of a random number of independent trials.

  Only the best trial is released. The number follows the truncated negative
  binomial distribution; it is drawn by `draw_num_trials` and kept secret. Each
  trial draws its hyper-parameters from one fixed distribution. Only the 'rdp'
  accountant covers it. Source: Papernot and Steinke (2022, Theorem 2).

  Args:
    event: event of one trial.
    mean: expected number of trials, > 1.
    shape: eta >= 0; 1 is the geometric distribution, 0 the logarithmic.
  """
  _check(mean, shape)
  return accounting.repeat_and_select_event(event, mean=mean, shape=shape)


def num_trials_probs(*, mean: float, shape: float) -> np.ndarray:
  """Returns P(number = 1), P(number = 2), ... up to a tail below 1e-12.

  Proportional to (1 - g)^k prod_{l<k} (l + shape) / (l + 1), with g fixed by
  the mean. Source: Papernot and Steinke (2022, Definition 1).

  Args:
    mean: expected number of trials, > 1.
    shape: eta >= 0, see `best_trial_event`.

  Raises:
    ValueError: for a mean or shape out of range, or a table above 10^7 entries.
  """
  _check(mean, shape)
  stop = _stop_prob(mean, shape)
  # Once k exceeds the shape, masses fall at least about as fast as (1 - g)^k.
  count = math.ceil(40 / stop * max(1.0, shape)) + 10
  if count > _MAX_TABLE:
    raise ValueError(f'a mean of {mean} with shape {shape} needs a table of '
                     f'{count} numbers of trials, more than {_MAX_TABLE}')
  k = np.arange(1, count + 1)
  if shape == 0:
    logs = k * np.log1p(-stop) - np.log(k)
  else:
    logs = k * np.log1p(-stop) + np.cumsum(np.log((k - 1 + shape) / k))
  probs = np.exp(logs - logs.max())
  probs /= probs.sum()
  return probs[:int(np.searchsorted(np.cumsum(probs), 1 - 1e-12)) + 1]


def draw_num_trials(key: PRNGKey, *, mean: float, shape: float) -> int:
  """Draws the number of trials to run; private, like unreleased trials.

  Args:
    key: secret key, fresh for this draw.
    mean: expected number of trials, > 1.
    shape: eta >= 0, see `best_trial_event`.
  """
  probs = num_trials_probs(mean=mean, shape=shape)
  words = np.asarray(jax.random.bits(key, (2,), np.uint32), np.float64)
  # One word would resolve probabilities only to 2^-32.
  uniform = (words[0] + words[1] / 2**32) / 2**32
  return min(int(np.searchsorted(np.cumsum(probs), uniform, 'right')) + 1,
             len(probs))


def expected_num_trials(*, stop_prob: float, shape: float) -> float:
  """Returns the mean of the distribution with g = `stop_prob` in (0, 1]."""
  errors.check_probability('stop_prob', stop_prob)
  errors.check_non_negative('shape', shape)
  if stop_prob == 1:
    return 1.0
  odds = (1 - stop_prob) / stop_prob
  if shape == 0:
    return odds / -math.log(stop_prob)
  return shape * odds / -math.expm1(shape * math.log(stop_prob))


def _stop_prob(mean: float, shape: float) -> float:
  """Returns the parameter g for which the mean is `mean`."""
  def gap(log_stop: float) -> float:
    return math.log(expected_num_trials(stop_prob=math.exp(log_stop),
                                        shape=shape) / mean)

  # Solves for ln g, because g spans many orders of magnitude.
  return math.exp(optimize.brentq(gap, -40.0, -1e-12, xtol=1e-14))


def _check(mean: float, shape: float) -> None:
  """Checks the mean and the shape of the number of trials."""
  errors.check_non_negative('shape', shape)
  if not (math.isfinite(mean) and mean > 1):
    raise ValueError(f'mean must be a number > 1, got {mean}')
