"""German credit: 20 features of an applicant; good (0) or bad (1) risk.

Categories are those of the published `german.doc`, including those that it says
never occur. Amounts are in Deutsche Mark, durations in months. Rates, residence
and small counts are codes that start at 1.
"""

from dpjax.data import columns
from dpjax.data import tabular


def _codes(prefix: str, count: int, *, first: int = 1) -> tuple[str, ...]:
  """Returns the codes 'A1' + '1', 'A1' + '2', ...: attribute, then value."""
  return tuple(f'{prefix}{first + value}' for value in range(count))


SCHEMA = tabular.Schema(
  delimiter=' ',
  columns=(
    columns.Categorical('checking_account', _codes('A1', 4)),
    columns.Numeric('duration', 3, 72, scale='log'),
    columns.Categorical('credit_history', _codes('A3', 5, first=0)),
    # Codes are A, the attribute's number, the value: A40 to A410 here.
    columns.Categorical('purpose', _codes('A4', 11, first=0)),
    columns.Numeric('credit_amount', 200, 20_000, scale='log'),
    columns.Categorical('savings', _codes('A6', 5)),
    columns.Categorical('employment', _codes('A7', 5)),
    columns.Numeric('installment_rate', 1, 4),
    columns.Categorical('personal_status', _codes('A9', 5)),
    columns.Categorical('other_debtors', _codes('A10', 3)),
    columns.Numeric('residence', 1, 4),
    columns.Categorical('property', _codes('A12', 4)),
    columns.Numeric('age', 18, 80),
    columns.Categorical('other_plans', _codes('A14', 3)),
    columns.Categorical('housing', _codes('A15', 3)),
    columns.Numeric('existing_credits', 1, 4),
    columns.Categorical('job', _codes('A17', 4)),
    columns.Numeric('dependants', 1, 2),
    columns.Categorical('telephone', _codes('A19', 2)),
    columns.Categorical('foreign_worker', _codes('A20', 2)),
    columns.Label('risk', (('1',), ('2',))),
  ))
