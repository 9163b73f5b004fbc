"""Files that hold secrets: read only if no other user can have written them.

Noise is secret only as long as its key is. Anyone who can write into the folder
where a program looks for a key can put a key there that they know, and subtract
the noise from the released values. So a folder of secrets and each file in it
must belong to the user who runs the program, and no other user may have any
permission on them. Symbolic links are rejected, because they lead to a place
that somebody else may have chosen. Errors name the rejected path; nothing is
read from it.

The check and the read use the same open file, so the file cannot be exchanged
in between. Folders are checked by their path, so untrusted users must not be
able to write to the parent folder. These checks do not protect against the
superuser.
"""

from collections.abc import Callable
import os
import pathlib
import stat

Path = str | os.PathLike[str]

# Permission bits of group and others: any permission, and write permission.
_OTHERS = 0o077
_WRITABLE = 0o022


def check_folder(folder: Path) -> None:
  """Checks that a folder of secrets is ours and closed to other users.

  Args:
    folder: an existing folder of secrets.

  Raises:
    PermissionError: if the path is not a folder, belongs to another user, or
      other users have any permission on it.
  """
  _check(folder, os.lstat(folder), stat.S_ISDIR, 'folder', _OTHERS)


def make_folder(folder: Path) -> None:
  """Creates a folder that only its owner can enter (mode 0700).

  An existing folder is closed to other users, provided that it is ours. If it
  has content, other users must not have had write permission until now, since
  they could have placed files in it.

  Raises:
    PermissionError: if an existing folder cannot be trusted, or if its file
      system does not store permissions.
  """
  folder = pathlib.Path(folder)
  try:
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700)
  except FileExistsError:
    refused = _WRITABLE if any(folder.glob('*')) else 0
    _check(folder, os.lstat(folder), stat.S_ISDIR, 'folder', refused)
    folder.chmod(0o700)
  check_folder(folder)


def read(path: Path) -> bytes:
  """Returns the content of a file of secrets.

  Raises:
    FileNotFoundError: if the file does not exist.
    PermissionError: if the path is not a regular file, belongs to another user,
      or other users have any permission on it.
  """
  # O_NOFOLLOW rejects a link that is placed here after the test below, and
  # O_NONBLOCK keeps a pipe from blocking until it has a writer.
  flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
  if os.path.islink(path):
    raise PermissionError(_message(path, 'file', 'it is a symbolic link'))
  descriptor = os.open(path, flags)
  with os.fdopen(descriptor, 'rb') as file:
    check_file(path, descriptor)
    return file.read()


def check_file(path: Path, descriptor: int | None = None, *,
               writable_only: bool = False) -> None:
  """Checks that a file of secrets is ours and closed to other users.

  Args:
    path: path of the file; used in messages.
    descriptor: descriptor of the open file; None checks the path instead.
    writable_only: reject write permissions of other users, allow read
      permissions.

  Raises:
    PermissionError: see `read`.
  """
  status = os.lstat(path) if descriptor is None else os.fstat(descriptor)
  _check(path, status, stat.S_ISREG, 'file',
         _WRITABLE if writable_only else _OTHERS)


def check_tree(folder: Path) -> None:
  """Checks a folder of secrets and every folder and file below it.

  Raises:
    PermissionError: see `check_folder` and `read`.
  """
  check_folder(folder)
  for parent, folders, names in os.walk(folder):
    for name in folders:
      check_folder(os.path.join(parent, name))
    for name in names:
      check_file(os.path.join(parent, name))


def remove(path: Path) -> None:
  """Overwrites a file of secrets with zeros, and removes it.

  On a disk that writes in place, no copy of the content remains. Solid-state
  disks, copy-on-write file systems, snapshots and backups may keep the old
  content; a program cannot prevent that, an encrypted disk can.

  Args:
    path: path of the file; a link is removed, its target is not.

  Raises:
    FileNotFoundError: if the file does not exist.
  """
  status = os.lstat(path)
  # A file with further hard links is not overwritten: they share its content.
  if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
      os.pwrite(descriptor, bytes(status.st_size), 0)
      os.fsync(descriptor)
    finally:
      os.close(descriptor)
  os.unlink(path)


def _check(path: Path, status: os.stat_result,
           is_kind: Callable[[int], bool], kind: str, refused: int) -> None:
  """Raises `PermissionError` for a wrong kind, owner or permission bits."""
  reason = None
  if stat.S_ISLNK(status.st_mode):
    reason = 'it is a symbolic link'
  elif not is_kind(status.st_mode):
    reason = f'it is not a {"regular file" if kind == "file" else kind}'
  elif status.st_uid != os.geteuid():
    reason = f'it belongs to user {status.st_uid}, not to {os.geteuid()}'
  elif status.st_mode & refused:
    reason = ('other users have permissions on it (mode '
              f'{stat.S_IMODE(status.st_mode):04o})')
  if reason is not None:
    raise PermissionError(_message(path, kind, reason))


def _message(path: Path, kind: str, reason: str) -> str:
  """Returns the error message for a rejected path."""
  return (f'{path} is not used as a private {kind}, since {reason}: somebody '
          'else may have written the secrets in it, or know them; remove it, '
          'or use another folder, on a file system that keeps permissions')
