"""Function secret sharing of the comparison x < alpha between two servers.

The function x -> beta if x < alpha, else 0, on 0, ..., 2^L - 1 and modulo 2^k,
is split into two keys. The keys' values at any x add up to the value of the
function; each key alone is pseudorandom and reveals neither alpha nor beta. A
key consists of a seed, the root of a binary tree, and of L correction words,
which both keys share. A server evaluates its key by walking down the tree.
Key length: L (128 + k + 2) + 128 + k bits. Source: Boyle, Chandran, Gilboa,
Gupta, Ishai, Kumar and Rathee (2021, Figure 1); Barczewski (2025, sections
4.2.1 and 6.4.2; item EC-18).

Keys of n owners are stored in arrays with an axis [n]; every step handles all
of them at once. Secrecy holds if the two servers do not collude, under the
assumption of `prg`. Only n, L and k are visible.
"""

import dataclasses

import numpy as np

from dpjax import errors
from dpjax.mpc import packing
from dpjax.mpc import prg

_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_CHUNK = 2**16   # seeds of the widest level in memory at once
_WIDEST = 2**9   # most nodes in that level


@dataclasses.dataclass(frozen=True, kw_only=True)
class Keys:
  """Comparison keys of n owners for one server.

  Attributes:
    party: 0 or 1; server 1 negates its results.
    value_bits: k; values are modulo 2^k.
    roots: root seeds [n, 2] uint64.
    seeds: correction words of the seeds [L, n, 2].
    values: correction words of the values [L, n], below 2^k.
    controls: correction words of the control bits [L, n, 2], for the left and
      the right child, 0 or 1.
    last: correction words of the leaves [n], below 2^k.
  """
  party: int
  value_bits: int
  roots: np.ndarray
  seeds: np.ndarray
  values: np.ndarray
  controls: np.ndarray
  last: np.ndarray

  @property
  def depth(self) -> int:
    """Returns L, the depth of the tree."""
    return len(self.seeds)

  @property
  def num_keys(self) -> int:
    """Returns n, the number of owners."""
    return len(self.roots)

  def to_bytes(self) -> np.ndarray:
    """Packs the keys into messages [n, ceil(key_bits / 8)] uint8."""
    return packing.pack(self.fields())

  def fields(self) -> list[tuple[np.ndarray, int]]:
    """Returns (values, bits) pairs for `packing.pack`, in order of `layout`."""
    controls = 2 * self.controls[..., 0] + self.controls[..., 1]
    by_owner = np.moveaxis(self.seeds, 0, 1).reshape(
        self.num_keys, 2 * self.depth)
    return [(self.roots, 64), (by_owner, 64), (self.values.T, self.value_bits),
            (self.last[:, np.newaxis], self.value_bits), (controls.T, 2)]


def key_bits(depth: int, value_bits: int) -> int:
  """Returns the length of a key in bits: L (lambda + k + 2) + lambda + k."""
  return (depth * (prg.SEED_BITS + value_bits + 2) + prg.SEED_BITS +
          value_bits)


def layout(depth: int, value_bits: int) -> list[tuple[int, int]]:
  """Returns the fields (count, bits) of a key, for `packing.unpack`."""
  return [(2, 64), (2 * depth, 64), (depth, value_bits), (1, value_bits),
          (depth, 2)]


def from_fields(fields: list[np.ndarray], *, party: int,
                value_bits: int) -> Keys:
  """Builds keys from the fields returned by `packing.unpack`."""
  roots, by_owner, values, last, controls = fields
  depth = values.shape[1]
  return Keys(
      party=party, value_bits=value_bits, roots=roots,
      seeds=np.ascontiguousarray(np.moveaxis(
          by_owner.reshape(len(roots), depth, 2), 1, 0)),
      values=np.ascontiguousarray(values.T), last=last[:, 0],
      controls=np.ascontiguousarray(
          np.stack([controls.T >> np.uint64(1), controls.T & np.uint64(1)],
                   -1)))


def from_bytes(packed: np.ndarray, *, party: int, depth: int,
               value_bits: int) -> Keys:
  """Reads keys from messages [n, bytes] uint8.

  Raises:
    ValueError: if messages have another length or nonzero padding bits.
  """
  fields, bad = packing.unpack(packed, layout(depth, value_bits))
  packing.refuse_rows(bad)
  return from_fields(fields, party=party, value_bits=value_bits)


def generate(alphas: np.ndarray, betas: np.ndarray, *, depth: int,
             value_bits: int, source: prg.Source) -> tuple[Keys, Keys]:
  """Generates both keys of each of n comparison functions.

  Args:
    alphas: secret limits [n], integers from 0 to 2^depth - 1.
    betas: secret values below the limits [n], taken modulo 2^value_bits.
    depth: L, 1 to 64.
    value_bits: k, 1 to 64.
    source: randomness of the root seeds.

  Returns:
    The keys of server 0 and those of server 1.
  """
  _check_sizes(depth, value_bits)
  alphas, betas = _whole(alphas), _whole(betas)
  if depth < 64 and (alphas >> np.uint64(depth)).any():
    raise ValueError(f'alphas must be below 2^{depth}, got {alphas.max()}')
  roots = prg.words(source, (2, len(alphas), 2))
  seeds, value = roots, np.zeros(len(alphas), np.uint64)
  # A control bit fills a word, so that one & masks 64 bits. The servers'
  # bits differ on the path of alpha and agree everywhere else.
  control = np.stack([np.zeros_like(value), np.full_like(value, _ALL)])
  words = []
  for level in range(depth):
    right = _bit_mask(alphas, depth - 1 - level)
    word, seeds, control, value = _generate_level(
        seeds, control, value, right, betas, value_bits)
    words.append(word)
  # This word makes the values cancel at alpha, where x < alpha is false.
  last = _signed(seeds[1, :, 0] - seeds[0, :, 0] - value, control[1])
  shared = {name: np.stack([word[name] for word in words])
            for name in ('seeds', 'values', 'controls')}
  first, second = (
      Keys(party=party, value_bits=value_bits, roots=roots[party],
           last=last & _modulus_mask(value_bits), **shared)
      for party in (0, 1))
  return first, second


def _generate_level(
    seeds: np.ndarray, control: np.ndarray, value: np.ndarray,
    right: np.ndarray, betas: np.ndarray, value_bits: int
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
  """Returns a level's correction word and the state of the next level.

  The state is seeds [2, n, 2], control masks [2, n] and the difference of both
  servers' values so far, value [n]. `right` is the mask of owners whose alpha
  turns right. The correction word makes both servers' states equal in the child
  off the path of alpha, so that everything below it cancels.
  """
  children = [prg.expand(seeds, 0), prg.expand(seeds, 1)]
  values, controls = _values_and_controls(seeds, value_bits)
  # The path of alpha goes on in the kept child and leaves the lost one.
  lost = np.where(right[:, np.newaxis], children[0], children[1])
  kept = np.where(right[:, np.newaxis], children[1], children[0])
  value_lost = np.where(right, values[..., 0], values[..., 1])
  value_kept = np.where(right, values[..., 1], values[..., 0])
  negative = control[1]
  seed_word = lost[0] ^ lost[1]
  # If alpha turns right, all points under the lost child are below it.
  value_word = _signed(value_lost[1] - value_lost[0] - value + (right & betas),
                       negative) & _modulus_mask(value_bits)
  value = value - value_kept[1] + value_kept[0] + _signed(value_word, negative)
  # The new control bits must differ in the kept child only.
  control_word = controls[0] ^ controls[1] ^ np.stack([~right, right], -1)
  kept_word = np.where(right, control_word[..., 1], control_word[..., 0])
  kept_controls = np.where(right, controls[..., 1], controls[..., 0])
  return ({'seeds': seed_word, 'values': value_word,
           'controls': control_word & np.uint64(1)},
          kept ^ (control[..., np.newaxis] & seed_word),
          kept_controls ^ (control & kept_word), value)


def _values_and_controls(seeds: np.ndarray, value_bits: int
                         ) -> tuple[np.ndarray, np.ndarray]:
  """Returns values and control masks of both children, [..., 2] each.

  Control bits are the top bits of the block of values if k < 64 leaves those
  free; otherwise they come from one more block.
  """
  values = prg.expand(seeds, 2)
  top = values if value_bits < 64 else prg.expand(seeds, 3)
  return values, (top.view(np.int64) >> np.int64(63)).view(np.uint64)


def evaluate(keys: Keys, points: np.ndarray) -> np.ndarray:
  """Returns shares [n, m] modulo 2^k of function i at its points [i, m].

  Args:
    keys: one server's keys of n functions.
    points: integers [n, m] from 0 to 2^L - 1; row i belongs to key i.
  """
  points = _whole(points).T
  shape = points.shape
  seeds = np.broadcast_to(keys.roots, (*shape, 2)).copy()
  control = np.full(shape, _ALL if keys.party else np.uint64(0), np.uint64)
  total = np.zeros(shape, np.uint64)
  for level in range(keys.depth):
    right = _bit_mask(points, keys.depth - 1 - level)
    values, controls = _values_and_controls(seeds, keys.value_bits)
    total += np.where(right, values[..., 1], values[..., 0])
    total += control & keys.values[level]
    seeds = prg.expand(seeds, right & np.uint64(1))
    for word in (0, 1):
      seeds[..., word] ^= control & keys.seeds[level, :, word]
    bits = _negated(keys.controls[level])
    control = (np.where(right, controls[..., 1], controls[..., 0]) ^
               (control & np.where(right, bits[:, 1], bits[:, 0])))
  total += seeds[..., 0] + (control & keys.last)
  return (_negated(total) if keys.party else total).T & _modulus_mask(
      keys.value_bits)


def sums(keys: Keys, points: np.ndarray | None = None) -> np.ndarray:
  """Returns shares [m] modulo 2^k of the sum over owners at public points [m].

  Walks breadth first down the tree of all prefixes of the points, for many
  owners at once. Each node is visited once, except that nodes above groups of
  2^9 leaves are visited once per group.

  Args:
    keys: one server's keys.
    points: integers from 0 to 2^L - 1, repeated ones allowed; None for the
      whole domain, whose tree has 2^(L + 1) - 1 nodes.
  """
  if points is None:
    points = np.arange(2**keys.depth, dtype=np.uint64)
  wanted, places = np.unique(_whole(points), return_inverse=True)
  if wanted.size and keys.depth < 64 and int(wanted[-1]) >> keys.depth:
    raise ValueError(f'points must be below 2^{keys.depth}, got {wanted[-1]}')
  total = np.concatenate([np.zeros(0, np.uint64)] + [
      _sums_at(keys, wanted[start:start + _WIDEST])
      for start in range(0, wanted.size, _WIDEST)])
  total = _negated(total) if keys.party else total
  return total[places] & _modulus_mask(keys.value_bits)


def _sums_at(keys: Keys, wanted: np.ndarray) -> np.ndarray:
  """Returns sums, before server 1's sign, at up to 2^9 sorted points."""
  steps, order = _walk(wanted, keys.depth)
  # There are at most 2^9 points, so a chunk holds at least 128 owners.
  chunk = _CHUNK // wanted.size
  total = np.zeros(wanted.size, np.uint64)
  for start in range(0, keys.num_keys, chunk):
    total += _sums_of(keys, slice(start, start + chunk), steps)
  return total[order]


def _walk(wanted: np.ndarray, depth: int
          ) -> tuple[list[list[slice | np.ndarray]], np.ndarray]:
  """Plans which left and right children to visit in each level.

  Returns:
    For each level two selections of its nodes: those whose left child, and
    those whose right child, is visited. Children are stored left ones first.
    Also the permutation that sorts the leaves of the last level.
  """
  steps, prefixes = [], np.zeros(1, np.uint64)
  for level in range(depth):
    next_prefixes = np.unique(wanted >> np.uint64(depth - 1 - level))
    visited = [np.isin(2 * prefixes + np.uint64(side), next_prefixes)
               for side in (0, 1)]
    steps.append([slice(None) if which.all() else np.flatnonzero(which)
                  for which in visited])
    prefixes = np.concatenate([2 * prefixes[which] + np.uint64(side)
                               for side, which in enumerate(visited)])
  return steps, np.argsort(prefixes)


def _sums_of(keys: Keys, part: slice, steps: list[list[slice | np.ndarray]]
             ) -> np.ndarray:
  """Returns sums over some owners, before the sign, in the order of the walk.

  Values are summed over owners at each node, so only seeds [nodes, owners, 2]
  and control masks [nodes, owners, 2] are carried down per owner. Each control
  mask is stored twice, once for each word of the seed. Bits of values above k
  are not cleared here, because the caller reduces the sums modulo 2^k.
  """
  seeds = keys.roots[part][np.newaxis]
  fill = _ALL if keys.party else np.uint64(0)
  control = np.full(seeds.shape, fill, np.uint64)
  total = np.zeros(1, np.uint64)
  for level, selections in enumerate(steps):
    values, controls = _values_and_controls(seeds, keys.value_bits)
    shared = (control[..., 0] & keys.values[level, part]).sum(1)
    # One side at a time: NumPy's sum over a middle axis is ten times slower.
    gains = [values[..., side].sum(1) + shared for side in (0, 1)]
    controls ^= control & _negated(keys.controls[level, part])
    word = control & keys.seeds[level, part]
    children, bits = [], []
    for side, selected in enumerate(selections):
      child = prg.expand(seeds[selected], side)
      child ^= word[selected]
      children.append(child)
      bits.append(controls[selected, :, side])
    total = np.concatenate([total[selected] + gains[side][selected]
                            for side, selected in enumerate(selections)])
    seeds, control = np.concatenate(children), np.repeat(
        np.concatenate(bits)[..., np.newaxis], 2, axis=-1)
  return total + seeds[..., 0].sum(1) + (
      control[..., 0] & keys.last[part]).sum(1)


def _whole(values: np.ndarray) -> np.ndarray:
  """Returns integers as uint64, negative ones modulo 2^64."""
  values = np.asarray(values)
  if not np.issubdtype(values.dtype, np.integer):
    raise ValueError(f'numbers must be whole (integers), got {values.dtype}')
  return values.astype(np.uint64)


def _check_sizes(depth: int, value_bits: int) -> None:
  """Raises a ValueError unless both sizes are integers from 1 to 64."""
  for name, value in (('depth', depth), ('value_bits', value_bits)):
    if not 1 <= errors.check_at_least(name, value, 1) <= 64:
      raise ValueError(f'{name} must be at most 64, got {value}')


def _modulus_mask(value_bits: int) -> np.uint64:
  return np.uint64((1 << value_bits) - 1)


def _bit_mask(values: np.ndarray, place: int) -> np.ndarray:
  """Returns a word of ones where the bit at `place` is 1, else zero."""
  return _negated((values >> np.uint64(place)) & np.uint64(1))


def _negated(values: np.ndarray) -> np.ndarray:
  """Returns -values modulo 2^64; a bit becomes a word of ones or zeros."""
  return ~values + np.uint64(1)


def _signed(values: np.ndarray, negative: np.ndarray) -> np.ndarray:
  """Returns -values where the mask is all ones, values where it is zero."""
  # With a mask of ones this is ~x + 1 = -x in two's complement.
  return (values ^ negative) - negative
