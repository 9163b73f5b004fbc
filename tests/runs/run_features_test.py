"""These tests check runs on features of records, from their configuration."""

import dataclasses

import numpy as np
import pytest

from dpjax import features
from dpjax.data import registry
from dpjax.data import schema_files
from dpjax.data import user_tables
from dpjax.runs import building
from dpjax.runs import configuration
from dpjax.runs import training
from dpjax.runs.options import TrainingConfig

_SIZE = 60
_RNG = np.random.default_rng(4)
_SCHEMA = schema_files.of_parts(
    label='y', classes=['0', '1'], categories={},
    bounds={name: (-1.0, 1.0) for name in ('a', 'b')})
_TABLE = user_tables.of_columns(
    {'a': _RNG.uniform(-1, 1, _SIZE), 'b': _RNG.uniform(-1, 1, _SIZE),
     'y': _RNG.integers(2, size=_SIZE)}, _SCHEMA)
_OF_TABLE = TrainingConfig(
    dataset='own.csv', schema=_SCHEMA, method='dp_sgd', features='crossed',
    num_steps=4, noise_seed=0)
_OF_IMAGES = TrainingConfig(
    dataset='digits', method='dp_sgd', features='scattering', num_steps=4,
    noise_seed=0)


def test_tables_become_crossed_columns_of_their_schema():
  prepared = building.prepare(_OF_TABLE, _TABLE)
  crossed = features.crossed(schema_files.parse(_SCHEMA).schema)
  np.testing.assert_array_equal(prepared.x, crossed(_TABLE.x))
  np.testing.assert_array_equal(prepared.y, _TABLE.y)
  np.testing.assert_allclose(np.linalg.norm(prepared.x, axis=1), 1, rtol=1e-6)
  assert len(prepared.feature_names) == prepared.x.shape[1] == 143


def test_tables_become_their_columns_and_bins():
  unit, binned = (np.asarray(building.prepare(
      dataclasses.replace(_OF_TABLE, features=name), _TABLE).x)
                  for name in ('unit', 'binned'))
  np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, rtol=1e-6)
  np.testing.assert_allclose(unit[:, :4] / unit[:, 4:], _TABLE.x, rtol=1e-5)
  # Five numbers, and for both columns twenty bins and one if missing.
  assert binned.shape == (_SIZE, 47)
  np.testing.assert_allclose(binned[:, :5] * np.sqrt(2), unit, rtol=1e-5)
  bins = binned[:, 5:].reshape(_SIZE, 2, 21)
  np.testing.assert_allclose(bins.sum(-1), 0.5, rtol=1e-6)
  np.testing.assert_array_equal(
      bins.argmax(-1), np.floor((_TABLE.x[:, ::2] + 1) * 10))


def test_images_become_scattering_coefficients_of_norm_1():
  digits = registry.load('digits')
  few = digits._replace(
      train=digits.train._replace(x=digits.train.x[:5], y=digits.train.y[:5]),
      test=digits.test._replace(x=digits.test.x[:3], y=digits.test.y[:3]))
  x = np.asarray(building.prepare(_OF_IMAGES, few).records.x)
  assert x.shape == (8, 2 * 2 * 81 + 1)
  np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, rtol=1e-5)
  # Groups of three channels are normalised.
  np.testing.assert_allclose(
      x[:, :-1].reshape(8, 4, 27, 3).mean((1, 3)), 0, atol=1e-5)
  # Another record changes its own row alone; a black one is no exception.
  pixels = few.train.x.copy()
  pixels[2] = 0
  other = few._replace(train=few.train._replace(x=pixels))
  changed = np.asarray(building.prepare(_OF_IMAGES, other).records.x)
  assert np.isfinite(changed).all()
  np.testing.assert_allclose(changed[[0, 1, *range(3, 8)]],
                             x[[0, 1, *range(3, 8)]], atol=1e-6)
  assert np.abs(changed[2] - x[2]).max() > 0.01


@pytest.mark.parametrize('config, dataset, size', [
    (_OF_TABLE, _TABLE, 143),
    (dataclasses.replace(_OF_TABLE, method='lip_dp_sgd'), _TABLE, 143),
    (dataclasses.replace(_OF_TABLE, num_canaries=10), _TABLE, 143),
    (dataclasses.replace(_OF_TABLE, features='unit'), _TABLE, 5),
    (_OF_IMAGES, None, 325),
    (dataclasses.replace(_OF_IMAGES, downsample=2, method='lip_dp_sgd'), None,
     82)])
def test_runs_train_a_linear_model_by_default(config, dataset, size):
  result, = training.train([config], dataset=dataset)
  assert result.config.depth == 0 and result.config.model is None
  # No bias: features have a constant part.
  (kernel,), = (leaves.values() for leaves in result.params.values())
  assert kernel.shape[0] == size
  assert result.epsilon <= 1 and result.num_nonfinite < 10 * 4


@pytest.mark.parametrize('features', ['unit', 'crossed'])
def test_adaptive_balls_are_behind_hidden_layers(features):
  config = dataclasses.replace(_OF_TABLE, method='lip_adaptive',
                               features=features)
  result, = training.train([config], dataset=_TABLE)
  assert result.config.depth == 1 and result.config.input_radius == 1
  with pytest.raises(ValueError, match='depth must be at least 1, got 0'):
    configuration.check(dataclasses.replace(config, depth=0))


def test_a_perceptron_may_have_hidden_layers():
  config = dataclasses.replace(_OF_TABLE, depth=1, width=3)
  result, = training.train([config], dataset=_TABLE)
  assert len(result.params) == 2


@pytest.mark.parametrize('changes, message', [
    (dict(features='scattering'), 'features = scattering are of images'),
    (dict(dataset='digits', schema=None), 'features = crossed are of tables'),
    (dict(user_column='user'), 'user_column is not allowed'),
    (dict(dataset='own/*.parquet', stream=True), 'stream must be false'),
    (dict(features='hog'), 'features must be one of'),
    (dict(dataset='digits', schema=None, features='scattering',
          model='convnet'), 'model on tables'),
    (dict(dataset='digits', schema=None, features='scattering', views=2),
     'views must be 1'),
    (dict(dataset='digits', schema=None, features='scattering',
          pixels='unsigned'), 'leave pixels out')])
def test_refuses_what_features_cannot_be(changes, message):
  with pytest.raises(ValueError, match=message):
    configuration.check(dataclasses.replace(_OF_TABLE, **changes))
