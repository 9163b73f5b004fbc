"""Tests that files that others can have written are not read as secrets."""

import os

import pytest

from dpjax import private_files


@pytest.fixture(name='folder')
def _folder(tmp_path):
  """Returns a private folder with one private file."""
  folder = tmp_path / 'private'
  private_files.make_folder(folder)
  (folder / 'key').write_bytes(b'secret')
  (folder / 'key').chmod(0o600)
  return folder


def _of_another_user(path, monkeypatch):
  """Changes the user, since only the superuser can give files away."""
  del path
  monkeypatch.setattr(os, 'geteuid', lambda user=os.geteuid(): user + 1)


def _link(path, monkeypatch):
  del monkeypatch
  path.rename(path.with_name('elsewhere'))
  path.symlink_to(path.with_name('elsewhere'))


def _other_kind(path, monkeypatch):
  """Replaces a file by a pipe, and a folder by a file."""
  del monkeypatch
  is_folder = path.is_dir()
  path.rename(path.with_name('elsewhere'))
  if is_folder:
    path.touch(0o600)
  else:
    os.mkfifo(path, 0o600)


def _open(mode):
  return lambda path, monkeypatch: path.chmod(path.stat().st_mode | mode)


_FAULTS = {
    'it belongs to user': _of_another_user,
    'it is a symbolic link': _link,
    'it is not a (regular file|folder)': _other_kind,
    r'\(mode 0.40\)': _open(0o040),
    r'\(mode 0.02\)': _open(0o002),
    r'\(mode 0.20\)': _open(0o020),
}


@pytest.mark.parametrize('reason', _FAULTS)
def test_what_others_may_have_written_is_refused(reason, folder, monkeypatch):
  assert private_files.read(folder / 'key') == b'secret'
  private_files.check_tree(folder)
  _FAULTS[reason](folder / 'key', monkeypatch)
  with pytest.raises(PermissionError, match=f'key is not used .*{reason}'):
    private_files.read(folder / 'key')
  with pytest.raises(PermissionError, match=reason):
    private_files.check_tree(folder)


@pytest.mark.parametrize('reason', _FAULTS)
def test_so_is_a_folder(reason, folder, monkeypatch):
  private_files.check_folder(folder)
  _FAULTS[reason](folder, monkeypatch)
  with pytest.raises(PermissionError, match=f'private is not used .*{reason}'):
    private_files.check_folder(folder)


# In a tree, a file in place of a folder is no fault.
@pytest.mark.parametrize('reason', [
    reason for reason in _FAULTS if not reason.startswith('it is no')])
def test_so_is_a_folder_below(reason, folder, tmp_path, monkeypatch):
  tmp_path.chmod(0o700)
  _FAULTS[reason](folder, monkeypatch)
  with pytest.raises(PermissionError, match=reason):
    private_files.check_tree(tmp_path)


def test_a_folder_that_only_its_owner_wrote_to_is_closed(tmp_path):
  folder = tmp_path / 'readable'
  folder.mkdir()
  folder.chmod(0o755)
  (folder / 'file').write_text('ours')
  private_files.make_folder(folder)
  assert folder.stat().st_mode & 0o777 == 0o700
  folder.chmod(0o777)
  with pytest.raises(PermissionError, match='mode 0777'):
    private_files.make_folder(folder)
  assert folder.stat().st_mode & 0o777 == 0o777
  # The folder is empty now, so nobody can have put anything there.
  (folder / 'file').unlink()
  private_files.make_folder(folder)
  assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_does_not_keep_permissions_is_refused(tmp_path,
                                                            monkeypatch):
  folder = tmp_path / 'foreign'
  folder.mkdir(mode=0o777)
  folder.chmod(0o777)
  monkeypatch.setattr(type(folder), 'chmod', lambda path, mode: None)
  with pytest.raises(PermissionError, match='keeps permissions'):
    private_files.make_folder(folder)


def test_what_is_not_there_is_not_there(tmp_path):
  with pytest.raises(FileNotFoundError):
    private_files.read(tmp_path / 'key')


def test_what_is_removed_is_overwritten(folder, monkeypatch):
  """A removed file is overwritten; removing links changes no content."""
  with open(folder / 'key', 'rb') as file:
    private_files.remove(folder / 'key')
    assert file.read() == bytes(len(b'secret'))
  assert not list(folder.iterdir())
  for link in (os.link, os.symlink):
    (folder / 'other').write_bytes(b'kept')
    link(folder / 'other', folder / 'key')
    private_files.remove(folder / 'key')
    assert (folder / 'other').read_bytes() == b'kept'
    assert [path.name for path in folder.iterdir()] == ['other']
  with pytest.raises(FileNotFoundError):
    private_files.remove(folder / 'key')
