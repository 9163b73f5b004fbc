"""Records and replays releases that run in Python, not in JAX.

The release runs many times with the recording generators of
`generators`, on a data set and again on its neighbour, with the same
draws and the recorded noisy values. What it does between draws is not seen, so
a difference that reaches the release is a proof only if no draw but noise was
made, and every noisy value shows in the release.
"""

from collections.abc import Callable, Sequence
import dataclasses
from typing import Any

import jax
import numpy as np

from dpjax.audit import target as targets
from dpjax.audit.recording import comparison
from dpjax.audit.recording import generators
from dpjax.audit.recording import noise as run_noise
from dpjax.audit.recording import tapes
from dpjax.audit.recording import verdicts
from dpjax.audit.recording.comparison import Comparison
from dpjax.audit.recording.comparison import Finding
from dpjax.audit.recording.values import Leaf
from dpjax.audit.recording.values import Site
from dpjax.audit.recording.values import Trace
from dpjax.audit.recording.values import Value
from dpjax.typing import PRNGKey, PyTree

_NUM_RUNS = 128
# A control flow that fewer runs take is not compared.
_FEWEST = 32


@dataclasses.dataclass(frozen=True)
class _Run:
  """One run: its tape, and its released arrays as float64 vectors."""
  tape: tapes.Tape
  released: list[np.ndarray]

  @property
  def path(self) -> tuple[Any, ...]:
    """What the run draws and hides, in order, with shapes."""
    return (tuple((name, draw.shape) for name, _, draw in self.tape.leaves),
            tuple((line, value.shape) for line, _, value, _, _ in
                  self.tape.sites), tuple(self.tape.masks))


def with_generator(function: Callable[[np.random.Generator, PyTree], PyTree]
                   ) -> targets.Release:
  """Returns the release (key, data) of a function (generator, data)."""
  def release(key: PRNGKey, data: PyTree) -> PyTree:
    words = np.asarray(jax.random.key_data(key)).tolist()
    return function(np.random.default_rng(words), data)
  return release


def examine(key: PRNGKey, target: targets.Target,
            pairs: Sequence[targets.Pair]
            ) -> tuple[list[list[Finding]], list[Site]]:
  """Returns the findings of each pair, and the sites of the first one."""
  keys = list(jax.random.split(key, _NUM_RUNS + 1))
  results, sites = [], []
  for pair in pairs:
    findings, seen = _examine(keys, target, pair)
    results.append(findings)
    sites = sites or seen
  return results, sites


def _run(target: targets.Target, key: PRNGKey, data: PyTree, seed: int,
         frozen: list[np.ndarray] | None = None) -> _Run:
  """Runs a release once on a tape."""
  assert target.release is not None
  tape = tapes.Tape(seed, frozen)
  with generators.recording(tape):
    output = target.release(key, data)
    released = [np.asarray(leaf).astype(np.float64).ravel()
                for leaf in jax.tree.leaves(output, is_leaf=lambda x: (
                    isinstance(x, tapes.Draw)))]
  return _Run(tape, released)


def _noisy(run: _Run) -> list[np.ndarray]:
  """Returns the noisy values of a run."""
  return [noisy for *_, noisy in run.tape.sites]


def _examine(keys: list[PRNGKey], target: targets.Target, pair: targets.Pair
             ) -> tuple[list[Finding], list[Site]]:
  """Returns the findings of one pair, and its sites."""
  first = [_run(target, key, pair.data, seed)
           for seed, key in enumerate(keys[:-1])]
  second = [_run(target, key, pair.neighbour, seed, _noisy(run))
            for (seed, key), run in zip(enumerate(keys), first, strict=False)]
  findings = []
  branches = [(one, other) for one, other in zip(first, second, strict=True)
              if one.path != other.path]
  if branches:
    findings.append(_branch(*branches[0], pair.what))
  findings += _seeds(target, keys, first, second, pair)
  groups: dict[Any, list[int]] = {}
  for number, (one, other) in enumerate(zip(first, second, strict=True)):
    if one.path == other.path:
      groups.setdefault(one.path, []).append(number)
  sites: list[Site] = []
  for members in groups.values():
    if len(members) < _FEWEST:
      findings.append(Finding(
          what='not judged: too few runs take the same course', line='',
          pair=pair.what, how=comparison.SUSPECT))
      continue
    runs = [first[i] for i in members], [second[i] for i in members]
    sites = sites or _sites(runs[0][0])
    findings += _group(target, keys[-1], members, *runs, pair)
  return findings, sites


def _branch(one: _Run, other: _Run, what: str) -> Finding:
  """Returns the finding of neighbours that draw differently."""
  names = [[name for name, *_ in run.tape.leaves]
           + [site[0] for site in run.tape.sites] + run.tape.masks
           for run in (one, other)]
  odd = next((a for a, b in zip(*names, strict=False) if a != b),
             max(names, key=len)[-1])
  return Finding(what='a branch on data: the neighbours draw other random '
                 'numbers, or of other shapes', line=odd.rpartition(
                     ' at ')[2], draw=odd, pair=what,
                 how=comparison.SUSPECT)


def _seeds(target: targets.Target, keys: list[PRNGKey], first: list[_Run],
           second: list[_Run], pair: targets.Pair) -> list[Finding]:
  """Returns findings of seeds that depend on data, or on nothing."""
  fixed = (len(first[0].tape.seeds) > 0 and
           all(run.tape.seeds == first[0].tape.seeds for run in first))
  moved = [(mine, theirs) for one, other in zip(first, second, strict=True)
           for mine, theirs in zip(one.tape.seeds, other.tape.seeds,
                                   strict=False) if mine != theirs]
  if not (fixed or moved):
    return []
  # Without frozen values a fixed seed gives one answer for each data set.
  answers = [[_run(target, key, side, 10**6 + seed).released
              for seed, key in enumerate(keys[:4])] for side in pair[:2]]
  constant = all(_equal(answer, side[0]) for side in answers
                 for answer in side)
  proven = fixed and constant and not _equal(answers[0][0], answers[1][0])
  line = (moved[0][0] if moved else first[0].tape.seeds[0])[0]
  if not moved and not proven:
    return []
  what = ('a data-dependent seed' if moved else 'a fixed seed')
  return [Finding(what=f'random bits from {what}', line=line, pair=pair.what,
                  how=comparison.PROOF if proven else comparison.SUSPECT)]


def _equal(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
  """Returns whether two releases are the same numbers."""
  return len(one) == len(other) and all(
      np.array_equal(a, b, equal_nan=True)
      for a, b in zip(one, other, strict=True))


def _sites(run: _Run) -> list[Site]:
  """Returns the sites of a run, which may depend on all earlier draws."""
  masks = frozenset(run.tape.masks)
  return [Site(
      kind='sum', line=line, draws=frozenset([run.tape.leaves[leaf][0]]),
      masks=masks, sites=frozenset(range(number)), shape=noise.shape,
      scores=False) for number, (line, leaf, _, noise, _) in enumerate(
          run.tape.sites)]


def _group(target: targets.Target, key: PRNGKey, members: list[int],
           first: list[_Run], second: list[_Run], pair: targets.Pair
           ) -> list[Finding]:
  """Compares runs that draw and hide the same, in the same order."""
  num_runs = len(first)
  masks = set(first[0].tape.masks)
  # With another key nothing may change, or draws were made that are not seen.
  control = _run(target, key, pair.data, members[0], _noisy(first[0]))
  if not masks and not _close(control.released, first[0].released):
    masks.add('draws that were not recorded')
  shapes = {tuple(x.shape for x in run.released) for run in (*first, *second)}
  if len(shapes) > 1:
    return [Finding(what='the shape of the release depends on the data',
                    line='', pair=pair.what, how=comparison.SUSPECT)]
  leaves = [Leaf(name, family, name.rpartition(' at ')[2])
            for name, family, _ in first[0].tape.leaves]
  trace = Trace(leaves=leaves, sites=_sites(first[0]))
  arrays = [_arrays(runs) for runs in (first, second)]
  depends = [Value(None, True, frozenset(masks), frozenset(
      range(len(trace.sites)))) for _ in first[0].released]
  sides = [comparison.Recorded(
      trace, run_noise.flat(side['values'], num_runs),
      run_noise.flat(side['outputs'], num_runs), side['released'], depends)
           for side in arrays]
  noise = run_noise.measure(trace, arrays[0], num_runs)
  findings = verdicts.examine(Comparison(
      sides[0], sides[1], noise, target.claim, pair.what))
  noises = [run_noise.flat(side['noises'], num_runs) for side in arrays]
  if not np.allclose(*noises, rtol=1e-6, equal_nan=True):
    odd = int(np.argmax([not np.allclose(a, b, rtol=1e-6) for a, b in zip(
        arrays[0]['noises'], arrays[1]['noises'], strict=True)]))
    findings.append(Finding(
        what='not judged: the noise depends on the data',
        line=trace.sites[odd].line, draw=', '.join(trace.sites[odd].draws),
        pair=pair.what, how=comparison.SUSPECT))
  return findings


def _close(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
  """Returns whether two releases agree up to rounding."""
  return len(one) == len(other) and all(
      a.shape == b.shape and np.allclose(a, b, rtol=1e-9, equal_nan=True)
      for a, b in zip(one, other, strict=True))


def _arrays(runs: list[_Run]) -> dict[str, Any]:
  """Returns the recorded numbers of runs, each with a leading axis [K]."""
  tapes = [run.tape for run in runs]
  stacked = lambda place: [np.stack(parts) for parts in zip(
      *([site[place] for site in tape.sites] for tape in tapes), strict=True)]
  draws = [np.stack(parts) for parts in zip(
      *([leaf[2] for leaf in tape.leaves] for tape in tapes), strict=True)]
  return dict(values=stacked(2), noises=stacked(3), outputs=stacked(4),
              draws=draws, scales=[None] * len(draws),
              released=[np.stack(parts) for parts in zip(
                  *(run.released for run in runs), strict=True)])
