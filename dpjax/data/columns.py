"""Kinds of table columns; each kind encodes one field of a record.

Guarantee: `encode` uses a single field and the public constants of its column,
never another record. So changing one record changes one row, and the
bounds [-1, 1] hold for any data.

Each kind has `name`, `names()` (of the encoded features, in order) and
`encode`, which takes the text of a field and raises `ValueError` if that is not
allowed; for `Numeric` it takes numbers.
"""

from collections.abc import Callable, Mapping
import dataclasses
import math

import numpy as np

from dpjax import errors


def _signed_log(value: float) -> float:
  """Returns sign(v) log(1 + |v|)."""
  # `log1p` keeps digits that 1 + |v| drops for small |v|.
  return math.copysign(math.log1p(abs(value)), value)


# All are increasing, so clipping before or after the transform is the same.
_SCALES: Mapping[str, Callable[[float], float]] = {
  'linear': float,
  'log': math.log,
  'signed_log': _signed_log,
  'sqrt': math.sqrt,
}


@dataclasses.dataclass(frozen=True)
class Numeric:
  """A number, clipped to public bounds and scaled to [-1, 1].

  Attributes:
    name: name of the column.
    lower: public lower bound, in the file's unit; mapped to -1.
    upper: public upper bound; mapped to 1.
    scale: transform between the bounds: 'linear', 'log' (needs lower > 0),
      'sqrt' (needs lower >= 0) or 'signed_log', sign(v) log(1 + |v|).
    missing: text of a missing number in the file; '' if none may be missing.
      Otherwise a second feature is 1 for a missing number and 0 else.
    default: public number that replaces a missing one.
  """
  name: str
  lower: float
  upper: float
  scale: str = 'linear'
  missing: str = ''
  default: float = 0.0

  def __post_init__(self) -> None:
    errors.check_choice('scale', self.scale, _SCALES)
    if not -math.inf < self.lower < self.upper < math.inf:
      raise ValueError(f'column {self.name!r} needs finite lower < upper, '
                       f'got {self.lower} and {self.upper}')
    if self.scale == 'log' and self.lower <= 0:
      raise ValueError(f'column {self.name!r} is logarithmic and needs '
                       f'lower > 0, got {self.lower}')
    if self.scale == 'sqrt' and self.lower < 0:
      raise ValueError(f'column {self.name!r} is a square root and needs '
                       f'lower >= 0, got {self.lower}')

  def names(self) -> tuple[str, ...]:
    """Returns the column's name, and `column=missing` if it may be missing."""
    return ((self.name, f'{self.name}={self.missing}') if self.missing
            else (self.name,))

  def encode(self, values: np.ndarray) -> np.ndarray:
    """Returns numbers [n] clipped and scaled to [-1, 1], as [n, 1] float64.

    NaN means a missing number. If numbers may be missing, the result is
    [n, 2], with the indicator of a missing number.
    """
    is_missing = np.isnan(values)
    scaled = self._scaled(np.where(is_missing, self.default, values))
    return np.stack([scaled, is_missing] if self.missing else [scaled], axis=1)

  def _scaled(self, values: np.ndarray) -> np.ndarray:
    transform = _SCALES[self.scale]
    low, high = transform(self.lower), transform(self.upper)
    clipped = np.clip(values, self.lower, self.upper)
    if self.scale != 'linear':
      # By `math`, whose last bit may differ from that of NumPy.
      clipped = np.array([transform(value) for value in clipped.tolist()],
                         np.float64)
    # Each step is monotone, and the bounds give exactly -1 and 1.
    return 2.0 * (clipped - low) / (high - low) - 1.0


@dataclasses.dataclass(frozen=True)
class Categorical:
  """A code from a public list, encoded one-hot with values 0 and 1.

  Attributes:
    name: name of the column.
    categories: public codes; any other code raises ValueError.
  """
  name: str
  categories: tuple[str, ...]

  def __post_init__(self) -> None:
    if len(set(self.categories)) != len(self.categories):
      raise ValueError(f'column {self.name!r} lists a category twice')

  def names(self) -> tuple[str, ...]:
    """Returns `column=category` for each category, in the list's order."""
    return tuple(f'{self.name}={category}' for category in self.categories)

  def encode(self, text: str) -> tuple[float, ...]:
    """Returns the indicator of `text` among the categories."""
    # A list made from the records would reveal which texts they have.
    if text not in self.categories:
      raise ValueError(f'{text!r} is not in the public list of '
                       f'{len(self.categories)} categories')
    return tuple(float(text == category) for category in self.categories)


@dataclasses.dataclass(frozen=True)
class Grouped:
  """A code that a public rule maps to a group, encoded one-hot.

  Attributes:
    name: name of the column.
    groups: public list of all groups that `group` can return.
    group: maps a code to its group; a public function of the field alone.
  """
  name: str
  groups: tuple[str, ...]
  group: Callable[[str], str]

  def names(self) -> tuple[str, ...]:
    """Returns 'column=group' for each group."""
    return Categorical(self.name, self.groups).names()

  def encode(self, text: str) -> tuple[float, ...]:
    """Returns 1.0 for the group of the code, 0.0 elsewhere."""
    return Categorical(self.name, self.groups).encode(self.group(text))


@dataclasses.dataclass(frozen=True)
class Binary:
  """A field '0' or '1', encoded as the number 0 or 1."""
  name: str

  def names(self) -> tuple[str, ...]:
    """Returns the encoded features' names: the column itself."""
    return (self.name,)

  def encode(self, text: str) -> tuple[float, ...]:
    """Returns 0.0 or 1.0."""
    if text not in ('0', '1'):
      raise ValueError(f'expected 0 or 1, got {text!r}')
    return (float(text),)


@dataclasses.dataclass(frozen=True)
class Skip:
  """A column that is not a feature, such as a record number."""
  name: str

  def names(self) -> tuple[str, ...]:
    """Returns no names, because the column gives no feature."""
    return ()


@dataclasses.dataclass(frozen=True)
class Label:
  """The column with the class of a record.

  Attributes:
    name: name of the column.
    classes: for each class 0, 1, ..., its spellings in the files.
  """
  name: str
  classes: tuple[tuple[str, ...], ...]

  def names(self) -> tuple[str, ...]:
    """Returns no names, because the label is not a feature."""
    return ()

  def encode(self, text: str) -> int:
    """Returns the class, in [0, len(classes))."""
    for label, spellings in enumerate(self.classes):
      if text in spellings:
        return label
    allowed = ', '.join(spellings[0] for spellings in self.classes)
    raise ValueError(f'label must be one of {allowed}; got {text!r}')


OfText = Categorical | Grouped | Binary | Label
"""Columns whose fields are encoded as text."""

Column = Numeric | Skip | OfText
