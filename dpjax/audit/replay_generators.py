"""NumPy and Python generators whose draws remember how they were made.

Inside of `recording`, `np.random` and `random` return draws that know their
family, location and scale. Adding a number moves the location and multiplying
changes the scale, so `total + rng.laplace(scale=b)` is a noisy value with
location `total` and scale `b`. Any other use makes it a plain number: that is
the site, where the location is recorded, and a replay returns the recorded
number instead.

Generators that were made outside, and functions imported by name before, are
not seen; `noisy` reports such a value.
"""

from collections.abc import Callable, Iterator
import contextlib
import contextvars
import dataclasses
import os
import random
import sys
from typing import Any

import numpy as np
from numpy.lib import mixins

# Draws that are noise, and the standard draw of each.
_NOISE: dict[str, Callable[[np.random.Generator, Any], Any]] = {
    'normal': lambda rng, size: rng.standard_normal(size),
    'laplace': lambda rng, size: rng.laplace(size=size),
    'gumbel': lambda rng, size: rng.gumbel(size=size),
    'logistic': lambda rng, size: rng.logistic(size=size),
    'exponential': lambda rng, size: rng.exponential(size=size)}
_LEGACY = {'rand': 'random', 'random_sample': 'random', 'randint': 'integers',
           'randn': 'normal', 'ranf': 'random', 'sample': 'random'}
_PLAIN = ('random', 'integers', 'choice', 'binomial', 'geometric', 'uniform',
          'permutation', 'shuffle', 'poisson', 'gamma', 'beta', 'multinomial',
          'standard_gamma', 'multivariate_normal', 'dirichlet', 'bytes')


@dataclasses.dataclass
class Tape:
  """What one run draws and hides.

  Attributes:
    seed: seed of generators that are made without one.
    frozen: noisy values to return, of a recorded run; None to record.
    leaves: (name, family, standard draw) of each draw of noise.
    sites: (line, number of the leaf or -1, location, noise, noisy value).
    masks: names of draws that are not noise.
    seeds: (line, seed) of each generator that was made.
  """
  seed: int
  frozen: list[np.ndarray] | None = None
  leaves: list[tuple[str, str, np.ndarray]] = dataclasses.field(
      default_factory=list)
  sites: list[tuple[str, int, np.ndarray, np.ndarray, np.ndarray]] = (
      dataclasses.field(default_factory=list))
  masks: list[str] = dataclasses.field(default_factory=list)
  seeds: list[tuple[str, str]] = dataclasses.field(default_factory=list)

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


_TAPE: contextvars.ContextVar[Tape | None] = contextvars.ContextVar(
    'tape', default=None)


def line_of_caller() -> str:
  """Returns file and line of the nearest caller outside of NumPy and here."""
  frame = sys._getframe(1)  # pylint: disable=protected-access
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
    return function(*_plain(args), **_plain(kwargs))

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


def _plain(tree: Any) -> Any:
  """Returns arguments with arrays in place of draws."""
  if isinstance(tree, (list, tuple)):
    return type(tree)(map(_plain, tree))
  if isinstance(tree, dict):
    return {name: _plain(value) for name, value in tree.items()}
  return np.asarray(tree) if isinstance(tree, Draw) else tree


class Generator:
  """Stands in for `np.random.Generator`, `np.random` and `random`."""

  def __init__(self, tape: Tape, seed: Any = None):
    if isinstance(seed, Generator):
      self._rng = seed._rng
      return
    if seed is None:
      # Generators without a seed differ from each other, and between runs.
      seed = [tape.seed, len(tape.seeds)]
    else:
      tape.seeds.append((line_of_caller(), repr(seed)))
    self._tape, self._rng = tape, np.random.Generator(np.random.PCG64(
        seed if isinstance(seed, (list, int)) else _words(seed)))

  def _noise(self, family: str, location: Any, scale: Any, size: Any) -> Any:
    """Draws noise that remembers its parameters."""
    if size is None:
      size = np.broadcast_shapes(np.shape(location), np.shape(scale))
    line = line_of_caller()
    self._tape.leaves.append((f'{family} at {line}', family, np.asarray(
        _NOISE[family](self._rng, size), np.float64)))
    return Draw(self._tape, len(self._tape.leaves) - 1, _data(location),
                _data(scale), line)

  def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
    return self._noise('normal', loc, scale, size)

  def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
    return self._noise('laplace', loc, scale, size)

  def gumbel(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
    return self._noise('gumbel', loc, scale, size)

  def logistic(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
    return self._noise('logistic', loc, scale, size)

  def exponential(self, scale: Any = 1.0, size: Any = None) -> Any:
    return self._noise('exponential', 0.0, scale, size)

  def standard_exponential(self, size: Any = None) -> Any:
    return self._noise('exponential', 0.0, 1.0, size)

  def standard_normal(self, size: Any = None) -> Any:
    return self._noise('normal', 0.0, 1.0, size)

  def randn(self, *size: int) -> Any:
    return self._noise('normal', 0.0, 1.0, size or None)

  def rand(self, *size: int) -> Any:
    return self.random(size or None)

  def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> Any:
    return self._noise('normal', mu, sigma, None)

  normalvariate = gauss

  def expovariate(self, lambd: float = 1.0) -> Any:
    return self._noise('exponential', 0.0, 1 / lambd, None)

  def __getattr__(self, name: str) -> Any:
    name = _LEGACY.get(name, name)
    if name not in _PLAIN:
      raise AttributeError(f'{name} is not recorded by dpjax.audit.replay')

    def draw(*args: Any, **kwargs: Any) -> Any:
      self._tape.masks.append(f'{name} at {line_of_caller()}')
      return getattr(self._rng, name)(*_plain(args), **_plain(kwargs))
    return draw


def _data(value: Any) -> Any:
  """Returns a parameter as a number or an array."""
  return np.asarray(value, np.float64)


def _words(seed: Any) -> list[int]:
  """Returns a seed as words of a seed sequence."""
  if isinstance(seed, np.random.SeedSequence):
    return [int(word) for word in seed.generate_state(4)]
  return [int(word) for word in np.ravel(np.asarray(seed)).astype(np.int64)
          % 2**32]


class _Random(Generator):
  """Stands in for the module `random` and for `random.Random`."""

  def uniform(self, low: float, high: float) -> float:
    self._tape.masks.append(f'uniform at {line_of_caller()}')
    return float(self._rng.uniform(low, high))

  def randint(self, low: int, high: int) -> int:
    self._tape.masks.append(f'randint at {line_of_caller()}')
    return int(self._rng.integers(low, high + 1))

  def sample(self, population: Any, k: int) -> list[Any]:
    self._tape.masks.append(f'sample at {line_of_caller()}')
    chosen = self._rng.choice(len(population), k, replace=False)
    return [population[int(place)] for place in chosen]


@contextlib.contextmanager
def recording(tape: Tape) -> Iterator[Tape]:
  """Makes `np.random` and `random` draw on a tape, and restores them."""
  token = _TAPE.set(tape)
  shared, python = Generator(tape), _Random(tape)

  def reseed(seed: Any = None) -> None:
    shared.__init__(tape, seed)
  stand_ins: list[tuple[Any, str, Any]] = [
      (np.random, 'default_rng', lambda seed=None: (
          seed if isinstance(seed, Generator) else Generator(tape, seed))),
      (np.random, 'RandomState', lambda seed=None: Generator(tape, seed)),
      (np.random, 'seed', reseed),
      (random, 'Random', lambda seed=None: _Random(tape, seed)),
      (random, 'seed', lambda seed=None: python.__init__(tape, seed))]
  names = [*_NOISE, *_LEGACY, *_PLAIN, 'standard_normal',
           'standard_exponential']
  stand_ins += [(np.random, name, getattr(shared, name)) for name in names
                if hasattr(np.random, name)]
  stand_ins += [(random, name, getattr(python, name)) for name in (
      'random', 'uniform', 'randint', 'gauss', 'normalvariate', 'expovariate',
      'choice', 'shuffle', 'sample') if hasattr(python, name)]
  saved = [(module, name, getattr(module, name))
           for module, name, _ in stand_ins]
  try:
    for module, name, stand_in in stand_ins:
      setattr(module, name, stand_in)
    yield tape
  finally:
    for module, name, original in saved:
      setattr(module, name, original)
    _TAPE.reset(token)


def noisy(name: str, value: Any, noise: Any, *, scale: Any,
          family: str) -> Any:
  """Returns value + noise, and reports both to the recorder, if there is one.

  For noise from generators that cannot be replaced, such as those of other
  libraries. In a replay it returns the recorded noisy value.

  Args:
    name: name of the draw in reports.
    value: what is hidden, before noise.
    noise: the noise that was drawn, of the shape of the result.
    scale: its scale, which must not depend on data.
    family: 'normal', 'laplace', 'gumbel', 'logistic' or 'exponential'.
  """
  tape = _TAPE.get()
  if tape is None:
    return value + noise
  noise = np.asarray(noise, np.float64)
  tape.leaves.append((name, family, noise / scale))
  return tape.hide(line_of_caller(), len(tape.leaves) - 1,
                   np.asarray(value, np.float64), noise)
