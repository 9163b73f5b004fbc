"""Converts this project's docstrings to Markdown and resolves their names."""

from collections.abc import Iterable, Iterator, Mapping
import itertools
import re
from typing import Any

_SECTIONS = ('Args', 'Attributes', 'Examples', 'Raises', 'Returns', 'Yields')
_SECTION = re.compile(rf'({"|".join(_SECTIONS)}):$')
_ITEM = re.compile(r'\s*([-+*]|\d+\.)\s')
# A line that begins like this starts a list item, a heading or a quotation.
_MARKER = re.compile(r'\s*(?:([-+*]|\d+\.)\s|([#>]))')
# The form in which pdoc writes other section headings, so it leaves this as is.
_HEADING = '###### Examples:'


def to_markdown(docstring: str) -> str:
  """Turns formulas and interactive sessions into verbatim blocks.

  Lines indented below a text are a formula or a table of names. Lines indented
  below a list item belong to the item, and those below a section heading to
  the section.
  """
  lines, kept = docstring.splitlines(), []
  while lines:
    line = lines.pop(0)
    kept.append(line)
    if line == 'Examples:':
      kept[-1] = _HEADING
      kept += _fenced(_indented(lines), 'pycon')
    elif _SECTION.match(line):
      kept += [re.sub(r'^(  )(\*+)(?=\w+:)', _escape, part)
               for part in _indented(lines)]
    elif _ITEM.match(line):
      kept += _indented(lines)
    elif lines and _is_block(lines):
      kept += _fenced(_indented(lines), '')
  return '\n'.join(kept)


def unintended(docstring: str) -> Iterator[str]:
  """Yields lines that would be misrendered, each with the reason.

  These are lines in the middle of a text that start like an item or a heading,
  entries with hanging indentation, and columns outside of a verbatim block.
  """
  before, in_block = '', False
  for line in to_markdown(docstring).splitlines():
    in_block ^= line.startswith('```')
    marker = _MARKER.match(line)
    begins = (not before.strip() or before.endswith(':') or
              _ITEM.match(before) or _margin(before) > _margin(line))
    if in_block or line == _HEADING:
      pass
    elif marker and (marker[2] or not begins):
      yield f'starts with {marker[0].strip()!r}: {line.strip()}'
    elif re.search(r'\S {3,}\S', line) and not line.startswith('|'):
      yield f'columns outside of a block: {line.strip()}'
    before = line
  for line, follows in itertools.pairwise(docstring.splitlines()):
    if (line.strip() and not _margin(line) and follows.strip() and
        _margin(follows) and not line.endswith(':') and not _ITEM.match(line)):
      yield f'hangs, and is no item of a list: {line}'


def resolve(dotted: str, module: str,
            modules: Mapping[str, Any]) -> tuple[str, str] | None:
  """Resolves a dotted reference to a module and a name in it.

  Args:
    dotted: such as `stopping.integers_of`, where `stopping` may be a module
      beside the referring one, in a package around it, or imported by it.
    module: the module whose docstring has the reference.
    modules: all modules by dotted name.

  Returns:
    The longest module that the name begins with, and the rest, which need not
    exist; None if the name does not begin with a module.
  """
  first = dotted.split('.')[0]
  parents = module.split('.')
  scopes = ['.'.join(parents[:n]) for n in range(len(parents), 0, -1)]
  named = [f'{scope}.{dotted}' for scope in scopes
           if f'{scope}.{first}' in modules] + [dotted]
  imported = vars(modules[module].obj).get(first)
  if getattr(imported, '__name__', None) in modules:
    named.insert(0, imported.__name__ + dotted[len(first):])
  candidates = _all_split(named, modules)
  if not candidates:
    candidates = _all_split(
        [f'{name}{dotted[len(first):]}' for name in modules
         if name.split('.')[-1] == first], modules)
    candidates = [pair for pair in candidates if exists(*pair, modules)]
    return candidates[0] if len(candidates) == 1 else None
  return next((pair for pair in candidates if exists(*pair, modules)),
              candidates[0])


def exists(module: str, name: str, modules: Mapping[str, Any]) -> bool:
  """Returns whether a module has this name, documented or not."""
  page = modules[module]
  if not name or page.get(name) is not None:
    return True
  item = page.obj
  for part in name.split('.'):
    if not hasattr(item, part):
      return False
    item = getattr(item, part)
  return True


def _all_split(names: Iterable[str],
               modules: Mapping[str, Any]) -> list[tuple[str, str]]:
  """Splits the names that begin with a module, as `_split` does."""
  pairs = (_split(name, modules) for name in names)
  return [pair for pair in pairs if pair is not None]


def _split(dotted: str,
           modules: Mapping[str, Any]) -> tuple[str, str] | None:
  """Splits a name into its longest module and the rest; None without one."""
  parts = dotted.split('.')
  for size in range(len(parts), 0, -1):
    if '.'.join(parts[:size]) in modules:
      return '.'.join(parts[:size]), '.'.join(parts[size:])
  return None


def _is_block(lines: list[str]) -> bool:
  """Returns whether an indented block follows, maybe after an empty line."""
  return next((line for line in lines if line.strip()), '').startswith(
      '  ') and (lines[0].startswith('  ') or not lines[0].strip())


def _indented(lines: list[str]) -> list[str]:
  """Removes and returns the indented lines at the start, and blanks between."""
  taken = []
  while lines and (lines[0].startswith(' ') or
                   not lines[0].strip() and _is_block(lines)):
    taken.append(lines.pop(0))
  return taken


def _fenced(block: list[str], language: str) -> list[str]:
  """Returns a block in code fences, without its common indentation."""
  block = '\n'.join(block).strip('\n').splitlines()
  margin = min(_margin(line) for line in block if line)
  return ['', f'```{language}', *(line[margin:] for line in block), '```', '']


def _margin(line: str) -> int:
  """Returns the indentation of a line."""
  return len(line) - len(line.lstrip())


def _escape(stars: re.Match[str]) -> str:
  """Escapes the stars of an argument such as *args, which mean emphasis."""
  return stars[1] + '\\*' * len(stars[2])
