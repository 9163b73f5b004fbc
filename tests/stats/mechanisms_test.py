"""Tests budgets and their events by hand, and compiled draws."""

import dataclasses
import math

import jax
import numpy as np
import pytest

from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import mechanisms

ADD, REPLACE = Adjacency
KEY = jax.random.key(0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Release(mechanisms.Budgeted, mechanisms.SampledMechanism[np.ndarray]):
  """A release of noisy data, with a scale as the only parameter."""

  @property
  def draw(self):
    return _draw

  @property
  def parameters(self):
    return np.float64(self.noise_scale(1.0))


def _draw(key, data, parameters):
  return {'noisy': data + parameters * jax.random.normal(key, data.shape)}


@pytest.mark.sound
@pytest.mark.parametrize('adjacency, records', [(ADD, 1), (REPLACE, 2)])
def test_events_are_those_of_the_budget(adjacency, records):
  pure = _Release(epsilon=0.3, adjacency=adjacency)
  zcdp = _Release(rho=0.02, adjacency=adjacency)
  assert (pure.pure, pure.amount, zcdp.pure, zcdp.amount) == (
      True, 0.3, False, 0.02)
  assert pure.event == accounting.pure_event(epsilon=0.3, adjacency=adjacency)
  # Each changed record moves sqrt(2 rho) = 0.2 standard deviations.
  assert zcdp.event == accounting.gaussian_event(
      noise_multiplier=records / math.sqrt(0.04))
  assert pure.knows_total is zcdp.knows_total is (adjacency is REPLACE)
  free = _Release(adjacency=adjacency)
  assert free.event == accounting.non_private_event()
  assert (free.amount, free.noise_scale(3.0)) == (math.inf, 0.0)


@pytest.mark.sound
def test_noise_spends_the_budget():
  """Laplace noise of scale b costs c / b; Gaussian noise c / s^2 = 2 rho."""
  assert _Release(epsilon=0.5, adjacency=ADD).noise_scale(3.0) == 6.0
  assert _Release(rho=0.5, adjacency=ADD).noise_scale(9.0) == 3.0


@pytest.mark.parametrize('budget, message', [
    (dict(), 'epsilon or rho, exactly one of them'),
    (dict(epsilon=1.0, rho=1.0), 'epsilon or rho, exactly one of them'),
    (dict(epsilon=0.0), 'epsilon must be a positive number'),
    (dict(epsilon=math.nan), 'epsilon must be a positive number'),
    (dict(rho=-1.0), 'rho must be a positive number'),
    (dict(rho=math.inf), 'rho must be a positive number')])
def test_budgets_that_are_refused(budget, message):
  with pytest.raises(ValueError, match=message):
    mechanisms.check_budget(**dict(epsilon=None, rho=None) | budget)


def test_compiled_draws_are_the_plain_ones():
  """One program serves all numbers, and each release uses its own key."""
  one, other = (_Release(rho=rho, adjacency=ADD) for rho in (0.5, 2.0))
  assert mechanisms.compiled(one.draw) is mechanisms.compiled(other.draw)
  data = np.arange(6.0).reshape(2, 3)
  released = one._drawn(KEY, data)['noisy']
  assert isinstance(released, np.ndarray) and released.dtype == np.float64
  with jax.enable_x64(True):
    keys = jax.random.split(KEY, 2)
    plain = [_draw(key, row, one.parameters)['noisy']
             for key, row in zip(keys, data, strict=True)]
    np.testing.assert_array_equal(
        released, _draw(KEY, data, one.parameters)['noisy'])
    np.testing.assert_array_equal(
        one._drawn_each(KEY, data, 2)['noisy'], plain)
    np.testing.assert_array_equal(
        mechanisms.repeated(one.draw)(keys, data[1], one.parameters)['noisy'],
        [_draw(key, data[1], one.parameters)['noisy'] for key in keys])
