"""Plants faults in clipping; each must fail a check."""

import jax
import jax.numpy as jnp
import pytest

from dpjax.grads import bookkeeping
from dpjax.grads import bounder as bounders
from dpjax.grads import clipping
from dpjax.grads import inputs
from dpjax.grads import per_example
from dpjax.grads import weighted
from dpjax.typing import Batch

CLIP_NORM = 0.8
HUGE_NORM = 1e9


def _compiled(bounder):
  return bounder._replace(sums=jax.jit(bounder.sums))


def _clipped(network, clip_norm=CLIP_NORM, microbatch_size=None):
  return _compiled(per_example.clipped(
    network.apply, network.loss, clip_norm=clip_norm,
    microbatch_size=microbatch_size))


def _with_sums(network, sums):
  return bounders.GradientBounder(jax.jit(sums),
                                  lambda _: jnp.float32(CLIP_NORM))


@pytest.mark.every(2)
def test_fault_no_clipping(checks, network, monkeypatch):
  monkeypatch.setattr(clipping, 'flat_weights',
                      lambda norms, clip_norm: jnp.ones_like(norms))
  with pytest.raises(AssertionError):
    checks.each_term_is_bounded(_clipped(network), network.params,
                                checks.adversarial(network), CLIP_NORM)
  with pytest.raises(AssertionError):
    checks.adding_one_moves_by_at_most(
      _clipped(network), network.params, checks.adversarial(network), CLIP_NORM)


@pytest.mark.every(2)
@pytest.mark.parametrize('factor', [1.0001, 2.])
def test_fault_bound_too_large(checks, network, monkeypatch, factor):
  honest = clipping.flat_weights
  monkeypatch.setattr(
    clipping, 'flat_weights',
    lambda norms, clip_norm: honest(norms, clip_norm=factor * clip_norm))
  with pytest.raises(AssertionError):
    checks.each_term_is_bounded(_clipped(network), network.params,
                                checks.adversarial(network), CLIP_NORM)


def test_fault_normalising_as_printed(checks, network, monkeypatch):
  monkeypatch.setattr(clipping, 'flat_weights',
                      lambda norms, clip_norm: clip_norm / norms)
  with pytest.raises(AssertionError):
    checks.short_terms_are_untouched(network, _clipped(network, HUGE_NORM))


@pytest.mark.every(2)
def test_fault_clipping_the_sum(checks, network):
  def sums(params, batch, mask):
    plain = per_example.plain_sums(network.apply, network.loss, params, batch,
                                   mask)
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(leaf))
                        for leaf in jax.tree.leaves(plain.total)))
    factor = jnp.minimum(1.0, CLIP_NORM / jnp.maximum(norm, 1e-9))
    return plain._replace(
      total=jax.tree.map(lambda leaf: leaf * factor, plain.total))

  # Every record alone keeps the bound; only other records show the fault.
  fault = _with_sums(network, sums)
  checks.each_term_is_bounded(fault, network.params, checks.adversarial(network),
                              CLIP_NORM)
  with pytest.raises(AssertionError):
    checks.adding_one_moves_by_at_most(fault, network.params,
                                       checks.adversarial(network), CLIP_NORM)
  with pytest.raises(AssertionError):
    checks.records_are_isolated(fault, network.params, network.batch)


def test_fault_mask_ignored(checks, network):
  honest = _clipped(network)
  fault = _with_sums(network, lambda params, batch, mask: honest.sums(
    params, batch, jnp.ones_like(mask)))
  with pytest.raises(AssertionError):
    checks.masked_rows_are_nothing(fault, network.params, network.batch)


@pytest.mark.every(2)
def test_fault_batch_statistics(checks, network):
  honest = _clipped(network)

  def sums(params, batch, mask):
    centred = batch.x - jnp.mean(batch.x, 0, keepdims=True)
    return honest.sums(params, Batch(centred, batch.y), mask)

  with pytest.raises(AssertionError):
    checks.records_are_isolated(_with_sums(network, sums), network.params,
                                network.batch)


@pytest.mark.every(3)
@pytest.mark.parametrize('kernel', list(per_example.KERNELS))
def test_fault_zero_times_infinity(checks, network, monkeypatch, kernel):
  monkeypatch.setattr(weighted, '_weighted_sum',
                      lambda weights, leaf: jnp.tensordot(weights, leaf, 1))
  monkeypatch.setattr(bookkeeping, '_only', lambda usable, axis, x: x)
  monkeypatch.setattr(inputs, 'clean_features', lambda x, mask: (
    x, jnp.ones(mask.shape, jnp.bool_)))
  bounder = _compiled(per_example.clipped(
    network.apply, network.loss, clip_norm=CLIP_NORM, kernel=kernel))
  with pytest.raises(AssertionError):
    checks.bad_records_are_nothing(bounder, network.params, network.batch)
  with pytest.raises(AssertionError):
    checks.masked_rows_are_nothing(bounder, network.params, network.batch)


def test_fault_bad_record_drops_the_batch(checks, network):
  honest = _clipped(network)

  def sums(params, batch, mask):
    fine = jnp.all(jnp.isfinite(batch.x))
    return honest.sums(params, batch, mask & fine)

  with pytest.raises(AssertionError):
    checks.bad_records_are_nothing(_with_sums(network, sums), network.params,
                                   network.batch)
