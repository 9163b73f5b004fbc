"""Runs a command line so that bad input costs one line, not a traceback."""

from collections.abc import Callable, Sequence
import sys
from typing import Any

from absl import app
from absl import flags
from absl import logging

from launch import flags as shared

BAD_INPUT = 2
INTERRUPTED = 130


def check_no_arguments(argv: Sequence[str]) -> None:
  """Refuses words on the command line that are no flags."""
  if len(argv) > 1:
    raise ValueError(f'unexpected {" ".join(argv[1:])}; see --help')


def _format(error: BaseException) -> str:
  lines = str(error).strip().splitlines() or [type(error).__name__]
  # Errors of libraries have many lines; ours have one.
  more = ' ... (all of it with --traceback)' if len(lines) > 1 else ''
  return lines[0] + more


def run_main(main: Callable[[Any], int | None],
             parse: Callable[[Sequence[str]], Any] = (
                 app.parse_flags_with_usage)) -> None:
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
      print(f'error: {_format(error)}', file=sys.stderr)
      return BAD_INPUT
    except KeyboardInterrupt:
      print('interrupted', file=sys.stderr)
      return INTERRUPTED

  app.run(guarded, flags_parser=parse)
