"""The committed table of surviving mutants, and the file of equivalent ones."""

from collections.abc import Sequence
import pathlib
import re
import tomllib
from typing import NamedTuple

from dpjax.report import tables
from launch.mutation import operators
from launch.mutation import outcomes

MOST_SURVIVORS = .05
"""Largest acceptable fraction of survivors among mutants that matter."""

_TITLE = '''# Faults that the tests do not notice

`python -m launch.mutate --package=PACKAGE` plants small faults in one package,
one at a time, runs the default tests that execute the changed line, and
replaces the section of that package below. Reasons why a fault is equivalent,
that is, changes nothing that a test could or should notice, are kept by hand in
`mutants.toml`.
'''
_COLUMNS = ('file', 'line', 'fault', 'as it is', 'with the fault', 'outcome',
            'equivalent, because')


class Equivalent(NamedTuple):
  """A mutant that no test can or should notice.

  Attributes:
    file: path of the source.
    before: the changed lines without the fault.
    after: the changed lines with the fault.
    reason: why the fault changes nothing that matters.
  """
  file: str
  before: str
  after: str
  reason: str


def read_equivalents(path: pathlib.Path) -> list[Equivalent]:
  """Reads the file of equivalent mutants; a missing file has none.

  Raises:
    ValueError: if an entry lacks a field, has other fields, or an empty one.
  """
  if not path.exists():
    return []
  try:
    entries = tomllib.loads(path.read_text(encoding='utf-8'))
  except tomllib.TOMLDecodeError as error:
    raise ValueError(f'{path}: {error}') from None
  equivalents = []
  for entry in entries.get('mutant', []):
    if set(entry) != set(Equivalent._fields) or not all(
        isinstance(value, str) and value for value in entry.values()):
      raise ValueError(f'{path}: a mutant must have the texts '
                       f'{", ".join(Equivalent._fields)}, got {entry}')
    equivalents.append(Equivalent(**entry))
  return equivalents


def reason(mutant: operators.Mutant,
           equivalents: Sequence[Equivalent]) -> str:
  """Returns why a mutant is equivalent; '' if it is not known to be."""
  return next((one.reason for one in equivalents
               if one[:3] == (mutant.file, mutant.before, mutant.after)), '')


def survivors(tried: Sequence[outcomes.Outcome],
              equivalents: Sequence[Equivalent]) -> tuple[int, int]:
  """Counts surviving mutants, and all mutants, apart from equivalent ones."""
  harmful = [one for one in tried
             if one.is_noticed() or not reason(one.mutant, equivalents)]
  return sum(not one.is_noticed() for one in harmful), len(harmful)


def section(package: str, tried: Sequence[outcomes.Outcome],
            equivalents: Sequence[Equivalent], *, num_all: int,
            seed: int) -> str:
  """Returns the section of a package in the table.

  Args:
    package: name of the package.
    tried: outcomes of all drawn mutants.
    equivalents: known equivalent mutants.
    num_all: number of mutants that the package has.
    seed: seed of the draw.
  """
  alive = [one for one in tried if not one.is_noticed()]
  bad, harmful = survivors(tried, equivalents)
  hung = sum(one.outcome == outcomes.HUNG for one in tried)
  lines = [
      f'## {package}', '',
      f'{len(tried)} of about {num_all} mutants were drawn with seed {seed}. '
      f'Tests notice {len(tried) - len(alive)} of them, {hung} by hanging; '
      f'{len(alive)} survive, of which {len(tried) - harmful} are equivalent. '
      f'{bad} of {harmful} that matter survive.', '']
  if alive:
    lines.append(tables.markdown(_COLUMNS, [
        (one.mutant.file, one.mutant.line, one.mutant.operator,
         _code(one.mutant.before), _code(one.mutant.after),
         one.outcome, reason(one.mutant, equivalents))
        for one in sorted(alive)]))
  return '\n'.join(lines).rstrip() + '\n'


def _code(text: str) -> str:
  """Returns code as the cell of a Markdown table."""
  return '`' + text.replace('|', '\\|').replace('`', "'") + '`'


def update(path: pathlib.Path, package: str, text: str) -> None:
  """Replaces the section of a package in the table; keeps the others."""
  old = path.read_text(encoding='utf-8') if path.exists() else ''
  sections = {part.split('\n')[0].removeprefix('## '): part.rstrip() + '\n'
              for part in re.split(r'^(?=## )', old, flags=re.M)[1:]}
  sections[package] = text
  path.write_text('\n'.join([_TITLE, *(
      sections[name] for name in sorted(sections))]), encoding='utf-8')
