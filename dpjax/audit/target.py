"""What is audited: a release, its claim, and neighbours to tell apart.

Of what is known of a release beyond that, each piece allows a sharper check:
its law, exact outcome by outcome or as a density; the noise it declares; the
query it answers. None is needed.
"""

from collections.abc import Callable
import contextlib
import dataclasses
import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.audit import claims
from dpjax.audit import curves
from dpjax.typing import PRNGKey, PyTree

_BATCH = 2**13
_NUMBERS = 2**22


class Pair(NamedTuple):
  """Neighbours under the adjacency of the claim.

  Attributes:
    data: one data set.
    neighbour: another; it may have other shapes.
    what: how they differ, in words.
  """
  data: PyTree
  neighbour: PyTree
  what: str = ''


class Query(NamedTuple):
  """What a release adds noise to.

  Attributes:
    value: data -> an array, without noise.
    sensitivity: claimed bound on its change between neighbours.
    order: of the norm, 1, 2 or infinity.
  """
  value: Callable[[PyTree], Any]
  sensitivity: float
  order: float = 2


class Noise(NamedTuple):
  """What a release says of its noise: independent in all coordinates.

  Attributes:
    law: a frozen distribution of `scipy.stats`, continuous or on the integers.
    value: data -> what the noise is added to.
    spacing: of the public grid that a continuous release is rounded to; 0 for
      none.
  """
  law: Any
  value: Callable[[PyTree], Any] = lambda data: data
  spacing: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
  """A release under audit.

  Attributes:
    name: for reports.
    release: (key, data) -> pytree of arrays. If JAX cannot trace it, or it
      draws random numbers of its own, it is called once for each run.
    claim: what is said of it.
    pairs: neighbours that are tried; the audit may be blind to others.
    log_probs: data -> [m] logarithms of the probabilities of the outcomes
      0..m-1 of a release of one integer; None if unknown.
    log_density: (data, outputs [n, ...]) -> [n] logarithms of a density.
    noise: None if the noise is not additive or says nothing of itself.
    query: None if unknown.
    floating_point: whether the claim holds for what is computed, and not only
      for the real numbers that it is computed for: lowest bits count.
    sample: (key, data, n) -> outputs of n releases, leaves [n, ...], where
      there is a better way than mapping `release`.
    double_precision: whether `release` is run with 64-bit types.
  """
  name: str
  release: Callable[[PRNGKey, PyTree], PyTree] | None
  claim: claims.Claim
  pairs: tuple[Pair, ...]
  log_probs: Callable[[PyTree], Any] | None = None
  log_density: Callable[[PyTree, Any], Any] | None = None
  noise: Noise | None = None
  query: Query | None = None
  floating_point: bool = False
  sample: Callable[[PRNGKey, PyTree, int], PyTree] | None = None
  double_precision: bool = False

  def __post_init__(self):
    if self.release is None and self.sample is None:
      raise ValueError(f'{self.name} has neither release nor sample')
    if not self.pairs:
      raise ValueError(f'{self.name} has no neighbours to tell apart')

  @functools.cached_property
  def curve(self) -> curves.PrivacyCurve:
    """`claims.curve` of the claim, computed once."""
    return claims.curve(self.claim)

  @functools.cached_property
  def traced(self) -> bool:
    """Whether runs can be mapped over keys in one program."""
    with self._types():
      return self.sample is None and all(
          _can_be_traced(self.release, arrays(data))
          for data in self.pairs[0][:2])

  def _types(self) -> contextlib.AbstractContextManager:
    return (jax.enable_x64(True) if self.double_precision
            else contextlib.nullcontext())

  @functools.cached_property
  def _batched(self):
    def many(key, data, size):
      return jax.vmap(self.release, (0, None))(jax.random.split(key, size),
                                               data)
    return jax.jit(many, static_argnums=2)

  def draw(self, key: PRNGKey, data: PyTree, num_runs: int) -> np.ndarray:
    """Releases of one data set, as rows [num_runs, d] float64.

    Args:
      key: of this call; every run has one of its own.
      data: of one side of a pair.
      num_runs: of independent releases.
    """
    if self.sample is not None:
      return rows(self.sample(key, data, num_runs))
    with self._types():
      return self._mapped(key, arrays(data), num_runs)

  def _mapped(self, key: PRNGKey, data: PyTree, num_runs: int) -> np.ndarray:
    if not self.traced:
      return np.concatenate([rows(_one(self.release(k, data)))
                             for k in jax.random.split(key, num_runs)])
    width = sum(leaf.size for leaf in jax.tree.leaves(
        jax.eval_shape(self.release, key, data)))
    # Batches of one size: compiling is what an audit costs.
    size = max(1, min(_BATCH, _NUMBERS // max(width, 1)))
    batches = [rows(self._batched(jax.random.fold_in(key, number), data, size))
               for number in range(-(-num_runs // size))]
    return np.concatenate(batches)[:num_runs]


def arrays(data: PyTree) -> PyTree:
  """Data for a release: lists and NumPy arrays as arrays of JAX."""
  if isinstance(data, list):
    data = np.asarray(data)

  def one(leaf):
    return jnp.asarray(leaf) if isinstance(
        leaf, (np.ndarray, np.generic, int, float, bool)) else leaf
  return jax.tree.map(one, data)


def rows(outputs: PyTree) -> np.ndarray:
  """Leaves [n, ...] as one matrix [n, d] of float64."""
  leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(outputs)]
  errors.check_at_least('released arrays', len(leaves), 1)
  return np.concatenate(
      [leaf.reshape(leaf.shape[0], -1).astype(np.float64) for leaf in leaves],
      axis=1)


def _one(output: PyTree) -> PyTree:
  return jax.tree.map(lambda leaf: np.asarray(leaf)[None], output)


def _can_be_traced(release, data: PyTree) -> bool:
  """Not if tracing fails, or if two traces differ.

  Random numbers that are not of the key would be constants of the program.
  """
  key = jax.random.key(0)
  try:
    # A function of its own each time, or the first trace would be kept.
    one, other = (jax.make_jaxpr(lambda *args: release(*args))(key, data)
                  for _ in range(2))
  except Exception:  # Whatever a function does with a tracer that it refuses.
    return False
  return str(one.jaxpr) == str(other.jaxpr) and all(
      np.array_equal(first, second, equal_nan=True)
      for first, second in zip(one.consts, other.consts, strict=True)
      if isinstance(first, (np.ndarray, np.generic, jax.Array)) and
      not jax.dtypes.issubdtype(first.dtype, jax.dtypes.prng_key))


def toggles(base: np.ndarray, records: np.ndarray, *,
            replace: bool) -> tuple[Pair, ...]:
  """Neighbours of data sets whose records are rows.

  Args:
    base: [n, ...] a data set, n >= 1.
    records: [r, ...] that are added to it, or take the place of its first row
      one for another.
    replace: the adjacency: whether the size is public.
  """
  base, records = np.asarray(base), np.asarray(records)
  if not replace:
    return tuple(Pair(np.concatenate([record[None], base]), base,
                      f'with {_short(record)} or without')
                 for record in records)
  return tuple(
      Pair(np.concatenate([one[None], base[1:]]),
           np.concatenate([other[None], base[1:]]),
           f'{_short(one)} for {_short(other)}')
      for one, other in itertools.combinations(records, 2))


def _short(record: np.ndarray) -> str:
  return np.array2string(record, precision=3, threshold=4, edgeitems=2)
