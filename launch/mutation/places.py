"""Finds the sources and tests of a package, and makes scratch copies."""

from collections.abc import Sequence
import pathlib
import shutil
import subprocess
from typing import NamedTuple


class Place(NamedTuple):
  """The code to mutate, and the tests that should notice faults in it.

  Attributes:
    root: git repository with the library and its tests.
    library: name of the library, a folder in `root`.
    package: name of a package of the library, or of a module directly in it.
    more_tests: further files or folders of tests, relative to `root`.
  """
  root: pathlib.Path
  library: str
  package: str
  more_tests: Sequence[str] = ()

  def sources(self) -> list[str]:
    """Returns the Python files of the package, relative to the root.

    Raises:
      ValueError: if there is no such library or package.
    """
    base = self.root / self.library
    if not (base / '__init__.py').exists():
      raise ValueError(f'no library {self.library!r} in {self.root}; name one '
                       'by --library, and its folder by --root')
    files = sorted((base / self.package).rglob('*.py')) or sorted(
        base.glob(f'{self.package}.py'))
    if not files or not self.package:
      known = sorted(path.parent.name for path in base.glob('*/__init__.py'))
      raise ValueError(f'no package {self.package!r} in {self.library}; there '
                       f'are {", ".join(known)}')
    return [str(path.relative_to(self.root)) for path in files]

  def tests(self) -> list[str]:
    """Returns the test files of the package and the further ones.

    Raises:
      ValueError: if a further one does not exist, or there are no tests.
    """
    tests = self.root / 'tests'
    paths = [*(tests / self.package).rglob('*_test.py'),
             *tests.glob(f'{self.package}_test.py')]
    for name in self.more_tests:
      path = self.root / name
      if not path.exists():
        raise ValueError(f'--tests: {name} is not there')
      paths += path.rglob('*_test.py') if path.is_dir() else [path]
    if not paths:
      raise ValueError(f'no tests in tests/{self.package}; name some by '
                       '--tests')
    return sorted({str(path.relative_to(self.root)) for path in paths})

  def helpers(self) -> list[str]:
    """Returns Python files beside the tests that are no tests."""
    folders = {(self.root / test).parent for test in self.tests()}
    return sorted(str(path.relative_to(self.root)) for folder in folders
                  for path in folder.glob('*.py')
                  if not path.name.endswith('_test.py'))


def copy(root: pathlib.Path, target: pathlib.Path) -> None:
  """Copies all files that git does not ignore; replaces an older copy.

  Raises:
    ValueError: if `root` is no git repository.
  """
  listed = subprocess.run(
      ['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'],
      cwd=root, capture_output=True, check=False)
  if listed.returncode:
    raise ValueError(f'{root} is no git repository; one is needed to list the '
                     'files to copy')
  shutil.rmtree(target, ignore_errors=True)
  for name in listed.stdout.decode().split('\0'):
    source = root / name
    if name and source.is_file():
      (target / name).parent.mkdir(parents=True, exist_ok=True)
      shutil.copy2(source, target / name)
