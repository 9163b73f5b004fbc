"""These tests check the loss of ordered classes against the model by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from dpjax.lipschitz import bounder as lipschitz_bounder
from dpjax.lipschitz import losses
from dpjax.lipschitz import projection
from dpjax.models import mlp
from dpjax.typing import Batch


def _probabilities(scores, num_classes, temperature):
  """Returns the probabilities [b, c] from those of P(class > k), by hand."""
  cuts = np.arange(num_classes - 1) - np.mean(np.arange(num_classes - 1))
  above = special.expit((np.float64(scores) - cuts) / temperature)
  above = np.column_stack([np.ones(len(above)), above, np.zeros(len(above))])
  return above[:, :-1] - above[:, 1:]


def _derivatives(loss, scores, labels):
  total = lambda s: jnp.sum(loss.values(s, labels))
  return np.float64(jax.jit(jax.grad(total))(scores))[:, 0]


def _scores(num_classes, count=2000):
  rng = np.random.default_rng(0)
  scores = rng.normal(size=(count, 1)) * np.repeat([0.3, 3, 100, 1e4],
                                                   count // 4)[:, None]
  return jnp.asarray(scores, jnp.float32), jnp.asarray(
      rng.integers(0, num_classes, count), jnp.int32)


@pytest.mark.parametrize('num_classes, temperature', [
    (2, 1.0), (3, 0.5), (5, 0.2), (5, 3.0)])
def test_the_loss_is_that_of_proportional_odds(num_classes, temperature):
  loss = losses.ordinal(num_classes=num_classes, temperature=temperature)
  scores = jnp.linspace(-3, 3, 61)[:, None]
  expected = _probabilities(scores, num_classes, temperature)
  got = np.asarray(loss.class_scores(scores))
  np.testing.assert_allclose(np.exp(got), expected, rtol=2e-4, atol=1e-6)
  for label in range(num_classes):
    np.testing.assert_allclose(
        loss.values(scores, jnp.full(61, label, jnp.int32)), -got[:, label],
        rtol=1e-6)


def test_classes_meet_at_the_cuts():
  """With a small temperature, classes are the intervals between the cuts."""
  loss = losses.ordinal(num_classes=4, temperature=0.05)
  scores = jnp.asarray([[-9.0], [-1.1], [-0.9], [-0.1], [0.1], [0.9], [1.1],
                        [9.0]])
  np.testing.assert_array_equal(
      jnp.argmax(loss.class_scores(scores), -1), [0, 0, 1, 1, 2, 2, 3, 3])


def test_two_classes_are_logistic_regression():
  scores, labels = _scores(2)
  np.testing.assert_allclose(
      losses.ordinal(num_classes=2).values(scores, labels),
      np.logaddexp(0, np.where(labels, -1, 1) * np.float64(scores[:, 0])),
      rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('temperature', [0.05, 1.0, 7.0])
@pytest.mark.parametrize('logit_clip', [None, 0.1, 1.2])
def test_the_constant_is_the_supremum(temperature, logit_clip):
  loss = losses.ordinal(num_classes=5, temperature=temperature,
                        logit_clip=logit_clip)
  bound = 1 / temperature
  assert loss.lipschitz == (bound if logit_clip is None
                            else min(bound, logit_clip))
  scores, labels = _scores(5)
  sizes = np.abs(_derivatives(loss, scores, labels))
  assert (1 - 1e-3) * loss.lipschitz <= sizes.max()
  assert sizes.max() <= loss.lipschitz * (1 + 1e-6)
  # Labels that are none have a loss of 0.
  assert not np.any(_derivatives(loss, scores, jnp.full_like(labels, 5)))


def test_the_derivative_by_hand():
  """It is (P(above the upper cut) - P(below the lower cut)) / temperature."""
  scores, labels = _scores(5)
  loss = losses.ordinal(num_classes=5, temperature=0.6)
  below = np.cumsum(_probabilities(scores, 5, 0.6), 1)
  rows = np.arange(len(labels))
  expected = (1 - below[rows, labels] - np.where(
      labels > 0, below[rows, np.maximum(labels - 1, 0)], 0)) / 0.6
  np.testing.assert_allclose(_derivatives(loss, scores, labels), expected,
                             atol=2e-6)


def test_a_bad_score_changes_no_other():
  scores, labels = _scores(5, count=8)
  loss = losses.ordinal(num_classes=5, logit_clip=0.3)
  first = _derivatives(loss, scores, labels)
  for bad in (jnp.nan, jnp.inf, -jnp.inf):
    changed = _derivatives(loss, scores.at[3].set(bad), labels)
    np.testing.assert_array_equal(np.delete(changed, 3), np.delete(first, 3))


def test_gradients_of_a_network_keep_and_attain_their_bound():
  """Records of norm 1 attain the bound of the score, and none exceeds it."""
  network = mlp.mlp(num_features=3, num_classes=1, depth=0, use_bias=False,
                    input_radius=1.0).network
  loss = losses.ordinal(num_classes=5, temperature=0.25)
  bounder = lipschitz_bounder.certified(network, loss, weight_norm=9.0)
  rng = np.random.default_rng(0)
  x = rng.normal(size=(200, 3))
  x = jnp.asarray(x / np.linalg.norm(x, axis=1, keepdims=True), jnp.float32)
  y = jnp.asarray(rng.integers(0, 5, 200), jnp.int32)
  params, certificate = projection.clip_weights(
      network, weight_norm=9.0).constrain(
          {'dense_00': {'kernel': jnp.full((3, 1), 5.0)}})
  limit = float(bounder.l2_sensitivity(certificate)['dense_00'])
  assert limit == pytest.approx(4.0, rel=1e-4)
  norm = lambda x, y: jnp.linalg.norm(jax.tree.leaves(bounder.sums(
      params, Batch(x[None], y[None]), jnp.ones([1], jnp.bool_)).total)[0])
  norms = jax.vmap(norm)(x, y)
  assert 0.99 * limit <= np.max(norms) <= limit * (1 + 1e-6)


@pytest.mark.parametrize('make, message', [
    (lambda: losses.ordinal(num_classes=1), 'num_classes must be an integer'),
    (lambda: losses.ordinal(num_classes=3, temperature=0.0),
     'temperature must be a positive'),
    (lambda: losses.ordinal(num_classes=3, logit_clip=math.nan),
     'logit_clip must be'),
    (lambda: losses.ordinal(num_classes=3).values(
        jnp.zeros([1, 3]), jnp.zeros([1], jnp.int32)), 'one score')])
def test_refused(make, message):
  with pytest.raises(ValueError, match=message):
    make()
