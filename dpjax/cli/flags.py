"""Flags: those that several commands share, and the table of each command.

absl keeps the flags of a process in one table, FLAGS, in which a name can
be defined once. Commands use the same names for different things, so each one
defines its flags in tables of its own, one for each heading of its help. Many
commands can then be imported together, and one of them is run:
`errors.parse_groups` parses its flags.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import textwrap
from typing import TypeVar

from absl import flags

Number = TypeVar('Number', int, float)

Groups = Mapping[str, flags.FlagValues]
"""Heading in the help of a command -> the flags below it."""

OUTPUT_DIR = flags.DEFINE_string(
    'output_dir', None, 'Folder to write to; created if missing.')
DATA_DIR = flags.DEFINE_string(
    'data_dir', None, 'Folder with one folder for each data set. Default: the '
    'environment variable DPJAX_DATA_DIR.')
TRACEBACK = flags.DEFINE_bool(
    'traceback', False, 'Show the full traceback of an error.')

_WIDTH = 80  # columns of the help


def add_shared(table: flags.FlagValues, *names: str) -> flags.FlagValues:
  """Adds flags that are defined above to a command's table; returns it."""
  for name in names:
    table[name] = flags.FLAGS[name]
  return table


def numbers(name: str, text: str,
            kind: Callable[[str], Number]) -> list[Number]:
  """Returns the numbers in the comma-separated value of a flag.

  Args:
    name: name of the flag, for errors.
    text: value of the flag.
    kind: int or float.

  Raises:
    ValueError: one line, if a part is not a number.
  """
  try:
    return [kind(part) for part in text.split(',')]
  except ValueError:
    what = 'integers' if kind is int else 'numbers'
    raise ValueError(f'--{name} must be {what} separated by commas, got '
                     f'{text!r}') from None


def help_text(doc: str, groups: Groups, main: Sequence[str] = ()) -> str:
  """Returns the help of a command: its docstring, and its flags.

  Args:
    doc: docstring of the command, with examples.
    groups: all flags of the command.
    main: names of the only flags to show, in this order; empty for all flags,
      in groups.
  """
  every = {name: table[name] for table in groups.values() for name in table}
  if main:
    groups_shown = {'Main flags': [every[name] for name in main]}
  else:
    groups_shown = {title: [table[name] for name in table]
                    for title, table in groups.items()}
  lines = [doc.rstrip()]
  for title, shown in groups_shown.items():
    lines += ['', f'{title}:']
    for flag in shown:
      lines += _lines(flag)
  lines += ['', f'--helpfull shows all {len(every)} flags, in groups.' if main
            else 'The flags of absl, such as --verbosity, can be given, too.']
  return '\n'.join(lines)


def _lines(flag: flags.Flag) -> Iterator[str]:
  """Yields the lines of the help of one flag."""
  text = f'--{"[no]" if flag.boolean else ""}{flag.name}: {flag.help}'
  # Flags without a default, or off by default, say what happens then.
  default = ('true' if flag.default is True else ','.join(flag.default)
             if isinstance(flag.default, list) else flag.default)
  if default not in ('', None) and default is not False:
    text += f' Default: {default}.'
  yield from textwrap.wrap(text, _WIDTH, initial_indent=' ' * 2,
                           subsequent_indent=' ' * 6, break_on_hyphens=False,
                           break_long_words=False)
