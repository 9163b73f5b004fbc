"""Audit targets: a release, its claim, and pairs of neighbouring data sets.

A target may also declare its output distribution (probabilities of outcomes, or
a density), its noise, or the query that it answers. Each declaration allows a
sharper check; none is required.
"""

from collections.abc import Callable, Sequence
import contextlib
import dataclasses
import functools
import itertools
import operator
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dpjax import errors
from dpjax.audit import claims
from dpjax.audit import curves
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import PRNGKey, PyTree

# Most data sets, runs of each, and released numbers, of a compiled batch.
_DATA_SETS, _RUNS = 32, 256
_NUMBERS = 2**22

Release = Callable[[PRNGKey, PyTree], PyTree]
"""(key, data) -> a pytree of released arrays."""


class Pair(NamedTuple):
  """Two data sets that are neighbours under the adjacency of the claim.

  Attributes:
    data: one data set.
    neighbour: the other data set; its arrays may have other shapes.
    what: description of their difference.
    records: both data sets before their conversion to what `release` takes, for
      the space that made them; None if there is no conversion.
  """
  data: PyTree
  neighbour: PyTree
  what: str = ''
  records: tuple[Any, Any] | None = None


class Space(Protocol):
  """The legal data sets of a target, see `spaces`."""

  @property
  def adjacency(self) -> Adjacency:
    """Which data sets are neighbours."""

  def pairs(self) -> tuple[Pair, ...]:
    """Lists structured pairs of neighbours, most promising first."""

  def mutated(self, rng: np.random.Generator, pair: Pair) -> Pair:
    """Returns a random change of a pair, which is again one of neighbours."""


class Query(NamedTuple):
  """The function of the data that a release adds noise to.

  Attributes:
    value: function of a data set that returns an array without noise.
    sensitivity: claimed bound on its change between neighbours.
    order: order of the norm of that change: 1, 2 or infinity.
  """
  value: Callable[[PyTree], ArrayLike]
  sensitivity: float
  order: float = 2


class Noise(NamedTuple):
  """The declared noise of a release, independent in all coordinates.

  Attributes:
    distribution: a frozen distribution of `scipy.stats`, continuous or on the
      integers.
    value: function of a data set that returns the array without noise.
    spacing: spacing of the public grid to which a continuous release is
      rounded; 0 if it is not rounded.
  """
  distribution: Any
  value: Callable[[PyTree], ArrayLike] = lambda data: data
  spacing: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
  """A release under audit, with its claim and what it declares.

  Attributes:
    name: name of the target in reports.
    release: function (key, data) that returns a pytree of arrays. If JAX cannot
      trace it, or it draws random numbers without the key, it is called once
      for each run. None if `sample` is given.
    claim: the privacy claim that is tested.
    pairs: neighbours that are tried; others may reveal more violations. Without
      any, those of `space`.
    space: the legal data sets, among which an audit searches further
      neighbours; None to try only `pairs`.
    log_probs: function of a data set that returns the logarithms [m] of the
      probabilities of the outcomes 0..m-1 of a release of one integer; None if
      they are not declared.
    log_density: function (data, outputs [n, ...]) that returns the logarithms
      [n] of the density of the outputs; None if it is not declared.
    noise: the declared additive noise; None if there is none.
    query: the declared query; None if there is none.
    floating_point: True if the claim covers the released floating-point numbers
      with their lowest bits; False if it covers real numbers only.
    sample: function (key, data, n) that returns the outputs of n releases, with
      leaves [n, ...]; None to map `release` over keys.
    double_precision: whether `release` is run with 64-bit types.
  """
  name: str
  release: Release | None
  claim: claims.Claim
  pairs: tuple[Pair, ...] = ()
  space: Space | None = None
  log_probs: Callable[[PyTree], ArrayLike] | None = None
  log_density: Callable[[PyTree, Any], ArrayLike] | None = None
  noise: Noise | None = None
  query: Query | None = None
  floating_point: bool = False
  sample: Callable[[PRNGKey, PyTree, int], PyTree] | None = None
  double_precision: bool = False

  def __post_init__(self) -> None:
    if self.release is None and self.sample is None:
      raise ValueError(f'{self.name} has neither release nor sample')
    if self.space is not None and (self.space.adjacency is not
                                   self.claim.adjacency):
      raise ValueError(
          f'{self.name} claims {self.claim.adjacency.value}, but its space has '
          f'neighbours under {self.space.adjacency.value}')
    if not self.pairs and self.space is not None:
      # A frozen dataclass sets its own fields like this.
      object.__setattr__(self, 'pairs', self.space.pairs())
    if not self.pairs:
      raise ValueError(f'{self.name} has no pairs of neighbours to compare')

  @functools.cached_property
  def curve(self) -> curves.PrivacyCurve:
    """Privacy curve of the claim, see `claims.curve`; computed once."""
    return claims.curve(self.claim)

  @functools.cached_property
  def traced(self) -> bool:
    """Whether runs can be mapped over keys in one compiled program."""
    if self.sample is not None or self.release is None:
      return False
    with self.types():
      return all(_can_be_traced(self.release, arrays(data))
                 for data in self.pairs[0][:2])

  def with_pairs(self, pairs: Sequence[Pair]) -> 'Target':
    """Returns the target with other pairs; it keeps its compiled programs."""
    other = dataclasses.replace(self, pairs=tuple(pairs))
    for name in ('curve', 'traced', '_side_by_side'):
      if name in self.__dict__:
        other.__dict__[name] = self.__dict__[name]
    return other

  def types(self) -> contextlib.AbstractContextManager[Any]:
    """Returns the context in which the release is run: 64-bit types or not."""
    return (jax.enable_x64(True) if self.double_precision
            else contextlib.nullcontext())

  @functools.cached_property
  def _side_by_side(self) -> Callable[[PRNGKey, PyTree], PyTree]:
    """Returns the compiled function of keys [b, r] and data sets [b].

    It is cached, since a new jitted function would be compiled again. One
    program for one data set and for many halves the time of compiling.
    """
    return jax.jit(jax.vmap(jax.vmap(self._released, (0, None))))

  @property
  def _released(self) -> Release:
    """The release function, which exists wherever there is no `sample`."""
    assert self.release is not None
    return self.release

  def draw(self, key: PRNGKey, data: PyTree, num_runs: int) -> np.ndarray:
    """Draws independent releases of a data set, as rows [num_runs, d] float64.
    """
    if self.sample is not None:
      return rows(self.sample(key, data, num_runs))
    with self.types():
      return self._mapped(key, arrays(data), num_runs)

  def draw_alike(self, key: PRNGKey, data_sets: Sequence[PyTree],
                 num_runs: int) -> list[np.ndarray | Exception]:
    """Draws releases of many data sets, all with the same keys.

    So the outputs of two data sets differ only by the influence of the data, if
    all randomness comes from the key.

    Args:
      key: determines all runs.
      data_sets: the data sets, of any shapes; those of one shape are drawn in
        one compiled program.
      num_runs: number of releases of each data set.

    Returns:
      For each data set the outputs, as rows [num_runs, d], or the error that
      its release raised.
    """
    drawn: list[np.ndarray | Exception] = [np.zeros([0, 0])] * len(data_sets)
    with self.types():
      converted = data_sets if self.sample else [arrays(data)
                                                 for data in data_sets]
      for places in _alike(converted) if self.traced else (
          [place] for place in range(len(converted))):
        outputs = self._drawn_alike(key, [converted[i] for i in places],
                                    num_runs)
        for place, output in zip(places, outputs, strict=True):
          drawn[place] = output
    return drawn

  def _drawn_alike(self, key: PRNGKey, data_sets: list[PyTree],
                   num_runs: int) -> Sequence[np.ndarray | Exception]:
    """Draws releases of data sets of one shape, see `draw_alike`."""
    try:
      if not self.traced:
        return [self.draw(key, data, num_runs) for data in data_sets]
      return self._stacked(key, data_sets, num_runs)
    # A release may reject some sizes of data sets, by any error.
    except Exception as error:
      return [error] * len(data_sets)

  def _stacked(self, key: PRNGKey, data_sets: list[PyTree],
               num_runs: int) -> list[np.ndarray]:
    """Draws releases of data sets with the same keys, in batches of one size.
    """
    sets, runs = self._batch(key, data_sets[0])
    outputs: list[np.ndarray] = []
    for start in range(0, len(data_sets), sets):
      batch = data_sets[start:start + sets]
      # Repeated up to the size of the compiled program.
      stacked = _stack(batch + batch[-1:] * (sets - len(batch)))
      blocks = []
      for number in range(-(-num_runs // runs)):
        keys = jax.random.split(jax.random.fold_in(key, number), runs)
        blocks.append(jax.tree.map(np.asarray, self._side_by_side(
            jnp.broadcast_to(keys, (sets, runs)), stacked)))
      outputs += [np.concatenate([
          rows(jax.tree.map(operator.itemgetter(place), block))
          for block in blocks])[:num_runs] for place in range(len(batch))]
    return outputs

  def _batch(self, key: PRNGKey, data: PyTree) -> tuple[int, int]:
    """Returns the numbers of data sets, and of runs of each, of a batch."""
    width = max(1, sum(leaf.size for leaf in jax.tree.leaves(
        jax.eval_shape(self._released, key, data))))
    sets = max(1, min(_DATA_SETS, _NUMBERS // width))
    return sets, max(1, min(_RUNS, _NUMBERS // (width * sets)))

  def _mapped(self, key: PRNGKey, data: PyTree, num_runs: int) -> np.ndarray:
    """Runs `release` with many keys, in compiled batches where it traces."""
    if not self.traced:
      return np.concatenate([rows(_one(self._released(k, data)))
                             for k in jax.random.split(key, num_runs)])
    # All batches have one size, since most of an audit's time is compiling.
    sets, runs = self._batch(key, data)
    stacked = _stack([data] * sets)
    blocks = []
    for number in range(-(-num_runs // (sets * runs))):
      keys = jax.random.split(jax.random.fold_in(key, number), sets * runs)
      blocks.append(rows(jax.tree.map(
          lambda leaf: np.asarray(leaf).reshape(sets * runs, *leaf.shape[2:]),
          self._side_by_side(keys.reshape(sets, runs), stacked))))
    return np.concatenate(blocks)[:num_runs]


def _stack(data_sets: list[PyTree]) -> PyTree:
  """Stacks data sets of one shape along a new first axis."""
  return jax.tree.map(lambda *leaves: jnp.stack(leaves), *data_sets)


def _alike(data_sets: Sequence[PyTree]) -> list[list[int]]:
  """Returns the positions of the data sets of each structure and shape."""
  groups: dict[Any, list[int]] = {}
  for place, data in enumerate(data_sets):
    leaves, structure = jax.tree.flatten(data)
    groups.setdefault((structure, tuple(
        (np.shape(leaf), getattr(leaf, 'dtype', type(leaf)))
        for leaf in leaves)), []).append(place)
  return list(groups.values())


def arrays(data: PyTree) -> PyTree:
  """Converts lists, NumPy arrays and numbers in a data set to JAX arrays."""
  if isinstance(data, list):
    data = np.asarray(data)

  def one(leaf: Any) -> Any:
    return jnp.asarray(leaf) if isinstance(
        leaf, (np.ndarray, np.generic, int, float, bool)) else leaf
  return jax.tree.map(one, data)


def rows(outputs: PyTree) -> np.ndarray:
  """Concatenates leaves [n, ...] to one matrix [n, d] of float64."""
  leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(outputs)]
  errors.check_at_least('released arrays', len(leaves), 1)
  return np.concatenate(
      [leaf.reshape(leaf.shape[0], -1).astype(np.float64) for leaf in leaves],
      axis=1)


def _one(output: PyTree) -> PyTree:
  """Adds an axis of length 1 in front of every leaf of an output."""
  return jax.tree.map(lambda leaf: np.asarray(leaf)[None], output)


def _can_be_traced(release: Release, data: PyTree) -> bool:
  """Returns whether two traces of a release give the same program.

  Random numbers drawn without the key would become constants of the program,
  the same in all runs; they differ between two traces.
  """
  key = jax.random.key(0)
  try:
    # Each trace needs a new function, or JAX would reuse the first trace.
    one, other = (jax.make_jaxpr(lambda *args: release(*args))(key, data)
                  for _ in range(2))
  except Exception:  # A function may raise any error when given a tracer.
    return False
  return str(one.jaxpr) == str(other.jaxpr) and all(
      np.array_equal(first, second, equal_nan=True)
      for first, second in zip(one.consts, other.consts, strict=True)
      if isinstance(first, (np.ndarray, np.generic, jax.Array)) and
      not jnp.issubdtype(first.dtype, jax.dtypes.prng_key))


def toggles(base: np.ndarray, records: np.ndarray, *,
            replace: bool) -> tuple[Pair, ...]:
  """Returns neighbouring data sets whose records are rows.

  Args:
    base: [n, ...] a data set, n >= 1.
    records: [r, ...] records. With `replace`, each pair of them replaces the
      first row of `base`; otherwise each one is added to `base`.
    replace: True for REPLACE_ONE, False for ADD_OR_REMOVE_ONE.
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
  """Returns a record as a short text."""
  return np.array2string(record, precision=3, threshold=4, edgeitems=2)
