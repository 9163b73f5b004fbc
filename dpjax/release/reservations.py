"""One release at a time on a ledger: budget first, then data, then noise.

`held` locks the ledger from before the data are opened until the answer is on
disk. Of two processes with the same query the second waits, for as long as the
first reads the file and draws, and gets the recorded answer; the system gives
the lock of a process that died to the next one.

  1. `check`: the budget, from public numbers alone, before the file is opened.
  2. `check_data`, `answer`: whether it is the file of the ledger, and whether
     the query was answered on it.
  3. `reserve`: the entry is on disk, paid, and with it the seal of a secret.
  4. `drawing`: noise is drawn from the secret.
  5. `commit`: the answer is on disk, then its hash in the ledger, then the
     secret is overwritten and removed (`private_files.remove`). Nothing is
     printed before.

A process that is killed before 3 has spent nothing. Killed between 3 and 5, it
has spent, and told nothing. The same query then finishes the entry, at no
further cost: with the same noise, and so the same answer, if the file is the
same. Noise is made of the secret and of the hash of the file, so that another
version of a named data set has other noise: equal noise on two versions would
tell their difference. Both look alike to who sees the release: the cost, the
number of the entry, the lines of the ledger and all messages are the same,
because whether the data have changed is private. Killed after 5, the same query
gets the recorded answer where the ledger is for one file; a named data set pays
again, because an answer given again would tell that nothing changed.
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

from dpjax import private_files
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import formats
from dpjax.release import ledger
from dpjax.release import streams
from dpjax.release.costs import Cost
from dpjax.release.ledger import Account, Budget, Entry, Query
from dpjax.report import files

_PRIVATE = 0o600
# The names of secrets, and of drafts of `files.replace`: nothing else is
# removed from the folders, which may hold files of somebody else.
_SECRET = re.compile(r'[0-9a-f]{64}|\.[0-9a-f]{64}\.\d+')
_DRAFT = re.compile(r'\.\d+\.json\.\d+')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reservation:
  """A release that is paid for, and the randomness of its noise.

  Attributes:
    entry: of the ledger.
    account: the ledger as it was with this entry as the last.
    below: draws uniform integers from the secret.
    resumed: whether an interrupted release is finished: nothing is spent.
  """
  entry: Entry
  account: Account
  below: streams.SecretStream
  resumed: bool


def folders(path: files.Path) -> tuple[pathlib.Path, pathlib.Path]:
  """Returns the folders beside a ledger: of its answers and of its secrets."""
  return pathlib.Path(f'{path}.answers'), pathlib.Path(f'{path}.secrets')


@contextlib.contextmanager
def held(path: files.Path, *, dataset: str | None, adjacency: Adjacency,
         budget: Budget | None) -> Iterator['Held']:
  """Locks a ledger for one release.

  Args:
    path: of the ledger.
    dataset: the name of the data set, if its ledger is for all versions.
    adjacency: of the guarantee.
    budget: makes the ledger if there is none, and must else be that of the
      ledger. None for that of the ledger.

  Raises:
    FileNotFoundError: if there is no ledger and no budget for one.
    ValueError: if the ledger is for something else, or damaged.
    PermissionError: if others than its owner may have written the ledger or a
      secret beside it. Answers are compared with their hashes in the ledger.
  """
  if budget is None and not pathlib.Path(path).exists():
    raise FileNotFoundError(f'no ledger {path}: give the budget it shall have')
  flags = os.O_RDWR | (os.O_CREAT if budget else 0)
  with files.locked(path, flags, _PRIVATE) as descriptor:
    content = files.read_all(descriptor)
    if content:
      private_files.check_file(path, descriptor, writable_only=True)
    account, size = ledger.parse(content, path)
    if account is None:
      if budget is None:
        raise ValueError(f'ledger {path} is empty: give its budget')
      account = ledger.fresh(dataset=dataset, adjacency=adjacency,
                             budget=budget)
    _check(account, dataset, adjacency, budget)
    if os.fstat(descriptor).st_mode & 0o077:
      os.fchmod(descriptor, _PRIVATE)  # It holds hashes of the data.
    # What a crash left of a line goes: nothing was done after it.
    os.ftruncate(descriptor, size)
    os.lseek(descriptor, size, os.SEEK_SET)
    try:
      yield Held(pathlib.Path(path), descriptor, account)
    finally:
      if not os.fstat(descriptor).st_size:
        os.unlink(path)


def _check(account: Account, dataset: str | None, adjacency: Adjacency,
           budget: Budget | None) -> None:
  """Refuses a ledger that is for something else, by what is public."""
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
  """A ledger that this process holds the lock of; see `held`."""

  def __init__(self, path: pathlib.Path, descriptor: int, account: Account):
    """Removes what interrupted releases have left and nobody needs."""
    self.account = account
    self._path, self._descriptor = path, descriptor
    self._answers, self._secrets = folders(path)
    if os.path.lexists(self._secrets):
      private_files.make_folder(self._secrets)
    wanted = {entry.seal for entry in account.entries
              if entry.answer is None and self._has_secret(entry)}
    for secret in self._secrets.glob('*'):
      if secret.name not in wanted and _SECRET.fullmatch(secret.name):
        private_files.remove(secret)
    for draft in self._answers.glob('.*'):
      if _DRAFT.fullmatch(draft.name):
        draft.unlink()

  def check(self, query: Query, cost: Cost) -> None:
    """Refuses a release that needs budget which is not there.

    It sees public numbers only: what it does, and how long it takes, is the
    same for all data.
    """
    if not self._interrupted(query, cost) and not self._answered(query):
      self.account.check_budget(cost)

  def check_data(self, sha256: str) -> None:
    """Refuses another file than that of the ledger, if it is for one file.

    Raises:
      formats.FileError: 'changed'; it depends on records.
    """
    account = self.account
    if account.data not in (None, account.salted(sha256)):
      raise formats.FileError('changed', 'the ledger is for another file: its '
                              'bytes differ')

  def answer(self, query: Query) -> dict | None:
    """The answer that was given to this query on this very file, if any.

    Raises:
      ValueError: if its file is not what was written.
    """
    entry = self._answered(query)
    if entry is None:
      return None
    content = self._answer_path(entry).read_bytes()
    if hashlib.sha256(content).hexdigest() != entry.answer:
      raise ValueError(f'{self._answer_path(entry)} is not the answer that was '
                       'given: put it back, or remove it and pay again')
    return json.loads(content)

  def reserve(self, query: Query, cost: Cost, sha256: str) -> Reservation:
    """Pays for a release, or finds that it is paid; noise may be drawn then.

    Args:
      query: what is asked.
      cost: of all noise that will be drawn.
      sha256: of the file that was measured.
    """
    entry = self._interrupted(query, cost)
    data, resumed = self.account.salted(sha256), entry is not None
    if not resumed:
      self.account.check_budget(cost)
      if not self.account.digest:
        self._start(data)
      seal = self._kept(secrets.token_bytes(streams.SECRET_BYTES))
      self._write({'kind': 'reserved', 'query': query, 'cost': cost.to_json(),
                   'number': len(self.account.entries) + 1, 'seal': seal})
      entry = self.account.entries[-1]
    secret = private_files.read(self._secrets / entry.seal)
    context = json.dumps([query, data], sort_keys=True).encode()
    return Reservation(
        entry=entry, below=streams.SecretStream(secret, context),
        resumed=resumed, account=dataclasses.replace(
            self.account, entries=self.account.entries[:entry.number]))

  @contextlib.contextmanager
  def drawing(self, entry: Entry) -> Iterator[None]:
    """Gives an entry up if making its answer fails; what was paid stays paid.

    What failed tells of the noise, so the entry is not to be drawn for again on
    other data; and the same noise would fail again on the same. What the
    machine lacks, memory or room on the disk, tells nothing of it.
    """
    try:
      yield
    except (MemoryError, OSError):
      raise
    except Exception:
      private_files.remove(self._secrets / entry.seal)
      raise

  def commit(self, entry: Entry, answer: dict) -> dict:
    """Puts an answer on disk and destroys the secret of its noise.

    Returns:
      The answer as it will be given again.
    """
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
    """The entry whose answer is given again; none for all versions."""
    for entry in () if self.account.dataset else reversed(self.account.entries):
      if (entry.query == query and entry.answer is not None and
          self._answer_path(entry).exists()):
        return entry
    return None

  def _interrupted(self, query: Query, cost: Cost) -> Entry | None:
    """An entry that is paid and not answered, and whose secret is here."""
    for entry in self.account.entries:
      if (entry.query == query and entry.cost == cost and
          entry.answer is None and self._has_secret(entry)):
        return entry
    return None

  def _has_secret(self, entry: Entry) -> bool:
    path = self._secrets / entry.seal
    return (os.path.lexists(path) and
            _seal(private_files.read(path)) == entry.seal)

  def _kept(self, secret: bytes) -> str:
    """Puts a secret on disk, before the line that names it; its seal."""
    _make_folder(self._secrets)
    files.replace(self._secrets / _seal(secret), secret, _PRIVATE)
    files.sync_folder(self._secrets)
    return _seal(secret)

  def _start(self, data: str) -> None:
    """Writes the header of a new ledger."""
    if not self.account.dataset:
      self.account = dataclasses.replace(self.account, data=data)
    self.account, line = ledger.with_header(self.account)
    files.append(self._descriptor, line)
    files.sync_folder(self._path.absolute().parent)

  def _write(self, body: dict[str, object]) -> None:
    account, line = ledger.with_line(self.account, body)
    files.append(self._descriptor, line)
    self.account = account


def _make_folder(folder: pathlib.Path) -> None:
  """Makes a private folder that outlasts a loss of power, if there is none."""
  if not folder.exists():
    folder.mkdir(0o700)
    files.sync_folder(folder.absolute().parent)


def _seal(secret: bytes) -> str:
  """What names a secret and does not tell it."""
  return hashlib.sha256(b'seal' + secret).hexdigest()
