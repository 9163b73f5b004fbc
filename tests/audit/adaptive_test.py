"""Private radii, audited through the loop that users run (LDP-06).

One canary whose gradient is longer than any clip norm, or whose activation is
outside any ball, among records that count as zero, at learning rate zero: each
step releases a known multiple of the radius along a known direction and minus
one half, both with their noise. Together they are one Gaussian whose
multiplier is nearly the planned one, so the audit is tight.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax import tree
from dpjax.audit import canary as canaries
from dpjax.audit import empirical
from dpjax.audit import whitebox
from dpjax.grads import bounder as bounders
from dpjax.grads import per_example
from dpjax.grads import quantiles
from dpjax.lipschitz import losses
from dpjax.lipschitz.network import Network
from dpjax.models import mlp
from dpjax.privacy import accounting
from dpjax.privacy import blocks
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.train import loop
from dpjax.train import methods
from dpjax.train.plan import TrainingPlan
from dpjax.typing import Batch

_NUM_RECORDS, _STEPS, _RUNS, _SIGMA, _SIGMA_B = 40, 10, 2000, 1.2, 0.8
_EPSILONS = (0.5, 1.5, 3.0)
_SETTINGS = dict(target_quantile=0.5, learning_rate=0.2,
                 noise_stddev=_SIGMA_B)
_PLAN = TrainingPlan(
    sampler=PoissonSampler(num_examples=_NUM_RECORDS, batch_size=10),
    num_steps=_STEPS, noise_multiplier=_SIGMA,
    adjacency=Adjacency.ADD_OR_REMOVE_ONE)


def _model():
  params = {'dense_00': {'kernel': jnp.zeros([2, 2]), 'bias': jnp.zeros([2])}}
  return mlp.mlp(num_features=2, num_classes=2, depth=0)._replace(
      init=lambda key: params), params


def _method(indicators=quantiles.centred_indicators):
  model, _ = _model()
  adaptive = quantiles.geometric(0.1, span=4.0, **_SETTINGS)
  bounder = per_example.adaptively_clipped(
      model.apply, losses.cross_entropy().values, adaptive=adaptive)

  def sums(params, batch, mask, radii):
    found = bounder.sums(params, batch, mask, radii)
    grads = per_example.per_example_gradients(
        model.apply, losses.cross_entropy().values, params, batch)[1]
    norms = jnp.sqrt(jax.vmap(tree.squared_norm)(grads))
    return found._replace(indicators=indicators(
        norms, radii, mask & jnp.isfinite(norms)))

  return bounders.Method('adaptive', bounder._replace(sums=sums),
                         bounders.no_constraint(), private=True)


def _canary():
  return Batch(jnp.asarray([[4.0, -3.0]]), jnp.zeros([1], jnp.int32))


def _run(model, method):
  """(released sums, radii before each step [runs, steps], counts, info).

  The canary is there in the first `_RUNS` of them.
  """
  x = jnp.concatenate([_canary().x, jnp.full([1, 2], jnp.nan)])
  result = loop.fit(
      jax.random.split(jax.random.key(5), 2 * _RUNS),
      plans=[_PLAN] * 2 * _RUNS, model=model, method=method,
      records=Batch(x, jnp.zeros([2], jnp.int32)),
      rows=canaries.neighbouring_rows(_NUM_RECORDS, _RUNS),
      optimizer=optax.chain(whitebox.recorder(lambda u: u, _STEPS),
                            optax.sgd(0.0)))
  size = _PLAN.sampler.expected_batch_size
  radii, = map(np.float64, jax.tree.leaves(result.info.radii))
  last, = map(np.float64, jax.tree.leaves(result.state.radii))
  # The radii are public, and tell the noisy counts that moved them.
  moves = np.diff(np.log(np.concatenate([radii.T, last[:, None]], 1)), axis=1)
  return (tree.scale(size, result.state.optimizer[1][0].history), radii.T,
          -moves / _SETTINGS['learning_rate'] * size, result.info)


def _statistics(method) -> np.ndarray:
  """[2 runs, steps] matched filters of gradient and indicator together."""
  model, params = _model()
  sums, radii, counts, _ = _run(model, method)
  # The canary is longer than any of them, and none was held in the span.
  assert 0.026 < radii.min() and radii.max() < 0.39
  (total, _), _ = whitebox.contribution(method, params, (), _canary(),
                                        jnp.float32(1.0))
  along = sum(
      np.tensordot(np.float64(leaf).reshape(2 * _RUNS, _STEPS, -1),
                   np.ravel(np.float64(d)), 1)
      for leaf, d in zip(jax.tree.leaves(sums), jax.tree.leaves(total),
                         strict=True)) / radii
  return _filter(along, counts)[0]


def _filter(along, counts):
  """The best statistic of both, and its signal-to-noise ratio."""
  left = (_SIGMA**-2 - (2 * _SIGMA_B)**-2)**-0.5
  energy = left**-2 + (0.5 / _SIGMA_B)**2
  return (along / left**2 - 0.5 * counts / _SIGMA_B**2) / energy, energy**0.5


def _curves(method):
  """(measured delta, its error, claim, direction) at each epsilon."""
  settings = dict(sampling_prob=_PLAN.sampler.sampling_prob,
                  noise_multiplier=_SIGMA)
  return _compared(whitebox.privacy_losses(_statistics(method), **settings))


def _compared(losses_of_runs):
  inside, outside = np.split(losses_of_runs, 2)
  for epsilon in _EPSILONS:
    claim = accounting.delta_for(_PLAN.event, target_epsilon=epsilon,
                                 adjacency=_PLAN.adjacency)
    for what, values in (('remove', inside), ('add', -outside)):
      estimate = whitebox.estimate_delta(values, epsilon=epsilon)
      # 5.5 standard errors: false alarm 2e-8 each.
      yield estimate.value, 5.5 * estimate.standard_error + 1e-4, claim, what


def test_the_audit_finds_nothing_and_is_tight():
  for value, error, claim, what in _curves(_method()):
    assert value <= claim + error
    if what == 'remove':  # The worse direction: the canary spends it all.
      assert value >= claim - error


def _not_centred(norms, radii, kept):
  """-1[norm > B]: moves by 1 where 1/2 is accounted."""
  return jnp.sum(jnp.where(kept & (norms > radii), -1.0, 0.0))


def test_fault_indicators_not_centred_are_found():
  assert any(value > claim + error
             for value, error, claim, _ in _curves(_method(_not_centred)))


def test_fault_indicators_free_of_charge_are_found_by_the_loop(monkeypatch):
  monkeypatch.setattr(quantiles, 'gradient_noise_multiplier',
                      lambda noise_multiplier, adaptive: noise_multiplier)
  with pytest.raises(ValueError, match='less than the planned 1.2'):
    _statistics(_method())


def test_contribution_of_the_canary_meets_both_bounds():
  _, params = _model()
  total, ratios = whitebox.contribution(_method(), params, (), _canary(),
                                        jnp.float32(0.1))
  np.testing.assert_allclose(jax.tree.leaves(ratios), [1.0, 1.0], rtol=2e-5)
  left = (_SIGMA**-2 - (2 * _SIGMA_B)**-2)**-0.5
  _, mu = whitebox.matched_filter(
      total, (jnp.float32(left * 0.1), jnp.float32(_SIGMA_B)))
  assert mu == pytest.approx(1 / _SIGMA, rel=2e-5)


def test_fault_indicators_not_centred_exceed_their_bound():
  _, params = _model()
  _, (_, share) = whitebox.contribution(
      _method(_not_centred), params, (), _canary(), jnp.float32(0.1))
  assert float(share) == 2.0


def _balls():
  """An activation outside the ball, a cotangent across it.

  So the canary nearly attains the bound of the first layer through the ball,
  and attains that of the second.
  """
  model = mlp.mlp(num_features=2, num_classes=2, depth=1, width=2,
                  activation='relu', input_radius=5.0, hidden_radius=0.9,
                  adaptive=True)
  # [4, -3] becomes [1, 0], which the logits do not see.
  params = {
      'dense_00': {'kernel': jnp.asarray([[0.16, 0.0], [-0.12, 0.0]]),
                   'bias': jnp.asarray([0.0, 1e-6])},
      'dense_01': {'kernel': jnp.asarray([[0.0, 0.0], [-2.0, 2.0]]),
                   'bias': jnp.zeros([2])},
  }
  return model._replace(init=lambda key: params)


def _lip_adaptive(model):
  return methods.lip_adaptive(
      model, losses.cross_entropy(logit_clip=0.35), weight_norm=3.0,
      noise_stddev=_SIGMA_B, target_quantile=0.5, learning_rate=0.02)


def _ball_losses(model, method) -> np.ndarray:
  """Privacy losses of runs whose balls move; exact, step by step."""
  sums, radii, moved, info = _run(model, method)
  counts = moved * _SETTINGS['learning_rate'] / 0.02
  assert 0.7 < radii.min() and radii.max() < 0.99  # The canary is at 1.
  params, certificate = method.constraint.constrain(model.init(None))

  def canary(radius):
    return whitebox.contribution(method, params, certificate, _canary(),
                                 {'ball_01': radius})

  (total, shifts), ratios = jax.jit(jax.vmap(jax.vmap(canary)))(
      np.float32(radii))
  assert all(jnp.all(leaf <= 1 + 1e-5) for leaf in jax.tree.leaves(ratios))
  sensitivity = jax.tree.map(lambda _: 0, certificate)
  structure = jax.tree.structure(sensitivity)
  left = quantiles.gradient_noise_multiplier(_SIGMA, method.bounder.adaptive)
  stddevs = jax.vmap(jax.vmap(lambda bounds: blocks.allocate(
      bounds, noise_multiplier=left,
      sizes=tree.block_sizes(sensitivity, params))))(info.l2_sensitivity)
  found = 0.0
  for number, (noisy, mean) in enumerate(zip(
      structure.flatten_up_to(sums), structure.flatten_up_to(total),
      strict=True)):
    stddev = np.float64(stddevs[..., number]).T
    for y, c in zip(jax.tree.leaves(noisy), jax.tree.leaves(mean),
                    strict=True):
      y, c = (np.float64(leaf).reshape(2 * _RUNS, _STEPS, -1)
              for leaf in (y, c))
      found += np.sum(y * c - c * c / 2, -1) / stddev**2
  shift, = map(np.float64, jax.tree.leaves(shifts))
  found += (counts * shift - shift**2 / 2) / _SIGMA_B**2
  return empirical.subsampled_log_ratio(
      found, sampling_prob=_PLAN.sampler.sampling_prob).sum(-1)


def _ball_curves():
  model = _balls()
  method = _lip_adaptive(model)
  return _compared(_ball_losses(model, method))


def test_the_audit_of_adaptive_balls_finds_nothing_and_is_tight():
  for value, error, claim, what in _ball_curves():
    assert value <= claim + error
    if what == 'remove':
      assert value >= 0.8 * claim - error


def test_fault_bounds_at_a_smaller_radius_are_found(monkeypatch):
  honest = Network.gradient_bounds

  def smaller(self, norms, *, radii=(), **options):
    return honest(self, norms, radii=jax.tree.map(lambda r: r / 4, radii),
                  **options)

  monkeypatch.setattr(Network, 'gradient_bounds', smaller)
  model = _balls()
  params, certificate = _lip_adaptive(model).constraint.constrain(
      model.init(None))
  ratios = whitebox.contribution(_lip_adaptive(model), params, certificate,
                                 _canary(), {'ball_01': jnp.float32(0.9)})[1]
  assert max(map(float, jax.tree.leaves(ratios))) > 1 + 1e-5


def test_fault_indicators_of_balls_free_of_charge_are_found(monkeypatch):
  monkeypatch.setattr(quantiles, 'gradient_noise_multiplier',
                      lambda noise_multiplier, adaptive: noise_multiplier)
  model = _balls()
  with pytest.raises(ValueError, match='less than the planned 1.2'):
    _run(model, _lip_adaptive(model))
