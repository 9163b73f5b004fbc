"""Tests whether releases follow the distributions that a target declares."""

from collections.abc import Iterator

import jax
import numpy as np

from dpjax.audit import exact
from dpjax.audit import noise
from dpjax.audit.target import Pair
from dpjax.audit.target import Target
from dpjax.typing import PRNGKey

_RUNS = 2**14
_PAIRS = 2
# Values of records beyond which float32 is coarser than usual noise.
_SOBER = 1e5


def p_values(key: PRNGKey, target: Target,
             num_runs: int) -> Iterator[tuple[str, float]]:
  """Yields (name, p-value) of tests of the declared distributions."""
  num_runs = min(num_runs, _RUNS)
  if target.log_probs is not None:
    for number, pair in enumerate(target.pairs[:_PAIRS]):
      draws = target.draw(jax.random.fold_in(key, number), pair.data, num_runs)
      yield 'distribution of outcomes', exact.outcome_p_value(
          draws, target.log_probs(pair.data))
  if target.noise is None:
    return
  declared = target.noise
  rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
  sober = [pair for pair in target.pairs if _is_sober(pair)] or target.pairs
  for number, pair in enumerate((sober[0], sober[-1])):
    keys = jax.random.split(jax.random.fold_in(key, 10 + number))
    scores = [
        noise.normal_scores(rng, declared, target.draw(k, data, num_runs) -
                            np.asarray(declared.value(data), np.float64
                                       ).reshape(1, -1))
        for k, data in zip(keys, pair[:2], strict=True)]
    # The other side's scores serve only to find noise that both sides share.
    for side, (first, second) in enumerate((scores, scores[::-1])):
      for name, value in noise.p_values(first, second):
        yield f'noise: {name} ({number}{"ab"[side]})', value


def _is_sober(pair: Pair) -> bool:
  """Returns whether all records are so small that floats keep their noise."""
  return all(bool(np.all(np.abs(np.asarray(leaf, np.float64)) <= _SOBER))
             for leaf in jax.tree.leaves(pair[:2]))
