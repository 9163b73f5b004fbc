"""These tests pin the defaults of audits, which decide what is published."""

import importlib
import inspect
import math
import pkgutil

from dpjax import audit
from experiments.methods import attacks
from experiments.methods.attacks import discriminators
from experiments.methods.attacks import local_sensitivity

_FRACTIONS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
# These are defaults of arguments with these names, wherever they have one.
_EVERYWHERE = {
    'significance': 0.05, 'confidence': 0.95, 'fractions': _FRACTIONS,
    'epsilons': (0.5, 1.5, 3.0), 'levels': (0.001, 0.01), 'gamma': 1.0,
    'pooling': math.inf, 'population': None, 'num_draws': 1000,
    'val_role': 'exclude', 'num_records': 60000, 'num_validation': 1000,
    'held_out': 0.2, 'tolerance': 1e-6, 'order': 2, 'spacing': 0.0,
    'monotone': False, 'floating_point': False, 'double_precision': False,
    'num_runs': None, 'event': None, 'num_examples': None}
_RECIPES = {
    discriminators.Recipe: {
        'hidden_widths': ((30,), (30, 30), (100, 100, 100)),
        'learning_rates': (1e-2, 1e-3, 1e-4), 'num_epochs': 80,
        'batch_size': 256},
    local_sensitivity.Options: {
        'output': 'softmax', 'norm': 'none', 'label': 'one_hot', 'exact': None,
        'step': 1e-3, 'num_draws': 5, 'batch_size': 500}}


def _defaults(function):
  return {name: parameter.default for name, parameter in
          inspect.signature(function).parameters.items()
          if parameter.default is not inspect.Parameter.empty}


def _public():
  """Yields all public functions, classes and methods of both packages."""
  for name in (f'{package.__name__}.{info.name}' for package in (audit, attacks)
               for info in pkgutil.iter_modules(package.__path__)):
    module = importlib.import_module(name)
    for name, value in vars(module).items():
      if name[0] != '_' and getattr(value, '__module__', '') == (
          module.__name__) and callable(value):
        yield value
        if inspect.isclass(value):
          yield from (each for method, each in vars(value).items()
                      if method[0] != '_' and inspect.isfunction(each))


def test_defaults_are_as_they_were():
  seen = set()
  for function in _public():
    if function in _RECIPES:
      assert _defaults(function) == _RECIPES[function]
      continue
    for name, default in _defaults(function).items():
      if name == 'recipe':
        assert default == discriminators.Recipe()
      elif name == 'options':
        assert default == local_sensitivity.Options()
      elif name in _EVERYWHERE and (name, default) != ('num_records', 8):
        assert default == _EVERYWHERE[name], (function, name)
        seen.add(name)
  assert seen == set(_EVERYWHERE)
