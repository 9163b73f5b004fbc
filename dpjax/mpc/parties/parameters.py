"""What is public about a study: one value that every party compares.

Every party says it at the start of every connection. Who says something else is
refused, with the names of the fields.
"""

import dataclasses
import hashlib
import json
from typing import Any

from dpjax import errors
from dpjax.mpc import nodes
from dpjax.mpc import schemes
from dpjax.mpc.scheme import Scheme
from dpjax.privacy.adjacency import Adjacency

NOISES = ('joint', 'contributions')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameters:
  """A study: which curve, how it is shared, what it may tell.

  Attributes:
    session: 32 hexadecimal digits, drawn anew for each study; one session is
      one release.
    scheme: how owners share their bins, a name of `schemes`.
    num_servers: m.
    num_colluding: t, how many servers together still learn nothing.
    num_classes: 1, or 2 for a curve for each of two hidden labels.
    num_thresholds: N, of the grid.
    lower: of the grid.
    upper: of the grid.
    grid: its kind, `uniform` or `geometric`.
    epsilon: of the whole curve, however many thresholds are asked for.
    adjacency: the value of an `Adjacency`.
    sensitivity: how far one record moves the nodes of the noise, in l1, when it
      is absorbed by them; the scale of the noise is sensitivity / epsilon.
    root: whether a dyadic node is over all thresholds.
    shape: of a tree whose counts are told, top down (`nodes.tree_counts`);
      empty where ranks with the noise of dyadic nodes are told.
    noise: `joint` or `contributions`, see `noising`.
    value_bits: k; counts are integers mod 2^k where the scheme has such.
    num_owners: enrolled owners, 0 .. num_owners - 1, who are public. Where n
      is not, whether one of them took part is hidden from clients.
    min_owners: fewer than these are not evaluated; 0 where n is not public,
      since a refusal would tell of it.
  """
  session: str
  scheme: str
  num_servers: int
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
  num_owners: int
  min_owners: int

  def __post_init__(self):
    if len(self.session) != 32 or set(self.session) - set('0123456789abcdef'):
      raise ValueError('session must be 32 hexadecimal digits, got '
                       f'{self.session!r}')
    if self.shape:
      nodes.tree_widths(self.num_thresholds, self.shape)
    colluding = self.build_scheme().colluding
    if self.num_colluding != colluding:
      raise ValueError(f'of {self.num_servers} servers of {self.scheme} '
                       f'{colluding} may collude, not {self.num_colluding}')
    errors.check_range(self.lower, self.upper)
    errors.check_positive('epsilon', self.epsilon)
    errors.check_choice('adjacency', self.adjacency,
                        [one.value for one in Adjacency])
    errors.check_at_least('sensitivity', self.sensitivity, 1)
    errors.check_choice('noise', self.noise, NOISES)
    if self.noise == 'joint' and self.scheme != 'comparison':
      raise ValueError('joint noise is for two servers of comparison keys, not '
                       f'for {self.scheme}')
    errors.check_at_least('min_owners', self.min_owners, 0)
    errors.check_at_least('num_owners', self.num_owners,
                          max(1, self.min_owners))
    if self.min_owners and not self.knows_total:
      raise ValueError('min_owners must be 0 where n is not public: a refusal '
                       'would tell of it')

  @property
  def knows_total(self) -> bool:
    """Whether the number of records is public."""
    return self.adjacency == Adjacency.REPLACE_ONE.value

  @property
  def servers(self) -> tuple[str, ...]:
    """Names of the servers."""
    return tuple(f'server{j}' for j in range(self.num_servers))

  def build_scheme(self) -> Scheme:
    """How owners share; ValueError for numbers that do not go together."""
    errors.check_choice('scheme', self.scheme, schemes.SCHEMES)
    own = ({'num_colluding': self.num_colluding}
           if self.scheme == 'outer_product' else
           {'value_bits': self.value_bits})
    return schemes.SCHEMES[self.scheme](
        num_thresholds=self.num_thresholds, num_servers=self.num_servers,
        num_classes=self.num_classes, **own)

  def replaced(self, **fields: Any) -> 'Parameters':
    """The same with other values of some fields."""
    return dataclasses.replace(self, **fields)

  def to_bytes(self) -> bytes:
    """JSON, the same bytes for equal parameters."""
    return json.dumps(dataclasses.asdict(self), sort_keys=True).encode()

  @property
  def digest(self) -> bytes:
    """32 bytes that keys of messages depend on."""
    return hashlib.sha256(self.to_bytes()).digest()

  def differences(self, said: bytes) -> tuple[str, ...]:
    """Names of the fields in which what another party said differs.

    Raises:
      ValueError: if it is no JSON object.
    """
    try:
      theirs = json.loads(said)
    except (ValueError, RecursionError) as error:
      raise ValueError('parameters that are no JSON') from error
    if not isinstance(theirs, dict):
      raise ValueError('parameters that are no JSON object')
    ours = dataclasses.asdict(self)
    # Compared as text: NaN equals itself, and true is not 1.
    same = lambda name: (name in ours and name in theirs and
                         json.dumps(ours[name]) == json.dumps(theirs[name]))
    return tuple(sorted(str(name)[:40] for name in ours.keys() | theirs.keys()
                        if not same(name)))


def from_bytes(data: bytes) -> Parameters:
  """What `to_bytes` wrote; ValueError if it was something else."""
  try:
    found = json.loads(data)
    return Parameters(**{**found, 'shape': tuple(found['shape'])})
  except (TypeError, KeyError) as error:
    raise ValueError(f'no parameters of a study: {error}') from error
