"""Selects settings to run: ids, tags, filters, shards and groups.

A setting is a frozen dataclass of plain values. Selections keep the order of
the settings and depend on nothing else, so that every machine cuts a sweep
into the same shards.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import re
from typing import Any

from dpjax.runs import grouping

Setting = Any
"""An instance of a frozen dataclass of plain values."""

Tag = Callable[[Setting], bool] | tuple

_PLAIN = re.compile(r'[^\s,=/]+')


def format_value(value: Any) -> str:
  """Returns the text of a value in an id: 0.5, 8, true, none, 64x64."""
  if value is None or isinstance(value, bool):
    return str(value).lower()
  if isinstance(value, tuple):
    return 'x'.join(map(format_value, value)) or 'none'
  if isinstance(value, float):
    return repr(int(value)) if value.is_integer() else repr(value)
  text = str(value)
  if not isinstance(value, (int, str)) or not _PLAIN.fullmatch(text):
    raise ValueError('a setting must hold numbers, tuples of them and text '
                     f'without blanks or any of ",=/", got {value!r}')
  return text


def _field_values(setting: Setting) -> dict[str, str]:
  """Returns field -> its text in an id."""
  return {field.name: format_value(getattr(setting, field.name))
          for field in dataclasses.fields(setting)}


def setting_id(name: str, setting: Setting) -> str:
  """Returns the readable id: 'toy/dataset=adult,epsilon=0.5,seed=3'."""
  pairs = (f'{key}={value}' for key, value in _field_values(setting).items())
  return f'{name}/{",".join(pairs)}'


def kind(setting: Setting) -> str:
  """Returns the text fields of a setting: 'dataset=adult,method=dp_sgd'.

  Settings of one kind differ in numbers only.
  """
  return ','.join(f'{field.name}={getattr(setting, field.name)}'
                  for field in dataclasses.fields(setting)
                  if isinstance(getattr(setting, field.name), str))


def named(name: str, setting: Setting, rows: Iterable[Any]) -> list[Any]:
  """Returns the rows of a setting with its experiment and id filled in."""
  id_ = setting_id(name, setting)
  return [dataclasses.replace(row, experiment=name, id=id_) for row in rows]


def check(name: str, settings: Sequence[Setting],
          batched: Sequence[str]) -> tuple[Setting, ...]:
  """Returns the settings of a sweep; raises ValueError if they are unusable."""
  kinds = {type(setting) for setting in settings}
  if len(kinds) != 1 or not dataclasses.is_dataclass(kind := kinds.pop()):
    raise ValueError(f'{name}: settings must be one or more instances of '
                     'one dataclass')
  fields = [field.name for field in dataclasses.fields(kind)]
  if not set(batched) <= set(fields):
    raise ValueError(f'{name}: BATCHED must be among {", ".join(fields)}; '
                     f'got {", ".join(batched)}')
  seen = set()
  for setting in settings:
    id_ = setting_id(name, setting)
    if id_ in seen:
      raise ValueError(f'{id_} is there twice')
    seen.add(id_)
  return tuple(settings)


def with_tag(settings: Sequence[Setting], tags: Mapping[str, Tag],
             tag: str) -> tuple[Setting, ...]:
  """Returns the settings with a tag; raises ValueError if there are none."""
  if tag not in tags:
    raise ValueError(f'no tag {tag!r}; there is '
                     f'{", ".join(sorted(tags)) or "none"}')
  rule = tags[tag]
  kept = tuple(setting for setting in settings
               if (rule(setting) if callable(rule) else setting in rule))
  if not kept:
    raise ValueError(f'no setting has the tag {tag!r}')
  return kept


def _same(written: str, value: str) -> bool:
  """Returns whether two texts mean the same value, as 0.50 and 0.5 do."""
  if written == value:
    return True
  try:
    return float(written) == float(value)
  except ValueError:
    return False


def _parse_only(only: Iterable[str]) -> dict[str, list[str]]:
  """Returns key -> allowed values, of filters 'key=value[,value]'."""
  wanted: dict[str, list[str]] = {}
  for text in only:
    key, equals, values = text.partition('=')
    if not (key and equals and all(values.split(','))):
      raise ValueError(f'--only must be key=value[,value], got {text!r}')
    wanted.setdefault(key, []).extend(values.split(','))
  return wanted


def only(settings: Sequence[Setting],
         filters: Iterable[str]) -> tuple[Setting, ...]:
  """Returns the settings that pass filters of the form 'key=value[,value]'.

  Values of one key, in one filter or several, are alternatives; different
  keys must all match.

  Raises:
    ValueError: a key or a value does not exist, or nothing passes.
  """
  filters = tuple(filters)
  table = [_field_values(setting) for setting in settings]
  kept = [True] * len(settings)
  for key, wanted in _parse_only(filters).items():
    if key not in table[0]:
      raise ValueError(f'no key {key!r} to filter by; there is '
                       f'{", ".join(table[0])}')
    present = list(dict.fromkeys(line[key] for line in table))
    for value in wanted:
      if not any(_same(value, other) for other in present):
        raise ValueError(f'no setting has {key}={value}; there is '
                         f'{key}={",".join(present)}')
    kept = [keep and any(_same(value, line[key]) for value in wanted)
            for keep, line in zip(kept, table, strict=True)]
  passed = tuple(setting for setting, keep
                 in zip(settings, kept, strict=True) if keep)
  if not passed:
    raise ValueError(f'no setting passes all of {" ".join(filters)}')
  return passed


def shard(settings: Sequence[Setting], batched: Sequence[str],
          text: str) -> tuple[Setting, ...]:
  """Returns one of n parts of the settings; the parts are disjoint.

  Whole groups are dealt in turn, so that settings that train together stay
  together. If there are fewer groups than parts, single settings are dealt.

  Args:
    settings: all settings, the same on each machine.
    batched: fields in which the settings of a group may differ.
    text: 'i/n' with i from 1 to n.
  """
  match = re.fullmatch(r'(\d+)/(\d+)', text)
  index, count = map(int, match.groups()) if match else (0, 0)
  if not 1 <= index <= count:
    raise ValueError(f'--shard must be i/n with i from 1 to n, got {text!r}')
  parts = grouping.groups(settings, batched)
  if len(parts) < count:
    parts = [(setting,) for part in parts for setting in part]
  mine = {id(setting) for part in parts[index - 1::count] for setting in part}
  return tuple(setting for setting in settings if id(setting) in mine)
