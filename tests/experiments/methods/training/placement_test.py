"""These tests check that the privatizer comes first in a chain."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.grads import k_norm_privatizer
from dpjax.grads import lattice_privatizer
from dpjax.grads import privatizer
from experiments.methods.training import placement

_PARAMS = {'a': jnp.zeros(3), 'b': jnp.zeros(2)}
_LABELS = {'a': 'some', 'b': 'others'}


def _noise(make=privatizer.gaussian_privatizer, **more):
  return make(jax.random.key(0), noise_multiplier=1.0, expected_batch_size=4.0,
              **more)


_MAKERS = {
    'gaussian': privatizer.gaussian_privatizer,
    'lattice': lattice_privatizer.lattice_privatizer,
    'k-norm': lambda *args, **more: k_norm_privatizer.k_norm_privatizer(
        *args, order=2.0, **more),
}

_RIGHT = {
    'alone': _noise,
    'adam': lambda: optax.chain(_noise(), optax.adam(0.1)),
    'a chain in a chain': lambda: optax.chain(
        optax.chain(_noise(), optax.sgd(0.1)), optax.ema(0.9)),
    'clipped and divided afterwards': lambda: optax.chain(
        _noise(), optax.clip_by_global_norm(1.0), optax.partition(
            {'some': optax.adam(0.1), 'others': optax.set_to_zero()}, _LABELS)),
    'named': lambda: optax.named_chain(('z', _noise()), ('a', optax.sgd(0.1))),
}

_WRONG = {
    'adam': (lambda: optax.chain(optax.adam(0.1), _noise()),
             'ScaleByAdamState comes before .* nothing is private'),
    'momentum': (lambda: optax.chain(optax.trace(0.9), _noise()),
                 'TraceState comes before .* nothing is private'),
    'a clipped sum': (
        lambda: optax.chain(optax.clip_by_global_norm(1.0), _noise()),
        'a transform without a state comes before .* nothing is private'),
    'within a chain': (
        lambda: optax.chain(optax.chain(optax.scale(2.0), _noise())),
        'a transform without a state comes before'),
    'a name': (lambda: optax.named_chain(('a', optax.sgd(0.1)),
                                         ('z', _noise())), 'comes before'),
    'steps of several': (
        lambda: optax.MultiSteps(optax.chain(_noise(), optax.sgd(0.1)), 2),
        'MultiStepsState is around the privatizer: it may keep exact sums'),
    'skipped steps': (lambda: optax.apply_if_finite(_noise(), 3),
                      'ApplyIfFiniteState is around the privatizer'),
    'twice': (lambda: optax.chain(_noise(), optax.adam(0.1), _noise()),
              '2 privatizers .* as private as the first .* 2 times'),
    'none': (lambda: optax.adam(0.1), 'no privatizer .* without any noise'),
}


@pytest.mark.parametrize('name', _RIGHT)
def test_a_privatizer_that_is_first_is_accepted(name):
  placement.check_chain(_RIGHT[name](), _PARAMS)


@pytest.mark.parametrize('name', _WRONG)
def test_what_is_lost_elsewhere_is_said(name):
  make, message = _WRONG[name]
  with pytest.raises(ValueError, match=message):
    placement.check_chain(make(), _PARAMS)


@pytest.mark.every(2)
@pytest.mark.parametrize('name', _MAKERS)
def test_no_sums_are_hidden_from_a_privatizer(name):
  """A chain that hides sums from the privatizer is refused."""
  for hiding in (
      lambda inner: optax.masked(inner, {'a': True, 'b': False}),
      lambda inner: optax.chain(optax.partition(
          {'some': inner, 'others': optax.sgd(0.1)}, _LABELS))):
    with pytest.raises(ValueError, match="hides .*'b'.* from it: sums of these"):
      hiding(_noise(_MAKERS[name])).init(_PARAMS)
  placement.check_chain(_noise(_MAKERS[name]), _PARAMS)


def test_what_comes_before_makes_the_noise_too_little():
  """A step before the privatizer defeats its noise.

  Adam makes a step of 1 of any sum. Two batches that differ by one record of
  norm 1e-3 differ by hundreds of deviations afterwards.
  """
  sensitivity = {'a': jnp.float32(1e-3), 'b': jnp.float32(1e-3)}
  apart = {}
  for name, chain in (('first', optax.chain(_noise(), optax.scale_by_adam())),
                      ('last', optax.chain(optax.scale_by_adam(), _noise()))):
    outs = []
    update = jax.jit(lambda sums, state, chain=chain: chain.update(
        sums, state, sums, l2_sensitivity=sensitivity))
    for size in (0.0, 1e-3):
      sums = {'a': jnp.array([size, 0.0, 0.0]), 'b': jnp.zeros(2)}
      state = chain.init(sums)
      with jax.numpy_dtype_promotion('standard'):  # Adam is not strict.
        outs.append(update(sums, state)[0]['a'][0])
    apart[name] = abs(float(outs[1] - outs[0])) * 4  # The divisor.
  stddev = float(np.min(privatizer.scales(
      sensitivity, _PARAMS, 1.0, 'optimal', None)[1]))
  assert stddev < 3e-3 and apart['last'] > 300 * stddev
