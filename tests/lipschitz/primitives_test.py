"""These tests compare linear operations with per-record gradients.

They cover NET-12, LDP-04 and LDP-09.
"""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import clipping
from dpjax.lipschitz import convolution
from dpjax.lipschitz import primitives
from dpjax.lipschitz import rules

_HIGHEST = jax.lax.Precision.HIGHEST


def _conv(hw, kernel, *, strides=(1, 1), padding='zero'):
  """Returns (operation, plain operation, shapes of x, kernel and bias)."""
  shape = convolution.ConvShape((hw, hw), strides, padding)
  operation = lambda x, k, b, rule: primitives.conv(x, k, b, shape, rule)

  def plain(x, k, b):
    output = convolution.convolve(x, k, shape, precision=_HIGHEST)
    return output if b is None else output + b[None, None, None]

  return operation, plain, (hw, hw, kernel[2]), kernel, (kernel[3],)


def _affine_plain(x, scale, shift):
  return x * scale[None, None, None] + shift[None, None, None]


CASES = {
  'dense': (primitives.dense,
            lambda x, k, b: x @ k + (0 if b is None else b[None]),
            (4,), (4, 3), (3,)),
  'conv zero': _conv(5, (3, 3, 2, 3)),
  'conv valid': _conv(6, (3, 2, 2, 3), padding='valid'),
  'conv circular': _conv(4, (2, 3, 2, 3), padding='circular'),
  'conv strided': _conv(6, (3, 3, 2, 3), strides=(2, 2)),
  'conv strides beyond the window': _conv(6, (2, 1, 2, 3), strides=(3, 2),
                                          padding='valid'),
  'conv strided circular': _conv(6, (3, 3, 2, 2), strides=(2, 3),
                                 padding='circular'),
  # Few sites and many channels use the form by U U^T.
  'conv gram': _conv(2, (3, 3, 4, 6)),
  'conv gram strided': _conv(4, (3, 3, 5, 4), strides=(2, 2)),
  'conv gram of one pixel': _conv(3, (1, 1, 14, 14)),
  'affine': (primitives.scale_shift, _affine_plain, (3, 3, 4), (4,), (4,)),
}
RULES = {
  'normalised': rules.normalised(floor=0.5),
  'clipped_factors': rules.clipped_factors(limit=3.0),
  'clipped_layers': rules.clipped_layers(clip_norm=2.0),
}


def _arrays(name, size=7, seed=0):
  """Returns (operation, plain, x, kernel, bias, cotangent) of a case."""
  operation, plain, *shapes = CASES[name]
  rng = np.random.default_rng(seed)
  x, kernel, bias = (
    jnp.asarray(rng.normal(size=shape), jnp.float32)
    for shape in ((size, *shapes[0]), shapes[1], shapes[2]))
  # Records have many sizes, so that each rule has some to shorten.
  sizes = jnp.asarray(np.logspace(-2, 1, size), jnp.float32)
  x = x * sizes.reshape((-1,) + (1,) * (x.ndim - 1))
  out = jax.eval_shape(plain, x, kernel, bias)
  cotangent = rng.normal(size=out.shape) * np.linspace(0.02, 1, size).reshape(
    (-1,) + (1,) * (len(out.shape) - 1))
  return operation, plain, x, kernel, bias, jnp.asarray(cotangent, jnp.float32)


def _per_record(plain, x, kernel, bias, cotangent):
  """Returns the gradients of each record, [b, ...], in (kernel, bias)."""
  pull = lambda x, c: jax.vjp(
    lambda k, b: plain(x[None], k, b), kernel, bias)[1](c[None])
  return jax.jit(jax.vmap(pull))(x, cotangent)


def _lengths(gradients):
  return np.sqrt(sum(np.square(np.float64(leaf)).reshape(len(leaf), -1).sum(1)
                     for leaf in jax.tree.leaves(gradients)))


def _factor(name, x, kernel, has_bias):
  """Returns bounds [b] of the Jacobians' norms, by hand in float64."""
  squares = np.square(np.float64(x)).reshape(len(x), -1).sum(1)
  if name == 'dense':
    return np.sqrt(squares + has_bias)
  if name == 'affine':
    by_channel = np.square(np.float64(x)).sum((1, 2))
    return np.sqrt(by_channel.max(1) + math.prod(x.shape[1:3]))
  out = jax.eval_shape(CASES[name][1], x, kernel, None).shape
  strides = {'conv strided': (2, 2), 'conv gram strided': (2, 2),
             'conv strides beyond the window': (3, 2),
             'conv strided circular': (2, 3)}.get(name, (1, 1))
  many = math.prod(math.ceil(k / s) for k, s in zip(kernel.shape[:2], strides))
  return np.sqrt(many * squares + has_bias * math.prod(out[1:3]))


def _expected_weights(rule, factors, lengths):
  margin = 1 - clipping.ROUNDING_MARGIN
  return {'normalised': margin / np.maximum(factors, 0.5),
          'clipped_factors': np.minimum(1, margin * 3.0 / factors),
          'clipped_layers': np.minimum(1, margin * 2.0 / lengths)}[rule]


@functools.cache
def _pulled(name, rule, has_bias=True):
  """Returns (pulled back, expected, each record's gradients, factors)."""
  operation, plain, x, kernel, bias, cotangent = _arrays(name)
  bias = bias if has_bias else None
  chosen = RULES.get(rule)
  value, pull = jax.vjp(
    lambda x, k, b: operation(x, k, b, chosen), x, kernel, bias)
  expected, oracle_pull = jax.vjp(plain, x, kernel, bias)
  # Without a gradient no rule applies, and another function runs.
  for each in (value, operation(x, kernel, bias, chosen)):
    np.testing.assert_allclose(each, expected, rtol=1e-5, atol=1e-5)
  return (pull(cotangent), oracle_pull(cotangent),
          _per_record(plain, x, kernel, bias, cotangent),
          _factor(name, x, kernel, has_bias))


@pytest.mark.slow
@pytest.mark.parametrize('name', CASES)
def test_plain_gradients_are_those_of_the_operation(name):
  """Without weights, the chain rule equals `jax.vjp` (NET-12)."""
  actual, expected, _, _ = _pulled(name, None)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5,
                                                       atol=2e-5),
               actual, expected)


IN_DEFAULT_RUN = [('dense', 'clipped_layers'), ('conv gram', 'clipped_factors'),
                  ('conv strides beyond the window', 'clipped_layers'),
                  ('conv strided', 'normalised'), ('affine', 'normalised'),
                  ('affine', 'clipped_layers')]


@pytest.mark.sound
@pytest.mark.parametrize('name, rule', [
  case if case in IN_DEFAULT_RUN else pytest.param(*case,
                                                   marks=pytest.mark.slow)
  for case in itertools.product(CASES, RULES)])
def test_weighted_sums_are_those_of_gradients_of_single_records(name, rule):
  """One backward pass gives the weighted sums
  of `vmap(grad)` (LDP-04, LDP-09)."""
  actual, expected, single, factors = _pulled(name, rule)
  # Cotangents travel on exactly; otherwise no later layer has the chain rule.
  np.testing.assert_allclose(actual[0], expected[0], rtol=1e-5, atol=2e-5)
  lengths = _lengths(single)
  weights = _expected_weights(rule, factors, lengths)
  if rule == 'clipped_layers':
    assert np.any(weights < 0.9) and np.any(weights == 1)
  sums = jax.tree.map(lambda leaf: np.tensordot(
    weights, np.float64(leaf), 1), single)
  # The allowance for cancellation shortens gradients by up to a hundredth.
  tolerance = 2e-2 if rule == 'clipped_layers' and 'gram' in name else 2e-4
  for value, oracle in zip(actual[1:], sums, strict=True):
    np.testing.assert_allclose(value, oracle, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize('rule', RULES)
@pytest.mark.parametrize('name', ['dense', 'conv zero', 'conv gram'])
def test_without_a_bias(name, rule):
  actual, _, single, factors = _pulled(name, rule, has_bias=False)
  assert actual[2] is None
  lengths = _lengths(single)
  weights = _expected_weights(rule, factors, lengths)
  np.testing.assert_allclose(
    actual[1], np.tensordot(weights, np.float64(single[0]), 1), rtol=2e-2,
    atol=2e-4)


@pytest.mark.every(12)
@pytest.mark.parametrize('has_bias', [True, False])
@pytest.mark.parametrize('name', [name for name in CASES if 'conv' in name])
def test_ghost_norms_are_true_norms(name, has_bias):
  """Ghost norms in both forms bound the true norms from above (LDP-09).

  They stay below the product of norms.
  """
  _, plain, x, kernel, bias, cotangent = _arrays(name, size=12, seed=3)
  sites = math.prod(cotangent.shape[1:3])
  assert (2 * sites**2 < kernel.size) == ('gram' in name)
  true = _lengths(_per_record(plain, x, kernel, bias if has_bias else None,
                              cotangent))
  ceilings = _factor(name, x, kernel, has_bias) * np.linalg.norm(
    np.float64(cotangent).reshape(len(x), -1), axis=1)
  assert np.all(true <= ceilings)
  stride = {'conv strided': (2, 2), 'conv gram strided': (2, 2),
            'conv strides beyond the window': (3, 2),
            'conv strided circular': (2, 3)}.get(name, (1, 1))
  padding = {'conv valid': 'valid', 'conv circular': 'circular',
             'conv strides beyond the window': 'valid',
             'conv strided circular': 'circular'}.get(name, 'zero')
  norms = primitives.conv_gradient_norms(
    x, kernel, cotangent, jnp.asarray(ceilings, jnp.float32),
    convolution.ConvShape(x.shape[1:3], stride, padding), has_bias)
  ratio = np.float64(norms) / true
  assert ratio.min() >= 1 - 2e-7
  assert ratio.max() <= (1.001 if 'gram' in name else 1.0001)


def _contribution(operation, x, kernel, bias, cotangent, rule):
  """Returns the norm of everything that one record adds to the gradients."""
  gradients = jax.vjp(lambda k, b: operation(x, k, b, rule), kernel, bias)[1](
    cotangent)
  return jnp.sqrt(sum(jnp.sum(jnp.square(leaf))
                      for leaf in jax.tree.leaves(gradients)))


@pytest.mark.every(3)
@pytest.mark.parametrize('name', ['conv zero', 'conv circular',
                                  'conv gram of one pixel', 'affine'])
def test_gradients_that_cancel_stay_clipped(name):
  """A gradient that cancels stays within the clip norm.

  A large constant image meets cotangents that nearly cancel. In float32 the
  gradient and its norm are both rounding errors, of different sums. Without an
  allowance, one record would add 10^5 times the clip norm.
  """
  operation, _, x, kernel, bias, cotangent = _arrays(name, size=400, seed=5)
  x = jnp.ones_like(x) * x[:, :1, :1] * jnp.asarray(
    np.logspace(-1, 9, 400), jnp.float32)[:, None, None, None]
  apart = jnp.asarray(np.tile([0.0, 1e-6, 1e-5, 1e-4, 1e-3], 80), jnp.float32)
  mean = jnp.mean(cotangent, (1, 2), keepdims=True)
  cotangent = cotangent - mean * (1 - apart[:, None, None, None])
  rule = rules.clipped_layers(clip_norm=0.1)
  contributions = jax.jit(jax.vmap(lambda x, c: _contribution(
    operation, x[None], kernel, bias, c[None], rule)))(x, cotangent)
  assert np.max(contributions) <= 0.1


@pytest.mark.every(4)
@pytest.mark.parametrize('rule', RULES)
@pytest.mark.parametrize('name', ['dense', 'conv zero', 'conv gram', 'affine'])
def test_bad_records_are_nothing_and_leave_the_others(name, rule):
  """One bad record adds nothing and leaves the others as they are.

  Its features or cotangents are NaN, infinite or huge.
  """
  operation, _, x, kernel, bias, cotangent = _arrays(name, size=5)
  chosen = RULES[rule]

  @jax.jit
  def pulled(x, cotangent):
    return jax.vjp(lambda x, k, b: operation(x, k, b, chosen), x, kernel,
                   bias)[1](cotangent)

  keep = jnp.arange(5) != 2
  masked = jnp.where(keep.reshape((-1,) + (1,) * (cotangent.ndim - 1)),
                     cotangent, 0.0)
  without = pulled(x, masked)[1:]
  for bad in (jnp.nan, jnp.inf, -jnp.inf, 3e38, -2e25):
    for actual in (pulled(x.at[2].set(bad), cotangent),
                   pulled(x, cotangent.at[2].set(bad)),
                   pulled(x.at[2].set(bad), masked)):
      jax.tree.map(lambda a, b: np.testing.assert_allclose(
        a, b, rtol=1e-6, atol=1e-6), actual[1:], without)
      # Cotangents that are sent back for the others stay the same.
      jax.tree.map(np.testing.assert_array_equal, actual[0][3:],
                   pulled(x, cotangent)[0][3:])
    both = pulled(x.at[2].set(bad), cotangent.at[2].set(bad))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(
      a, b, rtol=1e-6, atol=1e-6), both[1:], without)


@pytest.mark.every(2)
@pytest.mark.parametrize('rule', RULES)
def test_zero_cotangents_and_zero_inputs(rule):
  for name in ('dense', 'conv strided', 'conv gram', 'affine'):
    operation, _, x, kernel, bias, cotangent = _arrays(name, size=3)
    pull = jax.jit(lambda x, c: jax.vjp(
      lambda k, b: operation(x, k, b, RULES[rule]), kernel, bias)[1](c))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(
      pull(x, 0 * cotangent)))
    of_kernel, of_bias = pull(0 * x, cotangent)
    assert not np.any(of_kernel) and np.all(np.isfinite(of_bias))
    assert np.any(of_bias)


@pytest.mark.every(2)
@pytest.mark.parametrize('rule', RULES)
def test_one_record_stays_below_the_bound_at_every_scale(rule):
  """One record stays within its bound at every scale from 1e-30 to 1e18."""
  chosen = RULES[rule]
  for name in ('dense', 'conv zero', 'conv gram', 'affine'):
    operation, _, x, kernel, bias, cotangent = _arrays(name, size=1, seed=7)
    unit = cotangent / jnp.linalg.norm(cotangent)
    direction = x / jnp.linalg.norm(x)
    of_x, of_cotangent = (each.ravel() for each in np.meshgrid(
      *2 * [10.0**np.arange(-30, 19, 3)]))
    contributions = jax.jit(jax.vmap(lambda a, b: _contribution(
      operation, a * direction, kernel, bias, b * unit, chosen)))(
        *(jnp.asarray(each, jnp.float32) for each in (of_x, of_cotangent)))
    limits = np.array([chosen.bound(each, math.inf) for each in of_cotangent])
    assert np.all(np.float64(contributions) <= limits * (1 + 1e-6))
    assert np.max(contributions / limits) > 0.1


@pytest.mark.every(2)
def test_underflow_is_no_way_past_the_clip_norm():
  """Underflow must not defeat clipping: squares
  of 9e-20 are zero in float32."""
  rule = rules.clipped_layers(clip_norm=0.1)
  for x, cotangent in ((1e18, 9e-20), (9e-20, 1e18)):
    contribution = _contribution(primitives.dense, jnp.full([1, 100], x),
                                 jnp.ones([100, 100]), jnp.zeros([100]),
                                 jnp.full([1, 100], cotangent), rule)
    assert float(contribution) <= 0.1


@pytest.mark.every(2)
def test_norms_beyond_measure_are_clipped_to_nothing():
  """Contributions of norms above 1e10 are clipped to zero.

  Products with small numbers lose too much to underflow there.
  """
  lengths = np.array([(1, 1), (9.9e9, 1), (1.01e10, 1), (1, 9.9e9),
                      (1, 1.01e10), (1.01e10, 1e-30), (1e-30, 1.01e10)])
  unmeasurable = np.max(lengths, 1) > 1e10
  for name in ('dense', 'conv zero'):
    operation, _, x, kernel, bias, cotangent = _arrays(name, size=1)
    x, cotangent = x / jnp.linalg.norm(x), cotangent / jnp.linalg.norm(
      cotangent)
    alone = lambda a, b, given=(operation, x, kernel, bias, cotangent): (
      _contribution(given[0], a * given[1], *given[2:4], b * given[4],
                    RULES['clipped_layers']))
    contributions = np.asarray(jax.jit(jax.vmap(alone))(
      *jnp.asarray(lengths.T, jnp.float32)))
    assert not np.any(contributions[unmeasurable]), name
    assert np.all(contributions[~unmeasurable][1:] > 1.99), name


# The tests below plant faults of a rule that a test above would see.


@pytest.mark.every(2)
def test_fault_weights_of_the_batch():
  """Dividing by the batch's largest norm lets one record move others (E1)."""
  by_maximum = rules.normalised()._replace(
    weights=lambda norms: jnp.full_like(norms.factors,
                                        1 / jnp.max(norms.factors)))
  _, _, x, kernel, bias, cotangent = _arrays('dense')

  def difference(rule, size):
    """Returns how far a record of `size` without a cotangent moves the sum."""
    pull = lambda x: jax.vjp(lambda k: primitives.dense(x, k, bias, rule),
                             kernel)[1](cotangent.at[2].set(0.0))[0]
    return float(jnp.linalg.norm(pull(x) - pull(x.at[2].mul(size))))

  assert difference(by_maximum, 1e3) > 1e-2
  assert difference(rules.normalised(), 1e3) == 0
