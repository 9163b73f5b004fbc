"""One training step: draw, bound and sum, noise, step, constrain."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from dpjax import tree
from dpjax.grads import bounder as bounders
from dpjax.grads import inputs
from dpjax.grads import k_norm_privatizer
from dpjax.grads import lattice_privatizer
from dpjax.grads import privatizer
from dpjax.grads.bounder import GradientBounder, Method
from dpjax.models.model import Model
from dpjax.sampling import PoissonSampler, Selection
from dpjax.train import state as states
from dpjax.train.averaging import Averaging
from dpjax.train.state import StepInfo, TrainState
from dpjax.typing import Array, Batch, PRNGKey, PyTree


def make_transform(method: Method, sampler: PoissonSampler,
                   optimizer: optax.GradientTransformation, *,
                   key: PRNGKey, noise_multiplier: Array | float,
                   allocation: str, on_lattice: bool = False
                   ) -> optax.GradientTransformationExtraArgs:
  """The privatizer of `method` followed by the optimiser.

  Whatever comes second sees noisy means and public parameters only, so it is
  post-processing: Adam (REG-06), and a regulariser gamma psi(params), whose
  gradient reads no data and belongs after the noise, never into the sum that
  is clipped (LIP-0E): `optax.chain(optax.add_decayed_weights(gamma), ...)`.

  Raises:
    ValueError: if a private method is given no noise, if a method that is not
      private has adaptive radii, or if these cost more than there is.
  """
  adaptive = method.bounder.adaptive
  if method.private and method.noise_order is not None:
    first = k_norm_privatizer.k_norm_privatizer(
        key, noise_multiplier=noise_multiplier, order=method.noise_order,
        expected_batch_size=sampler.expected_batch_size)
  elif method.private:
    make = (lattice_privatizer.lattice_privatizer if on_lattice else
            privatizer.gaussian_privatizer)
    first = make(
        key, noise_multiplier=noise_multiplier, allocation=allocation,
        expected_batch_size=sampler.expected_batch_size, adaptive=adaptive)
  elif adaptive is not None:
    raise ValueError(f'{method.name} has adaptive radii, so must be private')
  else:
    first = privatizer.public_mean(sampler.expected_batch_size)
  rest = [] if method.pullback is None else [method.pullback]
  return optax.chain(first, *rest, optax.with_extra_args_support(optimizer))


def init_state(key: PRNGKey, *, model: Model, method: Method,
               transform_of: Callable, averaging: Averaging | None = None,
               init_key: PRNGKey | None = None) -> TrainState:
  """The state before the first step.

  Args:
    key: the run's key, of batches, noise and views.
    model: gives the initial parameters.
    method: its constraint is applied to them.
    transform_of: noise key -> the transform of `make_transform`.
    averaging: keep this average of the parameters.
    init_key: of the initial parameters, of any generator; None for the stream
      of `key` that is for them.
  """
  keys = states.streams(key)
  if init_key is not None:
    keys = keys._replace(init=init_key)
  params, certificate = method.constraint.constrain(
      inputs.as_parameters(model.init(keys.init)))
  adaptive = method.bounder.adaptive
  return TrainState(params, certificate, transform_of(keys.noise).init(params),
                    jnp.int32(0), keys,
                    () if adaptive is None else adaptive.init,
                    () if averaging is None else averaging.init(params))


class Ahead(NamedTuple):
  """Randomness of steps, drawn ahead: the batch and the unit noise."""
  selection: Selection
  draws: PyTree


def draw_ahead(state: TrainState, sampler: PoissonSampler, num_steps: int,
               *, noise: bool = True) -> Ahead:
  """What the next steps would draw, leaves [num_steps, ...].

  The same keys, so the same values; many steps at once cost little more than
  one. Takes (num_examples + parameters) * num_steps values of memory.

  Args:
    state: before the first of them.
    sampler: of the batches.
    num_steps: how many.
    noise: False where the noise is not Gaussian, or on a lattice, and drawn in
      its step.
  """
  steps = state.step + jnp.arange(num_steps, dtype=jnp.int32)
  keys = jax.vmap(lambda t: jax.random.fold_in(state.keys.batch, t))(steps)
  released = state.params
  if jax.tree.leaves(state.radii):
    released = state.params, state.radii
  selections = jax.vmap(sampler.draw)(keys)
  if not noise:
    return Ahead(selections, None)
  return Ahead(selections, privatizer.draw_ahead(
      state.keys.noise, state.step, num_steps, released))


def num_released(model: Model, method: Method) -> int:
  """How many values a step noises: the parameters, and radii that adapt."""
  adaptive = method.bounder.adaptive
  return tree.count((jax.eval_shape(model.init, jax.random.key(0)),
                     () if adaptive is None else adaptive.init))


def make_step(*, method: Method, sampler: PoissonSampler,
              transform_of: Callable,
              averaging: Averaging | None = None,
              moved: Callable | None = None) -> Callable:
  """Builds `step(state, records, rows, ahead)`; pure, not jitted.

  Noise scales come from the certificate of the parameters and the radii of the
  state, before the batch is read; empty batches are noised and stepped like
  any other. A batch larger than the sampler's parts is accumulated part by
  part and noised once (REG-03). The step trusts what it is given: that keys are
  new, that rows are distinct, that the network, the loss and views of one
  record do not read another is checked by `dpjax.train.loop.fit`.

  Args:
    method: bounder and constraint.
    sampler: draws the batch with the key of this step.
    transform_of: noise key -> the transform of `make_transform`.
    averaging: as given to `init_state`.
    moved: (sensitivity, sums) -> sensitivity as the privatizer takes it, to be
      reported; None where that is the bounder's.

  Returns:
    A function of the state, all records as a `Batch`, the numbers [n] of the
    training records among them, and maybe what `draw_ahead` drew for this
    step; it gives (state, info).
  """

  def step(state: TrainState, records: Batch, rows: Array,
           ahead: Ahead | None = None):
    bounder = bounders.at_radii(method.bounder, state.radii)
    sensitivity = bounder.l2_sensitivity(state.certificate)
    selection, draws = ahead or (sampler.draw(
        jax.random.fold_in(state.keys.batch, state.step)), None)

    def part_sums(positions, mask):
      part = _gather(bounder, state, records, rows, positions)
      return bounder.sums(state.params, part, mask)

    sums = sampler.sum_parts(part_sums, selection)
    updates, optimizer = transform_of(state.keys.noise).update(
        sums.total, state.optimizer, state.params, l2_sensitivity=sensitivity,
        indicators=sums.indicators, draws=draws)
    params, certificate = method.constraint.after_step(
        optax.apply_updates(state.params, updates), state.step + 1)
    if moved is not None:
      sensitivity = moved(sensitivity, sums.total)
    info = StepInfo(
        l2_sensitivity=jnp.stack(jax.tree.leaves(sensitivity)),
        joint_noise_multiplier=(optimizer[0].joint_noise_multiplier
                                if method.private else jnp.float32(jnp.inf)),
        mean_loss=sums.loss / sampler.expected_batch_size,
        batch_size=selection.count, num_nonfinite=sums.num_nonfinite,
        radii=state.radii)
    return TrainState(
        params, certificate, optimizer, state.step + 1, state.keys,
        _next_radii(method, state.radii, optimizer),
        averaging.update(state.average, params) if averaging else ()), info

  return step


def _gather(bounder: GradientBounder, state: TrainState, records: Batch,
            rows: Array, positions: Array) -> Batch:
  """The records at these positions of the training set, as views if asked.

  Views are drawn with the key of the step and the record's own position, so
  that they do not depend on who else is in the batch.
  """
  numbers = rows[positions]
  part = jax.tree.map(lambda leaf: leaf[numbers], records)
  if bounder.views is None:
    return part
  key = jax.random.fold_in(state.keys.augment, state.step)
  return part._replace(x=bounder.views(key, positions, part.x))


def _next_radii(method: Method, radii: PyTree, optimizer: PyTree) -> PyTree:
  """Moves adaptive radii by what the privatizer released, nothing else."""
  if method.bounder.adaptive is None:
    return radii
  return method.bounder.adaptive.update(radii, optimizer[0].indicators)
