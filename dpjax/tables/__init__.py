"""Reads tables: CSV, Parquet and Arrow files, and columns in memory.

All commands read records through this package, so a file has one meaning.
`formats` has the declarations of the data owner and lists what is refused.
pyarrow is optional for CSV.

Modules, in import order: decimals, formats, lines, arrow, columns, parquet,
reader, row_groups.
"""

from typing import TYPE_CHECKING

from dpjax import lazy

if TYPE_CHECKING:
  from dpjax.tables.formats import FileError as FileError
  from dpjax.tables.formats import Format as Format
  from dpjax.tables.reader import table as table

__all__ = ['FileError', 'Format', 'table']

if not TYPE_CHECKING:  # A checker would take every name for Any.
  __getattr__, __dir__ = lazy.attributes(__name__, __all__, {
      'FileError': 'formats', 'Format': 'formats', 'table': 'reader'})
