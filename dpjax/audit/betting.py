"""Bets against privacy claims, on values of a function of the outputs.

Of each point (epsilon, delta) of a claim there are two bets: on
g(M(D)) - e^epsilon g(M(D')) - delta, whose mean is at most 0 for every function
g with values in [0, 1], and on the same for 1 - g with D and D' exchanged.
`sequential` spreads a wealth over bets.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

# Stakes, as fractions of the largest stake that cannot ruin a bet.
_STAKES = np.array([0.03, 0.1, 0.3, 0.6, 0.95])
# Runs whose bets are computed at once, to bound memory.
_PART = 512


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
               alarms: np.ndarray) -> Iterator[np.ndarray]:
  """Yields logarithms [n, b] of the factors by which runs change each bet."""
  hits, alarms = (np.asarray(values, np.float64).ravel()
                  for values in (hits, alarms))
  if hits.size != alarms.size:
    raise ValueError('there must be as many hits as alarms, got '
                     f'{hits.size} and {alarms.size}')
  for name, values in (('hits', hits), ('alarms', alarms)):
    if not ((0 <= values) & (values <= 1)).all():
      raise ValueError(f'{name} must lie in [0, 1]')
  growth = np.exp(bets.epsilons)
  for start in range(0, hits.size, _PART):
    hit, alarm = (values[start:start + _PART, None]
                  for values in (hits, alarms))
    gains = np.where(bets.reversed, 1 - alarm - growth * (1 - hit),
                     hit - growth * alarm) - bets.deltas
    yield np.log1p(bets.stakes * gains)
