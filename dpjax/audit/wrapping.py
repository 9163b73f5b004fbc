"""Makes audit targets from mechanisms and functions, and their neighbours.

The attributes of an object decide which neighbours are tried: sums within a
bound on one record, scores within a sensitivity, or else data sets of records.
Neighbours respect every bound that the object declares, see `spaces`.
"""

from collections.abc import Sequence
from typing import Any

from scipy import stats

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit.target import Noise
from dpjax.audit.target import Pair
from dpjax.audit.target import Space
from dpjax.audit.target import Target
from dpjax.privacy import additive
from dpjax.privacy import laplace
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import sum_sensitivity

DELTA = 1e-5


def of_mechanism(mechanism: Any, *, name: str = '', delta: float | None = None,
                 claim: claims.Claim | None = None,
                 pairs: Sequence[Pair] | None = None,
                 space: Space | None = None, **overrides: Any) -> Target:
  """Returns the audit target of a mechanism; all that it declares is checked.

  Optional members that are read: `log_probs(data)` of a finite distribution,
  `log_density(data, outputs)`, `double_precision`, `pairs`, and the members
  that `space_of` reads.

  Args:
    mechanism: object with `adjacency`, `event` and `release`.
    name: name for reports; by default that of the mechanism's type.
    delta: delta at which the event is converted to an epsilon; 0 for pure
      events, by default `DELTA`.
    claim: the audited claim; by default the event's.
    pairs: pairs of neighbours; by default those of the mechanism's `pairs` or
      of the space.
    space: the legal data sets; by default those of `space_of`. Without a space,
      given pairs are the only ones that are tried.
    **overrides: fields of `Target` that replace those of the mechanism.
  """
  event = getattr(mechanism, 'event', None)
  if claim is None:
    claim = claims.of_event(event, adjacency=mechanism.adjacency,
                            delta=DELTA if delta is None else delta)
  if pairs is None and getattr(mechanism, 'pairs', None) is not None:
    pairs = [Pair(*pair) for pair in mechanism.pairs]
  if pairs is None and space is None:
    space = space_of(mechanism, claim.adjacency)
  noise = declared_noise(mechanism)
  fields: dict[str, Any] = dict(
      log_probs=getattr(mechanism, 'log_probs', None), noise=noise,
      # On a public grid the lowest bits of a release reveal nothing.
      floating_point=noise is not None and noise.spacing > 0,
      double_precision=bool(getattr(mechanism, 'double_precision', False)),
      log_density=getattr(mechanism, 'log_density', None)) | overrides
  return Target(name=name or type(mechanism).__name__, claim=claim,
                release=mechanism.release, pairs=tuple(pairs or ()),
                space=space, **fields)


def declared_noise(mechanism: Any) -> Noise | None:
  """Returns the declared noise of a Gaussian or Laplace mechanism, or None."""
  spacing = lambda scale: float(additive.grid_spacing(scale))
  if isinstance(mechanism, additive.GaussianMechanism):
    return Noise(stats.norm(scale=mechanism.stddev),
                 spacing=spacing(mechanism.stddev))
  if isinstance(mechanism, laplace.LaplaceMechanism):
    return Noise(stats.laplace(scale=mechanism.scale),
                 spacing=spacing(mechanism.scale))
  return None


def space_of(mechanism: Any, adjacency: Adjacency) -> Space:
  """Returns the legal data sets that the attributes of a mechanism state.

  The first of these attributes that exists decides:
    `record_norm`: sums, in the norm `order`; by default l2 if there is a
      `stddev`, otherwise l1.
    `l2_sensitivity`, `l1_sensitivity`: sums at that distance.
    `sensitivity`: scores that change by it at most; `monotone` if all change in
      one direction.
    `num_categories`: data sets of records in 0..K-1.
    `record_shape`: data sets of numeric records, optionally with
      `record_bounds` and `record_dtype`.
  Data sets of records have `num_records` records if that exists; under
  ADD_OR_REMOVE_ONE that is the smaller one.

  Raises:
    ValueError: if there is none of these.
  """
  def read(name: str) -> Any:
    return getattr(mechanism, name, None)
  if read('record_norm') is not None:
    return spaces.Sums(
        adjacency=adjacency, sensitivity=sum_sensitivity(
            adjacency, record_norm=read('record_norm')),
        order=read('order') or (2 if read('stddev') else 1))
  for order, name in ((2, 'l2_sensitivity'), (1, 'l1_sensitivity')):
    if read(name) is not None:
      return spaces.Sums(adjacency=adjacency, sensitivity=read(name),
                         order=order)
  if read('sensitivity') is not None:
    return spaces.Scores(adjacency=adjacency, sensitivity=read('sensitivity'),
                         monotone=bool(read('monotone')))
  fields: dict[str, Any] = {}
  if read('num_records') is not None:
    fields['sizes'] = (read('num_records'),)
  if read('record_dtype') is not None:
    fields['dtype'] = read('record_dtype')
  if read('num_categories') is not None:
    return spaces.Records(adjacency=adjacency, **fields,
                          num_categories=read('num_categories'))
  if read('record_shape') is None:
    raise ValueError(f'{type(mechanism).__name__} does not define neighbours: '
                     'give pairs, num_categories or record_shape')
  return spaces.Records(adjacency=adjacency, shape=tuple(read('record_shape')),
                        bounds=read('record_bounds'), **fields)
