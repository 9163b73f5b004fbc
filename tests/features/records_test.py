"""Tests that each row of features is a function of one record.

This is the guarantee by which features cost no privacy budget.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import features
from dpjax.data import columns
from dpjax.data import tabular
from dpjax.features import combining
from dpjax.features import normalisation

_SCHEMA = tabular.Schema(columns=(
  columns.Numeric('age', 0, 100), columns.Binary('smoker'),
  columns.Categorical('colour', ('red', 'green', 'blue')),
  columns.Label('sick', (('0',), ('1',)))))
_NORMALISATION = normalisation.Normalisation(
  mean=jnp.float32([0.1, 0.2]), second_moment=jnp.float32([0.3, 0.01]),
  least_variance=jnp.float32(0.02))
_FUNCTIONS = {
  'scattering': (features.Scattering(image_shape=(8, 8, 2)), (8, 8, 2)),
  'hog': (features.Hog(image_shape=(8, 8, 2), cell=2), (8, 8, 2)),
  'convolutions': (features.RandomConvolutions(
    image_shape=(8, 8, 2), filters=5, size=3), (8, 8, 2)),
  'groups': (features.GroupNormalisation(groups=3), (4, 4, 6)),
  'normalisation': (_NORMALISATION, (3, 2)),
  'tables': (features.crossed(_SCHEMA, most=20), (5,)),
  'unit': (combining.Joined((combining.UnitNorm(), features.crossed(
    _SCHEMA, crosses=1))), (5,)),
  'composed': (features.Composed((
    features.Scattering(image_shape=(8, 8, 1)),
    features.GroupNormalisation(groups=27))), (8, 8, 1)),
}


def _records(shape, num=13):
  return np.random.default_rng(1).uniform(-1, 1, (num, *shape)).astype(
    np.float32)


@dataclasses.dataclass(frozen=True)
class _Centred:
  """A plain data normalisation, which is no feature of a record."""

  def __call__(self, x):
    return x - x.mean(0, keepdims=True)


def _is_of_one_record(function, x):
  """Returns whether orders, subsets and other records change no row."""
  whole, rng = np.asarray(function(x)), np.random.default_rng(2)
  close = lambda a, b: np.allclose(a, b, rtol=1e-5, atol=1e-6)
  order = rng.permutation(len(x))
  if not close(function(x[order]), whole[order]):
    return False
  if not close(function(x[:5]), whole[:5]):
    return False
  # All other records are replaced by extreme ones.
  for place in (0, 6, len(x) - 1):
    others = np.full_like(x, 1e6)
    others[place] = x[place]
    if not close(np.asarray(function(others))[place], whole[place]):
      return False
  return True


@pytest.mark.sound
@pytest.mark.parametrize('name', _FUNCTIONS)
def test_a_row_depends_on_its_record_alone(name):
  function, shape = _FUNCTIONS[name]
  x = _records(shape)
  assert _is_of_one_record(function, x)
  # Records are not all alike, or nothing was tested.
  assert np.ptp(np.asarray(function(x)), axis=0).max() > 0.1


def test_a_plain_data_normalisation_is_noticed():
  assert not _is_of_one_record(_Centred(), _records((3,)))


@pytest.mark.parametrize('name', _FUNCTIONS)
def test_shapes_are_those_that_are_said_and_jit_changes_nothing(name):
  function, shape = _FUNCTIONS[name]
  x = _records(shape, 3)
  rows = function(x)
  assert rows.dtype == jnp.float32
  if hasattr(function, 'output_shape'):
    assert rows.shape == (3, *function.output_shape)
  np.testing.assert_allclose(jax.jit(lambda x: function(x))(x), rows,
                             rtol=1e-5, atol=1e-6)
