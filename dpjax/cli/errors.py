"""Runs command lines so that bad input gives one line, not a traceback."""

import argparse
from collections.abc import Callable, Mapping, Sequence
import importlib.util
import pathlib
import re
import sys
import tempfile
import types
from typing import Any, NoReturn

from absl import app
from absl import flags
from absl import logging

from dpjax import errors
from dpjax.cli import flags as shared

Path = str | pathlib.Path

BAD_INPUT = 2
"""Exit status after bad input."""

INTERRUPTED = 130
"""Exit status after an interrupt."""


def check_no_arguments(argv: Sequence[str]) -> None:
  """Raises a ValueError for words on the command line that are not flags."""
  if len(argv) > 1:
    raise ValueError(f'unexpected {" ".join(argv[1:])}; see --help')


def check_folder(output: str) -> None:
  """Raises an OSError if a folder cannot be written to, before work is lost.

  Args:
    output: path of the folder; it and its parents need not exist yet.
  """
  folder = pathlib.Path(output).absolute()
  # Missing folders will be created below the first that exists.
  while not folder.exists():
    folder = folder.parent
  if not folder.is_dir():
    raise NotADirectoryError(f'{folder} is not a folder')
  # Permission bits do not show a read-only disk; a file does.
  try:
    with tempfile.TemporaryFile(dir=folder):
      pass
  except OSError as error:
    raise PermissionError(f'cannot write to {folder}: '
                          f'{error.strerror}') from None


def check_file(output: str) -> None:
  """Raises if a file cannot be written, before work is lost."""
  path = pathlib.Path(output)
  if path.is_dir():
    raise IsADirectoryError(f'{output} is a folder: give the path of a file')
  if path.exists() and not path.is_file():
    # Output is renamed into place, which would replace a device like /dev/null.
    raise ValueError(f'{output} is not a regular file: the output would '
                     'replace it')
  check_folder(str(pathlib.Path(output).absolute().parent))


def check_output(name: str, output: str, *endings: str) -> None:
  """Raises if the file of a flag cannot be written in an existing folder."""
  path = pathlib.Path(output)
  if endings and path.suffix not in endings:
    raise ValueError(f'--{name} must end in {" or ".join(endings)}, got '
                     f'{output}')
  if path.is_dir() or not path.resolve().parent.is_dir():
    raise ValueError(f'--{name} must be a file in an existing folder, got '
                     f'{output}')
  check_file(output)


def check_outputs(
    outputs: Mapping[str, Path | None], *,
    inputs: Mapping[str, Path | None],
    kept: Mapping[str, Path] = types.MappingProxyType({})) -> None:
  """Raises if outputs would overwrite one another, inputs or protected files.

  Call it before data are opened and before any budget is spent. Symbolic and
  hard links are followed, so paths are compared by the file they lead to.

  Args:
    outputs: flag -> file that will be written; None for no file.
    inputs: flag -> file that is read or continued; None for no file.
    kept: description -> folder in which no output may lie.

  Raises:
    ValueError: one line that names the two flags, or the folder.
  """
  others = {f'--{name}': path for name, path in inputs.items() if path}
  for name, given in outputs.items():
    if not given:
      continue
    path = pathlib.Path(given).resolve()
    for other, their in others.items():
      if _same_file(path, pathlib.Path(their).resolve()):
        raise ValueError(f'--{name} must be another file than {other}, got '
                         f'{given}')
    for what, folder in kept.items():
      if path.is_relative_to(pathlib.Path(folder).resolve()):
        raise ValueError(f'--{name} must be outside of {what}, got {given}')
    # Two outputs must differ, too.
    others[f'--{name}'] = path


def _same_file(path: pathlib.Path, other: pathlib.Path) -> bool:
  """Returns whether two resolved paths lead to the same file."""
  # Hard links are two paths of one file.
  return path == other or (path.exists() and other.exists() and
                           path.samefile(other))


def check_extra(module: str, extra: str, what: str) -> None:
  """Raises an ImportError if a module of an extra is not installed."""
  # Importing may take seconds; finding does not.
  if importlib.util.find_spec(module) is None:
    raise ImportError(f'{what} need {module}: pip install dpjax[{extra}]')


def check_figure(output: str) -> None:
  """Raises if a figure cannot be drawn or written, before work is lost."""
  check_output('plot', output, '.svg')
  check_extra('matplotlib', 'plots', 'figures')


def parse_flags(argv: Sequence[str]) -> list[str]:
  """Parses the flags in the table of absl; returns the other words.

  For programs that are not a command of `dpjax`. Bad flags end the program with
  one line on stderr.
  """
  return _parsed(flags.FLAGS, argv)


def _parsed(table: flags.FlagValues, argv: Sequence[str]) -> list[str]:
  """Parses flags; returns the other words."""
  try:
    return table(argv)
  except flags.UnrecognizedFlagError as error:
    name = f'--{error.flagname}'
    near = errors.did_you_mean(name, [f'--{known}' for known in table])
    _end(f'unknown flag {name}{near}')
  except flags.Error as error:
    _end(_illegal(_format(error), table))
  except SystemExit:
    # absl exits after --help with a nonzero status, though nothing failed.
    sys.exit(0)


def _illegal(message: str, table: flags.FlagValues) -> str:
  """Returns absl's error for a bad value in the words of the other errors."""
  # absl gives name and value in the text of the error alone.
  if match := re.fullmatch(r'Missing value for flag (--\w+)', message):
    return f'{match[1]} needs a value: {match[1]}=VALUE'
  match = re.match(r'flag --(\w+)=(.*?): ', message)
  if not match or match[1] not in table:
    return message
  parser = table[match[1]].parser
  allowed = (f'one of {", ".join(filter(None, parser.enum_values))}'
             if isinstance(parser, flags.EnumParser) else
             'true or false' if isinstance(parser, flags.BooleanParser) else
             parser.syntactic_help.replace('integer >=', 'an integer >='))
  return f'--{match[1]} must be {allowed}, got {match[2]!r}'


def parse_texts(argv: Sequence[str], sections: Mapping[str, Mapping[str, str]],
                *, doc: str, main: Sequence[str] = (),
                switches: Sequence[str] = ()) -> argparse.Namespace:
  """Parses flags whose values are texts; None for a flag that is not given.

  Arguments are those of `parse_groups`, but `sections` gives the help of each
  flag; `switches` take no value and are False by default.
  """
  groups = {}
  for title, texts in sections.items():
    groups[title] = table = flags.FlagValues()
    for name, text in texts.items():
      if name in switches:
        flags.DEFINE_bool(name, False, text, table)
      else:
        flags.DEFINE_string(name, None, text, table)
  words = parse_groups(argv, groups, doc=doc, main=main)
  if len(words) > 1:
    _end(f'unexpected {" ".join(words[1:])}')
  return argparse.Namespace(**{
      name: table[name].value for table in groups.values() for name in table})


def parse_groups(argv: Sequence[str], groups: shared.Groups, *, doc: str,
                 main: Sequence[str] = ()) -> list[str]:
  """Parses the flags of one command; returns the other words.

  `--help` and `--helpfull` print the help and end the program; bad flags end it
  with one line on stderr.

  Args:
    argv: name of the program, and the words after it.
    groups: the flags of the command, by heading of the help, '' for hidden.
    doc: docstring of the command.
    main: names of the flags that `--help` shows; empty for all of them.
  """
  asked = {word.lstrip('-') for word in argv[1:] if word.startswith('-')}
  if asked & {'h', '?', 'help', 'helpshort', 'helpfull'}:
    print(shared.help_text(_command(argv[0]), doc, groups,
                           () if 'helpfull' in asked else main))
    sys.exit(0)
  # The tables share their flags with `table`, so parsing it sets them all.
  table = flags.FlagValues()
  for group in groups.values():
    group.unparse_flags()  # a command may be called more than once
    table.append_flag_values(group)
    group.mark_as_parsed()
  # absl's own flags stay, unless the command has one of the same name.
  for module, own in flags.FLAGS.flags_by_module_dict().items():
    for flag in own:
      if flag.name == 'traceback' or module.startswith('absl.') and (
          flag.name not in table and not flag.name.startswith('help')):
        table[flag.name] = flag
  flags.FLAGS.mark_as_parsed()
  return _parsed(table, argv)


def _command(program: str) -> str:
  """Returns how a program is called: `dpjax train` for dpjax.cli.train."""
  return f'dpjax {program.rpartition(".")[2]}'


def _end(message: str) -> NoReturn:
  """Prints what is wrong with the command line, and ends the program."""
  _say(f'{message} (see --help)')
  sys.exit(BAD_INPUT)


def _say(message: str) -> None:
  """Prints an error on stderr."""
  print(f'error: {message}', file=sys.stderr)


def _format(error: BaseException) -> str:
  """Returns an error as one line."""
  if isinstance(error, IsADirectoryError) and error.filename:
    return f'{error.filename} is a folder: give the path of a file'
  if isinstance(error, OSError) and error.strerror and error.filename:
    return f'{error.filename}: {error.strerror}'
  lines = str(error).strip().splitlines() or [type(error).__name__]
  # Errors of other libraries may have many lines; ours have one.
  more = ' ... (all of it with --traceback)' if len(lines) > 1 else ''
  # A file without a header has numbers for names of columns.
  if re.search(r' has no column .* there are (.+, )?[\d.]+(,|$)', lines[0]):
    more = '; is its first line a record? (see header in --helpfull)'
  if isinstance(error, errors.UnknownChoiceError) and (
      sys.argv[0].startswith('dpjax.cli.')):
    # `dpjax audit` has too many names for its help.
    audited = sys.argv[0].endswith('.audit')
    more = (f' (all: {_command(sys.argv[0])} '
            f'{"--list" if audited else "--helpfull"})')
  return lines[0] + more


def run_main(main: Callable[[Any], int | None],
             parse: Callable[[Sequence[str]], Any] = parse_flags) -> None:
  """Parses flags, calls `main`, and exits with the status that it returns.

  Bad input raises ValueError, OSError, ImportError (an extra is not installed)
  or MemoryError. It gives one line on stderr and exit status 2; an interrupt
  gives 130. `--traceback` shows the whole error instead.

  Args:
    main: called with the result of `parse`.
    parse: parses the command line; by default absl's flags, which all programs
      share, and `main` gets the other words.
  """
  def guarded(argv: Any) -> int | None:
    # JAX logs every backend that it does not find; --verbosity shows that.
    if not flags.FLAGS['verbosity'].present:
      logging.set_verbosity(logging.WARNING)
    try:
      return main(argv)
    # Other exceptions are faults of the program: show the traceback.
    except (ValueError, OSError, ImportError, MemoryError) as error:
      if shared.TRACEBACK.value:
        raise
      _say(_format(error))
      return BAD_INPUT
    except KeyboardInterrupt:
      print('interrupted', file=sys.stderr)
      return INTERRUPTED

  app.run(guarded, flags_parser=parse)
