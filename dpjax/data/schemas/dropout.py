"""Students' dropout: 36 features at enrolment and of two semesters, 3 classes.

Coded columns are one-hot, with the codes that the published code book (the
variables table of the UCI page) lists for each column. Admission grades range
from about 95, the lowest that admits, to 200. Semester grades go up to 20.
Curricular units are counts per semester. Rates are in percent.
"""

from dpjax.data import columns
from dpjax.data import tabular

_APPLICATION_MODE = '1 2 5 7 10 15 16 17 18 26 27 39 42 43 44 51 53 57'

_COURSE = (
  '33 171 8014 9003 9070 9085 9119 9130 9147 9238 9254 9500 9556 9670 9773 '
  '9853 9991')

_PREVIOUS_QUALIFICATION = '1 2 3 4 5 6 9 10 12 14 15 19 38 39 40 42 43'

_NATIONALITY = (
  '1 2 6 11 13 14 17 21 22 24 25 26 32 41 62 100 101 103 105 108 109')

_MOTHERS_QUALIFICATION = (
  '1 2 3 4 5 6 9 10 11 12 14 18 19 22 26 27 29 30 34 35 36 37 38 39 40 41 42 '
  '43 44')

_FATHERS_QUALIFICATION = (
  '1 2 3 4 5 6 9 10 11 12 13 14 18 19 20 22 25 26 27 29 30 31 33 34 35 36 37 '
  '38 39 40 41 42 43 44')

_MOTHERS_OCCUPATION = (
  '0 1 2 3 4 5 6 7 8 9 10 90 99 122 123 125 131 132 134 141 143 144 151 152 '
  '153 171 173 175 191 192 193 194')

_FATHERS_OCCUPATION = (
  '0 1 2 3 4 5 6 7 8 9 10 90 99 101 102 103 112 114 121 122 123 124 131 132 '
  '134 135 141 143 144 151 152 153 154 161 163 171 172 174 175 181 182 183 '
  '192 193 194 195')


def _coded(name: str, codes: str) -> columns.Categorical:
  """Returns a one-hot column; `codes` are separated by blanks."""
  return columns.Categorical(name, tuple(codes.split()))


def _semester(ordinal: str) -> tuple[columns.Numeric, ...]:
  """Returns the six columns of a semester, '1st' or '2nd'."""
  prefix = f'Curricular units {ordinal} sem'
  return (
    columns.Numeric(f'{prefix} (credited)', 0, 20),
    columns.Numeric(f'{prefix} (enrolled)', 0, 20),
    columns.Numeric(f'{prefix} (evaluations)', 0, 40, scale='sqrt'),
    columns.Numeric(f'{prefix} (approved)', 0, 20),
    columns.Numeric(f'{prefix} (grade)', 0, 20),
    columns.Numeric(f'{prefix} (without evaluations)', 0, 12, scale='sqrt'),
  )


SCHEMA = tabular.Schema(
  delimiter=';',
  header=True,
  columns=(
    _coded('Marital status', '1 2 3 4 5 6'),
    _coded('Application mode', _APPLICATION_MODE),
    columns.Numeric('Application order', 0, 9),
    _coded('Course', _COURSE),
    columns.Binary('Daytime/evening attendance'),
    _coded('Previous qualification', _PREVIOUS_QUALIFICATION),
    columns.Numeric('Previous qualification (grade)', 80, 200),
    # The spelling is that of the file's header.
    _coded('Nacionality', _NATIONALITY),
    _coded('Mother\'s qualification', _MOTHERS_QUALIFICATION),
    _coded('Father\'s qualification', _FATHERS_QUALIFICATION),
    _coded('Mother\'s occupation', _MOTHERS_OCCUPATION),
    _coded('Father\'s occupation', _FATHERS_OCCUPATION),
    columns.Numeric('Admission grade', 80, 200),
    columns.Binary('Displaced'),
    columns.Binary('Educational special needs'),
    columns.Binary('Debtor'),
    columns.Binary('Tuition fees up to date'),
    columns.Binary('Gender'),
    columns.Binary('Scholarship holder'),
    columns.Numeric('Age at enrollment', 16, 70, scale='log'),
    columns.Binary('International'),
    *_semester('1st'),
    *_semester('2nd'),
    columns.Numeric('Unemployment rate', 5, 20),
    columns.Numeric('Inflation rate', -2, 5),
    columns.Numeric('GDP', -5, 5),
    columns.Label('Target', (('Dropout',), ('Enrolled',), ('Graduate',))),
  ))
