"""The noise of all sites of a run, measured on runs with many keys.

The noise of a site is a linear function of what samplers drew. Least squares
over the runs finds its coefficients, up to rounding, so a scale is not an
estimate. Two sites that use one draw share its column, so reused keys show. If
no linear function fits, the noise itself is compared with known families.
"""

import dataclasses
from typing import Any

import numpy as np
from scipy import stats

from dpjax.audit.recording import samplers
from dpjax.audit.recording.values import Leaf
from dpjax.audit.recording.values import Site
from dpjax.audit.recording.values import Trace

# Relative error up to which a linear function counts as exact.
_EXACT = 1e-4


@dataclasses.dataclass(frozen=True)
class Column:
  """One number that is drawn in every run.

  Attributes:
    family: name of its standard distribution; '' if it is unknown.
    scale: scale of a discrete distribution; 1 otherwise.
    group: equal for the coordinates of one vector of K-norm noise.
    order: p of K-norm noise.
    error: relative error of the scale.
    location: lower end, of a uniform draw.
  """
  family: str
  scale: float = 1.0
  group: int = -1
  order: float = 0.0
  error: float = 0.0
  location: float = 0.0


@dataclasses.dataclass(frozen=True)
class Noise:
  """The joint noise of the sites of a run.

  Attributes:
    columns: distinct draws.
    mixing: [D, len(columns)]: the noise of all coordinates of all sites, in
      order, is `units` times this matrix times the draws.
    units: [K, D] factors of each run; 1 unless a scale was released before.
    starts: first coordinate of each site, and D.
  """
  columns: tuple[Column, ...]
  mixing: np.ndarray
  units: np.ndarray
  starts: tuple[int, ...]

  def rows(self, site: int) -> slice:
    """Returns the coordinates of a site."""
    return slice(self.starts[site], self.starts[site + 1])

  def blocks(self, rows: np.ndarray
             ) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns the parts of `rows`, with their columns, that share no draw."""
    used = self.mixing[rows] != 0
    groups = np.array([column.group for column in self.columns], int)
    blocks, left = [], set(range(len(rows)))
    while left:
      mine = np.zeros(len(rows), bool)
      mine[left.pop()] = True
      while True:
        columns = used[mine].any(0)
        # The coordinates of K-norm noise are one draw.
        columns |= (groups >= 0) & np.isin(groups, groups[columns])
        grown = mine | used[:, columns].any(1)
        if (grown == mine).all():
          break
        mine = grown
      left -= set(np.flatnonzero(mine).tolist())
      blocks.append((np.flatnonzero(mine), np.flatnonzero(columns)))
    return blocks


def flat(arrays: list[Any], num_runs: int) -> np.ndarray:
  """Returns arrays [K, ...] as one matrix [K, D] of float64."""
  if not arrays:
    return np.zeros([num_runs, 0])
  return np.concatenate([np.asarray(array).astype(np.float64).reshape(
      num_runs, -1) for array in arrays], axis=1)


def measure(trace: Trace, arrays: dict[str, Any],
            num_runs: int) -> Noise:
  """Returns the noise of all sites from the arrays of recorded runs."""
  pool = _Pool(trace, arrays, num_runs)
  mixings, units, starts = [], [], [0]
  for site, noise in zip(trace.sites, arrays['noises'], strict=True):
    drawn = flat([noise], num_runs)
    mixing, unit = pool.explain(site, drawn)
    mixings.append(mixing)
    units.append(unit)
    starts.append(starts[-1] + drawn.shape[1])
  width = len(pool.columns)
  mixing = np.concatenate([np.pad(m, ((0, 0), (0, width - m.shape[1])))
                           for m in mixings] or [np.zeros([0, width])])
  used = np.flatnonzero(mixing.any(0))
  return Noise(tuple(pool.columns[i] for i in used), mixing[:, used],
               np.concatenate(units or [np.zeros([num_runs, 0])], 1),
               tuple(starts))


class _Pool:
  """The distinct draws of all samplers, and functions that explain noise."""

  def __init__(self, trace: Trace, arrays: dict[str, Any],
               num_runs: int):
    self.columns: list[Column] = []
    self._draws: list[np.ndarray] = []
    self._labels: list[list[int]] = []
    self._leaves = trace.leaves
    self._seen: dict[bytes, int] = {}
    for number, (leaf, drawn, scale) in enumerate(zip(
        trace.leaves, arrays['draws'], arrays['scales'], strict=True)):
      samples = flat([drawn], num_runs)
      kinds = _columns(leaf, samples, scale, number)
      self._labels.append([self._add(kind, column) for kind, column in zip(
          kinds, samples.T, strict=True)])

  def _add(self, kind: Column, drawn: np.ndarray) -> int:
    """Returns the place of a draw; draws with equal bits have one place."""
    name = drawn.tobytes()
    if name not in self._seen:
      self._seen[name] = len(self.columns)
      self.columns.append(kind)
      self._draws.append(drawn)
    return self._seen[name]

  def explain(self, site: Site,
              drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mixing [d, columns] and the units [K, d] of a site's noise.
    """
    ones = np.ones_like(drawn)
    places = sorted({place for leaf, labels in zip(
        self._leaves, self._labels, strict=True) if leaf.name in site.draws
                     for place in labels})
    if site.kind == 'sum' and places:
      matrix = np.stack([self._draws[place] for place in places], 1)
      if len(places) <= len(drawn) // 2:
        mixing = _linear(matrix, drawn)
        if mixing is not None:
          return self._placed(mixing, places), ones
      for labels in self._labels if site.adaptive else ():
        unit = self._scaled(labels, drawn)
        if unit is not None:
          return self._placed(np.eye(drawn.shape[1]), labels), unit
    return self._own(site, drawn)

  def _scaled(self, labels: list[int], drawn: np.ndarray) -> np.ndarray | None:
    """Returns the factors of one sampler's numbers, one for each run."""
    if len(labels) != drawn.shape[1] or len(set(labels)) < len(labels):
      return None
    base = np.stack([self._draws[place] for place in labels], 1)
    size = np.abs(base).max(1)
    if not (size > 0).all() or not np.isfinite(drawn).all():
      return None
    largest = np.abs(base).argmax(1)
    runs = np.arange(len(drawn))
    unit = drawn[runs, largest] / base[runs, largest]
    rest = np.abs(drawn - unit[:, None] * base).max(1)
    if (rest > _EXACT * np.abs(unit) * size).any() or not unit.all():
      return None
    # One number fits any factor, so it must be independent of the factor.
    if drawn.shape[1] == 1 and not _unrelated(base[:, 0], np.abs(unit)):
      return None
    return np.broadcast_to(np.abs(unit)[:, None], drawn.shape)

  def _placed(self, mixing: np.ndarray, places: list[int]) -> np.ndarray:
    """Returns a mixing matrix over all columns."""
    full = np.zeros([len(mixing), len(self.columns)])
    for column, place in zip(mixing.T, places, strict=True):
      full[:, place] += column
    return full

  def _own(self, site: Site,
           drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns noise as its own draws, whose family is recognised."""
    spread = np.array([np.std(column) if np.isfinite(column).all() else 1.0
                       for column in drawn.T])
    spread = np.where(spread > 0, spread, 1.0)
    # A comparison looks at the draw itself, so it is not scaled.
    whole = site.kind == 'threshold' or np.array_equal(drawn, np.round(drawn))
    scaled = drawn if whole else drawn / spread
    family = (samplers.identify(scaled) if _independent(drawn)
              else samplers.UNKNOWN)
    mixing = np.zeros([drawn.shape[1], len(self.columns) + drawn.shape[1]])
    for place, column in enumerate(scaled.T):
      # A site that repeats another's draw shares its column.
      scale, kind = _standard(family)
      new = self._add(kind, column)
      mixing[place, new] = (1.0 if whole else spread[place]) * scale
    return mixing[:, :len(self.columns)], np.ones_like(drawn)


def _standard(family: samplers.Family) -> tuple[float, Column]:
  """Returns the factor of a fitted family, and its standard member."""
  if family.name in ('discrete_laplace', 'discrete_gaussian'):
    return 1.0, Column(family.name, family.scale, error=family.error)
  if family.name in ('uniform', 'words'):
    return 1.0, Column(family.name, family.scale, location=family.location)
  return family.scale, Column(family.name, error=family.error)


def _columns(leaf: Leaf, samples: np.ndarray, scale: Any,
             number: int) -> list[Column]:
  """Returns what each coordinate of a sampler's numbers [K, d] is."""
  width = samples.shape[1]
  if leaf.family == 'k_norm' and width > 1:
    order = samplers.norm_order(samples)
    if order == 1:
      return [Column('laplace')] * width
    return ([Column('')] * width if order is None else
            [Column('k_norm', group=number, order=order)] * width)
  name = 'laplace' if leaf.family == 'k_norm' else leaf.family
  if name == 'discrete_laplace':
    if scale is None:
      return [_standard(samplers.identify(samples))[1]] * width
    scales = np.broadcast_to(np.asarray(scale, np.float64)[0],
                             (2, *_shape(scale)))[0] if np.ndim(
                                 scale) else np.asarray(scale)
    if scales.size not in (1, width):
      scales = np.asarray(scales).ravel()[:width]
    return [Column(name, float(value)) for value in np.broadcast_to(
        np.ravel(scales), (width,))]
  if name and samplers.fits(samples, name):
    return [Column(name)] * width
  fitted = samplers.identify(samples) if width else samplers.UNKNOWN
  factor, kind = _standard(fitted)
  # These columns stand for the numbers as drawn, so a factor is part of them.
  return [dataclasses.replace(kind, scale=kind.scale * factor)] * width


def _unrelated(drawn: np.ndarray, factor: np.ndarray) -> bool:
  """Returns whether draws [K] look independent of positive factors [K]."""
  away = np.abs(factor - np.median(factor))
  return all(
      stats.ks_2samp(drawn[part > np.median(part)],
                     drawn[part <= np.median(part)]).pvalue > 1e-6
      for part in (factor, away) if np.ptp(part) > 1e-6 * np.max(factor))


def _shape(scale: Any) -> tuple[int, ...]:
  """Returns the shape of a recorded scale without its axis of runs."""
  return np.shape(scale)[1:]


def _linear(matrix: np.ndarray, drawn: np.ndarray) -> np.ndarray | None:
  """Returns [d, m] with drawn = matrix times it, exactly; None if not."""
  if not (np.isfinite(matrix).all() and np.isfinite(drawn).all()):
    return None
  mixing, *_ = np.linalg.lstsq(matrix, drawn, rcond=None)
  rest = np.abs(drawn - matrix @ mixing).max(0, initial=0)
  size = np.abs(drawn).max(0, initial=0)
  if (rest > _EXACT * size + 1e-12).any() or not size.any():
    return None
  mixing = mixing.T
  return np.where(np.abs(mixing) < 1e-3 * np.abs(mixing).max(
      1, keepdims=True), 0.0, mixing)


def _independent(drawn: np.ndarray) -> bool:
  """Returns whether no two coordinates are correlated, beyond chance."""
  if drawn.shape[1] == 1:
    return True
  if drawn.shape[1] > 256 or not np.isfinite(drawn).all():
    return False
  with np.errstate(invalid='ignore'):
    matrix = np.corrcoef(drawn.T)
    sizes = np.corrcoef(np.abs(drawn - drawn.mean(0)).T)
  np.fill_diagonal(matrix, 0)
  np.fill_diagonal(sizes, 0)
  most = max(np.abs(np.nan_to_num(matrix)).max(),
             np.abs(np.nan_to_num(sizes)).max())
  # Six standard errors, more than any of 2^16 pairs reaches by chance.
  return bool(most < 6 / np.sqrt(len(drawn)))
