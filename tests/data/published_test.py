"""Repeats the public facts about each data set: bounds, sizes and sources.

A changed bound changes the features, so results from before and after the
change cannot be compared.
"""

import re

import pytest

from dpjax.data import columns
from dpjax.data import registry
from dpjax.data import series


def _monthly(name, lower):
  return ''.join(f'{name}{month}: {lower} 1000000 signed_log\n'
                 for month in range(1, 7))


def _semester(ordinal):
  return ''.join(f'Curricular units {ordinal} sem ({what}): {bounds}\n'
                 for what, bounds in (
                   ('credited', '0 20 linear'), ('enrolled', '0 20 linear'),
                   ('evaluations', '0 40 sqrt'), ('approved', '0 20 linear'),
                   ('grade', '0 20 linear'),
                   ('without evaluations', '0 12 sqrt')))


# column: lower and upper bound, scale, and the default of a missing number.
BOUNDS = {
  'adult': '''
    age: 17 90 linear; fnlwgt: 10000 1500000 log; education-num: 1 16 linear
    capital-gain: 0 100000 signed_log; capital-loss: 0 5000 signed_log
    hours-per-week: 1 99 linear''',
  'android_permissions': '',
  'bank_full': '''
    age: 18 100 linear; balance: -10000 100000 signed_log; day: 1 31 linear
    duration: 0 3600 sqrt; campaign: 1 50 log; pdays: -1 1000 signed_log
    previous: 0 50 signed_log''',
  'breast_cancer': '''
    radius_mean: 6 30 log; texture_mean: 9 40 log; perimeter_mean: 40 200 log
    area_mean: 100 3000 log; smoothness_mean: 0.05 0.2 log
    compactness_mean: 0.01 0.4 log; concavity_mean: 0 0.5 sqrt
    concave_points_mean: 0 0.25 sqrt; symmetry_mean: 0.1 0.35 log
    fractal_dimension_mean: 0.04 0.1 log; radius_se: 0.1 3 log
    texture_se: 0.3 5 log; perimeter_se: 0.7 25 log; area_se: 5 600 log
    smoothness_se: 0.001 0.04 log; compactness_se: 0.002 0.2 log
    concavity_se: 0 0.4 sqrt; concave_points_se: 0 0.06 sqrt
    symmetry_se: 0.005 0.1 log; fractal_dimension_se: 0.0005 0.03 log
    radius_worst: 7 40 log; texture_worst: 10 50 log
    perimeter_worst: 50 300 log; area_worst: 150 5000 log
    smoothness_worst: 0.06 0.25 log; compactness_worst: 0.02 1.2 log
    concavity_worst: 0 1.5 sqrt; concave_points_worst: 0 0.3 sqrt
    symmetry_worst: 0.15 0.7 log; fractal_dimension_worst: 0.05 0.25 log''',
  'default_credit': 'LIMIT_BAL: 10000 1000000 log; AGE: 20 80 linear\n' + (
    _monthly('BILL_AMT', -1_000_000) + _monthly('PAY_AMT', 0)),
  'diabetes_130': '''
    time_in_hospital: 1 14 linear; num_lab_procedures: 0 120 linear
    num_procedures: 0 6 linear; num_medications: 1 80 linear
    number_outpatient: 0 50 signed_log; number_emergency: 0 50 signed_log
    number_inpatient: 0 50 signed_log; number_diagnoses: 1 16 linear''',
  'dropout': '''
    Application order: 0 9 linear; Previous qualification (grade): 80 200 linear
    Admission grade: 80 200 linear; Age at enrollment: 16 70 log
    ''' + _semester('1st') + _semester('2nd') + '''
    Unemployment rate: 5 20 linear; Inflation rate: -2 5 linear
    GDP: -5 5 linear''',
  'framingham': '''
    Age: 30 75 linear; CigsPerDay: 0 60 sqrt NA 0
    TotChol: 100 500 linear NA 200; SysBP: 80 250 linear; DiaBP: 40 150 linear
    BMI: 15 50 linear NA 25; HeartRate: 40 150 linear NA 75
    Glucose: 40 400 log NA 80''',
  'german_credit': '''
    duration: 3 72 log; credit_amount: 200 20000 log
    installment_rate: 1 4 linear; residence: 1 4 linear; age: 18 80 linear
    existing_credits: 1 4 linear; dependants: 1 2 linear''',
  'nursery': '',
}

# Records, licence, and UCI number if the archive is there.
FACTS = {
  'adult': (48_842, 'CC BY 4.0', 2),
  'android_permissions': (29_332, 'CC BY 4.0', 722),
  'bank_full': (45_211, 'CC BY 4.0', None),
  'breast_cancer': (569, 'CC BY 4.0', 17),
  'default_credit': (30_000, 'CC BY 4.0', None),
  'diabetes_130': (101_766, 'CC BY 4.0', 296),
  'dropout': (4_424, 'CC BY 4.0', 697),
  'framingham': (4_238, 'none stated', None),
  'german_credit': (1_000, 'CC BY 4.0', 144),
  'nursery': (12_960, 'CC BY 4.0', 76),
}

# Shape, largest pixel, records of both parts, licence, and files by container.
IMAGES = {
  'cifar10': ((32, 32, 3), 255, 50_000, 10_000,
              'not stated; research use, cite Krizhevsky 2009', {
                'the binary batches': 6, 'the Python batches': 6,
                'cifar10.npz': 1, 'mosaics of 100 x 100 images': 8}),
  'digits': ((8, 8, 1), 16, 1_437, 360, 'CC BY 4.0', {}),
  'fashion_mnist': ((28, 28, 1), 255, 60_000, 10_000, 'MIT', {
    'the four IDX files': 4, 'fashion_mnist.npz': 1}),
  'mnist': ((28, 28, 1), 255, 60_000, 10_000, 'CC BY-SA 3.0', {
    'the four IDX files': 4, 'mnist.npz': 1}),
}


# First digits of the checksums of the files, in order.
CHECKSUMS = {
  'adult': '5b0026 a2a904', 'android_permissions': '576468',
  'bank_full': 'd1513e', 'breast_cancer': 'd606af', 'default_credit': '5c69a6',
  'diabetes_130': '0689e7', 'dropout': '3ef126', 'framingham': '0ab45c',
  'german_credit': 'b21f3d', 'nursery': '8e0389',
  'the four IDX files of mnist': 'ba8910 65a50c 0fa789 ff7bcf',
  'the four IDX files of fashion_mnist': 'c59f46 bad354 5b4141 0402a9',
  'mosaics of 100 x 100 images of cifar10': (
    'ba0e3a e110af 712c16 f83591 3a5b40 cb3fbf bde615 741efc'),
}

# Digests of the contents of both parts of image sets.
DIGESTS = {
  'cifar10': 'd59acf 899683', 'digits': 'a4b0c2 6a8044',
  'fashion_mnist': '0c69d5 90c92c', 'mnist': '365581 634538',
}

# Bounds of one-column files, and their numbers of malformed lines.
SERIES = {
  'ratings': (0, 5, 4), 'pages': (0, 7000, 4), 'earnings': (0, 1.1e6, 0),
  'dividends': (0, 1e5, 0), 'cps_earnings': (0, 1.1e6, 0),
  'cps_dividends': (0, 1e5, 0),
}


def _number(text):
  return float(text) if '.' in text else int(text)


def _bounds(text):
  """Yields (name, lower, upper, scale, missing, default) of each column."""
  for part in filter(None, map(str.strip, re.split('[;\n]', text))):
    name, rest = part.split(': ')
    lower, upper, scale, missing, default = [*rest.split(), '', '0'][:5]
    yield (name, _number(lower), _number(upper), scale, missing,
           _number(default))


@pytest.mark.every(1)
@pytest.mark.parametrize('name', registry.names())
def test_bounds_are_those_of_the_table(name):
  assert [(column.name, column.lower, column.upper, column.scale,
           column.missing, column.default)
          for column in registry.DATASETS[name].schema.columns
          if isinstance(column, columns.Numeric)] == list(_bounds(BOUNDS[name]))


@pytest.mark.every(1)
@pytest.mark.parametrize('name', registry.names())
def test_sizes_licences_and_archives(name):
  spec = registry.DATASETS[name]
  num_examples, licence, number = FACTS[name]
  assert (spec.num_examples, spec.licence) == (num_examples, licence)
  assert (spec.embedded is not None) == (name == 'breast_cancer')
  if number is None:
    assert not spec.archive
  else:
    assert re.fullmatch(f'https://archive.ics.uci.edu/static/public/{number}/'
                        '[a-z0-9+-]+[.]zip', spec.archive)
    assert f'data set {number} (' in spec.source
  for file in spec.files:
    assert file.alternatives == (f'{file.name}.gz',)
    assert re.fullmatch('[0-9a-f]{64}', file.sha256)


def _digits(*checksums):
  return ' '.join(checksum[:6] for checksum in checksums)


def test_checksums_are_those_of_the_files_in_their_order():
  of_files = {name: spec.files for name, spec in registry.DATASETS.items()}
  for name, spec in registry.IMAGES.items():
    assert _digits(spec.train.sha256, spec.test.sha256) == DIGESTS[name]
    of_files |= {f'{container.title} of {name}': container.files
                 for container in spec.containers if len(container.files) > 1}
  digests = {name: _digits(*(file.sha256 for file in group))
             for name, group in of_files.items()}
  assert {name: text for name, text in digests.items() if text.strip()} == (
    CHECKSUMS)


def test_series():
  assert {name: (spec.lower, spec.upper, spec.num_malformed)
          for name, spec in series.SERIES.items()} == SERIES
  for name, spec in series.SERIES.items():
    assert spec.name == name
    assert spec.file.alternatives == (f'{spec.file.name}.gz',)
    assert len(spec.file.sha256) == 64 * (spec.dataset != 'cps_asec_2021')


@pytest.mark.every(1)
@pytest.mark.parametrize('name', registry.image_names())
def test_image_sets(name):
  spec = registry.IMAGES[name]
  shape, largest, train, test, licence, containers = IMAGES[name]
  assert (spec.image_shape, spec.max_value, spec.licence) == (
    shape, largest, licence)
  assert (spec.train.num_examples, spec.test.num_examples) == (train, test)
  assert spec.num_examples == train + test
  assert {container.title: len(container.files)
          for container in spec.containers} == containers
  assert (spec.embedded is not None) == (name == 'digits')
  # Parts that are unpacked as one have a checksum; batches of CIFAR have none.
  assert [all(file.sha256 for file in container.files)
          for container in spec.containers] == [
            'files' in title or 'mosaics' in title for title in containers]
  for container in spec.containers:
    for file in container.files:
      folders = {'the binary batches': ('', 'cifar-10-batches-bin/'),
                 'the Python batches': ('', 'cifar-10-batches-py/')}.get(
                   container.title, ('',))
      assert {file.name, *file.alternatives} == {
        f'{folder}{file.name}{end}' for folder in folders
        for end in ('', '.gz')}
