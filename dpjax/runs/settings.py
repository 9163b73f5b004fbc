"""Settings of a run: each one is declared once, as a field of a dataclass.

A field of `options.TrainingConfig` states its name, type and default in Python,
and the rest in `about`. The flag of `dpjax train`, the check of the value, the
JSON of the summary, the key of the run and the class documentation follow.

Examples:
  >>> import dataclasses
  >>> from dpjax import errors
  >>> from dpjax.runs import settings
  >>> @settings.documented
  ... @dataclasses.dataclass(frozen=True, kw_only=True)
  ... class Config:
  ...   '''The configuration of a run.'''
  ...   epsilon: float = dataclasses.field(default=1.0, metadata=settings.about(
  ...       'privacy', 'Privacy budget.', check=errors.check_positive))
  >>> print(Config.__doc__)
  The configuration of a run.
  <BLANKLINE>
  Attributes:
    epsilon: Privacy budget. Default: 1.0.
  >>> settings.check(Config(epsilon=-1.0))
  Traceback (most recent call last):
    ...
  ValueError: epsilon must be a positive number, got -1.0
"""

from collections.abc import Callable
import dataclasses
import functools
import inspect
import textwrap
import types
import typing
from typing import Any, TypeVar

from dpjax import errors

T = TypeVar('T')

Check = Callable[[str, Any], object]
"""Function of a name and a value; raises a ValueError for a bad value."""

_WIDTH = 80  # columns of a docstring
_KINDS = (bool, int, float, str, tuple)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """The declaration of one setting.

  Attributes:
    name: name of the field and of the flag.
    kind: type of a value: bool, int, float, str, or tuple (of integers).
    optional: whether the value may be None.
    default: default value; `dataclasses.MISSING` if the field is required.
    group: heading under which help shows the flag.
    help: one or more sentences for users.
    choices: allowed values of a string; empty for any string.
    check: check of a value that is not None, or None.
    later: whether the field was added after rows were published. At its
      default, such a field does not change the key of a run, see
      `dpjax.runs.run_keys`.
    filled: whether None is a placeholder that `configuration.resolve` replaces.
  """
  name: str
  kind: type
  optional: bool
  default: object
  group: str
  help: str
  choices: tuple[str, ...]
  check: Check | None
  later: bool
  filled: bool

  @property
  def description(self) -> str:
    """Returns the help for users, with the choices before the default."""
    if not self.choices:
      return self.help
    meaning, label, default = self.help.partition(' Default: ')
    return f'{meaning} One of {", ".join(self.choices)}.{label}{default}'


def about(group: str, text: str, *, choices: tuple[str, ...] = (),
          check: Check | None = None, later: bool = False,
          filled: bool = False) -> dict[str, Any]:
  """Returns the metadata of a field; see the attributes of `Setting`.

  `text` is the help. `later` is True for every new field, since rows have been
  published.
  """
  return dict(group=group, help=text, choices=choices, check=check,
              later=later, filled=filled)


def at_least(minimum: int) -> Check:
  """Returns a check that a value is an integer >= `minimum`."""
  return functools.partial(errors.check_at_least, minimum=minimum)


def declared(config_type: type) -> tuple[Setting, ...]:
  """Returns the settings of a dataclass, in the order of its fields.

  Raises:
    TypeError: for a field without `about`, or of a type that has no flag.
  """
  annotations = typing.get_type_hints(config_type)
  # For a field without `about`, arguments of `Setting` are missing.
  return tuple(
      Setting(name=field.name, default=field.default, **field.metadata,
              **_kind(annotations[field.name]))
      for field in dataclasses.fields(config_type))


def _kind(annotation: Any) -> dict[str, Any]:
  """Returns `kind` and `optional` of an annotation such as float | None."""
  parts = (typing.get_args(annotation)
           if isinstance(annotation, types.UnionType) else (annotation,))
  # The origin of tuple[int, ...] is tuple; float has none.
  kinds = [typing.get_origin(part) or part
           for part in parts if part is not types.NoneType]
  if len(kinds) != 1 or kinds[0] not in _KINDS:
    raise TypeError(f'a setting cannot be of type {annotation}')
  return dict(kind=kinds[0], optional=types.NoneType in parts)


def check(config: Any) -> None:
  """Checks every setting of a configuration separately.

  Args:
    config: instance of a dataclass whose fields are declared with `about`.

  Raises:
    ValueError: one line that names the setting and the allowed values.
  """
  for setting in declared(type(config)):
    value = getattr(config, setting.name)
    # None means that the option is not used, or is filled by `resolve`.
    if value is None and setting.optional:
      continue
    if setting.choices:
      errors.check_choice(setting.name, value, setting.choices)
    if setting.check is not None:
      setting.check(setting.name, value)


def known(value: T | None) -> T:
  """Returns the value of an option that `configuration.resolve` has filled.

  Raises:
    ValueError: for None; the configuration was not resolved.
  """
  if value is None:
    raise ValueError('the configuration has an option that is None; '
                     'configuration.resolve fills it')
  return value


def documented(config_type: type[T]) -> type[T]:
  """Class decorator that adds the settings to the docstring, as attributes."""
  lines = [inspect.cleandoc(config_type.__doc__ or ''), '', 'Attributes:']
  for setting in declared(config_type):
    text = f'{setting.name}: {setting.description}'
    if setting.default not in (None, dataclasses.MISSING):
      text += f' Default: {setting.default}.'
    lines += textwrap.wrap(text, _WIDTH, initial_indent=' ' * 2,
                           subsequent_indent=' ' * 4, break_on_hyphens=False)
  config_type.__doc__ = '\n'.join(lines)
  return config_type
