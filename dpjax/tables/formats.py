"""File formats: what the data owner declares, and which files are refused.

A field of a numeric column is a number, a declared missing value, or else a
fault of the file, as is a line that cannot be parsed as a record. The error
message of a fault depends on records, so only the data owner may see it.

`REFUSALS` lists every refusal that depends on records. All of them happen while
the file is read, before anything is measured, spent or drawn, and they do not
depend on the bounds, categories or positive value of the query. The owner can
turn off each of them by a declaration, except for compressed files that are
damaged or far too large once unpacked. With `bad_lines='missing'`,
`unparsed='missing'`, a rule for missing values and a ledger for a named data
set, no other refusal depends on records.

Only the data owner may choose declarations, since they decide what is refused:
others would learn about the records from refusals.
"""

import dataclasses
import datetime
import re
from typing import NamedTuple

from dpjax import errors
from dpjax.tables import decimals

MISSING_TOKENS = ('NA', 'N/A', 'NaN', 'nan', 'null', 'NULL', '?')
"""Default spellings of a missing number."""

ENCODINGS = ('utf-8', 'latin-1', 'cp1252')
RULES = ('refuse', 'missing')

_THOUSANDS = {'.': '[.]', ',': ',', "'": "['\u2019]",
              ' ': '[ \u00a0\u2009\u202f]'}
_DATE = re.compile(r'\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T].*)?')
_GROUPED = re.compile(r"[+-]?\d[\d.,' \u00a0\u2009\u2019\u202f]*")
_SHOWN = 40
_EPOCH = datetime.date(1970, 1, 1)
_ORDERS = ('', 'ymd', 'dmy', 'mdy')
_PARTS = re.compile(r'([0-9]{1,4})([-/.])([0-9]{1,2})\2([0-9]{1,4})')


class Refusal(NamedTuple):
  """One refusal that depends on records.

  Attributes:
    when: fault of the file.
    why: reason why it is refused by default.
    instead: declaration that turns the refusal off; '' if there is none.
  """
  when: str
  why: str
  instead: str


REFUSALS = {
    'encoding': Refusal(
        'a line is not text in the declared encoding',
        'a guess would change names and labels', 'bad_lines=missing'),
    'quoting': Refusal(
        'a line is ill-quoted',
        'one quotation mark too many may swallow all lines that follow',
        'bad_lines=missing'),
    'fields': Refusal(
        'a line has another number of fields than the header',
        'values may stand in the wrong column', 'bad_lines=missing'),
    'length': Refusal(
        'a line or a record has more than 2^20 characters, or a field more '
        'than 2^17',
        'it is probably not a table', 'bad_lines=missing'),
    'number': Refusal(
        'a field of a column of numbers is neither a number nor declared '
        'missing',
        'as a missing value a number in another format would bias the release',
        'decimal, thousands, dates, missing_tokens or unparsed=missing'),
    'missing': Refusal(
        'a number is missing, and no rule says what it counts as',
        'each rule answers another question', 'missing'),
    'changed': Refusal(
        'a byte differs from the file that the ledger is for',
        'its budget is for that one file', 'dataset'),
    'damaged': Refusal(
        'a packed file or a Parquet file is damaged',
        'what is behind the damage cannot be read', ''),
    'expanded': Refusal(
        'a packed file or a Parquet file unpacks to more than 256 MiB and to '
        'more than 100 times its size',
        'a small file could fill memory and time; unpack it first', ''),
}
"""Refusals that depend on records, by `FileError.reason`."""


class FileError(ValueError):
  """Raised for a fault of a file; only the data owner may see the message.

  Attributes:
    reason: a key of `REFUSALS`.
    fault: the fault, without the declaration that would allow it.
  """

  def __init__(self, reason: str, message: str):
    """Adds to the message the declaration that would allow the fault."""
    instead = REFUSALS[reason].instead
    super().__init__(message + (f' (or declare {instead})' if instead else ''))
    self.reason, self.fault = reason, message


@dataclasses.dataclass(frozen=True, kw_only=True)
class Format:
  """The data owner's declarations of how a file is written.

  All of them are public, and must not be chosen by looking at single records.

  Attributes:
    separator: character between fields of a CSV file.
    encoding: encoding of the text, one of `ENCODINGS`.
    header: names of the columns, for a file whose first line is a record; ()
      if the first line has the names.
    decimal: decimal mark, '.' or ','.
    thousands: mark between groups of three digits: '' for none, '.', ',', ' '
      or an apostrophe.
    dates: order of year, month and day, 'ymd', 'dmy' or 'mdy'; a date then
      counts as the number of days since 1970-01-01. '' if dates are no numbers.
    missing_tokens: spellings of a missing number; an empty field is missing,
      too.
    unparsed: 'refuse' a file with a field that is neither a number nor missing,
      or treat the field as 'missing'.
    bad_lines: 'refuse' a file with a faulty line, or read each line as one
      record, and all fields of a faulty line as 'missing'.
  """
  separator: str = ','
  encoding: str = 'utf-8'
  header: tuple[str, ...] = ()
  decimal: str = '.'
  thousands: str = ''
  dates: str = ''
  missing_tokens: tuple[str, ...] = MISSING_TOKENS
  unparsed: str = 'refuse'
  bad_lines: str = 'refuse'

  def __post_init__(self) -> None:
    if len(self.separator) != 1:
      raise ValueError('separator must be one character, got '
                       f'{self.separator!r}')
    if self.separator.isalnum() or self.separator in '+-"\r\n\0':
      raise ValueError('separator must not be a letter, digit, sign, quotation '
                       f'mark or line break, got {self.separator!r}')
    errors.check_choice('encoding', self.encoding, ENCODINGS)
    errors.check_choice('decimal', self.decimal, ('.', ','))
    errors.check_choice('thousands', self.thousands, ('', *_THOUSANDS))
    errors.check_choice('dates', self.dates, _ORDERS)
    if self.thousands == self.decimal:
      raise ValueError('thousands and decimal must be different marks, got '
                       f'{self.decimal!r} for both')
    for name in ('unparsed', 'bad_lines'):
      errors.check_choice(name, getattr(self, name), RULES)

  def number(self, text: str) -> decimals.Decimal | None:
    """Returns a field as a number; None if it is not one in this format."""
    plain = self._plain(text)
    return None if plain is None else decimals.number(plain)

  def days(self, date: datetime.date) -> decimals.Decimal | None:
    """Returns a date as a number of days, None if dates are not numbers."""
    return decimals.Decimal(date.toordinal() - _EPOCH.toordinal()
                            ) if self.dates else None

  def real(self, text: str) -> float | None:
    """Returns the float64 nearest to a field, infinite if it is too large.

    None if the field is not a number in this format.
    """
    plain = self._plain(text)
    if plain is None or decimals.number(plain) is None:
      return None
    return float(plain)

  def _plain(self, text: str) -> str | None:
    """Returns a field with a decimal point and without thousands marks."""
    if self.dates:
      match = _PARTS.fullmatch(text)
      if match:
        parts = dict(zip(self.dates, match.group(1, 3, 4), strict=True))
        return self._day(parts['y'], parts['m'], parts['d'])
    if self.thousands:
      # Groups have three digits each: 1,234 is a number, 1,2345 is none.
      mark = _THOUSANDS[self.thousands]
      match = re.match(f'([+-]?)([0-9]{{1,3}}(?:{mark}[0-9]{{3}})+)(?![0-9])',
                       text)
      if match:
        text = match[1] + re.sub(mark, '', match[2]) + text[match.end():]
    if self.decimal != '.':
      if '.' in text:
        return None
      text = text.replace(self.decimal, '.', 1)
    return text

  def _day(self, year: str, month: str, day: str) -> str | None:
    """Returns a date as a number of days; None if there is no such date."""
    # A year of two digits is refused: its century would be a guess.
    if len(year) != 4 or len(day) > 2:
      return None
    try:
      return str(self.days(datetime.date(int(year), int(month), int(day))))
    except ValueError:
      return None

  def is_missing(self, text: str) -> bool:
    """Returns whether a field is declared to be a missing number."""
    return not text or text in self.missing_tokens

  def to_json(self) -> dict[str, object]:
    """Returns the separator and all declarations that differ from defaults."""
    default = Format()
    return {
        field.name: list(value) if isinstance(value, tuple) else value
        for field in dataclasses.fields(self)
        for value in [getattr(self, field.name)]
        if field.name == 'separator' or value != getattr(default, field.name)}


def shown(text: str) -> str:
  """Returns a field as error messages show it: quoted, long ones cut off."""
  return repr(text if len(text) <= _SHOWN else f'{text[:_SHOWN]}...')


def advice(text: str) -> str:
  """Returns advice for a field that is not a number; '' if there is none."""
  if _DATE.fullmatch(text):
    return '; declare the order of dates to read them as days'
  if _GROUPED.fullmatch(text):
    return '; does the file use other decimal or thousands marks?'
  if re.search(r'\d', text):
    return '; remove units and currency signs'
  return ''
