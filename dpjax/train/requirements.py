"""Refuses what a fit would otherwise take on trust, before it trains."""

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
from dpjax.grads.bounder import GradientBounder, Method
from dpjax.grads.privatizer import PrivatizerState
from dpjax.models.model import Model
from dpjax.train import state as states
from dpjax.train import step as steps
from dpjax.train.plan import TrainingPlan
from dpjax.typing import Array, Batch, PRNGKey


def check(keys: PRNGKey, plans: Sequence[TrainingPlan], model: Model,
          method: Method, optimizer: optax.GradientTransformation,
          records: Any, rows: Any) -> tuple[Batch, Array]:
  """Returns (records, rows) of a fit, once all that it is given is checked.

  Args: as of `fit`.

  Raises:
    TypeError: if a parameter is not a real floating number.
    ValueError: if another of the checks below fails.
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
  """Refuses keys that would give two runs the same batches or the same noise.

  The difference of two noisy sums that share noise and batches has no noise:
  at two noise levels it gives the exact sum away. The streams of a run, which
  are derived from its key, must differ from all keys and streams of the others
  as well. Keys that another call of `fit` has used are not seen here, see
  `used_keys`.

  Args:
    keys: of the runs.
    num_runs: L.

  Raises:
    ValueError: if they are not L typed keys, or if any of them or of their
      streams are equal.
  """
  if not (_are_keys(keys) and keys.shape == (num_runs,)):
    raise ValueError(
        f'keys must be typed keys [{num_runs}], one for each plan, such as '
        f'jax.random.split(jax.random.key(seed), {num_runs}); got '
        f'{_described(keys)}')
  first = {}
  for run, rows in enumerate(_words((keys, *jax.vmap(states.streams)(keys)))):
    for row in rows:
      other = first.setdefault(row.tobytes(), run)
      if other != run:
        raise ValueError(
            f'runs {other} and {run} have equal keys, or a key of one is '
            'derived from that of the other: they would share noise, and their '
            'difference would give exact sums of records away; give each run a '
            'key of its own, from one jax.random.split')


def check_init_keys(init_keys: PRNGKey, keys: PRNGKey) -> None:
  """Refuses public keys of initial parameters that tell of the secret keys.

  Initial parameters are made of `init_keys`, which count as public. Whoever
  knows a key knows all that is derived from it, so neither a key of a run nor
  a stream of batches, noise or views may be one of them or derived from one.

  Args:
    init_keys: as given to `fit`.
    keys: of the runs, checked.

  Raises:
    ValueError: if they are not as many typed keys as there are runs, or if one
      of them, or what `state.streams` derives from one, is secret.
  """
  if not (_are_keys(init_keys) and init_keys.shape == keys.shape):
    raise ValueError(
        f'init_keys must be typed keys [{keys.shape[0]}], one for each run, '
        f'got {_described(init_keys)}')
  if jax.random.key_impl(init_keys) != jax.random.key_impl(keys):
    return
  secret = jax.vmap(states.streams)(keys)
  secret = _words((keys, secret.batch, secret.noise, secret.augment))
  public = _words((init_keys, *jax.vmap(states.streams)(init_keys)))
  known = {row.tobytes() for rows in secret for row in rows}
  for run, rows in enumerate(public):
    if any(row.tobytes() in known for row in rows):
      raise ValueError(
          f'the init_key of run {run} counts as public, and it is a key that '
          'batches or noise are drawn of, or such a key is derived from it: '
          'take keys and init_keys from two seeds, or leave out init_keys')


def check_preparation(model: Model, records: Batch) -> None:
  """Refuses a `Model.prepare` that mixes records, such as standardisation.

  It runs once on all records, before any is bounded: a mean of the data in it
  would reach every gradient.

  Args:
    model: as given to `fit`.
    records: the same, of which the shapes are read.

  Raises:
    ValueError: if what it gives for a record changes with another one.
  """

  isolation.check_rows(
      lambda _, x: [leaf for leaf in jax.tree.leaves(model.prepare(x))
                    if jnp.ndim(leaf)], (), records.x, what='Model.prepare',
      remedy='Model.prepare must take each record alone, with public constants')


def check_views(bounder: GradientBounder, model: Model,
                records: Batch) -> None:
  """Refuses augmented views that mix records, such as averages of two.

  Views may depend on the key of the step and on the number of their record,
  not on its place in the batch.

  Args:
    bounder: of the method.
    model: prepares the records.
    records: of which the shapes are read.

  Raises:
    ValueError: if views of one record may change with another record, or with
      its place in the batch.
  """
  if bounder.views is None:
    return
  x = jax.eval_shape(model.prepare, records.x)
  numbers = jax.ShapeDtypeStruct(records.y.shape[:1], jnp.int32)
  isolation.check_rows(
      lambda key, rows: bounder.views(key, *rows),
      jax.eval_shape(lambda: jax.random.key(0)), (numbers, x),
      what='the views of a bounder',
      remedy='draw them for each record alone, from a key that the number of '
      'the record is folded into, as train.augment does')


def _are_keys(keys: Any) -> bool:
  return isinstance(keys, jax.Array) and jnp.issubdtype(
      keys.dtype, jax.dtypes.prng_key)


def _words(keys: Sequence[PRNGKey]) -> np.ndarray:
  """Returns the words [L, k, w] of k arrays of keys [L]."""
  return np.stack([np.asarray(jax.random.key_data(each)) for each in keys], 1)


def _described(keys: Any) -> str:
  if not isinstance(keys, (jax.Array, np.ndarray)):
    return f'a {type(keys).__name__}; jnp.stack makes an array of typed keys'
  return f'{keys.dtype} {list(keys.shape)}'


def check_rows(rows: Any, *, num_runs: int, num_examples: int,
               num_records: int) -> np.ndarray:
  """Returns rows [L, n] int32, each run's distinct and all among the records.

  A record that is listed twice moves a sum twice as far as the noise is for,
  and a number that is no record's would be taken for that of the last one.

  Args:
    rows: as given to `fit`.
    num_runs: L.
    num_examples: n, of the plans.
    num_records: N.

  Raises:
    ValueError: if they are not integers [L, n], if one is not in [0, N), or
      if one is listed twice for one run.
  """
  rows = np.asarray(rows)
  if rows.shape != (num_runs, num_examples) or rows.dtype.kind not in 'iu':
    raise ValueError(
        f'rows must be integers [{num_runs}, {num_examples}]: for each plan '
        'the numbers of as many records as it samples from; got '
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
          f'{counts[record]} times, which would move a sum that much further '
          'than the noise is for. For slots without a record add records of '
          'NaN features, one for each slot')
  return rows.astype(np.int32)


def check_records(records: Any, rows: Any, plans: Sequence[TrainingPlan]
                  ) -> tuple[Batch, Array]:
  """Returns the records as a `Batch`, and the rows of the runs, [L, n] int32.

  Args:
    records: as given to `fit`.
    rows: the same, see `check_rows`.
    plans: of the runs.
  """
  records = inputs.as_batch(records)
  return records, jnp.asarray(check_rows(
      rows, num_runs=len(plans), num_examples=plans[0].sampler.num_examples,
      num_records=records.y.shape[0]))


def check_plans(plans: Sequence[TrainingPlan], method: Method,
                model: Model) -> None:
  """Refuses plans that disagree with each other or with the method.

  Args:
    plans: of the runs.
    method: as given to `fit`.
    model: the same.

  Raises:
    ValueError: if there is none, if they differ in more than the noise
      multiplier, if the method needs other noise, or if adaptive radii cost
      more than a plan has.
  """
  if not plans:
    raise ValueError('plans must hold at least one plan, got none')
  first = plans[0]
  for plan in plans:
    if dataclasses.replace(
        plan, noise_multiplier=first.noise_multiplier) != first:
      raise ValueError('plans of runs trained together may differ in their '
                       'noise multiplier only')
    if method.noise_order != plan.noise_order:
      raise ValueError(f'{method.name} needs noise of order '
                       f'{method.noise_order}, the plan has '
                       f'{plan.noise_order}')
    if method.private != (plan.noise_multiplier is not None):
      kind = 'a private' if method.private else 'a non-private'
      raise ValueError(f'{method.name} needs {kind} plan')
    if method.private and method.bounder.adaptive is not None:
      quantiles.check_budget(plan.noise_multiplier, method.bounder.adaptive)
  if first.lattice_size is not None:
    released = steps.num_released(model, method)
    if released != first.lattice_size:
      raise ValueError(f'the plan pays for {first.lattice_size} values on a '
                       f'lattice, a step releases {released}')


def check_model(model: Model,
                optimizer: optax.GradientTransformation) -> None:
  """Refuses parameters that are no numbers, and noise that is added twice.

  Args:
    model: as given to `fit`.
    optimizer: the same.

  Raises:
    TypeError: if a parameter is not a real floating number.
    ValueError: if the optimiser has a privatizer of its own.
  """
  params = inputs.as_parameters(jax.eval_shape(model.init, jax.random.key(0)))
  state = jax.eval_shape(optimizer.init, params)
  found = jax.tree.leaves(
      state, is_leaf=lambda node: isinstance(node, PrivatizerState))
  if any(isinstance(node, PrivatizerState) for node in found):
    raise ValueError(
        'the optimizer has a privatizer in it: fit puts the privatizer of the '
        'method in front, where sums are still bounded; give the optimizer '
        'alone')


def check_optimizer(model: Model,
                    optimizer: optax.GradientTransformation) -> None:
  """Refuses an optimiser whose first step is not finite.

  A learning rate that is NaN or infinite would be noticed only after noise
  has been paid for. A schedule is asked for its first value alone. An
  optimiser that takes more than gradients and parameters is not tried.

  Args:
    model: its parameters are what is stepped.
    optimizer: as given to `fit`.

  Raises:
    ValueError: if updates are not finite for finite gradients.
  """
  shapes = inputs.as_parameters(jax.eval_shape(model.init, jax.random.key(0)))
  drawn = np.random.default_rng(0).normal(size=997)
  gradients = jax.tree.map(
      lambda leaf: np.resize(drawn, leaf.shape).astype(leaf.dtype), shapes)

  def finite(gradients):
    updates, _ = optimizer.update(gradients, optimizer.init(gradients),
                                  gradients)
    return jax.tree.map(lambda leaf: jnp.all(jnp.isfinite(leaf)), updates)

  # Any compiler option that saves time: it is run once.
  options = {'xla_backend_optimization_level': 0}
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
