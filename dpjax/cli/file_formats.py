"""Flags by which the data owner declares how a file is written."""

import argparse

from absl import flags

from dpjax.release import parameters
from dpjax.tables import formats

FLAGS = (
    ('separator', 'Separator of a CSV file: one character, or tab. Default: a '
     'comma, a tab for .tsv.'),
    ('encoding', f'Encoding of a CSV file: {", ".join(formats.ENCODINGS)}. '
     'Default: utf-8.'),
    ('header', 'Names of the columns, separated by commas, of a CSV file whose '
     'first line is a record. Default: the first line names them.'),
    ('decimal', 'Decimal mark, "." or ",". Default: a point.'),
    ('thousands', 'Mark between groups of three digits: ".", ",", a space or '
     'an apostrophe. Default: none.'),
    ('dates', 'Order of year, month and day of dates: ymd, dmy or mdy. A date '
     'is then a number, of days since 1970-01-01. Default: dates are not '
     'numbers.'),
    ('missing_tokens', 'Spellings of a missing number, separated by commas; '
     'an empty field is missing, too. Default: '
     f'{",".join(formats.MISSING_TOKENS)}.'),
    ('unparsed', 'Rule for a field that is neither a number nor missing: '
     'refuse the file, or take the field as missing. Default: refuse.'),
    ('bad_lines', 'Rule for a faulty line: refuse the file, or take all of its '
     'fields as missing; each line is then read alone, so quoted '
     'fields must end on their line. Default: refuse.'))


def of_flags(args: argparse.Namespace | flags.FlagValues, path: str
             ) -> formats.Format:
  """Returns the format that the flags declare, checked.

  Args:
    args: parsed flags of the command, which may lack some of `FLAGS`.
    path: path of the file, whose extension gives the default separator.

  Raises:
    ValueError: if a declaration is not allowed; the message has one line.
  """
  # Commands that need complete records lack some of the flags.
  given = {name: getattr(args, name) for name, _ in FLAGS
           if getattr(args, name, None) is not None}
  for name in ('header', 'missing_tokens'):
    if name in given:
      given[name] = parameters.quoted(name, given[name])
  given['separator'] = separator(path, given.get('separator'))
  return formats.Format(**given)


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
  # Shells pass \t as two characters.
  character = '\t' if text in ('tab', '\\t') else text
  if len(character) != 1:
    raise ValueError(f'--separator must be one character or tab, got {text!r}')
  return character
