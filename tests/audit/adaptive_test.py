"""These tests audit private radii through the loop that users run (LDP-06).

See `dpjax.audit.suite.adaptive`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.audit import whitebox
from dpjax.audit.suite import adaptive as setups
from dpjax.grads import quantiles
from dpjax.lipschitz.network import Network
from dpjax.privacy import accounting

_EPSILONS = (0.5, 1.5, 3.0)
_KEY = jax.random.key(5)


def _curves(method):
  return _compared(setups.clipped_losses(_KEY, method))


def _compared(losses_of_runs):
  """Yields (measured delta, its error, claimed delta, direction) by epsilon."""
  inside, outside = np.split(losses_of_runs, 2)
  for epsilon in _EPSILONS:
    claim = accounting.delta_for(setups.PLAN.event, target_epsilon=epsilon,
                                 adjacency=setups.PLAN.adjacency)
    for what, values in (('remove', inside), ('add', -outside)):
      estimate = whitebox.estimate_delta(values, epsilon=epsilon)
      # At 5.5 standard errors a false alarm has probability 2e-8 each.
      yield estimate.value, 5.5 * estimate.standard_error + 1e-4, claim, what


@pytest.mark.slow
def test_the_audit_finds_nothing_and_is_tight():
  for value, error, claim, what in _curves(setups.clipped()):
    assert value <= claim + error
    if what == 'remove':  # The worse direction: the canary spends it all.
      assert value >= claim - error


def _not_centred(norms, radii, kept):
  """Returns -1[norm > B] summed; one record
  moves it by 1 where 1/2 is accounted."""
  return jnp.sum(jnp.where(kept & (norms > radii), -1.0, 0.0))


@pytest.mark.slow
def test_fault_indicators_not_centred_are_found():
  assert any(value > claim + error
             for value, error, claim, _ in _curves(setups.clipped(_not_centred)))


@pytest.mark.slow
def test_fault_indicators_free_of_charge_are_found_by_the_loop(monkeypatch):
  monkeypatch.setattr(quantiles, 'gradient_noise_multiplier',
                      lambda noise_multiplier, adaptive: noise_multiplier)
  with pytest.raises(ValueError, match='less than the planned 1.2'):
    setups.statistics(_KEY, setups.clipped())


@pytest.mark.slow
def test_contribution_of_the_canary_meets_both_bounds():
  _, params = setups.linear()
  total, ratios = whitebox.contribution(setups.clipped(), params, (), setups.canary(),
                                        jnp.float32(0.1))
  np.testing.assert_allclose(jax.tree.leaves(ratios), [1.0, 1.0], rtol=2e-5)
  left = (setups.SIGMA**-2 - (2 * setups.SIGMA_B)**-2)**-0.5
  _, mu = whitebox.matched_filter(
      total, (jnp.float32(left * 0.1), jnp.float32(setups.SIGMA_B)))
  assert mu == pytest.approx(1 / setups.SIGMA, rel=2e-5)


@pytest.mark.slow
def test_fault_indicators_not_centred_exceed_their_bound():
  _, params = setups.linear()
  _, (_, share) = whitebox.contribution(
      setups.clipped(_not_centred), params, (), setups.canary(), jnp.float32(0.1))
  assert float(share) == 2.0


def _ball_curves():
  model = setups.balls()
  method = setups.lip_adaptive(model)
  return _compared(setups.ball_losses(_KEY, model, method))


@pytest.mark.slow
def test_the_audit_of_adaptive_balls_finds_nothing_and_is_tight():
  for value, error, claim, what in _ball_curves():
    assert value <= claim + error
    if what == 'remove':
      assert value >= 0.8 * claim - error


@pytest.mark.slow
def test_fault_bounds_at_a_smaller_radius_are_found(monkeypatch):
  honest = Network.gradient_bounds

  def smaller(self, norms, *, radii=(), **options):
    return honest(self, norms, radii=jax.tree.map(lambda r: r / 4, radii),
                  **options)

  monkeypatch.setattr(Network, 'gradient_bounds', smaller)
  model = setups.balls()
  params, certificate = setups.lip_adaptive(model).constraint.constrain(
      model.init(None))
  ratios = whitebox.contribution(setups.lip_adaptive(model), params, certificate,
                                 setups.canary(), {'ball_01': jnp.float32(0.9)})[1]
  assert max(map(float, jax.tree.leaves(ratios))) > 1 + 1e-5


@pytest.mark.slow
def test_fault_indicators_of_balls_free_of_charge_are_found(monkeypatch):
  monkeypatch.setattr(quantiles, 'gradient_noise_multiplier',
                      lambda noise_multiplier, adaptive: noise_multiplier)
  model = setups.balls()
  with pytest.raises(ValueError, match='less than the planned 1.2'):
    setups.run(_KEY, model, setups.lip_adaptive(model))
