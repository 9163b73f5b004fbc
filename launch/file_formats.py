"""Flags by which the owner of a file declares how it is written."""

import argparse
import csv

from dpjax.release import formats

FLAGS = (
    ('separator', 'Of a CSV file: one character, or tab. Default: a comma.'),
    ('encoding', f'Of a CSV file, {" or ".join(formats.ENCODINGS)}. Default: '
     'utf-8.'),
    ('header', 'Names of the columns, separated by commas, of a CSV file whose '
     'first line is a record. Default: the first line names them.'),
    ('decimal', 'Mark in front of decimals, "." or ",". Default: a point.'),
    ('thousands', 'Mark between groups of three digits: ".", ",", a space or '
     'an apostrophe. Default: none.'),
    ('missing_tokens', 'What a missing number is spelled like, beside the '
     'empty field, separated by commas. Default: '
     f'{",".join(formats.MISSING_TOKENS)}.'),
    ('unparsed', 'refuse a file with a field that is neither a number nor '
     'missing, or take the field as missing. Default: refuse.'),
    ('bad_lines', 'refuse a file with a line that is no record, or take all '
     'fields of the line as missing; each line is then read by itself, so that '
     'quoted fields end on their line. Default: refuse.'))


def of_flags(args: argparse.Namespace) -> formats.Format:
  """Returns the format that the flags declare, checked.

  Raises:
    ValueError: one line, for what is no format.
  """
  given = {name: getattr(args, name) for name, _ in FLAGS
           if getattr(args, name) is not None}
  for name in ('header', 'missing_tokens'):
    if name in given:
      given[name] = split(name, given[name])
  if given.get('separator') in ('tab', '\\t'):
    given['separator'] = '\t'
  return formats.Format(**given)


def split(name: str, text: str) -> tuple[str, ...]:
  """Returns the parts of a flag, between commas; quotation marks hold commas.

  Args:
    name: of the flag.
    text: one line of CSV, as '"Smith, John",other'.

  Raises:
    ValueError: one line, for a quotation mark that is not closed.
  """
  try:
    rows = list(csv.reader([text], skipinitialspace=True, strict=True))
  except csv.Error as error:
    raise ValueError(f'--{name} must be separated by commas, with quotation '
                     f'marks around what has one, got {text!r} ({error})'
                     ) from None
  return tuple(part.strip() for row in rows for part in row)
