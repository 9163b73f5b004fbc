"""Diabetes in 130 US hospitals: 49 columns; is the patient readmitted?

The positive class is any readmission, as in Barczewski (2025, Table 6.1). A
record is one encounter. Some patients have several encounters, so privacy of a
record is not privacy of a patient. Encounter and patient numbers are left out.
Codes of admission, discharge and drugs are those published with the data; '?'
(missing) is a category.

The code lists of three columns are not published in full. Diagnoses (ICD-9)
have the groups of Strack et al. (2014, Table 2), "Impact of HbA1c measurement
on hospital readmission rates", and specialties those of words in their names.
Payers with a code that is not listed here are 'other'.
"""

from dpjax.data import columns
from dpjax.data import tabular

_AGE = tuple(f'[{low}-{low + 10})' for low in range(0, 100, 10))

_WEIGHT = ('?', *(f'[{low}-{low + 25})' for low in range(0, 200, 25)), '>200')

_PAYER = ('?', 'BC', 'CH', 'CM', 'CP', 'DM', 'HM', 'MC', 'MD', 'MP', 'OG',
          'PO', 'SP', 'UN', 'WC')

# The first of these words that occurs in a name decides its group.
_SPECIALTY = (
  'Cardiology', 'Emergency', 'Family', 'InternalMedicine', 'Nephrology',
  'Obst', 'Oncology', 'Ortho', 'Pediatrics', 'Psych', 'Pulmonology',
  'Radiolog', 'Surg')

# Groups of codes by the number before the decimal point. Symptoms of an organ
# are grouped with its diseases.
_ICD_9 = (
  ('diabetes', (250,)),
  ('circulatory', (*range(390, 460), 785)),
  ('respiratory', (*range(460, 520), 786)),
  ('digestive', (*range(520, 580), 787)),
  ('genitourinary', (*range(580, 630), 788)),
  ('neoplasms', tuple(range(140, 240))),
  ('musculoskeletal', tuple(range(710, 740))),
  ('injury', tuple(range(800, 1000))),
)
_GROUP_OF_CODE = {code: name for name, codes in _ICD_9 for code in codes}

_DRUGS = (
  'metformin', 'repaglinide', 'nateglinide', 'chlorpropamide', 'glimepiride',
  'acetohexamide', 'glipizide', 'glyburide', 'tolbutamide', 'pioglitazone',
  'rosiglitazone', 'acarbose', 'miglitol', 'troglitazone', 'tolazamide',
  'examide', 'citoglipton', 'insulin', 'glyburide-metformin',
  'glipizide-metformin', 'glimepiride-pioglitazone',
  'metformin-rosiglitazone', 'metformin-pioglitazone')


def _payer(code: str) -> str:
  return code if code in _PAYER else 'other'


def _specialty(code: str) -> str:
  if code == '?':
    return code
  return next((word for word in _SPECIALTY if word in code), 'other')


def _diagnosis(code: str) -> str:
  if code == '?':
    return code
  # Codes that begin with V or E have no number here and are 'other'.
  whole = code.split('.')[0]
  return _GROUP_OF_CODE.get(int(whole) if whole.isdecimal() else -1, 'other')


def _codes(name: str, last: int) -> columns.Categorical:
  return columns.Categorical(name, tuple(map(str, range(1, last + 1))))


def _count(name: str) -> columns.Numeric:
  return columns.Numeric(name, 0, 50, scale='signed_log')


SCHEMA = tabular.Schema(
  header=True,
  columns=(
    columns.Skip('encounter_id'),
    columns.Skip('patient_nbr'),
    columns.Categorical('race', (
      '?', 'Caucasian', 'Asian', 'AfricanAmerican', 'Hispanic', 'Other')),
    columns.Categorical('gender', ('Female', 'Male', 'Unknown/Invalid')),
    columns.Categorical('age', _AGE),
    columns.Categorical('weight', _WEIGHT),
    _codes('admission_type_id', 8),
    _codes('discharge_disposition_id', 30),
    _codes('admission_source_id', 26),
    columns.Numeric('time_in_hospital', 1, 14),
    columns.Grouped('payer_code', (*_PAYER, 'other'), _payer),
    columns.Grouped('medical_specialty', ('?', *_SPECIALTY, 'other'),
                    _specialty),
    columns.Numeric('num_lab_procedures', 0, 120),
    columns.Numeric('num_procedures', 0, 6),
    columns.Numeric('num_medications', 1, 80),
    _count('number_outpatient'),
    _count('number_emergency'),
    _count('number_inpatient'),
    *(columns.Grouped(f'diag_{place}',
                      ('?', *(name for name, _ in _ICD_9), 'other'),
                      _diagnosis) for place in (1, 2, 3)),
    columns.Numeric('number_diagnoses', 1, 16),
    columns.Categorical('max_glu_serum', ('None', 'Norm', '>200', '>300')),
    columns.Categorical('A1Cresult', ('None', 'Norm', '>7', '>8')),
    *(columns.Categorical(drug, ('No', 'Steady', 'Up', 'Down'))
      for drug in _DRUGS),
    columns.Categorical('change', ('No', 'Ch')),
    columns.Categorical('diabetesMed', ('No', 'Yes')),
    columns.Label('readmitted', (('NO',), ('<30', '>30'))),
  ))
