"""Data of the curves of thesis 003, section 6.6, and curves released on them.

X_pois(lambda): every value 1..N is there as often as a Poisson variable of that
mean says (item EC-28); n, their sum, is public.
"""

from collections.abc import Sequence
import functools
import zlib

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.stats.ecdf import mechanism as mechanisms
from dpjax.typing import PRNGKey


def keys(seed: int, name: str, repetitions: int) -> PRNGKey:
  """Keys [R] of what has this name, data or coins."""
  key = jax.random.fold_in(jax.random.key(seed), zlib.crc32(name.encode()))
  return jax.random.split(key, repetitions)


@functools.partial(jax.jit, static_argnames='size')
def _poisson(keys, rate, size):
  return jax.vmap(lambda key: jax.random.poisson(key, rate, (size,)))(keys)


@functools.lru_cache(maxsize=4)
def poisson_counts(*, rate: float, num_thresholds: int, repetitions: int,
                   seed: int) -> np.ndarray:
  """Counts [R, N] float64 of R data sets, the same for all mechanisms.

  Args:
    rate: lambda, the mean of each count.
    num_thresholds: N.
    repetitions: R.
    seed: of all.
  """
  of_data = keys(seed, f'poisson/{rate!r}/{num_thresholds}', repetitions)
  return np.asarray(_poisson(of_data, jnp.float32(rate), num_thresholds),
                    np.float64)


@functools.cache
def _over_data(draw: mechanisms.Draw):
  return jax.jit(jax.vmap(draw, (0, 0, None)))


def released(mechanism: mechanisms.EcdfMechanism, counts: np.ndarray, *,
             seed: int, coins: str) -> np.ndarray:
  """Noisy ranks [R, N] float64 of R data sets, one release of each.

  Args:
    mechanism: to ask.
    counts: [R, N].
    seed: of all.
    coins: name of the noise; another name, other noise.
  """
  noise = keys(seed, f'coins/{coins}', len(counts))
  with jax.enable_x64(True):
    return np.asarray(_over_data(mechanism.draw)(
        noise, jnp.asarray(counts, jnp.float64), mechanism.parameters))


def standard_error(values: Sequence[float]) -> float:
  """Of the mean of values that are independent."""
  return float(np.std(values, ddof=1) / len(values)**0.5)
