"""Repetitions of an estimator on fresh records, all by `vmap`."""

from collections.abc import Callable
import functools
from typing import Any
import zlib

import jax

from dpjax.stats import risks
from dpjax.typing import Array, PRNGKey, PyTree

# Numbers that are drawn side by side; what is more is done in turn.
_AT_ONCE = 2**22


@functools.partial(jax.jit, static_argnames=('cost', 'estimator', 'sampler',
                                             'num_repetitions', 'size'))
def _risk(key, cost, estimator, sampler, num_repetitions, size):
  return risks.monte_carlo(cost, estimator, sampler, key=key,
                           num_repetitions=num_repetitions,
                           batch_size=max(1, _AT_ONCE // size))


def key_of(setting: Any) -> PRNGKey:
  """Returns the key of a setting; others have others."""
  return jax.random.fold_in(jax.random.key(setting.seed),
                            zlib.crc32(repr(setting).encode()))


def means(key: PRNGKey, costs: Callable[[PRNGKey, Array], PyTree],
          sampler: Callable[[PRNGKey], Array], *, num_repetitions: int,
          size: int) -> tuple[Array, Array]:
  """Mean and standard error of costs over data and coins.

  Args:
    key: of all repetitions.
    costs: (key of the coins, data) -> [m], one for each estimate in question.
    sampler: key -> data.
    num_repetitions: at least 2.
    size: numbers that one repetition draws.
  """
  found = _risk(key, lambda estimate: estimate, costs, sampler,
                num_repetitions, size)
  return found.mean, found.standard_error
