"""Distributions of records with known quantiles and public bounds, for tests.

Names: beta_<a>_<b>; mixed_<p>_<delta>, an atom of probability p at 1/2 and the
rest uniform on the points farther than delta from it; the series of
`dpjax.data.series`, sampled with replacement; earnings_surrogate and
dividends_surrogate, distributions with the atoms and tails of these series, for
use without the files (item QF-19, QF-25).
"""

from collections.abc import Callable
import dataclasses
import functools
import types
from typing import Any
import zlib

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from dpjax import errors
from dpjax.data import series
from dpjax.stats import precision
from dpjax.stats.quantile_methods import quantile_levels
from dpjax.stats.quantile_methods import records
from dpjax.typing import Array, PRNGKey

BETAS = ('beta_0.5_0.5', 'beta_1_1', 'beta_2_2', 'beta_2_5', 'beta_5_1',
         'beta_1_3')
MIXED = ('mixed_0_0', 'mixed_0.1_0.05', 'mixed_0.2_0.1', 'mixed_0.5_0.25')
FILES = ('ratings', 'pages', 'earnings', 'dividends')
SURROGATES = ('earnings_surrogate', 'dividends_surrogate')
# Data sets of at most this many records share one compiled program.
_SHORTEST = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Distribution:
  """A distribution of records, with public bounds.

  Attributes:
    name: see the module.
    sample: (key, n) -> records [n] float64; needs 64-bit types.
    quantiles: quantile levels [m] -> true quantiles F^-1 [m], on the host.
    lower: public lower bound.
    upper: public upper bound.
  """
  name: str
  sample: Callable[[PRNGKey, int], Array]
  quantiles: Callable[[np.ndarray], np.ndarray]
  lower: float = 0.0
  upper: float = 1.0


@functools.cache
def named(name: str, data_dir: str | None = None) -> Distribution:
  """Returns the distribution of this name.

  Args:
    name: see the module.
    data_dir: folder with the files of series; default $DPJAX_DATA_DIR.

  Raises:
    ValueError: if the name is unknown.
    FileNotFoundError: if a file is missing; the message says where to get it.
  """
  if name in series.SERIES:
    return empirical(name, series.load(name, data_dir=data_dir))
  if name in _SURROGATES:
    zero_prob, location, scale, unit, upper = _SURROGATES[name]
    return _inverted(name, functools.partial(
        _lognormal, zero_prob, location, scale, unit, upper), upper)
  kind, *numbers = name.split('_')
  if kind not in ('beta', 'mixed'):
    names = ('beta_2_5', 'mixed_0.5_0.1', *series.SERIES, *_SURROGATES)
    raise ValueError(
        f'distribution must be one such as {", ".join(names)}, or a column as '
        f'file.csv:COLUMN; got {name!r}{errors.did_you_mean(name, names)}')
  try:
    first, second = map(float, numbers)
  except ValueError:
    raise ValueError(f'{kind} needs two numbers, as in {kind}_1_0.5, got '
                     f'{name!r}') from None
  return (_beta if kind == 'beta' else _mixed)(name, first, second)


def _beta(name: str, first: float, second: float) -> Distribution:
  """Returns a beta distribution on [0, 1]."""
  errors.check_positive('the first number', first)
  errors.check_positive('the second number', second)
  return Distribution(
      name=name,
      sample=lambda key, size: jax.random.beta(key, first, second, (size,),
                                               jnp.float64),
      quantiles=lambda probs: special.betaincinv(first, second, probs))


def _mixed(name: str, atom_prob: float, gap: float) -> Distribution:
  """Returns an atom at 1/2 and uniform parts on both sides of a gap."""
  if not (0 <= atom_prob < 1 and 0 <= gap <= 0.5):
    raise ValueError('mixed_<p>_<delta> needs p in [0, 1) and delta in [0, '
                     f'0.5], got {name!r}')
  return _inverted(name, functools.partial(_around_atom, atom_prob, gap), 1.0)


def _around_atom(atom_prob: float, gap: float, level: Any,
                 xp: types.ModuleType) -> Any:
  """Returns F^-1 of mixed_<atom_prob>_<gap> at quantile levels [...]."""
  side = (1 - atom_prob) / 2  # Probability of either side of the atom.
  low = level / side * (0.5 - gap)
  high = 0.5 + gap + (level - side - atom_prob) / side * (0.5 - gap)
  return xp.where(level <= side, low, xp.where(
      level <= side + atom_prob, 0.5, high))


# Probability of zero; location and scale of the logarithm of the other values;
# the unit they are rounded to, 0 for none; the largest value, to which larger
# ones are clipped.
_SURROGATES = {'earnings_surrogate': (0.35, 10.5, 1.0, 10.0, 1.1e6),
               'dividends_surrogate': (0.85, 6.5, 2.0, 0.0, 1e5)}


def _lognormal(zero_prob: float, location: float, scale: float, unit: float,
               upper: float, level: Any, xp: types.ModuleType) -> Any:
  """Returns F^-1 of a rounded lognormal distribution with zeros."""
  ndtri = special.ndtri if xp is np else jax.scipy.special.ndtri
  # Level among the values other than zero; ndtri(0) is -inf, which gives 0.
  inner = xp.maximum(level - zero_prob, 0.0) / (1 - zero_prob)
  value = xp.exp(location + scale * ndtri(inner))
  if unit:
    # Halves are rounded down, which keeps F^-1 continuous from the left.
    value = unit * xp.ceil(value / unit - 0.5)
  return xp.where(level <= zero_prob, 0.0, xp.clip(value, 0.0, upper))


def _inverted(name: str, inverse: Callable[..., Any],
              upper: float) -> Distribution:
  """Returns a distribution by F^-1, a function of levels and of numpy or jnp.
  """
  return Distribution(
      name=name, upper=upper,
      sample=lambda key, size: inverse(
          jax.random.uniform(key, (size,), jnp.float64), jnp),
      quantiles=lambda probs: inverse(np.asarray(probs, np.float64), np))


def empirical(name: str, column: series.Series) -> Distribution:
  """Returns the distribution of a record drawn from a file with replacement."""
  ordered = np.sort(column.values)

  def sample(key: PRNGKey, size: int) -> Array:
    index = jax.random.randint(key, (size,), 0, ordered.size)
    return jnp.asarray(ordered, jnp.float64)[index]

  def quantiles(probs: np.ndarray) -> np.ndarray:
    product = np.asarray(probs, np.float64) * ordered.size
    # F^-1(p) is the record of rank ceil(n p), counted from 1.
    rank = np.asarray(quantile_levels.ceil_rank(product)).astype(np.int64) - 1
    return ordered[np.clip(rank, 0, ordered.size - 1)]
  return Distribution(name=name, sample=sample, quantiles=precision.in_float64(
      quantiles), lower=column.lower, upper=column.upper)


def keys(seed: int, name: str, num_examples: int,
         repetitions: int) -> PRNGKey:
  """Returns keys [R] of data sets; they do not depend on the method."""
  key = jax.random.fold_in(jax.random.key(seed), zlib.crc32(name.encode()))
  return jax.random.split(jax.random.fold_in(key, num_examples), repetitions)


def method_keys(data_keys: PRNGKey, method: str) -> PRNGKey:
  """Returns keys [R] of a method's noise, from the keys of the data sets."""
  name_hash = zlib.crc32(method.encode())
  return jax.vmap(lambda key: jax.random.fold_in(key, name_hash))(data_keys)


@functools.cache
def datasets(source: Distribution, seed: int, num_examples: int,
             repetitions: int) -> records.Records:
  """Draws R data sets: records [R, capacity], and the fields they share.

  Args:
    source: distribution of the records.
    seed: seed of all data sets.
    num_examples: n.
    repetitions: R.
  """
  # Padding small data sets to one length lets them share one program.
  length = records.capacity(max(num_examples, _SHORTEST))

  def draw(key: PRNGKey) -> Array:
    return records.of(source.sample(key, num_examples), source.lower,
                      source.upper, length).ordered
  with jax.enable_x64(True):
    ordered = np.asarray(jax.jit(jax.vmap(draw))(
        keys(seed, source.name, num_examples, repetitions)))
  return records.on_host(ordered, num_examples, source.lower, source.upper)
