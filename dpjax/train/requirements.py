"""Checks of the arguments of `fit`, made before training starts.

Each check rejects an argument that would break the privacy guarantee or waste
the privacy budget.
"""

from collections.abc import Sequence
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpjax.grads import inputs
from dpjax.grads import isolation
from dpjax.grads import quantiles
from dpjax.grads.bounder import GradientBounder
from dpjax.grads.bounder import Method
from dpjax.grads.privatizer import PrivatizerState
from dpjax.models.model import Model
from dpjax.train import state as states
from dpjax.train import step as steps
from dpjax.train.plan import TrainingPlan
from dpjax.typing import Array, Batch, PRNGKey, PyTree


def check(keys: PRNGKey, plans: Sequence[TrainingPlan], model: Model,
          method: Method, optimizer: optax.GradientTransformation,
          records: Any, rows: Any) -> tuple[Batch, Array]:
  """Checks all arguments of a fit, and returns its (records, rows).

  Args: see `fit`.

  Returns:
    (records as a `Batch`, rows [L, n] int32).

  Raises:
    TypeError: if a parameter is not a real floating-point array.
    ValueError: if any other check of this module fails.
  """
  check_plans(plans, method, model)
  check_model(model, optimizer)
  check_optimizer(model, optimizer)
  check_keys(keys, len(plans))
  records, rows = check_records(records, rows, plans)
  check_preparation(model, records)
  check_views(method.bounder, model, records)
  return records, rows


def check_keys(keys: PRNGKey, num_runs: int) -> None:
  """Checks that no two runs would draw the same batches or the same noise.

  The difference of two noisy sums that share batches and noise has no noise; if
  the noise levels differ, it reveals the exact sum. The keys that a run derives
  from its key (`state.streams`) must also differ from all keys and derived
  keys of the other runs. `used_keys` checks keys of earlier calls of `fit`.

  Args:
    keys: random keys of the runs.
    num_runs: L.

  Raises:
    ValueError: if `keys` are not L typed keys, or if two runs have an equal key
      or derived key.
  """
  if not (_are_keys(keys) and keys.shape == (num_runs,)):
    raise ValueError(
        f'keys must be typed keys [{num_runs}], one for each plan, such as '
        f'jax.random.split(jax.random.key(seed), {num_runs}); got '
        f'{_described(keys)}')
  first_run: dict[bytes, int] = {}  # Key -> the first run that has it.
  for run, rows in enumerate(_words((keys, *states.streams_of_each(keys)))):
    for row in rows:
      other = first_run.setdefault(row.tobytes(), run)
      if other != run:
        raise ValueError(
            f'runs {other} and {run} have equal keys, or a key of one is '
            'derived from that of the other: they would share noise, and their '
            'difference would reveal exact sums of records; give each run its '
            'own key, from one jax.random.split')


def check_init_keys(init_keys: PRNGKey, keys: PRNGKey) -> None:
  """Checks that the public `init_keys` reveal no secret key.

  `init_keys` count as public. Whoever knows a key knows every key derived from
  it. So the key of a run, and its keys for batches, noise and views, must not
  be an init key or be derived from one.

  Args:
    init_keys: as given to `fit`.
    keys: random keys of the runs, already checked.

  Raises:
    ValueError: if `init_keys` are not as many typed keys as there are runs, or
      if one of them, or of the keys derived from it (`state.streams`), is
      secret.
  """
  if not (_are_keys(init_keys) and init_keys.shape == keys.shape):
    raise ValueError(
        f'init_keys must be typed keys [{keys.shape[0]}], one for each run, '
        f'got {_described(init_keys)}')
  # Keys of another generator give other random bits, even if their words agree.
  if jax.random.key_impl(init_keys) != jax.random.key_impl(keys):
    return
  derived = states.streams_of_each(keys)
  secret = _words((keys, derived.batch, derived.noise, derived.augment))
  public = _words((init_keys, *jax.vmap(states.streams)(init_keys)))
  secret_words = {row.tobytes() for rows in secret for row in rows}
  for run, rows in enumerate(public):
    if any(row.tobytes() in secret_words for row in rows):
      raise ValueError(
          f'the init_key of run {run} counts as public, but batches or noise '
          'are drawn from it, or from a key that is derived from it: take keys '
          'and init_keys from two seeds, or leave out init_keys')


def check_preparation(model: Model, records: Batch) -> None:
  """Checks that `Model.prepare` does not mix records, as standardisation does.

  It runs once on all records, before any contribution is bounded. A mean of the
  data in it would enter the gradient of every record.

  Args: see `fit`; only the shapes of `records` are read.

  Raises:
    ValueError: if the output for one record may depend on another record.
  """
  isolation.check_rows(
      lambda _, x: [leaf for leaf in jax.tree.leaves(model.prepare(x))
                    if jnp.ndim(leaf)], (), records.x, what='Model.prepare',
      remedy='Model.prepare must take each record alone, with public constants')


def check_views(bounder: GradientBounder, model: Model,
                records: Batch) -> None:
  """Checks that augmented views do not mix records, as averages of two would.

  Views may depend on the key of the step and on the number of their record, not
  on its position in the batch.

  Args:
    bounder: bounder of the method; nothing is checked if it has no views.
    model: prepares the records.
    records: only their shapes are read.

  Raises:
    ValueError: if views of a record may depend on another record, or on the
      position in the batch.
  """
  views = bounder.views
  if views is None:
    return
  x = jax.eval_shape(model.prepare, records.x)  # Views are of prepared records.
  numbers = jax.ShapeDtypeStruct(records.y.shape[:1], jnp.int32)
  isolation.check_rows(
      lambda key, rows: views(key, *rows),
      jax.eval_shape(lambda: jax.random.key(0)), (numbers, x),
      what='the views of a bounder',
      remedy='draw them for each record alone, from a key that the number of '
      'the record is folded into, as train.augment does')


def _are_keys(keys: Any) -> bool:
  """Returns whether an argument is an array of typed keys."""
  return isinstance(keys, jax.Array) and jnp.issubdtype(
      keys.dtype, jax.dtypes.prng_key)


def _words(keys: Sequence[PRNGKey]) -> np.ndarray:
  """Returns the uint32 words [L, k, w] of k arrays of keys [L]."""
  return np.stack([np.asarray(jax.random.key_data(each)) for each in keys], 1)


def _described(keys: Any) -> str:
  """Returns type and shape of an argument that is not as expected."""
  if not isinstance(keys, (jax.Array, np.ndarray)):
    return f'a {type(keys).__name__}; jnp.stack makes an array of typed keys'
  return f'{keys.dtype} {list(keys.shape)}'


def check_rows(rows: Any, *, num_runs: int, num_examples: int,
               num_records: int) -> np.ndarray:
  """Checks the rows of the runs, and returns them as [L, n] int32.

  A record that a run lists twice would change a sum by twice the sensitivity.
  JAX would read a number beyond the last record as the last record.

  Args:
    rows: as given to `fit`.
    num_runs: L.
    num_examples: n, of the plans.
    num_records: N, the number of all records.

  Raises:
    ValueError: if `rows` are not integers [L, n], if one is not in [0, N), or
      if a run lists one twice.
  """
  rows = np.asarray(rows)
  if rows.shape != (num_runs, num_examples) or rows.dtype.kind not in 'iu':
    raise ValueError(
        f'rows must be integers [{num_runs}, {num_examples}]: for each plan '
        'the numbers of the num_examples records that it samples from; got '
        f'{rows.dtype} {list(rows.shape)}')
  for run, numbers in enumerate(rows):
    least, most = int(numbers.min()), int(numbers.max())
    if least < 0 or most >= num_records:
      raise ValueError(f'rows must lie in [0, {num_records}), the numbers of '
                       f'the records; run {run} has '
                       f'{least if least < 0 else most}')
    counts = np.bincount(numbers, minlength=num_records)
    if counts.max() > 1:
      record = int(counts.argmax())
      raise ValueError(
          f'rows must list a record once; run {run} has record {record} '
          f'{counts[record]} times, which would multiply the sensitivity by '
          'as much. To fill up rows, add one record of NaN features for each '
          'free place')
  return rows.astype(np.int32)


def check_records(records: Any, rows: Any, plans: Sequence[TrainingPlan]
                  ) -> tuple[Batch, Array]:
  """Checks records and rows of `fit`; returns them as (`Batch`, [L, n] int32).
  """
  records = inputs.as_batch(records)
  return records, jnp.asarray(check_rows(
      rows, num_runs=len(plans), num_examples=plans[0].sampler.num_examples,
      num_records=records.y.shape[0]))


def check_plans(plans: Sequence[TrainingPlan], method: Method,
                model: Model) -> None:
  """Checks that plans agree with each other and with the method.

  Args: see `fit`.

  Raises:
    ValueError: if there is no plan, if plans differ in more than the noise
      multiplier, if the method needs another kind of noise, if adaptive radii
      cost more than a plan allows, or if a plan with noise on a lattice is for
      another number of values than a step releases.
  """
  if not plans:
    raise ValueError('plans must hold at least one plan, got none')
  first = plans[0]
  for plan in plans:
    if dataclasses.replace(
        plan, noise_multiplier=first.noise_multiplier) != first:
      raise ValueError('plans of runs trained together may differ in their '
                       'noise multiplier only; train the others in another fit')
    if method.noise_order != plan.noise_order:
      raise ValueError(f'{method.name} needs a plan with noise_order '
                       f'{method.noise_order}, the plan has '
                       f'{plan.noise_order}')
    if method.private != (plan.noise_multiplier is not None):
      kind = 'a private' if method.private else 'a non-private'
      raise ValueError(f'{method.name} needs {kind} plan')
    adaptive = method.bounder.adaptive
    if plan.noise_multiplier is not None and adaptive is not None:
      quantiles.check_budget(plan.noise_multiplier, adaptive)
  if first.lattice_size is not None:
    released = steps.num_released(model, method)
    if released != first.lattice_size:
      raise ValueError(f'the plan pays for {first.lattice_size} values on a '
                       f'lattice, a step releases {released}')


def check_model(model: Model,
                optimizer: optax.GradientTransformation) -> None:
  """Checks the types of parameters, and that noise is not added twice.

  Args: see `fit`.

  Raises:
    TypeError: if a parameter is not a real floating-point array.
    ValueError: if the optimiser contains a privatizer.
  """
  params = inputs.as_parameters(jax.eval_shape(model.init, jax.random.key(0)))
  check_no_privatizer(params, optimizer)


def check_no_privatizer(params: PyTree,
                        optimizer: optax.GradientTransformation) -> None:
  """Checks that an optimiser for parameters of these shapes adds no noise."""
  state = jax.eval_shape(optimizer.init, params)
  nodes = jax.tree.leaves(
      state, is_leaf=lambda node: isinstance(node, PrivatizerState))
  if any(isinstance(node, PrivatizerState) for node in nodes):
    raise ValueError(
        'the optimizer has a privatizer in it, but the privatizer is added in '
        'front of the optimizer; give the optimizer alone')


def check_optimizer(model: Model,
                    optimizer: optax.GradientTransformation) -> None:
  """Checks that the optimiser's first step is finite.

  Otherwise a learning rate of NaN or infinity would be noticed only after the
  privacy budget is spent. Of a schedule only the first value is checked. An
  optimiser whose update needs more than gradients and parameters is not tried.

  Args: see `fit`.

  Raises:
    ValueError: if the updates for finite gradients are not finite.
  """
  check_first_update(inputs.as_parameters(jax.eval_shape(
      model.init, jax.random.key(0))), optimizer)


def check_first_update(shapes: PyTree,
                       optimizer: optax.GradientTransformation) -> None:
  """Checks `check_optimizer` for parameters of these shapes."""
  # Repeated to fill every leaf; only that they are finite matters.
  drawn = np.random.default_rng(0).normal(size=997)

  def filled(leaf: Any) -> Any:
    values = np.resize(drawn, leaf.shape).astype(leaf.dtype)
    # No device may have memory for all of the parameters.
    where = getattr(leaf, 'sharding', None)
    return values if where is None or where.is_fully_replicated else (
        jax.device_put(values, where))

  gradients = jax.tree.map(filled, shapes)

  def finite(gradients: PyTree) -> PyTree:
    updates, _ = optax.with_extra_args_support(optimizer).update(
        gradients, optimizer.init(gradients), gradients,
        noise_stddev=jnp.float32(0))
    return jax.tree.map(lambda leaf: jnp.all(jnp.isfinite(leaf)), updates)

  # Compile fast, not well: the function runs once.
  options: dict[str, Any] = {'xla_backend_optimization_level': 0}
  try:
    lowered = jax.jit(finite).lower(gradients)
  except TypeError:
    return
  passed = lowered.compile(
      options if jax.default_backend() == 'cpu' else None)(gradients)
  failed = [jax.tree_util.keystr(path) or 'the root' for path, good in
            jax.tree_util.tree_leaves_with_path(passed) if not good]
  if failed:
    raise ValueError(
        'the optimizer steps by NaN or infinity for finite gradients, at '
        f'{failed[0]}: its learning rate, or the first value of its schedule, '
        'must be finite')
