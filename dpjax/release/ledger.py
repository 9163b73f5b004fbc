"""The lines of a ledger: what was spent on a data set, and on what.

JSON lines. The first is the header: the data set, the adjacency and the total
budget. 'reserved' is a release, on disk before its noise is drawn: from then
on it is paid. 'answered' holds the SHA-256 of its answer, which lies in
PATH.answers. Each line carries a digest of itself and of the line before, so
that a changed, lost or moved line is seen, and a changed answer; cutting off
the last lines is not, and who can write the file can make another: it is a
record, no seal.

The file belongs to whoever keeps the data. It holds a salted hash of them,
which is not for publication. `reservations` writes it.
"""

import collections
from collections.abc import Mapping
import dataclasses
import fractions
import hashlib
import json
import pathlib
import secrets

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import costs
from dpjax.release.costs import Cost
from dpjax.report import files

Fraction = fractions.Fraction
Query = Mapping[str, object]
"""Public parameters of a release, of JSON types."""

VERSION = 2
# How a header begins: nothing else is ever repaired.
_START = b'{"adjacency": "'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget:
  """At most (epsilon, delta)-DP in all; delta 0 admits pure releases only."""
  epsilon: Fraction
  delta: Fraction

  def __post_init__(self):
    if self.epsilon <= 0:
      raise ValueError(f'budget epsilon must be positive, got {self.epsilon}')
    if self.delta:
      accounting.check_delta(float(self.delta))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
  """One release that was paid for.

  Attributes:
    number: counts from 1.
    cost: of the release.
    query: what was asked.
    seal: SHA-256 of the secret that its noise is made of.
    answer: SHA-256 of its answer, None until there is one.
  """
  number: int
  cost: Cost
  query: Query
  seal: str
  answer: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Account:
  """What a ledger says.

  Attributes:
    dataset: name of a data set in all its versions, None for one file.
    data: salted hash of that one file, else None.
    salt: of hashes of files.
    adjacency: of all guarantees.
    budget: of all entries together.
    entries: in order.
    digest: of the last line, '' before there is one.
  """
  dataset: str | None
  data: str | None
  salt: str
  adjacency: Adjacency
  budget: Budget
  entries: tuple[Entry, ...] = ()
  digest: str = ''

  def spent(self, *more: Cost) -> Fraction | float:
    """The epsilon that all entries, and `more`, take of the budget."""
    return costs.charged(
        [entry.cost for entry in self.entries] + list(more),
        budget=self.budget.epsilon, delta=self.budget.delta,
        adjacency=self.adjacency)

  def summary(self) -> dict[str, object]:
    """Returns what a release says of its ledger: nothing that hashes data."""
    return {'entry': len(self.entries), 'spent_epsilon': float(self.spent()),
            'budget_epsilon': float(self.budget.epsilon),
            'budget_delta': float(self.budget.delta)}

  def check_budget(self, cost: Cost) -> None:
    """Refuses a cost that, with all others, exceeds the budget."""
    after, budget = self.spent(cost), self.budget
    if after <= budget.epsilon:
      return
    if not budget.delta and cost.pure is None:
      raise ValueError('the ledger has delta 0: only releases without --delta')
    raise ValueError(
        f'the budget would be exceeded: epsilon {float(self.spent()):.6g} is '
        f'spent, {float(after):.6g} with this release, '
        f'{float(budget.epsilon):.6g} is the budget')

  def salted(self, sha256: str) -> str:
    """What identifies a file to who has it and the ledger, and to nobody else.

    Args:
      sha256: of the bytes of the file.
    """
    return hashlib.sha256(f'{self.salt} {sha256}'.encode()).hexdigest()

  def extended(self, body: dict[str, object]) -> 'Account':
    """The account after a line, without its digest.

    Raises:
      ValueError, KeyError: if the line cannot be the next.
    """
    kind, number = body['kind'], body['number']
    if kind == 'reserved':
      if number != len(self.entries) + 1:
        raise ValueError(f'number {number}')
      entry = Entry(number=number, cost=Cost.from_json(body['cost']),
                    query=body['query'], seal=body['seal'])
      return dataclasses.replace(self, entries=(*self.entries, entry))
    if kind != 'answered' or not 1 <= number <= len(self.entries):
      raise ValueError(f'{kind} {number}')
    entries = list(self.entries)
    if entries[number - 1].answer is not None:
      raise ValueError(f'{number} has an answer')
    entries[number - 1] = dataclasses.replace(entries[number - 1],
                                              answer=body['answer'])
    return dataclasses.replace(self, entries=tuple(entries))


def fresh(*, dataset: str | None, adjacency: Adjacency,
          budget: Budget) -> Account:
  """An account without a line; for one file if there is no name."""
  return Account(dataset=dataset, data=None, salt=secrets.token_hex(16),
                 adjacency=adjacency, budget=budget)


def read(path: files.Path) -> Account:
  """Reads and verifies a ledger; a torn last line was never written whole.

  Raises:
    FileNotFoundError: if there is none.
    ValueError: if a line is not what was written.
  """
  account, _ = parse(pathlib.Path(path).read_bytes(), path)
  if account is None:
    raise ValueError(f'{path} has no whole header: nothing was spent, and the '
                     'next release with --ledger_budget_epsilon makes it anew')
  return account


def described(account: Account) -> str:
  """What a ledger says, in lines, for whoever keeps it."""
  lines = [f'data set {account.dataset or "without a name: one file"}, '
           f'{account.adjacency.value}']
  for entry in account.entries:
    cost, asked = entry.cost, entry.query['query']
    parts = [f'{name} {value}' for name, value in (
        ('epsilon', cost.epsilon), ('rho', cost.rho)) if value is not None]
    counts = collections.Counter(cost.choices)
    parts += [f'{count} x epsilon {width}'
              for width, count in sorted(counts.items())]
    lines.append(f'{entry.number}: {asked["statistic"]} of '
                 f'{asked["column"] or "records"}, {cost.notion}, '
                 f'{", ".join(parts)}'
                 f'{"" if entry.answer else ", without an answer"}')
  fixed = costs.epsilon([entry.cost for entry in account.entries],
                        delta=account.budget.delta, adjacency=account.adjacency)
  return '\n'.join(lines + [
      f'spent: epsilon {float(account.spent()):.6g} of '
      f'{float(account.budget.epsilon):.6g}, at delta '
      f'{float(account.budget.delta):.6g}'
      + (f'; {float(fixed):.6g} if all queries were chosen before the first '
         'answer' if fixed < account.spent() else '')])


def with_line(account: Account, body: dict[str, object]
              ) -> tuple[Account, bytes]:
  """The account after one more line, and the line."""
  account = account.extended(body)
  digest, line = _chained(body, account.digest)
  return dataclasses.replace(account, digest=digest), line


def with_header(account: Account) -> tuple[Account, bytes]:
  """A fresh account after its header, and the header."""
  body = {'version': VERSION, 'dataset': account.dataset, 'salt': account.salt,
          'data': account.data, 'adjacency': account.adjacency.value,
          'epsilon': str(account.budget.epsilon),
          'delta': str(account.budget.delta)}
  digest, line = _chained(body, '')
  return dataclasses.replace(account, digest=digest), line


def parse(content: bytes, path: files.Path) -> tuple[Account | None, int]:
  """The account, None without a header, and the length of its whole lines.

  Raises:
    ValueError: if a line is not what was written, or the file is no ledger.
  """
  *lines, torn = content.split(b'\n')
  if not lines:
    # What a crash left of a header is written anew; other files are not.
    size = min(len(torn), len(_START))
    if torn[:size] != _START[:size]:
      raise ValueError(f'{path} is no ledger: give --ledger a new file')
    return None, 0
  account = None
  for number, line in enumerate(lines):
    try:
      body = json.loads(line)
      digest = body.pop('digest')
      if _chained(body, account.digest if account else '')[0] != digest:
        raise ValueError('digest')
      if account is None:
        _check_version(body['version'], path)
      account = dataclasses.replace(
          account.extended(body) if account else _account(body), digest=digest)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
      if isinstance(error, VersionError):
        raise
      raise ValueError(
          f'{path}: line {number + 1} is not what was written '
          f'({errors.one_line(error)})') from error
  return account, len(content) - len(torn)


class VersionError(ValueError):
  """Reports a ledger whose format is that of another version of dpjax."""


def _check_version(version: int, path: files.Path) -> None:
  if version != VERSION:
    raise VersionError(
        f'{path} is a ledger of format {version}, this version of dpjax writes '
        f'format {VERSION}: go on with the version that made it')


def _account(body: dict[str, object]) -> Account:
  return Account(
      dataset=body['dataset'], data=body['data'], salt=body['salt'],
      adjacency=Adjacency(body['adjacency']), budget=Budget(
          epsilon=Fraction(body['epsilon']), delta=Fraction(body['delta'])))


def _chained(body: dict[str, object], previous: str) -> tuple[str, bytes]:
  """The digest of a line, and the line."""
  text = json.dumps(body, sort_keys=True)
  digest = hashlib.sha256(f'{previous}{text}'.encode()).hexdigest()
  return digest, json.dumps({**body, 'digest': digest},
                            sort_keys=True).encode() + b'\n'
