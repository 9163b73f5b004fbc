"""Tests records that are bad in one block only, and
features without numbers."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import inputs
from dpjax.grads import per_example
from dpjax.grads import precision
from dpjax.typing import Batch

BLOCKS = ('a', 'b', 'c')


def _apply(params, x):
  """Applies blocks whose gradients are their columns of x times 1e30."""
  return sum(params[name] * x[:, i, None] * 1e30
             for i, name in enumerate(BLOCKS))


def _loss(logits, labels):
  del labels
  return 1.0 + jnp.sum(logits, 1)


@pytest.mark.every(3)
@pytest.mark.parametrize('kernel', per_example.KERNELS)
def test_bad_in_any_block_is_nothing_in_all(kernel):
  """A record that is bad in any block adds nothing to sums, losses or counts.

  Losses are finite where parameters are zero, and infinite elsewhere.
  """
  bounder = per_example.clipped(
    _apply, _loss, clip_norm=dict.fromkeys(BLOCKS, 1.0), kernel=kernel)
  sums = jax.jit(bounder.sums)
  x, y = jnp.full([2, 3], 1e-25), jnp.zeros([2], jnp.int32)
  everybody, other = jnp.array([True, True]), jnp.array([True, False])
  for value, place in itertools.product((0.0, 1e-3), range(3)):
    params = {name: jnp.full([1, 2], value) for name in BLOCKS}
    bad = sums(params, Batch(x.at[1, place].set(1e30), y), everybody)
    honest = sums(params, Batch(x, y), other)
    assert int(bad.num_nonfinite) == 1 and int(honest.num_nonfinite) == 0
    jax.tree.map(np.testing.assert_array_equal, bad._replace(
      num_nonfinite=0), honest._replace(num_nonfinite=0))


def test_features_of_no_numbers_are_finite():
  """Empty and integer leaves of a feature tree count as finite."""
  tree = {'empty': jnp.zeros([3, 0]), 'place': jnp.arange(3),
          'x': jnp.array([[0.0], [jnp.inf], [jnp.nan]])}
  np.testing.assert_array_equal(inputs.finite_records(tree),
                                [True, False, False])
  cleaned, finite = inputs.clean_features(tree, jnp.array([True, True, False]))
  np.testing.assert_array_equal(finite, [True, False, False])
  assert cleaned['empty'].shape == (3, 0) and not np.any(cleaned['x'])
  np.testing.assert_array_equal(cleaned['place'], [0, 0, 0])


def test_records_may_hold_keys_and_booleans():
  keys = jax.random.split(jax.random.key(0), 3)
  for x in (keys, {'key': keys, 'flag': np.array([True, False, True])}):
    batch = inputs.as_batch((x, jnp.zeros([3], jnp.int32)))
    assert jax.tree.structure(batch.x) == jax.tree.structure(x)


@pytest.mark.parametrize('batch', [None, 3, 2.5, object(), {1, 2}, 'xy',
                                   iter([1, 2]), np.zeros([2, 2])])
def test_what_holds_no_records_is_refused_by_its_type(batch):
  with pytest.raises(ValueError, match=f'got a {type(batch).__name__}'):
    inputs.as_batch(batch)


def test_short_are_floats_of_fewer_bits_than_float32():
  lengths = {jnp.bfloat16: True, jnp.float16: True, jnp.float32: False,
             jnp.int8: False, jnp.bool_: False, jnp.int32: False}
  for dtype, is_short in lengths.items():
    x = jnp.zeros([2], dtype)
    assert precision.is_short(x) == is_short
    assert precision.widened(x).dtype == (jnp.float32 if is_short else dtype)


@pytest.mark.parametrize('kernel', per_example.KERNELS)
def test_an_infinite_clip_norm_is_no_clipping(kernel):
  """The sums are those of `summed`, and so is their infinite sensitivity."""
  apply = lambda w, x: x @ w
  loss = lambda logits, labels: jnp.square(logits[:, 0] - labels)
  batch = Batch(jnp.arange(12.0).reshape((4, 3)), jnp.ones([4]))
  mask = jnp.arange(4) != 2
  own, plain = (each.sums(jnp.ones([3, 1]), batch, mask) for each in (
    per_example.clipped(apply, loss, clip_norm=np.inf, kernel=kernel,
                        microbatch_size=2), per_example.summed(apply, loss)))
  np.testing.assert_allclose(own.total, plain.total, rtol=1e-5)
  assert np.abs(plain.total).max() > 100
  bounder = per_example.clipped(apply, loss, clip_norm=np.inf)
  assert bounder.l2_sensitivity(()) == np.inf
