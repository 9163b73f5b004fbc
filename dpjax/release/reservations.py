"""Releases under the lock of a ledger: check the data, pay, then draw noise.

`held` locks the ledger before the data are opened and until the answer is on
disk. If two processes ask the same query, the second waits until the first has
drawn its noise, and then gets the recorded answer. If a process dies, the
operating system hands its lock to the next one.

  1. `check`: checks the budget from public numbers, before the file is opened.
  2. `check_data`, `answer`: check that the file belongs to the ledger, and
     whether the query was answered on it.
  3. `reserve`: writes the entry, which is now paid, with the seal (hash) of a
     secret.
  4. `drawing`: noise is drawn from the secret.
  5. `commit`: writes the answer, then its hash in the ledger; then overwrites
     and removes the secret (`private_files.remove`). Nothing is printed before.

A process killed before step 3 has spent nothing. One killed between steps 3 and
5 has spent its cost and released nothing. The same query then finishes the
entry at no further cost. If the file is the same, so are noise and answer.

If the data have changed since, the noise is another. Whether they have is
private, so the cost, the number of the entry, the lines of the ledger and all
messages are the same in both cases.

After step 5 the same query gets the recorded answer if the ledger is for one
file. On a named data set it pays again, because a repeated answer would reveal
that the data have not changed.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import secrets
from typing import Any

from dpjax import private_files
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import ledger
from dpjax.release import streams
from dpjax.release.costs import Cost
from dpjax.release.ledger import Account
from dpjax.release.ledger import Budget
from dpjax.release.ledger import Entry
from dpjax.release.ledger import Query
from dpjax.report import files
from dpjax.tables import formats

_PRIVATE = 0o600
# Names of secrets and of temporary files of `files.replace`. Nothing else is
# removed from the folders, which may hold files of other programs.
_SECRET = re.compile(r'[0-9a-f]{64}|\.[0-9a-f]{64}\.\d+')
_DRAFT = re.compile(r'\.\d+\.json\.\d+')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reservation:
  """A release that is paid for, and the randomness of its noise.

  Attributes:
    entry: the entry of the ledger.
    account: the ledger with this entry as its last.
    below: draws uniform integers that the secret determines.
    resumed: whether an interrupted release is finished, at no cost.
  """
  entry: Entry
  account: Account
  below: streams.SecretStream
  resumed: bool


def folders(path: files.Path) -> tuple[pathlib.Path, pathlib.Path]:
  """Returns the folders of answers and of secrets that belong to a ledger."""
  return pathlib.Path(f'{path}.answers'), pathlib.Path(f'{path}.secrets')


@contextlib.contextmanager
def held(path: files.Path, *, dataset: str | None, adjacency: Adjacency,
         budget: Budget | None) -> Iterator['Held']:
  """Locks a ledger for one release.

  Args:
    path: path of the ledger.
    dataset: name of the data set, for a ledger of all its versions; None for
      a ledger of one file.
    adjacency: adjacency of the guarantee.
    budget: total budget. It creates the ledger if there is none, and must
      otherwise equal the budget of the ledger. None uses that of the ledger.

  Raises:
    FileNotFoundError: if there is no ledger and no budget is given.
    ValueError: if the ledger is for another data set, adjacency or budget, or
      is damaged.
    PermissionError: if users other than the owner may have written the ledger
      or a secret. (Answers are compared with their hashes in the ledger.)
  """
  if budget is None and not pathlib.Path(path).exists():
    raise FileNotFoundError(f'no ledger {path}: give a budget to create it')
  flags = os.O_RDWR | (os.O_CREAT if budget else 0)
  # Locked before it is read, so that no two processes spend the same budget.
  with files.locked(path, flags, _PRIVATE) as descriptor:
    content = files.read_all(descriptor)
    if content:
      # A user who may write the ledger could have erased what was spent.
      private_files.check_file(path, descriptor, writable_only=True)
    account, size = ledger.parse(content, path)
    if account is None:
      if budget is None:
        raise ValueError(f'ledger {path} is empty: give its budget')
      account = ledger.fresh(dataset=dataset, adjacency=adjacency,
                             budget=budget)
    _check(account, dataset, adjacency, budget)
    if os.fstat(descriptor).st_mode & 0o077:
      os.fchmod(descriptor, _PRIVATE)  # The ledger holds hashes of the data.
    # Cut an incomplete last line: the program did nothing after it crashed.
    os.ftruncate(descriptor, size)
    os.lseek(descriptor, size, os.SEEK_SET)
    try:
      yield Held(pathlib.Path(path), descriptor, account)
    finally:
      if not os.fstat(descriptor).st_size:
        os.unlink(path)


def _check(account: Account, dataset: str | None, adjacency: Adjacency,
           budget: Budget | None) -> None:
  """Raises ValueError if the ledger's public parameters differ from these."""
  if account.dataset != dataset:
    raise ValueError(f'the ledger is for data set {account.dataset!r}, not '
                     f'{dataset!r}')
  if account.adjacency is not adjacency:
    raise ValueError(f'the ledger is for {account.adjacency.value}, not '
                     f'{adjacency.value}')
  if budget not in (None, account.budget):
    raise ValueError(f'the ledger has budget {account.budget.epsilon}, delta '
                     f'{account.budget.delta}: it cannot be changed')


class Held:
  """A ledger whose lock this process holds; see `held`."""

  def __init__(self, path: pathlib.Path, descriptor: int, account: Account):
    """Removes secrets and temporary files of interrupted releases."""
    self.account = account
    self._path, self._descriptor = path, descriptor
    self._answers, self._secrets = folders(path)
    if os.path.lexists(self._secrets):
      private_files.make_folder(self._secrets)
    # Whoever has the secret of an answer can subtract its noise, so only those
    # of open entries are kept.
    open_seals = {entry.seal for entry in account.entries
                  if entry.answer is None and self._has_secret(entry)}
    for secret in self._secrets.glob('*'):
      if secret.name not in open_seals and _SECRET.fullmatch(secret.name):
        private_files.remove(secret)
    for draft in self._answers.glob('.*'):
      if _DRAFT.fullmatch(draft.name):
        draft.unlink()

  def check(self, query: Query, cost: Cost) -> None:
    """Raises ValueError if the release needs more budget than is left.

    It uses public numbers only, so its result and its running time are the
    same for all data.
    """
    if not self._interrupted(query, cost) and not self._answered(query):
      self.account.check_budget(cost)

  def check_data(self, sha256: str) -> None:
    """Checks that the file belongs to the ledger, if it is for one file.

    Raises:
      formats.FileError: 'changed'; this refusal depends on records.
    """
    account = self.account
    if account.data not in (None, account.salted(sha256)):
      raise formats.FileError('changed', 'the ledger is for another file: its '
                              'bytes differ')

  def answer(self, query: Query) -> dict[str, Any] | None:
    """Returns the recorded answer to this query on this file, or None.

    Raises:
      ValueError: if the file of the answer was changed.
    """
    entry = self._answered(query)
    if entry is None:
      return None
    content = self._answer_path(entry).read_bytes()
    if hashlib.sha256(content).hexdigest() != entry.answer:
      raise ValueError(f'{self._answer_path(entry)} was changed: restore it, '
                       'or remove it and pay again')
    return json.loads(content)

  def reserve(self, query: Query, cost: Cost, sha256: str) -> Reservation:
    """Pays for a release, or finds one that is paid; noise may follow.

    Args:
      query: public parameters of the release.
      cost: cost of all noise that will be drawn.
      sha256: SHA-256 of the file that was measured.
    """
    entry = self._interrupted(query, cost)
    data, resumed = self.account.salted(sha256), entry is not None
    if entry is None:
      self.account.check_budget(cost)
      if not self.account.digest:
        self._start(data)
      # Secret first, then line: a paid entry can always be finished.
      seal = self._kept(secrets.token_bytes(streams.SECRET_BYTES))
      self._write({'kind': 'reserved', 'query': query, 'cost': cost.to_json(),
                   'number': len(self.account.entries) + 1, 'seal': seal})
      entry = self.account.entries[-1]
    secret = private_files.read(self._secrets / entry.seal)
    # Other data give other noise: with equal noise, two answers would differ
    # by what has changed.
    context = json.dumps([query, data], sort_keys=True).encode()
    # The account as it was when paid: an interruption changes no answer.
    return Reservation(
        entry=entry, below=streams.SecretStream(secret, context),
        resumed=resumed, account=dataclasses.replace(
            self.account, entries=self.account.entries[:entry.number]))

  @contextlib.contextmanager
  def drawing(self, entry: Entry) -> Iterator[None]:
    """Gives up an entry whose answer fails; its cost stays spent."""
    try:
      yield
    except (MemoryError, OSError):
      # Lack of memory or disk space says nothing about the noise: the entry
      # stays open.
      raise
    except Exception:
      # The failure may depend on the noise. With the same secret the query
      # fails again on the same data, so another outcome shows other data.
      private_files.remove(self._secrets / entry.seal)
      raise

  def commit(self, entry: Entry, answer: dict[str, Any]) -> dict[str, Any]:
    """Writes an answer to disk and destroys the secret of its noise.

    Returns:
      The answer as later queries will read it.
    """
    # Answer first, then its hash, then the secret: after a crash the entry can
    # be finished, or has its answer. Without a sync a new name may be lost.
    content = json.dumps(answer, indent=2, allow_nan=False).encode()
    _make_folder(self._answers)
    files.replace(self._answer_path(entry), content, _PRIVATE)
    files.sync_folder(self._answers)
    self._write({'kind': 'answered', 'number': entry.number,
                 'answer': hashlib.sha256(content).hexdigest()})
    private_files.remove(self._secrets / entry.seal)
    files.sync_folder(self._secrets)
    return json.loads(content)

  def _answer_path(self, entry: Entry) -> pathlib.Path:
    return self._answers / f'{entry.number}.json'

  def _answered(self, query: Query) -> Entry | None:
    """Returns the entry whose answer can be repeated, or None.

    A ledger for all versions of a data set repeats no answer.
    """
    for entry in () if self.account.dataset else reversed(self.account.entries):
      if (entry.query == query and entry.answer is not None and
          self._answer_path(entry).exists()):
        return entry
    return None

  def _interrupted(self, query: Query, cost: Cost) -> Entry | None:
    """Returns a paid entry without an answer whose secret exists, or None."""
    # With another cost, as after a change of dpjax, it is another mechanism.
    for entry in self.account.entries:
      if (entry.query == query and entry.cost == cost and
          entry.answer is None and self._has_secret(entry)):
        return entry
    return None

  def _has_secret(self, entry: Entry) -> bool:
    path = self._secrets / entry.seal
    # A file whose content does not match its name is not a secret of ours.
    return (os.path.lexists(path) and
            _seal(private_files.read(path)) == entry.seal)

  def _kept(self, secret: bytes) -> str:
    """Writes a secret before the ledger line that names it; returns its seal.
    """
    _make_folder(self._secrets)
    files.replace(self._secrets / _seal(secret), secret, _PRIVATE)
    files.sync_folder(self._secrets)
    return _seal(secret)

  def _start(self, data: str) -> None:
    """Writes the header line of a new ledger."""
    if not self.account.dataset:
      self.account = dataclasses.replace(self.account, data=data)
    self.account, line = ledger.with_header(self.account)
    files.append(self._descriptor, line)
    files.sync_folder(self._path.absolute().parent)

  def _write(self, body: dict[str, Any]) -> None:
    account, line = ledger.with_line(self.account, body)
    files.append(self._descriptor, line)
    self.account = account


def _make_folder(folder: pathlib.Path) -> None:
  """Makes a private folder if there is none, and syncs it to disk."""
  if not folder.exists():
    folder.mkdir(0o700)
    files.sync_folder(folder.absolute().parent)


def _seal(secret: bytes) -> str:
  """Returns the hash that names a secret without revealing it."""
  return hashlib.sha256(b'seal' + secret).hexdigest()
