"""These tests audit every training method through the loop that users run.

See `dpjax.audit.suite.methods`. Canaries that meet the claimed sensitivities
of all blocks, or nearly, so that the audit is tight: it must find nothing wrong
with any method, and something with each planted fault. Methods with adaptive
radii are in `adaptive_test`. What differs little from a case that always runs
is slow; `python -m launch.audit --target=all` audits all methods.
"""

import dataclasses
from unittest import mock

import jax
import jax.numpy as jnp
import pytest

from dpjax import tree
from dpjax.audit import canary as canaries
from dpjax.audit import claims
from dpjax.audit.suite import methods as setups
from dpjax.grads import bookkeeping
from dpjax.grads import clipping
from dpjax.grads import per_example
from dpjax.lipschitz import bounder as lipschitz_bounder
from dpjax.lipschitz import induced
from dpjax.lipschitz import k_norm
from dpjax.lipschitz import normalisation
from dpjax.lipschitz import rules
from dpjax.lipschitz.network import Network
from dpjax.privacy import additive
from dpjax.privacy import blocks
from dpjax.privacy import draws
from dpjax.privacy import k_norm as noises
from dpjax.sampling import PoissonSampler
from dpjax.typing import Batch


def _findings(name: str) -> list[str]:
  return canaries.findings(jax.random.key(5), setups.game(name))


_QUICK = ('dp_sgd', 'dp_sgd_per_layer', 'layer_clipped', 'lip_dp_sgd',
          'lip_k_norm_inf', 'lip_norm', 'lip_normalised', 'bassily')


@pytest.mark.every(11)
@pytest.mark.parametrize('name', [
    pytest.param(name, marks=[] if name in _QUICK else pytest.mark.slow)
    for name in setups.METHODS])
def test_the_audit_finds_nothing(name):
  assert _findings(name) == []


@pytest.mark.slow
@pytest.mark.parametrize('name', setups.METHODS)
def test_the_audit_is_tight(name):
  # The canary spends nearly the whole budget, so the audit has power: what
  # the accountant claims is nearly what can be measured. The cotangent of two
  # classes is along (1, -1), whose largest entry is 0.71 of its length.
  least = {'lip_k_norm_inf': 0.65, 'lip_k_norm_1': 0.8}.get(name, 0.9)
  assert least < canaries.fraction_spent(setups.game(name)) <= 1 + 1e-5


def test_a_claim_below_the_accountant_is_refused():
  plan = setups.plan('dp_sgd')
  claim = claims.Claim(
      epsilon=plan.epsilon(1e-5), delta=1e-5, adjacency=plan.adjacency,
      event=plan.event, num_examples=setups.NUM_RECORDS)
  claims.check(claim)
  with pytest.raises(ValueError, match='below'):
    claims.check(dataclasses.replace(claim, epsilon=claim.epsilon * 0.99))


@pytest.mark.slow
def test_another_canary_is_within_its_bounds():
  # A canary below the bounds spends less, and its audit is still valid.
  game = dataclasses.replace(setups.game('lip_dp_sgd'),
                             canary=Batch(0.1 * setups.canary('lip_dp_sgd').x,
                                          jnp.zeros([1], jnp.int32)))
  assert canaries.fraction_spent(game) < 0.6
  assert canaries.findings(jax.random.key(6), game) == []


def _noise_over_batch(draws, values, stddevs):
  scaled = jax.tree.map(lambda s: s / setups.plan('').sampler.expected_batch_size,
                        stddevs)
  return _HONEST_NOISE(draws, values, scaled)


def _noise_with_one_key(key, values):
  del key
  return _HONEST_DRAWS(jax.random.key(0), values)


def _clip_after_sum(apply, loss, *, clip_norm, **options):
  def sums(params, batch, mask):
    plain = per_example.plain_sums(apply, loss, params, batch, mask)
    weight = clipping.flat_weights(tree.global_norm(plain.total)[None],
                                   clip_norm=clip_norm)[0]
    return plain._replace(total=tree.scale(weight, plain.total))

  honest = _HONEST_CLIPPED(apply, loss, clip_norm=clip_norm, **options)
  return honest._replace(sums=sums)


def _mask_ignored(apply, loss, *, clip_norm, **options):
  honest = _HONEST_CLIPPED(apply, loss, clip_norm=clip_norm, **options)
  everything = lambda params, batch, mask: honest.sums(
      params, batch, jnp.ones_like(mask))
  return honest._replace(sums=everything)


def _one_layer_clipped(squares):
  # Only the last layer's gradient counts towards the norm.
  return {name: jax.tree.map(lambda leaf, last=name == 'dense_01':
                             leaf if last else 0 * leaf, layer)
          for name, layer in squares.items()}


def _bias_not_counted(squares):
  return {name: layer | {'bias': 0 * layer['bias']}
          for name, layer in squares.items()}


def _with_squares(change):
  """Returns faulty book-keeping with changed squared norms and honest sums."""

  def fault(*args, **shards):
    sums = _HONEST_RECORDS(*args, **shards)
    return sums._replace(squares=change(sums.squares))

  return fault


def _half_the_bounds(make):
  def fault(*args, **options):
    honest = make(*args, **options)
    return honest._replace(l2_sensitivity=lambda certificate: jax.tree.map(
        lambda bound: bound / 2, honest.l2_sensitivity(certificate)))

  return fault


def _alpha_forgotten(**options):
  return dataclasses.replace(_HONEST_NORM(**options), lipschitz=lambda shape: 1.0)


def _width_forgotten(**options):
  # This fault claims that a normalisation's outputs have norm at most one.
  return dataclasses.replace(_HONEST_NORM(**options),
                             ceiling=lambda radius, shape: 1.0)


def _other_axis(matrix, first, second):
  return _HONEST_INDUCED(matrix.T, first, second)


def _laplace_for_all(key, size, *, order):
  del order
  return _HONEST_K_NOISE(key, size, order=1)


def _laplace_with_one_key(key, shape):
  del key
  return _HONEST_LAPLACE(jax.random.key(0), shape)


def _each_block_by_itself(bounds, *, noise_multiplier, sizes, order):
  del sizes, order
  return noise_multiplier * bounds


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
  radius = {'dense_00': setups.INPUT_RADIUS, 'dense_01': 0.05}
  return {name: bound * radius[name] / (radius[name]**2 + 1)**0.5
          for name, bound in honest.items()}


def _with_norms(make, change):
  """Returns a faulty rule whose weights read changed norms."""
  def fault(**options):
    rule = make(**options)
    return rule._replace(weights=lambda norms: rule.weights(change(norms)))

  return fault


def _replaced(norms, factors):
  return norms._replace(factors=factors,
                        gradients=lambda: factors * norms.cotangents)


def _largest_of_the_batch(norms):
  # This plants the printed X_k (E1).
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
_HONEST_RECORDS = bookkeeping.record_gradients
_HONEST_PLAIN = per_example.plain_sums
_HONEST_BOUNDS = Network.gradient_bounds
_HONEST_DRAW = PoissonSampler.draw
_HONEST_NORMALISED = rules.normalised
_HONEST_LAYERS = rules.clipped_layers
_HONEST_NORM = normalisation.lipschitz
_HONEST_INDUCED = induced.induced_norm
_HONEST_LAPLACE = draws.standard_laplace
_HONEST_K_NOISE = noises.unit_noise
_RULES = {'lip_normalised': ('normalised', _HONEST_NORMALISED),
          'layer_clipped': ('clipped_layers', _HONEST_LAYERS)}

_FAULTS = [
    ('dp_sgd', additive, 'add_drawn_noise', _noise_over_batch),
    ('dp_sgd', additive, 'unit_noise', _noise_with_one_key),
    ('dp_sgd', per_example, 'clipped', _clip_after_sum),
    ('dp_sgd', per_example, 'clipped', _mask_ignored),
    ('dp_sgd', PoissonSampler, 'draw', _rate_doubled),
    ('dp_sgd_vmap', per_example, 'clipped', _mask_ignored),
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
    ('dp_sgd_per_layer', per_example, 'clipped',
     _half_the_bounds(per_example.clipped)),
    ('dp_sgd_automatic', per_example, 'normalized',
     _half_the_bounds(per_example.normalized)),
    ('bassily', lipschitz_bounder, 'certified',
     _half_the_bounds(lipschitz_bounder.certified)),
    ('bassily', additive, 'unit_noise', _noise_with_one_key),
    ('lip_propagated', Network, 'gradient_bounds', _one_layer_short),
    ('lip_propagated', Network, 'gradient_bounds', _bias_forgotten),
    ('lip_propagated', lipschitz_bounder.per_example, 'plain_sums',
     _plain_mask_ignored),
    ('lip_norm', Network, 'gradient_bounds', _one_layer_short),
    ('lip_norm', normalisation, 'lipschitz', _alpha_forgotten),
    ('lip_norm', normalisation, 'lipschitz', _width_forgotten),
    ('lip_k_norm_1', k_norm, 'certified', _half_the_bounds(k_norm.certified)),
    ('lip_k_norm_1', noises.draws, 'standard_laplace', _laplace_with_one_key),
    ('lip_k_norm_inf', induced, 'induced_norm', _other_axis),
    ('lip_k_norm_inf', noises, 'unit_noise', _laplace_for_all),
    ('lip_k_norm_inf', k_norm.per_example, 'plain_sums', _plain_mask_ignored),
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


@pytest.mark.every(3)
@pytest.mark.parametrize('fault', [_one_layer_clipped, _bias_not_counted])
def test_planted_faults_of_norms_are_found(fault):
  kernels = {'bookkeeping': _with_squares(fault)}
  with mock.patch.dict(per_example.KERNELS, kernels):
    assert _findings('dp_sgd') != []


def _faults():
  # Only the first method of each fault runs by default.
  seen = set()
  for case in _FAULTS:
    known = case[-1] in seen
    seen.add(case[-1])
    yield pytest.param(*case, marks=pytest.mark.slow if known else [])


def test_every_method_has_a_fault_that_is_found():
  with_faults = {case[0] for case in (*_FAULTS, *_NORM_FAULTS)}
  assert with_faults == set(setups.METHODS)


@pytest.mark.every(8)
@pytest.mark.parametrize('name, place, attribute, fault', list(_faults()),
                         ids=lambda value: getattr(value, '__name__', None))
def test_planted_faults_are_found(name, place, attribute, fault):
  with mock.patch.object(place, attribute, fault):
    assert _findings(name) != []


@pytest.mark.slow
@pytest.mark.parametrize('name, change', [
    pytest.param(*case, marks=[] if 'lip' in case[0] or number == 8
                 else pytest.mark.slow)
    for number, case in enumerate(_NORM_FAULTS)],
                         ids=lambda value: getattr(value, '__name__', None))
def test_weights_from_other_norms_are_found(name, change):
  attribute, honest = _RULES[name]
  with mock.patch.object(rules, attribute, _with_norms(honest, change)):
    assert _findings(name) != []


@pytest.mark.slow
def test_several_blocks_noised_as_one_are_found_by_the_loop():
  # K blocks each get the multiplier of one block, which the loop measures.
  with mock.patch.object(blocks, 'allocate', _equal_multiplier_for_each):
    with pytest.raises(ValueError, match='less than the planned 1.2'):
      canaries.release(jax.random.key(5), setups.game('lip_dp_sgd'))
  with mock.patch.object(noises, 'allocate', _each_block_by_itself):
    with pytest.raises(ValueError, match='less than the planned 1.2'):
      canaries.release(jax.random.key(5), setups.game('lip_k_norm_1'))
