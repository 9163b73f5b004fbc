"""Finds the bugs of the zoo: each module of `bugs` has one, named BUG.

A user adds a bug in one file: in the folder `bugs`, or anywhere, by its path.
"""

import functools
import importlib
import importlib.util
import pathlib
import types

from dpjax import errors
from experiments.audit_zoo import bug

_FOLDER = pathlib.Path(__file__).parent / 'bugs'


@functools.cache
def names() -> tuple[str, ...]:
  """Returns the names of all bugs of the zoo, sorted; imports none of them."""
  return tuple(sorted(path.stem for path in _FOLDER.glob('*.py')
                      if not path.stem.startswith('_')))


def load(name: str) -> bug.Bug:
  """Returns a bug by its name, or by the path of a Python file of the user.

  Raises:
    ValueError: if no bug has this name, or its file defines no bug.
  """
  if name.endswith('.py'):
    return _bug_of(_module_at(pathlib.Path(name)), pathlib.Path(name).stem)
  if name not in names():
    raise ValueError(f'no bug {name!r} in the zoo'
                     f'{errors.did_you_mean(name, names())}; a file of your '
                     'own ends in .py')
  return _bug_of(importlib.import_module(
      f'experiments.audit_zoo.bugs.{name}'), name)


def bugs() -> tuple[bug.Bug, ...]:
  """Returns all bugs of the zoo, sorted by name."""
  return tuple(load(name) for name in names())


def _module_at(path: pathlib.Path) -> types.ModuleType:
  """Runs a Python file and returns its module."""
  spec = importlib.util.spec_from_file_location(path.stem, path)
  if spec is None or spec.loader is None or not path.is_file():
    raise ValueError(f'{path} is not a Python file')
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def _bug_of(module: types.ModuleType, name: str) -> bug.Bug:
  """Returns the bug that a module defines, after a check of its name."""
  value = getattr(module, 'BUG', None)
  if not isinstance(value, bug.Bug):
    raise ValueError(f'{name}.py has no BUG of type experiments.audit_zoo.bug'
                     '.Bug')
  if value.name != name:
    raise ValueError(f'the bug of {name}.py has the name {value.name!r}; a '
                     'bug and its file have the same name')
  return value
