"""One private step for any loss function, as pure functions.

`private.Private` compiles and counts these functions, and checks what a user
gives them.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
import optax

from dpjax import tree
from dpjax.grads import bounder as bounders
from dpjax.grads import per_example
from dpjax.grads import shards as shards_lib
from dpjax.grads import weighted
from dpjax.grads.bounder import BoundedSums
from dpjax.grads.bounder import GradientBounder
from dpjax.grads.bounder import Method
from dpjax.grads.quantiles import Adaptive
from dpjax.privacy.strategies import Strategy
from dpjax.sampling import Sampler
from dpjax.sampling import Selection
from dpjax.train import losses
from dpjax.train import modules
from dpjax.train import placement
from dpjax.train import sharding
from dpjax.train import state as states
from dpjax.train import step as steps
from dpjax.train import users
from dpjax.train.averaging import Averaging
from dpjax.train.state import StepInfo
from dpjax.train.state import Streams
from dpjax.train.state import TrainState
from dpjax.typing import Array, Batch, Params, PRNGKey, PyTree


class PrivateState(NamedTuple):
  """Everything that the next step reads; a pytree of arrays.

  Attributes:
    params: trainable arrays of the model; released.
    frozen: the other arrays of the model; public.
    optimizer: state of the privatizer and of the optimiser; holds a secret key,
      and the secret history of correlated noise.
    step: number of steps that have run, int32.
    keys: secret keys of the run.
    radii: clip norms of the next step if they adapt, else (); public.
    average: an `averaging.AverageState`; public. () if none is kept.
  """
  params: Params
  frozen: PyTree
  optimizer: PyTree
  step: Array
  keys: Streams
  radii: PyTree
  average: PyTree

  def __repr__(self) -> str:
    # The secret keys are neither printed nor logged.
    return (f'PrivateState(step={self.step}, {tree.count(self.params)} '
            'parameters)')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
  """The functions of a private step; all are pure and can be compiled.

  Attributes:
    loss: the loss function.
    unit: 'record' or 'user', see `users`.
    parts: the model that it takes.
    optimizer: any optax optimiser.
    averaging: the average of the parameters that is kept; None for none.
    sampler: draws the batches.
    mesh: devices that share the rows of a batch; None for one device.
    placed: where the arrays of the model are; None for one device.
    noise_multiplier: of each step; None for no noise.
    strategy: correlates the noise of the steps; None for independent noise.
    clip_norm: a number, a tree prefix of the parameters, `Adaptive`, or
      infinity for no clipping.
    kernel: see `per_example.KERNELS`.
  """
  loss: losses.Loss
  unit: str
  parts: modules.Split
  optimizer: optax.GradientTransformation
  averaging: Averaging | None
  sampler: Sampler
  mesh: jax.sharding.Mesh | None
  placed: placement.Placement | None
  noise_multiplier: float | None
  strategy: Strategy | None
  clip_norm: Any
  kernel: str

  def init(self, params: Params, frozen: PyTree, key: PRNGKey) -> PrivateState:
    """Returns the state before the first step of a run with this key.

    Parameters are copied, because the first step may donate them.
    """
    params, frozen = jax.tree.map(jnp.copy, (params, frozen))
    keys = states.streams(key)
    radii = (jax.tree.map(jnp.copy, self.clip_norm.init)
             if isinstance(self.clip_norm, Adaptive) else ())
    # No two leaves may be one buffer, which could not be donated twice.
    noise = jax.random.wrap_key_data(
        jnp.copy(jax.random.key_data(keys.noise)),
        impl=jax.random.key_impl(keys.noise))
    return PrivateState(params, frozen, self._transform(noise).init(params),
                        jnp.int32(0), keys, radii,
                        self.averaging.init(jax.tree.map(jnp.copy, params))
                        if self.averaging else ())

  def _transform(self, key: PRNGKey) -> optax.GradientTransformationExtraArgs:
    return steps.make_transform(
        self._method(None), self.sampler, self.optimizer, key=key,
        noise_multiplier=self.noise_multiplier or 0.0, allocation='optimal',
        strategy=self.strategy)

  def _method(self, record_loss: weighted.RecordLoss | None) -> Method:
    """Returns bounder and guarantee of a step; without a loss, no sums."""
    name, private = 'dp_sgd', self.noise_multiplier is not None
    loss: Any = record_loss
    if weighted.is_infinite(self.clip_norm):
      bounder = _plain(loss, self._shards)
    else:
      bounder = weighted.of_record_loss(loss, clip_norm=self.clip_norm,
                                        kernel=self.kernel,
                                        shards=self._shards)
    # The key of a record is made from its own number, as that of a view is.
    bounder = bounder._replace(views=lambda key, numbers, records: (
        records, losses.record_keys(key, numbers)))
    return Method(name, sharding.split_sums(self.mesh, bounder, self.placed),
                  bounders.no_constraint(), private)

  @property
  def _shards(self) -> shards_lib.Shards:
    """Which parameters are divided over the devices that share the rows."""
    return shards_lib.WHOLE if self.placed is None else self.placed.shards

  def _noise(self, state: PrivateState) -> PyTree:
    """Returns the noise of a step in parts; None if nothing is divided.

    Then the privatizer draws the same numbers.
    """
    if self.noise_multiplier is None:
      return None
    return sharding.noise_in_parts(self.placed, state.keys.noise, state.step,
                                   state.params, state.radii)

  def layout(self, params: Params, frozen: PyTree) -> tuple[Any, Any]:
    """Returns where the arrays of the state are, and those of the sums.

    Args:
      params: see `init`.
      frozen: see `init`.
    """
    whole: Any = PartitionSpec()
    if self.placed is None:
      return whole, whole
    divided = functools.partial(placement.like_params, params,
                                self.placed.params)
    state = jax.eval_shape(self.init, params, frozen, jax.random.key(0))
    return PrivateState(
        self.placed.params, self.placed.frozen, divided(state.optimizer), whole,
        whole, whole, divided(state.average)), BoundedSums(
            self.placed.params, whole, whole, whole)

  def _method_for(self, state: PrivateState, records: PyTree) -> Method:
    """Returns the method for records of these shapes."""
    return self._method(users.loss_of(
        self.loss, self.unit, self.parts, state.params, state.frozen, records))

  def whole_step(self, state: PrivateState, records: PyTree,
                 selection: Selection | None = None
                 ) -> tuple[PrivateState, StepInfo]:
    """Makes one step on all records, as a function that JAX can compile.

    Args:
      state: before the step.
      records: all records [n, ...].
      selection: the batch, if it was drawn on the host; None draws it.
    """
    numbers = jnp.arange(self.sampler.num_examples, dtype=jnp.int32)
    step = steps.make_step(method=self._method_for(state, records),
                           sampler=self.sampler, transform_of=self._transform,
                           averaging=self.averaging)
    if selection is None:
      selection = self.draw(state.keys.batch, state.step)
    after, info = step(_inner(state), Batch(records, numbers), numbers,
                       steps.Ahead(selection, self._noise(state)))
    return _outer(after, state.frozen), info

  def draw(self, key: PRNGKey, step: Array) -> Selection:
    """Returns the batch of a step, from the key of all batches of the run."""
    return steps.draw(key, step, self.sampler)

  def part(self, state: PrivateState, part: PyTree, numbers: Array,
           mask: Array) -> BoundedSums:
    """Returns the bounded sums over a part of a batch."""
    return steps.sums_of(self._method_for(state, part), _inner(state),
                         Batch(part, numbers), numbers, mask)

  def no_sums(self, state: PrivateState) -> BoundedSums:
    """Returns sums of zero, as `part` has them for no record."""
    zeros = lambda values: jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, jnp.float32), values)
    return BoundedSums(zeros(state.params), jnp.float32(0), jnp.int32(0),
                       zeros(state.radii))

  def added(self, state: PrivateState, sums: BoundedSums, part: PyTree,
            numbers: Array, mask: Array) -> tuple[BoundedSums, Array]:
    """Returns the sums with those of one part added, and a sign of the end.

    The sign is a number without meaning that is known when the sums are. The
    sums themselves cannot be waited for once a next call reuses their memory.
    """
    after = tree.add(sums, self.part(state, part, numbers, mask))
    return after, after.num_nonfinite + 0

  def finished(self, state: PrivateState, sums: BoundedSums,
               num_selected: Array) -> tuple[PrivateState, StepInfo]:
    """Adds noise to the sums of a whole batch, and optimises."""
    finish = steps.make_finish(method=self._method(None), sampler=self.sampler,
                               transform_of=self._transform,
                               averaging=self.averaging)
    after, info = finish(_inner(state), sums, num_selected, self._noise(state))
    return _outer(after, state.frozen), info

  def loaded_step(self, state: PrivateState, batch: PyTree,
                  selection: Selection | None = None
                  ) -> tuple[PrivateState, StepInfo]:
    """Makes one step on a batch [m, ...] in the order of the sample.

    Args:
      state: before the step.
      batch: records of the batch, with padding.
      selection: the batch with at least m rows; None draws it.
    """
    if selection is None:
      selection = self.draw(state.keys.batch, state.step)
    rows = jax.tree.leaves(batch)[0].shape[0]

    def part_sums(places: Array, mask: Array) -> BoundedSums:
      part = jax.tree.map(lambda leaf: leaf[places], batch)
      return self.part(state, part, selection.rows[places], mask)

    total = self.sampler.sum_parts(part_sums, Selection(
        jnp.arange(rows, dtype=jnp.int32), selection.num_selected))
    after, info = self.finished(state, total, selection.num_selected)
    # Nothing can be raised here, and a batch that was cut off may not be used.
    whole = jnp.where(selection.num_selected <= rows, 1.0, jnp.nan)
    return after._replace(params=jax.tree.map(
        lambda leaf: leaf * whole.astype(leaf.dtype), after.params)), info


class Compiled(NamedTuple):
  """The functions of a `Program`, to be compiled when they are called."""
  init: Callable[..., Any]
  step: Callable[..., Any]
  update: Callable[..., Any]
  finish: Callable[..., Any]
  no_sums: Callable[..., Any]
  add: Callable[..., Any]
  draw: Callable[..., Any]


def compiled(program: Program, layout: tuple[Any, Any], *,
             donate: bool) -> Compiled:
  """Returns the functions of a program, to be compiled when they are called.

  Args:
    program: its mesh shares the rows of a batch.
    layout: where states and sums are, see `Program.layout`.
    donate: whether a step may reuse the memory of the state before it.
  """
  (state, sums), whole = layout, PartitionSpec()
  model = (whole, whole) if program.placed is None else program.placed
  # Each device gets its rows of a part that is loaded.
  rows = (PartitionSpec(placement.AXIS),) * 3
  jit = functools.partial(sharding.jit, program.mesh)
  step = functools.partial(jit, results=(state, whole),
                           donate_argnums=(0,) if donate else ())
  return Compiled(
      init=jit(program.init, arguments=(*model, whole), results=state),
      # A batch that was drawn on the host is a third argument.
      step=step(program.whole_step, arguments=(state, whole, whole)),
      update=step(program.loaded_step, arguments=(state, whole, whole)),
      finish=step(program.finished, arguments=(state, sums, whole)),
      no_sums=jit(program.no_sums, arguments=(state,), results=sums),
      # The sums of all parts are in one memory, which each call reuses.
      add=jit(program.added, arguments=(state, sums, *rows),
              results=(sums, whole), donate_argnums=1),
      draw=jit(program.draw))


def _inner(state: PrivateState) -> TrainState:
  """Returns the state as the functions of `train.step` take it."""
  return TrainState(state.params, (), state.optimizer, state.step, state.keys,
                    state.radii, state.average)


def _outer(state: TrainState, frozen: PyTree) -> PrivateState:
  return PrivateState(state.params, frozen, state.optimizer, state.step,
                      state.keys, state.radii, state.average)


def _plain(record_loss: weighted.RecordLoss,
           shards: shards_lib.Shards) -> GradientBounder:
  """Returns the bounder of plain sums of gradients, which have no bound."""

  def apply(params: Params, records: PyTree) -> Array:
    # The gradient by the part of a parameter is the own part of the sum.
    return jax.vmap(record_loss, (None, 0))(shards.wholes(params), records)

  return GradientBounder(
      lambda params, batch, mask: per_example.plain_sums(
          apply, lambda values, _: values, params, batch, mask),
      lambda certificate: jnp.float32(jnp.inf))
