"""These tests audit classic mistakes; each is found by the checks it names."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.audit import auditor
from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit.target import Target
from dpjax.privacy.adjacency import Adjacency

_RO = Adjacency.REPLACE_ONE
_COUNTS, _REPLAY = 'distinguishing event', 'record and replay'


def _laplace(key, scale=1.0, shape=()):
  return scale * jax.random.laplace(key, shape)


def _overflow(key, data):
  # Eight bits hold the sum of 127 ones, and not that of 128.
  total = jnp.sum(data.astype(jnp.int8), dtype=jnp.int8)
  return total.astype(jnp.float32) + _laplace(key)


def _no_overflow(key, data):
  return jnp.sum(data.astype(jnp.float32)) + _laplace(key)


def _reused(key, data):
  # Each answer alone has epsilon 1 / 2; their difference has no noise.
  noise = _laplace(key, 2.0)
  return jnp.stack([data.sum() + noise, (data**2).sum() + noise])


def _fresh(key, data):
  return jnp.stack([data.sum(), (data**2).sum()]) + _laplace(key, 2.0, (2,))


def _seeded_by_data(key, data):
  del key
  total = data.sum()
  seed = jax.lax.bitcast_convert_type(total, jnp.int32)
  return total + _laplace(jax.random.fold_in(jax.random.key(0), seed))


def _float64(key, data):
  rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
  return np.asarray(data, np.float64).sum() + rng.laplace()


def _float64_on_a_grid(key, data):
  # Multiples of 2^-20 are exact, and so are their sums.
  rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
  steps = rng.geometric(1 - np.exp(-2.0**-20), 2)
  total = np.round(np.asarray(data, np.float64) * 2.0**20).sum()
  return (total + steps[0] - steps[1]) * 2.0**-20


def _clamped_after(key, data):
  return jnp.clip(data.sum() + _laplace(key), 0.0, 100.0)


def _clamped_before(key, data):
  kept = jnp.where(jnp.isfinite(data), data, 0.0)
  return jnp.clip(jnp.clip(kept, 0, 1).sum() + _laplace(key), 0.0, 100.0)


def _split(parts):
  def release(key, data):
    keys = jax.random.split(key, len(parts))
    values = (data.sum(), (1 - data).sum(), (data**2).sum())
    return jnp.stack([value + _laplace(k, 1 / part) for k, value, part in zip(
        keys, values, parts, strict=True)])
  return release


# Each mistake and its repair: the space of legal records, the checks that find
# it, and whether the low-order bits are part of the claim.
_UNIT = dict(bounds=(0.0, 1.0))
_MUTANTS = {
    'int overflow': (_overflow, _no_overflow, dict(
        sizes=(200,), num_categories=2), {_COUNTS, _REPLAY}, False),
    'key reuse over two releases': (
        _reused, _fresh, _UNIT, {_COUNTS, _REPLAY}, False),
    'data-dependent seed': (
        _seeded_by_data, _no_overflow, _UNIT, {_COUNTS, _REPLAY}, False),
    'float leak in float64': (
        _float64, _float64_on_a_grid, _UNIT, {_COUNTS}, True),
    'clamping after noise': (
        _clamped_after, _clamped_before, {}, {_COUNTS, _REPLAY}, False),
    'parts of a budget that exceed it': (
        _split((0.5, 0.5, 0.5)), _split((0.5, 0.25, 0.25)), _UNIT,
        {_COUNTS, _REPLAY}, False),
}


def _audit(name, release, fields, floating_point):
  target = Target(
      name=name, release=release, pairs=(), floating_point=floating_point,
      space=spaces.Records(adjacency=_RO, **fields),
      claim=claims.Claim(epsilon=1.0, delta=0.0, adjacency=_RO))
  return auditor.audit(jax.random.key(0), target)


@pytest.mark.every(6)
@pytest.mark.parametrize('name', _MUTANTS)
def test_a_mutant_is_found_by_its_checks(name):
  faulty, _, fields, checks, floating_point = _MUTANTS[name]
  report = _audit(name, faulty, fields, floating_point)
  assert report.verdict == auditor.VIOLATED
  assert {check.name for check in report.failed} == checks


@pytest.mark.slow
@pytest.mark.parametrize('name', _MUTANTS)
def test_a_mended_mutant_is_not_refuted(name):
  _, mended, fields, _, floating_point = _MUTANTS[name]
  report = _audit(name, mended, fields, floating_point)
  assert report.verdict == auditor.CONSISTENT, report.failed
