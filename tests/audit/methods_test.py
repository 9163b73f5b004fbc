"""Every training method, audited through the loop that users run.

Two neighbouring data sets: records that count as zero (they are NaN), with and
without one canary among them whose contribution meets the claimed sensitivity.
At learning rate zero what is released is one noisy sum after another, so that
the privacy loss of a run is known exactly. `_findings` lists what is wrong; it
must be empty for each method, and must not be for each planted fault.
"""

import dataclasses
import functools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax import tree
from dpjax.audit import bounds as audit_bounds
from dpjax.audit import claims
from dpjax.audit import whitebox
from dpjax.grads import clipping
from dpjax.grads import per_example
from dpjax.lipschitz import bookkeeping
from dpjax.lipschitz import bounder as lipschitz_bounder
from dpjax.lipschitz import layers
from dpjax.lipschitz import losses
from dpjax.lipschitz import rules
from dpjax.lipschitz.network import Network
from dpjax.models import mlp
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import blocks
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.train import loop
from dpjax.train import methods
from dpjax.train.plan import TrainingPlan
from dpjax.typing import Batch

_NUM_RECORDS, _STEPS, _RUNS, _SIGMA = 40, 10, 2000, 1.2
_CLIP, _INPUT_RADIUS, _WEIGHT_NORM, _LOGIT_CLIP = 0.7, 2.0, 3.0, 0.35
_LAYER_CLIP = 0.4
_METHODS = ('dp_sgd', 'dp_sgd_bookkeeping', 'lip_dp_sgd', 'fix_lip_dp_sgd',
            'lip_normalised', 'layer_clipped')
_P_VALUE = 1e-7
_ERRORS = 5.5
_EPSILONS = (0.5, 1.5, 3.0)

_PLAN = TrainingPlan(
    sampler=PoissonSampler(num_examples=_NUM_RECORDS, batch_size=10),
    num_steps=_STEPS, noise_multiplier=_SIGMA,
    adjacency=Adjacency.ADD_OR_REMOVE_ONE)


def _network(certified: bool):
  """Input weights across the canary, output weights along its cotangent.

  So the canary attains the bound of the first layer, and of the second up to
  the small hidden radius: the audit of the joint release is tight. Under a
  weight rule it attains both.
  """
  radii = dict(input_radius=_INPUT_RADIUS, hidden_radius=0.05)
  model = mlp.mlp(num_features=2, num_classes=2, depth=1, width=1,
                  **(radii if certified else {}))
  params = {
      'dense_00': {'kernel': jnp.asarray([[0.0], [1e-3]]), 'bias': jnp.zeros([1])},
      'dense_01': {'kernel': jnp.asarray([[2.0, -2.0]]),
                   'bias': jnp.zeros([2])},
  }
  return model._replace(init=lambda key: params)


def _canary():
  x = jnp.asarray([[_INPUT_RADIUS, 0.0]])
  return Batch(x, jnp.zeros([1], jnp.int32))


def _make(name: str):
  """(model, method), built anew so that planted faults are picked up."""
  if name == 'dp_sgd':
    model = _network(certified=False)
    return model, methods.dp_sgd(model, losses.cross_entropy(),
                                 clip_norm=_CLIP)
  if name == 'layer_clipped':
    model = _network(certified=False)
    return model, methods.layer_clipped(model, losses.cross_entropy(),
                                        clip_norm=_LAYER_CLIP)
  if name == 'dp_sgd_bookkeeping':
    model = _network(certified=False)
    return model, methods.dp_sgd_bookkeeping(model, losses.cross_entropy(),
                                             clip_norm=_CLIP)
  loss = losses.cross_entropy(logit_clip=_LOGIT_CLIP)
  if name == 'lip_normalised':
    model = _network(certified=False)
    return model, methods.lip_normalised(model, loss, weight_norm=_WEIGHT_NORM)
  model = _network(certified=True)
  maker = {'lip_dp_sgd': methods.lip_dp_sgd,
           'fix_lip_dp_sgd': methods.fix_lip_dp_sgd}[name]
  return model, maker(model, loss, weight_norm=_WEIGHT_NORM)


def _release(name: str, present: bool):
  """Runs the trainer; returns the released sums [runs, steps, ...]."""
  model, method = _make(name)
  x = jnp.full([_NUM_RECORDS, 2], jnp.nan)
  y = jnp.zeros([_NUM_RECORDS], jnp.int32)
  if present:
    # Padding points at record 0: a mask that is not heeded shows.
    x = x.at[0].set(_canary().x[0])
  result = loop.fit(
      jax.random.split(jax.random.key(5 + present), _RUNS),
      plans=[_PLAN] * _RUNS, model=model, method=method, records=Batch(x, y),
      rows=jnp.tile(jnp.arange(_NUM_RECORDS, dtype=jnp.int32)[None],
                    (_RUNS, 1)),
      optimizer=optax.chain(whitebox.recorder(lambda u: u, _STEPS),
                            optax.sgd(0.0)))
  sums = tree.scale(_PLAN.sampler.expected_batch_size,
                    result.state.optimizer[1][0].history)
  return jax.tree.map(np.asarray, sums), result


def _claimed(name: str):
  """Contribution of the canary, its ratios, and the claimed noise."""
  model, method = _make(name)
  params, certificate = method.constraint.constrain(model.init(None))
  total, ratios = whitebox.contribution(method, params, certificate, _canary())
  sensitivity = method.bounder.l2_sensitivity(certificate)
  stddevs = blocks.allocate(
      jnp.stack(jax.tree.leaves(sensitivity)), noise_multiplier=_SIGMA,
      sizes=tree.block_sizes(sensitivity, params))
  return total, ratios, jax.tree.unflatten(
      jax.tree.structure(sensitivity), list(stddevs))


def _noise_findings(sums, stddevs) -> list[str]:
  """Is what is released without the canary the claimed noise?"""
  unit = tree.map_blocks(lambda s, leaf: leaf / np.float32(s), stddevs, sums)
  leaves = [np.asarray(leaf).reshape(_RUNS, _STEPS, -1)
            for leaf in jax.tree.leaves(unit)]
  found = [f'noise of leaf {number} has another variance'
           for number, leaf in enumerate(leaves)
           if whitebox.variance_p_value(leaf, stddev=1.0) < _P_VALUE]
  first = leaves[0][:, :, 0]
  pairs = {'steps': (first[:, 1:], first[:, :-1]),
           'runs': (first[1:], first[:-1]),
           'leaves': (first, leaves[-1][:, :, 0])}
  return found + [f'noise is correlated between {what}'
                  for what, pair in pairs.items()
                  if whitebox.correlation_p_value(*pair) < _P_VALUE]


def _curve_findings(losses_in, losses_out) -> list[str]:
  """Does the measured privacy curve exceed the accountant's?"""
  found = []
  for epsilon in _EPSILONS:
    claim = _claimed_delta(epsilon)
    for what, values in (('remove', losses_in), ('add', -losses_out)):
      estimate = whitebox.estimate_delta(values, epsilon=epsilon)
      if estimate.value > claim + _ERRORS * estimate.standard_error + 1e-4:
        found.append(f'{what}: delta({epsilon}) is {estimate.value}, claimed '
                     f'{claim}')
  return found


@functools.cache
def _claimed_delta(epsilon: float) -> float:
  return accounting.delta_for(_PLAN.event, target_epsilon=epsilon,
                              adjacency=_PLAN.adjacency)


def _findings(name: str) -> list[str]:
  """What an audit of one method finds wrong, cheapest checks first."""
  total, ratios, stddevs = _claimed(name)
  found = [f'sensitivity exceeded: {float(ratio)}'
           for ratio in jax.tree.leaves(ratios) if ratio > 1 + 1e-5]
  found += _toggle_findings(name)
  if found:
    return found
  without, _ = _release(name, present=False)
  found = _noise_findings(without, stddevs)
  if found:
    return found
  with_canary, _ = _release(name, present=True)
  direction, mu = whitebox.matched_filter(total, stddevs)
  project = lambda sums: sum(
      np.tensordot(leaf.reshape(_RUNS, _STEPS, -1), np.ravel(d), 1)
      for leaf, d in zip(jax.tree.leaves(sums), jax.tree.leaves(direction),
                         strict=True))
  kwargs = dict(sampling_prob=_PLAN.sampler.sampling_prob,
                noise_multiplier=1 / mu)
  losses_in = whitebox.privacy_losses(project(with_canary), **kwargs)
  losses_out = whitebox.privacy_losses(project(without), **kwargs)
  return (_curve_findings(losses_in, losses_out) +
          _count_findings(losses_in, losses_out))


def _toggle_findings(name: str) -> list[str]:
  """Adding one record to a batch that pulls the other way, half as hard."""
  model, method = _make(name)
  params, certificate = method.constraint.constrain(model.init(None))
  x = jnp.concatenate([_canary().x, 0.5 * _canary().x])
  y = jnp.asarray([0, 1], jnp.int32)
  mask = jnp.ones([2], jnp.bool_)
  batch = Batch(x, y)
  both = method.bounder.sums(params, batch, mask).total
  less = method.bounder.sums(params, batch, mask.at[0].set(False)).total
  bound = method.bounder.l2_sensitivity(certificate)
  change = jax.tree.map(jnp.subtract, both, less)
  moved = jax.tree.structure(bound).flatten_up_to(change)
  nothing = method.bounder.sums(params, batch, ~mask).total
  found = ['masked records are summed'] * bool(tree.global_norm(nothing) > 0)
  for block, limit in zip(moved, jax.tree.leaves(bound), strict=True):
    length = float(tree.global_norm(block))
    if length > limit * (1 + 1e-5):
      found.append(f'one record moves a sum by {length}')
  return found


def _count_findings(losses_in, losses_out) -> list[str]:
  """A threshold test fixed on one half of the runs, counted on the other."""
  half = _RUNS // 2
  threshold = np.quantile(losses_out[:half], 0.98)
  delta = 1e-5
  lower = audit_bounds.epsilon_lower_bound(
      true_positives=int(np.sum(losses_in[half:] > threshold)), num_in=half,
      false_positives=int(np.sum(losses_out[half:] > threshold)),
      num_out=half, delta=delta, significance=1e-6)
  claimed = _PLAN.epsilon(delta)
  return [f'epsilon is at least {lower}, claimed {claimed}'] * (
      lower > claimed)


@pytest.mark.parametrize('name', _METHODS)
def test_the_audit_finds_nothing(name):
  assert _findings(name) == []


def test_the_audit_is_tight():
  # The canary spends nearly the whole budget, so the audit has power: what the
  # accountant claims is nearly what can be measured.
  for name in _METHODS:
    total, _, stddevs = _claimed(name)
    _, mu = whitebox.matched_filter(total, stddevs)
    assert 0.9 / _SIGMA < mu <= (1 + 1e-5) / _SIGMA
  claim = claims.Claim(
      epsilon=_PLAN.epsilon(1e-5), delta=1e-5, adjacency=_PLAN.adjacency,
      event=_PLAN.event, num_examples=_NUM_RECORDS)
  claims.check(claim)
  with pytest.raises(ValueError, match='below'):
    claims.check(dataclasses.replace(claim, epsilon=claim.epsilon * 0.99))


def _noise_over_batch(draws, values, stddevs):
  scaled = jax.tree.map(lambda s: s / _PLAN.sampler.expected_batch_size,
                        stddevs)
  return _HONEST_NOISE(draws, values, scaled)


def _noise_with_one_key(key, values):
  del key
  return _HONEST_DRAWS(jax.random.key(0), values)


def _clip_after_sum(apply, loss, *, clip_norm, microbatch_size=None):
  def sums(params, batch, mask):
    plain = per_example.plain_sums(apply, loss, params, batch, mask)
    weight = clipping.flat_weights(tree.global_norm(plain.total)[None],
                                   clip_norm=clip_norm)[0]
    return plain._replace(total=tree.scale(weight, plain.total))

  honest = _HONEST_CLIPPED(apply, loss, clip_norm=clip_norm)
  return honest._replace(sums=sums)


def _mask_ignored(apply, loss, *, clip_norm, microbatch_size=None):
  honest = _HONEST_CLIPPED(apply, loss, clip_norm=clip_norm)
  everything = lambda params, batch, mask: honest.sums(
      params, batch, jnp.ones_like(mask))
  return honest._replace(sums=everything)


def _one_layer_clipped(layer, params, seen):
  # Only the last layer's gradient counts towards the norm.
  part = _HONEST_DENSE(layer, params, seen)
  return part._replace(
      norms=part.norms if layer.name == 'dense_01' else 0 * part.norms)


def _bias_not_counted(layer, params, seen):
  return _HONEST_DENSE(layer, params, seen)._replace(
      norms=seen.input_norms * seen.cotangent_norms)


def _plain_mask_ignored(apply, loss, params, batch, mask):
  return _HONEST_PLAIN(apply, loss, params, batch, jnp.ones_like(mask))


def _one_layer_short(network, norms, *, loss_lipschitz, rule):
  ones = {name: jnp.ones_like(norm) for name, norm in norms.items()}
  return _HONEST_BOUNDS(network, ones, loss_lipschitz=loss_lipschitz,
                        rule=rule)


def _own_layer_included(network, norms, *, loss_lipschitz, rule):
  # The printed line 5: the product starts at the layer itself. It is too
  # small for a layer whose own norm is below one, here the first.
  honest = _HONEST_BOUNDS(network, norms, loss_lipschitz=loss_lipschitz,
                          rule=rule)
  return {name: bound * norms[name] for name, bound in honest.items()}


def _bias_forgotten(network, norms, *, loss_lipschitz, rule):
  honest = _HONEST_BOUNDS(network, norms, loss_lipschitz=loss_lipschitz,
                          rule=rule)
  radius = {'dense_00': _INPUT_RADIUS, 'dense_01': 0.05}
  return {name: bound * radius[name] / (radius[name]**2 + 1)**0.5
          for name, bound in honest.items()}


def _with_norms(make, change):
  """A rule whose weights see norms that were changed."""
  def fault(**options):
    rule = make(**options)
    return rule._replace(weights=lambda norms: rule.weights(change(norms)))

  return fault


def _replaced(norms, factors):
  return norms._replace(factors=factors,
                        gradients=lambda: factors * norms.cotangents)


def _largest_of_the_batch(norms):
  # The printed X_k, E1.
  largest = jnp.ones_like(norms.factors)
  return norms._replace(
      factors=largest * jnp.max(norms.factors),
      gradients=lambda: largest * jnp.max(norms.gradients()))


def _factor_without_bias(norms):
  return _replaced(norms, norms.inputs)


def _factor_of_a_masked_record(norms):
  return _replaced(norms, jnp.ones_like(norms.factors))


def _factor_of_the_next_record(norms):
  return norms._replace(
      factors=jnp.roll(norms.factors, 1),
      gradients=lambda: jnp.roll(norms.gradients(), 1))


def _norm_of_the_cotangent_alone(norms):
  return norms._replace(gradients=lambda: norms.cotangents)


def _half_the_clip_norm_claimed(**options):
  rule = _HONEST_LAYERS(**options)
  return rule._replace(bound=lambda *bounds: rule.bound(*bounds) / 2)


def _equal_multiplier_for_each(l2_sensitivities, *, noise_multiplier, sizes,
                               rule):
  del sizes, rule
  return noise_multiplier * l2_sensitivities


def _rate_doubled(self, key):
  twice = dataclasses.replace(self, batch_size=2 * self.batch_size)
  return _HONEST_DRAW(twice, key)


_HONEST_NOISE = additive.add_drawn_noise
_HONEST_DRAWS = additive.unit_noise
_HONEST_CLIPPED = per_example.clipped
_HONEST_DENSE = bookkeeping._PARTS[layers.Dense]
_HONEST_PLAIN = per_example.plain_sums
_HONEST_BOUNDS = Network.gradient_bounds
_HONEST_DRAW = PoissonSampler.draw
_HONEST_NORMALISED = rules.normalised
_HONEST_LAYERS = rules.clipped_layers
_RULES = {'lip_normalised': ('normalised', _HONEST_NORMALISED),
          'layer_clipped': ('clipped_layers', _HONEST_LAYERS)}

_FAULTS = [
    ('dp_sgd', additive, 'add_drawn_noise', _noise_over_batch),
    ('dp_sgd', additive, 'unit_noise', _noise_with_one_key),
    ('dp_sgd', per_example, 'clipped', _clip_after_sum),
    ('dp_sgd', per_example, 'clipped', _mask_ignored),
    ('dp_sgd', PoissonSampler, 'draw', _rate_doubled),
    ('lip_dp_sgd', additive, 'add_drawn_noise', _noise_over_batch),
    ('lip_dp_sgd', lipschitz_bounder.per_example, 'plain_sums',
     _plain_mask_ignored),
    ('lip_dp_sgd', Network, 'gradient_bounds', _one_layer_short),
    ('lip_dp_sgd', Network, 'gradient_bounds', _own_layer_included),
    ('lip_dp_sgd', Network, 'gradient_bounds', _bias_forgotten),
    ('fix_lip_dp_sgd', Network, 'gradient_bounds', _one_layer_short),
    ('lip_normalised', Network, 'gradient_bounds', _one_layer_short),
    ('lip_normalised', Network, 'gradient_bounds', _own_layer_included),
    ('lip_normalised', lipschitz_bounder.per_example, 'plain_sums',
     _plain_mask_ignored),
    ('layer_clipped', lipschitz_bounder.per_example, 'plain_sums',
     _plain_mask_ignored),
    ('layer_clipped', rules, 'clipped_layers', _half_the_clip_norm_claimed),
]
_NORM_FAULTS = [
    ('lip_normalised', _largest_of_the_batch),
    ('lip_normalised', _factor_without_bias),
    ('lip_normalised', _factor_of_a_masked_record),
    ('lip_normalised', _factor_of_the_next_record),
    ('layer_clipped', _largest_of_the_batch),
    ('layer_clipped', _factor_without_bias),
    ('layer_clipped', _factor_of_a_masked_record),
    ('layer_clipped', _factor_of_the_next_record),
    ('layer_clipped', _norm_of_the_cotangent_alone),
]


@pytest.mark.parametrize('fault', [_one_layer_clipped, _bias_not_counted])
def test_planted_faults_of_norms_are_found(fault):
  with mock.patch.dict(bookkeeping._PARTS, {layers.Dense: fault}):
    assert _findings('dp_sgd_bookkeeping') != []


@pytest.mark.parametrize('name, place, attribute, fault', _FAULTS,
                         ids=lambda value: getattr(value, '__name__', None))
def test_planted_faults_are_found(name, place, attribute, fault):
  with mock.patch.object(place, attribute, fault):
    assert _findings(name) != []


@pytest.mark.parametrize('name, change', _NORM_FAULTS,
                         ids=lambda value: getattr(value, '__name__', None))
def test_weights_from_other_norms_are_found(name, change):
  attribute, honest = _RULES[name]
  with mock.patch.object(rules, attribute, _with_norms(honest, change)):
    assert _findings(name) != []


def test_several_blocks_noised_as_one_are_found_by_the_loop():
  # K blocks with the multiplier of one: the loop measures what it did.
  with mock.patch.object(blocks, 'allocate', _equal_multiplier_for_each):
    with pytest.raises(ValueError, match='less than the planned 1.2'):
      _release('lip_dp_sgd', present=False)
