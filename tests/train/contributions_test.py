"""These tests check the contribution and bound of every Lipschitz method.

The bound itself is proved and tested with its network. These tests check that
each method combines all the right parts, on hostile records too.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import bounder as bounders
from dpjax.lipschitz import losses
from dpjax.models import mlp
from dpjax.papers import bassily
from dpjax.train import methods
from dpjax.typing import Batch

LOSS = losses.cross_entropy()
NORM, CLIP = 0.8, 0.6
# This maps a name to the order of its norms and how its weights are held.
ORDERS = {'lip_k_norm_1': 1, 'lip_k_norm_inf': math.inf}
HELD = {
    'lip_dp_sgd': 'most', 'lip_normalised': 'most', 'lip_adaptive': 'most',
    'lip_normalised_floor': 'most', 'fix_lip_dp_sgd': 'equal',
    'bassily': 'most', 'lip_k_norm_1': 'most', 'lip_k_norm_inf': 'most'}


def _model(depth=1, **changes):
  return mlp.mlp(num_features=3, num_classes=2, depth=depth, width=4,
                 **{'input_radius': 1.5, 'hidden_radius': 1.0, **changes})


def _methods():
  """Returns a dictionary from names to (model, method)."""
  model, wide = _model(), _model(adaptive=True)
  one, norm = _model(0), {'weight_norm': NORM}
  by_name = {'layer_clipped': (model, methods.layer_clipped(
      model, LOSS, clip_norm=CLIP))}
  for name in ('lip_dp_sgd', 'fix_lip_dp_sgd', 'lip_normalised'):
    by_name[name] = model, getattr(methods, name)(model, LOSS, **norm)
  by_name['lip_normalised_floor'] = model, methods.lip_normalised(
      model, LOSS, **norm, floor=2.0)
  by_name['lip_adaptive'] = wide, methods.lip_adaptive(wide, LOSS, **norm,
                                                       noise_stddev=2.0)
  by_name['bassily'] = one, bassily.bassily(one, LOSS, radius=NORM)
  for name, order in ORDERS.items():
    by_name[name] = model, methods.lip_k_norm(model, LOSS, **norm, order=order)
  return by_name


METHODS = _methods()


def _records():
  """Returns short, long and axis-aligned
  records; the last two are not finite."""
  rng = np.random.default_rng(0)
  x = rng.normal(size=(24, 3)) * np.repeat([1e-2, 1.0, 30.0], 8)[:, None]
  x[16:19] = 1e4 * np.eye(3)
  x[22, 1], x[23, 0] = np.nan, np.inf
  return Batch(jnp.asarray(x, jnp.float32), jnp.asarray(
      rng.integers(0, 2, 24), jnp.int32))


def _looked_at(model, method):
  """Returns (params, certificate, bounds,
  contributions, indicators) of a method."""
  adaptive = method.bounder.adaptive
  bounder = bounders.at_radii(method.bounder,
                              None if adaptive is None else adaptive.init)
  params, certificate = method.constraint.constrain(jax.tree.map(
      lambda leaf: 3 * leaf + 0.2, model.init(jax.random.key(1))))
  alone = jax.vmap(lambda mask: bounder.sums(params, _records(), mask))(
      jnp.eye(24, dtype=bool))
  return (params, certificate, bounder.l2_sensitivity(certificate),
          alone.total, alone.indicators)


@pytest.fixture(name='contributions', scope='module')
def _contributions():
  """Returns what `_looked_at` gives for each
  method, computed in one program."""
  contributions = jax.jit(lambda: {name: _looked_at(*pair)
                                   for name, pair in METHODS.items()})()
  return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), contributions)


def _norms(block, order):
  """Returns norms of the records' contributions to a block of leaves."""
  flat = np.concatenate([leaf.reshape(24, -1)
                         for leaf in jax.tree.leaves(block)], 1)
  return np.linalg.norm(flat, order, axis=1)


@pytest.mark.every(5)
def test_no_record_adds_more_than_the_bound(contributions):
  for name, (_, _, bounds, total, counts) in contributions.items():
    order = ORDERS.get(name, 2)
    assert METHODS[name][1].noise_order == ORDERS.get(name), name
    parts = jax.tree.structure(bounds).flatten_up_to(total)
    most = 0
    for bound, part in zip(jax.tree.leaves(bounds), parts, strict=True):
      norms = _norms(part, order)
      assert np.all(norms <= bound * (1 + 1e-5)), name
      assert np.all(norms[:22] > 0) and not norms[22:].any(), name
      most = max(most, norms.max() / bound)
    # The largest contribution is so near that another network's bound would
    # fail.
    assert most > 0.25, name
    for count in jax.tree.leaves(counts):
      np.testing.assert_array_equal(np.abs(count), [0.5] * 22 + [0.0] * 2)


@pytest.mark.every(2)
def test_a_clip_norm_bounds_all_blocks_together(contributions):
  bounds = jax.tree.leaves(contributions['layer_clipped'][2])
  assert math.hypot(*bounds) == pytest.approx(CLIP, rel=1e-4)


def test_weights_are_held_at_their_norm(contributions):
  """Constrained weights obey their norm in the norm of the method.

  The certificate covers that norm.
  """
  for name, (params, certificate, *_) in contributions.items():
    for layer, leaves in params.items():
      norm = np.linalg.norm(leaves['kernel'], ORDERS.get(name, 2))
      if name not in HELD:
        assert norm > 1.1 * NORM, name  # They are free.
        continue
      assert norm <= certificate[layer] <= NORM * (1 + 2e-2), name
      least = {'equal': 0.98, 'most': 0.5}[HELD[name]]
      assert norm > least * NORM, (name, layer)


def test_a_normalised_layer_is_divided_by_the_floor_at_least(contributions):
  """A floor of 2 halves plain gradients whose
  augmented inputs are shorter than 2."""
  params, _, _, plain, _ = contributions['lip_dp_sgd']
  same, _, _, divided, _ = contributions['lip_normalised_floor']
  jax.tree.map(np.testing.assert_array_equal, params, same)
  jax.tree.map(lambda one, other: np.testing.assert_allclose(
      2 * other, one, rtol=1e-3, atol=1e-6), plain, divided)
