r"""Drafts the schema of your own CSV file, or checks a file against a schema.

A draft, which the data owner must review:
  dpjax schema --dataset=survey.csv --label=outcome \
    --output=schema.json

The draft READS THE DATA: its bounds, categories and classes are those of the
records, and so private. Replace each by one that is known without the file,
remove columns that are no features, and set "public" to true. Then count the
values of the file that lie outside the schema; the counts are private, too:
  dpjax schema --dataset=survey.csv --schema=schema.json

Train with the schema:
  dpjax train --dataset=survey.csv --schema=schema.json --epsilon=1 \
    --output_dir=results/survey
"""

import argparse
from collections.abc import Mapping, Sequence
import json
import pathlib
import sys
from typing import Any

from dpjax.cli import errors
from dpjax.data import drafts
from dpjax.data import schema_files
from dpjax.data import tabular
from dpjax.data import user_tables
from dpjax.report import files
from dpjax.report import tables

_FLAGS = (
    ('dataset', 'CSV file with a header, UTF-8, plain or .gz.'),
    ('label', 'Column of the class.'),
    ('output', 'JSON file of the draft; must not exist yet.'),
    ('schema', 'Reviewed JSON file; the data set is checked against it.'),
    ('separator', 'For a draft: one character between fields, or tab. Default: '
     'a comma, a tab for .tsv.'))


def parse(argv: Sequence[str]) -> argparse.Namespace:
  """Parses the flags of a command line."""
  parser = errors.ArgumentParser(
      description=__doc__, allow_abbrev=False, conflict_handler='resolve',
      formatter_class=argparse.RawDescriptionHelpFormatter)
  for name, text in _FLAGS:
    parser.add_argument(f'--{name}', help=text)
  return parser.parse_args(list(argv[1:]))


def separator(path: str, text: str | None) -> str:
  """Returns the separator given by a flag, or else by the file extension.

  Args:
    path: path of the CSV file.
    text: value of --separator, None if it is not given.

  Raises:
    ValueError: if the flag is not a single character.
  """
  if text is None:
    return '\t' if path.lower().removesuffix('.gz').endswith('.tsv') else ','
  found = '\t' if text in ('tab', '\\t') else text
  if len(found) != 1:
    raise ValueError(f'--separator must be one character or tab, got {text!r}')
  return found


def read(path: str) -> str:
  """Returns the schema in a JSON file, in canonical form.

  Raises:
    ValueError, OSError: if it cannot be read; a message of one line.
  """
  text = pathlib.Path(path).expanduser().read_text(encoding='utf-8')
  return schema_files.canonical(text, where=path)


def _text(schema: Mapping[str, Any]) -> str:
  """Returns the schema as JSON, one line for each column."""
  def line(name, value):
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return f'{json.dumps(name, ensure_ascii=False)}: {text}'
  columns = ',\n'.join(f'  {line(name, value)}'
                       for name, value in schema['columns'].items())
  rest = [line(name, value) for name, value in schema.items()
          if name != 'columns']
  return '{' + ',\n '.join([*rest, f'"columns": {{\n{columns}}}']) + '}\n'


def _draft(path: pathlib.Path, output: pathlib.Path, *, label: str,
           separated_by: str) -> None:
  """Writes a draft of a schema; never overwrites a file."""
  if output.exists():
    raise ValueError(f'{output} exists already and may have been reviewed; '
                     'it is not overwritten')
  errors.check_file(str(output))
  made = drafts.draft(path, label=label, separator=separated_by)
  output.parent.mkdir(parents=True, exist_ok=True)
  files.replace(output, _text(made).encode(), mode=0o600)
  print(f'written to {output}\nwarning: it reveals private records, and '
        'is refused until you have replaced its bounds, categories and classes '
        'by public ones and set "public" to true', file=sys.stderr)


def _check(path: pathlib.Path, text: str) -> None:
  """Prints how many values of a file lie outside a schema; private."""
  user = schema_files.parse(text)
  table = user_tables.select(path, user)
  width = tabular.encode(table, user.schema).x.shape[1]
  print(f'{path}: {len(table.rows)} records, {width} features, '
        f'{user.num_classes} classes. The counts below are exact, hence '
        'private: do not publish them.\n')
  print(tables.markdown(user_tables.Counts._fields,
                        user_tables.count(table, user.schema)), end='')


def main(args: argparse.Namespace) -> int:
  """Runs the command; returns the exit status."""
  if not args.dataset:
    raise ValueError('--dataset must be given: the path of a CSV file')
  path = user_tables.find(args.dataset)
  if (args.schema is None) == (args.output is None):
    raise ValueError('give --output for a draft, or --schema for a check')
  if args.schema is not None:
    _check(path, read(args.schema))
  elif args.label is None:
    raise ValueError('--label must be given: the column of the class')
  else:
    _draft(path, pathlib.Path(args.output), label=args.label,
           separated_by=separator(args.dataset, args.separator))
  return 0
