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
import random
from typing import Any

import numpy as np

from dpjax.audit.recording import tapes

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


class Generator:
  """Stands in for `np.random.Generator`, `np.random` and `random`."""

  def __init__(self, tape: tapes.Tape, seed: Any = None):
    self.reseed(tape, seed)

  def reseed(self, tape: tapes.Tape, seed: Any = None) -> None:
    """Starts again from a seed; without one, from the tape's."""
    if seed is None:
      # Generators without a seed differ from each other, and between runs.
      seed = [tape.seed, tape.generators]
      tape.generators += 1
    else:
      tape.seeds.append((tapes.line_of_caller(), repr(seed)))
    self._tape, self._rng = tape, np.random.Generator(np.random.PCG64(
        seed if isinstance(seed, (list, int)) else _words(seed)))

  def _noise(self, family: str, location: Any, scale: Any, size: Any) -> Any:
    """Draws noise that remembers its parameters."""
    if size is None:
      size = np.broadcast_shapes(np.shape(location), np.shape(scale))
    line = tapes.line_of_caller()
    self._tape.leaves.append((f'{family} at {line}', family, np.asarray(
        _NOISE[family](self._rng, size), np.float64)))
    return tapes.Draw(self._tape, len(self._tape.leaves) - 1, _data(location),
                _data(scale), line)

  def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
    """Records a draw of normal noise of this mean and standard deviation."""
    return self._noise('normal', loc, scale, size)

  def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
    """Records a draw of Laplace noise of this location and scale."""
    return self._noise('laplace', loc, scale, size)

  def gumbel(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
    """Records a draw of Gumbel noise of this location and scale."""
    return self._noise('gumbel', loc, scale, size)

  def logistic(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
    """Records a draw of logistic noise of this location and scale."""
    return self._noise('logistic', loc, scale, size)

  def exponential(self, scale: Any = 1.0, size: Any = None) -> Any:
    """Records a draw of exponential noise of this scale."""
    return self._noise('exponential', 0.0, scale, size)

  def standard_exponential(self, size: Any = None) -> Any:
    """Records a draw of exponential noise of mean 1."""
    return self._noise('exponential', 0.0, 1.0, size)

  def standard_normal(self, size: Any = None) -> Any:
    """Records a draw of normal noise of mean 0 and variance 1."""
    return self._noise('normal', 0.0, 1.0, size)

  def randn(self, *size: int) -> Any:
    """Draws standard normal noise, as the old function of NumPy."""
    return self._noise('normal', 0.0, 1.0, size or None)

  def rand(self, *size: int) -> Any:
    """Draws uniform numbers, as the old function of NumPy."""
    return self.random(size or None)

  def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> Any:
    """Draws one normal number, as `random.gauss`."""
    return self._noise('normal', mu, sigma, None)

  normalvariate = gauss

  def expovariate(self, lambd: float = 1.0) -> Any:
    """Draws one exponential number, as `random.expovariate`."""
    return self._noise('exponential', 0.0, 1 / lambd, None)

  def __getattr__(self, name: str) -> Any:
    name = _LEGACY.get(name, name)
    if name not in _PLAIN:
      raise AttributeError(f'{name} is not recorded by dpjax.audit.replay')

    def draw(*args: Any, **kwargs: Any) -> Any:
      self._tape.masks.append(f'{name} at {tapes.line_of_caller()}')
      return getattr(self._rng, name)(*tapes.plain(args), **tapes.plain(kwargs))
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
    self._tape.masks.append(f'uniform at {tapes.line_of_caller()}')
    return float(self._rng.uniform(low, high))

  def randint(self, low: int, high: int) -> int:
    self._tape.masks.append(f'randint at {tapes.line_of_caller()}')
    return int(self._rng.integers(low, high + 1))

  def sample(self, population: Any, k: int) -> list[Any]:
    self._tape.masks.append(f'sample at {tapes.line_of_caller()}')
    chosen = self._rng.choice(len(population), k, replace=False)
    return [population[int(place)] for place in chosen]


@contextlib.contextmanager
def recording(tape: tapes.Tape) -> Iterator[tapes.Tape]:
  """Makes `np.random` and `random` draw on a tape, and restores them."""
  token = tapes.TAPE.set(tape)
  shared, python = Generator(tape), _Random(tape)

  def reseed(seed: Any = None) -> None:
    shared.reseed(tape, seed)
  stand_ins: list[tuple[Any, str, Any]] = [
      (np.random, 'default_rng', lambda seed=None: (
          seed if isinstance(seed, Generator) else Generator(tape, seed))),
      (np.random, 'RandomState', lambda seed=None: Generator(tape, seed)),
      (np.random, 'seed', reseed),
      (random, 'Random', lambda seed=None: _Random(tape, seed)),
      (random, 'seed', lambda seed=None: python.reseed(tape, seed))]
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
    tapes.TAPE.reset(token)


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
  tape = tapes.TAPE.get()
  if tape is None:
    return value + noise
  standard, number = np.asarray(noise, np.float64) / scale, len(tape.leaves)
  # A replay has the draws of the recorded run, with the scale of its own.
  if number < len(tape.standards) and tape.standards[
      number].shape == standard.shape:
    standard = tape.standards[number]
  tape.leaves.append((name, family, standard))
  return tape.hide(tapes.line_of_caller(), number,
                   np.asarray(value, np.float64), scale * standard)
