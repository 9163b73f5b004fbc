r"""Drafts the schema of your own file, or checks a file against a schema.

A draft, which the data owner must review:
  dpjax schema --dataset=survey.csv --label=outcome \
    --output=schema.json

The draft READS THE DATA: its bounds, categories and classes are those of the
records, and so private. Replace each by one that is known without the file,
remove columns that are not features, and set "public" to true. Then count the
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
from dpjax.cli import file_formats
from dpjax.cli import flags as shared
from dpjax.data import drafts
from dpjax.data import schema_files
from dpjax.data import tabular
from dpjax.data import user_tables
from dpjax.report import files
from dpjax.report import tables
from dpjax.tables import reader
from dpjax.tables.formats import Format

_FLAGS = (
    ('dataset', f'File with a header: {", ".join(reader.FORMATS)}.'),
    ('label', 'Column of the class.'),
    ('output', 'JSON file of the draft; must not exist yet.'),
    ('schema', 'Reviewed JSON file; the data set is checked against it.'))
# How the file of a draft is written; the schema says it for a check. A label
# must not be missing, so no line may be faulty.
_WRITTEN = tuple(flag for flag in file_formats.FLAGS if flag[0] != 'bad_lines')


def parse(argv: Sequence[str]) -> argparse.Namespace:
  """Parses the flags of a command line."""
  return errors.parse_texts(
      argv, {'Files': dict(_FLAGS), 'How the file is written': dict(_WRITTEN)},
      doc=__doc__ or '')


def read(path: str) -> str:
  """Returns the schema in a JSON file, in canonical form.

  Raises:
    ValueError, OSError: if it cannot be read; a message of one line.
  """
  text = pathlib.Path(path).expanduser().read_text(encoding='utf-8')
  return schema_files.canonical(text, where=path)


def _text(schema: Mapping[str, Any]) -> str:
  """Returns the schema as JSON, one line for each column."""
  def line(name: str, value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return f'{json.dumps(name, ensure_ascii=False)}: {text}'
  columns = ',\n'.join(f'  {line(name, value)}'
                       for name, value in schema['columns'].items())
  rest = [line(name, value) for name, value in schema.items()
          if name != 'columns']
  return '{' + ',\n '.join([*rest, f'"columns": {{\n{columns}}}']) + '}\n'


def _draft(path: pathlib.Path, output: pathlib.Path, *, label: str,
           form: Format) -> None:
  """Writes a draft of a schema; never overwrites a file."""
  # A reviewed schema is work by hand.
  if output.exists():
    raise ValueError(f'{output} exists already and may have been reviewed; '
                     'it is not overwritten')
  errors.check_file(str(output))
  draft = drafts.draft(path, label=label, form=form)
  output.parent.mkdir(parents=True, exist_ok=True)
  # The draft holds values of records.
  files.replace(output, _text(draft.schema).encode(), mode=0o600)
  for name, reason in draft.left_out.items():
    print(f'left out: column {name!r}, because {reason}', file=sys.stderr)
  print(f'written to {output}\nwarning: it reveals private records, and '
        'is refused until you have replaced its bounds, categories and classes '
        'by public ones and set "public" to true', file=sys.stderr)


def _check(path: pathlib.Path, text: str) -> None:
  """Prints how many values of a file lie outside a schema; private."""
  user = schema_files.parse(text)
  table = reader.table(path, user.form)
  # Refuses what training would refuse.
  width = tabular.encode(table, user.schema).x.shape[1]
  print(f'{path}: {table.num_records} records, {width} features, '
        f'{user.num_classes} classes. The counts below are exact, hence '
        'private: do not publish them.\n')
  print(tables.markdown(user_tables.Counts._fields,
                        user_tables.count(table, user.schema)), end='')


def main(args: argparse.Namespace) -> int:
  """Runs the command; returns the exit status."""
  if not args.schema:
    shared.check_given(
        {name: getattr(args, name) for name in ('dataset', 'label', 'output')},
        why=' for a draft, or --dataset and --schema for a check')
  shared.check_given({'dataset': args.dataset})
  if args.schema and args.output:
    raise ValueError('give --output for a draft, or --schema for a check')
  path = user_tables.find(args.dataset)
  written = [name for name, _ in _WRITTEN if getattr(args, name) is not None]
  if args.schema and written:
    raise ValueError(f'--{written[0]} is for a draft: a schema says how its '
                     'file is written')
  if args.schema:
    _check(path, read(args.schema))
  else:
    _draft(path, pathlib.Path(args.output), label=args.label,
           form=file_formats.of_flags(args, args.dataset))
  return 0
