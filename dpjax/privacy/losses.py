"""Privacy losses of sampling schemes that the library of events lacks.

`sampled_events` turns the results into privacy loss distributions of the
library, which compose with those of all other events. Random allocations of any
mechanism: Feldman and Shenfeld (2026). All numbers are float64, and
rounding that does not vanish is towards more privacy loss.
"""

import functools
from typing import NamedTuple

import numpy as np
from scipy import fft
from scipy import signal
from scipy import special

from dpjax import errors

# Mass of a tail that is cut off; it is added to the mass of infinite loss.
_TAIL = 1e-15
# Likelihood ratios are rounded to this part of their standard deviation, and
# to no more values than this.
_PARTS, _MOST_VALUES = 100, 2**20
# Losses below this are rounded up to it, and losses above are infinite.
_LEAST_LOSS, _LARGEST_LOSS = -30.0, 100.0


class Losses(NamedTuple):
  """Distribution of a privacy loss on a grid.

  Attributes:
    first: the smallest loss, in units of the grid.
    probs: [m] probabilities of first, first + 1, ...
    infinity: probability of an infinite loss.
  """
  first: int
  probs: np.ndarray
  infinity: float


class _Ratios(NamedTuple):
  """A random likelihood ratio on a grid: values spacing * (first + i).

  Attributes:
    first: the smallest value, in units of the spacing.
    probs: [m] probabilities.
    spacing: of the grid.
  """
  first: int
  probs: np.ndarray
  spacing: float

  @property
  def values(self) -> np.ndarray:
    """The values [m] of the grid."""
    return self.spacing * (self.first + np.arange(len(self.probs)))


@functools.lru_cache(maxsize=8)  # A loop asks for its epsilon again and again.
def random_allocation(*, noise_multiplier: float, num_steps: int,
                      interval: float) -> tuple[Losses, Losses]:
  """Bounds the losses of Gaussian steps of which each record joins one.

  Each record joins exactly one of T steps, chosen uniformly and independently
  of all others; a step releases the sum of its records, of norm at most 1, with
  noise of standard deviation z = `noise_multiplier`. Steps may depend on what
  was released before. For ADD_OR_REMOVE_ONE.

  Proof. Let W_t = exp(x_t / z^2 - 1 / (2 z^2)) and S = (W_1 + ... + W_T) / T.

  1. Fix the steps of all other records; hockey-stick divergences are jointly
     convex, so it suffices to bound them for each choice. Let x be T normal
     numbers of variance z^2, of mean 0 under Q and of mean 1 at a uniform place
     under P. Given the outputs before step t, the contribution of the record
     is a vector g of norm at most 1, and x_t g plus normal noise of covariance
     z^2 (I - g g^T) is what the step adds to the sum of the others, without the
     record under Q and with it under P. So all outputs are post-processing of
     x: the pair (P, Q) dominates the removal of a record, and (Q, P) the
     addition. (Chua et al. 2024; Feldman and Shenfeld 2025.)
  2. dP/dQ = S, so with e = exp(epsilon) the two profiles are
     E_Q (S - e)_+ and E_Q (1 - e S)_+, and the W_t are independent under Q.
  3. Both are convex in each W_t. Replacing W_t by the two grid points next to
     it, with weights that keep its mean, therefore raises both, for every e.
  4. The first profile is the mean of (1 - e / S)_+ under P, and S may be taken
     larger there. By symmetry the place of the mean 1 may be t = 1. If another
     W_t exceeds a cap c, the loss is called infinite; if only W_1 does, the
     others are replaced by an upper bound on their sum, which fails with
     probability below 2 * 10^-15. In the second profile (1 - e S)_+ falls in S,
     so each W_t may be replaced by min(W_t, c).
  5. What is left of S lies on a grid, and its distribution is a convolution.
     Splitting each loss over the next two grid points, with weights that keep
     the mass under P and under Q, is step 3 again, for the ratio S.

  Args:
    noise_multiplier: z.
    num_steps: T, at least 2.
    interval: distance of the grid of losses.

  Returns:
    Losses for a removed record, and for an added one.
  """
  errors.check_positive('noise_multiplier', noise_multiplier)
  errors.check_at_least('num_steps', num_steps, 2)
  errors.check_positive('interval', interval)
  shift = 1 / noise_multiplier
  # Under P the logarithm of W has mean shift^2 / 2, under Q -shift^2 / 2.
  largest = max(1.0, np.exp(-shift * (
      shift / 2 + special.ndtri(_TAIL / num_steps))))
  ratios, beyond = _rounded_ratio(shift, largest)
  others, folded = _sum_of(ratios, num_steps - 1)
  mean = _Ratios(others.first, signal.fftconvolve(
      others.probs, ratios.values * ratios.probs), ratios.spacing / num_steps)
  removed = _with_far_part(
      _on_grid(np.log(np.maximum(mean.values, 1e-300)), mean.probs, interval),
      shift, ratios.values[-1], others.values[-1], num_steps, interval)
  removed = removed._replace(infinity=removed.infinity + folded + _excess(
      mean.probs) + (num_steps - 1) * beyond)

  # Averages beyond 256 have losses below -5.5, which hardly matter here.
  ratios, beyond = _rounded_ratio(shift, min(largest, 256.0 * num_steps))
  ratios.probs[-1] += beyond
  total, folded = _sum_of(ratios, num_steps)
  mean = total._replace(spacing=total.spacing / num_steps)
  positive = mean.values > 0
  added = _on_grid(-np.log(mean.values[positive]), mean.probs[positive],
                   interval)
  added = added._replace(infinity=folded + _excess(mean.probs) + float(
      np.sum(mean.probs[~positive])))
  return removed, added


def fixed_size_deltas(*, noise_multiplier: float, sampling_prob: float,
                      interval: float) -> tuple[int, np.ndarray]:
  """Bounds the profile of a Gaussian release on a batch of fixed size.

  The batch is a uniform subset of b of n records, q = b / n; the release is the
  sum of its records, of norm at most 1, with noise of standard deviation z.
  For REPLACE_ONE, in both directions.

  Proof. Let A and A' be the output distributions of two neighbours given that
  the differing record is in the batch, and R that given that it is not, which
  both share. Let e = exp(epsilon) >= 1, e' = 1 + (e - 1) / q and b = e / e'.

  1. Advanced joint convexity (Balle, Barthe and Gaboardi 2018, Theorem 2): the
     divergence of order e of (1 - q) R + q A from (1 - q) R + q A' is q times
     that of order e' of A from (1 - b) R + b A'.
  2. It is at most q ((1 - b) H(A || R) + b H(A || A')), by convexity.
  3. A is the mean over batches with the record; replacing it in the batch by
     a uniform record outside gives R, and replacing its value gives A'. Both
     change the sum by at most 2. So both divergences are at most that of a
     Gaussian release of sensitivity 2.
  4. H of order e of (P || Q) is 1 - e + e times H of order 1 / e of (Q || P),
     which gives the profile for e < 1, since neighbours are symmetric.

  A bound of both directions at every order dominates under composition (Zhu,
  Dong and Wang 2022, Theorem 10); the profiles of one direction alone do not
  (Lebeda et al. 2024).

  Args:
    noise_multiplier: z.
    sampling_prob: q, in (0, 1].
    interval: distance of the grid of epsilons.

  Returns:
    (the smallest epsilon in units of the grid, deltas [m] from there on).
  """
  errors.check_positive('noise_multiplier', noise_multiplier)
  errors.check_probability('sampling_prob', sampling_prob)
  errors.check_positive('interval', interval)
  shift = 2 / noise_multiplier
  # The order of the inner divergence, e' = (e / q) (1 - (1 - q) / e), at which
  # the divergence of Gaussians is below the tail that is cut off.
  largest = shift * (shift / 2 - special.ndtri(_TAIL))
  last = np.logaddexp(largest + np.log(sampling_prob), np.log1p(
      -sampling_prob)) if sampling_prob < 1 else largest
  last = min(last, _LARGEST_LOSS)
  epsilons = interval * np.arange(int(np.ceil(last / interval)) + 2)
  orders = epsilons - np.log(sampling_prob) + np.log1p(
      -(1 - sampling_prob) * np.exp(-epsilons))
  deltas = sampling_prob * np.maximum(
      special.ndtr(shift / 2 - orders / shift)
      - np.exp(orders + special.log_ndtr(-shift / 2 - orders / shift)), 0)
  mirrored = epsilons[:0:-1]
  below = -np.expm1(-mirrored) + np.exp(-mirrored) * deltas[:0:-1]
  return 1 - len(epsilons), np.concatenate([below, deltas])


def _rounded_ratio(shift: float, largest: float) -> tuple[_Ratios, float]:
  """Returns W of `random_allocation` under Q, rounded to a grid up to a cap.

  Rounding keeps the mean of W below the cap, which is at least `largest`. The
  second result is the mass beyond the cap.
  """
  deviation = np.sqrt(np.expm1(min(shift**2, 0.6)))
  spacing = max(deviation / _PARTS, largest / _MOST_VALUES)
  grid = spacing * np.arange(int(np.ceil(largest / spacing)) + 1)
  with np.errstate(divide='ignore'):  # log 0 is -infinity, as it should be.
    scores = np.log(grid) / shift + shift / 2
  mass, moment = _masses(scores), _masses(scores - shift)
  # Of a mass between two grid points, the part that goes to the upper one.
  upper = np.clip((moment - grid[:-1] * mass) / spacing, 0, mass)
  probs = np.append(mass - upper, 0.0)
  probs[1:] += upper
  return _Ratios(0, probs, spacing), float(special.ndtr(-scores[-1]))


def _with_far_part(near: Losses, shift: float, cap: float, others: float,
                   num_steps: int, interval: float) -> Losses:
  """Returns losses with those of a ratio W_1 beyond the cap added, under P.

  Args:
    near: losses of smaller ratios.
    shift: see `random_allocation`.
    cap: of W_1.
    others: upper bound on the sum of all other ratios.
    num_steps: T.
    interval: distance of the grid of losses.
  """
  reach = -special.ndtri(_TAIL)
  # The logarithm of the largest W_1 that is not given an infinite loss.
  last = shift * (shift / 2 + reach)
  last = np.logaddexp(last, np.log(others)) - np.log(num_steps)
  least = np.log((cap + others) / num_steps)
  places = np.arange(int(np.floor(least / interval)), int(np.ceil(
      max(least, min(last, _LARGEST_LOSS)) / interval)) + 2)
  # The loss exceeds the grid point l if W_1 exceeds T e^l minus the others.
  logs = interval * places + np.log(num_steps)
  logs = logs + np.log1p(-np.minimum(others * np.exp(-logs), 1 - 1e-12))
  tails = special.ndtr(shift / 2 - np.maximum(logs, np.log(cap)) / shift)
  first = min(near.first, int(places[0]))
  size = max(near.first + len(near.probs), int(places[-1]) + 1) - first
  probs = np.zeros(size)
  probs[near.first - first:][:len(near.probs)] += near.probs
  probs[places[0] + 1 - first:][:len(places) - 1] -= np.diff(tails)
  return Losses(first, probs, near.infinity + float(tails[-1]))


def _masses(scores: np.ndarray) -> np.ndarray:
  """Returns the standard normal masses [m - 1] between increasing scores [m].
  """
  lower, upper = np.diff(special.ndtr(scores)), -np.diff(special.ndtr(-scores))
  return np.where(scores[:-1] > 0, upper, lower)


def _sum_of(ratios: _Ratios, count: int) -> tuple[_Ratios, float]:
  """Returns the sum of independent ratios, and the mass that may be misplaced.

  The discrete Fourier transform adds the mass outside of a window to values
  inside; by Chernoff's inequality there is little.
  """
  if count == 1:
    return ratios, 0.0
  low, high = _window(ratios.probs, count)
  size = fft.next_fast_len(max(high - low + 1, len(ratios.probs)), real=True)
  probs = fft.irfft(_power(fft.rfft(ratios.probs, size), count), size)
  probs = np.roll(probs, -low)[:high - low + 1]
  return _Ratios(low, probs, ratios.spacing), 2 * _TAIL


def _window(probs: np.ndarray, count: int) -> tuple[int, int]:
  """Returns the ends of a window with all but 2 * _TAIL of a sum of places.

  Args:
    probs: [m] distribution of a place 0, ..., m - 1.
    count: number of independent places in the sum.
  """
  last = len(probs) - 1
  # Places are put together in cells, and rounded away from the window's centre.
  edges = np.unique(np.concatenate([
      np.arange(min(last, 4096) + 1),
      np.geomspace(1, max(last, 1), 4096).astype(int), [last]]))
  mass = np.add.reduceat(np.append(probs, 0.0), edges)
  with np.errstate(divide='ignore'):
    logs = np.log(np.maximum(mass, 0))
  ends = np.append(edges[1:] - 1, last)
  slopes = np.geomspace(1e-9, 10, 150)
  budget = -np.log(_TAIL)
  high = min((count * special.logsumexp(logs + slope * ends) + budget) / slope
             for slope in slopes)
  low = max((-count * special.logsumexp(logs - slope * edges) - budget) / slope
            for slope in slopes)
  return max(int(low), 0), min(int(np.ceil(high)), count * last)


def _power(values: np.ndarray, count: int) -> np.ndarray:
  """Returns values to a positive integer power, by repeated squaring."""
  result = np.ones_like(values)
  while count:
    if count % 2:
      result = result * values
    values, count = values * values, count // 2
  return result


def _excess(probs: np.ndarray) -> float:
  """Returns an estimate of the errors of a Fourier transform.

  True probabilities are not negative, and errors have both signs alike.
  """
  return 2 * float(np.sum(np.maximum(-probs, 0)))


def _on_grid(losses: np.ndarray, probs: np.ndarray, interval: float) -> Losses:
  """Returns losses split over a grid, see step 5 of `random_allocation`."""
  probs = np.maximum(probs, 0)
  losses = np.maximum(losses, _LEAST_LOSS)
  places = np.floor(losses / interval).astype(np.int64)
  upper = probs * np.clip(np.expm1(interval * places - losses)
                          / np.expm1(-interval), 0, 1)
  first = int(places.min())
  size = int(places.max()) - first + 2
  return Losses(first, np.bincount(places - first, probs - upper, size)
                + np.bincount(places - first + 1, upper, size), 0.0)
