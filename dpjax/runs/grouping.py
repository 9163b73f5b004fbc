"""Groups settings that one compiled program can run together."""

from collections.abc import Iterable, Sequence
import dataclasses
from typing import Any, TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
  from _typeshed import DataclassInstance

Setting = TypeVar('Setting', bound='DataclassInstance')


def groups(settings: Iterable[Setting],
           batched: Sequence[str]) -> list[tuple[Setting, ...]]:
  """Groups the settings that differ in batched fields only.

  The settings of a group are run together, by one `vmap`.

  Args:
    settings: dataclass instances of one type.
    batched: names of the fields in which settings of a group may differ.
  """
  # A dict keeps groups in the order of their first settings.
  grouped: dict[tuple[Any, ...], list[Setting]] = {}
  for setting in settings:
    key = tuple(getattr(setting, field.name)
                for field in dataclasses.fields(setting)
                if field.name not in batched)
    grouped.setdefault(key, []).append(setting)
  return [tuple(group) for group in grouped.values()]
