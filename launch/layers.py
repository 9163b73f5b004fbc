"""Writes the table of layers of Linen, NNX and Equinox to the docs.

Compares norms and sums of the gradients of each layer with those of
`jax.vmap(jax.grad)`, and says which parameters are treated fast. Takes some
minutes, and needs Equinox besides dpjax[bench]:
  pip install equinox
  python -m launch.layers

Without Equinox, or to try something out, one library alone is printed, and
nothing is written:
  python -m launch.layers --library=NNX
"""

from collections.abc import Sequence
import pathlib
import sys

from absl import flags

from dpjax.cli import errors
from dpjax.cli import flags as shared
from dpjax.report import files
from dpjax.runs import environment
from experiments.layer_table import comparison
from experiments.layer_table import table

for _name in ('output_dir', 'traceback'):
  flags.declare_key_flag(_name)

_LIBRARY = flags.DEFINE_enum('library', None, list(comparison.LIBRARIES),
                             'Print the table of this library only.')
PAGE = 'layers.md'


def main(argv: Sequence[str]) -> int:
  """Writes or prints the table; returns 1 if a layer is not equal."""
  errors.check_no_arguments(argv)
  libraries = [_LIBRARY.value] if _LIBRARY.value else list(
      comparison.LIBRARIES)
  missing = [name for name in libraries if not comparison.is_installed(name)]
  if missing:
    raise ValueError(f'{missing[0]} is not installed; install it with pip, or '
                     'choose another --library')
  text = table.page(libraries, lambda line: print(line, file=sys.stderr))
  print(text)
  if not _LIBRARY.value:
    folder = pathlib.Path(shared.OUTPUT_DIR.value or environment.ROOT / 'docs')
    files.replace(folder / PAGE, text.encode())
  return 1 if 'NOT equal' in text else 0


if __name__ == '__main__':
  errors.run_main(main)
