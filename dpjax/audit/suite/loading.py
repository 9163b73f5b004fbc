"""Loads audit targets by name, or from a user's file or module.

If an object lacks an attribute that the audit needs, its module may define it
in capitals, or the caller may pass it: EPSILON, DELTA, ADJACENCY, EVENT, PAIRS,
SPACE, RECORD_SHAPE, RECORD_BOUNDS, RECORD_DTYPE, NUM_RECORDS, NUM_CATEGORIES.
"""

import dataclasses
import importlib
import importlib.util
import inspect
import pathlib
import sys
import types
from typing import Any

from dpjax import errors
from dpjax.audit import canary
from dpjax.audit import claims
from dpjax.audit import wrapping
from dpjax.audit.suite import targets
from dpjax.audit.target import Target
from dpjax.privacy.adjacency import Adjacency

_RECORDS = ('record_shape', 'record_bounds', 'record_dtype', 'num_records',
            'num_categories')
_ATTRIBUTES = ('epsilon', 'delta', 'adjacency', 'event', 'pairs',
               'space', *_RECORDS, 'floating_point')
_GAMES = (canary.Game, canary.LossGame)


def load(name: str, **given: Any) -> targets.Auditable:
  """Returns the audit target that a name denotes.

  Args:
    name: a name in `targets.TARGETS`, or `path/to/file.py:NAME` or
      `module:NAME` for a `Target`, a `Game`, a mechanism (`release(key, data)`
      with `event` and `adjacency`, or a claim), a function `(key, data)` with a
      claim, or a function without arguments that returns one of these.
    **given: attributes named in `_ATTRIBUTES`; None means not given. They
      override the object's attributes, and those override its module's.

  Raises:
    ValueError: if the object cannot be found or run, or has no claim.
    FileNotFoundError: if there is no such file.
  """
  given = {key: value for key, value in given.items() if value is not None}
  if unknown := set(given) - set(_ATTRIBUTES):
    raise ValueError(f'unknown {", ".join(sorted(unknown))}: attributes are '
                     f'{", ".join(_ATTRIBUTES)}')
  if name in targets.TARGETS:
    return _restated(targets.TARGETS[name](), given)
  if ':' not in name:
    raise errors.UnknownChoiceError(
        f'unknown target {name!r}: it must be one of {len(targets.TARGETS)} '
        'names, path/to/file.py:NAME or module:NAME'
        f'{errors.nearest(name, sorted(targets.TARGETS))}')
  place, _, member = name.rpartition(':')
  module = _module(place)
  if not hasattr(module, member):
    raise ValueError(f'{place} has no {member}')
  loaded = getattr(module, member)
  if _is_factory(loaded):
    loaded = loaded()
  if isinstance(loaded, (Target, *_GAMES)):
    return _restated(loaded, given)
  return _wrapped(loaded, module, member, given)


def _module(place: str) -> types.ModuleType:
  """Imports a module by its name or by the path of its file."""
  if not place.endswith('.py'):
    try:
      return importlib.import_module(place)
    except ModuleNotFoundError as error:
      raise ValueError(errors.one_line(error)) from error
  path = pathlib.Path(place)
  if not path.exists():
    raise FileNotFoundError(f'no file {place}')
  spec = importlib.util.spec_from_file_location(f'audited_{path.stem}', path)
  if spec is None or spec.loader is None:
    raise ValueError(f'{place} cannot be imported')
  module = importlib.util.module_from_spec(spec)
  sys.modules[spec.name] = module  # Dataclasses look up their module here.
  spec.loader.exec_module(module)
  return module


def _is_factory(loaded: Any) -> bool:
  """Returns whether an object is a factory that needs no arguments."""
  if not callable(loaded) or isinstance(loaded, Target):
    return False
  # A callable instance is a release or a mechanism, not a factory.
  if not (inspect.isclass(loaded) or inspect.isroutine(loaded)):
    return False
  parameters = inspect.signature(loaded).parameters.values()
  return all(parameter.default is not parameter.empty or parameter.kind in (
      parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
             for parameter in parameters)


def _restated(target: targets.Auditable,
              given: dict[str, Any]) -> targets.Auditable:
  """Replaces parts of a target's claim and fields by the caller's values."""
  if not given:
    return target
  if isinstance(target, _GAMES):
    raise ValueError('the claim of a training method follows from its plan and '
                     'cannot be given')
  changes = {key: given[key] for key in ('epsilon', 'delta', 'adjacency',
                                         'event') if key in given}
  fields: dict[str, Any] = {
      key: given[key] for key in ('pairs', 'space', 'floating_point')
      if key in given}
  # Given pairs are the only ones; a given space has pairs of its own.
  if 'pairs' in fields or 'space' in fields:
    fields = {'pairs': (), 'space': None} | fields
  elif 'adjacency' in given:
    # The space has neighbours under the former adjacency.
    fields['space'] = None
  if stated := [key for key in _RECORDS if key in given]:
    raise ValueError(f'{target.name} defines its neighbours: {stated[0]} must '
                     'not be given')
  return dataclasses.replace(
      target, claim=dataclasses.replace(target.claim, **changes), **fields)


def _wrapped(loaded: Any, module: types.ModuleType, name: str,
             given: dict[str, Any]) -> Target:
  """Wraps a mechanism or a function as a target."""
  if inspect.isclass(loaded) or not (hasattr(loaded, 'release') or
                                     callable(loaded)):
    raise ValueError(f'{name} is neither a mechanism nor a function (key, '
                     'data), and cannot be called without arguments')
  attributes = {}
  for key in _ATTRIBUTES:
    # The caller's value comes first, then the object's, then its module's.
    for value in (given.get(key), getattr(loaded, key, None),
                  getattr(module, key.upper(), None)):
      if value is not None:
        attributes[key] = value
        break
  return wrapping.of_mechanism(
      _WithAttributes(loaded, attributes), name=name,
      claim=_claim(name, attributes), noise=wrapping.declared_noise(loaded),
      space=attributes.get('space'),
      **{key: attributes[key] for key in ('floating_point',)
         if key in attributes})


class _WithAttributes:
  """An object with further attributes, which take precedence over its own."""

  def __init__(self, loaded: Any, attributes: dict[str, Any]):
    self._wrapped, self._attributes = loaded, attributes

  def __getattr__(self, name: str) -> Any:
    if name in self._attributes:
      return self._attributes[name]
    if name == 'release' and not hasattr(self._wrapped, 'release'):
      return self._wrapped
    return getattr(self._wrapped, name)


def _claim(name: str, given: dict[str, Any]) -> claims.Claim:
  """Returns the claim in the attributes; raises ValueError if it is missing."""
  if 'adjacency' not in given:
    raise ValueError(f'{name} has no adjacency: say which data sets are '
                     'neighbours, add_or_remove_one or replace_one')
  adjacency = Adjacency(given['adjacency'])
  event, epsilon = given.get('event'), given.get('epsilon')
  if event is None:
    if epsilon is None:
      raise ValueError(f'{name} has no claim: give an event or an epsilon')
    return claims.Claim(epsilon=epsilon, delta=given.get('delta', 0.0),
                        adjacency=adjacency)
  delta = given.get('delta', wrapping.DELTA)
  if epsilon is None:
    return claims.of_event(event, delta=delta, adjacency=adjacency)
  return claims.Claim(epsilon=epsilon, delta=delta, adjacency=adjacency,
                      event=event)
