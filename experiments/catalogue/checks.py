"""Checks that all names in the catalogue exist, and that it is complete."""

import ast
from collections.abc import Iterator, Sequence
import functools
import importlib
import inspect
import pathlib
from typing import Any

from experiments import registry
from experiments.catalogue import items
from experiments.catalogue.items import Item

ROOT = pathlib.Path(__file__).parents[2]
_OF_TESTS = 'tests.'


def problems(groups: Sequence[items.Group]) -> list[str]:
  """Returns a line for each error in the catalogue."""
  merged = [name for group in groups for item in group.items
            for name in item.merged]
  return [line for group in groups
          for line in (*_of_group(group, merged),
                       *(f'{group.name}/{item.id}: {what}'
                         for item in group.items for what in _of_item(item)))]


def find(name: str) -> Any:
  """Returns the object that a dotted name refers to.

  Raises:
    LookupError: there is none.
  """
  parts = name.split('.')
  for count in range(len(parts), 0, -1):
    try:
      value = importlib.import_module('.'.join(parts[:count]))
    except ModuleNotFoundError:
      continue
    try:
      return functools.reduce(getattr, parts[count:], value)
    except AttributeError as error:
      raise LookupError(f'no {name}') from error
  raise LookupError(f'no {name}')


def place(name: str) -> str:
  """Returns 'path:line' of a dotted name, relative to the root; '' if unknown.

  Raises:
    LookupError: there is none.
  """
  if name.startswith(_OF_TESTS):
    return _place_in_tests(name)
  value = inspect.unwrap(find(name))
  try:
    path = pathlib.Path(inspect.getsourcefile(value)).relative_to(ROOT)
    return f'{path}:{inspect.getsourcelines(value)[1] or 1}'
  except (TypeError, OSError, ValueError):
    return ''


def _place_in_tests(name: str) -> str:
  """Returns 'path:line' of a function of `tests`, by parsing its file.

  It is not imported, because other packages install a `tests` of their own.
  """
  module, _, function = name.rpartition('.')
  path = module.replace('.', '/') + '.py'
  try:
    return f'{path}:{line_of_test(f"{path}::{function}")}'
  except LookupError:
    raise LookupError(f'no {name}') from None


def line_of_test(test: str) -> int:
  """Returns the line number of a test 'tests/x_test.py::test_name'.

  Raises:
    LookupError: there is none.
  """
  path, _, name = test.partition('::')
  lines = _tests(path)
  if name not in lines:
    raise LookupError(f'no test {test}')
  return lines[name]


def _of_group(group: items.Group, merged: Sequence[str]) -> Iterator[str]:
  """Yields a line for each id that is missing, unexpected or repeated.

  Args:
    group: the group.
    merged: errata of all groups that another one replaces, as 'group/id'.
  """
  present = [item.id for item in group.items] + [
      name.partition('/')[2] for name in merged
      if name.startswith(f'{group.name}/')]
  for each in sorted(set(group.ids) - set(present)):
    yield f'{group.name}/{each}: is missing'
  for each in sorted(set(present) - set(group.ids)):
    yield f'{group.name}/{each}: is not in ids'
  for each in sorted({each for each in present if present.count(each) > 1}):
    yield f'{group.name}/{each}: stands there twice'


def _of_item(item: Item) -> Iterator[str]:
  """Yields a line for each field of an item that is wrong."""
  if item.paper not in items.PAPERS:
    yield f'paper must be one of {", ".join(items.PAPERS)}'
  if item.kind not in items.KINDS:
    yield f'kind must be one of {", ".join(items.KINDS)}'
  yield from _missing(item)
  for function in item.functions:
    try:
      (_place_in_tests if function.startswith(_OF_TESTS) else find)(function)
    except LookupError as error:
      yield str(error)
  for test in item.tests:
    try:
      line_of_test(test)
    except LookupError as error:
      yield str(error)
  for name in item.experiments:
    if name not in registry.EXPERIMENTS:
      yield f'no experiment {name}'
  for claim in item.claims:
    if claim.partition(':')[0] not in item.experiments:
      yield f'{claim!r} is of no experiment of this item'


def _missing(item: Item) -> Iterator[str]:
  """Yields a line for each field that items of this kind need and this lacks.

  A note excuses missing functions, tests and experiments.
  """
  needed = {'definition': ('functions', 'tests'),
            'claim': ('functions', 'tests'),
            'algorithm': ('functions', 'tests'),
            'artefact': ('experiments',), 'rule': ('tests',),
            **dict.fromkeys(items.ERRATA, ('tests',))}.get(item.kind, ())
  for field in needed:
    if not getattr(item, field) and not item.note:
      yield f'no {field}, and no note that says why'
  if item.kind in items.ERRATA and not (item.printed and item.holds):
    yield 'an erratum needs what is printed and what holds'
  if item.merged and item.kind not in items.ERRATA:
    yield 'only an erratum can replace others'
  names = {part for name in item.functions for part in name.split('.')[-2:]}
  files = {test.partition('::')[0] for test in item.tests}
  if names and files and not any(
      name in _text(path) for path in files for name in names):
    yield 'its tests name none of its functions'


@functools.cache
def _text(path: str) -> str:
  """Returns the text of a file; '' if there is none."""
  file = ROOT / path
  return file.read_text(encoding='utf-8') if file.is_file() else ''


@functools.cache
def _tests(path: str) -> dict[str, int]:
  """Returns name -> line, of all functions of a file."""
  return {node.name: node.lineno for node in ast.walk(ast.parse(_text(path)))
          if isinstance(node, ast.FunctionDef)}
