"""Tests dpjax.data.schemas on real rows encoded by hand."""

import math

import numpy as np
import pytest

from dpjax.data import columns
from dpjax.data import registry
from dpjax.data import tabular


def _encode(name, text, *, header=False):
  schema = registry.DATASETS[name].schema
  if header:
    names = schema.delimiter.join(column.name for column in schema.columns)
    text = f'{names}\n{text}'
  table = tabular.parse(text.encode(), schema, file=name)
  encoded = tabular.encode(table, schema)
  rows = [dict(zip(schema.feature_names, row)) for row in encoded.x.tolist()]
  return rows, encoded.y.tolist()


def _active(row):
  """Returns the names of the one-hot features that are set."""
  return {name for name, value in row.items() if '=' in name and value == 1}


def _log(value, lower, upper):
  ratio = math.log(value / lower) / math.log(upper / lower)
  return pytest.approx(2 * ratio - 1, abs=1e-6)


def test_adult():
  rows, labels = _encode('adult', (
    '39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, '
    'Not-in-family, White, Male, 2174, 0, 40, United-States, <=50K\n'
    '|1x3 Cross validator\n'
    '90, ?, 5, HS-grad, 16, Widowed, ?, Wife, Black, Female, 0, 9999, 99, '
    '?, >50K.\n'))
  first, second = rows
  assert labels == [0, 1]
  assert _active(first) == {
    'workclass=State-gov', 'education=Bachelors', 'race=White', 'sex=Male',
    'marital-status=Never-married', 'occupation=Adm-clerical',
    'relationship=Not-in-family', 'native-country=United-States'}
  assert first['age'] == pytest.approx(2 * 22 / 73 - 1)
  assert first['fnlwgt'] == _log(77516, 10_000, 1_500_000)
  assert first['education-num'] == pytest.approx(2 * 12 / 15 - 1)
  assert first['capital-gain'] == _log(2175, 1, 100_001)
  assert first['capital-loss'] == -1
  assert {'workclass=?', 'occupation=?', 'native-country=?'} < _active(second)
  assert second['age'] == second['capital-loss'] == second['education-num'] == 1
  assert second['fnlwgt'] == -1


def test_nursery():
  (row,), labels = _encode('nursery', (
    'usual,proper,foster,more,critical,inconv,problematic,not_recom,'
    'spec_prior\n\n'))
  assert labels == [4]
  assert _active(row) == {
    'parents=usual', 'has_nurs=proper', 'form=foster', 'children=more',
    'housing=critical', 'finance=inconv', 'social=problematic',
    'health=not_recom'}
  assert sum(row.values()) == 8


def test_german_credit():
  (row,), labels = _encode('german_credit', (
    'A11 6 A34 A410 1169 A65 A75 4 A93 A101 1 A121 67 A143 A152 2 A173 1 A192 '
    'A201 2\n'))
  assert labels == [1]
  assert _active(row) == {
    'checking_account=A11', 'credit_history=A34', 'purpose=A410',
    'savings=A65', 'employment=A75', 'personal_status=A93',
    'other_debtors=A101', 'property=A121', 'other_plans=A143',
    'housing=A152', 'job=A173', 'telephone=A192', 'foreign_worker=A201'}
  assert row['duration'] == _log(6, 3, 72)
  assert row['credit_amount'] == _log(1169, 200, 20_000)
  assert row['installment_rate'] == 1 and row['residence'] == -1
  assert row['existing_credits'] == pytest.approx(-1 / 3)


def test_default_credit():
  tail = ',2,0,-1,-2,5,9,3913,-999,0,0,0,0,0,99,0,0,0,0,1\n'
  (row, fixed), labels = _encode(
    'default_credit', f'1,20000,2,6,0,50{tail}3,20000,2,6,0,nan{tail}',
    header=True)
  assert labels == [1, 1]
  assert _active(row) == {
    'SEX=2', 'EDUCATION=6', 'MARRIAGE=0', 'PAY_0=2', 'PAY_2=0', 'PAY_3=-1',
    'PAY_4=-2', 'PAY_5=5', 'PAY_6=9'}
  assert row['LIMIT_BAL'] == _log(20_000, 10_000, 1_000_000)
  assert row['AGE'] == 0
  unit = math.log(1_000_001)
  assert row['BILL_AMT1'] == pytest.approx(math.log(3914) / unit)
  assert row['BILL_AMT2'] == pytest.approx(-math.log(1000) / unit)
  assert row['BILL_AMT3'] == 0 and row['PAY_AMT1'] == -1
  assert row['PAY_AMT2'] == _log(100, 1, 1_000_001)
  # The published age of client 3 is 34; no other client is corrected.
  assert fixed['AGE'] == pytest.approx(2 * 14 / 60 - 1)
  with pytest.raises(ValueError, match='line 2, column \'AGE\': \'nan\' is no'):
    _encode('default_credit', f'5,20000,2,6,0,nan{tail}', header=True)


def test_dropout():
  (row,), labels = _encode('dropout', (
    '1;57;0;9991;1;43;140.0;109;44;44;194;195;110;1;0;0;1;1;0;70;0;'
    '5;10;10;15;20.0;3;0;0;40;20;0.0;12;12.5;1.5;0;Graduate\n'), header=True)
  assert labels == [2]
  assert _active(row) == {
    'Marital status=1', 'Application mode=57', 'Course=9991',
    'Previous qualification=43', 'Nacionality=109',
    'Mother\'s qualification=44', 'Father\'s qualification=44',
    'Mother\'s occupation=194', 'Father\'s occupation=195'}
  assert row['Application order'] == -1 and row['Age at enrollment'] == 1
  assert row['Previous qualification (grade)'] == 0
  assert row['Admission grade'] == -0.5
  assert row['Displaced'] == 1 and row['Debtor'] == 0
  assert row['Curricular units 1st sem (credited)'] == -0.5
  assert row['Curricular units 1st sem (evaluations)'] == 0
  assert row['Curricular units 1st sem (approved)'] == 0.5
  assert row['Curricular units 1st sem (without evaluations)'] == 0
  assert row['Curricular units 2nd sem (evaluations)'] == 1
  assert row['Unemployment rate'] == row['Inflation rate'] == row['GDP'] == 0


def test_android_permissions():
  (row,), labels = _encode(
    'android_permissions', ','.join(['1'] + 84 * ['0'] + ['1', '1']),
    header=True)
  assert labels == [1] and len(row) == 86
  assert [name for name, value in row.items() if value] == [
    'android.permission.GET_ACCOUNTS',
    'android.permission.PROCESS_INCOMING_CALLS']


def test_breast_cancer():
  (row,), labels = _encode('breast_cancer', (
    '842302,M,17.99,20,90,1000,0.1,0.1,0.125,0.0625,0.2,0.07,1,1,1,100,0.006,'
    '0.05,0.1,0.015,0.03,0.006,25,17,184,2019,0.16,0.67,0,0.3,0.46,9\n'))
  assert labels == [1]
  assert row['radius_mean'] == _log(17.99, 6, 30)
  assert row['concavity_mean'] == row['concave_points_mean'] == 0
  assert row['area_se'] == _log(100, 5, 600)
  assert row['concavity_se'] == row['concave_points_se'] == 0
  assert row['symmetry_worst'] == _log(0.46, 0.15, 0.7)
  assert row['concavity_worst'] == -1 and row['concave_points_worst'] == 1
  assert row['fractal_dimension_worst'] == 1


def test_framingham():
  (row, gaps), labels = _encode('framingham', (
    '1,30,4,0,15,1,0,1,0,300,165,95,32.5,95,126.4911064,1\n'
    '0,99,NA,1,NA,NA,1,0,1,NA,80,150,NA,NA,NA,0\n'), header=True)
  assert labels == [1, 0]
  assert _active(row) == {'Education=4', 'BPMeds=1'}
  assert row['Age'] == -1 and row['Male'] == row['PrevalentHyp'] == 1
  assert row['CigsPerDay'] == row['TotChol'] == row['SysBP'] == 0
  assert row['DiaBP'] == row['BMI'] == row['HeartRate'] == 0
  assert row['Glucose'] == pytest.approx(0, abs=1e-6)
  assert _active(gaps) == {
    'Education=NA', 'BPMeds=NA', 'CigsPerDay=NA', 'TotChol=NA', 'BMI=NA',
    'HeartRate=NA', 'Glucose=NA'}
  assert gaps['Age'] == gaps['DiaBP'] == 1 and gaps['CigsPerDay'] == -1
  assert gaps['TotChol'] == -0.5 and gaps['BMI'] == pytest.approx(-3 / 7)
  assert gaps['Glucose'] == _log(80, 40, 400)
  with pytest.raises(ValueError, match='\'Age\': a number is missing'):
    _encode('framingham', '0,NA,1,1,0,0,1,0,1,200,80,150,20,70,80,0\n',
            header=True)


def test_bank_full():
  (row,), labels = _encode('bank_full', (
    '59;"management";"married";"tertiary";"no";-9999;"yes";"no";"unknown";16;'
    '"may";900;1;-1;0;"success";"yes"\n'), header=True)
  assert labels == [1]
  assert _active(row) == {
    'job=management', 'marital=married', 'education=tertiary', 'default=no',
    'housing=yes', 'loan=no', 'contact=unknown', 'month=may',
    'poutcome=success'}
  assert row['age'] == row['day'] == row['duration'] == 0
  assert row['campaign'] == row['pdays'] == row['previous'] == -1
  low, high = -math.log(10_001), math.log(100_001)
  assert row['balance'] == pytest.approx(
    2 * (-math.log(10_000) - low) / (high - low) - 1)


def test_diabetes_130():
  drugs = 'Steady' + 22 * ',No'
  (row,), labels = _encode('diabetes_130', (
    '7,8,?,Male,[30-40),>200,8,30,26,14,FR,Surgery-Pediatric,60,3,81,0,50,99,'
    f'250.83,V57,410,16,None,>8,{drugs},Ch,Yes,>30\n'), header=True)
  assert labels == [1]
  assert _active(row) == {
    'race=?', 'gender=Male', 'age=[30-40)', 'weight=>200',
    'admission_type_id=8', 'discharge_disposition_id=30',
    'admission_source_id=26', 'payer_code=other', 'medical_specialty=Surg',
    'diag_1=diabetes', 'diag_2=other', 'diag_3=circulatory',
    'max_glu_serum=None', 'A1Cresult=>8', 'metformin=Steady', 'change=Ch',
    'diabetesMed=Yes'} | {name for name in row if name.endswith('=No')
                          and not name.startswith(('metformin=', 'change',
                                                   'diabetesMed'))}
  assert row['time_in_hospital'] == row['num_medications'] == 1
  assert row['num_lab_procedures'] == row['num_procedures'] == 0
  assert row['number_outpatient'] == -1 and row['number_emergency'] == 1
  assert 'encounter_id' not in row and 'patient_nbr' not in row


# The groups of Table 2 of Strack et al. 2014, by their first and last codes.
_GROUPS = {
  'diabetes': [(250, 250)], 'circulatory': [(390, 459), (785, 785)],
  'respiratory': [(460, 519), (786, 786)],
  'digestive': [(520, 579), (787, 787)],
  'genitourinary': [(580, 629), (788, 788)], 'neoplasms': [(140, 239)],
  'musculoskeletal': [(710, 739)], 'injury': [(800, 999)]}


def test_groups_of_all_diagnoses():
  """Each ICD-9 code from 0 to 1000 and each other chapter gets its group."""
  column, = (c for c in registry.DATASETS['diabetes_130'].schema.columns
             if c.name == 'diag_2')
  assert column.groups == ('?', *_GROUPS, 'other')
  for code in range(1001):
    groups = [name for name, ranges in _GROUPS.items()
              if any(first <= code <= last for first, last in ranges)]
    for text in (str(code), f'{code:03d}.{code % 100}'):
      assert [column.group(text)] == (groups or ['other'])
  for text in ('V57', 'E885', 'V250', '', '-250', '25O'):
    assert column.group(text) == 'other'
  assert column.group('?') == '?'


def test_groups_of_specialties_and_payers():
  grouped = {column.name: column
             for column in registry.DATASETS['diabetes_130'].schema.columns
             if isinstance(column, columns.Grouped)}
  group = grouped['medical_specialty'].group
  assert [group(text) for text in (
    '?', 'Surgery-Vascular', 'Pediatrics-Endocrinology', 'InternalMedicine',
    'Orthopedics-Reconstructive', 'Podiatry')] == [
      '?', 'Surg', 'Pediatrics', 'InternalMedicine', 'Ortho', 'other']
  group = grouped['payer_code'].group
  assert [group(text) for text in ('?', 'BC', 'WC', 'FR', '')] == [
    '?', 'BC', 'WC', 'other', 'other']


# Number of codes of each coded column.
_CODES = {
  'default_credit': {'SEX': 2, 'EDUCATION': 7, 'MARRIAGE': 4, **{
    f'PAY_{month}': 12 for month in (0, 2, 3, 4, 5, 6)}},
  'diabetes_130': {
    'race': 6, 'gender': 3, 'age': 10, 'weight': 10, 'admission_type_id': 8,
    'discharge_disposition_id': 30, 'admission_source_id': 26,
    'max_glu_serum': 4, 'A1Cresult': 4, 'change': 2, 'diabetesMed': 2},
  'german_credit': {
    'checking_account': 4, 'credit_history': 5, 'purpose': 11, 'savings': 5,
    'employment': 5, 'personal_status': 5, 'other_debtors': 3, 'property': 4,
    'other_plans': 3, 'housing': 3, 'job': 4, 'telephone': 2,
    'foreign_worker': 2},
}


@pytest.mark.parametrize('name', sorted(_CODES))
def test_codes_are_those_of_the_documentation(name):
  categories = {column.name: column.categories
                for column in registry.DATASETS[name].schema.columns
                if isinstance(column, columns.Categorical)}
  if name == 'diabetes_130':
    assert categories['age'][:2] == ('[0-10)', '[10-20)')
    assert categories['weight'][:3] == ('?', '[0-25)', '[25-50)')
    assert categories['admission_source_id'] == tuple(map(str, range(1, 27)))
    drugs = {drug: categories.pop(drug) for drug in list(categories)
             if drug not in _CODES[name]}
    assert len(drugs) == 23
    assert set(drugs.values()) == {('No', 'Steady', 'Up', 'Down')}
  if name == 'german_credit':
    # Codes are attribute, then value, from 0 on for history and purpose.
    firsts = [int(codes[0][-1]) for codes in categories.values()]
    assert firsts == [1, 0, 0] + [1] * 10
    assert categories['other_debtors'] == ('A101', 'A102', 'A103')
  if name == 'default_credit':
    assert categories['PAY_3'] == tuple(map(str, range(-2, 10)))
  assert {column: len(codes) for column, codes in categories.items()} == (
      _CODES[name])


@pytest.mark.every(1)
@pytest.mark.parametrize('name', registry.names())
def test_specification_agrees_with_schema(name):
  spec = registry.DATASETS[name]
  label, = (c for c in spec.schema.columns if isinstance(c, columns.Label))
  assert len(label.classes) == spec.num_classes
  assert len(spec.schema.feature_names) == spec.num_features
  assert len(set(spec.schema.feature_names)) == spec.num_features
  assert spec.name == name
  # One data set is not from UCI.
  assert ('https://doi.org/10.24432/' in spec.source) is (name != 'framingham')


@pytest.mark.parametrize('name', registry.names())
def test_all_public_values_are_encoded_within_the_unit_box(name):
  for column in registry.DATASETS[name].schema.columns:
    if isinstance(column, columns.Numeric):
      values = column.encode(np.array([
        column.lower, column.upper, -1e12, 0, 1e12, np.inf, np.nan]))
      assert np.isfinite(values).all() and np.abs(values).max() <= 1
      continue
    elif isinstance(column, columns.Categorical):
      texts = column.categories
    elif isinstance(column, columns.Grouped):
      texts = ['?', '250.83', 'V57', 'Surgery-Vascular', 'MC', 'ZZ', '']
    else:
      continue
    values = np.array([column.encode(text) for text in texts])
    assert np.isfinite(values).all() and np.abs(values).max() <= 1
