"""These tests check that noise drawn ahead
equals the noise each step would draw."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.lipschitz import losses
from dpjax.models import mlp
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.train import array_chunks
from dpjax.train import loop
from dpjax.train import methods
from dpjax.train import plan as plans
from dpjax.typing import Batch


def _fit():
  rng = np.random.default_rng(0)
  model = mlp.mlp(num_features=2, num_classes=2, depth=0)
  run = plans.TrainingPlan(
      sampler=PoissonSampler(num_examples=12, batch_size=3), num_steps=3,
      adjacency=Adjacency.ADD_OR_REMOVE_ONE, noise_multiplier=1.0)
  return loop.fit(
      jax.random.split(jax.random.key(1), 1), plans=[run], model=model,
      method=methods.dp_sgd(model, losses.cross_entropy(), clip_norm=1.0),
      optimizer=optax.sgd(1.0), rows=jnp.arange(12)[None],
      records=Batch(jnp.asarray(rng.normal(size=(12, 2)), jnp.float32),
                    jnp.asarray(rng.integers(0, 2, 12), jnp.int32)))


@pytest.mark.every(4)
def test_steps_that_draw_for_themselves_give_the_same(monkeypatch):
  ahead = _fit()
  monkeypatch.setattr(array_chunks, '_MAX_AHEAD', 0)
  alone = _fit()
  assert alone.info.batch_size.shape == (3, 1)
  np.testing.assert_array_equal(alone.info.batch_size, ahead.info.batch_size)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
               alone.state.params, ahead.state.params)
