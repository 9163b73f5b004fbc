"""Findings: the site that costs most, and what the claim would allow it."""

import dataclasses
import math

import numpy as np

from dpjax.audit.recording import comparison
from dpjax.audit.recording import costs
from dpjax.audit.recording.comparison import Comparison
from dpjax.audit.recording.comparison import Finding


def blame(pair: Comparison, run: int, keep: list[int], how: str,
           what: str) -> Finding:
  """Returns the finding that names the dearest of the sites."""
  own = {i: comparison.spent(pair, run, [i]) for i in keep}
  site = max(own, key=own.__getitem__)
  rows = pair.noise.rows(site)
  shifts = costs.change(pair.one.values[run], pair.other.values[run])[rows]
  used = np.asarray(pair.noise.mixing[rows].any(0))
  columns = [column for column, mine in zip(pair.noise.columns, used,
                                            strict=True) if mine]
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
      epsilon=comparison.spent(pair, run, keep))


def _allowed(pair: Comparison, run: int, site: int, keep: list[int]) -> float:
  """Returns the factor of a site's change at which the claim would hold."""
  rest = pair.cost(run, [i for i in keep if i != site])
  alone = pair.cost(run, [site])
  if alone.unknown or not math.isfinite(pair.epsilon(alone)):
    return math.nan

  steps = math.fsum(rate * step for rate, step in alone.discrete)

  def allows(factor: float) -> bool:
    part = dataclasses.replace(
        alone, shift=alone.shift * factor, discrete=(),
        pure=(alone.pure + steps) * factor,
        reverse=(alone.reverse + steps) * factor,
        laplace=tuple(x * factor for x in alone.laplace))
    return costs.epsilon(rest + part, pair.claim.delta) <= pair.claim.epsilon

  low, high = 0.0, 1.0
  if not allows(0.0):
    return 0.0
  if allows(1.0):
    return math.nan
  for _ in range(8 if alone.laplace and pair.claim.delta else 20):
    middle = (low + high) / 2
    low, high = (middle, high) if allows(middle) else (low, middle)
  return low


def words(pair: Comparison, run: int, keep: list[int]) -> str:
  """Returns what is wrong with sites that cost too much together."""
  infinite = math.isinf(comparison.spent(pair, run, keep)) and not any(
      math.isinf(comparison.spent(pair, run, [i])) for i in keep)
  if infinite and pair.claim.delta > 0 or _reused(pair, keep) and infinite:
    return 'one random draw is used for two values (key reuse)'
  if len(keep) > 1:
    return f'{len(keep)} noisy values together exceed the claim'
  return 'the noised value changes by more than the claim allows'


def _reused(pair: Comparison, keep: list[int]) -> bool:
  """Returns whether two sites share a draw."""
  used = [pair.noise.mixing[pair.noise.rows(i)].any(0) for i in keep]
  return bool(np.any(np.sum(used, 0) > 1)) if used else False
