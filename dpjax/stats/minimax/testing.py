"""What a private release leaves to tell hypotheses apart by.

An estimator that errs little tells densities apart that are far from each
other, so no estimator errs less than the best test of them allows. Neighbours
differ in one record of n, REPLACE_ONE; t is the total variation of two laws of
a single record. A bound on an error may fall below 0 and says nothing then.
Numbers of the host, elementwise over t. Source: paper 001, Appendices A and D;
thesis 000, Chapter 3 (item DEN-L1..L7, errata E4, E16, E17, E22).
"""

import math

import numpy as np
from scipy import special

from dpjax import errors

STATEMENTS = ('corrected', 'paper', 'thesis')
_LONGEST_WORD = 48


def packing(distances: np.ndarray, error: float) -> float:
  """Squared loss: half the least distance, squared, times an error of tests.

  Args:
    distances: [M, M], of hypotheses.
    error: that some hypothesis suffers, whatever the test.
  """
  apart = np.asarray(distances)[~np.eye(len(distances), dtype=bool)]
  return float(np.min(apart) / 2)**2 * error


def pinsker(divergence: np.ndarray) -> np.ndarray:
  """Total variation at most, of a Kullback-Leibler divergence."""
  return np.minimum(1.0, np.sqrt(np.asarray(divergence) / 2))


def le_cam(variation: np.ndarray) -> np.ndarray:
  """The larger of two errors, at least; of the laws of all records together."""
  return (1 - np.asarray(variation)) / 2


def le_cam_pure(variation: np.ndarray, *, num_records: int, epsilon: float,
                delta: float = 0.0, exponential: bool = False) -> np.ndarray:
  """The same after an (epsilon, delta)-DP release of n records.

  Args:
    variation: t.
    num_records: n.
    epsilon: of the release.
    delta: of the release.
    exponential: (1 - (1 - e^-epsilon) t)^n brought down to e^(-n epsilon t).
  """
  errors.check_non_negative('epsilon', epsilon)
  t = np.asarray(variation, np.float64)
  alike = (np.exp(-num_records * epsilon * t) if exponential else
           _power(-t * math.expm1(-epsilon), num_records))
  return (alike - 2 * num_records * math.exp(-epsilon) * delta * t) / 2


def pair_pure(variation: np.ndarray, *, num_records: int, epsilon: float
              ) -> np.ndarray:
  """The mean of the two errors after an epsilon-DP release, at least.

  Data sets at distance d are d/2 from one between them, where the two errors
  sum to 1, or to 2 / (1 + e^epsilon) for the middle pair of an odd d: the sum
  is e^(-epsilon d / 2), or e^(-epsilon (d - 1) / 2) 2 / (1 + e^epsilon), and
  attained. Its mean over d ~ Bin(n, t), a coupling. Exact for n = 1; Le Cam's
  bound has e^(-epsilon d).
  """
  errors.check_non_negative('epsilon', epsilon)
  t, half = np.asarray(variation, np.float64), math.exp(-epsilon / 2)
  odd = 1 / math.cosh(epsilon / 2)
  return (_power(t * (1 - half), num_records) * (1 + odd)
          + _power(t * (1 + half), num_records) * (1 - odd)) / 4


def _power(x: np.ndarray, num_records: int) -> np.ndarray:
  """(1 - x)^n for x in [0, 2]."""
  with np.errstate(divide='ignore'):
    logs = np.where(x < 1, np.log1p(-np.minimum(x, 1)), np.log(np.abs(x - 1)))
  return np.where((x > 1) & (num_records % 2 == 1), -1.0, 1.0) * np.exp(
      num_records * logs)


def le_cam_zcdp(variation: np.ndarray, *, num_records: int, rho: float
                ) -> np.ndarray:
  """The larger of two errors after a rho-zCDP release of n records."""
  errors.check_non_negative('rho', rho)
  return (1 - num_records * math.sqrt(rho / 2) * np.asarray(variation)) / 2


def squared_share(variation: np.ndarray, *, num_records: int,
                  epsilon: float | None = None, rho: float | None = None
                  ) -> np.ndarray:
  """Mean squared errors at two points, at least, in units of D^2 / 4.

  With output laws P and Q for points a distance D apart, and either as likely,
  no estimate has less than D^2 / 2 times the integral of PQ / (P + Q). That is
  at least half of the sum of the errors of a test, twice what `packing` says,
  and half of the squared affinity of P and Q, which is e^(-D_1/2) and D_1/2 no
  more than rho d^2, or epsilon^2 d^2 / 4. Both means over d ~ Bin(n, t).

  Args:
    variation: t.
    num_records: n.
    epsilon: of the release, or
    rho: of the release.
  """
  if (epsilon is None) == (rho is None):
    raise ValueError(f'give epsilon or rho, got {epsilon} and {rho}')
  t = np.asarray(variation, np.float64)
  moved = num_records * t * (1 + (num_records - 1) * t)
  if rho is None:
    tests = pair_pure(t, num_records=num_records, epsilon=epsilon)
    return np.maximum(2 * tests, np.exp(-epsilon**2 / 4 * moved))
  tests = le_cam_zcdp(t, num_records=num_records, rho=rho)
  return np.maximum(2 * tests, np.exp(-rho * moved))


def fano(divergences: np.ndarray) -> float:
  """The largest of M errors, at least.

  Args:
    divergences: [M], of the laws of all records from one law of one's choice.
  """
  return _fano(np.mean(divergences), len(divergences))


def fano_pure(variations: np.ndarray, *, num_records: int, epsilon: float
              ) -> float:
  """The same after an epsilon-DP release.

  Args:
    variations: [M, M], t of all pairs, 0 on the diagonal.
    num_records: n.
    epsilon: of the release.
  """
  errors.check_non_negative('epsilon', epsilon)
  return _fano(num_records * epsilon * np.mean(moves(variations)),
               len(variations))


def fano_zcdp(variations: np.ndarray, *, num_records: int, rho: float,
              exact: bool = False) -> float:
  """The same after a rho-zCDP release.

  Args:
    variations: [M, M], t of all pairs, 0 on the diagonal.
    num_records: n.
    rho: of the release.
    exact: the second moment n p (1 - p) + n^2 p^2 of a binomial law, and not n
      p + n^2 p^2 as printed.
  """
  errors.check_non_negative('rho', rho)
  moved = moves(variations)
  once = moved * (1 - moved) if exact else moved
  return _fano(num_records**2 * rho * np.mean(once / num_records + moved**2),
               len(variations))


def decoding(information: np.ndarray | float,
             log_hypotheses: float) -> np.ndarray:
  """Fano's lemma in full: the mean of K errors, at least; never below 0.

  A hypothesis drawn at random and a guess that knows nothing of it agree with
  probability 1/K; a guess from a release agrees with probability 1 - e, and
  divergences do not grow under processing: kl(1 - e || 1/K) is at most the mean
  divergence I of the output laws from any one law. (1 + I) / ln K says less for
  every K and I.

  Args:
    information: I >= 0, elementwise.
    log_hypotheses: ln K, K at least 2.
  """
  if not log_hypotheses >= math.log(2) - 1e-12:
    raise ValueError('there must be 2 hypotheses at least, got ln K = '
                     f'{log_hypotheses}')
  given = np.asarray(information, np.float64)
  rest = math.log(-math.expm1(-log_hypotheses))  # ln(1 - 1/K)
  low, high = np.zeros(given.shape), np.full(given.shape, math.exp(rest))
  for _ in range(60):
    e = (low + high) / 2
    found = (special.xlogy(e, e) + special.xlog1py(1 - e, -e)
             + (1 - e) * log_hypotheses - e * rest)
    low, high = np.where(found > given, e, low), np.where(found > given, high,
                                                          e)
  return np.where(given >= log_hypotheses, 0.0,
                  np.where(given <= 0, math.exp(rest), low))


def moves(variations: np.ndarray) -> np.ndarray:
  """How often a record differs where all laws are coupled at once.

  2 t / (1 + t): Angel and Spinka 2021 (thesis 000, Fact 3.4.4).
  """
  t = np.asarray(variations, np.float64)
  return 2 * t / (1 + t)


def _fano(information: float, num_laws: int) -> float:
  return 1 - (1 + information) / math.log(
      errors.check_at_least('number of hypotheses', num_laws, 2))


def assouad(separation: np.ndarray, num_bits: np.ndarray, error: np.ndarray, *,
            statement: str = 'corrected') -> np.ndarray:
  """Integrated squared error of densities f_w, w in {0, 1}^m, at least.

  The word nearest to an estimate is at most twice as far from f_w as the
  estimate: a quarter of 2 tau E d_H, averaged over w. The two hypotheses of a
  bit are mixtures of laws of n records, coupled by the other bits; mixtures of
  single records, as paper 001 has them, prove nothing.

  Args:
    separation: tau, the square of the distance being at least 2 tau d_H.
    num_bits: m.
    error: the mean of the two errors of any bit, as of Le Cam.
    statement: one of `STATEMENTS`: tau / 4 times the sum of the two errors, all
      m bits; tau / 16; or that and, of Lemma 3.5.1, half of the sum.
  """
  errors.check_choice('statement', statement, STATEMENTS)
  part = {'corrected': 4, 'paper': 16, 'thesis': 32}[statement]
  return np.asarray(separation) * num_bits * 2 * error / part


def varshamov_gilbert(num_bits: int, *, seed: int) -> np.ndarray:
  """1 + 2^(m/8) or more words [M, m] of 0 and 1, pairwise m/8 bits apart.

  The first word is 0; the others are drawn, and kept where they are far from
  all before.

  Args:
    num_bits: m, from 8 to 48.
    seed: of the words.
  """
  if errors.check_at_least('num_bits', num_bits, 8) > _LONGEST_WORD:
    raise ValueError(f'num_bits must be {_LONGEST_WORD} at most, got '
                     f'{num_bits}')
  generator = np.random.default_rng(seed)
  words = np.zeros((1, num_bits), np.int64)
  while len(words) < 1 + 2**(num_bits / 8):
    word = generator.integers(0, 2, num_bits)
    if np.min(np.sum(words != word, 1)) >= num_bits / 8:
      words = np.concatenate([words, word[None]])
  return words


def variations(densities: np.ndarray, weights: np.ndarray) -> np.ndarray:
  """Total variations [M, M] of densities [M, G] by quadrature, weights [G]."""
  gaps = np.abs(densities[:, None] - densities[None])
  return gaps @ weights / 2


def divergences(densities: np.ndarray, weights: np.ndarray) -> np.ndarray:
  """Kullback-Leibler divergences [M, M] of densities [M, G], row from column.

  Densities must be positive.
  """
  if np.min(densities) <= 0:
    raise ValueError('densities must be positive, got '
                     f'{np.min(densities):.3g}')
  logs = np.log(densities)
  own = np.sum(densities * logs * weights, -1)
  return own[:, None] - (densities * weights) @ logs.T


def distances(densities: np.ndarray, weights: np.ndarray) -> np.ndarray:
  """L2 distances [M, M] of densities [M, G], weights [G]."""
  gaps = np.square(densities[:, None] - densities[None])
  return np.sqrt(gaps @ weights)
