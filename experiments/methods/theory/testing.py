"""Lower bounds for tests of hypotheses from a private release.

An estimator that errs little distinguishes densities that are far from each
other, so no estimator errs less than the best test of them allows. Neighbours
differ in one record of n, REPLACE_ONE; t is the total variation of two
distributions of a single record. A bound on an error may fall below 0 and then
proves nothing. Runs on the host, elementwise over t. Source: Lalanne, Garivier
and Gribonval (2023, Appendices A and D); Lalanne (2023, chapter 3) (item
DEN-L1..L7, errata DEN-E4, DEN-E16, DEN-E17, E-21).
"""

import math

import numpy as np
from scipy import special

from dpjax import errors

STATEMENTS = ('corrected', 'paper', 'thesis')
_LONGEST_WORD = 48


def packing(distances: np.ndarray, error: float) -> float:
  """Returns a squared loss: (half the least distance)^2 times a test error.

  Args:
    distances: [M, M], distances between hypotheses.
    error: lower bound of the largest error of any test.
  """
  apart = np.asarray(distances)[~np.eye(len(distances), dtype=bool)]
  return float(np.min(apart) / 2)**2 * error


def pinsker(divergence: np.ndarray) -> np.ndarray:
  """Bounds the total variation by a Kullback-Leibler divergence."""
  return np.minimum(1.0, np.sqrt(np.asarray(divergence) / 2))


def le_cam(variation: np.ndarray) -> np.ndarray:
  """Bounds the larger of two errors by the variation of all records together.
  """
  return (1 - np.asarray(variation)) / 2


def le_cam_pure(variation: np.ndarray, *, num_records: int, epsilon: float,
                delta: float = 0.0, exponential: bool = False) -> np.ndarray:
  """Bounds the larger error after an (epsilon, delta)-DP release of n records.

  Args:
    variation: t, total variation of two distributions of one record.
    num_records: n, the number of records.
    epsilon: epsilon of the release.
    delta: delta of the release.
    exponential: replace (1 - (1 - e^-epsilon) t)^n by the smaller e^(-n epsilon
      t).
  """
  errors.check_non_negative('epsilon', epsilon)
  t = np.asarray(variation, np.float64)
  alike = (np.exp(-num_records * epsilon * t) if exponential else
           _power(-t * math.expm1(-epsilon), num_records))
  return (alike - 2 * num_records * math.exp(-epsilon) * delta * t) / 2


def pair_pure(variation: np.ndarray, *, num_records: int, epsilon: float
              ) -> np.ndarray:
  """Bounds the mean of the two errors after an epsilon-DP release.

  1. Data sets at distance d are d/2 from one between them, where the two errors
     sum to 1, or to 2 / (1 + e^epsilon) for the middle pair of an odd d.
  2. So the sum is e^(-epsilon d / 2), or e^(-epsilon (d - 1) / 2) 2 / (1 +
     e^epsilon), and this is attained.
  3. The bound is its mean over d ~ Bin(n, t), a coupling.

  Exact for n = 1; Le Cam's bound has e^(-epsilon d).
  """
  errors.check_non_negative('epsilon', epsilon)
  t, half = np.asarray(variation, np.float64), math.exp(-epsilon / 2)
  odd = 1 / math.cosh(epsilon / 2)
  return (_power(t * (1 - half), num_records) * (1 + odd)
          + _power(t * (1 + half), num_records) * (1 - odd)) / 4


def _power(x: np.ndarray, num_records: int) -> np.ndarray:
  """Returns (1 - x)^n for x in [0, 2]."""
  # log1p near 0 keeps the precision that 1 - x would lose for large n.
  with np.errstate(divide='ignore'):
    logs = np.where(x < 1, np.log1p(-np.minimum(x, 1)), np.log(np.abs(x - 1)))
  return np.where((x > 1) & (num_records % 2 == 1), -1.0, 1.0) * np.exp(
      num_records * logs)


def le_cam_zcdp(variation: np.ndarray, *, num_records: int, rho: float
                ) -> np.ndarray:
  """Bounds the larger of two errors after a rho-zCDP release of n records."""
  errors.check_non_negative('rho', rho)
  return (1 - num_records * math.sqrt(rho / 2) * np.asarray(variation)) / 2


def squared_share(variation: np.ndarray, *, num_records: int,
                  epsilon: float | None = None, rho: float | None = None
                  ) -> np.ndarray:
  """Bounds mean squared errors at two points, in units of D^2 / 4.

  For equally likely output distributions P and Q, for points a distance D
  apart, no estimate has less than D^2 / 2 times the integral of PQ / (P + Q).
  That is at least half of the sum of the errors of a test, twice what `packing`
  gives. It is also at least half of the squared affinity of P and Q, which is
  at least e^(-D_1/2), with D_1/2 at most rho d^2, or epsilon^2 d^2 / 4. Both
  are averaged over d ~ Bin(n, t).

  Args:
    variation: t, total variation of two distributions of one record.
    num_records: n, the number of records.
    epsilon: budget of the release; give either epsilon or rho.
    rho: zCDP budget of the release.
  """
  t = np.asarray(variation, np.float64)
  square_mean = num_records * t * (1 + (num_records - 1) * t)
  if epsilon is not None and rho is None:
    tests = pair_pure(t, num_records=num_records, epsilon=epsilon)
    return np.maximum(2 * tests, np.exp(-epsilon**2 / 4 * square_mean))
  if rho is not None and epsilon is None:
    tests = le_cam_zcdp(t, num_records=num_records, rho=rho)
    return np.maximum(2 * tests, np.exp(-rho * square_mean))
  raise ValueError(f'give epsilon or rho, one of them, got {epsilon} and '
                   f'{rho}')


def fano(divergences: np.ndarray) -> float:
  """Bounds the largest of M errors by Fano's lemma.

  Args:
    divergences: [M], divergences of M distributions of all records from a
      common one.
  """
  return _fano(np.mean(divergences), len(divergences))


def fano_pure(variations: np.ndarray, *, num_records: int, epsilon: float
              ) -> float:
  """Bounds the largest of M errors after an epsilon-DP release.

  Args:
    variations: [M, M], t of all pairs, 0 on the diagonal.
    num_records: n, the number of records.
    epsilon: privacy budget of the release.
  """
  errors.check_non_negative('epsilon', epsilon)
  return _fano(num_records * epsilon * np.mean(moves(variations)),
               len(variations))


def fano_zcdp(variations: np.ndarray, *, num_records: int, rho: float,
              exact: bool = False) -> float:
  """Bounds the largest of M errors after a rho-zCDP release.

  Args:
    variations: [M, M], t of all pairs, 0 on the diagonal.
    num_records: n, the number of records.
    rho: zCDP budget of the release.
    exact: use the second moment n p (1 - p) + n^2 p^2 of a binomial
      distribution instead of the printed n p + n^2 p^2.
  """
  errors.check_non_negative('rho', rho)
  coupled = moves(variations)
  first = coupled * (1 - coupled) if exact else coupled
  return _fano(num_records**2 * rho * np.mean(first / num_records + coupled**2),
               len(variations))


def decoding(information: np.ndarray | float,
             log_hypotheses: float) -> np.ndarray:
  """Bounds the mean of K errors by Fano's lemma in full; never below 0.

  A hypothesis drawn at random and an independent guess agree with probability
  1/K; a guess from a release agrees with probability 1 - e. Divergences do not
  grow under processing: kl(1 - e || 1/K) is at most the mean divergence I of
  the output distributions from any one distribution. The usual form 1 - (1 + I)
  / ln K is weaker for every K and I.

  Args:
    information: I >= 0, elementwise.
    log_hypotheses: ln K, K at least 2.
  """
  if not log_hypotheses >= math.log(2) - 1e-12:
    raise ValueError('there must be at least 2 hypotheses, got ln K = '
                     f'{log_hypotheses}')
  given = np.asarray(information, np.float64)
  # Bisection for kl(1 - e || 1/K) = I, which falls in e up to 1 - 1/K. `low`
  # is returned, so that rounding errs on the valid side.
  rest = math.log(-math.expm1(-log_hypotheses))  # ln(1 - 1/K)
  low, high = np.zeros(given.shape), np.full(given.shape, math.exp(rest))
  for _ in range(60):
    e = (low + high) / 2
    divergence = (special.xlogy(e, e) + special.xlog1py(1 - e, -e)
                  + (1 - e) * log_hypotheses - e * rest)
    low, high = (np.where(divergence > given, e, low),
                 np.where(divergence > given, high, e))
  return np.where(given >= log_hypotheses, 0.0,
                  np.where(given <= 0, math.exp(rest), low))


def moves(variations: np.ndarray) -> np.ndarray:
  """Returns how often a record differs if all K distributions are coupled.

  2 t / (1 + t): Angel and Spinka 2021 (Lalanne, 2023, Fact 3.4.4).
  """
  t = np.asarray(variations, np.float64)
  return 2 * t / (1 + t)


def _fano(information: float, num_hypotheses: int) -> float:
  """Returns 1 - (1 + I) / ln M."""
  return 1 - (1 + information) / math.log(
      errors.check_at_least('number of hypotheses', num_hypotheses, 2))


def assouad(separation: np.ndarray | float, num_bits: np.ndarray | int,
            error: np.ndarray | float, *, statement: str = 'corrected'
            ) -> np.ndarray:
  """Bounds the integrated squared error of densities f_w, w in {0, 1}^m.

  The word nearest to an estimate is at most twice as far from f_w as the
  estimate: a quarter of 2 tau E d_H, averaged over w. The two hypotheses of a
  bit are mixtures of distributions of n records, coupled by the other bits;
  mixtures of single records, as in Lalanne, Garivier and Gribonval (2023),
  prove nothing.

  Args:
    separation: tau; the squared distance is at least 2 tau d_H.
    num_bits: m, the number of bits.
    error: lower bound of the mean of the two errors of any bit, as by Le Cam.
    statement: one of `STATEMENTS`. 'corrected': tau / 4 times the sum of the
      two errors, for all m bits; 'paper': tau / 16; 'thesis': tau / 16 and half
      of the sum, as in Lemma 3.5.1 of Lalanne (2023).
  """
  errors.check_choice('statement', statement, STATEMENTS)
  divisor = {'corrected': 4, 'paper': 16, 'thesis': 32}[statement]
  return np.asarray(separation) * num_bits * 2 * error / divisor


def varshamov_gilbert(num_bits: int, *, seed: int) -> np.ndarray:
  """Returns at least 1 + 2^(m/8) words [M, m] of bits, pairwise m/8 bits apart.

  The first word is 0; the others are drawn at random, and kept if they are far
  from all before.

  Args:
    num_bits: m, from 8 to 48.
    seed: seed of the words.
  """
  if errors.check_at_least('num_bits', num_bits, 8) > _LONGEST_WORD:
    raise ValueError(f'num_bits must be at most {_LONGEST_WORD}, got '
                     f'{num_bits}')
  generator = np.random.default_rng(seed)
  words = np.zeros((1, num_bits), np.int64)
  while len(words) < 1 + 2**(num_bits / 8):
    word = generator.integers(0, 2, num_bits)
    # Greedy choice succeeds: so few words leave most of the cube uncovered.
    if np.min(np.sum(words != word, 1)) >= num_bits / 8:
      words = np.concatenate([words, word[None]])
  return words


def variations(densities: np.ndarray, weights: np.ndarray) -> np.ndarray:
  """Returns total variations [M, M] of densities [M, G], weights [G]."""
  gaps = np.abs(densities[:, None] - densities[None])
  return gaps @ weights / 2


def divergences(densities: np.ndarray, weights: np.ndarray) -> np.ndarray:
  """Returns Kullback-Leibler divergences [M, M] of densities, row from column.

  Densities [M, G] must be positive; weights are [G].
  """
  if np.min(densities) <= 0:
    raise ValueError('densities must be positive, got '
                     f'{np.min(densities):.3g}')
  logs = np.log(densities)
  own = np.sum(densities * logs * weights, -1)
  return own[:, None] - (densities * weights) @ logs.T


def distances(densities: np.ndarray, weights: np.ndarray) -> np.ndarray:
  """Returns L2 distances [M, M] of densities [M, G], weights [G]."""
  gaps = np.square(densities[:, None] - densities[None])
  return np.sqrt(gaps @ weights)
