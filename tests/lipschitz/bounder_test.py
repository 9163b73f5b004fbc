"""The certified bounder, and the printed method that has no bound."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.lipschitz import bounder as lipschitz_bounder
from dpjax.lipschitz import losses
from dpjax.models import mlp
from dpjax.typing import Batch

HINGE = losses.LipschitzLoss(
  lambda logits, labels: jnp.maximum(
    0., 1. - (2 * labels - 1).astype(jnp.float32)
    * (logits[:, 1] - logits[:, 0]) / jnp.float32(np.sqrt(2))), 1.)
"""Of the margin in an orthonormal direction of two logits: slope 1."""


@pytest.fixture(name='model', scope='module')
def _model():
  return mlp.mlp(num_features=1, num_classes=2, depth=0, input_radius=1.,
                 hidden_radius=1.)


def _neighbours(size, outlier):
  """Records (1, +1), and the same with (outlier, -1) in the last row."""
  x = jnp.ones([size + 1, 1]).at[-1, 0].set(outlier)
  y = jnp.ones([size + 1], jnp.int32).at[-1].set(0)
  everyone = jnp.ones([size + 1], jnp.bool_)
  return Batch(x, y), everyone.at[-1].set(False), everyone


def _as_printed(apply, params, batch, mask):
  """Weight gradient over the batch's largest input norm; no bias there."""
  def total(params):
    losses_of = HINGE.values(apply(params, batch.x), batch.y)
    return jnp.sum(jnp.where(mask, losses_of, 0.))

  largest = jnp.max(jnp.where(mask, jnp.abs(batch.x[:, 0]), 0.))
  return jax.grad(total)(params)['dense_00']['kernel'] / largest


@pytest.mark.parametrize('size, outlier, at_least', [
  (3, 100., 3.9), (10, 1000., 10.9), (100, 2., 50.)])
def test_dividing_by_the_batch_maximum_is_not_bounded(model, size, outlier,
                                                      at_least):
  """Erratum E1: m + 1 - m/M against the claimed 1; ours keeps its own."""
  params = {'dense_00': {'kernel': jnp.zeros([1, 2]), 'bias': jnp.zeros([2])}}
  apply = mlp.mlp(num_features=1, num_classes=2, depth=0).apply
  batch, without, added = _neighbours(size, outlier)
  moved = np.linalg.norm(_as_printed(apply, params, batch, added)
                         - _as_printed(apply, params, batch, without))
  claimed = HINGE.lipschitz
  assert moved == pytest.approx(size + 1 - size / outlier, rel=1e-5)
  assert moved >= at_least * claimed

  ours = lipschitz_bounder.certified(model.network, HINGE, weight_norm=1.)
  before, after = (ours.sums(params, batch, mask).total['dense_00']
                   for mask in (without, added))
  moved = np.sqrt(sum(np.sum((np.float64(after[leaf]) - before[leaf])**2)
                      for leaf in ('kernel', 'bias')))
  limit = float(ours.l2_sensitivity({'dense_00': 1.})['dense_00'])
  assert limit == pytest.approx(np.sqrt(2) * claimed, rel=1e-6)
  assert moved <= limit * (1 + 1e-5)
  assert moved >= limit * (1 - 1e-3)


@pytest.fixture(name='deep', scope='module')
def _deep():
  """(jitted sums, params, batch) of a net with one hidden layer."""
  model = mlp.mlp(num_features=3, num_classes=2, depth=1, width=4,
                  input_radius=1., hidden_radius=1.)
  bounder = lipschitz_bounder.certified(
    model.network, losses.cross_entropy(), weight_norm=1.)
  rng = np.random.default_rng(0)
  batch = Batch(jnp.asarray(rng.normal(size=(9, 3)), jnp.float32),
                jnp.asarray(rng.integers(0, 2, 9), jnp.int32))
  return jax.jit(bounder.sums), model.init(jax.random.key(0)), batch


def test_sum_is_that_of_single_records(deep):
  sums, params, batch = deep
  mask = jnp.arange(9) % 4 != 1
  whole = sums(params, batch, mask)
  alone = [sums(params, batch, jnp.arange(9) == index)
           for index in np.flatnonzero(mask)]
  jax.tree.map(lambda total, *terms: np.testing.assert_allclose(
    total, np.sum(np.stack(terms), 0), rtol=1e-5, atol=1e-5), whole, *alone)


def test_masked_and_bad_records_are_nothing(deep):
  sums, params, batch = deep
  everyone = jnp.ones([9], jnp.bool_)
  reference = sums(params, batch, everyone.at[4].set(False))
  for bad in (jnp.nan, jnp.inf, -jnp.inf):
    poisoned = batch._replace(x=batch.x.at[4, 1].set(bad))
    found = sums(params, poisoned, everyone)
    assert int(found.num_nonfinite) == 1
    jax.tree.map(np.testing.assert_array_equal, reference.total, found.total)
    masked = sums(params, poisoned, everyone.at[4].set(False))
    jax.tree.map(np.testing.assert_array_equal, reference, masked)
  nothing = sums(params, batch, jnp.zeros([9], jnp.bool_))
  assert not any(np.any(leaf) for leaf in jax.tree.leaves(nothing))


def test_records_are_isolated(deep):
  sums, params, batch = deep
  alone = jnp.arange(9) == 2
  first = sums(params, batch, alone)
  others = Batch((batch.x * -50).at[2].set(batch.x[2]),
                 (1 - batch.y).at[2].set(batch.y[2]))
  jax.tree.map(np.testing.assert_array_equal, first,
               sums(params, others, alone))


def test_refuses_a_model_without_bounds():
  model = mlp.mlp(num_features=1, num_classes=2)
  with pytest.raises(ValueError, match="'dense_00' has no finite gradient"):
    lipschitz_bounder.certified(model.network, losses.cross_entropy(),
                                weight_norm=1.)
