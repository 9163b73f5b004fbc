"""The object of a user's own private loop, see `private.make_private`."""

from collections.abc import Callable, Iterator
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax import tree
from dpjax.grads import inputs
from dpjax.grads.quantiles import Adaptive
from dpjax.privacy import accounting
from dpjax.sampling import Selection
from dpjax.train import loading
from dpjax.train import modules
from dpjax.train import placement
from dpjax.train import reading
from dpjax.train import requirements
from dpjax.train import sharding
from dpjax.train import used_keys
from dpjax.train import users
from dpjax.train.averaging import AverageState
from dpjax.train.budget import Budget
from dpjax.train.clip_norms import LayerNorms
from dpjax.train.plan import TrainingPlan
from dpjax.train.program import Compiled
from dpjax.train.program import compiled
from dpjax.train.program import PrivateState
from dpjax.train.program import Program
from dpjax.train.sources import Source
from dpjax.train.state import StepInfo
from dpjax.typing import Params, PRNGKey, PyTree


class Sample(NamedTuple):
  """The records of one batch; PRIVATE.

  Attributes:
    indices: [m] numbers of records in the data set; padding is 0.
    mask: [m] bool, False for padding.
  """
  indices: Any
  mask: Any


class Private:
  """Private training for a loop of the user, see `make_private`.

  Attributes:
    sampler: draws the batches.
    steps: number of steps of the plan; None for no limit.
    noise_multiplier: of each step; None for a run without noise.
    adjacency: which data sets are neighbours.
    unit: what they differ by: a 'record', or a 'user' with all their records.
    clip_norm: bounds on the gradient of a record: a number, a tree prefix of
      the parameters, `Adaptive`, or `LayerNorms`; infinity for none.
  """

  def __init__(self, budget: Budget, *, trainable: Any, donate: bool,
               mesh: jax.sharding.Mesh | None, **fields: Any):
    self.sampler = sharding.split_sampler(mesh, budget.plan.sampler)
    self.steps = budget.limit
    self.noise_multiplier = budget.plan.noise_multiplier
    self.adjacency = budget.plan.adjacency
    self.clip_norm = fields['clip_norm']
    self.unit = fields['unit']
    self._budget, self._trainable, self._donate = budget, trainable, donate
    self._mesh = mesh
    self._fields = fields  # Of `Program`.
    self._built: tuple[Program, Compiled] | None = None
    self._ahead, self._sums = reading.ReadAhead(), reading.PartSums()

  def __repr__(self) -> str:
    clip = ('adaptive' if isinstance(self.clip_norm, (Adaptive, LayerNorms))
            else self.clip_norm)
    prob = self.sampler.expected_batch_size / self.sampler.num_examples
    return (f'Private({self.adjacency.value}, unit={self.unit}, sampling_prob='
            f'{prob:.4g}, noise_multiplier='
            f'{self.noise_multiplier}, clip_norm={clip}, steps='
            f'{self._budget.total} of {self.steps or "any number"})')

  @property
  def settings(self) -> dict[str, Any]:
    """The settings that do not follow from the other attributes."""
    return self._fields | {'accountant': self._budget.accountant,
                           'strategy': self._budget.plan.strategy}

  @property
  def plan(self) -> TrainingPlan:
    """The plan of all steps; raises ValueError if their number is not limited.
    """
    if self.steps is None:
      raise ValueError('steps was not given, so there is no plan of all steps; '
                       'event and epsilon() are those of the steps so far')
    return self._budget.plan

  @property
  def event(self) -> accounting.DpEvent:
    """The event of all steps that have run so far, for an accountant."""
    return self._budget.event()

  def epsilon(self, state: PrivateState | None = None, *,
              delta: float | None = None) -> float:
    """Returns the epsilon of the steps that have run so far.

    It grows with every step, up to the epsilon that was planned. Without a
    state it covers all steps that this object has run, of all its runs.

    Args:
      state: a state of this object: only the steps that led to it count. Needed
        if the steps ran in a function that you compiled with `jax.jit`.
      delta: by default that of `make_private`.

    Raises:
      ValueError: if the number of steps is not known, if there is no delta, or
        if a step had less noise than planned.
    """
    return self._budget.epsilon(state, delta)

  def init(self, model: Any, *, key: PRNGKey | None = None) -> PrivateState:
    """Returns the state before the first step of a new run.

    Args:
      model: what the loss function takes: a pytree of arrays, such as
        `variables['params']` of Flax Linen; a module of Flax NNX; or any module
        that is a pytree, as those of Equinox are. Its arrays may be placed on
        the mesh; then the state is divided like them.
      key: typed key of all randomness of the run, used for nothing else. None
        takes a new one from the system's random source. The guarantee does not
        hold against anybody who knows or guesses the key, so
        `jax.random.key(seed)` is for research only.

    Raises:
      TypeError: if a trainable array is not of real floating numbers.
      ValueError: if nothing is trainable; if the variables of Flax Linen hold
        more than parameters; if `clip_norm` does not fit the model; if the
        optimizer adds noise, or steps by NaN at first; if a secret key was used
        before; or if there is no key in a function that JAX traces.
    """
    parts = modules.split(model, self._trainable)
    params = inputs.as_parameters(parts.params)
    program = self._build(parts, params)
    traced = _is_traced(jnp.zeros([]))
    if traced and key is None:
      raise ValueError('init in a function that JAX compiles needs a key: a '
                       'new one would be the same in every call')
    if not traced:
      self._check_optimizer(params, program.clip_norm)
    if key is None or not traced:
      key = sharding.put(self._mesh, used_keys.fresh(key, self._mesh))
    return self._functions()[1].init(*sharding.put(
        self._mesh, (params, parts.frozen), program.placed), key)

  def _build(self, parts: modules.Split, params: Params) -> Program:
    """Returns the program for a model, compiled anew only if it differs."""
    placed = placement.of_model(self._mesh, params, parts.frozen)
    # Modules of other libraries may define equality in their own way.
    if self._built is None or self._built[0].parts.static != parts.static or (
        jax.tree.flatten(self._built[0].placed) != jax.tree.flatten(placed)):
      clip_norm = self.clip_norm
      if isinstance(clip_norm, LayerNorms):
        clip_norm = clip_norm.of(parts.params)
      program = Program(
          parts=parts, sampler=self.sampler, mesh=self._mesh, placed=placed,
          noise_multiplier=self.noise_multiplier,
          strategy=self._budget.plan.strategy,
          **self._fields | {'clip_norm': clip_norm})
      self._built = program, compiled(
          program, program.layout(params, parts.frozen), donate=self._donate)
    return self._built[0]

  def _functions(self) -> tuple[Program, Compiled]:
    if self._built is None:
      raise ValueError('call init(model) first, also before a state that was '
                       'saved is restored: it says what the model is')
    return self._built

  def _check_optimizer(self, params: Params, clip_norm: Any) -> None:
    """Checks optimiser and clip norms for parameters of these shapes."""
    requirements.check_no_privatizer(params, self._fields['optimizer'])
    requirements.check_first_update(params, self._fields['optimizer'])
    blocks = clip_norm.init if isinstance(clip_norm, Adaptive) else clip_norm
    try:
      tree.blocks(blocks, params)
    except ValueError as error:
      raise ValueError(
          'clip_norm must be a number or a tree prefix of the parameters, such '
          f'as {{layer: number}}: {errors.one_line(error)}') from error

  def step(self, state: PrivateState,
           records: PyTree | loading.Load | Source
           ) -> tuple[PrivateState, StepInfo]:
    """Makes one step: samples, clips, sums, adds noise, and optimises.

    In a function that JAX compiles, a step beyond the plan changes nothing, and
    its info is all zero; anywhere else it raises.

    Args:
      state: from `init` or from the last step.
      records: all records, a tree of arrays [n, ...], such as
        `{'ids': ids, 'mask': mask}` or `(images, labels)`. Arrays of NumPy stay
        on the host, and only the batch is copied to the device. Or a function
        that returns the records with the numbers [k] that it is given, in
        order, as such a tree of [k, ...]. Record i must be the same in every
        step. A record with NaN contributes zero. Or a `sources.source`, whose
        records are read in a thread before the steps that need them; what
        reading raises is raised by the step concerned. With unit = 'user', what
        `users.by_user` returns: users take the place of records.

    Returns:
      (next state, diagnostics, of which some are PRIVATE).

    Raises:
      ValueError: if the steps of the plan are spent; if a state is used again;
        if there are not n records; if the loss function does not fit (see
        `losses.of_record`). Nothing is spent then.
    """
    if isinstance(records, Source):
      loading.check_size(len(records), self.sampler.num_examples,
                         'num_examples of make_private')
    elif not callable(records):
      records = loading.checked(records, self.sampler.num_examples,
                                'the num_examples of make_private')
    elif isinstance(records, users.UserRecords):
      records.check_size(self.sampler.num_examples)
    program, functions = self._functions()
    if _is_traced(state.step):
      self._check_traceable()
      arrays = _without_loading(records)
      return self._traced(
          lambda state: program.whole_step(state, arrays), state)
    place = self._budget.check(state)
    placed = functools.partial(sharding.put, self._mesh)
    if isinstance(records, Source):
      after, info = self._step_by_parts(state, self._ahead.batch(
          place.run, place.done, records,
          lambda: self._reader(state, place.done, records)))
    elif (load := loading.loader(records)) is not None:
      after, info = self._step_by_parts(state, reading.parts(
          load, self._numbers(state), self.sampler.part_size))
    elif self.sampler.on_host:
      after, info = functions.step(state, placed(records),
                                   self._selection(state))
    else:
      after, info = functions.step(state, placed(records), None)
    self._budget.add(place, after)
    return after, info

  def sample(self, state: PrivateState) -> Sample:
    """Returns the numbers of the records of the next batch; PRIVATE.

    It is for a loop that loads records itself, for `update`. Called again, it
    returns the same.

    Args:
      state: from `init` or from the last step.

    Returns:
      Indices and mask [m], m a multiple of the physical batch size: as small as
      possible, or in a function that JAX compiles, enough for all records.
    """
    program, _ = self._functions()
    if _is_traced(state.step):
      self._check_traceable()
      rows, count = program.draw(state.keys.batch, state.step)
      return Sample(rows, jnp.arange(rows.shape[0]) < count)
    rows, count = self._selection(state)
    return Sample(rows, np.arange(len(rows)) < count)

  def update(self, state: PrivateState,
             batch: PyTree) -> tuple[PrivateState, StepInfo]:
    """Makes one step with records that were loaded by `sample`.

    Args:
      state: the state that `sample` got.
      batch: the records with the numbers `sample(state).indices`, in order, a
        tree of arrays [m, ...]; rows that its mask leaves out are not read.

    Returns:
      See `step`. In a function that JAX compiles, a batch that was cut off
      makes all parameters NaN, because it may not be used.

    Raises:
      ValueError: see `step`; or if `batch` has fewer rows than the sample.
    """
    rows = jax.tree.leaves(batch)[0].shape[0]
    size = self.sampler.part_size
    program, functions = self._functions()
    batch = loading.checked(batch, rows, 'the number of rows of its first leaf')
    if rows % size or rows == 0:
      raise ValueError(f'a batch must have a multiple of {size} rows, those of '
                       f'sample(state).indices; got {rows}')
    if _is_traced(state.step):
      self._check_traceable()
      return self._traced(
          lambda state: program.loaded_step(state, batch), state)
    place = self._budget.check(state)
    selection = self._selection(state, rows)
    after, info = functions.update(
        state, sharding.put(self._mesh, batch), selection)
    self._budget.add(place, after)
    return after, info

  def model(self, state: PrivateState, *, average: bool = False) -> Any:
    """Returns the model with the parameters of a state, as `init` took it.

    Args:
      state: from `init` or from a step.
      average: whether to take the average of the parameters over the steps, as
        `make_private` was asked to keep it. It costs no privacy.

    Raises:
      ValueError: if no average is kept.
    """
    params, kept = state.params, state.average
    if average:
      if not isinstance(kept, AverageState):
        raise ValueError("no average is kept: give average='ema' or 'polyak' "
                         'to make_private')
      params = kept.mean
    return self._functions()[0].parts.rebuild(params, state.frozen, None)

  def _numbers(self, state: PrivateState) -> np.ndarray:
    """Returns the numbers of the records of the next batch, on the host."""
    return reading.drawn(self.sampler, self._functions()[1].draw,
                         state.keys.batch, int(state.step))

  def _reader(self, state: PrivateState, step: int,
              source: Source) -> reading.Reader:
    """Returns a reader of the batches from the next one on."""
    # A copy, because a step may donate the state and its keys.
    key = sharding.put(self._mesh, jax.random.wrap_key_data(
        jnp.asarray(np.array(jax.random.key_data(state.keys.batch))),
        impl=jax.random.key_impl(state.keys.batch)))
    return reading.Reader(
        functools.partial(reading.drawn, self.sampler,
                          self._functions()[1].draw, key),
        source.load, size=self.sampler.part_size, steps=(step, self.steps),
        ahead=source.read_ahead)

  def _selection(self, state: PrivateState, num_rows: int | None = None
                 ) -> Selection:
    """Returns the next batch in rows of whole parts, on the host.

    Args:
      state: before the step.
      num_rows: a multiple of the rows of a part; None for the least one.

    Raises:
      ValueError: if there are fewer rows than records.
    """
    return reading.selection(self._numbers(state), self.sampler.part_size,
                             num_rows)

  def _step_by_parts(self, state: PrivateState, batch: Iterator[reading.Part]
                     ) -> tuple[PrivateState, StepInfo]:
    """Makes one step on records that are loaded part by part."""
    functions = self._functions()[1]
    total, count = self._sums.total(
        batch, zeros=lambda: functions.no_sums(state),
        add=lambda total, data: functions.add(state, total, *data),
        place=functools.partial(sharding.place_rows, self._mesh))
    return functions.finish(state, total, count)

  def _check_traceable(self) -> None:
    """Raises if batches cannot be drawn in a function that JAX compiles."""
    if self.sampler.on_host:
      raise ValueError(
          f'batches from {self.sampler.num_examples} records are drawn on the '
          'host, so step, sample and update cannot be called in a function '
          'that JAX compiles: call them outside; step and update are compiled')

  def _traced(self, run: Callable[[PrivateState],
                                  tuple[PrivateState, StepInfo]],
              state: PrivateState) -> tuple[PrivateState, StepInfo]:
    """Makes a step in a function of the user; beyond the plan, none."""
    self._budget.traced = True
    if self.steps is None:
      return run(state)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
                           jax.eval_shape(run, state)[1])
    return jax.lax.cond(state.step < self.steps, run,
                        lambda state: (state, nothing), state)


def _is_traced(value: Any) -> bool:
  return isinstance(value, jax.core.Tracer)


def _without_loading(records: Any) -> PyTree:
  """Returns arrays of JAX; a function of the user cannot be called."""
  if callable(records) or isinstance(records, Source):
    raise ValueError('a function that loads records cannot run in a function '
                     'that JAX compiles: give all records, or use sample and '
                     'update')
  return jax.tree.map(jnp.asarray, records)
