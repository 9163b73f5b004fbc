"""Flags: those that several commands share, and the table of each command.

absl keeps the flags of a process in one table, FLAGS, in which a name can
be defined once. Commands use the same names for different things, so each one
defines its flags in tables of its own, one for each heading of its help. Many
commands can then be imported together.
"""

from collections.abc import Callable, Mapping, Sequence
import textwrap
from typing import Any, TypeVar

from absl import flags

Number = TypeVar('Number', int, float)
_Value = TypeVar('_Value')

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
  # Both tables hold the same flag; parsing one sets it in both.
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


def check_given(values: Mapping[str, object], *, why: str = '') -> None:
  """Raises a ValueError that names every required flag without a value.

  Args:
    values: name of a required flag -> its value.
    why: end of the message.
  """
  # 0 and False are values; None and an empty text or list are not.
  missing = [f'--{name}' for name, value in values.items()
             if value is None or value == '' or value == []]
  if missing:
    *first, last = missing
    names = f'{", ".join(first)} and {last}' if first else last
    raise ValueError(f'{names} must be given{why} (see --help)')


def given(flag: flags.FlagHolder[_Value | None]) -> _Value:
  """Returns the value of a flag that `check_given` has seen."""
  assert flag.value is not None
  return flag.value


def _text(flag: flags.Flag[Any]) -> str:
  """Returns the help of a flag, with its choices and its default."""
  text, default = flag.help or '', flag.default
  if isinstance(flag.parser, flags.EnumParser):
    # absl has put <a|b> before the text.
    text = text.partition('>: ')[2]
    choices = list(filter(None, flag.parser.enum_values))
    if not all(choice in text for choice in choices):
      meaning, *more = text.partition(' Default: ')
      text = f'{meaning} One of {", ".join(choices)}.{"".join(more)}'
  # Flags without a default, or off by default, say what happens then.
  if default is None or default is False or default == '':
    return text
  shown = ('true' if default is True else ','.join(default)
           if isinstance(default, list) else default)
  return f'{text} Default: {shown}.'


def wrapped(text: str, indent: int = 2) -> list[str]:
  """Returns an item of a help text as lines of at most 80 columns."""
  return textwrap.wrap(
      text, _WIDTH, initial_indent=' ' * indent,
      subsequent_indent=' ' * (indent + 4), break_on_hyphens=False,
      break_long_words=False)


def help_text(command: str, doc: str, groups: Groups,
              main: Sequence[str] = ()) -> str:
  """Returns the help of a command: usage, docstring and flags.

  Args:
    command: name of the command, such as 'dpjax train'.
    doc: docstring of the command, with examples.
    groups: all flags of the command; those below '' are hidden.
    main: names of the only flags to show; empty for all flags, in groups.
  """
  visible = {title: [table[name] for name in table]
             for title, table in groups.items() if title}
  every = {flag.name: flag for shown in visible.values() for flag in shown}
  if main:
    visible = {'Main flags': [every[name] for name in main]}
  lines = [f'usage: {command} --FLAG=VALUE ...', '', doc.rstrip()]
  for title, shown in visible.items():
    lines += ['', f'{title}:']
    for flag in shown:
      no = '[no]' if flag.boolean and flag.default is not False else ''
      lines += wrapped(f'--{no}{flag.name}: {_text(flag)}')
  lines += ['', f'--helpfull shows all {len(every)} flags, in groups.' if main
            else '--traceback shows all of an error; --verbosity and other '
            'flags of absl work too.']
  return '\n'.join(lines)
