"""Files that hold secrets: read only if nobody else can have written them.

Noise is secret as long as its key is. Whoever can write into the folder where a
program looks for a key can put one there that they know, and subtract the noise
from what is released. So a folder of secrets has to belong to the user who runs
the program, a file as well, and no other user may have any permission on
either; symbolic links are refused, because they lead to what somebody else
chose. What is refused is named, and nothing is read from it.

The check and the reading see one open file, so that it cannot be exchanged in
between. Folders are checked by their path: the folder above must not be
writable by users who are not trusted. The superuser can do everything.
"""

import os
import pathlib
import stat

Path = str | os.PathLike

_OTHERS = 0o077
_WRITABLE = 0o022


def check_folder(folder: Path) -> None:
  """Refuses a folder of secrets that others may enter or that is not ours.

  Args:
    folder: of secrets; it must be there.

  Raises:
    PermissionError: if it is no folder, belongs to another user, or if others
      have any permission on it.
  """
  _check(folder, os.lstat(folder), stat.S_ISDIR, 'folder', _OTHERS)


def make_folder(folder: Path) -> None:
  """Makes a folder that its owner alone may enter (mode 0700).

  A folder that is there already is closed to others, if it is ours and they
  could not write to it until now: what they could have put there, it may hold.

  Raises:
    PermissionError: if a folder that is there is not to be trusted, or if its
      file system does not keep permissions.
  """
  folder = pathlib.Path(folder)
  try:
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700)
  except FileExistsError:
    allowed = _WRITABLE if any(folder.glob('*')) else 0
    _check(folder, os.lstat(folder), stat.S_ISDIR, 'folder', allowed)
    folder.chmod(0o700)
  check_folder(folder)


def read(path: Path) -> bytes:
  """Returns the content of a file of secrets.

  Raises:
    FileNotFoundError: if it is not there.
    PermissionError: if it is no regular file, belongs to another user, or if
      others have any permission on it.
  """
  # A link is opened by nobody, and a pipe does not wait for its writer.
  flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
  if os.path.islink(path):
    raise PermissionError(_message(path, 'file', 'it is a symbolic link'))
  descriptor = os.open(path, flags)
  with os.fdopen(descriptor, 'rb') as file:
    check_file(path, descriptor)
    return file.read()


def check_file(path: Path, descriptor: int | None = None, *,
               writable_only: bool = False) -> None:
  """Refuses a file of secrets that is not ours, or that others may use.

  Args:
    path: of the file, for messages.
    descriptor: of the file where it is open; None looks at the path.
    writable_only: refuse permissions of others to write, not those to read.

  Raises:
    PermissionError: see `read`.
  """
  status = os.lstat(path) if descriptor is None else os.fstat(descriptor)
  _check(path, status, stat.S_ISREG, 'file',
         _WRITABLE if writable_only else _OTHERS)


def check_tree(folder: Path) -> None:
  """Refuses a folder of secrets if it or anything below it is refused.

  Raises:
    PermissionError: see `check_folder` and `read`.
  """
  check_folder(folder)
  for above, folders, names in os.walk(folder):
    for name in folders:
      check_folder(os.path.join(above, name))
    for name in names:
      check_file(os.path.join(above, name))


def remove(path: Path) -> None:
  """Overwrites a file of secrets with zeros, and removes it.

  On a disk that writes in place, nothing is left of it. Solid-state disks, file
  systems that copy on write, snapshots and backups may keep what was
  overwritten; that is not in reach of a program, but of an encrypted disk.

  Args:
    path: of a file; a link is removed, and not what it leads to.

  Raises:
    FileNotFoundError: if it is not there.
  """
  status = os.lstat(path)
  if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
      os.pwrite(descriptor, bytes(status.st_size), 0)
      os.fsync(descriptor)
    finally:
      os.close(descriptor)
  os.unlink(path)


def _check(path: Path, status: os.stat_result, is_kind, kind: str,
           refused: int) -> None:
  reason = None
  if stat.S_ISLNK(status.st_mode):
    reason = 'it is a symbolic link'
  elif not is_kind(status.st_mode):
    reason = f'it is no {"regular file" if kind == "file" else kind}'
  elif status.st_uid != os.geteuid():
    reason = f'it belongs to user {status.st_uid}, not to {os.geteuid()}'
  elif status.st_mode & refused:
    reason = ('other users have permissions on it (mode '
              f'{stat.S_IMODE(status.st_mode):04o})')
  if reason is not None:
    raise PermissionError(_message(path, kind, reason))


def _message(path: Path, kind: str, reason: str) -> str:
  return (f'{path} is not used as a private {kind}, since {reason}: somebody '
          'else may have written the secrets in it, or know them; remove it, '
          'or use another folder, on a file system that keeps permissions')
