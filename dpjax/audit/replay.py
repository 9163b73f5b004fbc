"""Record and replay: measures what a release hides, and with which noise.

A release runs on a data set, and every value that noise is added to is recorded
with the noisy result. It runs again on a neighbour, with the same random draws
and with the noisy results replaced by the recorded ones. What changes between
the two runs is what the noise must hide. Nothing of the release is rewritten or
declared: JAX releases are traced (`recording.interpreter`), others run with
recording generators of NumPy (`recording.python`). The idea is that of
Re:cord-play (arXiv 2602.17454), which compares calls of instrumented functions.

What a result means, for one pair of neighbours:
- No finding: given all recorded histories of noisy values, the noisy values
  together cost at most the claim, and nothing else of the release changes. This
  is evidence for the pair, not a proof for all pairs.
- 'proof': the release determines noisy values that together cost more than the
  claim in every history, or a value without noise differs. With delta = 0 this
  is a proof up to the numerical identification of noise; otherwise a sound
  release is called violated with probability at most 1e-6 for each pair, in
  which adaptive sites are judged by the histories that were recorded.
- 'sampled': counts of many runs of the whole release refute the claim, at the
  stated significance.
- 'suspect': the noisy values cost more than the claim, or their cost is not
  known, but the release may reveal less than them. A look is advised. The
  release is then not `judged`, and not called violated.
"""

from collections.abc import Sequence
import contextlib
import dataclasses
from typing import Any

import jax
import numpy as np

from dpjax.audit import blackbox
from dpjax.audit import target as targets
from dpjax.audit.recording import comparison
from dpjax.audit.recording import noise as run_noise
from dpjax.audit.recording import python
from dpjax.audit.recording import runner as runners
from dpjax.audit.recording import values
from dpjax.audit.recording import verdicts
from dpjax.audit.recording.comparison import Finding
from dpjax.audit.recording.generators import noisy
from dpjax.audit.recording.python import with_generator
from dpjax.typing import PRNGKey

__all__ = ['Finding', 'Replay', 'audit', 'noisy', 'with_generator']

# Runs per data set, and the most recorded numbers of a pair.
_NUM_KEYS = 512
_NUMBERS = 2**22
# Suspect pairs whose release is run as a whole, and the runs of each side.
_SAMPLED_PAIRS = 1
_NUM_RUNS = 10000
_SIGNIFICANCE = 1e-4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replay:
  """Result of recording and replaying a release.

  Attributes:
    violated: whether the claim is false, see the module.
    findings: what violates the claim; one for each line of code.
    suspects: what could not be judged exactly; one for each line of code.
    sites: places at which noise is added, in order of the run.
    judged: whether everything that depends on data was judged exactly.
    sampled: whether the suspects were tested by runs of the whole release.
    num_pairs: number of pairs that were compared.
  """
  violated: bool
  findings: tuple[Finding, ...]
  suspects: tuple[Finding, ...]
  sites: tuple[values.Site, ...]
  judged: bool
  sampled: bool
  num_pairs: int

  def __str__(self) -> str:
    lines = [str(finding) for finding in (*self.findings, *self.suspects)]
    verdict = ('violated' if self.violated else 'no violation' if self.judged
               else 'not judged exactly')
    return '\n'.join([f'{verdict}: {len(self.sites)} noisy values, '
                      f'{self.num_pairs} pairs', *lines])


def audit(key: PRNGKey, target: targets.Target, *,
          pairs: Sequence[targets.Pair] | None = None,
          num_keys: int = _NUM_KEYS, sampled_runs: int = _NUM_RUNS) -> Replay:
  """Records and replays a target's release on pairs of neighbours.

  Args:
    key: determines all draws.
    target: the release and its claim. If JAX cannot trace the release, it runs
      in Python, see `recording.python`.
    pairs: neighbours; by default those of the target.
    num_keys: runs of each data set, at least 64. They find the families of
      noise; scales of known samplers are exact with any number.
    sampled_runs: runs of each side of one pair that was not judged exactly,
      to test the whole release; 0 for none.

  Raises:
    ValueError: if the target has no function of one key.
  """
  if target.release is None:
    raise ValueError(f'{target.name} has only `sample`, and no `release` that '
                     'could be recorded')
  pairs = tuple(target.pairs if pairs is None else pairs)
  keys, sampling = jax.random.split(key)
  if target.traced:
    with types(target):
      results, sites = _traced(keys, target, pairs, num_keys)
  else:
    results, sites = python.examine(keys, target, pairs)
  findings = [f for found in results for f in found]
  proofs = [f for f in findings if f.how == comparison.PROOF]
  suspects = [f for f in findings if f.how == comparison.SUSPECT]
  sampled = bool(suspects and not proofs and sampled_runs)
  if sampled:
    proofs = _sample(sampling, target, pairs, results, sampled_runs)
  return Replay(violated=bool(proofs), findings=_distinct(proofs),
                suspects=_distinct(suspects), sites=tuple(sites),
                judged=not suspects, sampled=sampled, num_pairs=len(pairs))


def types(target: targets.Target) -> contextlib.AbstractContextManager[Any]:
  """Returns the context of the types in which a target is run."""
  return (jax.enable_x64(True) if target.double_precision
          else contextlib.nullcontext())


def _distinct(findings: list[Finding]) -> tuple[Finding, ...]:
  """Returns the dearest finding of each line and kind."""
  worst: dict[tuple[str, str], Finding] = {}
  for finding in findings:
    name = (finding.line, finding.what.split(':')[0])
    if name not in worst or finding.epsilon > worst[name].epsilon:
      worst[name] = finding
  return tuple(worst.values())


def _traced(key: PRNGKey, target: targets.Target,
            pairs: Sequence[targets.Pair], num_keys: int
            ) -> tuple[list[list[Finding]], list[values.Site]]:
  """Returns the findings of each pair of a release that JAX traces."""
  session = _Session(key, target, num_keys)
  results = [session.examine(pair) for pair in pairs]
  return results, next(iter(session.runners.values())).trace.sites


class _Session:
  """Runners and noise of a target, one for each shape of data."""

  def __init__(self, key: PRNGKey, target: targets.Target, num_keys: int):
    self._key, self._target, self._num_keys = key, target, num_keys
    self.runners: dict[str, runners.Runner] = {}
    self._noises: dict[str, run_noise.Noise] = {}

  def _runner(self, data: Any) -> tuple[str, runners.Runner]:
    """Returns the runner for data of this shape."""
    name = str(jax.tree.map(lambda leaf: (np.shape(leaf), str(getattr(
        leaf, 'dtype', leaf))), data))
    if name not in self.runners:
      self.runners[name] = runners.Runner(self._target.release,
                                               self._key, data)
    return name, self.runners[name]

  def examine(self, pair: targets.Pair) -> list[Finding]:
    """Returns the findings of one pair."""
    data, neighbour = (targets.arrays(side) for side in pair[:2])
    name, one = self._runner(data)
    _, other = self._runner(neighbour)
    if one.frozen_shapes != other.frozen_shapes or len(one.released) != len(
        other.released):
      return [Finding(what='not judged: the noisy values of the neighbours '
                      'have different numbers or shapes', pair=pair.what,
                      line=one.trace.sites[0].line if one.trace.sites else '',
                      how=comparison.SUSPECT)]
    width = max(1, sum(int(np.prod(s)) for s, _ in one.frozen_shapes))
    num_runs = int(np.clip(_NUMBERS // width, 64, self._num_keys))
    keys = jax.random.split(self._key, num_runs)
    first = one(keys, data)
    second = other(keys, neighbour, first['outputs'])
    noise = self._noises.get(name)
    # Scales that were released before differ between pairs.
    if noise is None or (noise.units != 1).any():
      noise = run_noise.measure(one.trace, first, num_runs)
      self._noises[name] = noise
    compared = comparison.Comparison(
        comparison.recorded(one, first, num_runs),
        comparison.recorded(other, second, num_runs), noise,
        self._target.claim, pair.what)
    findings = verdicts.examine(compared)
    if not _same_noise(one, other, first, second, noise, num_runs):
      what = 'not judged: the noise depends on the number of records'
      findings = comparison.suspected(findings, what)
      findings.append(Finding(what=what, line=one.trace.sites[0].line,
                              pair=pair.what, how=comparison.SUSPECT))
    return findings


def _same_noise(one: runners.Runner, other: runners.Runner,
                first: dict[str, Any], second: dict[str, Any],
                noise: run_noise.Noise, num_runs: int) -> bool:
  """Returns whether both data sets have noise of one distribution."""
  if one is other:
    return True
  mine, theirs = (run_noise.flat(side['noises'], num_runs)
                  for side in (first, second))
  if np.allclose(mine, theirs, rtol=1e-4, equal_nan=True):
    return True
  measured = run_noise.measure(other.trace, second, num_runs)
  sizes = [np.linalg.norm(n.mixing * [c.scale for c in n.columns], axis=1)
           * np.median(n.units, 0) for n in (noise, measured)]
  families = [[c.family for c in n.columns] for n in (noise, measured)]
  error = max((c.error for c in noise.columns), default=0.0)
  return families[0] == families[1] and np.allclose(
      sizes[0], sizes[1], rtol=1e-3 + 2 * error)


def _sample(key: PRNGKey, target: targets.Target,
            pairs: Sequence[targets.Pair], results: list[list[Finding]],
            num_runs: int) -> list[Finding]:
  """Tests the dearest suspect pairs by counting outputs of the release."""
  order = sorted((i for i, found in enumerate(results) if found),
                 key=lambda i: -max(f.epsilon for f in results[i]))
  findings = []
  for number, k in zip(order[:_SAMPLED_PAIRS], jax.random.split(
      key, _SAMPLED_PAIRS), strict=False):
    pair = pairs[number]
    shapes = [target.draw(k, side, 1).shape for side in pair[:2]]
    if shapes[0] != shapes[1]:
      continue
    counted = blackbox.audit(
        k, dataclasses.replace(target, pairs=(pair,)), num_runs=num_runs,
        significance=_SIGNIFICANCE / _SAMPLED_PAIRS)
    if counted.excess > 0:
      worst = max(results[number], key=lambda f: f.epsilon)
      findings.append(dataclasses.replace(
          worst, how=comparison.SAMPLED, epsilon=counted.epsilon_lower,
          what=worst.what + '; counts of the release refute the claim'))
  return findings
