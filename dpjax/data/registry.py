"""Data sets by name, with files, checksums, sizes, sources and licences."""

from collections.abc import Callable
import dataclasses
import os
import types

import jax.numpy as jnp
import numpy as np

from dpjax.data import arrays
from dpjax.data import files
from dpjax.data import image_files
from dpjax.data import image_sets
from dpjax.data import images
from dpjax.data import tabular
from dpjax.data.schemas import adult
from dpjax.data.schemas import android_permissions
from dpjax.data.schemas import bank_full
from dpjax.data.schemas import breast_cancer
from dpjax.data.schemas import default_credit
from dpjax.data.schemas import diabetes_130
from dpjax.data.schemas import dropout
from dpjax.data.schemas import framingham
from dpjax.data.schemas import german_credit
from dpjax.data.schemas import nursery
from dpjax.tables import reader

Dataset = arrays.Dataset
ImageDataset = images.ImageDataset


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetSpec:
  """The public description of a tabular data set.

  Attributes:
    name: key of `DATASETS`, and name of the folder.
    files: the original files, in the order of their records.
    schema: columns, public bounds and categories.
    num_examples: n, the number of records in all files.
    num_features: p, the number of encoded features.
    num_classes: number of classes.
    source: where to get the files, in words.
    licence: licence of the data.
    archive: address of a zip archive with the files; '' if there is none.
    embedded: function that returns a copy without files, or None.
  """
  name: str
  files: tuple[files.FileSpec, ...]
  schema: tabular.Schema
  num_examples: int
  num_features: int
  num_classes: int
  source: str
  licence: str = 'CC BY 4.0'
  archive: str = ''
  embedded: Callable[[], reader.Table] | None = None


def _file(name: str, sha256: str) -> files.FileSpec:
  return files.FileSpec(
    name=name, sha256=sha256, alternatives=(f'{name}.gz',))


def _source(number: int, title: str, doi: str) -> str:
  return (f'the UCI Machine Learning Repository, data set {number} '
          f'({title}), https://doi.org/{doi}')


def _archive(number: int, slug: str) -> str:
  return f'https://archive.ics.uci.edu/static/public/{number}/{slug}.zip'


# All sizes are those of published files, so they are public constants.
_SPECS = (
  DatasetSpec(
    name='adult',
    files=(
      _file('adult.data', '5b00264637dbfec36bdeaab5676b0b30'
                          '9ff9eb788d63554ca0a249491c86603d'),
      _file('adult.test', 'a2a9044bc167a35b2361efbabec64e89'
                          'd69ce82d9790d2980119aac5fd7e9c05')),
    schema=adult.SCHEMA,
    num_examples=48_842,
    num_features=108,
    num_classes=2,
    source=_source(2, 'Adult', '10.24432/C5XW20'),
    archive=_archive(2, 'adult')),
  DatasetSpec(
    name='android_permissions',
    files=(
      _file('data.csv', '5764687009af15605f46941902d6a1c4'
                        'c1a07618dfefb94a0275edb4869780ba'),),
    schema=android_permissions.SCHEMA,
    num_examples=29_332,
    num_features=86,
    num_classes=2,
    source=_source(722, 'NATICUSdroid', '10.24432/C5FS64'),
    archive=_archive(722, 'naticusdroid+android+permissions+dataset')),
  DatasetSpec(
    name='bank_full',
    files=(
      _file('bank-full.csv', 'd1513ec63b385506f7cfce9f2c5caa9f'
                             'e99e7ba4e8c3fa264b3aaf0f849ed32d'),),
    schema=bank_full.SCHEMA,
    num_examples=45_211,
    num_features=51,
    num_classes=2,
    # No archive: the published one has this file in an inner archive.
    source=_source(222, 'Bank Marketing', '10.24432/C5K306')),
  DatasetSpec(
    name='breast_cancer',
    files=(
      _file('wdbc.data', 'd606af411f3e5be8a317a5a8b652b425'
                         'aaf0ff38ca683d5327ffff94c3695f4a'),),
    schema=breast_cancer.SCHEMA,
    num_examples=569,
    num_features=30,
    num_classes=2,
    source=_source(17, 'Breast Cancer Wisconsin (Diagnostic)',
                   '10.24432/C5DW2B'),
    archive=_archive(17, 'breast+cancer+wisconsin+diagnostic'),
    embedded=breast_cancer.embedded),
  DatasetSpec(
    name='default_credit',
    files=(
      _file('UCI_Credit_Card.csv', '5c69a6b4e167dac42c4b22665330404f'
                                   'e49928a198de44d2d061b800cb65f9b1'),),
    schema=default_credit.SCHEMA,
    num_examples=30_000,
    num_features=99,
    num_classes=2,
    # No archive: the published one has a spreadsheet, this is its CSV form.
    source=_source(350, 'Default of Credit Card Clients, as CSV',
                   '10.24432/C55S3H')),
  DatasetSpec(
    name='diabetes_130',
    files=(
      _file('diabetic_data.csv', '0689e7ec031237dc63031b938805c483'
                                 '77748761a3b26acab621567afa24df97'),),
    schema=diabetes_130.SCHEMA,
    num_examples=101_766,
    num_features=266,
    num_classes=2,
    source=_source(296, 'Diabetes 130-US Hospitals for Years 1999-2008',
                   '10.24432/C5230J'),
    archive=_archive(296, 'diabetes+130-us+hospitals+for+years+1999-2008')),
  DatasetSpec(
    name='dropout',
    files=(
      _file('data.csv', '3ef126de5cefff26eb11fbb4237f1a14'
                        '01cb64b488e2f1d598c23cedeb4c45ae'),),
    schema=dropout.SCHEMA,
    num_examples=4_424,
    num_features=247,
    num_classes=3,
    source=_source(697, 'Predict Students\' Dropout and Academic Success',
                   '10.24432/C5MC89'),
    archive=_archive(
      697, 'predict+students+dropout+and+academic+success')),
  DatasetSpec(
    name='framingham',
    files=(
      _file('framingham.csv', '0ab45c3c58058a463d40dc1a1507213e'
                              '56a425259289197db9af51c81c0d5bd2'),),
    schema=framingham.SCHEMA,
    num_examples=4_238,
    num_features=26,
    num_classes=2,
    source='Kaggle, dileep070/heart-disease-prediction-using-logistic-'
           'regression, the copy of 4238 rows whose names have capitals',
    licence='none stated'),
  DatasetSpec(
    name='german_credit',
    files=(
      _file('german.data', 'b21f3d81db8071257d5ff1deaeba1fd4'
                           '303b62712e6fcc9715c7a86202cb5871'),),
    schema=german_credit.SCHEMA,
    num_examples=1_000,
    num_features=63,
    num_classes=2,
    source=_source(144, 'Statlog (German Credit Data)', '10.24432/C5NC77'),
    archive=_archive(144, 'statlog+german+credit+data')),
  DatasetSpec(
    name='nursery',
    files=(
      _file('nursery.data', '8e0389c3dd37590248a921c2726d869e'
                            'e96b817761a35eb8416afa24f31f931d'),),
    schema=nursery.SCHEMA,
    num_examples=12_960,
    num_features=27,
    num_classes=5,
    source=_source(76, 'Nursery', '10.24432/C5P88W'),
    archive=_archive(76, 'nursery')),
)

DATASETS = types.MappingProxyType({spec.name: spec for spec in _SPECS})
"""Specification of each tabular data set by its name; read-only."""

IMAGES = image_sets.IMAGE_SETS
"""Specification of each image data set by its name; read-only."""


def names() -> tuple[str, ...]:
  """Returns the names of the tabular data sets, sorted."""
  return tuple(sorted(DATASETS))


def image_names() -> tuple[str, ...]:
  """Returns the names of the image data sets, sorted."""
  return tuple(sorted(IMAGES))


def load(name: str, *, data_dir: str | os.PathLike[str] | None = None,
         download: bool = False) -> Dataset | ImageDataset:
  """Reads a data set from its original files and encodes it.

  Guarantee: each row is encoded separately, with public constants.

  Args:
    name: one of `names()` or `image_names()`.
    data_dir: data folder; default $DPJAX_DATA_DIR.
    download: whether missing files may be downloaded to `data_dir`; else the
      network is not used.

  Returns:
    A tabular data set, x [n, p] float32 in [-1, 1] and y [n] int32, or an
    `ImageDataset` with the publisher's parts. Both have `records`. 'digits'
    always comes from scikit-learn's copy, 'breast_cancer' if its file is
    missing.

  Raises:
    ValueError: the name is unknown, or a file is not the original.
    FileNotFoundError: a file is missing; the message says where to get it.
    ImportError: a download of images needs packages that are not installed.

  Examples:
    >>> from dpjax.data import registry
    >>> data = registry.load('breast_cancer')
    >>> data.x.shape, data.num_classes, float(jnp.abs(data.x).max())
    ((569, 30), 2, 1.0)
    >>> registry.names()[:3]
    ('adult', 'android_permissions', 'bank_full')
  """
  if name in IMAGES:
    return image_files.load(IMAGES[name], data_dir=data_dir, download=download)
  if name not in DATASETS:
    known = sorted((*names(), *image_names()))
    raise ValueError(f'dataset must be one of {", ".join(known)}; got {name!r}')
  spec = DATASETS[name]
  missing = tuple(file for file in spec.files
                  if files.find(file, name, data_dir=data_dir) is None)
  if missing and download and spec.archive:
    files.fetch(missing, name, url=spec.archive, data_dir=data_dir)
    missing = ()
  if missing and spec.embedded is not None:
    tables = [spec.embedded()]
  else:
    tables = [_read(file, spec, data_dir=data_dir) for file in spec.files]
  parts = [tabular.encode(table, spec.schema) for table in tables]
  return Dataset(
    name=name,
    x=jnp.asarray(np.concatenate([part.x for part in parts])),
    y=jnp.asarray(np.concatenate([part.y for part in parts])),
    num_classes=spec.num_classes,
    feature_names=spec.schema.feature_names)


def _read(file: files.FileSpec, spec: DatasetSpec, *,
          data_dir: str | os.PathLike[str] | None) -> reader.Table:
  content = files.read(file, spec.name, source=spec.source, data_dir=data_dir)
  return tabular.parse(content, spec.schema, file=file.name)
