"""Whether what the catalogue names is there, and nothing is missing."""

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
  """A line for each thing that is wrong."""
  return [line for group in groups
          for line in (*_of_group(group),
                       *(f'{group.name}/{item.id}: {what}'
                         for item in group.items for what in _of_item(item)))]


def find(name: str) -> Any:
  """Returns the object of a dotted name.

  Raises:
    LookupError: there is none.
  """
  parts = name.split('.')
  for count in range(len(parts), 0, -1):
    try:
      found = importlib.import_module('.'.join(parts[:count]))
    except ModuleNotFoundError:
      continue
    try:
      return functools.reduce(getattr, parts[count:], found)
    except AttributeError as error:
      raise LookupError(f'no {name}') from error
  raise LookupError(f'no {name}')


def place(name: str) -> str:
  """Returns the file and line of a dotted name, from the root; '' if unknown.

  Raises:
    LookupError: there is none.
  """
  if name.startswith(_OF_TESTS):
    return _place_in_tests(name)
  found = inspect.unwrap(find(name))
  try:
    path = pathlib.Path(inspect.getsourcefile(found)).relative_to(ROOT)
    return f'{path}:{inspect.getsourcelines(found)[1] or 1}'
  except (TypeError, OSError, ValueError):
    return ''


def _place_in_tests(name: str) -> str:
  """Returns the place of a function of `tests`, from its file.

  It is not imported: other packages install a `tests` of their own.
  """
  module, _, function = name.rpartition('.')
  path = module.replace('.', '/') + '.py'
  try:
    return f'{path}:{line_of_test(f"{path}::{function}")}'
  except LookupError:
    raise LookupError(f'no {name}') from None


def line_of_test(test: str) -> int:
  """Returns the line of `tests/x_test.py::test_name` in its file.

  Raises:
    LookupError: there is none.
  """
  path, _, name = test.partition('::')
  lines = _tests(path)
  if name not in lines:
    raise LookupError(f'no test {test}')
  return lines[name]


def _of_group(group: items.Group) -> Iterator[str]:
  found = [item.id for item in group.items]
  for each in sorted(set(group.ids) - set(found)):
    yield f'{group.name}/{each}: is missing'
  for each in sorted(set(found) - set(group.ids)):
    yield f'{group.name}/{each}: is not in ids'
  for each in sorted({each for each in found if found.count(each) > 1}):
    yield f'{group.name}/{each}: stands there twice'


def _of_item(item: Item) -> Iterator[str]:
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
  """What an item of its kind must have; a note says why it has not."""
  needed = {'definition': ('functions', 'tests'),
            'claim': ('functions', 'tests'),
            'algorithm': ('functions', 'tests'),
            'artefact': ('experiments',), 'erratum': ('tests',),
            'rule': ('tests',)}.get(item.kind, ())
  for field in needed:
    if not getattr(item, field) and not item.note:
      yield f'no {field}, and no note that says why'
  if item.kind == 'erratum' and not (item.printed and item.holds):
    yield 'an erratum needs what is printed and what holds'
  names = {part for name in item.functions for part in name.split('.')[-2:]}
  files = {test.partition('::')[0] for test in item.tests}
  if names and files and not any(
      name in _text(path) for path in files for name in names):
    yield 'its tests name none of its functions'


@functools.cache
def _text(path: str) -> str:
  file = ROOT / path
  return file.read_text(encoding='utf-8') if file.is_file() else ''


@functools.cache
def _tests(path: str) -> dict[str, int]:
  return {node.name: node.lineno for node in ast.walk(ast.parse(_text(path)))
          if isinstance(node, ast.FunctionDef)}
