"""Simulates the true epsilon at which an audit has 50 % power.

The question needs mechanisms that leak more, or less, than the audited one.
They are made from its own outputs. Let p and q be the distributions of the cell
of an output on the two data sets, and L = ln(p / q) the privacy loss of a cell.
Member t of the family has

  p_t proportional to sqrt(p q) e^(t L / 2),
  q_t proportional to sqrt(p q) e^(-t L / 2),

so member 1 is the mechanism itself, and every privacy loss grows by the factor
t, up to a constant that vanishes by symmetry. For Gaussian noise the family is
Gaussian noise of the standard deviation divided by t; for randomised response
and geometric noise the epsilon is multiplied by t, and for Laplace noise nearly
so. The whole audit is simulated on members: learn, choose, and count.

The result is a statement about faults of this kind, which make the mechanism's
own leak larger. A fault of another kind, as an answer published once in 200
runs, may be seen at a smaller epsilon or at none.
"""

from typing import NamedTuple

import numpy as np
from scipy import optimize
from scipy import special

from dpjax.audit import blackbox
from dpjax.audit import bounds
from dpjax.audit import curves
from dpjax.audit import events
from dpjax.audit import partitions
from dpjax.audit.target import Target
from dpjax.privacy import accounting
from dpjax.privacy import divergences

# Members are searched from 1 / _FACTOR to _FACTOR.
_FACTOR = 16.0
# Simulated choices for one member, and simulated counts of each chosen event.
_CHOICES, _COUNTS = 16, 100
# A normal privacy loss is assumed unless isotonic losses gain this much in
# log-likelihood for each of their steps.
_GAIN = 1.5
_STEPS = 9
# The simulated runs are no releases, and one report has one figure.
_SEED = 0
# Samples that do not overlap would fit an infinite line.
_LARGEST_OFFSET, _LARGEST_SHIFT = 50.0, 10.0


class Family(NamedTuple):
  """Mechanisms that leak more or less than the audited one, see the module.

  Attributes:
    base: [k] probabilities of cells under sqrt(p q), normalised.
    losses: [k] privacy losses of the cells.
    shift: mu, if the losses are those of Gaussian noise; None otherwise.
  """
  base: np.ndarray
  losses: np.ndarray
  shift: float | None

  def member(self, factor: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns the distributions [k] of the member of this factor t."""
    with np.errstate(divide='ignore'):
      logs = np.log(self.base)
    one, other = (special.softmax(logs + sign * factor * self.losses / 2)
                  for sign in (1, -1))
    return one, other


def family(present: np.ndarray, absent: np.ndarray,
           order: np.ndarray) -> Family:
  """Returns the family of a mechanism from counts [k] of cells.

  Losses are assumed to increase along `order`, or along the cells up or down,
  whichever is likeliest. They are fitted by isotonic regression, or by the
  straight line of Gaussian noise where that fits.

  Args:
    present: counts of one data set.
    absent: counts of the other, of as many runs.
    order: [k] cells, the likeliest of `present` first; not learnt from these
      counts.
  """
  cells = np.arange(order.size)
  fits = [_isotonic(present[each], absent[each])
          for each in (order[::-1], cells, cells[::-1])]
  best = int(np.argmax([fit[1] for fit in fits]))
  order = (order[::-1], cells, cells[::-1])[best]
  losses, likelihood, steps = fits[best]
  total = (present + absent)[order]
  line, slope, other = _line(present[order], absent[order], losses)
  straight = other + _GAIN * steps >= likelihood
  line = line if straight else losses
  weights = np.zeros(order.size)
  values = np.zeros(order.size)
  # The mean of p and q is sqrt(p q) cosh(L / 2).
  weights[order] = total / np.cosh(line / 2)
  values[order] = line
  return Family(weights / weights.sum(), values, slope if straight else None)


def _isotonic(present: np.ndarray,
              absent: np.ndarray) -> tuple[np.ndarray, float, int]:
  """Returns increasing losses [k], their log-likelihood, and their steps."""
  total = present + absent
  fit = optimize.isotonic_regression(
      present / np.maximum(total, 1), weights=np.maximum(total, 1e-9))
  starts = fit.blocks[:-1]
  ours, theirs = (np.add.reduceat(each, starts) for each in (present, absent))
  # Half a count more keeps the losses of the outer steps finite.
  steps = np.log((ours + 0.5) / (theirs + 0.5))
  losses = np.repeat(steps, np.diff(fit.blocks))
  return losses, _likelihood(present, absent, losses), int(starts.size)


def _likelihood(present: np.ndarray, absent: np.ndarray,
                losses: np.ndarray) -> float:
  """Returns the log-likelihood of losses [k], given the cells."""
  return float(np.sum(present * special.log_expit(losses) +
                      absent * special.log_expit(-losses)))


def _line(present: np.ndarray, absent: np.ndarray,
          losses: np.ndarray) -> tuple[np.ndarray, float, float]:
  """Fits losses that are linear in normal scores: those of Gaussian noise.

  Returns:
    (losses [k], mu, log-likelihood).
  """
  # Under sqrt(p q), Gaussian outputs are normal, in the middle of both means.
  weights = (present + absent) / np.cosh(losses / 2)
  levels = (np.cumsum(weights) - weights / 2) / weights.sum()
  scores = special.ndtri(np.clip(levels, 1e-9, 1 - 1e-9))
  fit = optimize.minimize(lambda x: -_likelihood(
      present, absent, x[0] + x[1] * scores) / present.sum(), [0.0, 0.1],
                          bounds=[(-_LARGEST_OFFSET, _LARGEST_OFFSET),
                                  (0.0, _LARGEST_SHIFT)])
  shift = float(fit.x[1])
  line = fit.x[0] + shift * scores
  return line, shift, _likelihood(present, absent, line)


def detectable_factor(count: events.Count, members: Family, *,
                      num_pilot: int, seed: int) -> float:
  """Returns the factor t at which audits have 50 % power; infinite if none.

  Args:
    count: the count of the audit.
    members: the family.
    num_pilot: number of runs that learn, of each data set; half as many as
      counted runs choose.
    seed: determines the simulated audits.
  """
  if not count.curve.epsilons.size:
    return np.inf
  power = lambda exponent: simulated_power(
      count, *members.member(2.0**exponent), num_pilot=num_pilot,
      seed=seed) - 0.5
  low, high = -np.log2(_FACTOR), np.log2(_FACTOR)
  if power(high) < 0:
    return np.inf
  for _ in range(_STEPS):
    middle = (low + high) / 2
    low, high = (low, middle) if power(middle) >= 0 else (middle, high)
  return float(2.0**((low + high) / 2))


def simulated_power(count: events.Count, present: np.ndarray,
                    absent: np.ndarray, *, num_pilot: int,
                    seed: int) -> float:
  """Returns how often an audit of two distributions [k] refutes the claim."""
  # The same seed for all members makes power nearly monotone in t.
  rng = np.random.default_rng(seed)
  runs = count.num_runs
  choosing = max(runs // 2, min(runs, num_pilot))
  edges = np.arange(present.size - 4, dtype=float)
  powers = []
  for _ in range(_CHOICES):
    learnt = [rng.multinomial(num_pilot, each) for each in (present, absent)]
    cut = partitions.Partition('', lambda y: y[:, 0], edges,
                               partitions.ratio_order(*learnt))
    event = events.of_counts(count, cut, *(
        rng.multinomial(choosing, each) for each in (present, absent)))
    hit, alarm = (min(1.0, float(each[event.flagged].sum())) for each in (
        (absent, present) if event.swapped else (present, absent)))
    miss, alarms = bounds.error_upper_bounds(
        true_positives=rng.binomial(runs, hit, _COUNTS), num_in=runs,
        false_positives=rng.binomial(runs, alarm, _COUNTS), num_out=runs,
        significance=count.significance, miss_share=event.miss_share)
    powers.append(np.mean(curves.excesses(count.curve, 1 - miss, alarms) > 0))
  return float(np.mean(powers))


def detectable_epsilon(target: Target, counted: blackbox.BlackBox, *,
                       significance: float) -> float:
  """Returns the true epsilon, at the claim's delta, of 50 % power.

  It is infinite if the audit measured no leak that could grow, or if 16 times
  the measured losses would not be refuted.

  Args:
    target: the audited target.
    counted: the result of its audit.
    significance: significance level of that audit.
  """
  if counted.epsilon_lower <= 0 >= counted.excess:
    return np.inf
  event, runs = counted.event, counted.num_runs
  cut = event.partition._replace(score=lambda scores: scores)
  order = cut.ranked if cut.ranked is not None else np.arange(cut.num_cells)
  members = family(cut.counts(counted.scores[0]), cut.counts(counted.scores[1]),
                   order[::-1] if event.swapped else order)
  count = events.Count(target.curve, target.claim.delta, runs, significance)
  factor = detectable_factor(count, members,
                             num_pilot=blackbox.pilot_runs(runs), seed=_SEED)
  if not np.isfinite(factor):
    return np.inf
  epsilon = (_pure(counted, members, factor) if target.claim.delta == 0 else
             _approximate(target, counted, members, factor))
  # A single claimed epsilon is true up to there, and a true claim is refuted
  # more rarely; a curve may be broken elsewhere.
  return max(epsilon, target.claim.epsilon) if (
      target.curve.epsilons.size == 1) else epsilon


def _pure(counted: blackbox.BlackBox, members: Family,
          factor: float) -> float:
  """Returns the epsilon of a member at delta 0.

  It is the measured log-ratio of the counted event, and what the member adds to
  it. Ratios of unlikely cells are larger mostly by chance.
  """
  runs = counted.num_runs
  measured = _log_ratio(*((each + 0.5) / (runs + 1) for each in (
      counted.true_positives, counted.false_positives)))
  of_member, of_audited = (
      _log_ratio(*(each[counted.event.flagged].sum()
                   for each in members.member(t))) for t in (factor, 1.0))
  return float(measured + of_member - of_audited)


def _log_ratio(hit: float, alarm: float) -> float:
  """Returns the epsilon that an event of these probabilities needs."""
  return float(max(np.log(hit / alarm), np.log((1 - alarm) / (1 - hit))))


def _approximate(target: Target, counted: blackbox.BlackBox, members: Family,
                 factor: float) -> float:
  """Returns the epsilon of a member at the claim's delta > 0."""
  delta = target.claim.delta
  if members.shift is not None:
    return accounting.gaussian_epsilon(shift=abs(factor * members.shift),
                                       delta=delta)
  audited, member = (_epsilon(*members.member(t), delta)
                     for t in (1.0, factor))
  if not audited or counted.excess > 0:
    return member
  # The cells say little of events of probability delta, but the bound and the
  # claim, which was not refuted, do.
  return member / audited * float(np.clip(audited, counted.epsilon_lower,
                                          target.claim.epsilon))


def _epsilon(present: np.ndarray, absent: np.ndarray, delta: float) -> float:
  """Returns the epsilon at delta of two distributions [k]."""
  needed = lambda epsilon: max(
      divergences.hockey_stick(present, absent, epsilon=epsilon),
      divergences.hockey_stick(absent, present, epsilon=epsilon)) - delta
  if needed(0.0) <= 0:
    return 0.0
  return float(optimize.brentq(needed, 0.0, 700.0, xtol=1e-4))
