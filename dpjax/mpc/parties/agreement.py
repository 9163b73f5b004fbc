"""Public parameters that all parties of a study must agree on.

Both sides send them at the start of every connection. A party whose parameters
differ is rejected; the error names the fields.
"""

import dataclasses
import hashlib
import json
from typing import Any, Self

from dpjax import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agreement:
  """Base class of the public parameters of a study.

  Attributes:
    session: 32 hexadecimal digits, drawn anew for each study.
    num_servers: m, the number of servers.
    num_owners: number of enrolled owners, 0 .. num_owners - 1. The list of them
      is public.
    min_owners: fewest owners for an answer.
  """
  session: str
  num_servers: int
  num_owners: int
  min_owners: int

  def __post_init__(self) -> None:
    if len(self.session) != 32 or set(self.session) - set('0123456789abcdef'):
      raise ValueError('session must be 32 hexadecimal digits, got '
                       f'{self.session!r}')
    errors.check_at_least('min_owners', self.min_owners, 0)
    errors.check_at_least('num_owners', self.num_owners,
                          max(1, self.min_owners))

  @property
  def servers(self) -> tuple[str, ...]:
    """Returns the names of the servers."""
    return tuple(f'server{j}' for j in range(self.num_servers))

  def replaced(self, **fields: Any) -> Self:
    """Returns a copy with other values of some fields."""
    return dataclasses.replace(self, **fields)

  def to_bytes(self) -> bytes:
    """Returns JSON; equal parameters give equal bytes."""
    return json.dumps(dataclasses.asdict(self), sort_keys=True).encode()

  @property
  def digest(self) -> bytes:
    """Returns the SHA-256 digest, which enters the keys of owners' messages."""
    return hashlib.sha256(self.to_bytes()).digest()

  def differences(self, received: bytes) -> tuple[str, ...]:
    """Returns the names of the fields in which another party's JSON differs.

    Raises:
      ValueError: if `received` is not a JSON object.
    """
    try:
      theirs = json.loads(received)
    except (ValueError, RecursionError) as error:
      raise ValueError('parameters that are not JSON') from error
    if not isinstance(theirs, dict):
      raise ValueError('parameters that are not a JSON object')
    ours = dataclasses.asdict(self)
    # Compare as text, so that NaN equals itself and true differs from 1.
    same = lambda name: (name in ours and name in theirs and
                         json.dumps(ours[name]) == json.dumps(theirs[name]))
    return tuple(sorted(str(name)[:40] for name in ours.keys() | theirs.keys()
                        if not same(name)))
