"""A recorded run and its replay on a neighbour, as numbers."""

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from dpjax.audit import claims
from dpjax.audit.recording import choices
from dpjax.audit.recording import costs
from dpjax.audit.recording import losses
from dpjax.audit.recording import noise as run_noise
from dpjax.audit.recording import runner as runners
from dpjax.audit.recording import shown
from dpjax.audit.recording.costs import Cost
from dpjax.audit.recording.noise import Noise
from dpjax.audit.recording.values import Site
from dpjax.audit.recording.values import Trace
from dpjax.audit.recording.values import Value

# A sound release is called violated with at most this probability per pair.
SIGNIFICANCE = 1e-6
TOLERANCE = 2e-3
# Runs whose histories are compared.
HISTORIES = 12
PROOF, SAMPLED, SUSPECT = 'proof', 'sampled', 'suspect'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
  """A place where a release costs more than its claim, or seems to.

  Attributes:
    what: what is wrong, in words.
    line: file and line of the code, 'file.py:12'.
    draw: name of the random draw; '' if there is none.
    sensitivity: measured change of what is noised, between the neighbours.
    scale: measured scale of the noise; a standard deviation if it is Gaussian.
    allowed: the largest change that the claim allows with this noise.
    pair: description of the neighbours.
    how: 'proof' if the runs show a violation; 'sampled' if counts of many runs
      refute the claim; 'suspect' if the noisy values together cost more than
      the claim, but the release may reveal less than them.
    epsilon: epsilon of all that was compared, at the delta of the claim; a
      lower bound on it where records are sampled.
  """
  what: str
  line: str
  draw: str = ''
  sensitivity: float = math.nan
  scale: float = math.nan
  allowed: float = math.nan
  pair: str = ''
  how: str = PROOF
  epsilon: float = math.inf

  def __str__(self) -> str:
    numbers = [f'{name} {value:.4g}' for name, value in (
        ('sensitivity', self.sensitivity), ('noise scale', self.scale),
        ('allowed', self.allowed), ('epsilon', self.epsilon))
               if not math.isnan(value)]
    draw = f' [{self.draw}]' if self.draw else ''
    return (f'{self.how}: {self.line}{draw}: {self.what}; '
            f'{", ".join(numbers)}; {self.pair}')


@dataclasses.dataclass(frozen=True)
class Recorded:
  """Runs of one data set with many keys, as numbers.

  Attributes:
    trace: sites of the run.
    values: [K, D] what the sites hide.
    outputs: [K, D] noisy values.
    released: released arrays, each [K, d].
    depends: what each of them depends on.
  """
  trace: Trace
  values: np.ndarray
  outputs: np.ndarray
  released: list[np.ndarray]
  depends: list[Value]


def recorded(runner: runners.Runner, arrays: dict[str, Any],
             num_runs: int) -> Recorded:
  """Returns the runs of a runner as float64 matrices."""
  return Recorded(
      runner.trace, run_noise.flat(arrays['values'], num_runs),
      run_noise.flat(arrays['outputs'], num_runs),
      [run_noise.flat([leaf], num_runs) for leaf in arrays['released']],
      runner.released)


@dataclasses.dataclass(frozen=True)
class Comparison:
  """A recorded run, its replay on the neighbour, and the noise of both."""
  one: Recorded
  other: Recorded
  noise: Noise
  claim: claims.Claim
  what: str

  @functools.cached_property
  def shifts(self) -> np.ndarray:
    """[K, D] changes of what is noised, in units of adaptive scales."""
    return costs.change(self.one.values, self.other.values) / self.noise.units

  @functools.cached_property
  def histories(self) -> np.ndarray:
    """Runs with distinct changes: those of the largest ones, then others."""
    sites = self.one.trace.sites
    special = [self.noise.rows(i) for i, site in enumerate(sites)
               if site.kind == 'threshold' or choices.is_selection(site)]
    both = [side.values[:, rows] for rows in special
            for side in (self.one, self.other)]
    with np.errstate(divide='ignore', invalid='ignore', over='ignore'):
      keys = np.concatenate([self.shifts, *both], 1).astype(np.float32)
      sizes = np.nan_to_num(np.abs(self.shifts)).sum(1)
    _, first = np.unique(np.round(keys, 5), axis=0, return_index=True)
    largest = first[np.argsort(-sizes[first], kind='stable')]
    return np.unique(np.concatenate([largest[:HISTORIES // 2],
                                     np.sort(first)[:HISTORIES // 2]]))

  def cost(self, run: int, keep: list[int]) -> Cost:
    """Returns the cost of some sites in one run."""
    return losses.of_sites(self.one.trace.sites, self.noise,
                           self.one.values[run], self.other.values[run],
                           self.noise.units[run], keep)

  def epsilon(self, cost: costs.Cost) -> float:
    """Returns the epsilon of a cost at the claim's delta, but unknown parts."""
    return _epsilon(_rounded(cost), self.claim.delta)

  @functools.cached_property
  def moving(self) -> list[int]:
    """Sites that reach the release, and differ between the neighbours."""
    live = set().union(*(value.sites for value in self.one.depends))
    for number in reversed(range(len(self.one.trace.sites))):
      if number in live:
        live |= self.one.trace.sites[number].sites
    return [i for i in sorted(live)
            if self.shifts[:, self.noise.rows(i)].any()]

  @functools.cached_property
  def public(self) -> np.ndarray:
    """[K, d] released numbers that are functions of noisy values only.

    These are equal on both sides, given the noisy values, in all runs.
    """
    mine, theirs = (np.concatenate(side.released, axis=1)
                    for side in (self.one, self.other))
    if mine.shape != theirs.shape:
      return mine[:, :0]
    return mine[:, ~differ(mine, theirs).any(0)]

  @functools.cached_property
  def direct(self) -> np.ndarray:
    """[D] which noisy values the release determines."""
    seen = shown.revealed(self.one.outputs, self.public)
    rows = np.array([row for site in self.moving for row in range(
        self.noise.starts[site], self.noise.starts[site + 1])], int)
    for members, columns in self.noise.blocks(rows):
      block = self.noise.mixing[np.ix_(rows[members], columns)]
      # If values share all their noise, one of them predicts the others, so
      # each must itself be released.
      if np.linalg.matrix_rank(block, 1e-6) < len(members):
        seen[rows[members]] = shown.released_as_is(
            self.one.outputs[:, rows[members]], self.public)
    return seen

  @functools.cached_property
  def shown(self) -> list[int]:
    """Sites that the release reveals, and whose values do not hide others."""
    sites, released, direct = self.one.trace.sites, self.public, self.direct
    result: list[int] = []
    for number, site in enumerate(sites):
      rows = self.noise.rows(number)
      seen = (_shows_choice(self.one.outputs[:, rows], site, released)
              if choices.is_selection(site) else self._seen(direct, rows))
      if seen and not site.masks and site.sites <= set(result):
        result.append(number)
    return result

  def _seen(self, direct: np.ndarray, rows: slice) -> bool:
    """Returns whether all coordinates count that share a draw with changes."""
    moved = np.asarray(self.shifts[:, rows].any(0))
    places = np.arange(rows.start, rows.stop)
    return all(direct[places[members]].all()
               for members, _ in self.noise.blocks(places)
               if moved[members].any())


def suspected(findings: list[Finding], what: str) -> list[Finding]:
  """Returns findings none of which is a proof, for the reason `what`."""
  return [finding if finding.how != PROOF else dataclasses.replace(
      finding, how=SUSPECT, what=f'{finding.what}; {what}')
          for finding in findings]


def _shows_choice(scores: np.ndarray, site: Site,
                  released: np.ndarray) -> bool:
  """Returns whether the release determines the place of the largest score.

  Either all places were chosen, and differ in the release, or a released number
  is a linear function of at least three places.
  """
  rows = [choices.rows_of(row, site) for row in scores]
  if rows[0].shape[0] != 1 or not released.shape[1]:
    return False
  chosen = np.array([row[0].argmax() for row in rows])
  places = np.unique(chosen)
  if len(places) > 2 and any(
      np.abs(np.corrcoef(chosen, column)[0, 1]) > 1 - 1e-6
      for column in released.T if np.std(column) > 0):
    return True
  outcomes, inverse = np.unique(released, axis=0, return_inverse=True)
  inverse = inverse.ravel()
  return (len(places) == rows[0].shape[1] and len(outcomes) <= len(scores) // 4
          and all(len(np.unique(chosen[inverse == i])) == 1
                  for i in range(len(outcomes))))


def differ(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
  """Returns which released numbers differ by more than rounding."""
  slack = 1e-4 * (1 + np.abs(np.nan_to_num(mine)))
  return np.abs(costs.change(mine, theirs)) > slack


@functools.lru_cache(maxsize=4096)
def _epsilon(cost: Cost, delta: float) -> float:
  """Returns `costs.epsilon`, remembered, since many runs cost the same."""
  return costs.epsilon(cost, delta)


def _rounded(cost: Cost) -> Cost:
  """Returns a cost without the last digits, so that equal ones are equal."""
  digits = lambda x: float(f'{x:.5g}')
  return dataclasses.replace(
      cost, shift=digits(cost.shift), pure=digits(cost.pure),
      reverse=digits(cost.reverse),
      laplace=tuple(sorted(map(digits, cost.laplace))),
      discrete=tuple(sorted((digits(r), s) for r, s in cost.discrete)))


def spent(pair: Comparison, run: int, keep: list[int]) -> float:
  """Returns the epsilon of some sites in one run, without unknown parts."""
  return pair.epsilon(pair.cost(run, keep))


def limit(pair: Comparison, error: float) -> float:
  """Returns the epsilon above which a cost exceeds the claim."""
  # Epsilon grows at most like the square of a shift over a scale.
  return pair.claim.epsilon * (1 + TOLERANCE + 2 * error) + 1e-6
