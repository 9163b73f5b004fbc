"""Shamir's secret sharing: values at distinct places of a random polynomial.

A secret is the constant of a polynomial of degree t over the integers modulo a
prime q; party i, i = 0, 1, ..., has its value at i + 1. Any t + 1 parties know
the secret, any t learn nothing, whatever they can compute. Sums of shares are
shares of sums; the product of two shares is one of the product, of twice the
degree. (The thesis counts who is needed, t + 1, and calls it t.) Source: Shamir
1979; thesis 003, section 4.2.1; item EC-17.
"""

from collections.abc import Sequence

import numpy as np

from dpjax.mpc import prg

PRIME = 2**31 - 1
"""q; products of two numbers below it fit in 62 bits."""


def uniform(source: prg.Source, shape: tuple[int, ...], *,
            prime: int = PRIME) -> np.ndarray:
  """Uniform uint64 below the prime: what is not below it is drawn anew."""
  spare = np.uint64(64 - prime.bit_length())
  drawn = prg.words(source, shape) >> spare
  while (wrong := drawn >= prime).any():
    drawn[wrong] = prg.words(source, (int(wrong.sum()),)) >> spare
  return drawn


def share(secrets: np.ndarray, *, degree: int, num_parties: int,
          source: prg.Source, prime: int = PRIME) -> np.ndarray:
  """Shares [parties, ...] of secrets [...], whole numbers of any sign."""
  if not 0 <= degree < num_parties < prime:
    raise ValueError(f'a secret of {num_parties} parties takes a degree below '
                     f'that and a larger prime, got {degree} and {prime}')
  secrets = np.mod(np.asarray(secrets), prime).astype(np.uint64)
  coefficients = uniform(source, (degree, *secrets.shape), prime=prime)
  places = np.arange(1, num_parties + 1, dtype=np.uint64).reshape(
      -1, *secrets.ndim * [1])
  values = np.zeros((num_parties, *secrets.shape), np.uint64)
  for coefficient in coefficients:
    values = (values + coefficient) * places % prime
  return (values + secrets) % prime


def weights(parties: Sequence[int], *, at: int = 0,
            prime: int = PRIME) -> np.ndarray:
  """Lagrange weights of parties: the value at `at` is the weighted sum."""
  places = [party + 1 for party in parties]
  found = []
  for place in places:
    others = [other for other in places if other != place]
    numerator = denominator = 1
    for other in others:
      numerator = numerator * (at - other) % prime
      denominator = denominator * (place - other) % prime
    found.append(numerator * pow(denominator, -1, prime) % prime)
  return np.asarray(found, np.uint64)


def combine(shares: np.ndarray, parties: Sequence[int], *, degree: int,
            prime: int = PRIME) -> np.ndarray:
  """The secrets [...] of shares [parties, ...], as numbers below the prime.

  Args:
    shares: of at least degree + 1 parties.
    parties: their numbers, distinct.
    degree: of the polynomials.
    prime: q.

  Raises:
    ValueError: if there are too few parties, or more than needed that do not
      agree.

  Examples:
    >>> import os
    >>> from dpjax.mpc import shamir
    >>> each = [shamir.share(secret, degree=1, num_parties=3, source=os.urandom)
    ...         for secret in ([5, -7], [10, 10])]
    >>> sums = (each[0] + each[1]) % shamir.PRIME
    >>> shamir.centred(shamir.combine(sums[:2], [0, 1], degree=1))
    array([15,  3])
  """
  if len(set(parties)) != len(shares) or len(shares) <= degree:
    raise ValueError(f'{degree + 1} parties are needed, got {list(parties)}')
  known = list(parties[:degree + 1])
  for extra, values in zip(parties[degree + 1:], shares[degree + 1:],
                           strict=True):
    expected = _weighted(shares, weights(known, at=extra + 1, prime=prime),
                         prime)
    if (expected != values).any():
      raise ValueError(f'what party {extra} sent does not agree with parties '
                       f'{known}')
  return _weighted(shares, weights(known, prime=prime), prime)


def _weighted(shares, factors, prime):
  total = np.zeros(shares.shape[1:], np.uint64)
  for factor, values in zip(factors, shares, strict=False):
    total = (total + factor * values) % prime
  return total


def centred(values: np.ndarray, *, prime: int = PRIME) -> np.ndarray:
  """The int64 nearest to 0 that equal values modulo the prime."""
  whole = values.astype(np.int64)
  return np.where(whole > prime // 2, whole - prime, whole)


def product_of_columns(left: np.ndarray, right: np.ndarray) -> np.ndarray:
  """left^T right modulo `PRIME`, [a, b] of [n, a] and [n, b], exact.

  By halves of 16 bits: sums of 2^20 products of them are whole in float64, and
  a matrix product of floats is some hundred times as fast as one of integers.
  """
  total = np.zeros((left.shape[1], right.shape[1]), np.uint64)
  for start in range(0, len(left), 2**20):
    part = slice(start, start + 2**20)
    for shift_left, limb_left in _limbs(left[part]):
      for shift_right, limb_right in _limbs(right[part]):
        product = (limb_left.T @ limb_right).astype(np.uint64) % PRIME
        shift = pow(2, shift_left + shift_right, PRIME)
        total = (total + product * np.uint64(shift)) % PRIME
  return total


def _limbs(values):
  return [(0, (values & np.uint64(0xFFFF)).astype(np.float64)),
          (16, (values >> np.uint64(16)).astype(np.float64))]
