"""Framingham heart study: 15 features; coronary disease within ten years?

Coded and numeric fields may be missing, 'NA': a code has that as one more
category, a number is then its public default, an ordinary value of the healthy,
and said to be missing by a feature of its own. Bounds are round numbers beyond
what is measured in adults; the cohort was 30 to 62 years old when it began.

The file has 4238 records; thesis 003 prints 4328 (correction C25).
"""

from dpjax.data import columns
from dpjax.data import tabular


def _optional(name: str, lower: float, upper: float, default: float,
              scale: str = 'linear') -> columns.Numeric:
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
