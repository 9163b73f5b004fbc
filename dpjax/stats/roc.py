"""Private ROC curves: distribution functions of scores in both classes at once.

Scores are put on a public grid and counted by class; ranks of both classes are
one release of a mechanism of `ecdf`. The curve, the area under it, calibration
and denominators are post-processing of that. Source: thesis 003, section 6.5.1
(item EC-22, EC-23, corrections C6, C7).

A record lies in one class. Where one is added or removed, curves of both
classes take the whole budget each; so they do where labels are public and a
record keeps its own. Where a record may change its label both curves move: then
they share one tree over all bins of both classes (`JointRoc`), or the budget
(`ParallelRoc`). Numbers of positives are private but where labels are public:
denominators are released ranks.
"""

import abc
from collections.abc import Callable
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
from dpjax.stats import precision
from dpjax.stats.ecdf import dyadic
from dpjax.stats.ecdf import hierarchy
from dpjax.stats.ecdf import mechanism
from dpjax.stats.ecdf import trees
from dpjax.stats.ecdf.grids import Grid
from dpjax.stats.ecdf.mechanism import EcdfMechanism
from dpjax.typing import Array, PRNGKey, PyTree

POSITIVE = ('high', 'low')
ACCOUNTING = ('tight', 'paper')

Draw = Callable[[PRNGKey, Array, PyTree], Array]
"""(key, counts [2, N] float64, parameters) -> ranks [2, N] float64.

Row 0 counts negatives, row 1 positives, with the lowest scores first.
"""


class RocCurve(NamedTuple):
  """A curve from (0, 0) to (1, 1); leading axes are those of ranks.

  Attributes:
    fpr: [..., N + 1] share of negatives that are predicted positive.
    tpr: [..., N + 1] share of positives that are.
    thresholds: [N + 1]; predicted positive is a score above it, or up to it
      where low scores are positive. The ends take none and all.
    auc: [...] area under straight lines: ties within a bin count half.
    positives: [...] number of them, as released, at least 1.
    negatives: [...] likewise.
  """
  fpr: Array
  tpr: Array
  thresholds: Array
  auc: Array
  positives: Array
  negatives: Array


def counts(grid: Grid, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
  """Records by class and bin, [2, N] int64; row 1 has the positives.

  Raises:
    ValueError: for scores that are NaN, labels other than 0 and 1, or other
      than one label for each score.
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
def of_ranks(ranks: Array, thresholds: Array, *,
             positive: str = 'high') -> RocCurve:
  """The curve of ranks [..., 2, N]; without noise the curve of binned scores.

  Denominators are the last ranks, floored at 1; the last point is (1, 1). What
  has monotone ranks gives monotone rates, and raw ranks give raw ones.
  """
  errors.check_choice('positive', positive, POSITIVE)
  ranks = precision.double(ranks)
  totals = jnp.maximum(ranks[..., -1], 1)
  below = jnp.concatenate([
      jnp.zeros_like(ranks[..., :1]), ranks[..., :-1] / totals[..., None],
      jnp.ones_like(ranks[..., :1])], axis=-1)
  cuts = jnp.concatenate([jnp.full([1], -jnp.inf), thresholds[:-1],
                          jnp.full([1], jnp.inf)])
  rates = below
  if positive == 'high':
    rates, cuts = 1 - jnp.flip(below, -1), cuts[::-1]
  fpr, tpr = rates[..., 0, :], rates[..., 1, :]
  return RocCurve(fpr, tpr, cuts, area(fpr, tpr), totals[..., 1],
                  totals[..., 0])


def area(fpr: Array, tpr: Array) -> Array:
  """Under the straight lines between points [..., N + 1]."""
  return jnp.sum(jnp.diff(fpr) * (tpr[..., 1:] + tpr[..., :-1]), -1) / 2


def tpr_at(curve: RocCurve, fprs: Array) -> Array:
  """Rates [..., M] of true positives at rates [M] of false ones."""
  interpolated = jnp.vectorize(jnp.interp, signature='(m),(n),(n)->(m)')
  wanted = jnp.broadcast_to(fprs, (*curve.fpr.shape[:-1], fprs.size))
  return interpolated(wanted, curve.fpr, curve.tpr)


@functools.cache
def _joint(draw: mechanism.Draw) -> Draw:
  def law(key: PRNGKey, data: Array, parameters: PyTree) -> Array:
    ranks = draw(key, data.reshape(-1), parameters).reshape(data.shape)
    return jnp.stack([ranks[0], ranks[1] - ranks[0, -1]])
  return law


@functools.cache
def _parallel(draw: mechanism.Draw, imposes_total: bool,
              monotone: bool) -> Draw:
  def law(key: PRNGKey, data: Array, parameters: PyTree) -> Array:
    ranks = jax.vmap(draw, (0, 0, None))(jax.random.split(key), data,
                                         parameters)
    if not imposes_total:
      return ranks
    return with_total(ranks, jnp.sum(data), monotone=monotone)
  return law


def with_total(ranks: Array, total: Array, *, monotone: bool) -> Array:
  """Ranks [2, N] whose last add up to a public n; both are off by as much.

  The others follow in proportion: noise of ranks is in the last one too, and
  rates, their quotients, stay as they are. Raw ranks follow by bins, unbiased.

  Args:
    ranks: released.
    total: n.
    monotone: whether ranks are, and have to stay so.
  """
  last = ranks[:, -1]
  ends = last + (total - jnp.sum(last)) / 2
  if not monotone:
    shares = jnp.arange(1, ranks.shape[1] + 1) / ranks.shape[1]
    return ranks + shares[None] * (ends - last)[:, None]
  ends = jnp.clip(ends, 0, total)
  scaled = ranks * (ends / jnp.where(last > 0, last, 1))[:, None]
  return scaled.at[:, -1].set(ends)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RocMechanism(abc.ABC):
  """Base: a release of ranks of both classes, and the curve they give.

  Attributes:
    grid: public, of scores; N thresholds.
    curve: what releases ranks; its budget is told by the class.
    positive: which scores speak for the positive class, 'high' or 'low' (as in
      thesis 003).
  """
  grid: Grid
  curve: EcdfMechanism
  positive: str = 'high'

  def __post_init__(self):
    errors.check_choice('positive', self.positive, POSITIVE)
    if self.curve.num_thresholds != self._num_bins:
      raise ValueError(f'the curve must have {self._num_bins} thresholds, got '
                       f'{self.curve.num_thresholds}')

  @property
  @abc.abstractmethod
  def _num_bins(self) -> int:
    """Of the curve."""

  @property
  @abc.abstractmethod
  def draw(self) -> Draw:
    """The law of ranks; one function object for all told by parameters."""

  @property
  @abc.abstractmethod
  def event(self) -> accounting.DpEvent:
    """What one release of both curves costs."""

  @property
  def parameters(self) -> PyTree:
    """Those of the curve."""
    return self.curve.parameters

  def of_ranks(self, ranks: Array) -> RocCurve:
    """The curve of released ranks [..., 2, N]; post-processing."""
    return of_ranks(ranks, self.grid.thresholds, positive=self.positive)

  def _check_counts(self, data: Array) -> None:
    if data.shape != (2, self.grid.num_thresholds):
      raise ValueError('there must be counts of 2 classes and '
                       f'{self.grid.num_thresholds} bins, got an array of '
                       f'shape {data.shape}')

  @precision.in_float64
  def release(self, key: PRNGKey, data: Array) -> RocCurve:
    """The private curve of counts [2, N]."""
    return self.of_ranks(self.release_ranks(key, data))

  @precision.in_float64
  def release_ranks(self, key: PRNGKey, data: Array) -> Array:
    """What `release` makes its curve of with this key: one release, not two.

    Ranks [2, N] of negatives and positives; calibration and Hosmer-Lemeshow
    statistics are post-processing of them too.
    """
    self._check_counts(data)
    return self.draw(key, jnp.asarray(data, jnp.float64), self.parameters)

  @precision.in_float64
  def estimate(self, key: PRNGKey, data: np.ndarray) -> np.ndarray:
    """`release_ranks` on the host, compiled once for each grid."""
    self._check_counts(np.asarray(data))
    return np.asarray(mechanism.compiled(self.draw)(
        key, jnp.asarray(data, jnp.float64), self.parameters))


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointRoc(RocMechanism):
  """Both classes by one mechanism over 2 N bins, negatives first.

  A change of label is a change of bin. Guarantee: that of `curve`.
  """

  @property
  def _num_bins(self) -> int:
    return 2 * self.grid.num_thresholds

  @property
  def adjacency(self) -> Adjacency:
    """That of the mechanism."""
    return self.curve.adjacency

  @property
  def draw(self) -> Draw:
    """The law of ranks."""
    return _joint(self.curve.draw)

  @property
  def event(self) -> accounting.DpEvent:
    """That of the mechanism."""
    return self.curve.event


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParallelRoc(RocMechanism):
  """Two mechanisms over N bins, one for each class.

  Guarantee: where a record is added or removed, or is replaced by one of its
  own, public label, that of `curve`. Where it may change its label, curves are
  of ADD_OR_REMOVE_ONE and a replacement costs two of them: 2 epsilon or 4 rho,
  whether they fall in one class or in both.

  Attributes:
    adjacency: of the release.
    public_labels: whether the label of every record is; for REPLACE_ONE.
  """
  adjacency: Adjacency
  public_labels: bool = False

  def __post_init__(self):
    super().__post_init__()
    check_adjacency(self.adjacency)
    replaces = self.adjacency is Adjacency.REPLACE_ONE
    if self.public_labels and not replaces:
      raise ValueError('public labels tell the number of records: that needs '
                       'REPLACE_ONE')
    if self.curve.knows_total is not self.public_labels:
      raise ValueError('curves of classes are of REPLACE_ONE where labels are '
                       'public, of ADD_OR_REMOVE_ONE elsewhere')

  @property
  def _num_bins(self) -> int:
    return self.grid.num_thresholds

  @property
  def _pays_twice(self) -> bool:
    return (self.adjacency is Adjacency.REPLACE_ONE
            and not self.public_labels)

  @property
  def draw(self) -> Draw:
    """The law of ranks."""
    return _parallel(self.curve.draw, self._pays_twice, self.curve.monotone)

  @property
  def event(self) -> accounting.DpEvent:
    """What both cost together."""
    if self._pays_twice and self.curve.pure:
      return accounting.pure_event(epsilon=2 * self.curve.epsilon,
                                   adjacency=self.adjacency)
    # A Gaussian one is of half the shift, which accountants know to double.
    return self.curve.event


def make(grid: Grid, *, epsilon: float | None = None, rho: float | None = None,
         adjacency: Adjacency, public_labels: bool = False,
         accounting: str = 'tight', positive: str = 'high',
         monotone: bool = True) -> RocMechanism:
  """The best release there is for a budget, or the one that is printed.

  Trees of counts: one over both classes where labels may change, one for each
  class where not. Of `accounting='paper'`: dyadic noise of half the budget for
  each class, (L + 1) / (epsilon / 2) on each node, under REPLACE_ONE. What is
  printed of it, "2 epsilon" (line 1852), is wrong either way: two curves of
  epsilon / 2 compose to epsilon, and a record, whose labels may change, moves
  both by a prefix each, or one by an interval, so that 2 ceil((L+1)/2) nodes
  move and not 2 (L + 1): `event` says about epsilon / 2 (correction C6).

  Args:
    grid: of scores, public.
    epsilon: budget of the whole release; or else rho.
    rho: of zero-concentrated privacy.
    adjacency: which data sets are neighbours.
    public_labels: whether labels, and so their numbers, are public.
    accounting: one of `ACCOUNTING`.
    positive: which scores are, 'high' or 'low'.
    monotone: whether ranks are made those of nonnegative counts.

  Raises:
    ValueError: for printed noise of rho, of public labels, or under another
      adjacency: none is printed.

  Examples:
    >>> from dpjax.privacy.adjacency import Adjacency
    >>> from dpjax.stats import roc
    >>> from dpjax.stats.ecdf import grids
    >>> scores = np.arange(1000) / 1000
    >>> labels = (np.arange(1000) * 7 % 1000 < scores * 1000).astype(int)
    >>> grid = grids.Grid(lower=0, upper=1, num_thresholds=64)
    >>> made = roc.make(grid, epsilon=1.0, adjacency=Adjacency.REPLACE_ONE)
    >>> found = roc.counts(grid, scores, labels)
    >>> # Reproducible: for research, not for a release.
    >>> curve = made.release(jax.random.key(0), found)
    >>> abs(float(curve.auc) - 0.83) < 0.05
    True
  """
  errors.check_choice('accounting', accounting, ACCOUNTING)
  check_adjacency(adjacency)
  size = grid.num_thresholds
  if accounting == 'paper':
    if rho is not None or public_labels or (
        adjacency is not Adjacency.REPLACE_ONE):
      raise ValueError("accounting='paper' is of epsilon, under REPLACE_ONE, "
                       'with private labels')
    return ParallelRoc(grid=grid, positive=positive, adjacency=adjacency,
                       curve=_printed(size, epsilon, monotone))
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
  """A curve whose last rank is private, with noise (L + 1) / (epsilon / 2)."""
  printed = dyadic.DyadicEcdf(
      num_thresholds=size, monotone=monotone,
      epsilon=errors.check_positive('epsilon', epsilon) / 2,
      adjacency=Adjacency.REPLACE_ONE, accounting='paper')
  unit = dataclasses.replace(printed, adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  return dataclasses.replace(
      unit, epsilon=unit.epsilon * unit.scale / printed.scale)
