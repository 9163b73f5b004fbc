"""The ledger of a data set: which releases were paid for, and their cost.

A ledger is a file of JSON lines. The first line is the header: the data set,
the adjacency and the total budget. A 'reserved' line pays for one release; it
is on disk before noise is drawn. An 'answered' line holds the SHA-256 of the
answer, which lies in the folder PATH.answers.

Each line has a digest of itself and of the line before, so that a changed, lost
or moved line is detected, and so is a changed answer. Cutting off the last
lines is not detected, and whoever can write the file can forge another: a
ledger is a record, not a protection against its owner.

The file belongs to the data owner. It holds a salted hash of the data and must
not be published. `reservations` writes it.
"""

import collections
from collections.abc import Mapping
import dataclasses
import fractions
import hashlib
import json
import pathlib
import secrets
from typing import Any

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import costs
from dpjax.release.costs import Cost
from dpjax.report import files

Fraction = fractions.Fraction
Query = Mapping[str, Any]
"""Public parameters of a release, as JSON types."""

VERSION = 2
# First bytes of a header. Only a file that starts so is repaired after a crash.
_START = b'{"adjacency": "'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget:
  """Total budget: (epsilon, delta)-DP; delta 0 admits pure releases only."""
  epsilon: Fraction
  delta: Fraction

  def __post_init__(self) -> None:
    if self.epsilon <= 0:
      raise ValueError(f'budget epsilon must be positive, got {self.epsilon}')
    if self.delta:
      accounting.check_delta(float(self.delta))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
  """One release that was paid for.

  Attributes:
    number: position in the ledger, from 1.
    cost: privacy cost of the release.
    query: public parameters of the release.
    seal: SHA-256 of the secret that determines the noise.
    answer: SHA-256 of the answer, None until the answer is on disk.
  """
  number: int
  cost: Cost
  query: Query
  seal: str
  answer: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Account:
  """The content of a ledger.

  Attributes:
    dataset: name of a data set, for a ledger of all its versions; None for a
      ledger of one file.
    data: salted hash of that one file, else None.
    salt: salt of the hashes of files.
    adjacency: adjacency of all guarantees.
    budget: total budget of all entries.
    entries: releases in the order in which they were paid.
    digest: digest of the last line, '' for a ledger without lines.
  """
  dataset: str | None
  data: str | None
  salt: str
  adjacency: Adjacency
  budget: Budget
  entries: tuple[Entry, ...] = ()
  digest: str = ''

  def spent(self, *more: Cost) -> Fraction | float:
    """Returns the epsilon of the budget that all entries and `more` spend."""
    return costs.charged(
        [entry.cost for entry in self.entries] + list(more),
        budget=self.budget.epsilon, delta=self.budget.delta,
        adjacency=self.adjacency)

  def summary(self) -> dict[str, object]:
    """Returns what a release states of the ledger: no hash of the data."""
    return {'entry': len(self.entries), 'spent_epsilon': float(self.spent()),
            'budget_epsilon': float(self.budget.epsilon),
            'budget_delta': float(self.budget.delta)}

  def check_budget(self, cost: Cost) -> None:
    """Raises ValueError if the entries and this cost exceed the budget."""
    # Fractions are compared, so a budget of 0.3 pays for 0.1 three times.
    after, budget = self.spent(cost), self.budget
    if after <= budget.epsilon:
      return
    if not budget.delta and cost.pure is None:
      raise ValueError('the ledger has delta 0: it allows only releases '
                       'without --delta')
    raise ValueError(
        f'the budget would be exceeded: epsilon {float(self.spent()):.6g} is '
        f'spent, {float(after):.6g} with this release, '
        f'{float(budget.epsilon):.6g} is the budget')

  def salted(self, sha256: str) -> str:
    """Returns a hash that identifies a file to holders of file and ledger.

    Args:
      sha256: SHA-256 of the bytes of the file, as hexadecimal digits.
    """
    return hashlib.sha256(f'{self.salt} {sha256}'.encode()).hexdigest()

  def extended(self, body: Mapping[str, Any]) -> 'Account':
    """Returns the account after one more line, with the digest unchanged.

    Raises:
      ValueError, KeyError: if the line cannot follow those before it.
    """
    kind, number = body['kind'], body['number']
    if kind == 'reserved':
      if number != len(self.entries) + 1:
        raise ValueError(f'entry {number} is out of order')
      entry = Entry(number=number, cost=Cost.from_json(body['cost']),
                    query=body['query'], seal=body['seal'])
      return dataclasses.replace(self, entries=(*self.entries, entry))
    if kind != 'answered' or not 1 <= number <= len(self.entries):
      raise ValueError(f'no entry {number} can be {kind}')
    entries = list(self.entries)
    if entries[number - 1].answer is not None:
      raise ValueError(f'entry {number} has an answer already')
    entries[number - 1] = dataclasses.replace(entries[number - 1],
                                              answer=body['answer'])
    return dataclasses.replace(self, entries=tuple(entries))


def fresh(*, dataset: str | None, adjacency: Adjacency,
          budget: Budget) -> Account:
  """Returns an account without lines; it is for one file if `dataset` is None.
  """
  # A salt keeps two ledgers of one file from having the same hash of it.
  return Account(dataset=dataset, data=None, salt=secrets.token_hex(16),
                 adjacency=adjacency, budget=budget)


def read(path: files.Path) -> Account:
  """Reads and verifies a ledger; ignores an incomplete last line.

  Raises:
    FileNotFoundError: if there is no such file.
    ValueError: if a line was changed, or if the file has no complete header.
  """
  account, _ = parse(pathlib.Path(path).read_bytes(), path)
  if account is None:
    raise ValueError(f'{path} has an incomplete header: nothing was spent; the '
                     'next release with --ledger_budget_epsilon rewrites it')
  return account


def described(account: Account) -> str:
  """Returns the content of a ledger as text, for the data owner."""
  lines = [f'data set {account.dataset or "without a name: one file"}, '
           f'{account.adjacency.value}']
  for entry in account.entries:
    cost, query = entry.cost, entry.query['query']
    parts = [f'{name} {value}' for name, value in (
        ('epsilon', cost.epsilon), ('rho', cost.rho)) if value is not None]
    counts = collections.Counter(cost.choices)
    parts += [f'{count} x epsilon {width}'
              for width, count in sorted(counts.items())]
    lines.append(f'{entry.number}: {query["statistic"]} of '
                 f'{query["column"] or "records"}, {cost.notion}, '
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


def with_line(account: Account, body: Mapping[str, Any]
              ) -> tuple[Account, bytes]:
  """Returns the account after one more line, and the line itself."""
  account = account.extended(body)
  digest, line = _chained(body, account.digest)
  return dataclasses.replace(account, digest=digest), line


def with_header(account: Account) -> tuple[Account, bytes]:
  """Returns a fresh account with its header written, and the header line."""
  body = {'version': VERSION, 'dataset': account.dataset, 'salt': account.salt,
          'data': account.data, 'adjacency': account.adjacency.value,
          'epsilon': str(account.budget.epsilon),
          'delta': str(account.budget.delta)}
  digest, line = _chained(body, '')
  return dataclasses.replace(account, digest=digest), line


def parse(content: bytes, path: files.Path) -> tuple[Account | None, int]:
  """Returns the account (None without a header) and the bytes of whole lines.

  Raises:
    ValueError: if a line was changed, or if the file is not a ledger.
  """
  # What follows the last line break was cut off by a crash.
  *lines, torn = content.split(b'\n')
  if not lines:
    # A header that a crash left incomplete is rewritten; other files are not.
    size = min(len(torn), len(_START))
    if torn[:size] != _START[:size]:
      raise ValueError(f'{path} is not a ledger: give --ledger a new file')
    return None, 0
  account = None
  for number, line in enumerate(lines):
    try:
      body = json.loads(line)
      digest = body.pop('digest')
      if _chained(body, account.digest if account else '')[0] != digest:
        raise ValueError('its digest differs')
      if account is None:
        _check_version(body['version'], path)
      account = dataclasses.replace(
          account.extended(body) if account else _account(body), digest=digest)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
      if isinstance(error, VersionError):
        raise
      raise ValueError(
          f'{path}: line {number + 1} was changed after it was written '
          f'({errors.one_line(error)})') from error
  return account, len(content) - len(torn)


class VersionError(ValueError):
  """Raised for a ledger in the format of another version of dpjax."""


def _check_version(version: int, path: files.Path) -> None:
  if version != VERSION:
    raise VersionError(
        f'{path} is a ledger of format {version}, this version of dpjax writes '
        f'format {VERSION}: use the version of dpjax that made it')


def _account(body: Mapping[str, Any]) -> Account:
  return Account(
      dataset=body['dataset'], data=body['data'], salt=body['salt'],
      adjacency=Adjacency(body['adjacency']), budget=Budget(
          epsilon=Fraction(body['epsilon']), delta=Fraction(body['delta'])))


def _chained(body: Mapping[str, Any], previous: str) -> tuple[str, bytes]:
  """Returns the digest of a line, which covers the line before, and the line.
  """
  text = json.dumps(body, sort_keys=True)
  digest = hashlib.sha256(f'{previous}{text}'.encode()).hexdigest()
  return digest, json.dumps({**body, 'digest': digest},
                            sort_keys=True).encode() + b'\n'
