"""Lists every item of the papers with what realises, tests and measures it.

Fails, with a line for each, if something that is named is not there or an item
is missing:
  python -m launch.coverage

One item from the paper to the figure; items of one paper, as a CSV file:
  python -m launch.coverage --item=lip_dp_sgd/LDP-05
  python -m launch.coverage --paper=003 --output=items.csv

`experiments/README.md` has the same items beside their verdicts, and
`experiments/ERRATA.md` what is false in the papers: `launch.report` makes both.
"""

from collections.abc import Sequence
import collections
import csv
import pathlib
import sys

from absl import flags

from dpjax.report import tables
from experiments.catalogue import checks
from experiments.catalogue import items
from experiments.catalogue import pages
from launch import errors

flags.declare_key_flag('traceback')
_ITEM = flags.DEFINE_list(
    'item', [], 'Show these items, as ID or GROUP/ID, with files and lines.')
_PAPER = flags.DEFINE_enum(
    'paper', None, list(items.PAPERS), 'List the items of this paper only.')
_OUTPUT = flags.DEFINE_string(
    'output', None, 'Write the list to this CSV file instead.')


def main(argv: Sequence[str]) -> int:
  """Lists or shows items; 1 if something is missing."""
  errors.check_no_arguments(argv)
  groups = items.groups()
  if _ITEM.value:
    print('\n\n'.join(pages.card(item) for name in _ITEM.value
                      for item in _named(groups, name)))
    return 0
  _list([line for line in pages.listing(groups)
         if _PAPER.value in (None, line[0])])
  problems = checks.problems(groups)
  for problem in problems:
    print(f'missing: {problem}', file=sys.stderr)
  return 1 if problems else 0


def _named(groups: Sequence[items.Group], name: str) -> list[items.Item]:
  found = [item for group in groups for item in group.items
           if name in (item.id, f'{group.name}/{item.id}')]
  if not found:
    raise ValueError(f'no item {name}; python -m launch.coverage lists all')
  return found


def _list(lines: Sequence[Sequence[str]]) -> None:
  if _OUTPUT.value:
    with pathlib.Path(_OUTPUT.value).open('w', encoding='utf-8',
                                          newline='') as file:
      csv.writer(file).writerows([pages.LISTED, *lines])
  else:
    print(tables.markdown(pages.LISTED, lines))
  counts = collections.Counter(line[-1] for line in lines)
  print(f'{len(lines)} items: ' + ', '.join(
      f'{count} {what}' for what, count in counts.most_common()),
      file=sys.stderr)


if __name__ == '__main__':
  errors.run_main(main)
