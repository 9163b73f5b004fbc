"""Sites on samples, compared with a claim of Poisson sampled Gaussian noise."""

import dataclasses
import math

import numpy as np
from scipy import stats

from dpjax.audit import claims
from dpjax.audit.recording import blame
from dpjax.audit.recording import comparison
from dpjax.audit.recording import shown
from dpjax.audit.recording.comparison import Comparison
from dpjax.audit.recording.comparison import Finding
from dpjax.privacy import accounting
from dpjax.privacy import restating
from dpjax.privacy.adjacency import Adjacency


def claimed(claim: claims.Claim) -> tuple[float, float] | None:
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


def examine(pair: Comparison) -> list[Finding]:
  """Compares sites on samples with the Gaussian inside of a Poisson claim.

  Given the sample, a site may cost at most the unsampled Gaussian, and it may
  change in at most the claimed part of the runs.
  """
  inside = claimed(pair.claim)
  assert inside is not None
  rate, multiplier = inside
  num_runs = len(pair.shifts)
  findings = []
  for site in pair.moving:
    moved = pair.shifts[:, pair.noise.rows(site)].any(1)
    runs = np.flatnonzero(moved)[:comparison.HISTORIES]
    costs = [pair.cost(int(run), [site]) for run in runs]
    if any(cost.unknown for cost in costs):
      findings.append(blame.blame(
          pair, int(runs[0]), [site], comparison.SUSPECT,
          f'not judged: {costs[0].unknown}'))
      continue
    shifts = [math.inf if cost.largest_loss == math.inf and not cost.shift
              else cost.shift for cost in costs]
    dear = max(shifts) * multiplier > 1 + comparison.TOLERANCE + costs[0].error
    often = (stats.binom.sf(int(moved.sum()) - 1, num_runs, rate)
             < comparison.SIGNIFICANCE)
    if not (dear or often):
      continue
    what = ('the sampled value changes by more than the claimed noise allows'
            if dear else 'records are sampled more often than claimed: '
            f'{moved.mean():.3g} instead of {rate:.3g}')
    # A lower bound on the true rate, and the least cost that was seen.
    low = float(stats.beta.ppf(comparison.SIGNIFICANCE, moved.sum(),
                               num_runs - moved.sum() + 1))
    worst = int(runs[int(np.argmax(shifts))])
    finding = blame.blame(pair, worst, [site], comparison.SUSPECT, what)
    spent = _sampled_epsilon(min(low, 1.0), min(shifts), len(pair.moving),
                             pair.claim.delta)
    finding = dataclasses.replace(
        finding, epsilon=spent,
        allowed=finding.sensitivity / (max(shifts) * multiplier))
    direct = shown.revealed(pair.one.outputs, pair.public)
    if spent > comparison.limit(pair, costs[0].error) and direct[
        pair.noise.rows(site)].all():
      finding = dataclasses.replace(finding, how=comparison.PROOF)
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
