"""Lists every item of the papers with its code, tests and experiments.

Prints a line and fails for every missing item, and for every name in the
catalogue that does not exist:
  python -m launch.coverage

All about one item; or the items of one paper, as a CSV file:
  python -m launch.coverage --item=lip_dp_sgd/LDP-05
  python -m launch.coverage --paper=barczewski_2025 --output=items.csv

`experiments/README.md` lists the same items with their verdicts, and
`experiments/ERRATA.md` the errors in the papers; `launch.report` writes both.
"""

import collections
from collections.abc import Sequence
import csv
import pathlib
import sys

from absl import flags

from dpjax.cli import errors
from dpjax.report import tables
from experiments.catalogue import checks
from experiments.catalogue import items
from experiments.catalogue import pages

flags.declare_key_flag('traceback')
_ITEM = flags.DEFINE_list(
    'item', [], 'Show these items, as ID or GROUP/ID, with their files.')
_PAPER = flags.DEFINE_enum(
    'paper', None, [*items.KEYS, *items.PAPERS],
    'List the items of this paper only, by name or number.')
_OUTPUT = flags.DEFINE_string(
    'output', None, 'Write the list to this CSV file instead.')


def main(argv: Sequence[str]) -> int:
  """Lists or shows items; returns 1 if something is missing."""
  errors.check_no_arguments(argv)
  groups = items.groups()
  if _ITEM.value:
    print('\n\n'.join(pages.card(item) for name in _ITEM.value
                      for item in _named(groups, name)))
    return 0
  paper = items.PAPERS.get(
      items.KEYS.get(_PAPER.value or '', _PAPER.value or ''))
  _list([line for line in pages.listing(groups)
         if paper in (None, line[0])])
  problems = checks.problems(groups)
  for problem in problems:
    print(f'missing: {problem}', file=sys.stderr)
  return 1 if problems else 0


def _named(groups: Sequence[items.Group], name: str) -> list[items.Item]:
  """Returns the items with an id; raises if there are none."""
  named = [item for group in groups for item in group.items
           if name in (item.id, f'{group.name}/{item.id}', *item.merged,
                       *(each.partition('/')[2] for each in item.merged))]
  if not named:
    raise ValueError(f'no item {name}; python -m launch.coverage lists all')
  return named


def _list(lines: Sequence[Sequence[str]]) -> None:
  """Prints the items or writes them to --output; prints their counts."""
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
