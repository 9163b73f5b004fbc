"""These tests check that only a repository knows the commit of its code."""

import subprocess

import pytest

from dpjax.runs import environment


def _git(root, *arguments):
  subprocess.run(('git', '-C', root, '-c', 'user.name=a', '-c',
                  'user.email=a@b', *arguments), check=True,
                 capture_output=True)


@pytest.fixture
def repository(tmp_path):
  """Returns a repository with code and results in one commit."""
  root = tmp_path.resolve() / 'code'
  results = root / 'experiments' / 'toy' / 'results'
  results.mkdir(parents=True)
  (results / 'rows.csv').write_text('a')
  (root / 'code.py').write_text('a')
  _git(root, 'init', '-q')
  _git(root, 'add', '.')
  _git(root, 'commit', '-q', '-m', 'first')
  return root


def test_commit_of_a_repository(repository):
  clean = environment.commit(repository)
  assert len(clean) == 10 and int(clean, 16)
  results = repository / 'experiments' / 'toy' / 'results'
  (results / 'rows.csv').write_text('b')
  assert environment.commit(repository) == clean
  (repository / 'code.py').write_text('b')
  assert environment.commit(repository) == f'{clean}-dirty'


def test_commit_is_unknown_elsewhere(repository, tmp_path):
  assert environment.commit(tmp_path / 'none') == 'unknown'
  # The copy is installed inside the repository of something else.
  assert environment.commit(repository / 'experiments') == 'unknown'


def test_current_has_device_and_versions():
  current = environment.current()
  assert current.device and current.jax == current.versions['jax'] != 'unknown'
  assert current.versions['numpy'] != 'unknown'
  assert environment.current(4).device == f'4 x {current.device}'
  more = environment.current(optional=('pytest', 'no-such-package')).versions
  assert set(more) - set(current.versions) == {'pytest'}
