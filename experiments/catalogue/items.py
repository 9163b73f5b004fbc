"""Items of the papers, as `*.toml` beside this module tells of them.

A file is a group of items about one subject. Its head names the items that it
must hold (`ids`, with ranges such as 'NET-01..12'), so that one that is lost is
noticed; then each `[[item]]` has the fields of `Item`.
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import pathlib
import re
import tomllib
from typing import Any

FOLDER = pathlib.Path(__file__).parent
PAPERS = {
    '000': 'thesis 000', '001': 'paper 001', '002': 'lecture 002',
    '003': 'thesis 003', '004': 'paper 004',
    'beyond': 'beyond the five papers'}
KINDS = {
    'definition': 'what something means',
    'claim': 'a theorem, fact or bound',
    'algorithm': 'a mechanism, estimator, model or method',
    'artefact': 'a table, figure or experiment',
    'erratum': 'a false or loose claim',
    'rule': 'a decision about how things are built',
}
_RANGE = re.compile(r'(.*?)(\d+)\.\.(\d+)')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Item:
  """One item.

  Attributes:
    group: of which file it is.
    id: unique in its group.
    title: what it is, in a few words.
    paper: a name of `PAPERS`.
    place: theorem, section or lines in the text.
    kind: a name of `KINDS`.
    functions: dotted names of what realises it.
    tests: `tests/room/x_test.py::test_name` of what checks it.
    experiments: names of experiments that measure it.
    claims: 'experiment: how a claim begins', of verdicts about it.
    printed: of an erratum, what the paper says.
    holds: of an erratum, what is true, or what is done here.
    note: why there is no function, test or experiment, where there is none.
  """
  group: str
  id: str
  title: str
  paper: str
  place: str
  kind: str
  functions: tuple[str, ...] = ()
  tests: tuple[str, ...] = ()
  experiments: tuple[str, ...] = ()
  claims: tuple[str, ...] = ()
  printed: str = ''
  holds: str = ''
  note: str = ''


@dataclasses.dataclass(frozen=True)
class Group:
  """The items of a file.

  Attributes:
    name: of the file.
    title: what they are about.
    ids: of items that it must hold.
    items: that it holds.
  """
  name: str
  title: str
  ids: tuple[str, ...]
  items: tuple[Item, ...]


def expand(ids: Sequence[str]) -> Iterator[str]:
  """'NET-01..03' -> NET-01, NET-02, NET-03; of others themselves."""
  for each in ids:
    found = _RANGE.fullmatch(each)
    if found is None:
      yield each
      continue
    stem, first, last = found.groups()
    for number in range(int(first), int(last) + 1):
      yield f'{stem}{number:0{len(first)}d}'


def read(path: pathlib.Path) -> Group:
  """A file as a group.

  Raises:
    ValueError: it is not of the form above; the message names the item.
  """
  with path.open('rb') as file:
    head = tomllib.load(file)
  items = tuple(_item(path.stem, each) for each in head.get('item', ()))
  for field in ('title', 'ids'):
    if field not in head:
      raise ValueError(f'{path.name}: {field} is missing')
  return Group(path.stem, head['title'], tuple(expand(head['ids'])), items)


def groups(folder: pathlib.Path = FOLDER) -> tuple[Group, ...]:
  """All groups, by name."""
  return tuple(read(path) for path in sorted(folder.glob('*.toml')))


def _item(group: str, fields: Mapping[str, Any]) -> Item:
  name = f'{group}: {fields.get("id", "an item without id")}'
  known = {field.name: field for field in dataclasses.fields(Item)}
  for key, value in fields.items():
    if key not in known or key == 'group':
      raise ValueError(f'{name}: no field {key!r}')
    several = known[key].default == () and key != 'id'
    if not isinstance(value, list if several else str):
      raise ValueError(f'{name}: {key} must be '
                       f'{"a list" if several else "a string"}')
  values = {key: tuple(value) if isinstance(value, list) else value
            for key, value in fields.items()}
  try:
    return Item(group=group, **values)
  except TypeError as error:
    raise ValueError(f'{name}: {error}') from error
