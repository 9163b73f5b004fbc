"""Monte Carlo repetitions of an estimator on fresh records, by `vmap`."""

from collections.abc import Callable
import functools
from typing import Any
import zlib

import jax

from dpjax.typing import Array, PRNGKey, PyTree
from experiments.methods.statistics import risks

# Numbers drawn at once, which bounds memory; more are drawn in batches.
_AT_ONCE = 2**22


@functools.partial(jax.jit, static_argnames=('cost', 'estimator', 'sampler',
                                             'num_repetitions', 'size'))
def _risk(key, cost, estimator, sampler, num_repetitions, size):
  return risks.monte_carlo(cost, estimator, sampler, key=key,
                           num_repetitions=num_repetitions,
                           batch_size=max(1, _AT_ONCE // size))


def key_of(setting: Any) -> PRNGKey:
  """Returns the key of a setting; different settings have different keys."""
  return jax.random.fold_in(jax.random.key(setting.seed),
                            zlib.crc32(repr(setting).encode()))


def means(key: PRNGKey, costs: Callable[[PRNGKey, Array], PyTree],
          sampler: Callable[[PRNGKey], Array], *, num_repetitions: int,
          size: int) -> tuple[Array, Array]:
  """Returns mean and standard error of costs over data and noise, each [m].

  Args:
    key: key of all repetitions.
    costs: (key of the noise, data) -> costs [m], one for each estimate.
    sampler: key -> data.
    num_repetitions: number of repetitions, at least 2.
    size: number of values that one repetition draws, for batching.
  """
  summary = _risk(key, lambda value: value, costs, sampler,
                num_repetitions, size)
  return summary.mean, summary.standard_error
