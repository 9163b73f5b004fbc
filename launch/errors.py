"""Runs a command line so that bad input costs one line, not a traceback."""

from collections.abc import Callable, Mapping, Sequence
import importlib.util
import pathlib
import sys
import tempfile
import types
from typing import Any

from absl import app
from absl import flags
from absl import logging
from absl.flags import argparse_flags

from dpjax import errors
from launch import flags as shared

Path = str | pathlib.Path

BAD_INPUT = 2
INTERRUPTED = 130


def check_no_arguments(argv: Sequence[str]) -> None:
  """Refuses words on the command line that are no flags."""
  if len(argv) > 1:
    raise ValueError(f'unexpected {" ".join(argv[1:])}; see --help')


def check_folder(output: str) -> None:
  """Refuses a folder that cannot be written to, before work is lost.

  Args:
    output: of the folder; it and those above need not be there yet.
  """
  folder = pathlib.Path(output).absolute()
  while not folder.exists():
    folder = folder.parent
  if not folder.is_dir():
    raise NotADirectoryError(f'{folder} is no folder')
  try:
    with tempfile.TemporaryFile(dir=folder):
      pass
  except OSError as error:
    raise PermissionError(f'cannot write to {folder}: '
                          f'{error.strerror}') from None


def check_file(output: str) -> None:
  """Refuses a file that cannot be written, before work is lost."""
  path = pathlib.Path(output)
  if path.is_dir():
    raise IsADirectoryError(f'{output} is a folder')
  if path.exists() and not path.is_file():
    # A file that is renamed to /dev/null would take its place.
    raise ValueError(f'{output} is no regular file: what is written would take '
                     'its place')
  check_folder(str(pathlib.Path(output).absolute().parent))


def check_outputs(
    outputs: Mapping[str, Path | None], *,
    inputs: Mapping[str, Path | None],
    kept: Mapping[str, Path] = types.MappingProxyType({})) -> None:
  """Refuses outputs that would replace one another or what must stay.

  For a check before the data are opened and before any budget is spent. Links
  of both kinds are followed: what counts is which file would be written.

  Args:
    outputs: flag -> file that will be written, None where none is.
    inputs: flag -> file that is read or goes on, None where none is.
    kept: description -> folder whose files are not the user's to write.

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
    others[f'--{name}'] = path


def _same_file(path: pathlib.Path, other: pathlib.Path) -> bool:
  return path == other or (path.exists() and other.exists() and
                           path.samefile(other))


def check_extra(module: str, extra: str, what: str) -> None:
  """Refuses what needs a module that is not installed; says how to get it."""
  if importlib.util.find_spec(module) is None:
    raise ImportError(f'{what} need {module}: pip install dpjax[{extra}]')


def check_figure(output: str) -> None:
  """Refuses a figure that cannot be drawn or written, before work is lost."""
  if not output.endswith('.svg'):
    raise ValueError(f'--plot must end in .svg, got {output}')
  check_file(output)
  check_extra('matplotlib', 'plots', 'figures')


class ArgumentParser(argparse_flags.ArgumentParser):
  """A parser of flags whose errors are one line."""

  def error(self, message: str):
    """Says what is wrong, and the nearest flag there is; ends the program."""
    unknown = message.removeprefix('unrecognized arguments: ')
    if unknown != message:
      first = unknown.split()[0]
      message = f'unexpected {first}' + errors.did_you_mean(
          first.split('=')[0], self._option_string_actions)
    _say(f'{message} (see --help)')
    sys.exit(BAD_INPUT)


def parse_flags(argv: Sequence[str]) -> list[str]:
  """The words that are no flags; bad flags end the program in one line."""
  try:
    return flags.FLAGS(argv)
  except flags.Error as error:
    _say(f'{_format(error).removesuffix(" ?")} (see --help)')
    sys.exit(BAD_INPUT)
  except SystemExit:
    # After --help, which is no failure.
    sys.exit(0)


def _say(message: str) -> None:
  print(f'error: {message}', file=sys.stderr)


def _format(error: BaseException) -> str:
  if isinstance(error, OSError) and error.strerror and error.filename:
    return f'{error.filename}: {error.strerror}'
  lines = str(error).strip().splitlines() or [type(error).__name__]
  # Errors of libraries have many lines; ours have one.
  more = ' ... (all of it with --traceback)' if len(lines) > 1 else ''
  return lines[0] + more


def run_main(main: Callable[[Any], int | None],
             parse: Callable[[Sequence[str]], Any] = parse_flags) -> None:
  """Parses flags, calls main, and exits with what it returns.

  Main is called with what `parse` makes of the command line: by default with
  the words that are no absl flags, whose names all programs share.

  Bad input, that is ValueError, OSError, ImportError (an extra that is not
  installed) and MemoryError (too much at once), gives one line on stderr and
  exit status 2; an interrupt gives 130. `--traceback` shows the whole error
  instead.
  """
  def guarded(argv: Any) -> int | None:
    # Libraries tell of every backend they do not find; --verbosity shows it.
    if not flags.FLAGS['verbosity'].present:
      logging.set_verbosity(logging.WARNING)
    try:
      return main(argv)
    except (ValueError, OSError, ImportError, MemoryError) as error:
      if shared.TRACEBACK.value:
        raise
      _say(_format(error))
      return BAD_INPUT
    except KeyboardInterrupt:
      print('interrupted', file=sys.stderr)
      return INTERRUPTED

  app.run(guarded, flags_parser=parse)
