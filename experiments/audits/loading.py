"""Targets by name, or from a file or module of one's own.

What an object does not say of itself may be said beside it in its module, in
capitals, or by whoever asks: EPSILON, DELTA, ADJACENCY, EVENT, PAIRS,
RECORD_SHAPE, RECORD_BOUNDS.
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
from dpjax.audit.target import Target
from dpjax.privacy.adjacency import Adjacency
from experiments.audits import targets

_SAID = ('epsilon', 'delta', 'adjacency', 'event', 'pairs', 'record_shape',
         'record_bounds', 'floating_point')
_GAMES = (canary.Game, canary.LossGame)


def load(name: str, **said: Any) -> targets.Auditable:
  """What a name stands for.

  Args:
    name: of `targets.TARGETS`; or `path/to/file.py:NAME`, or `module:NAME`, of
      a `Target`, a `Game`, a mechanism (`release(key, data)`, and `event` and
      `adjacency` or a claim), a function `(key, data)` with a claim, or a
      function without arguments that makes one of these.
    **said: of `_SAID`, None where nothing is; these come before what the
      object says, which comes before what its module says.

  Raises:
    ValueError: one line, for what cannot be found, run, or has no claim.
  """
  said = {key: value for key, value in said.items() if value is not None}
  if unknown := set(said) - set(_SAID):
    raise ValueError(f'unknown {", ".join(sorted(unknown))}')
  if name in targets.TARGETS:
    return _restated(targets.TARGETS[name](), said)
  if ':' not in name:
    raise ValueError(f'unknown target {name!r}: one of '
                     f'{", ".join(sorted(targets.TARGETS))}, or '
                     'path/to/file.py:NAME'
                     f'{errors.did_you_mean(name, targets.TARGETS)}')
  place, _, member = name.rpartition(':')
  module = _module(place)
  if not hasattr(module, member):
    raise ValueError(f'{place} has no {member}')
  found = getattr(module, member)
  if _makes(found):
    found = found()
  if isinstance(found, (Target, *_GAMES)):
    return _restated(found, said)
  return _wrapped(found, module, member, said)


def _module(place: str) -> types.ModuleType:
  if not place.endswith('.py'):
    try:
      return importlib.import_module(place)
    except ModuleNotFoundError as error:
      raise ValueError(errors.one_line(error)) from error
  path = pathlib.Path(place)
  if not path.exists():
    raise FileNotFoundError(f'no file {place}')
  spec = importlib.util.spec_from_file_location(f'audited_{path.stem}', path)
  module = importlib.util.module_from_spec(spec)
  sys.modules[spec.name] = module  # Which dataclasses look for.
  spec.loader.exec_module(module)
  return module


def _makes(found: Any) -> bool:
  """Whether it is called without arguments to get what is audited."""
  if not callable(found) or isinstance(found, Target):
    return False
  if not (inspect.isclass(found) or inspect.isroutine(found)):
    return False
  parameters = inspect.signature(found).parameters.values()
  return all(parameter.default is not parameter.empty or parameter.kind in (
      parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
             for parameter in parameters)


def _restated(target: targets.Auditable,
              said: dict[str, Any]) -> targets.Auditable:
  """A target under another claim."""
  if not said:
    return target
  if isinstance(target, _GAMES):
    raise ValueError('the claim of a training method is that of its plan')
  changes = {key: said[key] for key in ('epsilon', 'delta', 'adjacency',
                                        'event') if key in said}
  fields = {key: said[key] for key in ('pairs', 'floating_point')
            if key in said}
  if 'record_shape' in said:
    raise ValueError(f'{target.name} has neighbours of its own')
  return dataclasses.replace(
      target, claim=dataclasses.replace(target.claim, **changes), **fields)


def _wrapped(found: Any, module: types.ModuleType, name: str,
             said: dict[str, Any]) -> Target:
  """A target from a mechanism or a function."""
  if inspect.isclass(found) or not (hasattr(found, 'release') or
                                    callable(found)):
    raise ValueError(f'{name} is no mechanism, no function (key, data), and '
                     'cannot be made without arguments')
  everything = {}
  for key in _SAID:
    for value in (said.get(key), getattr(found, key, None),
                  getattr(module, key.upper(), None)):
      if value is not None:
        everything[key] = value
        break
  stated = _Stated(found, everything)
  return wrapping.of_mechanism(
      stated, name=name, claim=_claim(name, everything),
      noise=wrapping.declared_noise(found),
      **{key: everything[key] for key in ('floating_point',)
         if key in everything})


class _Stated:
  """An object, and what else is said of it."""

  def __init__(self, found: Any, everything: dict[str, Any]):
    self._found, self._everything = found, everything

  def __getattr__(self, name: str) -> Any:
    if name in self._everything:
      return self._everything[name]
    if name == 'release' and not hasattr(self._found, 'release'):
      return self._found
    return getattr(self._found, name)


def _claim(name: str, said: dict[str, Any]) -> claims.Claim:
  if 'adjacency' not in said:
    raise ValueError(f'{name} has no adjacency: say which data sets are '
                     'neighbours, add_or_remove_one or replace_one')
  adjacency = Adjacency(said['adjacency'])
  event, epsilon = said.get('event'), said.get('epsilon')
  if event is None and epsilon is None:
    raise ValueError(f'{name} has no claim: neither event nor epsilon')
  if event is None:
    return claims.Claim(epsilon=epsilon, delta=said.get('delta', 0.0),
                        adjacency=adjacency)
  delta = said.get('delta', wrapping.DELTA)
  if epsilon is None:
    return claims.of_event(event, delta=delta, adjacency=adjacency)
  return claims.Claim(epsilon=epsilon, delta=delta, adjacency=adjacency,
                      event=event)
