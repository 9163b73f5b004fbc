"""Compares recorded and replayed runs of one pair with the claim."""

import dataclasses
import functools
import math
from typing import Any

import numpy as np
from scipy import stats

from dpjax.audit import claims
from dpjax.audit import replay_losses as losses
from dpjax.audit import replay_noise
from dpjax.audit import replay_trace
from dpjax.privacy import accounting
from dpjax.privacy import restating
from dpjax.privacy.adjacency import Adjacency

# A sound release is called violated with at most this probability per pair.
SIGNIFICANCE = 1e-6
_TOLERANCE = 2e-3
# Runs whose histories are compared.
_HISTORIES = 12

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
    epsilon: epsilon of all that was compared, at the delta of the claim.
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
  trace: replay_trace.Trace
  values: np.ndarray
  outputs: np.ndarray
  released: list[np.ndarray]
  depends: list[replay_trace.Value]


def recorded(runner: replay_trace.Runner, arrays: dict[str, Any],
             num_runs: int) -> Recorded:
  """Returns the runs of a runner as float64 matrices."""
  return Recorded(
      runner.trace, replay_noise.flat(arrays['values'], num_runs),
      replay_noise.flat(arrays['outputs'], num_runs),
      [replay_noise.flat([leaf], num_runs) for leaf in arrays['released']],
      runner.released)


@dataclasses.dataclass(frozen=True)
class Comparison:
  """A recorded run, its replay on the neighbour, and the noise of both."""
  one: Recorded
  other: Recorded
  noise: replay_noise.Noise
  claim: claims.Claim
  what: str

  @functools.cached_property
  def shifts(self) -> np.ndarray:
    """[K, D] changes of what is noised, in units of adaptive scales."""
    return losses.change(self.one.values, self.other.values) / self.noise.units

  @functools.cached_property
  def histories(self) -> np.ndarray:
    """Runs with distinct changes: those of the largest ones, then others."""
    sites = self.one.trace.sites
    special = [self.noise.rows(i) for i, site in enumerate(sites)
               if site.kind == 'threshold' or losses.is_selection(site)]
    both = [side.values[:, rows] for rows in special
            for side in (self.one, self.other)]
    with np.errstate(divide='ignore', invalid='ignore', over='ignore'):
      keys = np.concatenate([self.shifts, *both], 1).astype(np.float32)
      sizes = np.nan_to_num(np.abs(self.shifts)).sum(1)
    _, first = np.unique(np.round(keys, 5), axis=0, return_index=True)
    largest = first[np.argsort(-sizes[first], kind='stable')]
    return np.unique(np.concatenate([largest[:_HISTORIES // 2],
                                     np.sort(first)[:_HISTORIES // 2]]))

  def cost(self, run: int, keep: list[int]) -> losses.Cost:
    """Returns the cost of some sites in one run."""
    return losses.of_sites(self.one.trace.sites, self.noise,
                           self.one.values[run], self.other.values[run],
                           self.noise.units[run], keep)

  @functools.cached_property
  def moving(self) -> list[int]:
    """Sites at which the neighbours differ in some run."""
    return [i for i in range(len(self.one.trace.sites))
            if self.shifts[:, self.noise.rows(i)].any()]

  @functools.cached_property
  def shown(self) -> list[int]:
    """Sites that the release reveals, and whose values do not hide others."""
    sites, released = self.one.trace.sites, np.concatenate(
        self.one.released, axis=1)
    direct = replay_noise.revealed(self.one.outputs, released)
    result: list[int] = []
    for number, site in enumerate(sites):
      rows = self.noise.rows(number)
      seen = (_shows_choice(self.one.outputs[:, rows], site, released)
              if losses.is_selection(site) else self._seen(direct, rows))
      if seen and not site.masks and site.sites <= set(result):
        result.append(number)
    return result

  def _seen(self, direct: np.ndarray, rows: slice) -> bool:
    """Returns whether all coordinates count that share a draw with changes."""
    moved = self.shifts[:, rows].any(0)
    places = np.arange(rows.start, rows.stop)
    return all(direct[places[members]].all()
               for members, _ in self.noise.blocks(places)
               if moved[members].any())


def _shows_choice(scores: np.ndarray, site: replay_trace.Site,
                  released: np.ndarray) -> bool:
  """Returns whether the release determines the place of the largest score."""
  chosen = np.stack([losses.rows_of(row, site).argmax(1) for row in scores])
  outcomes, inverse = np.unique(released, axis=0, return_inverse=True)
  if len(outcomes) > len(released) // 4:
    return False
  inverse = inverse.ravel()
  return all(len(np.unique(chosen[inverse == i], axis=0)) == 1
             for i in range(len(outcomes)))


def examine(pair: Comparison) -> list[Finding]:
  """Returns the findings of one pair; empty if all is judged and allowed."""
  return [*_costs(pair), *_leaks(pair)]


@functools.lru_cache(maxsize=4096)
def _epsilon(cost: losses.Cost, delta: float) -> float:
  """Returns `losses.epsilon`, remembered, since many runs cost the same."""
  return losses.epsilon(cost, delta)


def _rounded(cost: losses.Cost) -> losses.Cost:
  """Returns a cost without the last digits, so that equal ones are equal."""
  digits = lambda x: float(f'{x:.5g}')
  return dataclasses.replace(
      cost, shift=digits(cost.shift), pure=digits(cost.pure),
      laplace=tuple(sorted(map(digits, cost.laplace))),
      discrete=tuple(sorted((digits(r), s) for r, s in cost.discrete)))


def _spent(pair: Comparison, run: int, keep: list[int]) -> float:
  """Returns the epsilon of some sites in one run, without unknown parts."""
  return _epsilon(_rounded(pair.cost(run, keep)), pair.claim.delta)


def _costs(pair: Comparison) -> list[Finding]:
  """Compares the cost of all sites with the claim."""
  if not pair.moving:
    return []
  sites = pair.one.trace.sites
  if _poisson(pair.claim) and any(sites[i].masks for i in pair.moving):
    return _sampled_costs(pair)
  costs = {int(run): pair.cost(run, pair.moving) for run in pair.histories}
  unknown = next((c.unknown for c in costs.values() if c.unknown), '')
  spent = {run: _epsilon(_rounded(cost), pair.claim.delta)
           for run, cost in costs.items()}
  worst = max(spent, key=spent.__getitem__)
  findings = []
  if unknown:
    findings.append(_blame(pair, worst, pair.moving, SUSPECT,
                           f'not judged: {unknown}'))
  if spent[worst] <= _limit(pair, costs[worst].error):
    return findings
  keep = [i for i in pair.moving if i in pair.shown]
  parts = {run: pair.cost(run, keep) for run in costs} if keep else {}
  least = min((_epsilon(_rounded(cost), pair.claim.delta)
               for cost in parts.values()), default=0.0)
  exact = all(cost.exact for cost in parts.values()) and (
      pair.claim.delta == 0 or all(cost.pure in (0, math.inf)
                                   for cost in parts.values()))
  if exact and least > _limit(pair, costs[worst].error):
    return [_blame(pair, worst, keep, PROOF, _words(pair, worst, keep))]
  loss = _realised(pair, keep) if pair.claim.delta == 0 else 0.0
  if loss > _limit(pair, costs[worst].error):
    found = _blame(pair, worst, keep, PROOF, _words(pair, worst, keep))
    return [dataclasses.replace(found, epsilon=loss)]
  return [_blame(pair, worst, pair.moving, SUSPECT,
                 _words(pair, worst, pair.moving)
                 + ', if all noisy values were released')]


def _realised(pair: Comparison, keep: list[int]) -> float:
  """Returns the largest privacy loss at recorded noisy values, or 0."""
  # The sites that `keep` leaves out must not move, or the ratio is not theirs.
  losses_seen = [losses.realised(
      pair.one.trace.sites, pair.noise, pair.one.values[run],
      pair.other.values[run], pair.noise.units[run], pair.one.outputs[run],
      keep) for run in range(len(pair.shifts))]
  return max((loss for loss in losses_seen if loss is not None), default=0.0)


def _limit(pair: Comparison, error: float) -> float:
  """Returns the epsilon above which a cost exceeds the claim."""
  # Epsilon grows at most like the square of a shift over a scale.
  return pair.claim.epsilon * (1 + _TOLERANCE + 2 * error) + 1e-6


def _words(pair: Comparison, run: int, keep: list[int]) -> str:
  """Returns what is wrong with sites that cost too much together."""
  infinite = math.isinf(_spent(pair, run, keep)) and not any(
      math.isinf(_spent(pair, run, [i])) for i in keep)
  if infinite and pair.claim.delta > 0 or _reused(pair, keep) and infinite:
    return 'one random draw is used for two values (key reuse)'
  if len(keep) > 1:
    return f'{len(keep)} noisy values together exceed the claim'
  return 'the noised value changes by more than the claim allows'


def _reused(pair: Comparison, keep: list[int]) -> bool:
  """Returns whether two sites share a draw."""
  used = [pair.noise.mixing[pair.noise.rows(i)].any(0) for i in keep]
  return bool(np.any(np.sum(used, 0) > 1)) if used else False


def _blame(pair: Comparison, run: int, keep: list[int], how: str,
           what: str) -> Finding:
  """Returns the finding that names the dearest of the sites."""
  own = {i: _spent(pair, run, [i]) for i in keep}
  site = max(own, key=own.__getitem__)
  rows = pair.noise.rows(site)
  shifts = losses.change(pair.one.values[run], pair.other.values[run])[rows]
  columns = [column for column, used in zip(
      pair.noise.columns, pair.noise.mixing[rows].any(0), strict=True) if used]
  normal = all(c.family in ('normal', 'discrete_gaussian') for c in columns)
  sensitivity = float(np.linalg.norm(shifts, 2 if normal else 1))
  scales = [c.scale for c in columns] or [math.nan]
  factors = np.linalg.norm(pair.noise.mixing[rows], axis=1)
  scale = float(np.median(factors) * np.median(scales)
                * np.median(pair.noise.units[run, rows]))
  details = pair.one.trace.sites[site]
  return Finding(
      what=what, line=details.line, draw=', '.join(sorted(details.draws)),
      sensitivity=sensitivity, scale=scale, pair=pair.what, how=how,
      allowed=_allowed(pair, run, site, keep) * sensitivity,
      epsilon=_spent(pair, run, keep))


def _allowed(pair: Comparison, run: int, site: int, keep: list[int]) -> float:
  """Returns the factor of a site's change at which the claim would hold."""
  rest = pair.cost(run, [i for i in keep if i != site])
  alone = pair.cost(run, [site])
  if alone.unknown or not math.isfinite(_epsilon(_rounded(alone),
                                                 pair.claim.delta)):
    return math.nan

  def allows(factor: float) -> bool:
    part = dataclasses.replace(
        alone, shift=alone.shift * factor, pure=alone.pure * factor,
        laplace=tuple(x * factor for x in alone.laplace), discrete=(),
        )
    part = dataclasses.replace(part, pure=part.pure + factor * math.fsum(
        rate * step for rate, step in alone.discrete))
    return losses.epsilon(rest + part, pair.claim.delta) <= pair.claim.epsilon

  low, high = 0.0, 1.0
  if not allows(0.0):
    return 0.0
  if allows(1.0):
    return math.nan
  for _ in range(8 if alone.laplace and pair.claim.delta else 20):
    middle = (low + high) / 2
    low, high = (middle, high) if allows(middle) else (low, middle)
  return low


def _leaks(pair: Comparison) -> list[Finding]:
  """Returns findings of data that reach the release without noise."""
  findings = []
  for mine, theirs, value in zip(pair.one.released, pair.other.released,
                                 pair.one.depends, strict=True):
    if mine.shape != theirs.shape:
      return [Finding(what='the shape of the release depends on the data',
                      line='', pair=pair.what)]
    slack = 1e-4 * (1 + np.abs(np.nan_to_num(mine)))
    differ = np.abs(losses.change(mine, theirs)) > slack
    runs = int(differ.any(1).sum())
    if not runs:
      continue
    proven = (not value.draws and value.sites <= set(pair.shown) and
              stats.binom.sf(runs - 1, len(mine), pair.claim.delta)
              < SIGNIFICANCE)
    note = ', '.join(sorted(value.notes))
    line = note.rpartition(' at ')[2] if note else value.line
    findings.append(Finding(
        what='data reach the release without noise'
        + (f' through {note}' if note else '')
        + (f', given {", ".join(sorted(value.draws))}' if value.draws else ''),
        line=line, pair=pair.what, how=PROOF if proven else SUSPECT,
        sensitivity=float(np.nanmax(np.abs(losses.change(mine, theirs)))),
        allowed=0.0))
  return findings


def _poisson(claim: claims.Claim) -> tuple[float, float] | None:
  """Returns (rate, noise multiplier) of a Poisson sampled Gaussian claim."""
  if claim.event is None or claim.adjacency is not (
      Adjacency.ADD_OR_REMOVE_ONE):
    return None
  for event in restating.walk(claim.event):
    rate = getattr(event, 'sampling_probability', None)
    if rate is not None:
      inner = [getattr(e, 'noise_multiplier', None)
               for e in restating.walk(event)]
      known = [z for z in inner if z is not None]
      return (rate, known[0]) if known else None
  return None


def _sampled_costs(pair: Comparison) -> list[Finding]:
  """Compares sites on samples with the Gaussian inside of a Poisson claim.

  Given the sample, a site may cost at most the unsampled Gaussian, and it may
  change in at most the claimed part of the runs.
  """
  claimed = _poisson(pair.claim)
  assert claimed is not None
  rate, multiplier = claimed
  num_runs = len(pair.shifts)
  findings = []
  for site in pair.moving:
    moved = pair.shifts[:, pair.noise.rows(site)].any(1)
    runs = np.flatnonzero(moved)[:_HISTORIES]
    costs = [pair.cost(int(run), [site]) for run in runs]
    if any(cost.unknown for cost in costs):
      findings.append(_blame(pair, int(runs[0]), [site], SUSPECT,
                             f'not judged: {costs[0].unknown}'))
      continue
    shifts = [math.inf if cost.largest_loss == math.inf and not cost.shift
              else cost.shift for cost in costs]
    dear = max(shifts) * multiplier > 1 + _TOLERANCE + costs[0].error
    often = stats.binom.sf(int(moved.sum()) - 1, num_runs, rate) < SIGNIFICANCE
    if not (dear or often):
      continue
    what = ('the sampled value changes by more than the claimed noise allows'
            if dear else 'records are sampled more often than claimed: '
            f'{moved.mean():.3g} instead of {rate:.3g}')
    # A lower bound on the true rate, and the least cost that was seen.
    low = float(stats.beta.ppf(SIGNIFICANCE, moved.sum(),
                               num_runs - moved.sum() + 1))
    worst = int(runs[int(np.argmax(shifts))])
    finding = _blame(pair, worst, [site], SUSPECT, what)
    spent = _sampled_epsilon(min(low, 1.0), min(shifts), len(pair.moving),
                             pair.claim.delta)
    finding = dataclasses.replace(
        finding, epsilon=spent,
        allowed=finding.sensitivity / (max(shifts) * multiplier))
    direct = replay_noise.revealed(pair.one.outputs, np.concatenate(
        pair.one.released, axis=1))
    if spent > _limit(pair, costs[0].error) and direct[
        pair.noise.rows(site)].all():
      finding = dataclasses.replace(finding, how=PROOF)
    findings.append(finding)
  return findings


def _sampled_epsilon(rate: float, shift: float, steps: int,
                     delta: float) -> float:
  """Returns the epsilon of Poisson sampled Gaussian noise of mu `shift`."""
  if not math.isfinite(shift) or delta == 0:
    return math.inf
  return accounting.epsilon(
      accounting.poisson_gaussian_event(
          sampling_prob=rate, noise_multiplier=1 / shift, num_steps=steps),
      delta=delta, adjacency=Adjacency.ADD_OR_REMOVE_ONE)
