"""Bets against privacy claims, on values of a function of the outputs.

Of each point (epsilon, delta) of a claim there are two bets: on
g(M(D)) - e^epsilon g(M(D')) - delta, whose mean is at most 0 for every function
g with values in [0, 1], and on the same for 1 - g with D and D' exchanged.
`sequential` spreads a wealth over bets.
"""

from typing import NamedTuple

import numpy as np

# Stakes, as fractions of the largest stake that cannot ruin a bet.
_STAKES = np.array([0.03, 0.1, 0.3, 0.6, 0.95])


class Bets(NamedTuple):
  """All bets, b in number, in groups that bet against one hypothesis each.

  Attributes:
    epsilons: [b] epsilon of each bet's inequality.
    deltas: [b] its delta.
    reversed: [b] True for the bet on 1 - g with the data sets exchanged.
    stakes: [b] amounts staked; a bet then never loses all.
    starts: [h] first bet of each hypothesis: first the claimed curve, then
      (epsilon, delta) for increasing epsilons.
  """
  epsilons: np.ndarray
  deltas: np.ndarray
  reversed: np.ndarray
  stakes: np.ndarray
  starts: np.ndarray


def against(hypotheses: list[np.ndarray]) -> Bets:
  """Returns the bets against hypotheses [2, k] of k points each."""
  rows, starts = [], [0]
  for points in hypotheses:
    # All combinations of a point, a direction and a stake.
    place, reverse, stake = np.meshgrid(
        np.arange(points.shape[1]), [False, True], _STAKES, indexing='ij')
    epsilons, deltas = points[:, place.ravel()]
    rows.append((epsilons, deltas, reverse.ravel(),
                 stake.ravel() / (np.exp(epsilons) + deltas)))
    starts.append(starts[-1] + epsilons.size)
  return Bets(*map(np.concatenate, zip(*rows, strict=True)),
              np.array(starts[:-1]))


def groups(bets: Bets) -> np.ndarray:
  """Returns the number [b] of each bet's hypothesis."""
  return np.repeat(np.arange(bets.starts.size),
                   np.diff(np.append(bets.starts, bets.stakes.size)))


def grouped(logs: np.ndarray, starts: np.ndarray) -> np.ndarray:
  """Adds wealths of the same hypothesis, in logarithms: [..., b] to [..., h].
  """
  return np.logaddexp.reduceat(logs, starts, axis=-1)


def even(bets: Bets) -> np.ndarray:
  """Returns logarithms [b] of the even spread within each hypothesis."""
  numbers = groups(bets)
  return -np.log(np.bincount(numbers))[numbers]


def log_gains(bets: Bets, hits: np.ndarray,
              alarms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns logarithms of the factors by which runs change each bet.

  Args:
    bets: the bets.
    hits: [n] values of g in [0, 1] on outputs of the first data set.
    alarms: [n] values of g on outputs of the second one.

  Returns:
    A table [u, b] with a row for each different pair of a hit and an alarm, at
    most four if these are booleans, and the number [n] of each run's row.
  """
  both = np.stack([np.asarray(values, np.float64).ravel()
                   for values in _same_size(hits, alarms)])
  if not ((0 <= both) & (both <= 1)).all():
    raise ValueError('hits and alarms must lie in [0, 1]')
  (hit, alarm), rows = np.unique(both, axis=1, return_inverse=True)
  growth, hit, alarm = np.exp(bets.epsilons), hit[:, None], alarm[:, None]
  gains = np.where(bets.reversed, 1 - alarm - growth * (1 - hit),
                   hit - growth * alarm) - bets.deltas
  return np.log1p(bets.stakes * gains), rows.ravel()


def _same_size(hits: np.ndarray,
               alarms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns both arrays, or raises if they are not of one size."""
  if np.size(hits) != np.size(alarms):
    raise ValueError('there must be as many hits as alarms, got '
                     f'{np.size(hits)} and {np.size(alarms)}')
  return hits, alarms
