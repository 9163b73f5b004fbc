"""Tests clipped sums against loops over records, and one record's effect."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import bounder as bounders
from dpjax.grads import inputs
from dpjax.grads import per_example
from dpjax.typing import Batch

CLIP_NORM = 0.8
HUGE_NORM = 1e9


def _compiled(bounder):
  return bounder._replace(sums=jax.jit(bounder.sums))


def _clipped(network, clip_norm=CLIP_NORM, microbatch_size=None):
  return _compiled(per_example.clipped(
    network.apply, network.loss, clip_norm=clip_norm,
    microbatch_size=microbatch_size))


def test_sensitivities_are_the_clip_norms_whatever_the_certificate(network):
  """Sensitivities are the clip norms, for blocks and for both weight rules."""
  for clip_norm in (CLIP_NORM, {'a': .25, 'b': 3.}):
    for bounder in (
        per_example.clipped(network.apply, network.loss, clip_norm=clip_norm),
        per_example.normalized(network.apply, network.loss,
                               clip_norm=clip_norm, stabilizer=.1)):
      for certificate in ((), 7.):
        sensitivities = bounder.l2_sensitivity(certificate)
        assert jax.tree.structure(sensitivities) == jax.tree.structure(
            clip_norm)
        np.testing.assert_allclose(jax.tree.leaves(sensitivities),
                                   jax.tree.leaves(clip_norm), rtol=1e-6)


@pytest.mark.every(2)
def test_gradients_are_those_of_a_loop(network):
  losses, grads = jax.jit(
    lambda params, batch: per_example.per_example_gradients(
      network.apply, network.loss, params, batch))(
        network.params, network.batch)
  assert losses.shape == (13,)

  def loss_of_one(params, x, y):
    return jnp.squeeze(network.loss(network.apply(params, x), y))

  gradient = jax.jit(jax.grad(loss_of_one))
  for index in range(13):
    x, y = network.batch.x[index], network.batch.y[index]
    naive = gradient(network.params, x[None], y[None])
    value, by_hand = network.by_hand(network.params, x, y)
    ours = jax.tree.map(lambda leaf, i=index: leaf[i], grads)
    for expected in (naive, by_hand):
      jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6),
        ours, expected)
    np.testing.assert_allclose(losses[index], value, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize('clip_norm', [0.05, CLIP_NORM, 100.])
def test_sum_is_that_of_clipped_gradients_by_hand(checks, network, clip_norm):
  mask = np.arange(13) % 4 != 1
  expected, loss = 0, 0
  for index in np.flatnonzero(mask):
    value, gradient = network.by_hand(
      network.params, network.batch.x[index], network.batch.y[index])
    gradient = checks.flat(gradient)
    expected = expected + gradient * min(
      1, clip_norm / np.linalg.norm(gradient))
    loss = loss + value
  sums = _clipped(network, clip_norm).sums(
    network.params, network.batch, jnp.asarray(mask))
  np.testing.assert_allclose(checks.flat(sums.total), expected,
                             atol=3e-5 * min(clip_norm, 1))
  np.testing.assert_allclose(sums.loss, loss, rtol=1e-5)
  assert int(sums.num_nonfinite) == 0


@pytest.mark.every(5)
@pytest.mark.parametrize('clip_norm', [1e-3, CLIP_NORM, 30.])
def test_one_record_moves_the_sum_by_at_most_the_bound(checks, network, hostile,
                                                       clip_norm):
  bounder = _clipped(network, clip_norm)
  assert float(bounder.l2_sensitivity(())) == np.float32(clip_norm)
  checks.each_term_is_bounded(bounder, network.params, hostile, clip_norm)
  checks.replacing_one_moves_by_at_most(bounder, network.params, hostile,
                                        2 * clip_norm)
  checks.adding_one_moves_by_at_most(bounder, network.params, hostile,
                                     clip_norm)
  # The search is strong enough to attain the bound where gradients reach it.
  if clip_norm == CLIP_NORM:
    terms = checks.contributions(bounder, network.params, hostile)
    assert np.linalg.norm(terms, axis=1).max() >= CLIP_NORM * (1 - 2e-5)
    moves = np.linalg.norm(terms[:, None] - terms[None], axis=-1)
    assert moves.max() >= 1.5 * CLIP_NORM


@pytest.mark.every(3)
@pytest.mark.parametrize('microbatch_size', [None, 4])
def test_masked_bad_and_other_records(checks, network, microbatch_size):
  bounder = _clipped(network, microbatch_size=microbatch_size)
  checks.masked_rows_are_nothing(bounder, network.params, network.batch)
  checks.bad_records_are_nothing(bounder, network.params, network.batch)
  checks.records_are_isolated(bounder, network.params, network.batch)


@pytest.mark.every(3)
@pytest.mark.parametrize('microbatch_size', [1, 5, 13, 20])
def test_microbatches_change_nothing(network, microbatch_size):
  mask = jnp.arange(13) != 3
  batch = Batch(network.batch.x.at[6, 0].set(jnp.nan), network.batch.y)
  whole = _clipped(network).sums(network.params, batch, mask)
  parts = _clipped(network, microbatch_size=microbatch_size).sums(
    network.params, batch, mask)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6),
               whole, parts)
  assert int(parts.num_nonfinite) == 1


def test_overflowing_records_are_nothing(checks, network):
  # Without tanh the gradient grows with the record, so its square overflows.
  linear = lambda params, x: x @ params['w']
  params = {'w': network.params['in']['w']}
  bounder = _compiled(per_example.clipped(linear, network.loss,
                                          clip_norm=CLIP_NORM))
  checks.bad_records_are_nothing(bounder, params, network.batch,
                                 (jnp.nan, jnp.inf, 1e30, -3e38))
  largest = Batch(network.batch.x.at[0, 0].set(1e18), network.batch.y)
  checks.each_term_is_bounded(bounder, params, largest, CLIP_NORM)


@pytest.mark.every(2)
def test_huge_bound_is_the_plain_gradient(checks, network):
  checks.short_terms_are_untouched(network, _clipped(network, HUGE_NORM))


def test_all_records_bad_is_zero(checks, network):
  batch = Batch(jnp.full_like(network.batch.x, jnp.nan), network.batch.y)
  sums = _clipped(network).sums(network.params, batch,
                                jnp.ones([13], jnp.bool_))
  assert not np.any(checks.flat(sums.total))
  assert float(sums.loss) == 0 and int(sums.num_nonfinite) == 13


@pytest.mark.every(2)
def test_label_out_of_range_stays_bounded(checks, network):
  batch = network.batch._replace(y=network.batch.y.at[0].set(77))
  checks.each_term_is_bounded(_clipped(network), network.params, batch,
                              CLIP_NORM)


@pytest.mark.every(2)
def test_order_of_records_does_not_matter(network):
  order = np.random.default_rng(0).permutation(13)
  mask = jnp.ones([13], jnp.bool_)
  bounder = _clipped(network)
  first = bounder.sums(network.params, network.batch, mask)
  second = bounder.sums(
    network.params, jax.tree.map(lambda leaf: leaf[order], network.batch),
    mask)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6),
               first, second)


def test_summed_is_the_gradient_of_the_sum(checks, network):
  bounder = _compiled(per_example.summed(network.apply, network.loss))
  assert float(bounder.l2_sensitivity(())) == np.inf
  mask = np.arange(13) % 3 != 1
  batch = Batch(network.batch.x.at[0, 0].set(jnp.inf), network.batch.y)
  sums = bounder.sums(network.params, batch, jnp.asarray(mask))
  terms = [network.by_hand(network.params, batch.x[i], batch.y[i])
           for i in np.flatnonzero(mask) if i > 0]
  np.testing.assert_allclose(
      checks.flat(sums.total),
      sum(checks.flat(gradient) for _, gradient in terms), atol=5e-6)
  np.testing.assert_allclose(sums.loss, sum(loss for loss, _ in terms),
                             rtol=1e-5)
  assert int(sums.num_nonfinite) == 1
  checks.masked_rows_are_nothing(bounder, network.params, network.batch)


@pytest.mark.every(2)
def test_images_are_records_too():
  apply = lambda params, x: jnp.einsum('bij,ijc->bc', x, params['w'])
  loss = lambda logits, labels: jnp.sum(jnp.square(logits), -1)
  rng = np.random.default_rng(0)
  draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
  params = {'w': draw(2, 3, 2)}
  batch = Batch(draw(5, 2, 3), jnp.zeros([5], jnp.int32))
  mask = jnp.asarray([True, True, False, True, True])
  for bounder in (
      per_example.clipped(apply, loss, clip_norm=HUGE_NORM,
                          microbatch_size=2),
      per_example.summed(apply, loss)):
    total = jax.jit(bounder.sums)(params, batch, mask).total['w']
    logits = np.einsum('bij,ijc->bc', batch.x, params['w'])
    expected = np.einsum('bij,bc->ijc', batch.x,
                         2 * logits * np.asarray(mask)[:, None])
    np.testing.assert_allclose(total, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('value', [0., -1., np.nan])
def test_refuses_a_bound_that_is_none(network, value):
  with pytest.raises(ValueError, match='clip_norm must be a positive number'):
    _clipped(network, value)


def test_refuses_an_empty_microbatch(network):
  bounder = _clipped(network, microbatch_size=0)
  with pytest.raises(ValueError, match='microbatch_size must be an integer'):
    bounder.sums(network.params, network.batch, jnp.ones([13], jnp.bool_))


def test_no_constraint_is_the_identity(network):
  params, certificate = bounders.no_constraint().constrain(network.params)
  assert params is network.params and certificate == ()


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16', 'int32'])
def test_records_are_finite_where_every_feature_is(dtype):
  largest = 3e38 if dtype != 'int32' else 2**31 - 1
  x = jnp.full((5, 2, 600), largest, dtype)
  if dtype != 'int32':
    x = (x.at[1, 0, 3].set(jnp.nan).at[2, 1, 599].set(jnp.inf)
         .at[3, 1, 0].set(-jnp.inf))
  finite = jax.jit(inputs.finite_records)(x)
  wanted = [True] * 5 if dtype == 'int32' else [True, False, False, False, True]
  np.testing.assert_array_equal(finite, wanted)
