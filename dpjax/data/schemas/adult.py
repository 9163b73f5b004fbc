"""Adult (census income): 14 features; is the income above 50,000 dollars?

Categories are those of the published file adult.names, plus '?' (unknown) for
the columns that have it. The bounds of age and hours follow the census codes.
Years of schooling are 1 to 16 by definition. The bounds of weights and money
are orders of magnitude.
"""

from dpjax.data import columns
from dpjax.data import tabular

_WORKCLASS = (
  'Private', 'Self-emp-not-inc', 'Self-emp-inc', 'Federal-gov', 'Local-gov',
  'State-gov', 'Without-pay', 'Never-worked', '?')

_EDUCATION = (
  'Bachelors', 'Some-college', '11th', 'HS-grad', 'Prof-school',
  'Assoc-acdm', 'Assoc-voc', '9th', '7th-8th', '12th', 'Masters', '1st-4th',
  '10th', 'Doctorate', '5th-6th', 'Preschool')

_MARITAL_STATUS = (
  'Married-civ-spouse', 'Divorced', 'Never-married', 'Separated', 'Widowed',
  'Married-spouse-absent', 'Married-AF-spouse')

_OCCUPATION = (
  'Tech-support', 'Craft-repair', 'Other-service', 'Sales',
  'Exec-managerial', 'Prof-specialty', 'Handlers-cleaners',
  'Machine-op-inspct', 'Adm-clerical', 'Farming-fishing',
  'Transport-moving', 'Priv-house-serv', 'Protective-serv', 'Armed-Forces',
  '?')

_RELATIONSHIP = (
  'Wife', 'Own-child', 'Husband', 'Not-in-family', 'Other-relative',
  'Unmarried')

_RACE = (
  'White', 'Asian-Pac-Islander', 'Amer-Indian-Eskimo', 'Other', 'Black')

_NATIVE_COUNTRY = (
  'United-States', 'Cambodia', 'England', 'Puerto-Rico', 'Canada', 'Germany',
  'Outlying-US(Guam-USVI-etc)', 'India', 'Japan', 'Greece', 'South', 'China',
  'Cuba', 'Iran', 'Honduras', 'Philippines', 'Italy', 'Poland', 'Jamaica',
  'Vietnam', 'Mexico', 'Portugal', 'Ireland', 'France',
  'Dominican-Republic', 'Laos', 'Ecuador', 'Taiwan', 'Haiti', 'Columbia',
  'Hungary', 'Guatemala', 'Nicaragua', 'Scotland', 'Thailand', 'Yugoslavia',
  'El-Salvador', 'Trinadad&Tobago', 'Peru', 'Hong', 'Holand-Netherlands',
  '?')

SCHEMA = tabular.Schema(
  # The second file starts with '|1x3 Cross validator', and its labels end
  # with a full stop.
  comment='|',
  columns=(
    columns.Numeric('age', 17, 90),
    columns.Categorical('workclass', _WORKCLASS),
    # The number of persons that the record stands for.
    columns.Numeric('fnlwgt', 10_000, 1_500_000, scale='log'),
    columns.Categorical('education', _EDUCATION),
    columns.Numeric('education-num', 1, 16),
    columns.Categorical('marital-status', _MARITAL_STATUS),
    columns.Categorical('occupation', _OCCUPATION),
    columns.Categorical('relationship', _RELATIONSHIP),
    columns.Categorical('race', _RACE),
    columns.Categorical('sex', ('Female', 'Male')),
    # Both can be zero, which has no plain logarithm.
    columns.Numeric('capital-gain', 0, 100_000, scale='signed_log'),
    columns.Numeric('capital-loss', 0, 5_000, scale='signed_log'),
    columns.Numeric('hours-per-week', 1, 99),
    columns.Categorical('native-country', _NATIVE_COUNTRY),
    columns.Label('income', (('<=50K', '<=50K.'), ('>50K', '>50K.'))),
  ))
