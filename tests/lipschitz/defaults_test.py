"""These tests pin the defaults of this package and of `grads`.

A default is a promise: a call that leaves it out stays as private, as precise
and as fast as it was. Defaults of None and names for messages are not pinned.
"""

import importlib
import inspect
import pkgutil

import pytest

from dpjax.grads import shards

KERNEL, WHOLE = 'bookkeeping', shards.WHOLE
DEFAULTS = {
  'grads': {
    'bookkeeping.of_record_loss': {'shards': WHOLE},
    'bookkeeping.record_gradients': {'shards': WHOLE},
    'bounder.BoundedSums': {'indicators': ()},
    'bounder.WeightConstraint': {'every': 1},
    'contractions.Layer': {'has_windows': False},
    'entries.of_constant': {'number': 0},
    'entries.reduced': {'keepdims': False},
    'lattice_privatizer.lattice_privatizer': {
      'allocation': 'optimal', 'sum_error': 0.0},
    'per_example.adaptively_clipped': {'kernel': KERNEL},
    'per_example.clipped': {'kernel': KERNEL},
    'per_example.normalized': {'kernel': KERNEL},
    'per_example.per_example_norms': {'blocks': 0, 'kernel': KERNEL},
    'privatizer.PrivatizerState': {'indicators': (), 'history': ()},
    'privatizer.gaussian_privatizer': {'allocation': 'optimal'},
    'quantiles.geometric': {'span': 1e4},
    'isolation.check_rows': {'places': True},
    'memory.Kept': dict.fromkeys((
      'inputs', 'cotangents', 'outside', 'others', 'inside', 'convolved'), 0),
    'shards.Part': {'chain': ()},
    'shards.Shards': {'is_tensor': False},
    'sites.Site': {'lengths': (), 'sliced': (), 'same': 0},
    'weighted.of_record_loss': {'kernel': KERNEL, 'shards': WHOLE},
    'weighted.preparation': {'shards': WHOLE},
    'weighted.sums': {'indicators': False}},
  'lipschitz': {
    'convolution.ConvShape': {'strides': (1, 1), 'padding': 'zero'},
    'convolution.drifted_bound': {'num_iterations': 2},
    'convolution.fourier_upper_bound': {'num_iterations': 6},
    'convolution.reshape_upper_bound': {'num_iterations': 6},
    'layers.Conv': {'kernel_size': (3, 3), 'strides': (1, 1),
                    'padding': 'zero', 'use_bias': True, 'grid': 16},
    'layers.Dense': {'use_bias': True, 'orthogonal': False},
    'losses.cross_entropy': {'temperature': 1.0, 'convention': 'inside'},
    'losses.hinge': {'margin': 1.0},
    'losses.ordinal': {'temperature': 1.0},
    'node.Context': {'radii': {}},
    'normalisation.standard': {'kappa': 1e-5},
    'norms.spectral_upper_bound': {'num_iterations': 6, 'any_scale': True},
    'pointwise.Ball': {'adaptive': False},
    'pointwise.Fixed': {'elementwise': False},
    'pooling.average_pool': {'window': (2, 2)},
    'orthogonal.retract': {'num_steps': 1},
    'pooling.max_pool': {'window': (2, 2)},
    'projection.clip_limits': {'num_iterations': 4},
    'projection.clip_weights': {'num_iterations': 4},
    'projection.fix_weights': {'num_iterations': 4},
    'rules.normalised': {'floor': 1e-6}},
}

MODULES = {
  name: [importlib.import_module(f'dpjax.{name}.{each.name}')
         for each in pkgutil.iter_modules(
           importlib.import_module(f'dpjax.{name}').__path__)]
  for name in DEFAULTS}


def _defaults(function):
  """Returns the default values of the arguments of a function or class."""
  return {name: argument.default for name, argument in
          inspect.signature(function).parameters.items()
          if name != 'name' and argument.default is not None
          and not callable(argument.default)}


@pytest.mark.parametrize('name', DEFAULTS)
def test_defaults_are_as_documented(name):
  defaults = {}
  for module in MODULES[name]:
    defaults |= {
      f'{module.__name__.split(".")[-1]}.{public}': _defaults(value)
      for public, value in vars(module).items()
      if getattr(value, '__module__', '') == module.__name__ and callable(value)
      and not public.startswith('_')
      and public not in ('NotFollowed', 'UnknownConstant')}  # Exceptions.
  assert {public: each for public, each in defaults.items() if each} == (
    DEFAULTS[name])
