"""Toy data and methods for every test of the room."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.lipschitz import losses
from dpjax.models import mlp
from dpjax.train import methods
from dpjax.typing import Batch

LOSS = losses.cross_entropy()


@pytest.fixture(scope='module', autouse=True)
def _quick_compilation():
  """Programs this small take longer to optimise than to run."""
  jax.config.update('jax_disable_most_optimizations', True)
  yield
  jax.config.update('jax_disable_most_optimizations', False)


@pytest.fixture(scope='session')
def records():
  """60 records of 3 features and 2 classes."""
  rng = np.random.default_rng(0)
  x = rng.normal(size=(60, 3))
  y = (x[:, 0] + 0.5 * rng.normal(size=60) > 0)
  return Batch(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.int32))


@pytest.fixture(scope='session')
def make_model():
  """(bounded: bool) -> a perceptron 3-4-2."""
  def make(bounded):
    radii = {'input_radius': 1.5, 'hidden_radius': 1.} if bounded else {}
    return mlp.mlp(num_features=3, num_classes=2, depth=1, width=4,
                   **radii)
  return make


@pytest.fixture(scope='session')
def make_method():
  """(name, model) -> the method of that name with fixed settings."""
  def make(name, model):
    return {
      'sgd': lambda: methods.sgd(model, LOSS),
      'dp_sgd': lambda: methods.dp_sgd(model, LOSS, clip_norm=0.7),
      'lip_dp_sgd': lambda: methods.lip_dp_sgd(model, LOSS, weight_norm=0.9),
      'fix_lip_dp_sgd': lambda: methods.fix_lip_dp_sgd(
        model, LOSS, weight_norm=0.9)}[name]()
  return make
