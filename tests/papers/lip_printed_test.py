"""Tests that Algorithm 8 is refused, and refutes it (LDP-01, E1, E2, E3)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import per_example
from dpjax.lipschitz import layers
from dpjax.lipschitz import losses
from dpjax.lipschitz import pointwise
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network
from dpjax.models import mlp
from dpjax.papers import lip_printed
from dpjax.typing import Batch

HINGE = losses.LipschitzLoss(
  lambda logits, labels: jnp.maximum(
    0., 1. - (2 * labels - 1).astype(jnp.float32)
    * (logits[:, 1] - logits[:, 0]) / jnp.float32(np.sqrt(2))), 1.)
MODEL = mlp.mlp(num_features=1, num_classes=2, depth=0)
MODEL_OF_TWO = mlp.mlp(num_features=2, num_classes=2, depth=0)


def test_needs_to_be_told_that_it_is_unsound():
  with pytest.raises(ValueError, match='not differentially private'):
    lip_printed.as_printed(MODEL.network, HINGE, allow_unsound=False)
  with pytest.raises(ValueError, match='not differentially private'):
    lip_printed.lip_printed(MODEL, HINGE, weight_norm=1., allow_unsound=False)


@pytest.mark.every(4)
@pytest.mark.parametrize('size, outlier', [(3, 100.), (10, 1000.), (100, 2.)])
def test_one_record_moves_the_sum_by_more_than_is_claimed(size, outlier):
  """One record moves the sum by size + 1 - size / outlier, not by 1 (E1)."""
  bounder = lip_printed.as_printed(MODEL.network, HINGE, allow_unsound=True)
  params = {'dense_00': {'kernel': jnp.zeros([1, 2]), 'bias': jnp.zeros([2])}}
  x = jnp.ones([size + 1, 1]).at[-1, 0].set(outlier)
  y = jnp.ones([size + 1], jnp.int32).at[-1].set(0)
  everyone = jnp.ones([size + 1], jnp.bool_)
  kernels = [bounder.sums(params, Batch(x, y), mask).total['dense_00']['kernel']
             for mask in (everyone, everyone.at[-1].set(False))]
  distance = float(jnp.linalg.norm(kernels[0] - kernels[1]))
  assert distance == pytest.approx(size + 1 - size / outlier, rel=1e-5)
  claimed = bounder.l2_sensitivity({'dense_00': jnp.float32(1.)})['dense_00']
  assert float(claimed) == 1.


@pytest.mark.slow
def test_the_maximum_is_that_of_all_records_of_convolutions_too():
  """The maximum is over all records, not over those of each microbatch."""
  network = Network(input_shape=(1, 1, 1), root=Chain(name='root', nodes=(
    layers.Conv(name='conv_00', channels=2, kernel_size=(1, 1)),
    pointwise.flatten())))
  bounder = lip_printed.as_printed(network, HINGE, allow_unsound=True)
  params = {'conv_00': {'kernel': jnp.zeros([1, 1, 1, 2]),
                        'bias': jnp.zeros([2])}}
  x = jnp.ones([70, 1, 1, 1]).at[-1].set(100.)
  y = jnp.ones([70], jnp.int32)
  total = bounder.sums(params, Batch(x, y), jnp.ones([70], jnp.bool_)).total
  # Each of the 69 ones adds 1 / 100, the last one 1.
  assert float(jnp.linalg.norm(total['conv_00']['kernel'])) == pytest.approx(
    1.69, rel=1e-5)


def test_claims_line_5_and_one_block():
  """A zero weight claims no sensitivity (E3), one block 1 / sqrt(K) (E2)."""
  model = mlp.mlp(num_features=2, num_classes=2, depth=2, width=3)
  bounder = lip_printed.as_printed(model.network, HINGE, allow_unsound=True)
  norms = {'dense_00': 2., 'dense_01': 0., 'dense_02': 0.5}
  claimed = bounder.l2_sensitivity(jax.tree.map(jnp.float32, norms))
  assert float(claimed['dense_01']) == 0.
  assert float(claimed['dense_02']) == pytest.approx(0.5 / 3**0.5)


def test_records_without_a_gradient_do_not_count_for_the_maximum():
  """Records with zero gradient do not enter the maximum of the norms."""
  loss = losses.hinge(num_classes=2)
  bounder = lip_printed.as_printed(MODEL_OF_TWO.network, loss, allow_unsound=True)
  batch = Batch(jnp.array([[3., 4.], [0., 1.], [100., 0.]]),
                jnp.zeros([3], jnp.int32))
  sums = lambda one: one.sums(
    {'dense_00': {'kernel': jnp.eye(2), 'bias': jnp.zeros([2])}}, batch,
    jnp.ones([3], jnp.bool_)).total['dense_00']
  total, plain = jax.jit(lambda: [sums(bounder), sums(
    per_example.summed(MODEL_OF_TWO.network.apply, loss.values))])()
  assert np.linalg.norm(plain['kernel']) > 1
  # Everything is divided by the largest norm that counts, 5.
  jax.tree.map(lambda ours, theirs: np.testing.assert_allclose(
    5 * ours, theirs, rtol=1e-5), total, plain)
