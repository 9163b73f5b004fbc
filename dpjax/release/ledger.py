"""A file that says what was spent on a data set, and refuses to overspend.

JSON lines. The first is the header: the data set, the adjacency and the total
budget. Each further one is a release, written and on disk *before* its noise is
drawn: a crash may waste budget, never spend it twice. An exclusive lock is held
from reading to writing. Each line carries a digest of itself and of the line
before, so that a changed, lost or moved line is seen; cutting off the last ones
is not, and who can write the file can make another: it is a record, no seal.

The file belongs to whoever keeps the data. It holds a salted hash of them,
which is not for publication.
"""

from collections.abc import Mapping
import dataclasses
import fractions
import hashlib
import json
import os
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
class Dataset:
  """Which data: the SHA-256 of the file, and a name if it has one.

  A ledger without a name is for the very bytes. One with a name is for that
  data set in all its versions: its budget bounds what all of them tell.
  """
  sha256: str
  name: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
  """One release: `number` counts from 1."""
  number: int
  cost: Cost
  query: Query
  digest: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Account:
  """What a ledger says; `data` is the salted hash, if there is no name."""
  dataset: str | None
  data: str | None
  salt: str
  adjacency: Adjacency
  budget: Budget
  entries: tuple[Entry, ...]
  digest: str

  def spent(self, *more: Cost) -> Fraction | float:
    """The epsilon of all entries, and of `more`, at the budget's delta."""
    return costs.spent([entry.cost for entry in self.entries] + list(more),
                       delta=self.budget.delta, adjacency=self.adjacency)

  def check(self, dataset: Dataset, adjacency: Adjacency) -> None:
    """Refuses another data set, or another adjacency."""
    if self.dataset != dataset.name:
      raise ValueError(f'the ledger is for data set {self.dataset!r}, not '
                       f'{dataset.name!r}')
    if self.data != _salted(self.salt, dataset):
      raise ValueError('the ledger is for another file: its bytes differ')
    if self.adjacency is not adjacency:
      raise ValueError(f'the ledger is for {self.adjacency.value}, not '
                       f'{adjacency.value}')


def read(path: files.Path) -> Account:
  """Reads and verifies a ledger; a torn last line was never spent.

  Raises:
    FileNotFoundError: if there is none.
    ValueError: if a line is not what was written.
  """
  return _parse(pathlib.Path(path).read_bytes(), path)[0]


def spend(path: files.Path, cost: Cost, *, dataset: Dataset,
          adjacency: Adjacency, query: Query,
          budget: Budget | None = None) -> Account:
  """Writes an entry, or refuses; noise may be drawn when it returns.

  Args:
    path: the ledger.
    cost: of the release.
    dataset: what it is about.
    adjacency: of its guarantee.
    query: its public parameters.
    budget: makes the ledger if there is none; must be that of the header
      otherwise. None for the header's.

  Returns:
    What the ledger says now; the entry is the last.

  Raises:
    ValueError: if the budget would be exceeded, or the ledger is for something
      else, or damaged. Nothing is spent then.
  """
  flags = os.O_RDWR | (os.O_CREAT if budget else 0)
  with _locked(path, flags) as descriptor:
    content = files.read_all(descriptor)
    account, size = _parse(content, path) if b'\n' in content else (None, 0)
    lines = b''
    if account is None:
      if budget is None:
        raise ValueError(f'ledger {path} is empty: give its budget')
      account, lines = _new(dataset, adjacency, budget)
    account.check(dataset, adjacency)
    if budget not in (None, account.budget):
      raise ValueError(f'the ledger has budget {account.budget.epsilon}, delta '
                       f'{account.budget.delta}: it cannot be changed')
    _check_budget(account, cost)
    account, line = _with_entry(account, cost, query)
    # What a crash left of a line goes: its noise was never drawn.
    os.ftruncate(descriptor, size)
    os.lseek(descriptor, size, os.SEEK_SET)
    _write(descriptor, lines + line)
    if lines:
      _sync_folder(path)
  return account


def recorded(path: files.Path, *, dataset: Dataset, adjacency: Adjacency,
             query: Query) -> dict | None:
  """The answer that was given to this query on this very file, if any.

  Giving it again tells nothing new, and is free. Where the ledger is for all
  versions of a data set there is none: it would tell that nothing has changed.
  """
  if not pathlib.Path(path).exists() or not pathlib.Path(path).stat().st_size:
    return None
  account = read(path)
  account.check(dataset, adjacency)
  for entry in () if dataset.name else account.entries:
    answer = _answer_path(path, entry)
    if entry.query == query and answer.exists():
      return json.loads(answer.read_text(encoding='utf-8'))
  return None


def record(path: files.Path, entry: Entry, answer: dict) -> None:
  """Keeps the answer of an entry beside the ledger, in PATH.answers."""
  target = _answer_path(path, entry)
  target.parent.mkdir(exist_ok=True)
  files.replace(target, json.dumps(answer, indent=2).encode())


def _locked(path: files.Path, flags: int):
  if not flags & os.O_CREAT and not pathlib.Path(path).exists():
    raise FileNotFoundError(f'no ledger {path}: give the budget it shall have')
  return files.locked(path, flags)


def _answer_path(path: files.Path, entry: Entry) -> pathlib.Path:
  return pathlib.Path(f'{path}.answers') / f'{entry.digest}.json'


def _check_budget(account: Account, cost: Cost) -> None:
  after, total = account.spent(cost), account.budget
  if after <= total.epsilon:
    return
  if not total.delta and cost.epsilon is None:
    raise ValueError('the ledger has delta 0: only releases without --delta')
  raise ValueError(
      f'the budget would be exceeded: epsilon {float(account.spent()):.6g} is '
      f'spent, {float(after):.6g} with this release, {float(total.epsilon):.6g}'
      ' is the budget')


def _salted(salt: str, dataset: Dataset) -> str | None:
  """What identifies a data set without a name."""
  return None if dataset.name else hashlib.sha256(
      f'{salt} {dataset.sha256}'.encode()).hexdigest()


def _sealed(body: dict, previous: str) -> tuple[str, bytes]:
  """The digest of a line, and the line."""
  text = json.dumps(body, sort_keys=True)
  digest = hashlib.sha256(f'{previous}{text}'.encode()).hexdigest()
  return digest, json.dumps({**body, 'digest': digest},
                            sort_keys=True).encode() + b'\n'


def _new(dataset: Dataset, adjacency: Adjacency,
         budget: Budget) -> tuple[Account, bytes]:
  salt = secrets.token_hex(16)
  body = {'version': 1, 'dataset': dataset.name, 'salt': salt,
          'data': _salted(salt, dataset), 'adjacency': adjacency.value,
          'epsilon': str(budget.epsilon), 'delta': str(budget.delta)}
  digest, line = _sealed(body, '')
  return _account(body, digest), line


def _account(body: dict, digest: str) -> Account:
  return Account(
      dataset=body['dataset'], data=body['data'], salt=body['salt'],
      adjacency=Adjacency(body['adjacency']),
      budget=Budget(epsilon=Fraction(body['epsilon']),
                    delta=Fraction(body['delta'])), entries=(), digest=digest)


def _with_entry(account: Account, cost: Cost,
                query: Query) -> tuple[Account, bytes]:
  body = {'number': len(account.entries) + 1, 'cost': cost.to_json(),
          'query': query}
  digest, line = _sealed(body, account.digest)
  return _extended(account, body, digest), line


def _parse(content: bytes, path: files.Path) -> tuple[Account, int]:
  """The account, and the length of its whole lines."""
  *lines, torn = content.split(b'\n')
  if not lines:
    raise ValueError(f'{path} holds no ledger')
  account = None
  for number, line in enumerate(lines):
    try:
      body = json.loads(line)
      digest = body.pop('digest')
      if _sealed(body, account.digest if account else '')[0] != digest:
        raise ValueError('digest')
      account = _extended(account, body, digest)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
      raise ValueError(
          f'{path}: line {number + 1} is not what was written '
          f'({errors.one_line(error)})') from error
  return account, len(content) - len(torn)


def _extended(account: Account | None, body: dict, digest: str) -> Account:
  if account is None:
    return _account(body, digest)
  if body['number'] != len(account.entries) + 1:
    raise ValueError(f'number {body["number"]}')
  entry = Entry(number=body['number'], cost=Cost.from_json(body['cost']),
                query=body['query'], digest=digest)
  return dataclasses.replace(account, entries=(*account.entries, entry),
                             digest=digest)


def _sync_folder(path: files.Path) -> None:
  """Puts the name of a new file on disk."""
  folder = os.open(pathlib.Path(path).absolute().parent, os.O_RDONLY)
  try:
    os.fsync(folder)
  finally:
    os.close(folder)


def _write(descriptor: int, data: bytes) -> None:
  """All of it, on disk when this returns."""
  while data:
    data = data[os.write(descriptor, data):]
  os.fsync(descriptor)
