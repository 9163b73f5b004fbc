"""Bank marketing, all records: 16 features; does the client subscribe?

Categories are those of the published `bank-names.txt`. It says that no value is
missing, so 'unknown' is a category. Balances are in euros and may be negative;
their bounds are orders of magnitude. Calls are in seconds. `pdays` is -1, which
stays below all other values, for clients who were not called before.
"""

from dpjax.data import columns
from dpjax.data import tabular

_JOB = (
  'admin.', 'unknown', 'unemployed', 'management', 'housemaid',
  'entrepreneur', 'student', 'blue-collar', 'self-employed', 'retired',
  'technician', 'services')

_MONTH = (
  'jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov',
  'dec')


def _yes_or_no(name: str) -> columns.Categorical:
  return columns.Categorical(name, ('no', 'yes'))


SCHEMA = tabular.Schema(
  delimiter=';',
  header=True,
  columns=(
    columns.Numeric('age', 18, 100),
    columns.Categorical('job', _JOB),
    columns.Categorical('marital', ('married', 'divorced', 'single')),
    columns.Categorical(
      'education', ('unknown', 'secondary', 'primary', 'tertiary')),
    _yes_or_no('default'),
    columns.Numeric('balance', -10_000, 100_000, scale='signed_log'),
    _yes_or_no('housing'),
    _yes_or_no('loan'),
    columns.Categorical('contact', ('unknown', 'telephone', 'cellular')),
    columns.Numeric('day', 1, 31),
    columns.Categorical('month', _MONTH),
    columns.Numeric('duration', 0, 3_600, scale='sqrt'),
    columns.Numeric('campaign', 1, 50, scale='log'),
    columns.Numeric('pdays', -1, 1_000, scale='signed_log'),
    columns.Numeric('previous', 0, 50, scale='signed_log'),
    columns.Categorical(
      'poutcome', ('unknown', 'other', 'failure', 'success')),
    columns.Label('y', (('no',), ('yes',))),
  ))
