"""The public parameters of a study of a curve."""

import dataclasses
import json

from dpjax import errors
from dpjax.mpc import nodes
from dpjax.mpc import schemes
from dpjax.mpc.parties.agreement import Agreement
from dpjax.mpc.scheme import Scheme
from dpjax.privacy.adjacency import Adjacency

NOISES = ('joint', 'contributions')
"""Ways to draw noise; see `noising`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameters(Agreement):
  """Public parameters: the curve, the sharing scheme and the release.

  Attributes:
    session: 32 hexadecimal digits, drawn anew for each study; one session is
      one release.
    scheme: name of the secret-sharing scheme in `schemes.SCHEMES`.
    num_servers: m.
    num_colluding: t, how many servers together still learn nothing.
    num_classes: 1, or 2 for one curve for each of two secret labels.
    num_thresholds: N, size of the grid of thresholds.
    lower: lower end of the grid.
    upper: upper end of the grid.
    grid: kind of grid, `uniform` or `geometric`.
    epsilon: budget of the whole curve, for any number of queries.
    adjacency: value of an `Adjacency`.
    sensitivity: l1 sensitivity of the noised nodes to one record; the scale of
      the noise is sensitivity / epsilon.
    root: whether one dyadic node covers all thresholds.
    shape: children per node in each level of the tree whose counts are
      released, top down (`nodes.tree_counts`); empty if ranks with the noise of
      dyadic nodes are released.
    noise: `joint` or `contributions`; see `noising`.
    value_bits: k; schemes with integers modulo 2^k use it.
    num_owners: number of enrolled owners, 0 .. num_owners - 1. The list of them
      is public. If n is secret, clients cannot tell which of them took part.
    min_owners: fewest owners for an answer; must be 0 if n is secret, since a
      refusal would reveal n.
  """
  scheme: str
  num_colluding: int
  num_classes: int
  num_thresholds: int
  lower: float
  upper: float
  grid: str
  epsilon: float
  adjacency: str
  sensitivity: int
  root: bool
  shape: tuple[int, ...]
  noise: str
  value_bits: int

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.shape:
      nodes.tree_widths(self.num_thresholds, self.shape)
    colluding = self.build_scheme().colluding
    if self.num_colluding != colluding:
      raise ValueError(f'with {self.num_servers} servers of {self.scheme}, '
                       f'num_colluding must be {colluding}, got '
                       f'{self.num_colluding}')
    errors.check_range(self.lower, self.upper)
    errors.check_positive('epsilon', self.epsilon)
    errors.check_choice('adjacency', self.adjacency,
                        [one.value for one in Adjacency])
    errors.check_at_least('sensitivity', self.sensitivity, 1)
    errors.check_choice('noise', self.noise, NOISES)
    if self.noise == 'joint' and self.scheme != 'comparison':
      raise ValueError('joint noise is for the two servers of the scheme '
                       f'comparison only, got scheme {self.scheme}')
    if self.min_owners and not self.knows_total:
      raise ValueError('min_owners must be 0 where n is not public, since a '
                       'refusal would reveal n')

  @property
  def knows_total(self) -> bool:
    """Returns whether the number of records n is public."""
    return self.adjacency == Adjacency.REPLACE_ONE.value

  def build_scheme(self) -> Scheme:
    """Builds the secret-sharing scheme.

    Raises:
      ValueError: if the parameters of the scheme contradict each other.
    """
    errors.check_choice('scheme', self.scheme, schemes.SCHEMES)
    options = ({'num_colluding': self.num_colluding}
               if self.scheme == 'outer_product' else
               {'value_bits': self.value_bits})
    return schemes.SCHEMES[self.scheme](
        num_thresholds=self.num_thresholds, num_servers=self.num_servers,
        num_classes=self.num_classes, **options)


def from_bytes(data: bytes) -> Parameters:
  """Reads parameters written by `to_bytes`; raises a ValueError for others."""
  try:
    fields = json.loads(data)
    return Parameters(**{**fields, 'shape': tuple(fields['shape'])})
  except (TypeError, KeyError) as error:
    raise ValueError(f'not the parameters of a study: {error}') from error
