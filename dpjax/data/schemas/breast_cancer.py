"""Breast Cancer Wisconsin (Diagnostic): is the mass malignant (1) or not?

The features are ten measurements of cell nuclei, each as mean, standard error
and worst value. Bounds are round numbers somewhat wider than the ranges in the
published description. Measurements that vary by large factors have a log scale;
concavities, which may be zero, have a square root scale.
"""

from dpjax.data import columns
from dpjax.data import tabular
from dpjax.tables import reader

# Name: (scale, bounds of the mean, of the standard error, of the worst value).
_MEASUREMENTS = {
  'radius': ('log', (6, 30), (0.1, 3), (7, 40)),
  'texture': ('log', (9, 40), (0.3, 5), (10, 50)),
  'perimeter': ('log', (40, 200), (0.7, 25), (50, 300)),
  'area': ('log', (100, 3_000), (5, 600), (150, 5_000)),
  'smoothness': ('log', (0.05, 0.2), (0.001, 0.04), (0.06, 0.25)),
  'compactness': ('log', (0.01, 0.4), (0.002, 0.2), (0.02, 1.2)),
  'concavity': ('sqrt', (0, 0.5), (0, 0.4), (0, 1.5)),
  'concave_points': ('sqrt', (0, 0.25), (0, 0.06), (0, 0.3)),
  'symmetry': ('log', (0.1, 0.35), (0.005, 0.1), (0.15, 0.7)),
  'fractal_dimension': ('log', (0.04, 0.1), (0.0005, 0.03), (0.05, 0.25)),
}


def _statistic(suffix: str, *, which: int) -> tuple[columns.Numeric, ...]:
  return tuple(
    columns.Numeric(f'{name}_{suffix}', *bounds[which], scale=scale)
    for name, (scale, *bounds) in _MEASUREMENTS.items())


SCHEMA = tabular.Schema(
  columns=(
    columns.Skip('id'),
    columns.Label('diagnosis', (('B',), ('M',))),
    *_statistic('mean', which=0),
    *_statistic('se', which=1),
    *_statistic('worst', which=2),
  ))


def embedded() -> reader.Table:
  """Returns the copy that comes with scikit-learn, without any download.

  Its records have the order of the original file. In scikit-learn class 0 is
  malignant; here class 1 is.
  """
  from sklearn import datasets  # Slow to import; only this needs it.
  bunch = datasets.load_breast_cancer()
  # `repr` of a float reads back as the same float, so both copies agree.
  rows = tuple(
    ('', 'M' if target == 0 else 'B', *(repr(float(value)) for value in row))
    for row, target in zip(bunch.data, bunch.target))
  return tabular.of_rows(
    rows, SCHEMA, file='scikit-learn breast cancer',
    place=lambda record: f'record {record + 1}')
