"""Tapes of one run, and random draws that remember how they were made."""

from collections.abc import Iterator
import contextvars
import dataclasses
import os
import sys
import types
from typing import Any

import numpy as np
from numpy.lib import mixins


@dataclasses.dataclass
class Tape:
  """What one run draws and hides.

  Attributes:
    seed: seed of generators that are made without one.
    frozen: noisy values to return, of a recorded run; None to record.
    leaves: (name, family, standard draw) of each draw of noise.
    sites: (line, number of the leaf or -1, location, noise, noisy value).
    masks: names of draws that are not noise.
    seeds: (line, seed) of each generator that was made with one.
    generators: number of generators that were made without a seed.
  """
  seed: int
  frozen: list[np.ndarray] | None = None
  leaves: list[tuple[str, str, np.ndarray]] = dataclasses.field(
      default_factory=list)
  sites: list[tuple[str, int, np.ndarray, np.ndarray, np.ndarray]] = (
      dataclasses.field(default_factory=list))
  masks: list[str] = dataclasses.field(default_factory=list)
  seeds: list[tuple[str, str]] = dataclasses.field(default_factory=list)
  generators: int = 0

  def hide(self, line: str, leaf: int, location: np.ndarray,
           noise: np.ndarray) -> np.ndarray:
    """Records a noisy value, and returns it or what was recorded before."""
    number, noisy = len(self.sites), location + noise
    if self.frozen is not None and number < len(self.frozen) and self.frozen[
        number].shape == noisy.shape:
      noisy = self.frozen[number]
    self.sites.append((line, leaf, np.broadcast_to(location, noise.shape),
                       noise, noisy))
    return noisy


TAPE: contextvars.ContextVar[Tape | None] = contextvars.ContextVar(
    'tape', default=None)


def line_of_caller() -> str:
  """Returns file and line of the nearest caller outside of NumPy and here."""
  frame: types.FrameType | None = sys._getframe(1)
  while frame is not None:
    path = frame.f_code.co_filename
    if path != __file__ and f'{os.sep}numpy{os.sep}' not in path:
      return f'{os.path.basename(path)}:{frame.f_lineno}'
    frame = frame.f_back
  return ''


class Draw(mixins.NDArrayOperatorsMixin):
  """A random array, location + scale times a standard draw.

  It becomes an ordinary array, and a site of the tape, when it is used for
  anything but sums with numbers, products with numbers, and reshaping.
  """

  def __init__(self, tape: Tape, leaf: int, location: Any, scale: Any,
               line: str):
    self._tape, self._leaf, self._line = tape, leaf, line
    self._standard = tape.leaves[leaf][2]
    self._location, self._scale = location, scale
    self._value: np.ndarray | None = None

  def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
    del copy
    if self._value is None:
      noise = np.asarray(self._scale * self._standard, np.float64)
      location = np.asarray(self._location, np.float64)
      shape = np.broadcast_shapes(noise.shape, location.shape)
      self._value = self._tape.hide(self._line, self._leaf, location,
                                    np.broadcast_to(noise, shape))
    return np.asarray(self._value, dtype)

  def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any,
                      **kwargs: Any) -> Any:
    moved = (None if method != '__call__' or kwargs else
             self._moved(ufunc, inputs))
    if moved is not None:
      return moved
    plain = [np.asarray(x) if isinstance(x, Draw) else x for x in inputs]
    outs = kwargs.get('out')
    if outs is not None:
      kwargs['out'] = tuple(np.asarray(x) if isinstance(x, Draw) else x
                            for x in outs)
    return getattr(ufunc, method)(*plain, **kwargs)

  def _moved(self, ufunc: Any, inputs: tuple[Any, ...]) -> 'Draw | None':
    """Returns the draw after an affine operation; None if it is another."""
    if self._value is not None or sum(isinstance(x, Draw)
                                      for x in inputs) > 1:
      return None
    line = line_of_caller()
    if ufunc is np.negative:
      return self._with(-self._location, -self._scale, self._line)
    if len(inputs) != 2:
      return None
    first = inputs[0] is self
    other = np.asarray(inputs[1 if first else 0])
    if other.dtype.kind not in 'iufb':
      return None
    if ufunc is np.add:
      return self._with(self._location + other, self._scale, line)
    if ufunc is np.subtract:
      return (self._with(self._location - other, self._scale, line) if first
              else self._with(other - self._location, -self._scale, line))
    if ufunc is np.multiply or ufunc is np.true_divide and first:
      return self._with(ufunc(self._location, other),
                        ufunc(self._scale, other), line)
    return None

  def _with(self, location: Any, scale: Any, line: str) -> 'Draw':
    """Returns a draw of the same numbers with other parameters."""
    return Draw(self._tape, self._leaf, location, scale, line)

  def __array_function__(self, function: Any, _: Any, args: Any,
                         kwargs: Any) -> Any:
    return function(*plain(args), **plain(kwargs))

  def __getattr__(self, name: str) -> Any:
    if name.startswith('__'):
      raise AttributeError(name)
    return getattr(np.asarray(self), name)

  def __getitem__(self, index: Any) -> Any:
    return np.asarray(self)[index]

  def __iter__(self) -> Iterator[Any]:
    return iter(np.asarray(self))

  def __len__(self) -> int:
    return len(np.asarray(self))

  def __float__(self) -> float:
    return float(np.asarray(self))

  def __int__(self) -> int:
    return int(np.asarray(self))

  def __bool__(self) -> bool:
    return bool(np.asarray(self))

  def __round__(self, digits: int = 0) -> Any:
    return np.round(np.asarray(self), digits)


def plain(tree: Any) -> Any:
  """Returns arguments with arrays in place of draws."""
  if isinstance(tree, (list, tuple)):
    return type(tree)(map(plain, tree))
  if isinstance(tree, dict):
    return {name: plain(value) for name, value in tree.items()}
  return np.asarray(tree) if isinstance(tree, Draw) else tree
