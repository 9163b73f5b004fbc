"""These tests check each part of an audit game on known losses and noise."""

import math
import types
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.audit import canary
from dpjax.grads import clipping
from dpjax.lipschitz import losses
from dpjax.models.model import Model
from dpjax.train import methods
from dpjax.typing import Batch

pytestmark = pytest.mark.every(1)

_RUNS, _STEPS, _PROB = 600, 4, 0.3
_SCALES = {'a': 0.5, 'b': 2.0}
_CANARY = {'a': np.array([0.3, -0.4]), 'b': np.array([[1.0], [2.0], [0.5]])}


def _game(order=None):
  plan = types.SimpleNamespace(num_steps=_STEPS, poisson=types.SimpleNamespace(
      sampling_prob=_PROB))
  return types.SimpleNamespace(
      plan=plan, num_runs=_RUNS, method=types.SimpleNamespace(
          noise_order=order))


def _shift(names='ab'):
  pick = lambda tree: {name: tree[name] for name in names}
  return canary.Shift(pick(_CANARY), None, pick(_SCALES))


def _noise(order, seed=0, names='ab'):
  """Returns noise [runs, steps, ...] of the
  stated scales, by NumPy and SciPy."""
  rng = np.random.default_rng(seed)

  def block(name):
    shape = (_RUNS, _STEPS, *_CANARY[name].shape)
    if order is None:
      return rng.normal(size=shape)
    if order == 1:
      return rng.laplace(size=shape)
    size = _CANARY[name].size
    radius = rng.gamma(size + 1, size=(_RUNS, _STEPS, 1))
    return (radius * rng.uniform(-1, 1, (_RUNS, _STEPS, size))).reshape(shape)

  return {name: _SCALES[name] * block(name) for name in names}


def _log_density(values, scale, order):
  """Returns the log-density up to a constant, which cancels in ratios."""
  if order is None:
    return stats.norm.logpdf(values, scale=scale).sum()
  return -np.linalg.norm(np.ravel(values), order) / scale


@pytest.mark.parametrize('order', [None, 1, math.inf])
def test_privacy_losses_are_log_ratios_of_the_densities(order):
  sums = _noise(order)
  losses = canary.privacy_losses(_game(order), _shift(), sums)
  assert losses.shape == (_RUNS,)
  for run in range(5):
    loss = 0.0
    for step in range(_STEPS):
      absent, present = (sum(_log_density(
          sums[name][run, step] - move * _CANARY[name], _SCALES[name], order)
          for name in _SCALES) for move in (0, 1))
      loss += np.log(1 - _PROB + _PROB * np.exp(present - absent))
    assert losses[run] == pytest.approx(loss)


def _changed(**changes):
  return lambda sums: {**sums, **{name: change(sums[name], sums)
                                  for name, change in changes.items()}}


_NOISE_FAULTS = [
    ('ab', _changed(), None),
    ('ab', _changed(b=lambda b, _: 1.1 * b), 'noise of block 1 has another'),
    ('ab', _changed(a=lambda a, _: 0.88 * a), 'noise of block 0 has another'),
    ('ab', _changed(a=lambda a, _: a[:1] + 0 * a), 'between runs'),
    ('ab', _changed(a=lambda a, _: a[:, :1] + 0 * a), 'between steps'),
    ('ab', _changed(b=lambda b, sums: 4 * sums['a'][..., :1, None] + 0 * b),
     'between blocks 0 and 1'),
    ('a', _changed(), None),
    ('a', _changed(a=lambda a, _: a[..., :1] + 0 * a), 'between blocks 0 and 0')]


@pytest.mark.parametrize('order', [None, 1])
@pytest.mark.parametrize('names, fault, message', _NOISE_FAULTS)
def test_noise_that_is_not_the_claimed_one_is_found(names, fault, message,
                                                    order):
  """Noise of another distribution or scale than claimed is reported.

  Each check raises a false alarm at a rate of 10^-7.
  """
  findings = canary._noise_findings(_game(order), _shift(names),
                                    fault(_noise(order, names=names)))
  assert not findings if message is None else any(
      message in line for line in findings)


def _delta(plan, epsilon):
  """Returns delta at epsilon of a Gaussian mechanism of multiplier 1."""
  del plan
  return stats.norm.cdf(0.5 - epsilon) - np.exp(epsilon) * stats.norm.cdf(
      -0.5 - epsilon)


def test_curves_are_compared_in_both_directions():
  """The curve check reports too large a loss
  both with and without the canary."""
  rng = np.random.default_rng(5)
  loss = lambda shift: shift**2 / 2 + shift * rng.normal(size=20_000)
  with mock.patch.object(canary, '_claimed_delta', _delta):
    for inside, outside, wanted in ((1.0, 1.0, set()), (1.3, 1.0, {'remove'}),
                                    (1.0, 1.3, {'add'}),
                                    (1.3, 1.3, {'add', 'remove'})):
      findings = canary._curve_findings(None, loss(inside), -loss(outside),
                                        (0.5, 1.5, 3.0))
      assert {line.split(':')[0] for line in findings} == wanted


_MODEL = Model(init=lambda key: {'w': jnp.zeros((1, 2))}, network=None,
               apply=lambda params, x: x @ params['w'])
_LOSS = losses.cross_entropy()


def _toggled(change, feature):
  """Returns findings on DP-SGD whose sums are `change(honest sums)(mask)`."""
  method = methods.dp_sgd(_MODEL, _LOSS, clip_norm=1.0)
  honest = method.bounder.sums

  def sums(params, batch, mask):
    result = honest(params, batch, mask)
    return result._replace(total={'w': change(
        lambda mask: honest(params, batch, mask).total['w'], mask)})

  return canary._toggle_findings(types.SimpleNamespace(
      model=_MODEL, canary=Batch(jnp.full((1, 1), feature),
                                 jnp.zeros(1, jnp.int32)),
      method=method._replace(bounder=method.bounder._replace(sums=sums))))


def _alone(sums, mask):
  """Returns each record's own contribution, [2, 1, 2]."""
  return jnp.stack([sums(mask & (jnp.arange(2) == k)) for k in range(2)])


def _clipped_after_the_sum(sums, mask):
  total = jnp.sum(jnp.asarray([3.0, 1.5])[:, None, None] * _alone(sums, mask),
                  0)
  return total * clipping.flat_weights(
      jnp.linalg.norm(total)[None], clip_norm=1.0)[0]


@pytest.mark.parametrize('change, feature, message', [
    (lambda sums, mask: sums(mask), 20.0, None),
    (lambda sums, mask: sums(jnp.ones_like(mask)), 0.5, 'masked records are'),
    (lambda sums, mask: sums(mask) + jnp.where(mask[1], 0.1, 0.0) * _alone(
        sums, mask)[0], 20.0, 'one record moves a sum by'),
    (lambda sums, mask: sums(mask) * jnp.where(jnp.all(mask), jnp.nan, 1.0),
     20.0, 'one record moves a sum by nan'),
    (_clipped_after_the_sum, 20.0, 'one record moves a sum by')])
def test_a_canary_is_toggled_in_company(change, feature, message):
  """The toggle check reports sums that ignore the mask or mix the records.

  Each record alone adds no more than it may.
  """
  findings = _toggled(change, feature)
  assert not findings if message is None else any(
      line.startswith(message) for line in findings)


@pytest.mark.parametrize('ratios, toggles, noise, refuted', [
    ([0.5, 1.0], [], [], 0), ([0.5, 1.0001], [], [], 1),
    ([math.nan, 0.5], [], [], 1), ([1.1, 1.2], ['x'], ['y'], 3),
    ([1.0, 1.0], ['x'], ['y', 'z'], 1), ([1.0, 1.0], [], ['y', 'z'], 2)])
def test_what_is_found_first_ends_a_game(ratios, toggles, noise, refuted):
  """The game ends at the first findings, before anything is released.

  A method whose sensitivity is exceeded releases nothing.
  """
  kept, released = {}, []
  names = {'shift': lambda game: canary.Shift(None, ratios, None),
           '_toggle_findings': lambda game: toggles,
           '_noise_findings': lambda *args: noise,
           'release': lambda *args: released.append(1) or (1.0, 2.0),
           'privacy_losses': lambda game, shift, sums: sums,
           'judge': lambda plan, *args: kept.setdefault('judged', args)}
  with mock.patch.multiple(canary, **names):
    evidence = canary.play(jax.random.key(0), types.SimpleNamespace(plan=None))
  if refuted:
    assert len(evidence.findings) == refuted and evidence.inside is None
    assert not kept and bool(released) == (not toggles and max(ratios) <= 1)
  else:
    assert kept['judged'] == (1.0, 2.0, (0.5, 1.5, 3.0)) == evidence
