"""Tests DP-16 in all variants: by layer, normalised, at private quantiles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import floats
from dpjax.grads import bounder as bounders
from dpjax.grads import clipping
from dpjax.grads import per_example
from dpjax.grads import quantiles
from dpjax.grads import weighted
from dpjax.typing import Batch

FLAT = 0.8
LAYERS = {'in': 0.6, 'out': 0.3}
DEEP = {'in': 0.6, 'out': {'b': 0.2, 'w': 0.1}}
ADAPTIVE = dict(target_quantile=0.5, learning_rate=0.2, noise_stddev=2.)


def _make(network, kind, microbatch_size=None):
  """Returns the bounder of this kind, with initial radii if it is adaptive."""
  rule, bound = kind
  rest = {'microbatch_size': microbatch_size}
  if rule == 'adaptive':
    adaptive = quantiles.geometric(bound, **ADAPTIVE)
    bounder = per_example.adaptively_clipped(
      network.apply, network.loss, adaptive=adaptive, **rest)
    bounder = bounders.at_radii(bounder, adaptive.init)
  elif rule == 'loss':
    bounder = weighted.of_record_loss(_record_loss(network), clip_norm=bound)
    sums = bounder.sums
    bounder = bounder._replace(sums=lambda params, batch, mask: sums(
      params, batch._replace(x=tuple(batch)), mask))
  elif rule == 'clipped':
    bounder = per_example.clipped(network.apply, network.loss, clip_norm=bound,
                                  **rest)
  else:
    bounder = per_example.normalized(network.apply, network.loss,
                                     clip_norm=bound, stabilizer=rule, **rest)
  return bounder._replace(sums=jax.jit(bounder.sums))


def _record_loss(network):
  """Returns (params, (x, y)) -> loss of one record."""
  return lambda params, record: network.loss(
    network.apply(params, record[0][None]), record[1][None])[0]


@pytest.fixture(name='make', scope='module')
def _make_once(network):
  """Returns `_make`, compiled once for this file."""
  cache = {}

  def make(*kind):
    if str(kind) not in cache:
      cache[str(kind)] = _make(network, *kind)
    return cache[str(kind)]

  return make


KINDS = [('clipped', LAYERS), ('clipped', DEEP), (0.01, FLAT), (0.01, LAYERS),
         (0., FLAT), (0., LAYERS), ('adaptive', FLAT), ('adaptive', LAYERS),
         ('loss', FLAT), ('loss', DEEP)]
QUICK = [('clipped', LAYERS), (0., FLAT), ('adaptive', LAYERS),
         ('loss', LAYERS)]


def _bounds(bound):
  return np.array(jax.tree.leaves(bound))


def _by_hand(network, kind, x, y):
  """Returns one record's contribution, loss and block norms, in float64."""
  rule, bound = kind
  value, gradient = network.by_hand(network.params, x, y)
  norms = []

  def block(limit, part):
    norm = np.sqrt(sum(np.sum(leaf**2) for leaf in jax.tree.leaves(part)))
    norms.append(norm)
    if rule in ('clipped', 'adaptive', 'loss'):
      factor = min(1, limit / norm)
    else:
      factor = limit / (norm + rule)
    return jax.tree.map(lambda leaf: factor * leaf, part)

  structure = jax.tree.structure(bound)
  parts = [block(limit, part) for limit, part in zip(
    jax.tree.leaves(bound), structure.flatten_up_to(gradient), strict=True)]
  return jax.tree.unflatten(structure, parts), value, np.array(norms)


@pytest.mark.every(3)
@pytest.mark.parametrize('kind', KINDS, ids=str)
def test_sum_is_by_hand(make, checks, network, kind):
  mask = np.arange(13) % 4 != 1
  terms = [_by_hand(network, kind, network.batch.x[i], network.batch.y[i])
           for i in np.flatnonzero(mask)]
  sums = make(kind).sums(network.params, network.batch,
                         jnp.asarray(mask))
  np.testing.assert_allclose(
    checks.flat(sums.total), sum(checks.flat(term) for term, _, _ in terms),
    atol=1e-4)
  np.testing.assert_allclose(sums.loss, sum(v for _, v, _ in terms),
                             rtol=1e-5)
  if kind[0] == 'adaptive':
    within = [norms <= _bounds(kind[1]) for _, _, norms in terms]
    np.testing.assert_array_equal(checks.flat(sums.indicators),
                                  np.sum(np.array(within) - 0.5, 0))
  else:
    assert sums.indicators == ()


@pytest.mark.every(8)
@pytest.mark.parametrize('kind', KINDS, ids=str)
def test_one_record_keeps_every_bound(make, checks, network, hostile, kind):
  """One record stays within each block's bound and within the joint bound."""
  bounder = make(kind)
  sensitivity = bounder.l2_sensitivity(())
  np.testing.assert_array_equal(_bounds(sensitivity),
                                np.float32(_bounds(kind[1])))
  joint = np.linalg.norm(_bounds(kind[1]))
  checks.each_term_is_bounded(bounder, network.params, hostile, joint)
  checks.replacing_one_moves_by_at_most(bounder, network.params, hostile,
                                        2 * joint)
  structure = jax.tree.structure(sensitivity)
  terms = jax.vmap(lambda only: bounder.sums(
    network.params, hostile, only).total)(
      jnp.eye(hostile.x.shape[0], dtype=jnp.bool_))
  largest = [np.max(np.sqrt(sum(
    np.sum(np.square(np.float64(leaf)), tuple(range(1, leaf.ndim)))
    for leaf in jax.tree.leaves(block))))
    for block in structure.flatten_up_to(terms)]
  # The search attains each bound, up to the stabiliser.
  for norm, bound in zip(largest, _bounds(kind[1]), strict=True):
    assert 0.97 * bound <= norm <= bound * (1 + 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize('kind', QUICK, ids=str)
@pytest.mark.parametrize('microbatch_size', [None, 4])
def test_masked_bad_and_other_records(make, checks, network, kind, microbatch_size):
  bounder = make(kind, microbatch_size)
  checks.masked_rows_are_nothing(bounder, network.params, network.batch)
  checks.bad_records_are_nothing(bounder, network.params, network.batch)
  checks.records_are_isolated(bounder, network.params, network.batch)


@pytest.mark.every(3)
@pytest.mark.parametrize('kind', QUICK, ids=str)
@pytest.mark.parametrize('microbatch_size', [1, 5])
def test_microbatches_change_nothing(make, network, kind, microbatch_size):
  """Microbatches give the same sums, indicators and counts (REG-03)."""
  mask = jnp.arange(13) != 3
  batch = Batch(network.batch.x.at[6, 0].set(jnp.nan), network.batch.y)
  whole = make(kind).sums(network.params, batch, mask)
  parts = make(kind, microbatch_size).sums(network.params, batch,
                                           mask)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=3e-6),
               whole, parts)
  assert int(parts.num_nonfinite) == 1


@pytest.mark.parametrize('kind', QUICK, ids=str)
@pytest.mark.sound
def test_a_bad_record_is_as_a_masked_one(make, network, kind):
  """A non-finite record gives the same sums, losses and
  counts as a masked one."""
  everybody, without = jnp.ones([13], jnp.bool_), jnp.arange(13) != 6
  honest = make(kind).sums(network.params, network.batch, without)
  for bad in (np.nan, np.inf, 1e38):
    batch = network.batch._replace(x=network.batch.x.at[6, 0].set(bad))
    sums = make(kind).sums(network.params, batch, everybody)
    assert int(sums.num_nonfinite) == 1
    jax.tree.map(np.testing.assert_array_equal, sums._replace(num_nonfinite=0),
                 honest._replace(num_nonfinite=0))


def test_bad_in_one_block_is_nothing_in_all(checks):
  """A record is dropped from all blocks if its gradient overflows in one."""
  apply = lambda params, x: x @ params['a']['w'] + params['b']['w'][None]
  loss = lambda logits, labels: jnp.sum(logits, -1)
  params = {'a': {'w': jnp.zeros([3, 2])}, 'b': {'w': jnp.zeros([2])}}
  batch = Batch(jnp.ones([2, 3]).at[0, 0].set(1e30), jnp.zeros([2], jnp.int32))
  sums = jax.jit(per_example.clipped(
    apply, loss, clip_norm={'a': 1., 'b': 1.}).sums)
  both = sums(params, batch, jnp.asarray([True, True]))
  good = sums(params, batch, jnp.asarray([False, True]))
  np.testing.assert_array_equal(checks.flat(both.total),
                                checks.flat(good.total))
  assert int(both.num_nonfinite) == 1


@pytest.mark.every(2)
def test_one_block_for_each_layer_is_flat_where_there_is_one(checks, network):
  params = {'in': network.params['in']}
  apply = lambda p, x: network.apply({**network.params, **p}, x)
  mask = jnp.ones([13], jnp.bool_)
  sums = [jax.jit(per_example.clipped(
    apply, network.loss, clip_norm=bound).sums)(
      params, network.batch, mask).total for bound in (0.4, {'in': 0.4})]
  np.testing.assert_array_equal(*map(checks.flat, sums))


@pytest.mark.every(2)
def test_radii_are_those_of_the_step(checks, network):
  adaptive = quantiles.geometric(LAYERS, **ADAPTIVE)
  bounder = per_example.adaptively_clipped(network.apply, network.loss,
                                           adaptive=adaptive)
  new_radii = {'in': jnp.float32(0.05), 'out': jnp.float32(7.)}
  at_moved = bounders.at_radii(bounder, new_radii)
  assert at_moved.adaptive is None
  assert at_moved.l2_sensitivity(()) == new_radii
  mask = jnp.ones([13], jnp.bool_)
  fixed = per_example.clipped(network.apply, network.loss,
                              clip_norm={'in': 0.05, 'out': 7.})
  np.testing.assert_allclose(
    *[checks.flat(jax.jit(bounder.sums)(network.params, network.batch,
                                        mask).total)
      for bounder in (at_moved, fixed)],
    rtol=1e-5, atol=1e-6)
  assert bounders.at_radii(fixed, ()) is fixed


@pytest.mark.parametrize('bound', [{'in': 0.6, 'out': 0.}, np.nan])
def test_refuses_a_bound_that_is_none(network, bound):
  for make in (per_example.clipped,
               lambda *a, **k: per_example.normalized(*a, stabilizer=0.1,
                                                      **k)):
    with pytest.raises(ValueError, match='clip_norm must be a positive'):
      make(network.apply, network.loss, clip_norm=bound)
  with pytest.raises(ValueError, match='stabilizer must be a number >= 0'):
    per_example.normalized(network.apply, network.loss, clip_norm=1.,
                           stabilizer=-1.)


def test_no_gradient_normalised_is_none(checks, network):
  """A record with zero gradient contributes zero, not NaN, when normalised."""
  still = network.batch._replace(x=jnp.zeros_like(network.batch.x))
  apply = lambda params, x: x @ params['w']
  params = {'w': jnp.zeros([3, 3])}
  bounder = per_example.normalized(apply, network.loss, clip_norm=1.,
                                   stabilizer=0.)
  sums = jax.jit(bounder.sums)(params, still, jnp.ones([13], jnp.bool_))
  assert not np.any(checks.flat(sums.total))
  assert int(sums.num_nonfinite) == 0


# Faults are planted from here on.


def _underflowing():
  """Returns a case of 4097 components whose squares mostly underflow, so
  that the computed norm is a tenth of the true one."""
  apply = lambda params, x: x * params['w'][None]
  loss = lambda logits, labels: jnp.sum(logits, -1)
  x = np.full([1, 4097], 1e-23, np.float32)
  x[0, 0] = 1.2e-19
  x[0, 1:] = 1.7e-20
  return apply, loss, {'w': jnp.zeros([4097])}, Batch(
    jnp.asarray(x), jnp.zeros([1], jnp.int32))


def check_tiny_gradients(checks):
  apply, loss, params, batch = _underflowing()
  bounder = per_example.normalized(apply, loss, clip_norm=1., stabilizer=0.)
  total = bounder.sums(params, batch, jnp.ones([1], jnp.bool_)).total
  assert np.linalg.norm(checks.flat(total)) <= 1 + 1e-6


@pytest.mark.every(2)
def test_tiny_gradients_keep_the_bound(checks):
  check_tiny_gradients(checks)


def test_fault_norm_that_underflows(checks, monkeypatch):
  monkeypatch.setattr(clipping, '_SMALLEST_STABILIZER', 0.)
  monkeypatch.setattr(floats, 'SMALLEST_NORMAL', 0.)
  with pytest.raises(AssertionError):
    check_tiny_gradients(checks)


@pytest.mark.every(2)
def test_fault_clipped_by_the_norm_of_all(checks, network, hostile,
                                          monkeypatch):
  """Clipping each layer by one layer's clip norm exceeds the joint bound."""
  monkeypatch.setattr(weighted, 'clip', lambda norms, bound: (
    clipping.flat_weights(norms, clip_norm=0.6)))
  bounder = _make(network, ('clipped', LAYERS))
  with pytest.raises(AssertionError):
    checks.each_term_is_bounded(bounder, network.params, hostile,
                                np.linalg.norm(_bounds(LAYERS)))


@pytest.mark.every(2)
def test_fault_radius_from_the_batch(checks, network):
  """A clip norm taken from the batch makes records
  depend on each other (R1)."""
  honest = per_example.adaptively_clipped(
    network.apply, network.loss, adaptive=quantiles.geometric(FLAT,
                                                              **ADAPTIVE))

  def sums(params, batch, mask):
    grads = per_example.per_example_gradients(
      network.apply, network.loss, params, batch)[1]
    norms = jnp.sqrt(sum(jnp.sum(jnp.square(leaf), tuple(range(1, leaf.ndim)))
                         for leaf in jax.tree.leaves(grads)))
    return honest.sums(params, batch, mask, jnp.median(norms))

  fault = bounders.GradientBounder(jax.jit(sums), lambda _: jnp.float32(FLAT))
  with pytest.raises(AssertionError):
    checks.records_are_isolated(fault, network.params, network.batch)
