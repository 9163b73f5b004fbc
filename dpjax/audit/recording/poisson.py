"""Sites on samples, compared with a claim of Poisson sampled Gaussian noise."""

import dataclasses
import functools
import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from dpjax.audit import claims
from dpjax.audit.recording import blame
from dpjax.audit.recording import comparison
from dpjax.audit.recording.comparison import Comparison
from dpjax.audit.recording.comparison import Finding
from dpjax.privacy import accounting
from dpjax.privacy import optimistic
from dpjax.privacy import restating
from dpjax.privacy.adjacency import Adjacency

# Larger shifts are accounted as this one, a lower bound that takes less time.
_LARGEST_SHIFT = 8.0


class _Claimed(NamedTuple):
  """A claim of repeated, Poisson sampled Gaussian noise."""
  rate: float
  multiplier: float
  steps: int


class _Sampled(NamedTuple):
  """One site over many runs: how often it changes, and by how much.

  Attributes:
    site: number of the site.
    worst: run with the largest change.
    rate: lower bound on the probability of a change.
    least: smallest mu of a change.
    most: largest mu of a change.
    what: how it exceeds the claim, in words; empty if it does not.
    unknown: why it is not judged; empty if it is.
    error: relative error of the measured scale.
    steady: whether all changes are one vector. One that varies with the sample
      shows less than its length says.
  """
  site: int
  worst: int
  rate: float
  least: float
  most: float
  what: str
  unknown: str
  error: float
  steady: bool


def claimed(claim: claims.Claim) -> _Claimed | None:
  """Returns the Poisson sampled Gaussian noise that a claim is of, or None."""
  if claim.event is None or claim.adjacency is not (
      Adjacency.ADD_OR_REMOVE_ONE):
    return None
  for event in restating.walk(claim.event):
    rate = getattr(event, 'sampling_probability', None)
    if rate is not None:
      inner = [getattr(e, 'noise_multiplier', None)
               for e in restating.walk(event)]
      known = [z for z in inner if z is not None]
      return (_Claimed(rate, known[0], _steps(claim.event)) if known
              else None)
  return None


def _steps(event: accounting.DpEvent) -> int:
  """Returns how many samples an event is of."""
  if hasattr(event, 'sampling_probability'):
    return 1
  if hasattr(event, 'events'):
    return sum(map(_steps, event.events))
  inner = getattr(event, 'event', None)
  return 0 if inner is None else getattr(event, 'count', 1) * _steps(inner)


def examine(pair: Comparison) -> list[Finding]:
  """Compares sites on samples with the Gaussian inside of a Poisson claim.

  Given the sample, a site may cost at most the unsampled Gaussian, and it may
  change in at most the claimed part of the runs. There may be at most as many
  sites as samples are claimed.
  """
  inside = claimed(pair.claim)
  assert inside is not None
  seen = [_over_runs(pair, site, inside) for site in pair.moving]
  findings = [blame.blame(pair, each.worst, [each.site], comparison.SUSPECT,
                          f'not judged: {each.unknown}')
              for each in seen if each.unknown]
  if len(seen) > inside.steps:
    seen = [each._replace(what=each.what or f'{len(seen)} sampled values '
                          f'instead of {inside.steps}') for each in seen]
  direct = pair.direct
  known = [each for each in seen if not each.unknown]
  spent = _epsilon(known, pair.claim.delta) if any(
      each.what for each in known) else 0.0
  proven = all(each.steady and direct[pair.noise.rows(each.site)].all()
               for each in known) and (
      spent > comparison.limit(pair, max((e.error for e in known), default=0)))
  for each in known:
    if each.what:
      found = blame.blame(pair, each.worst, [each.site], comparison.SUSPECT,
                          each.what)
      findings.append(dataclasses.replace(
          found, epsilon=spent,
          how=comparison.PROOF if proven else comparison.SUSPECT,
          allowed=found.sensitivity / (each.most * inside.multiplier)))
  return findings


def _over_runs(pair: Comparison, site: int, inside: _Claimed) -> _Sampled:
  """Returns how a site on samples changes, over all runs."""
  moved = np.asarray(pair.shifts[:, pair.noise.rows(site)].any(1))
  number, num_runs = int(moved.sum()), len(moved)
  runs = np.flatnonzero(moved)[:comparison.HISTORIES]
  costs = [pair.cost(int(run), [site]) for run in runs]
  unknown = next((cost.unknown for cost in costs if cost.unknown), '')
  if any(cost.laplace or cost.discrete or 0 < cost.either < math.inf
         for cost in costs):
    unknown = 'noise on a sample that is not Gaussian'
  shifts = [math.inf if cost.either == math.inf else cost.shift
            for cost in costs]
  what, error = '', costs[0].error
  if max(shifts) * inside.multiplier > 1 + comparison.TOLERANCE + error:
    what = 'the sampled value changes by more than the claimed noise allows'
  elif stats.binom.sf(number - 1, num_runs,
                      inside.rate) < comparison.SIGNIFICANCE:
    what = ('records are sampled more often than claimed: '
            f'{moved.mean():.3g} instead of {inside.rate:.3g}')
  changes = pair.shifts[:, pair.noise.rows(site)][moved]
  steady = bool(np.allclose(changes, changes[0], rtol=1e-3, atol=1e-6))
  rate = float(stats.beta.ppf(comparison.SIGNIFICANCE, number,
                              num_runs - number + 1))
  return _Sampled(site, int(runs[int(np.argmax(shifts))]), rate, min(shifts),
                  max(shifts), what, unknown, error, steady)


def _epsilon(seen: list[_Sampled], delta: float) -> float:
  """Returns a lower bound on the epsilon of sites as they were seen."""
  if delta == 0 or any(math.isinf(each.least) for each in seen):
    return math.inf
  return _composed(tuple(sorted((min(each.rate, 1.0), each.least)
                                for each in seen if each.least > 0)), delta)


@functools.lru_cache(maxsize=1024)
def _composed(sites: tuple[tuple[float, float], ...], delta: float) -> float:
  """Returns a lower bound on the epsilon of sites (rate, mu)."""
  return optimistic.poisson_gaussian_epsilon(
      [(rate, min(shift, _LARGEST_SHIFT)) for rate, shift in sites],
      delta=delta)
