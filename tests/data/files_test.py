"""Tests dpjax.data.files: search, checksums, packing, download."""

import gzip
import hashlib
import pathlib
import zipfile

import pytest

from dpjax import unpacking
from dpjax.data import files

CONTENT = b'1,2,3\n' * 50
SPEC = files.FileSpec(
  name='toy.data', sha256=hashlib.sha256(CONTENT).hexdigest(),
  alternatives=('toy.data.gz',))


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch):
  monkeypatch.delenv('DPJAX_DATA_DIR', raising=False)


def _read(data_dir):
  return files.read(SPEC, 'toy', source='the shop', data_dir=data_dir)


def _write(path, content):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(content)


@pytest.mark.parametrize('place', [
  'toy/toy.data', 'toy.data', 'toy/toy.data.gz', 'toy.data.gz'])
@pytest.mark.parametrize('packed', [False, True])
def test_read_finds_plain_and_packed(tmp_path, place, packed):
  # Files are told by content: a browser may unpack a file and keep its name.
  _write(tmp_path / place, gzip.compress(CONTENT) if packed else CONTENT)
  assert _read(tmp_path) == CONTENT
  assert _read(str(tmp_path)) == CONTENT


def test_folder_of_the_data_set_comes_first(tmp_path):
  _write(tmp_path / 'toy.data', b'another data set with this file name')
  _write(tmp_path / 'toy' / 'toy.data.gz', gzip.compress(CONTENT))
  assert _read(tmp_path) == CONTENT


def test_variable_is_used_unless_an_argument_is_given(tmp_path, monkeypatch):
  _write(tmp_path / 'good' / 'toy.data', CONTENT)
  monkeypatch.setenv('DPJAX_DATA_DIR', str(tmp_path / 'good'))
  assert _read(None) == _read('') == CONTENT
  assert files.find(SPEC, 'toy', data_dir=tmp_path / 'empty') is None
  monkeypatch.setenv('DPJAX_DATA_DIR', '')
  assert files.find(SPEC, 'toy') is None


def test_home_is_expanded(tmp_path, monkeypatch):
  monkeypatch.setenv('HOME', str(tmp_path))
  assert files.resolve_data_dir('~/data') == tmp_path / 'data'


def test_missing_file_says_where_to_get_it(tmp_path):
  with pytest.raises(FileNotFoundError) as caught:
    _read(tmp_path)
  message = str(caught.value)
  assert message == (
    f'toy: toy.data not found (looked in {tmp_path / "toy"} and {tmp_path}); '
    f'get it from the shop, and let --data_dir or DPJAX_DATA_DIR point to its '
    f'folder')
  with pytest.raises(FileNotFoundError, match=r'\(looked in no folder\); get'):
    _read(None)


@pytest.mark.parametrize('pack', [bytes, gzip.compress])
def test_changed_content_is_refused(tmp_path, pack):
  changed = CONTENT[:-2] + b'4\n'
  _write(tmp_path / 'toy.data', pack(changed))
  digest = hashlib.sha256(changed).hexdigest()[:12]
  with pytest.raises(ValueError, match=(
      f'toy.data is not the original toy.data: its SHA-256 is {digest}..., '
      f'expected {SPEC.sha256[:12]}...$')):
    _read(tmp_path)


@pytest.mark.parametrize('damage', [
  lambda packed: packed[:-9],
  lambda packed: packed[:12] + b'\xff\xff\xff' + packed[15:],
  lambda packed: packed[:-8] + bytes(8),
])
def test_damaged_gzip_is_refused(tmp_path, damage):
  _write(tmp_path / 'toy.data.gz', damage(gzip.compress(CONTENT)))
  with pytest.raises(ValueError, match='toy.data.gz is a damaged gzip file: '):
    _read(tmp_path)


def _archive(tmp_path, **members):
  path = tmp_path / 'served.zip'
  with zipfile.ZipFile(path, 'w') as archive:
    for name, content in members.items():
      archive.writestr(f'folder/{name}.data', content)
  return path.as_uri()


def test_fetch_stores_verified_files(tmp_path):
  url = _archive(tmp_path, toy=CONTENT, other=b'not asked for')
  files.fetch((SPEC,), 'toy', url=url, data_dir=tmp_path / 'new')
  assert _read(tmp_path / 'new') == CONTENT
  stored = [path.name for path in (tmp_path / 'new' / 'toy').iterdir()]
  assert stored == ['toy.data']


def test_fetch_renames_what_is_complete_within_its_folder(
    tmp_path, monkeypatch):
  url, root = _archive(tmp_path, toy=CONTENT), tmp_path / 'new'
  renamed, replace = [], pathlib.Path.replace

  def spy(path, target):
    renamed.append((path, target, path.read_bytes()))
    return replace(path, target)

  monkeypatch.setattr(pathlib.Path, 'replace', spy)
  files.fetch((SPEC,), 'toy', url=url, data_dir=root)
  assert renamed == [
    (root / 'toy' / 'toy.data.part', root / 'toy' / 'toy.data', CONTENT)]
  # An existing folder is used.
  files.fetch((SPEC,), 'toy', url=url, data_dir=root)


@pytest.mark.parametrize('members, message', [
  ({'toy': b'changed'}, 'served.zip: toy.data is not the original toy.data'),
  ({'other': CONTENT}, 'served.zip does not contain \'toy.data\'$'),
])
def test_fetch_stores_nothing_wrong(tmp_path, members, message):
  url = _archive(tmp_path, **members)
  with pytest.raises(ValueError, match=message):
    files.fetch((SPEC,), 'toy', url=url, data_dir=tmp_path / 'new')
  assert not (tmp_path / 'new').exists()


def test_fetch_refuses_other_formats_and_missing_folder(tmp_path):
  (tmp_path / 'page.html').write_bytes(b'<html>moved</html>')
  url = (tmp_path / 'page.html').as_uri()
  with pytest.raises(ValueError, match='page.html is a damaged zip archive'):
    files.fetch((SPEC,), 'toy', url=url, data_dir=tmp_path)
  with pytest.raises(ValueError, match='needs --data_dir or DPJAX_DATA_DIR'):
    files.fetch((SPEC,), 'toy', url=url)
  with pytest.raises(OSError):
    files.fetch((SPEC,), 'toy', url=(tmp_path / 'no').as_uri(),
                data_dir=tmp_path)


def test_unknown_checksum_is_never_taken_as_right(tmp_path):
  unknown = files.FileSpec(name='toy.data', sha256='')
  _write(tmp_path / 'toy.data', CONTENT)
  with pytest.raises(ValueError, match='is not the original toy.data'):
    files.read(unknown, 'toy', source='the shop', data_dir=tmp_path)
  path = files.find(unknown, 'toy', data_dir=tmp_path)
  assert files.read_unverified(path) == CONTENT


def test_alternative_in_a_folder(tmp_path):
  spec = files.FileSpec(name='toy.data', sha256=SPEC.sha256,
                        alternatives=('unpacked/toy.data',))
  _write(tmp_path / 'toy' / 'unpacked' / 'toy.data', CONTENT)
  assert files.find(
    spec, 'toy', data_dir=tmp_path) == tmp_path / 'toy/unpacked/toy.data'


def test_what_unpacks_to_far_too_much_is_refused(tmp_path, monkeypatch):
  monkeypatch.setattr(unpacking, 'LEAST_LIMIT', 2**16)
  path = tmp_path / 'own.csv.gz'
  path.write_bytes(gzip.compress(bytes(2**16)))
  assert files.read_unverified(path) == bytes(2**16)
  path.write_bytes(gzip.compress(bytes(2**16 + 1)))
  with pytest.raises(ValueError, match='own.csv.gz unpacks to more than 65536'):
    files.read_unverified(path)
