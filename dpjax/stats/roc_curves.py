"""Releases ROC curves, from the score distributions of both classes at once.

Scores are put on a public grid and counted by class. One release of an `ecdf`
mechanism gives the ranks of both classes; the curve, the area under it,
calibration and the denominators are post-processing of these ranks. Source:
Barczewski (2025, section 6.5.1; items EC-22, EC-23, corrections C6, C7).

Each record lies in one class. If it is added or removed, or replaced by one
with the same public label, only that class changes, so each curve gets the
whole budget. If a record may change its label, both curves change: they share
one tree over the bins of both classes (`JointRoc`) or the budget
(`ParallelRoc`). Class sizes are private unless labels are public, so the
denominators are released ranks.
"""

import abc
import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.stats import mechanisms
from dpjax.stats import precision
from dpjax.stats.ecdf_methods import dyadic
from dpjax.stats.ecdf_methods import hierarchy
from dpjax.stats.ecdf_methods import mechanism
from dpjax.stats.ecdf_methods import trees
from dpjax.stats.ecdf_methods.grids import Grid
from dpjax.stats.ecdf_methods.mechanism import EcdfMechanism
from dpjax.typing import Array, PRNGKey, PyTree

POSITIVE = ('high', 'low')
ACCOUNTING = ('tight', 'paper')

Draw = mechanisms.Draw[Array]
"""(key, counts [2, N] float64, parameters) -> ranks [2, N] float64.

Row 0 is for negatives, row 1 for positives; the lowest scores come first.
"""


class RocCurve(NamedTuple):
  """An ROC curve from (0, 0) to (1, 1); leading axes are those of the ranks.

  Attributes:
    fpr: [..., N + 1] share of negatives that are predicted positive.
    tpr: [..., N + 1] share of positives that are predicted positive.
    thresholds: [N + 1] scores. A record is predicted positive if its score is
      above the threshold, or at most the threshold if low scores are positive.
      At the two ends no record and all records are predicted positive.
    auc: [...] area under straight lines: ties within a bin count half.
    positives: [...] released number of positives, at least 1.
    negatives: [...] released number of negatives, at least 1.
  """
  fpr: Array
  tpr: Array
  thresholds: Array
  auc: Array
  positives: Array
  negatives: Array


def counts(grid: Grid, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
  """Returns record counts by class and bin, [2, N] int64; row 1 has positives.

  Raises:
    ValueError: if scores are NaN, labels are not 0 or 1, or the numbers of
      scores and labels differ.
  """
  scores, labels = np.asarray(scores), np.asarray(labels)
  if scores.ndim != 1 or scores.shape != labels.shape:
    raise ValueError('there must be one label for each score, got arrays of '
                     f'shapes {scores.shape} and {labels.shape}')
  if not np.isin(labels, (0, 1)).all():
    raise ValueError('labels must be 0 or 1')
  cells = labels.astype(np.int64) * grid.num_thresholds + grid.bins(scores)
  return np.bincount(cells, minlength=2 * grid.num_thresholds).reshape(2, -1)


@precision.in_float64
def of_ranks(ranks: Array | np.ndarray, thresholds: Array | np.ndarray, *,
             positive: str = 'high') -> RocCurve:
  """Returns the ROC curve of ranks [..., 2, N]; post-processing.

  Exact ranks give the exact curve of binned scores. The denominators are the
  last ranks, at least 1; the last point is (1, 1). Monotone ranks give monotone
  rates; raw noisy ranks may not.
  """
  errors.check_choice('positive', positive, POSITIVE)
  ranks = precision.double(ranks)
  totals = jnp.maximum(ranks[..., -1], 1)
  # Shares of records up to each threshold, from none to all of them.
  below = jnp.concatenate([
      jnp.zeros_like(ranks[..., :1]), ranks[..., :-1] / totals[..., None],
      jnp.ones_like(ranks[..., :1])], axis=-1)
  cuts = jnp.concatenate([jnp.full([1], -jnp.inf), thresholds[:-1],
                          jnp.full([1], jnp.inf)])
  # Low scores: positive at or below a threshold. High: above it.
  rates = below
  if positive == 'high':
    rates, cuts = 1 - jnp.flip(below, -1), cuts[::-1]
  fpr, tpr = rates[..., 0, :], rates[..., 1, :]
  return RocCurve(fpr, tpr, cuts, area(fpr, tpr), totals[..., 1],
                  totals[..., 0])


def area(fpr: Array, tpr: Array) -> Array:
  """Returns the area under the straight lines between points [..., N + 1]."""
  return jnp.sum(jnp.diff(fpr) * (tpr[..., 1:] + tpr[..., :-1]), -1) / 2


def tpr_at(curve: RocCurve, fprs: Array) -> Array:
  """Interpolates true positive rates [..., M] at false positive rates [M]."""
  interpolated = jnp.vectorize(jnp.interp, signature='(m),(n),(n)->(m)')
  broadcast = jnp.broadcast_to(fprs, (*curve.fpr.shape[:-1], fprs.size))
  return interpolated(broadcast, curve.fpr, curve.tpr)


@functools.cache
def _joint(draw: mechanism.Draw) -> Draw:
  """Returns the sampler of `JointRoc`: one curve over 2 N bins, then split."""
  def sample(key: PRNGKey, data: Array, parameters: PyTree) -> Array:
    ranks = draw(key, data.reshape(-1), parameters).reshape(data.shape)
    # Positives come after all negatives, whose number is subtracted.
    return jnp.stack([ranks[0], ranks[1] - ranks[0, -1]])
  return sample


@functools.cache
def _parallel(draw: mechanism.Draw, imposes_total: bool,
              monotone: bool) -> Draw:
  """Returns the sampler of `ParallelRoc`: one curve for each class."""
  def sample(key: PRNGKey, data: Array, parameters: PyTree) -> Array:
    # Each class has its own key, so the noise of the curves is independent.
    ranks = jax.vmap(draw, (0, 0, None))(jax.random.split(key), data,
                                         parameters)
    if not imposes_total:
      return ranks
    return with_total(ranks, jnp.sum(data), monotone=monotone)
  return sample


def with_total(ranks: Array, total: Array, *, monotone: bool) -> Array:
  """Adjusts ranks [2, N] so that the last ones add up to the public total n.

  Both last ranks get the same correction. Monotone ranks are rescaled in
  proportion, which keeps the rates. Raw ranks get a correction that grows
  linearly with the bin and keeps them unbiased.

  Args:
    ranks: released ranks.
    total: n.
    monotone: whether the ranks are monotone and must stay so.
  """
  last = ranks[:, -1]
  sizes = last + (total - jnp.sum(last)) / 2
  if not monotone:
    fractions = jnp.arange(1, ranks.shape[1] + 1) / ranks.shape[1]
    return ranks + fractions[None] * (sizes - last)[:, None]
  # A class has between 0 and n records. The sizes sum to n, and still do.
  sizes = jnp.clip(sizes, 0, total)
  scaled = ranks * (sizes / jnp.where(last > 0, last, 1))[:, None]
  return scaled.at[:, -1].set(sizes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RocMechanism(mechanisms.SampledMechanism[Array]):
  """Base class: a release of the ranks of both classes, and its ROC curve.

  Attributes:
    grid: public grid of scores, with N thresholds.
    curve: mechanism that releases ranks; the subclass says how the budget is
      divided.
    positive: 'high' or 'low', the scores that indicate the positive class;
      'low' in Barczewski (2025).
  """
  grid: Grid
  curve: EcdfMechanism
  positive: str = 'high'

  def __post_init__(self) -> None:
    errors.check_choice('positive', self.positive, POSITIVE)
    if self.curve.num_thresholds != self._num_bins:
      raise ValueError(f'curve must have {self._num_bins} thresholds, got '
                       f'{self.curve.num_thresholds}')

  @property
  @abc.abstractmethod
  def _num_bins(self) -> int:
    """Number of bins of one curve."""

  @property
  def parameters(self) -> PyTree:
    """Parameters of the curve's sampler."""
    return self.curve.parameters

  def of_ranks(self, ranks: Array | np.ndarray) -> RocCurve:
    """Returns the ROC curve of released ranks [..., 2, N]; post-processing."""
    return of_ranks(ranks, self.grid.thresholds, positive=self.positive)

  def _check_counts(self, data: Array | np.ndarray) -> None:
    """Raises ValueError unless there is one count for each class and bin."""
    if data.shape != (2, self.grid.num_thresholds):
      raise ValueError('data must be counts of 2 classes and '
                       f'{self.grid.num_thresholds} bins, got an array of '
                       f'shape {data.shape}')

  @precision.in_float64
  def release(self, key: PRNGKey, data: Array | np.ndarray) -> RocCurve:
    """Releases the private ROC curve of counts [2, N]."""
    return self.of_ranks(self.release_ranks(key, data))

  @precision.in_float64
  def release_ranks(self, key: PRNGKey, data: Array | np.ndarray) -> Array:
    """Releases ranks [2, N] of negatives and positives.

    With the same key these are the ranks from which `release` computes its
    curve, so both together count as one release. Calibration and
    Hosmer-Lemeshow statistics are post-processing of them too.
    """
    self._check_counts(data)
    return self.draw(key, jnp.asarray(data, jnp.float64), self.parameters)

  @precision.in_float64
  def estimate(self, key: PRNGKey, data: np.ndarray) -> np.ndarray:
    """Releases the ranks of `release_ranks`, compiled once for each grid."""
    self._check_counts(np.asarray(data))
    return self._drawn(key, jnp.asarray(data, jnp.float64))


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointRoc(RocMechanism):
  """One mechanism over the 2 N bins of both classes, negatives first.

  A changed label is then just a changed bin. Guarantee: that of `curve`.
  """

  @property
  def _num_bins(self) -> int:
    return 2 * self.grid.num_thresholds

  @property
  def adjacency(self) -> Adjacency:
    """Which data sets are neighbours: as for `curve`."""
    return self.curve.adjacency

  @property
  def draw(self) -> Draw:
    """Jittable sampler (key, counts, parameters) -> ranks."""
    return _joint(self.curve.draw)

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy event of one release: that of `curve`."""
    return self.curve.event


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParallelRoc(RocMechanism):
  """Two mechanisms over N bins, one for each class.

  Guarantee: that of `curve` if a record is added or removed, or is replaced by
  one with the same, public label. If a record may change its label, the curves
  are calibrated for ADD_OR_REMOVE_ONE, and a replacement costs two of their
  changes: 2 epsilon or 4 rho, whether the two fall in one class or in both.

  Attributes:
    adjacency: adjacency of the whole release.
    public_labels: whether the label of each record is public; REPLACE_ONE only.
  """
  adjacency: Adjacency
  public_labels: bool = False

  def __post_init__(self) -> None:
    super().__post_init__()
    check_adjacency(self.adjacency)
    replaces = self.adjacency is Adjacency.REPLACE_ONE
    if self.public_labels and not replaces:
      raise ValueError('public_labels=True makes the number of records public: '
                       'use adjacency REPLACE_ONE')
    if self.curve.knows_total is not self.public_labels:
      raise ValueError('curve must have adjacency REPLACE_ONE if labels are '
                       'public, ADD_OR_REMOVE_ONE otherwise')

  @property
  def _num_bins(self) -> int:
    return self.grid.num_thresholds

  @property
  def _pays_twice(self) -> bool:
    """Whether one replaced record counts as two changes of the curves."""
    return (self.adjacency is Adjacency.REPLACE_ONE
            and not self.public_labels)

  @property
  def draw(self) -> Draw:
    """Jittable sampler (key, counts, parameters) -> ranks."""
    return _parallel(self.curve.draw, self._pays_twice, self.curve.monotone)

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy event of one release of both curves."""
    if self._pays_twice and self.curve.pure:
      return accounting.pure_event(epsilon=2 * self.curve.amount,
                                   adjacency=self.adjacency)
    # A Gaussian event has the shift of one added record; accountants double it
    # under REPLACE_ONE.
    return self.curve.event


def make(grid: Grid, *, epsilon: float | None = None, rho: float | None = None,
         adjacency: Adjacency, public_labels: bool = False,
         accounting: str = 'tight', positive: str = 'high',
         monotone: bool = True) -> RocMechanism:
  """Returns the most accurate mechanism for a budget, or the published one.

  'tight' uses trees of counts: one over both classes if labels may change, one
  for each class otherwise. 'paper' uses dyadic noise with half the budget for
  each class, of scale (L + 1) / (epsilon / 2) on each node, under REPLACE_ONE.
  The guarantee published for it, "2 epsilon" (Barczewski 2025, section 6.5.1),
  is wrong twice. Two curves of epsilon / 2 compose to epsilon. And a record
  whose label may change moves a prefix of both curves or an interval of one: 2
  ceil((L + 1) / 2) nodes, not 2 (L + 1). So `event` states about epsilon / 2
  (correction C6).

  Args:
    grid: public grid of scores.
    epsilon: budget of the whole release in pure DP; give this or rho.
    rho: budget in zero-concentrated DP.
    adjacency: which data sets are neighbours.
    public_labels: whether labels, and so the class sizes, are public.
    accounting: one of `ACCOUNTING`.
    positive: the scores that indicate positives, 'high' or 'low'.
    monotone: whether ranks are projected on those of nonnegative counts.

  Raises:
    ValueError: if accounting='paper' is combined with rho, public labels or
      another adjacency.

  Examples:
    >>> from dpjax.privacy.adjacency import Adjacency
    >>> from dpjax.stats import roc_curves as roc
    >>> from dpjax.stats.ecdf_methods import grids
    >>> scores = np.arange(1000) / 1000
    >>> labels = (np.arange(1000) * 7 % 1000 < scores * 1000).astype(int)
    >>> grid = grids.Grid(lower=0, upper=1, num_thresholds=64)
    >>> mechanism = roc.make(grid, epsilon=1.0,
    ...                      adjacency=Adjacency.REPLACE_ONE)
    >>> counts = roc.counts(grid, scores, labels)
    >>> # Reproducible: for research, not for a release.
    >>> curve = mechanism.release(jax.random.key(0), counts)
    >>> abs(float(curve.auc) - 0.83) < 0.05
    True
  """
  errors.check_choice('accounting', accounting, ACCOUNTING)
  check_adjacency(adjacency)
  size = grid.num_thresholds
  if accounting == 'paper':
    if epsilon is None or rho is not None or public_labels or (
        adjacency is not Adjacency.REPLACE_ONE):
      raise ValueError("accounting='paper' needs epsilon (not rho), adjacency "
                       'REPLACE_ONE and private labels')
    return ParallelRoc(grid=grid, positive=positive, adjacency=adjacency,
                       curve=_printed(size, epsilon, monotone))
  # A changed label moves a record between classes: in one tree over both that
  # costs as much as a changed bin.
  tree = functools.partial(trees.TreeEcdf, epsilon=epsilon, rho=rho,
                           adjacency=adjacency, monotone=monotone)
  if adjacency is Adjacency.REPLACE_ONE and not public_labels:
    return JointRoc(grid=grid, positive=positive, curve=tree(
        num_thresholds=2 * size, shape=hierarchy.split_shape(
            size, pure=rho is None)))
  return ParallelRoc(grid=grid, positive=positive, adjacency=adjacency,
                     public_labels=public_labels,
                     curve=tree(num_thresholds=size))


def _printed(size: int, epsilon: float, monotone: bool) -> dyadic.DyadicEcdf:
  """Returns a curve with published noise (L + 1) / (epsilon / 2) on each node.

  Its last rank, the class size, is private.
  """
  printed = dyadic.DyadicEcdf(
      num_thresholds=size, monotone=monotone,
      epsilon=errors.check_positive('epsilon', epsilon) / 2,
      adjacency=Adjacency.REPLACE_ONE, accounting='paper')
  # Scales are c / epsilon, so this epsilon gives the published scale.
  unit = dataclasses.replace(printed, adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  return dataclasses.replace(
      unit, epsilon=unit.amount * unit.scale / printed.scale)
