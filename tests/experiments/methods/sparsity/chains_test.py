"""These tests compare chains with enumeration and the table of MIA-08."""

import itertools
import math

import numpy as np
import pytest

from experiments.methods.sparsity import chains
from experiments.methods.sparsity.chains import Chain

# Each (p, q, L) maps to r, s and the number of non-zeros.
_TABLE = {
    (64, 576, 2): ((2, 32), (18, 32), 3200),
    (64, 576, 3): ((2, 4, 8), (18, 4, 8), 1920),
    (64, 288, 2): ((4, 16), (18, 16), 2176),
    (64, 288, 3): ((2, 4, 8), (9, 4, 8), 1344),
    (32, 288, 2): ((2, 16), (18, 16), 1088),
    (32, 288, 3): ((2, 4, 4), (18, 4, 4), 832),
    (32, 144, 2): ((2, 16), (9, 16), 800),
    (32, 144, 3): ((2, 4, 4), (9, 4, 4), 544),
    (16, 144, 2): ((2, 8), (18, 8), 416),
    (16, 144, 3): ((2, 2, 4), (18, 2, 4), 384),
}


def _every(p, q, count):
  """Returns all chains of numbers >= 2, by trying all numbers."""
  def splits(n):
    return [some for some in itertools.product(range(2, n + 1), repeat=count)
            if math.prod(some) == n]
  return [Chain(r, s) for r in splits(p) for s in splits(q)]


def _rank(chain):
  return chain.num_parameters, chain.rows, chain.columns


@pytest.mark.parametrize('layer', _TABLE)
def test_layers_of_resnet_20(layer):
  p, q, count = layer
  chain = chains.smallest_chain(p, q, num_factors=count)
  assert (chain.rows, chain.columns, chain.num_parameters) == _TABLE[layer]
  assert chain.size == (p, q) and chain.monotone
  assert chain == chains.monotone_chains(p, q, num_factors=count)[0]


def test_next_best_chains():
  """The second smallest chains have the listed sizes (M-E05).

  For one layer two chains share the first place (X-04).
  """
  for (p, q), least, following in (((32, 288), 832, 896), ((32, 144), 544, 608)):
    sizes = {chain.num_parameters for chain
             in chains.monotone_chains(p, q, num_factors=3)}
    assert sorted(sizes)[:2] == [least, following]
  first, second = chains.monotone_chains(64, 576, num_factors=3)[:2]
  assert first.num_parameters == second.num_parameters
  assert (first.rows, second.rows) == ((2, 4, 8), (2, 8, 4))
  assert [layer for layer in _TABLE if len({
      chain.num_parameters for chain in chains.monotone_chains(
          *layer[:2], num_factors=layer[2])[:2]}) == 1] == [
              (64, 576, 3), (64, 288, 3), (16, 144, 3)]


@pytest.mark.parametrize('p, q, count', [
    (8, 12, 2), (12, 8, 2), (16, 24, 3), (12, 18, 2), (16, 16, 3), (24, 12, 3)])
def test_enumeration_is_complete_and_sorted(p, q, count):
  everything = _every(p, q, count)
  monotone = sorted((chain for chain in everything if chain.monotone), key=_rank)
  assert len(monotone) < len(everything)
  assert chains.monotone_chains(p, q, num_factors=count) == monotone


def test_the_smallest_is_the_first_of_all():
  compared = 0
  for p, q, count in itertools.product(range(1, 49), range(1, 49), range(1, 4)):
    everything = chains.monotone_chains(p, q, num_factors=count)
    if everything:
      compared += 1
      assert chains.smallest_chain(p, q, num_factors=count) == everything[0]
    else:
      with pytest.raises(ValueError, match='no monotone chain'):
        chains.smallest_chain(p, q, num_factors=count)
  assert compared > 2500


@pytest.mark.parametrize('p, q, count', [
    (8, 12, 2), (12, 8, 3), (16, 16, 4), (16, 24, 3), (6, 35, 2)])
def test_every_entry_of_a_product_is_one_path(p, q, count):
  """Every entry of a product of supports is exactly one path, for any chain."""
  some = _every(p, q, count)
  assert some
  for chain in some:
    supports = chain.supports()
    assert {support.dtype for support in supports} == {np.dtype(bool)}
    assert sum(map(np.sum, supports)) == chain.num_parameters
    assert [support.shape for support in supports] == [
        pair[::-1] for pair in itertools.pairwise(chain.sizes)]
    paths = np.eye(q, dtype=int)
    for support in supports:
      paths = support.astype(int) @ paths
    np.testing.assert_array_equal(paths, np.ones((p, q)))


def test_supports_entry_by_entry():
  """Supports follow mixed-radix digits: a factor changes one digit."""
  chain = Chain((2, 3), (4, 2))
  first, second = chain.supports()
  for high, low, column in np.ndindex(2, 2, 8):
    assert first[2 * high + low, column] == (column // 4 == high)
  for high, low, column in np.ndindex(3, 2, 4):
    assert second[2 * high + low, column] == (column % 2 == low)


def test_square_butterflies():
  """Square butterflies are Kronecker products I x ones x I (MIA-07)."""
  chain = chains.smallest_chain(16, 16, num_factors=4)
  assert chain == Chain((2,) * 4, (2,) * 4) and chain.num_parameters == 128
  for place, support in enumerate(reversed(chain.supports()), 1):
    printed = np.kron(np.kron(np.eye(2 ** (place - 1)), np.ones((2, 2))),
                      np.eye(16 // 2 ** place))
    np.testing.assert_array_equal(support, printed)
    assert support.sum() == 32


def test_monotone_is_of_sizes():
  assert Chain((2, 2), (3, 2)).monotone and Chain((3, 2), (2, 2)).monotone
  assert not Chain((2, 3), (3, 2)).monotone
  assert Chain((2, 3), (3, 2)).sizes == (6, 4, 6)


@pytest.mark.parametrize('p, q, count', [
    (7, 12, 2), (12, 7, 2), (14, 15, 2), (8, 8, 4), (1, 4, 1)])
def test_where_there_is_no_chain(p, q, count):
  """Sizes that cannot be split give no chain and a clear error."""
  assert not chains.monotone_chains(p, q, num_factors=count)
  with pytest.raises(ValueError, match=f'a {p} x {q} matrix has no monotone'):
    chains.smallest_chain(p, q, num_factors=count)


def test_bad_input_is_one_line():
  for rows, columns in (((), ()), ((2,), (2, 2)), ((2, 0), (2, 2)),
                        ((2, 2), (2, 1.5))):
    with pytest.raises(ValueError, match='^[^\n]*chain[^\n]*$'):
      Chain(rows, columns)
  for numbers, name in (((0, 4, 2), 'num_rows'), ((4, 0, 2), 'num_columns'),
                        ((4, 4, 0), 'num_factors')):
    for search in (chains.smallest_chain, chains.monotone_chains):
      with pytest.raises(ValueError, match=f'^{name} must be'):
        search(*numbers[:2], num_factors=numbers[2])
