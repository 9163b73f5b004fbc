"""What a search over hyper-parameters costs.

Training many times on the same private data and keeping the best run is a
release of its own; reporting the epsilon of one run, as the thesis does
(section 5.3, and erratum E30), leaves it out. Two sound accounts (item DP-21):
all trials composed, for any search; or, when the *number* of trials is random
and they are drawn independently of each other, the theorem of Papernot and
Steinke 2022, for a price that grows with the logarithm of their number.
"""

import math

import numpy as np
from scipy import optimize

import jax

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.typing import PRNGKey

_MAX_TABLE = 10**7


def all_trials_event(event: accounting.DpEvent, *,
                     num_trials: int) -> accounting.DpEvent:
  """Every trial released: covers adaptive searches, such as Bayesian ones.

  Args:
    event: of one trial; the trials may differ in what is no privacy matter.
    num_trials: fixed before the search.
  """
  errors.check_at_least('num_trials', num_trials, 1)
  return accounting.repeated_event(event, num_trials)


def best_trial_event(event: accounting.DpEvent, *, mean: float,
                     shape: float) -> accounting.DpEvent:
  """Only the best of a random number of independent trials is released.

  The number follows the truncated negative binomial distribution, drawn by
  `draw_num_trials` and kept secret; each trial's hyper-parameters come from one
  fixed distribution. Only the 'rdp' accountant covers it. Source: Papernot and
  Steinke 2022, Theorem 2.

  Args:
    event: of one trial.
    mean: expected number of trials, >= 1.
    shape: eta >= 0; 1 is the geometric distribution, 0 the logarithmic.
  """
  _check(mean, shape)
  return accounting.repeat_and_select_event(event, mean=mean, shape=shape)


def num_trials_probs(*, mean: float, shape: float) -> np.ndarray:
  """P(number = 1), P(number = 2), ...; until less than 1e-12 is left.

  Source: Papernot and Steinke 2022, Definition 1: proportional to (1 - g)^k
  prod_{l<k} (l + shape) / (l + 1), with g fixed by the mean.
  """
  _check(mean, shape)
  stop = _stop_prob(mean, shape)
  # The tail falls by 1 - g at least, once k exceeds the shape.
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
  """How many trials to run; private, like the trials that are not released."""
  probs = num_trials_probs(mean=mean, shape=shape)
  words = np.asarray(jax.random.bits(key, (2,), np.uint32), np.float64)
  uniform = (words[0] + words[1] / 2**32) / 2**32
  return min(int(np.searchsorted(np.cumsum(probs), uniform, 'right')) + 1,
             len(probs))


def expected_num_trials(*, stop_prob: float, shape: float) -> float:
  """Mean of the distribution with parameter g = `stop_prob` in (0, 1]."""
  errors.check_probability('stop_prob', stop_prob)
  errors.check_non_negative('shape', shape)
  if stop_prob == 1:
    return 1.0
  odds = (1 - stop_prob) / stop_prob
  if shape == 0:
    return odds / -math.log(stop_prob)
  return shape * odds / -math.expm1(shape * math.log(stop_prob))


def _stop_prob(mean: float, shape: float) -> float:
  """The parameter g whose mean is `mean`."""
  def gap(log_stop):
    return math.log(expected_num_trials(stop_prob=math.exp(log_stop),
                                        shape=shape) / mean)

  return math.exp(optimize.brentq(gap, -40.0, -1e-12, xtol=1e-14))


def _check(mean: float, shape: float) -> None:
  errors.check_non_negative('shape', shape)
  if not (math.isfinite(mean) and mean > 1):
    raise ValueError(f'mean must be a number > 1, got {mean}')
