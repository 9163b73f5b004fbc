"""Reads the items of the catalogue from the `*.toml` files of this folder.

A file is a group of items about one subject. Its head lists the ids that it
must hold (`ids`, with ranges such as 'NET-01..12'), so that a lost item is
noticed. Then each `[[item]]` has the fields of `Item`.
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import pathlib
import re
import tomllib
from typing import Any

FOLDER = pathlib.Path(__file__).parent
PAPERS = {
    '000': 'Lalanne (2023)',
    '001': 'Lalanne, Garivier and Gribonval (2023)',
    '002': 'lecture notes, chapter 7', '003': 'Barczewski (2025)',
    '004': 'Barber and Duchi (2014)', 'beyond': 'beyond the five papers'}
"""Number of a paper -> how it is cited; docs/references.bib has the entries."""
KEYS = {
    'lalanne_2023': '000', 'lalanne_garivier_gribonval_2023': '001',
    'lecture_notes': '002', 'barczewski_2025': '003',
    'barber_duchi_2014': '004'}
"""Name of a paper on a command line -> its number; both are accepted."""
KINDS = {
    'definition': 'what something means',
    'claim': 'a theorem, fact or bound',
    'algorithm': 'a mechanism, estimator, model or method',
    'artefact': 'a table, figure or experiment',
    'false': 'an erratum: the printed statement does not hold',
    'loose': 'an erratum: the printed statement holds, with a better constant '
             'or condition, or with an assumption that the text leaves out',
    'wording': 'an erratum: a misprint, a notation or an attribution',
    'rule': 'a decision about how things are built',
}
ERRATA = ('false', 'loose', 'wording')
"""Kinds of items that are errata."""
_RANGE = re.compile(r'(.*?)(\d+)\.\.(\d+)')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Item:
  """One definition, claim, algorithm, artefact, rule or erratum.

  Attributes:
    group: name of the file without '.toml'.
    id: identifier, unique in its group.
    title: short description.
    paper: a name of `PAPERS`.
    place: theorem, section or lines in the paper.
    kind: a name of `KINDS`.
    functions: dotted names of the code that implements it.
    tests: tests that check it, as 'tests/package/x_test.py::test_name'.
    experiments: names of the experiments that measure it.
    claims: claims whose verdicts belong to it, as 'experiment: beginning'.
    printed: for an erratum, the statement in the paper.
    holds: for an erratum, the true statement, or the choice made here.
    note: reason why a function, test or experiment is missing.
    merged: errata that this one replaces, as 'group/id'. Their ids stay valid.
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
  merged: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Group:
  """The items of one file.

  Attributes:
    name: name of the file without '.toml'.
    title: subject of the items.
    ids: ids of the items that the file must hold.
    items: the items that it holds.
  """
  name: str
  title: str
  ids: tuple[str, ...]
  items: tuple[Item, ...]


def expand(ids: Sequence[str]) -> Iterator[str]:
  """Yields all ids, with ranges expanded: 'NET-01..03' gives three ids."""
  for each in ids:
    match = _RANGE.fullmatch(each)
    if match is None:
      yield each
      continue
    stem, first, last = match.groups()
    for number in range(int(first), int(last) + 1):
      yield f'{stem}{number:0{len(first)}d}'


def read(path: pathlib.Path) -> Group:
  """Returns the group of items in a file.

  Raises:
    ValueError: a field is missing, unknown or of the wrong type.
  """
  with path.open('rb') as file:
    head = tomllib.load(file)
  items = tuple(_item(path.stem, each) for each in head.get('item', ()))
  for field in ('title', 'ids'):
    if field not in head:
      raise ValueError(f'{path.name}: {field} is missing')
  return Group(path.stem, head['title'], tuple(expand(head['ids'])), items)


def groups(folder: pathlib.Path = FOLDER) -> tuple[Group, ...]:
  """Returns all groups, sorted by name."""
  return tuple(read(path) for path in sorted(folder.glob('*.toml')))


def _item(group: str, fields: Mapping[str, Any]) -> Item:
  """Returns an item from its TOML fields, after checking their types."""
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
