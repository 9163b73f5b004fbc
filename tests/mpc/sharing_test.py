"""Tests by enumeration that a few shares do not depend on the secret."""

import collections
import itertools

import numpy as np
import pytest
from scipy import stats

from dpjax.mpc import additive
from dpjax.mpc import prg
from dpjax.mpc import shamir


def _says(*words):
  """Returns a source that yields the given words."""
  left = list(words)

  def source(length):
    return b''.join(int(left.pop(0)).to_bytes(8, 'little')
                    for _ in range(length // 8))
  return source


def _views(share, coins, count, secrets):
  """Returns how often `count` parties see each view over
  all coins, by secret."""
  views = []
  for secret in secrets:
    seen = collections.Counter()
    for drawn in coins:
      shares = share(np.array(secret), _says(*drawn))
      for parties in itertools.combinations(range(len(shares)), count):
        seen[parties, tuple(int(shares[party]) for party in parties)] += 1
    views.append(seen)
  return views


def test_additive_shares_of_all_but_one_tell_nothing():
  def share(secret, source):
    return additive.share(secret, num_parties=3, value_bits=2, source=source)
  coins = list(itertools.product(range(4), repeat=2))
  views = _views(share, coins, 2, range(4))
  assert all(view == views[0] for view in views)
  assert set(views[0].values()) == {1}
  assert _views(share, coins, 3, [1]) != _views(share, coins, 3, [2])


def test_additive_shares_of_few_values_tell():
  """Shares in Z_k, printed for Z_(2^k) (C24), leak the secret at k = 2."""
  def share(secret, source):
    return additive.share(secret, num_parties=2, value_bits=2, source=source)
  views = _views(share, [(0,), (1,)], 1, range(4))
  assert not any(a == b for a, b in itertools.combinations(views, 2))


def test_additive_shares_add_up_and_negative_numbers_come_back():
  values = np.array([[0, -1, 7], [-8, 3, 5]])
  for bits in (4, 33, 64):
    shares = additive.share(values, num_parties=4, value_bits=bits,
                            source=prg.Stream(bytes(32)))
    total = additive.combine(shares, value_bits=bits)
    np.testing.assert_array_equal(
        additive.centred(total, value_bits=bits), values)


@pytest.mark.parametrize('bits', [5, 32, 40])
def test_seeds_stand_for_shares(bits):
  values = np.arange(15).reshape(3, 5) % 2**bits
  seeds, rest = additive.share_by_seeds(
      values, num_parties=3, value_bits=bits, source=prg.Stream(bytes(32)))
  shares = [additive.expand(part, 5, value_bits=bits) for part in seeds]
  np.testing.assert_array_equal(
      additive.combine(np.stack([*shares, rest]), value_bits=bits), values)
  np.testing.assert_array_equal(
      additive.sum_of_expanded(seeds[0], 5, value_bits=bits),
      shares[0].sum(0) & additive.mask(bits))
  assert (shares[0] != shares[1]).any() and (rest != values).any()


def test_a_party_counts_once():
  shares = shamir.share(np.array([7]), degree=1, num_parties=3,
                        source=prg.Stream(bytes(32)))
  assert shamir.combine(shares[1:], [1, 2], degree=1) == [7]
  for few, parties in ((shares[:2], [0, 0]), (shares[:2], [0, 0, 1]),
                       (shares[:2], [0, 1, 1]), (shares[:1], [0])):
    with pytest.raises(ValueError):
      shamir.combine(few, parties, degree=1)


@pytest.mark.parametrize('degree,parties', [(1, 3), (2, 4)])
def test_shamir_shares_of_t_parties_tell_nothing(degree, parties):
  def share(secret, source):
    return shamir.share(secret, degree=degree, num_parties=parties,
                        source=source, prime=7)
  # `uniform` reads the top three bits of a word.
  coins = [[coin << 61 for coin in drawn]
           for drawn in itertools.product(range(7), repeat=degree)]
  views = _views(share, coins, degree, range(7))
  assert all(view == views[0] for view in views)
  assert set(views[0].values()) == {1}
  observed = _views(share, coins, degree + 1, range(7))
  assert not any(
      set(a) & set(b) for a, b in itertools.combinations(observed, 2))


def test_any_parties_enough_know_the_secret_its_sums_and_products():
  source = prg.Stream(bytes(32))
  left, right = np.array([5, -3]), np.array([10, 2**30])
  shares = [shamir.share(values, degree=1, num_parties=4, source=source)
            for values in (left, right)]
  product = shares[0] * shares[1] % np.uint64(shamir.PRIME)
  total = (shares[0] + shares[1]) % np.uint64(shamir.PRIME)
  for parties in itertools.permutations(range(4), 3):
    chosen = list(parties)
    np.testing.assert_array_equal(shamir.combine(
        product[chosen], chosen, degree=2), left * right % shamir.PRIME)
    np.testing.assert_array_equal(shamir.centred(shamir.combine(
        total[chosen], chosen, degree=1)), left + right)


def test_shares_that_disagree_are_found():
  shares = shamir.share(np.array([4]), degree=1, num_parties=3,
                        source=prg.Stream(bytes(32)))
  shares[2] += np.uint64(1)
  with pytest.raises(ValueError, match='party 2'):
    shamir.combine(shares, [0, 1, 2], degree=1)
  with pytest.raises(ValueError, match='2 parties are needed'):
    shamir.combine(shares[:1], [0], degree=1)
  with pytest.raises(ValueError, match='2 parties are needed'):
    shamir.combine(shares[:2], [0, 0], degree=1)
  with pytest.raises(ValueError, match='needs a degree'):
    shamir.share(np.array([4]), degree=3, num_parties=3,
                 source=prg.Stream(bytes(32)))


def test_numbers_of_the_field_are_uniform():
  """Field elements are uniform; the test fails once in 10^6 by chance."""
  drawn = shamir.uniform(prg.Stream(bytes(32)), (5000,), prime=5)
  assert stats.chisquare(np.bincount(drawn.astype(int))).pvalue > 1e-6
  assert drawn.max() == 4


def test_products_of_columns_are_exact():
  rng = np.random.default_rng(0)
  left = rng.integers(shamir.PRIME - 5, shamir.PRIME, (70, 3)).astype(np.uint64)
  right = rng.integers(0, shamir.PRIME, (70, 2)).astype(np.uint64)
  wanted = (left.astype(object).T @ right.astype(object)) % shamir.PRIME
  np.testing.assert_array_equal(
      shamir.product_of_columns(left, right).astype(object), wanted)
