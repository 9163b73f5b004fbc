"""Default of credit card clients: 23 features; payment missed next month?

Amounts are in New Taiwan dollars; their bounds are orders of magnitude. Bills
may be negative (credit balances), so their scale is the signed logarithm.
`PAY_*` is a code: -2 (no use), -1 (paid in full), 0 (revolving), or the delay
in months, with 9 for nine or more. It is one-hot, since the first three codes
are not delays. Codes published as unknown (0, 5, 6) are categories.

The CSV version has 'nan' for the age of clients 3 and 4. The published table
has 34 and 37, which are restored. Any other missing value is an error.
"""

from dpjax.data import columns
from dpjax.data import tabular

# The file has a column PAY_0 but none called PAY_1.
_MONTHS = ('0', '2', '3', '4', '5', '6')
_DELAYS = tuple(map(str, range(-2, 10)))


def _amounts(prefix: str, *, lower: float) -> tuple[columns.Numeric, ...]:
  return tuple(
    columns.Numeric(f'{prefix}{month}', lower, 1_000_000, scale='signed_log')
    for month in range(1, 7))


SCHEMA = tabular.Schema(
  header=True,
  columns=(
    columns.Skip('ID'),
    columns.Numeric('LIMIT_BAL', 10_000, 1_000_000, scale='log'),
    columns.Categorical('SEX', ('1', '2')),
    columns.Categorical('EDUCATION', ('0', '1', '2', '3', '4', '5', '6')),
    columns.Categorical('MARRIAGE', ('0', '1', '2', '3')),
    columns.Numeric('AGE', 20, 80),
    *(columns.Categorical(f'PAY_{month}', _DELAYS) for month in _MONTHS),
    *_amounts('BILL_AMT', lower=-1_000_000),
    *_amounts('PAY_AMT', lower=0),
    columns.Label('default.payment.next.month', (('0',), ('1',))),
  ),
  errata=(
    tabular.Erratum(key='3', column='AGE', wrong='nan', value='34'),
    tabular.Erratum(key='4', column='AGE', wrong='nan', value='37'),
  ))
