"""These tests check that Lip-DP-SGD is DP-SGD with particular clip norms.

No gradient of a record exceeds its certified bound. So clipping each layer at
that bound changes nothing, and it has the same sensitivity: every run of
Lip-DP-SGD is a run of DP-SGD with these clip norms, which the latter is free to
lower. What bounds save is the work on each record.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import per_example
from dpjax.lipschitz import losses
from dpjax.models import convnet
from dpjax.models import mlp
from dpjax.train import methods
from dpjax.typing import Batch

_SHAPE = (6, 6, 1)
_MODELS = {
  'balls': lambda: mlp.mlp(num_features=5, num_classes=3, depth=2, width=4,
                           input_radius=1.0, hidden_radius=1.0),
  'orthogonal': lambda: mlp.orthogonal(num_features=5, num_classes=3, depth=3,
                                       width=8, share=0.25),
  'convolutions': lambda: convnet.convnet(
    input_shape=_SHAPE, num_classes=3, channels=(2,), width=4, use_bias=False,
    input_radius=1.0),
}


@pytest.mark.parametrize('name', _MODELS)
def test_lip_dp_sgd_is_dp_sgd_clipped_at_the_bounds(name):
  """Clipping at the bounds gives the sums and the sensitivity of Lip-DP-SGD.

  Half of a bound clips records, so that the comparison could fail.
  """
  model = _MODELS[name]()
  loss = losses.cross_entropy(temperature=0.1)
  lipschitz = methods.lip_dp_sgd(model, loss, weight_norm=1.0)
  params, certificate = lipschitz.constraint.constrain(
    model.init(jax.random.key(0)))
  bounds = lipschitz.bounder.l2_sensitivity(certificate)
  shape = _SHAPE if name == 'convolutions' else (5,)
  # Far beyond the input radius, so that records have the largest norm.
  batch = Batch(100 * jax.random.normal(jax.random.key(1), (12, *shape)),
                jnp.arange(12) % 3)
  mask = jnp.arange(12) != 5

  def clipped(factor):
    clip_norms = jax.tree.map(lambda bound: float(bound) * factor, bounds)
    bounder = per_example.clipped(model.apply, loss.values,
                                  clip_norm=clip_norms)
    return (bounder.sums(params, batch, mask).total,
            bounder.l2_sensitivity(certificate))

  plain = lipschitz.bounder.sums(params, batch, mask).total
  total, sensitivity = clipped(1.0)
  for ours, theirs in zip(jax.tree.leaves(plain), jax.tree.leaves(total),
                          strict=True):
    np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(jax.tree.leaves(sensitivity),
                             jax.tree.leaves(bounds), rtol=1e-6)
  lower, _ = clipped(0.01)
  assert any(np.linalg.norm(ours) > 2 * np.linalg.norm(theirs)
             for ours, theirs in zip(jax.tree.leaves(plain),
                                     jax.tree.leaves(lower), strict=True))
