"""Framingham heart study: 15 features; coronary disease within ten years?

Coded and numeric fields may be missing, 'NA'. For a code, 'NA' is one more
category. A missing number is replaced by a typical value of healthy people, and
a second feature marks it. Bounds are round numbers outside the range of adults.
The cohort was 30 to 62 years old at the start of the study.

The file has 4238 records; Barczewski (2025, Table 6.1) gives 4328 (erratum
C25).
"""

from dpjax.data import columns
from dpjax.data import tabular


def _optional(name: str, lower: float, upper: float, default: float,
              scale: str = 'linear') -> columns.Numeric:
  """Returns a numeric column whose numbers may be missing, 'NA'."""
  # The default is a constant, since a mean would depend on the records.
  return columns.Numeric(name, lower, upper, scale=scale, missing='NA',
                         default=default)


SCHEMA = tabular.Schema(
  header=True,
  columns=(
    columns.Binary('Male'),
    columns.Numeric('Age', 30, 75),
    columns.Categorical('Education', ('1', '2', '3', '4', 'NA')),
    columns.Binary('CurrentSmoker'),
    _optional('CigsPerDay', 0, 60, 0, 'sqrt'),
    columns.Categorical('BPMeds', ('0', '1', 'NA')),
    columns.Binary('PrevalentStroke'),
    columns.Binary('PrevalentHyp'),
    columns.Binary('Diabetes'),
    _optional('TotChol', 100, 500, 200),
    columns.Numeric('SysBP', 80, 250),
    columns.Numeric('DiaBP', 40, 150),
    _optional('BMI', 15, 50, 25),
    _optional('HeartRate', 40, 150, 75),
    _optional('Glucose', 40, 400, 80, 'log'),
    columns.Label('TenYearCHD', (('0',), ('1',))),
  ))
