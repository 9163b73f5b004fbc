"""Searches the neighbours whose outputs show the most evidence of a violation.

All runs here are pilot runs: the search only proposes pairs, and others count
events on fresh runs. Every data set is released with the same keys, so that
outputs of neighbours differ by the influence of the data only. Their distance,
in units of the spread of outputs, ranks pairs with few runs; the counts of
simple events rank them by the evidence against the claim. The search:
  1. compares the structured pairs of the space, with constants of the code;
  2. changes the best pairs at random, and keeps the best;
  3. follows the gradient of the distance, for releases that JAX traces;
  4. compares fewer and fewer pairs on more and more fresh runs (successive
     halving, Jamieson and Talwalkar, 2016, Algorithm 1). The last rounds are
     those of `blackbox`, which learns an event for each of the pairs left.
"""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from dpjax.audit import ascent
from dpjax.audit import mining
from dpjax.audit import ranking
from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.audit.target import Space
from dpjax.audit.target import Target
from dpjax.typing import PRNGKey, PyTree

Progress = Callable[[str], None]
"""Function that is called with short lines about the state of the search."""

# (pairs, runs) of each round of halving, after the first one of all pairs, and
# pairs that are handed on to the count, beside a smallest one. One run of a
# release that JAX cannot trace costs much more.
_FIRST_RUNS, _ROUNDS, _KEPT = 256, ((32, 512),), 16
_UNTRACED_PAIRS, _UNTRACED_RUNS = 256, 4
_UNTRACED_ROUNDS, _UNTRACED_KEPT = ((32, 32), (8, 256)), 3
_GENERATIONS, _PARENTS, _CHILDREN = 5, 16, 32
_REPORTED = 500


class Candidate(NamedTuple):
  """A pair of neighbours and how far the search could tell its sides apart.

  Attributes:
    pair: the neighbours.
    score: excess of the best simple event over the claim, in standard errors.
    distance: mean distance of the outputs with the same key, in units of the
      spread of the outputs.
    error: why the pair could not be compared; '' if it was.
  """
  pair: Pair
  score: float = -np.inf
  distance: float = 0.0
  error: str = ''


class Found(NamedTuple):
  """The result of a search.

  Attributes:
    candidates: all pairs that were compared, the most promising first.
    failed: pairs whose data sets the release rejected.
    unlike: pairs whose sides release outputs of different shapes.
    pairs: the pairs to count on, the most promising first.
    influenced: whether any two outputs of neighbours differed.
  """
  candidates: tuple[Candidate, ...]
  failed: tuple[Candidate, ...]
  unlike: tuple[Candidate, ...]
  pairs: tuple[Pair, ...]
  influenced: bool

  def legal(self, pairs: Sequence[Pair]) -> list[Pair]:
    """Returns those of the given pairs that could be compared."""
    rejected = {id(one.pair) for one in (*self.failed, *self.unlike)}
    return [pair for pair in pairs if id(pair) not in rejected] or list(pairs)

  def tried(self) -> dict[str, Any]:
    """Returns how many pairs were tried and the worst ones, JSON-ready."""
    best = [dict(pair=one.pair.what, score=one.score, distance=one.distance)
            for one in self.candidates[:_REPORTED]]
    return dict(
        num_pairs=len(self.candidates),
        worst=self.candidates[0].pair.what if self.candidates else '',
        influenced=self.influenced, pairs=best, num_rejected=len(self.failed),
        rejected=[dict(pair=one.pair.what, error=one.error)
                  for one in self.failed[:_REPORTED]])


def search(key: PRNGKey, target: Target, *, evolve: bool = True,
           seconds: float = 0.0, progress: Progress | None = None) -> Found:
  """Searches the neighbours with the strongest evidence against the claim.

  Args:
    key: determines all runs and all random changes.
    target: the target; without a space, its pairs are only compared.
    evolve: whether to change pairs and to follow gradients.
    seconds: time after which no further generation begins; the usual number
      of generations always runs.
    progress: called with the state of the search; None to be silent.

  Raises:
    Exception: the release's own error, if it rejects every data set.
  """
  start, say = time.monotonic(), progress or (lambda line: None)
  first_key, change_key, key = jax.random.split(key, 3)
  rng = np.random.default_rng(np.asarray(jax.random.key_data(change_key)))
  pairs, first = _structured(target), _first_runs(target)
  say(f'search: {len(pairs)} structured pairs')
  compare = functools.partial(_compared, first_key, target, num_runs=first)
  compared = compare(pairs)
  pool = _ranked([one for one in compared if not one.error])
  failed = [one for one in compared if one.error]
  if not pool and not any(one.error == _UNLIKE for one in failed):
    # The error itself, which `draw` raises, says more than its text.
    target.draw(first_key, pairs[0].data, 1)
  if pool and target.space is not None and evolve:
    followed = compare(ascent.pairs(rng, target, pairs[0]))
    pool = _ranked([*pool, *(one for one in followed if not one.error)])
    for generation in _generations(target.space, start + seconds):
      known = {_content(one.pair) for one in pool}
      children = compare([
          pair for pair in _children(rng, target.space, pool)
          if _content(pair) not in known])
      pool = _ranked([*pool, *(one for one in children if not one.error)])
      say(f'search: round {generation}, {len(pool)} pairs tried, best: '
          f'{pool[0].pair.what}')
  return _found(_halved(key, target, pool, say), failed,
                _KEPT if _is_fast(target) else _UNTRACED_KEPT)


def _generations(space: Space, end: float) -> Iterator[int]:
  """Yields numbers of generations: the usual ones, and more until `end`."""
  number = 0
  # Sums and scores differ by one bounded shift, so little is left to search.
  usual = _GENERATIONS if isinstance(space, spaces.Records) else 1
  while number < usual or time.monotonic() < end:
    number += 1
    yield number


def _first_runs(target: Target) -> int:
  """Returns the number of runs of each data set in the first comparison."""
  return _FIRST_RUNS if _is_fast(target) else _UNTRACED_RUNS


def _is_fast(target: Target) -> bool:
  """Returns whether many runs of the release are done in one call."""
  return target.traced or target.sample is not None


def _structured(target: Target) -> Sequence[Pair]:
  """Returns the target's pairs, with those of constants in its code."""
  pairs = list(target.pairs)
  space = target.space
  if isinstance(space, spaces.Records) and target.release is not None and (
      space.num_categories is None):
    mined = mining.constants(target.release, pairs[0].data)
    more = dataclasses.replace(space, constants=(*space.constants, *mined))
    known = {_content(pair) for pair in pairs}
    pairs += [pair for pair in more.pairs() if _content(pair) not in known]
  if _is_fast(target):
    return pairs
  return pairs[:_UNTRACED_PAIRS]


def _content(pair: Pair) -> tuple[Any, ...]:
  """Returns both sides of a pair as something to compare and to hash."""
  return tuple(_identity(data) for data in pair.records or pair[:2])


def _children(rng: np.random.Generator, space: Space,
              pool: Sequence[Candidate]) -> list[Pair]:
  """Returns random changes of the best pairs, of some pairs two changes."""
  parents = _both_best(pool, _PARENTS)
  children = []
  for number in range(_CHILDREN):
    child = space.mutated(rng, parents[number % len(parents)].pair)
    if rng.random() < 0.3:
      child = space.mutated(rng, child)
    children.append(child)
  return children


def _halved(key: PRNGKey, target: Target, pool: Sequence[Candidate],
            say: Progress) -> list[Candidate]:
  """Returns the candidates, ranked by more and more runs of the best ones."""
  left = list(pool)
  done: list[Candidate] = []
  for number, (size, num_runs) in enumerate(_ROUNDS if _is_fast(target)
                                            else _UNTRACED_ROUNDS):
    if len(left) < 2:
      break
    best = _both_best(left, size)
    chosen = set(map(id, best))
    done = [one for one in left if id(one) not in chosen] + done
    # Fresh keys: the best of many on the same runs look better than they are.
    left = _ranked(_compared(jax.random.fold_in(key, number), target,
                             [one.pair for one in best], num_runs=num_runs))
    say(f'search: {len(left)} pairs left, best: {left[0].pair.what}')
  return left + done


def _found(candidates: Sequence[Candidate], failed: Sequence[Candidate],
           kept: int) -> Found:
  """Returns the result of a search, with about `kept` pairs to count on."""
  return Found(
      candidates=tuple(candidates),
      failed=tuple(one for one in failed if one.error != _UNLIKE),
      unlike=tuple(one for one in failed if one.error == _UNLIKE),
      pairs=tuple(_counted(candidates, kept)),
      influenced=any(one.distance > 0 for one in candidates))


def _counted(candidates: Sequence[Candidate], kept: int) -> list[Pair]:
  """Returns the best pairs, and the most distant one of the smallest data.

  Where records are sampled, other records hide the one that differs. A few runs
  draw it too rarely to rank these pairs, so the smallest is always counted on.
  """
  best = [one.pair for one in _both_best(candidates, kept)]
  least = min(map(_size, best), default=0)
  smallest = [one for one in candidates if _size(one.pair) < least]
  if smallest:
    # Ties are resolved in favour of the better score, by the order.
    best.append(min(smallest, key=lambda one: (_size(one.pair),
                                               -one.distance)).pair)
  return best


def _size(pair: Pair) -> int:
  """Returns how many numbers both data sets of a pair have together."""
  return sum(int(np.size(leaf)) for leaf in jax.tree.leaves(pair[:2]))


def _ranked(candidates: Sequence[Candidate]) -> list[Candidate]:
  """Sorts candidates by score; a stable sort keeps promising pairs in front."""
  return sorted(candidates, key=lambda one: -one.score)


def _both_best(candidates: Sequence[Candidate], size: int) -> list[Candidate]:
  """Returns the best candidates by score and by distance, in turns."""
  by_distance = sorted(candidates, key=lambda one: -one.distance)
  both = [one for two in zip(_ranked(candidates), by_distance, strict=True)
          for one in two]
  # Pairs with equal results are most likely equivalent: one of each is first.
  unlike = {(one.score, one.distance): one for one in reversed(both)}
  firsts = [one for one in both
            if one is unlike[one.score, one.distance]]
  # Candidates hold arrays, which have no truth value, so identity counts.
  return list({id(one): one for one in (*firsts, *both)}.values())[:size]


_UNLIKE = 'the two sides release outputs of different shapes'


def _compared(key: PRNGKey, target: Target, pairs: Sequence[Pair], *,
              num_runs: int) -> list[Candidate]:
  """Returns pairs as candidates, by runs with the same keys on all sides."""
  # Many pairs share a side, which is drawn once.
  contents = [tuple(map(_identity, pair[:2])) for pair in pairs]
  sides: dict[Any, PyTree] = {}
  for pair, content in zip(pairs, contents, strict=True):
    sides.update(zip(content, pair[:2], strict=True))
  drawn = dict(zip(sides, target.draw_alike(key, list(sides.values()),
                                            num_runs), strict=True))
  return [_candidate(target, pair, drawn[one], drawn[other])
          for pair, (one, other) in zip(pairs, contents, strict=True)]


def _identity(data: PyTree) -> Any:
  """Returns the content of a data set as something to compare and to hash."""
  leaves, structure = jax.tree.flatten(data)
  try:
    return structure, tuple(
        (np.shape(leaf), str(np.asarray(leaf).dtype),
         np.asarray(leaf).tobytes()) for leaf in leaves)
  except (TypeError, ValueError):  # a leaf that is no array, such as a key
    return id(data)


def _candidate(target: Target, pair: Pair, one: np.ndarray | Exception,
               other: np.ndarray | Exception) -> Candidate:
  """Returns a pair with its score and its distance."""
  for side in (one, other):
    if isinstance(side, Exception):
      return Candidate(pair, error=f'{type(side).__name__}: {side}'[:200])
  assert isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
  if one.shape != other.shape:
    return Candidate(pair, error=_UNLIKE)
  return Candidate(pair, ranking.evidence(target.curve, one, other,
                                          low_bits=target.floating_point),
                   ranking.distance(one, other))
