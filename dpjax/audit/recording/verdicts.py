"""Compares recorded and replayed runs of one pair with the claim."""

import dataclasses
import math

import numpy as np
from scipy import stats

from dpjax.audit.recording import blame
from dpjax.audit.recording import comparison
from dpjax.audit.recording import costs
from dpjax.audit.recording import losses
from dpjax.audit.recording import poisson
from dpjax.audit.recording.comparison import Comparison
from dpjax.audit.recording.comparison import Finding


def examine(pair: Comparison) -> list[Finding]:
  """Returns the findings of one pair; empty if all is judged and allowed."""
  return [*_costs(pair), *_leaks(pair)]


def _costs(pair: Comparison) -> list[Finding]:
  """Compares the cost of all sites with the claim."""
  if not pair.moving:
    return []
  sites = pair.one.trace.sites
  if poisson.claimed(pair.claim) and any(sites[i].masks for i in pair.moving):
    return poisson.examine(pair)
  costs = {int(run): pair.cost(run, pair.moving) for run in pair.histories}
  unknown = next((c.unknown for c in costs.values() if c.unknown), '')
  spent = {run: pair.epsilon(cost)
           for run, cost in costs.items()}
  worst = max(spent, key=spent.__getitem__)
  findings = []
  if unknown:
    findings.append(blame.blame(pair, worst, pair.moving, comparison.SUSPECT,
                           f'not judged: {unknown}'))
  if spent[worst] <= comparison.limit(pair, costs[worst].error):
    return findings
  keep = [i for i in pair.moving if i in pair.shown]
  parts = {run: pair.cost(run, keep) for run in costs} if keep else {}
  least = min((pair.epsilon(cost)
               for cost in parts.values()), default=0.0)
  exact = all(cost.exact for cost in parts.values()) and (
      pair.claim.delta == 0 or all(cost.either in (0, math.inf)
                                   for cost in parts.values()))
  if exact and least > comparison.limit(pair, costs[worst].error):
    return [blame.blame(pair, worst, keep, comparison.PROOF,
                        blame.words(pair, worst, keep))]
  loss = _realised(pair, keep) if pair.claim.delta == 0 else 0.0
  if loss > comparison.limit(pair, costs[worst].error):
    found = blame.blame(pair, worst, keep, comparison.PROOF,
                        blame.words(pair, worst, keep))
    return [dataclasses.replace(found, epsilon=loss)]
  return [blame.blame(pair, worst, pair.moving, comparison.SUSPECT,
                 blame.words(pair, worst, pair.moving)
                 + ', if all noisy values were released')]


def _realised(pair: Comparison, keep: list[int]) -> float:
  """Returns the largest privacy loss at recorded noisy values, or 0."""
  # The sites that `keep` leaves out must not move, or the ratio is not theirs.
  losses_seen = [losses.realised(
      pair.one.trace.sites, pair.noise, pair.one.values[run],
      pair.other.values[run], pair.noise.units[run], pair.one.outputs[run],
      keep) for run in range(len(pair.shifts))]
  return max((loss for loss in losses_seen if loss is not None), default=0.0)


def _leaks(pair: Comparison) -> list[Finding]:
  """Returns findings of data that reach the release without noise."""
  findings = []
  for mine, theirs, value in zip(pair.one.released, pair.other.released,
                                 pair.one.depends, strict=True):
    if mine.shape != theirs.shape:
      return [Finding(what='the shape of the release depends on the data',
                      line='', pair=pair.what)]
    runs = int(comparison.differ(mine, theirs).any(1).sum())
    if not runs:
      continue
    proven = (not value.draws and value.sites <= set(pair.shown) and
              stats.binom.sf(runs - 1, len(mine), pair.claim.delta)
              < comparison.SIGNIFICANCE)
    note = ', '.join(sorted(value.notes))
    line = note.rpartition(' at ')[2] if note else value.line
    findings.append(Finding(
        what='data reach the release without noise'
        + (f' through {note}' if note else '')
        + (f', given {", ".join(sorted(value.draws))}' if value.draws else ''),
        line=line, pair=pair.what, how=(
            comparison.PROOF if proven else comparison.SUSPECT),
        sensitivity=float(np.nanmax(np.abs(costs.change(mine, theirs)))),
        allowed=0.0))
  return findings
