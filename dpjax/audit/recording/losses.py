"""What the sites of a release cost on one pair of neighbours.

The cost of a site is that of its noise between the two values that it hides,
given all earlier noisy values. Costs of sites add up, because the noisy values
of all sites together are released at most (adaptive composition).
"""

import dataclasses
import math

import numpy as np
from scipy import optimize

from dpjax.audit.recording import choices
from dpjax.audit.recording import costs
from dpjax.audit.recording.costs import Cost
from dpjax.audit.recording.noise import Column
from dpjax.audit.recording.noise import Noise
from dpjax.audit.recording.values import Site


def of_sites(sites: list[Site], noise: Noise,
             one: np.ndarray, other: np.ndarray, units: np.ndarray,
             keep: list[int]) -> Cost:
  """Returns the joint cost of the sites `keep` in one run.

  Args:
    sites: all sites.
    noise: their joint noise.
    one: [D] values that the sites hide, of one data set.
    other: [D] those of its neighbour.
    units: [D] factors of the noise in this run.
    keep: numbers of the sites that count.
  """
  total = Cost()
  rows: list[int] = []
  users = [{site for site in range(len(sites)) if noise.mixing[
      noise.rows(site), column].any()} for column in range(
          len(noise.columns))]
  for number in keep:
    site, place = sites[number], noise.rows(number)
    alone = all(len(use) == 1 for use in users if number in use)
    if choices.is_selection(site) or site.kind == 'threshold':
      judge = (choices.selected if choices.is_selection(site)
               else choices.compared)
      part = judge(
          site, noise, place, one, other, units)
      if not alone and costs.change(one[place], other[place]).any():
        part = dataclasses.replace(
            part, unknown='a draw of a selection is used in two places')
      total += part
    else:
      rows += range(place.start, place.stop)
  return total + _sums(noise, np.array(rows, int), one, other, units)


def realised(sites: list[Site], noise: Noise,
             one: np.ndarray, other: np.ndarray, units: np.ndarray,
             outputs: np.ndarray, keep: list[int]) -> float | None:
  """Returns the privacy loss at the recorded noisy values of some sites.

  It is the logarithm of the ratio of the joint densities at them, exact for
  adaptive sites too; None unless all noise is independent Laplace noise. See
  `of_sites` for the arguments; `outputs` are the noisy values [D].
  """
  loss = 0.0
  for number in keep:
    rows = noise.rows(number)
    mixing = noise.mixing[rows]
    used = np.flatnonzero(mixing.any(0))
    columns = [noise.columns[column] for column in used]
    site = sites[number]
    if (site.kind != 'sum' or choices.is_selection(site) or any(
        column.family not in ('laplace', 'discrete_laplace')
        for column in columns) or np.any(np.count_nonzero(
            noise.mixing[:, used], axis=0) > 1) or np.any(
                np.count_nonzero(mixing, axis=1) != 1)):
      return None
    scales = np.abs(mixing).max(1) * units[rows]
    scales = scales * [noise.columns[np.flatnonzero(row)[0]].scale
                       for row in mixing]
    mine, theirs = (np.abs(outputs[rows] - side[rows]) / scales
                    for side in (one, other))
    moved = costs.change(one[rows], other[rows]) != 0
    loss += float(np.sum(np.where(moved, theirs - mine, 0.0)))
  return loss


def _sums(noise: Noise, rows: np.ndarray, one: np.ndarray,
          other: np.ndarray, units: np.ndarray) -> Cost:
  """Returns the cost of sums, component by component of the shared draws."""
  shifts = costs.change(one[rows], other[rows]) / units[rows]
  mixing = noise.mixing[rows]
  total = Cost()
  for members, columns in noise.blocks(rows):
    if not shifts[members].any():
      continue
    if not np.isfinite(shifts[members]).all() or not len(columns):
      total += costs.both_ways(math.inf)
      continue
    total += _component(mixing[np.ix_(members, columns)], shifts[members],
                        [noise.columns[column] for column in columns])
  return total


def _component(mixing: np.ndarray, shifts: np.ndarray,
               columns: list[Column]) -> Cost:
  """Returns the cost of sums whose noises are functions of the same draws."""
  families = {column.family for column in columns}
  error = max(column.error for column in columns)
  if len(families) > 1:
    return Cost(unknown=f'noise mixed of {", ".join(sorted(families))}')
  family, = families
  if family == 'k_norm':
    return _k_norm(mixing, shifts, columns)
  moved, *_ = np.linalg.lstsq(mixing, shifts, rcond=1e-6)
  if np.abs(mixing @ moved - shifts).max() > 1e-4 * np.abs(shifts).max():
    # Some sum of noisy values has no noise, and it differs.
    return costs.both_ways(math.inf, error=error)
  scales = np.array([column.scale for column in columns])
  if family in ('normal', 'discrete_gaussian'):
    return Cost(shift=float(np.linalg.norm(moved / scales)), error=error)
  exact = np.linalg.matrix_rank(mixing, 1e-6) == len(columns)
  if not exact:
    moved = _least(mixing, shifts, scales)
  moved = np.where(np.abs(moved) < 1e-6 * np.abs(moved).max(), 0.0, moved)
  return dataclasses.replace(_of_draws(family, np.abs(moved), scales),
                             exact=bool(exact), error=error)


def _of_draws(family: str, moved: np.ndarray, scales: np.ndarray) -> Cost:
  """Returns the cost of independent draws that are moved by some amounts."""
  moving = moved > 0
  ratios = (moved / scales)[moving]
  if family == 'laplace':
    return Cost(laplace=tuple(ratios.tolist()))
  if family == 'logistic':
    return costs.both_ways(float(ratios.sum()))
  if family == 'cauchy':
    return costs.both_ways(float(2 * np.arcsinh(ratios / 2).sum()))
  if family == 'discrete_laplace':
    steps = np.round(moved[moving])
    # A shift by a fraction shows in the fraction of the answer. On fine grids
    # only rounding of the measured coefficients is left.
    if (np.abs(steps - moved[moving]) > 1e-3 + 1e-5 * steps).any():
      return costs.both_ways(math.inf)
    if steps.max(initial=0) > 1000:
      return Cost(laplace=tuple(ratios.tolist()))
    return Cost(discrete=tuple((float(1 / scale), int(step)) for scale, step
                               in zip(scales[moving], steps, strict=True)))
  if family in ('exponential', 'uniform', 'words'):
    # The ends of its range move with the value.
    return costs.both_ways(math.inf)
  return Cost(unknown=f'noise of family {family or "unknown"}')


def _least(mixing: np.ndarray, shifts: np.ndarray,
           scales: np.ndarray) -> np.ndarray:
  """Returns the shift of the draws of least cost that explains `shifts`."""
  size = len(scales)
  solved = optimize.linprog(
      np.concatenate([1 / scales, 1 / scales]),
      A_eq=np.concatenate([mixing, -mixing], 1), b_eq=shifts)
  return (np.full(size, np.inf) if solved.x is None
          else solved.x[:size] - solved.x[size:])


def _k_norm(mixing: np.ndarray, shifts: np.ndarray,
            columns: list[Column]) -> Cost:
  """Returns the cost of K-norm noise of one scale."""
  scale = np.abs(np.diag(mixing)).max() if mixing.shape[0] == mixing.shape[
      1] else 0.0
  if not scale or not np.allclose(mixing, scale * np.eye(len(mixing)),
                                  atol=1e-3 * scale):
    return Cost(unknown='K-norm noise that is mixed')
  size = float(np.linalg.norm(shifts, columns[0].order))
  return costs.both_ways(size / scale)
