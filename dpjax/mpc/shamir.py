"""Shamir's secret sharing: values of a random polynomial at distinct points.

A secret is the constant term of a random polynomial of degree t over the
integers modulo a prime q. Party i = 0, 1, ... holds its value at i + 1. Any
t + 1 parties can compute the secret; any t learn nothing, even with unlimited
computing power. Sums of shares are shares of sums. Products of shares are
shares of products, of degree 2 t. Source: Shamir (1979); Barczewski (2025,
section 4.2.1; item EC-17), whose t is our t + 1.
"""

from collections.abc import Sequence

import numpy as np

from dpjax.mpc import prg

PRIME = 2**31 - 1
"""The prime q; products of two numbers below it fit in 62 bits."""


def uniform(source: prg.Source, shape: tuple[int, ...], *,
            prime: int = PRIME) -> np.ndarray:
  """Draws uniform uint64 numbers below the prime, by rejection."""
  # With the bits that the prime has, at least half of the draws pass.
  spare = np.uint64(64 - prime.bit_length())
  drawn = prg.words(source, shape) >> spare
  while (wrong := drawn >= prime).any():
    drawn[wrong] = prg.words(source, (int(wrong.sum()),)) >> spare
  return drawn


def share(secrets: np.ndarray, *, degree: int, num_parties: int,
          source: prg.Source, prime: int = PRIME) -> np.ndarray:
  """Splits secrets into Shamir shares.

  Args:
    secrets: integers [...] of any sign, taken modulo the prime.
    degree: t, at least 0; t + 1 parties recover a secret.
    num_parties: number of shares, above `degree` and below `prime`.
    source: randomness; all secrecy rests on it.
    prime: q.

  Returns:
    Shares [parties, ...] uint64 below the prime.
  """
  if not 0 <= degree < num_parties < prime:
    raise ValueError(f'sharing among {num_parties} parties needs a degree '
                     f'below that and a larger prime, got {degree} and {prime}')
  secrets = np.mod(np.asarray(secrets), prime).astype(np.uint64)
  coefficients = uniform(source, (degree, *secrets.shape), prime=prime)
  places = np.arange(1, num_parties + 1, dtype=np.uint64).reshape(
      -1, *secrets.ndim * [1])
  values = np.zeros((num_parties, *secrets.shape), np.uint64)
  # Horner's rule; reducing at each step keeps products below 2^64.
  for coefficient in coefficients:
    values = (values + coefficient) * places % prime
  return (values + secrets) % prime


def weights(parties: Sequence[int], *, at: int = 0,
            prime: int = PRIME) -> np.ndarray:
  """Returns the parties' Lagrange weights modulo the prime, uint64.

  The value of the polynomial at `at` is the sum of shares times weights.

  Args:
    parties: distinct numbers of parties, from 0.
    at: where to evaluate; 0 gives the secret.
    prime: q.
  """
  places = [party + 1 for party in parties]
  lagrange_weights = []
  for place in places:
    others = [other for other in places if other != place]
    numerator = denominator = 1
    for other in others:
      numerator = numerator * (at - other) % prime
      denominator = denominator * (place - other) % prime
    lagrange_weights.append(numerator * pow(denominator, -1, prime) % prime)
  return np.asarray(lagrange_weights, np.uint64)


def combine(shares: np.ndarray, parties: Sequence[int], *, degree: int,
            prime: int = PRIME) -> np.ndarray:
  """Returns the secrets [...] of shares [parties, ...], below the prime.

  Args:
    shares: shares of at least degree + 1 parties.
    parties: the distinct numbers of these parties, from 0.
    degree: degree of the polynomials.
    prime: q.

  Raises:
    ValueError: if there are too few parties, or if the shares of further
      parties do not lie on the polynomial of the first ones.

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
      raise ValueError(f'shares of party {extra} do not agree with those of '
                       f'parties {known}')
  return _weighted(shares, weights(known, prime=prime), prime)


def _weighted(shares: np.ndarray, factors: np.ndarray, prime: int
              ) -> np.ndarray:
  """Returns the sum of factors times shares, modulo the prime."""
  total = np.zeros(shares.shape[1:], np.uint64)
  # `zip` stops at the last factor, because `combine` has more shares.
  for factor, values in zip(factors, shares, strict=False):
    total = (total + factor * values) % prime
  return total


def centred(values: np.ndarray, *, prime: int = PRIME) -> np.ndarray:
  """Returns the int64 of least absolute value equal to values modulo q."""
  whole = values.astype(np.int64)
  return np.where(whole > prime // 2, whole - prime, whole)


def product_of_columns(left: np.ndarray, right: np.ndarray) -> np.ndarray:
  """Returns left^T right modulo `PRIME`, exactly.

  Numbers are split into limbs of 16 bits. A sum of 2^20 products of limbs is
  below 2^53, so float64 holds it exactly, and NumPy's matrix product of floats
  is about a hundred times faster than that of integers.

  Args:
    left: uint64 [n, a] below the prime.
    right: uint64 [n, b] below the prime.

  Returns:
    uint64 [a, b].
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


def _limbs(values: np.ndarray) -> list[tuple[int, np.ndarray]]:
  """Returns (shift, limb) of the low and the high 16 bits, as float64."""
  return [(0, (values & np.uint64(0xFFFF)).astype(np.float64)),
          (16, (values >> np.uint64(16)).astype(np.float64))]
