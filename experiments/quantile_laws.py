"""Laws that quantiles are tried on, with true quantiles and public bounds.

Names: beta_<a>_<b>; mixed_<p>_<delta>, an atom of p at 1/2 and the rest uniform
on what is farther than delta from it; the series of `dpjax.data.series`, drawn
from with replacement; earnings_surrogate and dividends_surrogate, laws with the
atoms and tails of those, for where there are no files (item QF-19, QF-25).
"""

from collections.abc import Callable
import dataclasses
import functools
import zlib

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from dpjax import errors
from dpjax.data import series
from dpjax.stats.quantiles import orders
from dpjax.stats import precision
from dpjax.stats.quantiles import records
from dpjax.typing import Array, PRNGKey

BETAS = ('beta_0.5_0.5', 'beta_1_1', 'beta_2_2', 'beta_2_5', 'beta_5_1',
         'beta_1_3')
MIXED = ('mixed_0_0', 'mixed_0.1_0.05', 'mixed_0.2_0.1', 'mixed_0.5_0.25')
FILES = ('ratings', 'pages', 'earnings', 'dividends')
SURROGATES = ('earnings_surrogate', 'dividends_surrogate')
_SHORTEST = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Law:
  """A law of records.

  Attributes:
    name: see above.
    sample: (key, n) -> records [n] float64; with 64-bit types.
    quantiles: orders [m] -> F^-1 [m], on the host.
    lower: public bound.
    upper: public bound.
  """
  name: str
  sample: Callable[[PRNGKey, int], Array]
  quantiles: Callable[[np.ndarray], np.ndarray]
  lower: float = 0.0
  upper: float = 1.0


@functools.cache
def law(name: str, data_dir: str | None = None) -> Law:
  """The law of a name.

  Args:
    name: see above.
    data_dir: folder with the files of series; default $DPJAX_DATA_DIR.

  Raises:
    ValueError: for an unknown name.
    FileNotFoundError: for a file that is not there; says where to get it.
  """
  if name in series.SERIES:
    return empirical(name, series.load(name, data_dir=data_dir))
  if name in _SURROGATES:
    share, location, scale, unit, upper = _SURROGATES[name]
    return _inverted(name, functools.partial(
        _lognormal, share, location, scale, unit, upper), upper)
  kind, *numbers = name.split('_')
  errors.check_choice('the first word of a law', kind, ('beta', 'mixed'))
  try:
    first, second = map(float, numbers)
  except ValueError:
    raise ValueError(f'{kind} must have two numbers, as in {kind}_1_0.5, got '
                     f'{name!r}') from None
  return (_beta if kind == 'beta' else _mixed)(name, first, second)


def _beta(name: str, first: float, second: float) -> Law:
  errors.check_positive('the first number', first)
  errors.check_positive('the second number', second)
  return Law(name=name,
             sample=lambda key, size: jax.random.beta(
                 key, first, second, (size,), jnp.float64),
             quantiles=lambda probs: special.betaincinv(first, second, probs))


def _mixed(name: str, share: float, gap: float) -> Law:
  if not (0 <= share < 1 and 0 <= gap <= 0.5):
    raise ValueError('an atom must have a share in [0, 1) and a gap in [0, '
                     f'0.5], got {name!r}')
  return _inverted(name, functools.partial(_around_atom, share, gap), 1.0)


def _around_atom(share, gap, order, xp):
  """F^-1 of mixed_<share>_<gap>."""
  side = (1 - share) / 2
  low = order / side * (0.5 - gap)
  high = 0.5 + gap + (order - side - share) / side * (0.5 - gap)
  return xp.where(order <= side, low, xp.where(
      order <= side + share, 0.5, high))


# Share of zeros, location and scale of the logarithm of the rest, and the unit
# that it is rounded to, 0 for none; what is above the last counts as that.
_SURROGATES = {'earnings_surrogate': (0.35, 10.5, 1.0, 10.0, 1.1e6),
               'dividends_surrogate': (0.85, 6.5, 2.0, 0.0, 1e5)}


def _lognormal(share, location, scale, unit, upper, order, xp):
  """F^-1 of zeros and a rounded lognormal law."""
  ndtri = special.ndtri if xp is np else jax.scipy.special.ndtri
  rest = xp.maximum(order - share, 0.0) / (1 - share)
  value = xp.exp(location + scale * ndtri(rest))
  if unit:
    value = unit * xp.ceil(value / unit - 0.5)
  return xp.where(order <= share, 0.0, xp.clip(value, 0.0, upper))


def _inverted(name: str, inverse: Callable, upper: float) -> Law:
  """A law by F^-1, a function of orders and of NumPy or its twin in JAX."""
  return Law(name=name, upper=upper,
             sample=lambda key, size: inverse(
                 jax.random.uniform(key, (size,), jnp.float64), jnp),
             quantiles=lambda probs: inverse(np.asarray(probs, np.float64),
                                             np))


def empirical(name: str, found: series.Series) -> Law:
  """The law of a record of a file, drawn with replacement."""
  ordered = np.sort(found.values)

  def sample(key, size):
    place = jax.random.randint(key, (size,), 0, ordered.size)
    return jnp.asarray(ordered, jnp.float64)[place]

  def quantiles(probs):
    share = np.asarray(probs, np.float64) * ordered.size
    place = np.asarray(orders.ceil_rank(share)).astype(np.int64) - 1
    return ordered[np.clip(place, 0, ordered.size - 1)]
  return Law(name=name, sample=sample, quantiles=precision.in_float64(
      quantiles), lower=found.lower, upper=found.upper)


def keys(seed: int, name: str, num_examples: int,
         repetitions: int) -> PRNGKey:
  """Keys [R] of data sets: the same whatever is asked of them."""
  key = jax.random.fold_in(jax.random.key(seed), zlib.crc32(name.encode()))
  return jax.random.split(jax.random.fold_in(key, num_examples), repetitions)


def method_keys(of_data: PRNGKey, method: str) -> PRNGKey:
  """Keys [R] of the coins of a method on these data sets."""
  mark = zlib.crc32(method.encode())
  return jax.vmap(lambda key: jax.random.fold_in(key, mark))(of_data)


@functools.cache
def datasets(of: Law, seed: int, num_examples: int,
             repetitions: int) -> records.Records:
  """Data sets side by side: records [R, capacity], and what they share.

  Args:
    of: the law.
    seed: of all.
    num_examples: n.
    repetitions: R.
  """
  # One program for all that are small.
  length = records.capacity(max(num_examples, _SHORTEST))

  def draw(key):
    return records.of(of.sample(key, num_examples), of.lower, of.upper,
                      length).ordered
  with jax.enable_x64(True):
    found = np.asarray(jax.jit(jax.vmap(draw))(
        keys(seed, of.name, num_examples, repetitions)))
  return records.Records(found, np.int32(num_examples), np.float64(of.lower),
                         np.float64(of.upper))
