"""Tests norms and sums of outer products: bounds, choices, factors."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import contractions
from dpjax.grads import lookups


@pytest.mark.every(2)
def test_gram_norms_of_sites_that_cancel_are_no_shorter_than_their_sums():
  """Gram norms bound the sums' norms even where rounding
  errors are all left."""
  rng = np.random.default_rng(0)
  x = np.repeat(rng.normal(size=(40, 1, 64)), 49, 1)
  cotangent = rng.normal(size=(40, 49, 32))
  cotangent -= cotangent.mean(1, keepdims=True)
  x, cotangent = (jnp.asarray(each, jnp.float32) for each in (x, cotangent))
  rows = lambda *one: tuple(each[None] for each in one)
  layer = contractions.Layer(rows, None, None, 49, (1, 64, 32))
  bounds = np.sqrt(contractions.gram_norms(layer, x, cotangent).squares)
  sums = np.linalg.norm(contractions.products(layer, x, cotangent),
                        axis=(2, 3))[:, 0]
  assert np.all(0 < sums) and np.all(sums <= bounds)
  # They are tiny compared with the terms that they sum.
  assert np.all(bounds < 2e-3 * np.linalg.norm(x, axis=(1, 2))
                * np.linalg.norm(cotangent, axis=(1, 2)))


def test_the_choice_of_norms():
  """Gram matrices are chosen for few sites and large kernels, and not else."""
  if jax.default_backend() != 'cpu':
    pytest.skip('accelerators have other costs')
  choose = lambda sites, *sizes, windows=False: contractions.gram_is_cheaper(
    contractions.Layer(None, None, None, sites, sizes, windows))
  assert choose(16, 1, 2304, 256) and choose(64, 1, 768, 768)
  assert not choose(784, 1, 9, 32) and not choose(196, 1, 288, 64)
  # Kept gradients of large layers do not fit the caches,
  # those of small ones do.
  assert choose(64, 1, 512, 2048) and not choose(192, 1, 512, 2048)
  assert choose(64, 1, 512, 2048) and not choose(64, 1, 128, 512)
  assert choose(4, 1, 64, 64) and not choose(32, 1, 64, 64)
  assert choose(16, 4, 1152, 128)
  assert not choose(16, 4, 1152, 128, windows=True)


def _cancelled():
  """Returns the bounds and true norms of sums that rounding is larger than."""
  rng = np.random.default_rng(0)
  x = rng.normal(size=(40, 1, 64)) + 1e-4 * rng.normal(size=(40, 49, 64))
  cotangent = rng.normal(size=(40, 49, 32))
  cotangent -= cotangent.mean(1, keepdims=True)
  x, cotangent = np.float32(x), np.float32(cotangent)
  layer = contractions.Layer(lambda *one: tuple(each[None] for each in one),
                             None, None, 49, (1, 64, 32))
  return (np.sqrt(contractions.gram_norms(layer, x, cotangent).squares),
          np.linalg.norm(np.einsum('btk,btn->bkn', np.float64(x),
                                   np.float64(cotangent)), axis=(1, 2)))


def test_a_margin_covers_the_rounding_of_gram_matrices(monkeypatch):
  bounds, norms = _cancelled()
  assert np.all(norms <= bounds)
  monkeypatch.setattr(contractions, 'UNIT_ROUNDOFF', 0.0)
  bounds, norms = _cancelled()
  assert not np.all(norms <= bounds)


@pytest.mark.every(2)
@pytest.mark.parametrize('shape, axes', [
  ((5,), ((0,), (0,))), ((2, 3), ((1, 0), (0, 1))), ((2, 3), ((0, 1), (0, 2)))])
def test_outer_products_are_those_of_their_factors(shape, axes):
  """One site that contracts any axes in any order is one outer product."""
  rng = np.random.default_rng(1)
  places = [None] * (len(shape) + 1)
  for mine, theirs in zip(*axes):
    places[theirs] = shape[mine]
  weight = jnp.asarray(rng.normal(size=[place or 4 for place in places]),
                       jnp.float32)
  x, cotangent = (jnp.asarray(rng.normal(size=(7, *each)), jnp.float32)
                  for each in (shape, (4,)))
  product = lambda x, w: jax.lax.dot_general(x, w, (axes, ((), ())))
  equation, = jax.make_jaxpr(product)(x[0], weight).jaxpr.eqns
  layer = contractions.as_layer(equation, 1)
  wanted = jax.vmap(lambda x, d: jax.vjp(functools.partial(product, x),
                                         weight)[1](d)[0])(x, cotangent)
  factors = contractions.factors(layer, x, cotangent)
  norms = np.prod([np.linalg.norm(each, axis=1) for each in factors], 0)
  np.testing.assert_allclose(
    norms, np.linalg.norm(np.reshape(wanted, (7, -1)), axis=1), rtol=1e-5)
  np.testing.assert_allclose(contractions.outer_total(layer, *factors),
                             jnp.sum(wanted, 0), rtol=1e-4, atol=1e-5)


def _layer():
  rows = lambda *one: tuple(each[None] for each in one)
  return contractions.Layer(rows, None, None, 6, (1, 5, 4), has_windows=True)


@pytest.mark.every(4)
def test_few_records_at_a_time_are_the_same(monkeypatch):
  """Splitting a batch for the cache changes nothing, even if parts differ."""
  rng = np.random.default_rng(4)
  x, cotangent = (jnp.asarray(rng.normal(size=(7, 6, size)), jnp.float32)
                  for size in (5, 4))
  squares = contractions.gram_norms(_layer(), x, cotangent).squares
  products = contractions.products(_layer(), x, cotangent)
  exact = np.einsum('btk,btn->bkn', np.float64(x), np.float64(cotangent))
  np.testing.assert_allclose(products[:, 0], exact, atol=1e-5)
  np.testing.assert_allclose(squares, np.square(exact).sum((1, 2)), rtol=1e-4)
  for most in (1, 300):
    monkeypatch.setattr(contractions, '_CACHED_VALUES', most)
    np.testing.assert_allclose(
      contractions.gram_norms(_layer(), x, cotangent).squares, squares, rtol=1e-6)
    np.testing.assert_allclose(contractions.products(_layer(), x, cotangent),
                               products, rtol=1e-5, atol=1e-5)


def test_products_of_two_types_are_in_the_wider_one():
  """Products of bfloat16 inputs and float32 cotangents stay in float32."""
  x = jnp.ones((1, 6, 5), jnp.bfloat16)
  cotangent = jnp.full((1, 6, 4), 1 + 2.0**-12, jnp.float32)
  products = contractions.products(_layer(), x, cotangent)
  assert products.dtype == jnp.float32
  np.testing.assert_array_equal(products, 6 * (1 + 2.0**-12))


def _gather(shape, indices, **changed):
  """Returns a row lookup's equation and function, with the given changes."""
  given = dict(offset_dims=(len(indices) - 1,), collapsed_slice_dims=(0,),
               start_index_map=(0,), slice_sizes=(1, *shape[1:]),
               mode=jax.lax.GatherScatterMode.CLIP) | changed
  sizes, mode = given.pop('slice_sizes'), given.pop('mode')
  look_up = lambda operand, places: jax.lax.gather(
    operand, places, jax.lax.GatherDimensionNumbers(**given), sizes, mode=mode)
  equation, = jax.make_jaxpr(look_up)(
    jnp.zeros(shape), jnp.zeros(indices, jnp.int32)).jaxpr.eqns
  return equation, look_up


@pytest.mark.every(2)
def test_what_looks_rows_up_and_what_does_not():
  """Only plain row lookups count as tables; other gathers are refused."""
  assert lookups.as_table(_gather((9, 4), (3, 1))[0], 0) is not None
  refused = {
    'indices of columns': dict(start_index_map=(1,)),
    'parts of rows': dict(slice_sizes=(1, 2)),
    'two rows at once': dict(slice_sizes=(2, 4), collapsed_slice_dims=(),
                             offset_dims=(1, 2)),
    'columns': dict(collapsed_slice_dims=(1,), start_index_map=(1,),
                    slice_sizes=(9, 1)),
    'single entries': dict(collapsed_slice_dims=(0, 1), offset_dims=(),
                           slice_sizes=(1, 1)),
    'rows that come first': dict(offset_dims=(0,)),
    'an index for each row': dict(
      start_index_map=(1,), slice_sizes=(1, 1), collapsed_slice_dims=(1,),
      operand_batching_dims=(0,), start_indices_batching_dims=(0,),
      offset_dims=(), indices=(9, 1)),
    'a row for each index': dict(
      shape=(9, 1, 4), collapsed_slice_dims=(0,), slice_sizes=(1, 1, 4),
      operand_batching_dims=(1,), start_indices_batching_dims=(0,),
      offset_dims=(1,), indices=(1, 1)),
  }
  for name, changed in refused.items():
    changed = dict(shape=(9, 4), indices=(3, 1)) | changed
    assert lookups.as_table(_gather(**changed)[0], 0) is None, name
  # The looked-up operand must be the table, and the operation a gather.
  assert lookups.as_table(_gather((9, 4), (3, 1))[0], 1) is None
  equation, = jax.make_jaxpr(jnp.sin)(jnp.zeros([9, 4])).jaxpr.eqns
  assert lookups.as_table(equation, 0) is None
  # Up to this number of lookups comparing them is cheaper, and not above it.
  assert [lookups.comparing_is_cheaper(count, 10) for count in (19, 20)] == [
    True, False]


@pytest.mark.sound
@pytest.mark.parametrize('mode', [
  'CLIP', 'FILL_OR_DROP', 'PROMISE_IN_BOUNDS'])
def test_tables_have_the_gradients_of_lookups(mode):
  """Table gradients equal those of lookups, for repeated
  and outside indices."""
  rng = np.random.default_rng(2)
  for shape, indices in (((9, 4), (2, 3, 1)), ((5, 2, 3), (6, 1)),
                         ((30,), (8, 1))):
    batch = len(indices) - 1
    equation, look_up = _gather(
      shape, indices, mode=getattr(jax.lax.GatherScatterMode, mode),
      offset_dims=tuple(range(batch, batch + len(shape) - 1)))
    layer = lookups.as_table(equation, 0)
    ends = (0, shape[0]) if mode == 'PROMISE_IN_BOUNDS' else (-3, shape[0] + 3)
    places = jnp.asarray(rng.integers(*ends, (7, *indices)), jnp.int32)
    cotangents = jnp.asarray(rng.normal(size=(
      7, *equation.outvars[0].aval.shape)), jnp.float32)
    single = jax.jit(jax.vmap(lambda i, c, s=shape, f=look_up: jax.vjp(
      lambda operand: f(operand, i), jnp.zeros(s))[1](c)[0]))(places, cotangents)

    def run(places, cotangents, layer=layer):
      found = jax.vmap(layer.places)(places)
      each = lookups.Lookups(*found, cotangents.reshape((*found[0].shape, -1)))
      return lookups.squares(each), lookups.total(each, layer.shape[0])

    squares, total = jax.jit(run)(places, cotangents)
    total = total.reshape(shape)
    np.testing.assert_allclose(
      squares, np.square(np.reshape(single, (7, -1))).sum(1), rtol=1e-5)
    np.testing.assert_allclose(total, single.sum(0), atol=1e-5)
    assert layer.shape == shape and layer.num_sites == np.prod(indices)
