"""Reads tables: CSV, Parquet and Arrow files, and columns in memory.

All commands read records through this package, so a file has one meaning in
all of them. `formats` has the declarations of the data owner and lists what is
refused. JAX is not used here; pyarrow is optional for CSV.

Modules, in import order: decimals, formats, lines, arrow, columns, parquet,
reader.
"""

__all__ = [
  'arrow', 'columns', 'decimals', 'formats', 'lines', 'parquet', 'reader'
]
