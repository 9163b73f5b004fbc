"""One training step: sample, bound and sum, add noise, optimise, constrain."""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dpjax import tree
from dpjax.grads import bounder as bounders
from dpjax.grads import inputs
from dpjax.grads import k_norm_privatizer
from dpjax.grads import lattice_privatizer
from dpjax.grads import privatizer
from dpjax.grads.bounder import Method
from dpjax.models.model import Model
from dpjax.privacy.strategies import Strategy
from dpjax.sampling import Sampler
from dpjax.sampling import Selection
from dpjax.train import state as states
from dpjax.train.averaging import Averaging
from dpjax.train.state import StepInfo
from dpjax.train.state import TrainState
from dpjax.typing import Array, Batch, PRNGKey, PyTree

TransformOf = Callable[[PRNGKey], optax.GradientTransformationExtraArgs]


def make_transform(method: Method, sampler: Sampler,
                   optimizer: optax.GradientTransformation, *,
                   key: PRNGKey, noise_multiplier: Array | float,
                   allocation: str, on_lattice: bool = False,
                   strategy: Strategy | None = None,
                   shardings: PyTree | None = None
                   ) -> optax.GradientTransformationExtraArgs:
  """Returns the privatizer of `method` followed by the optimiser.

  The optimiser sees noisy means and public parameters only, so it is
  post-processing. This holds for Adam (REG-06) and for a regulariser gamma
  psi(params), whose gradient reads no data. Put a regulariser after the noise,
  as in `optax.chain(optax.add_decayed_weights(gamma), ...)`, never into the sum
  that is clipped (LIP-0E).

  Args:
    method: decides the kind of noise; `privatizer.public_mean` if non-private.
    sampler: its expected batch size is the public divisor.
    optimizer: any optax optimiser. If it takes extra arguments, it gets
      `noise_stddev`, the standard deviation of the noise on the mean gradient,
      a tree prefix of the parameters.
    key: random key of the noise; secret.
    noise_multiplier: joint multiplier of all noised blocks of a step.
    allocation: how noise is split over blocks, see `privacy.blocks`.
    on_lattice: use Gaussian noise on a lattice, not floating-point noise.
    strategy: correlates the noise of steps; None for independent noise.
    shardings: of the parameters, for noise on a lattice; floating-point noise
      of divided parameters is an argument of the update.

  Raises:
    ValueError: if a strategy is given for other than floating-point Gaussian
      noise, if a private method gets no noise, if a non-private method has
      adaptive radii, or if these cost more than the noise multiplier allows.
  """
  adaptive = method.bounder.adaptive
  if strategy is not None and (
      on_lattice or not method.private or method.noise_order is not None):
    raise ValueError('only floating-point Gaussian noise can be correlated')
  if method.private and method.noise_order is not None:
    first = k_norm_privatizer.k_norm_privatizer(
        key, noise_multiplier=noise_multiplier, order=method.noise_order,
        expected_batch_size=sampler.expected_batch_size)
  elif method.private:
    make = (functools.partial(lattice_privatizer.lattice_privatizer,
                              shardings=shardings) if on_lattice else
            functools.partial(privatizer.gaussian_privatizer,
                              strategy=strategy))
    first = make(
        key, noise_multiplier=noise_multiplier, allocation=allocation,
        expected_batch_size=sampler.expected_batch_size, adaptive=adaptive)
  elif adaptive is not None:
    raise ValueError(f'{method.name} has adaptive radii, so it needs noise')
  else:
    first = privatizer.public_mean(sampler.expected_batch_size)
  # The pull-back reads noisy gradients, so it comes after the noise.
  rest = [] if method.pullback is None else [method.pullback]
  return optax.chain(first, *rest, _knowing_noise(
      optimizer, None if strategy is not None else _noise_of_mean(
          method, sampler, noise_multiplier, allocation)))


def _noise_of_mean(method: Method, sampler: Sampler,
                   noise_multiplier: Array | float, allocation: str
                   ) -> Callable[[PyTree, PyTree], PyTree] | None:
  """Returns (sensitivity, gradients) -> standard deviations of their noise.

  The deviations are a tree prefix of the gradients. Noise on a lattice is
  larger by less than a thousandth. None if the noise of the gradients is not
  Gaussian, or depends on the parameters by a pull-back.
  """
  if method.noise_order is not None or method.pullback is not None:
    return None
  adaptive = method.bounder.adaptive

  def noise(sensitivity: PyTree, gradients: PyTree) -> PyTree:
    if not method.private:
      return jnp.float32(0)
    stddevs = privatizer.scales(sensitivity, gradients, noise_multiplier,
                                allocation, adaptive)[1]
    prefix = privatizer.as_prefix(stddevs / sampler.expected_batch_size,
                                  sensitivity, adaptive)
    return prefix if adaptive is None else prefix[0]

  return noise


def _knowing_noise(optimizer: optax.GradientTransformation,
                   noise: Callable[[PyTree, PyTree], PyTree] | None
                   ) -> optax.GradientTransformationExtraArgs:
  """Returns the optimiser with the noise of each step as an argument.

  Other arguments of the privatizer are kept from it: the sums of indicators are
  exact, so no optimiser may read them.
  """
  optimizer = optax.with_extra_args_support(optimizer)

  def update(updates: PyTree, state: PyTree, params: PyTree = None, *,
             l2_sensitivity: PyTree = None, **others: Any
             ) -> tuple[PyTree, PyTree]:
    del others
    known = ({} if noise is None or l2_sensitivity is None else
             {'noise_stddev': noise(l2_sensitivity, updates)})
    return optimizer.update(updates, state, params, **known)

  return optax.GradientTransformationExtraArgs(optimizer.init, update)


def init_state(key: PRNGKey, *, model: Model, method: Method,
               transform_of: TransformOf,
               averaging: Averaging | None = None,
               init_key: PRNGKey | None = None) -> TrainState:
  """Returns the state before the first step.

  Args:
    key: the run's key, from which the keys of batches, noise and views derive.
    model: initialises the parameters.
    method: its weight constraint is applied to the initial parameters.
    transform_of: noise key -> the transform of `make_transform`.
    averaging: keep this average of the parameters; None for none.
    init_key: for the initial parameters, of any generator; None derives it
      from `key`.
  """
  keys = states.streams(key)
  if init_key is not None:
    keys = keys._replace(init=init_key)
  params, certificate = method.constraint.constrain(
      inputs.as_parameters(model.init(keys.init)))
  adaptive = method.bounder.adaptive
  # The initial parameters are constrained too: step 1 needs a certificate.
  return TrainState(params, certificate, transform_of(keys.noise).init(params),
                    jnp.int32(0), keys,
                    () if adaptive is None else adaptive.init,
                    () if averaging is None else averaging.init(params))


class Ahead(NamedTuple):
  """Randomness of many steps, drawn before them.

  Attributes:
    selection: the sampled batches.
    draws: standard normal noise, or None if each step draws its own.
  """
  selection: Selection
  draws: PyTree


def draw_ahead(state: TrainState, sampler: Sampler, num_steps: int,
               *, noise: bool = True) -> Ahead:
  """Draws the randomness of the next steps at once, leaves [num_steps, ...].

  The values equal those that the steps would draw, because the keys are the
  same. Drawing for many steps takes little longer than for one. It needs memory
  for (num_examples + parameters) * num_steps values.

  Args:
    state: before the first of these steps.
    sampler: draws the batches.
    num_steps: number of steps.
    noise: whether to draw noise too; False if the noise is not Gaussian or is
      on a lattice, because the steps draw it then.
  """
  steps = state.step + jnp.arange(num_steps, dtype=jnp.int32)
  released = state.params
  # Adaptive radii are released too, so they need noise.
  if jax.tree.leaves(state.radii):
    released = state.params, state.radii
  selections = jax.vmap(sampler.batch, (None, 0))(state.keys.batch, steps)
  if not noise:
    return Ahead(selections, None)
  return Ahead(selections, privatizer.draw_ahead(
      state.keys.noise, state.step, num_steps, released))


def num_released(model: Model, method: Method) -> int:
  """Returns the number of noised values of a step: parameters and radii.

  Radii count only if they adapt.
  """
  adaptive = method.bounder.adaptive
  return tree.count((jax.eval_shape(model.init, jax.random.key(0)),
                     () if adaptive is None else adaptive.init))


def make_step(*, method: Method, sampler: Sampler,
              transform_of: TransformOf, averaging: Averaging | None = None,
              noised_sensitivity: Callable[[PyTree, PyTree], PyTree] | None
              = None) -> Callable[..., tuple[TrainState, StepInfo]]:
  """Returns the function `step(state, records, rows, ahead)`; pure, not jitted.

  Noise scales come from the certificate of the parameters and the radii of the
  state, not from the batch. An empty batch gets noise and an optimiser step
  like any other, because skipping it would reveal that it is empty. A batch
  larger than the sampler's parts is summed part by part and noised once
  (REG-03).

  The step does not check its arguments; `dpjax.train.loop.fit` does. Keys must
  be fresh, rows distinct, and the network, the loss and the views must not mix
  records.

  Args:
    method: bounder and weight constraint.
    sampler: draws the batch with the key of this step.
    transform_of: noise key -> the transform of `make_transform`.
    averaging: as given to `init_state`.
    noised_sensitivity: (sensitivity, sums) -> sensitivity of the noised values,
      for the `info`; None if the bounder's sensitivity is that.

  Returns:
    (state, records, rows, ahead=None) -> (state, info), where `records` are all
    records as a `Batch`, `rows` [n] the numbers of the training records, and
    `ahead` is this step's part of `draw_ahead`; with None the step draws. If
    the sampler takes all records, `rows` may be None: `records` are those of
    training, and are not copied in each step.
  """
  finish = make_finish(method=method, sampler=sampler,
                       transform_of=transform_of, averaging=averaging,
                       noised_sensitivity=noised_sensitivity)

  def step(state: TrainState, records: Batch, rows: Array | None,
           ahead: Ahead | None = None) -> tuple[TrainState, StepInfo]:
    assert rows is not None or sampler.takes_all
    selection, draws = ahead or (
        draw(state.keys.batch, state.step, sampler), None)

    def part_sums(positions: Array, mask: Array) -> bounders.BoundedSums:
      part = records if rows is None else jax.tree.map(
          lambda leaf: leaf[rows[positions]], records)
      return sums_of(method, state, part, positions, mask)

    # Parts of one batch are added up before the noise: one release (REG-03).
    sums = sampler.sum_parts(part_sums, selection)
    return finish(state, sums, selection.num_selected, draws)

  return step


def draw(key: PRNGKey, step: Array, sampler: Sampler) -> Selection:
  """Returns the batch of a step, from the key of all batches of the run."""
  return sampler.batch(key, step)


def sums_of(method: Method, state: TrainState, part: Batch, positions: Array,
            mask: Array) -> bounders.BoundedSums:
  """Returns the bounded sums over a part of the batch of a step.

  If the bounder augments, the sums are over views of the records. A view's key
  depends on the step and on the record's own position, not on the rest of the
  batch.

  Args:
    method: its bounder is used.
    state: before the step.
    part: b records.
    positions: [b] numbers of the records in the training set.
    mask: [b] bool, True for records that count.
  """
  bounder = bounders.at_radii(method.bounder, state.radii)
  if bounder.views is not None:
    # Fresh views in each step, from a stream that nothing else uses.
    key = jax.random.fold_in(state.keys.augment, state.step)
    part = part._replace(x=bounder.views(key, positions, part.x))
  return bounder.sums(state.params, part, mask)


def make_finish(*, method: Method, sampler: Sampler,
                transform_of: TransformOf, averaging: Averaging | None = None,
                noised_sensitivity: Callable[[PyTree, PyTree], PyTree] | None
                = None) -> Callable[..., tuple[TrainState, StepInfo]]:
  """Returns the part of a step that follows the sums: noise and update.

  Args: see `make_step`.

  Returns:
    (state, sums of the whole batch, its number of records, draws=None) ->
    (state, info), where `draws` is this step's part of `draw_ahead`.
  """

  def finish(state: TrainState, sums: bounders.BoundedSums, num_selected: Array,
             draws: PyTree = None) -> tuple[TrainState, StepInfo]:
    bounder = bounders.at_radii(method.bounder, state.radii)
    # From public values only, not from the batch.
    sensitivity = bounder.l2_sensitivity(state.certificate)
    # The noise key is folded with the privatizer's own count of steps.
    updates, optimizer = transform_of(state.keys.noise).update(
        sums.total, state.optimizer, state.params, l2_sensitivity=sensitivity,
        indicators=sums.indicators, draws=draws)
    params, certificate = method.constraint.after_step(
        optax.apply_updates(state.params, updates), state.step + 1)
    if noised_sensitivity is not None:
      sensitivity = noised_sensitivity(sensitivity, sums.total)
    info = StepInfo(
        l2_sensitivity=jnp.stack(jax.tree.leaves(sensitivity)),
        joint_noise_multiplier=(optimizer[0].joint_noise_multiplier
                                if method.private else jnp.float32(jnp.inf)),
        mean_loss=sums.loss / sampler.expected_batch_size,
        batch_size=num_selected, num_nonfinite=sums.num_nonfinite,
        radii=state.radii)
    return TrainState(
        params, certificate, optimizer, state.step + 1, state.keys,
        _next_radii(method, state.radii, optimizer),
        averaging.update(state.average, params) if averaging else ()), info

  return finish


def _next_radii(method: Method, radii: PyTree, optimizer: PyTree) -> PyTree:
  """Returns the next adaptive radii, from noisy counts only."""
  if method.bounder.adaptive is None:
    return radii
  # The privatizer comes first in the chain, so its state is entry 0.
  return method.bounder.adaptive.update(radii, optimizer[0].indicators)


def noised_sensitivity(method: Method, allocation: str,
                       lattice_size: int | None, multiplier: Array
                       ) -> Callable[[PyTree, PyTree], PyTree] | None:
  """Returns (sensitivity, sums) -> sensitivity of the noised values, or None.

  Rounding sums to a lattice adds to the sensitivity; `info` reports the total.
  None means that the bounder's sensitivity is already that.

  Args:
    method: its bounder may adapt.
    allocation: how noise is split over blocks, see `privacy.blocks`.
    lattice_size: number of values with noise on a lattice; None without one.
    multiplier: noise multiplier.
  """
  if lattice_size is None:
    return None
  return lambda sensitivity, sums: lattice_privatizer.on_lattice(
      sensitivity, sums, noise_multiplier=multiplier, allocation=allocation,
      adaptive=method.bounder.adaptive)[0]
