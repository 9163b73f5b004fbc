"""Private clip norms, audited through the loop that users run (LDP-06).

One canary whose gradient is longer than any clip norm, among records that
count as zero, at learning rate zero: each step releases the clip norm along a
known direction and minus one half, both with their noise. Together they are
one Gaussian whose multiplier is the planned one, so the audit is tight.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax import tree
from dpjax.audit import whitebox
from dpjax.grads import bounder as bounders
from dpjax.grads import per_example
from dpjax.grads import quantiles
from dpjax.lipschitz import losses
from dpjax.models import mlp
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.train import loop
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


def _statistics(method, present: bool) -> np.ndarray:
  """[runs, steps] matched filters of gradient and indicator together."""
  model, params = _model()
  x = jnp.full([_NUM_RECORDS, 2], jnp.nan)
  if present:
    x = x.at[0].set(_canary().x[0])
  result = loop.fit(
      jax.random.split(jax.random.key(5 + present), _RUNS),
      plans=[_PLAN] * _RUNS, model=model, method=method,
      records=Batch(x, jnp.zeros([_NUM_RECORDS], jnp.int32)),
      rows=jnp.tile(jnp.arange(_NUM_RECORDS, dtype=jnp.int32)[None],
                    (_RUNS, 1)),
      optimizer=optax.chain(whitebox.recorder(lambda u: u, _STEPS),
                            optax.sgd(0.0)))
  radii = np.float64(result.info.radii).T
  # The canary is longer than any of them, and none was held in the span.
  assert 0.026 < radii.min() and radii.max() < 0.39
  size = _PLAN.sampler.expected_batch_size
  (total, _), _ = whitebox.contribution(method, params, (), _canary(),
                                        jnp.float32(1.0))
  sums = result.state.optimizer[1][0].history
  along = size * sum(
      np.tensordot(np.float64(leaf).reshape(_RUNS, _STEPS, -1),
                   np.ravel(np.float64(d)), 1)
      for leaf, d in zip(jax.tree.leaves(sums), jax.tree.leaves(total),
                         strict=True)) / radii
  # The radii are public, and tell the noisy counts that moved them.
  last = np.float64(result.state.radii)[:, None]
  moves = np.diff(np.log(np.concatenate([radii, last], 1)), axis=1)
  counts = -moves / _SETTINGS['learning_rate'] * size
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
  inside, outside = (whitebox.privacy_losses(_statistics(method, present),
                                             **settings)
                     for present in (True, False))
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
    _statistics(_method(), present=True)


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
