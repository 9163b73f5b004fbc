"""Private training in the user's own loop: `make_private`.

A user brings a loss function, an optimiser and records, in any library of
models, and keeps the loop:

    private = make_private(loss_fn, optax.adam(1e-3), num_examples=60_000,
                           batch_size=512, epsilon=2.0, delta=1e-5, steps=1000)
    state = private.init(model)
    for _ in range(1000):
      state, info = private.step(state, records)

Guarantee. Let each step be as `Private.step` computes it, from records that are
the same in all steps. All states that the loop returns, and the public fields
of all infos, are together (epsilon, delta)-DP for every pair that
`Private.epsilon` returns, under the adjacency of the object, against everybody
who knows neither the key nor the history of correlated noise, which states hold
in `optimizer` and `keys`. The argument for one step:

1. The batch is drawn by the sampler, whose event the accountant charges (by
   default a `PoissonSampler`), and none of it is left out: a batch larger than
   the physical one is computed in parts, and noised once.
2. Given the parameters and the key of the step, the contribution of a record is
   a function of that record alone: its gradient is that of a function of one
   record, and its random key depends on the step and on its own number in the
   data set. Clipping bounds its l2 norm by `clip_norm`, rounding included.
3. So adding or removing a record changes the sum by at most `clip_norm`, which
   is its sensitivity (twice that under replace-one, for which the accountant
   pays). The step is a sampled Gaussian mechanism of `noise_multiplier`; with a
   strategy, all steps are one release with correlated noise, see
   `gaussian_privatizer`.
4. The division by the expected batch size, the optimiser and the next step read
   noisy values only. The composition over steps is that of `train.plan`.

If the removal of a record moves the numbers of the records after it, their
random keys are permuted. Their joint distribution stays the same, so 2 holds
for some coupling of both runs, and mixtures over keys keep the guarantee.
"""

from collections.abc import Callable
import math
from typing import Any

import jax
import optax

from dpjax import errors
from dpjax.grads import quantiles
from dpjax.grads import weighted
from dpjax.grads.quantiles import Adaptive
from dpjax.privacy.accounting import DpEvent
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.strategies import Strategy
from dpjax.sampling import Sampler
from dpjax.train import averaging as averages
from dpjax.train import clip_norms
from dpjax.train import losses
from dpjax.train import optimizers
from dpjax.train import sharding
from dpjax.train import users
from dpjax.train.averaging import Averaging
from dpjax.train.budget import Budget
from dpjax.train.plan import private_plan
from dpjax.train.plan import the_sampler
from dpjax.train.plan import TrainingPlan
from dpjax.train.user_loop import Private
from dpjax.typing import Array

# Of an adaptive clip norm: the first one, and the noise on the count of the
# gradients that are shorter, as a part of the expected batch size (Andrew et
# al., 2021).
_FIRST_CLIP, _COUNT_NOISE = 1.0, 0.05
_ADAPTIVE = ('adaptive', 'adaptive_layers')


def make_private(
    loss_fn: Callable[..., Array],
    optimizer: optax.GradientTransformation | str, *, num_examples: int,
    batch_size: float, epsilon: float | None = None,
    delta: float | None = None, steps: int | None = None,
    noise_multiplier: float | None = None, clip_norm: Any = 1.0,
    adjacency: Adjacency | str | None = None, per: str | None = None,
    trainable: Any = None, max_batch_size: int | None = None,
    kernel: str = 'bookkeeping', accountant: str = 'pld', donate: bool = False,
    learning_rate: float | None = None, schedule: str = 'constant',
    average: Averaging | str | None = None,
    mesh: jax.sharding.Mesh | None = None, sampler: Sampler | None = None,
    noise: Strategy | str = 'independent', unit: str = 'record',
    before: DpEvent | None = None) -> Private:
  """Returns private steps for the user's own loop, see the module.

  Give `epsilon`, `delta` and `steps` for the least noise that keeps this
  guarantee, or `noise_multiplier`.

  Args:
    loss_fn: (model, record) -> loss of one record, a scalar; or (model, batch)
      -> losses [b], one for each record. It may take a random key as its third
      argument, for dropout. The model is as `Private.init` got it.
    optimizer: any optax optimiser, with its schedule; it reads noisy means
      only. Or a name of `optimizers.OPTIMIZERS`: 'sgd', 'momentum', 'adam', or
      'noise_corrected_adam', whose second moment is freed of the noise.
    num_examples: public number of records n, below 2^31.
    batch_size: expected batch size; by default each record is in a batch with
      probability batch_size / n, independently of all others.
    epsilon: target for all steps. Infinity: no noise, and no guarantee.
    delta: target for all steps, in [1e-12, 1).
    steps: number of steps of the plan. Steps beyond it are refused. With
      `noise_multiplier` it may be left out: then epsilon grows without limit.
    noise_multiplier: standard deviation of the noise on the sum of gradients
      over `clip_norm` (the joint one, if there are several clip norms).
    clip_norm: bound on the l2 norm of a record's gradient: a number; a tree
      prefix of the parameters, such as {layer: number}; 'adaptive' for one that
      follows the median norm, 'adaptive_layers' for one for each layer (see
      `clipping.of_layers`); `quantiles.geometric(...)` for other adaptive ones;
      or infinity, with epsilon = infinity only.
    adjacency: 'add_or_remove_one', also for None, as in Abadi et al. (2016); or
      'replace_one'.
    per: whether `loss_fn` takes a 'record' or a 'batch'; None finds out, and
      refuses functions that could be meant in both ways.
    trainable: what is trained: for a pytree a tree prefix of booleans, for an
      `nnx.Module` a filter such as `nnx.LoRAParam`. None: all floating arrays,
      or all `nnx.Param`.
    max_batch_size: records computed at once, to save memory; larger batches are
      computed in parts and noised once. No effect on results or privacy.
    kernel: see `per_example.KERNELS`.
    accountant: 'pld' or 'rdp'.
    donate: whether a step may reuse the memory of the state before it, which
      then cannot be read any more.
    learning_rate: of an optimizer that is a name.
    schedule: of the learning rate of an optimizer that is a name: 'constant' or
      'cosine', which falls to 0 in `steps` steps.
    average: an average of the parameters over the steps, which
      `Private.model(state, average=True)` returns: 'ema', 'polyak', or any of
      `train.averaging`. It costs no privacy.
    mesh: devices that share the rows of each batch along the axis 'data', see
      `train.data_mesh`; None for one device. Parameters may be divided over all
      axes, as `Private.init` finds them. The results are the same up to
      rounding. With several processes, all make the same calls with the same
      values.
    sampler: draws the batches, see `sampling`, with the same num_examples and
      batch_size; None for Poisson batches.
    noise: 'independent' in each step, or a strategy that correlates it, such as
      `correlated.square_root(bands)`, with a `CyclicSampler`.
    unit: what neighbouring data sets differ by: a 'record'; or a 'user' with
      all their records, see `train.users`. Then n is the public number of
      users, `batch_size` and `max_batch_size` count users, `clip_norm` bounds
      the gradient of a user, and steps take `users.by_user(...)`. `loss_fn`
      stays a function of one record, or of a batch of records.
    before: event, under the same adjacency, of what was released of the same
      records before, such as that of `features.PrivateWhitening`. Epsilon and
      delta are for it and all steps together; `Private.epsilon` covers it.

  Raises:
    ValueError: if an argument is out of range, if not exactly one of epsilon
      and noise_multiplier is given, or if `before` costs all of epsilon.

  Examples:
    >>> import optax
    >>> from dpjax.train.private import make_private
    >>> def loss_fn(params, record):
    ...   x, y = record
    ...   return optax.losses.sigmoid_binary_cross_entropy(x @ params, y)
    >>> x = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    >>> records = x, (x[:, 0] > 0).astype(np.float32)
    >>> private = make_private(loss_fn, optax.sgd(1.0), num_examples=1000,
    ...                        batch_size=100, epsilon=2.0, delta=1e-5,
    ...                        steps=20)
    >>> state = private.init(jnp.zeros(3))
    >>> for _ in range(20):
    ...   state, info = private.step(state, records)
    >>> bool(jnp.argmax(state.params) == 0), round(private.epsilon(), 2)
    (True, 2.0)
  """
  plan, limited = _planned(
      epsilon, delta, steps, noise_multiplier, accountant, before=before,
      adjacency=_adjacency(adjacency), strategy=_strategy(noise, steps),
      sampler=the_sampler(sampler, num_examples=num_examples,
                          batch_size=batch_size, max_batch_size=max_batch_size))
  errors.check_choice('unit', unit, users.UNITS)
  mesh = sharding.automatic(mesh)
  sharding.check(mesh, max_batch_size)
  return Private(
      Budget(plan, limited=limited, delta=delta, accountant=accountant),
      trainable=trainable, donate=donate, mesh=mesh,
      loss=losses.declared(loss_fn, per), unit=unit, kernel=kernel,
      optimizer=_optimizer(optimizer, learning_rate, schedule, steps),
      averaging=averages.named(average), clip_norm=_clip_norm(clip_norm, plan))


def _adjacency(value: Adjacency | str | None) -> Adjacency:
  """Returns the adjacency with this name."""
  return Adjacency(Adjacency.ADD_OR_REMOVE_ONE if value is None else value)


def _strategy(noise: Strategy | str, steps: int | None) -> Strategy | None:
  """Returns the strategy; None for independent noise."""
  if isinstance(noise, str):
    errors.check_choice('noise', noise, ('independent',))
    return None
  if steps is None:
    raise ValueError('correlated noise needs steps: its privacy is that of the '
                     'whole run')
  return noise


def _planned(epsilon: float | None, delta: float | None, steps: int | None,
             noise_multiplier: float | None, accountant: str, *,
             adjacency: Adjacency, strategy: Strategy | None, sampler: Sampler,
             before: DpEvent | None) -> tuple[TrainingPlan, bool]:
  """Returns (plan, whether the number of steps is limited)."""
  if (epsilon is None) == (noise_multiplier is None):
    raise ValueError('give either epsilon (with delta and steps), from which '
                     'the noise follows, or noise_multiplier; got '
                     f'epsilon = {epsilon}, noise_multiplier = '
                     f'{noise_multiplier}')
  errors.check_choice('accountant', accountant, ('pld', 'rdp'))
  if epsilon is not None and not math.isinf(epsilon):
    if delta is None or steps is None:
      raise ValueError('epsilon needs delta and steps: noise is calibrated to '
                       f'all of them; got delta = {delta}, steps = {steps}')
    return private_plan(
        num_examples=sampler.num_examples, batch_size=sampler.batch_size,
        num_steps=steps, epsilon=epsilon, delta=delta, adjacency=adjacency,
        accountant=accountant, sampler=sampler, strategy=strategy,
        before=before), True
  if epsilon is not None:
    errors.check_choice('epsilon', str(epsilon), ('inf',))
  return TrainingPlan(
      sampler=sampler, num_steps=1 if steps is None else steps,
      noise_multiplier=noise_multiplier, adjacency=adjacency,
      strategy=strategy, before=before), steps is not None


def _clip_norm(value: Any, plan: TrainingPlan) -> Any:
  """Returns the clip norms, checked; a name becomes what it means.

  Raises:
    ValueError: if one is out of range; if gradients are not clipped, or adapt,
      where noise does not allow it.
  """
  noise = plan.noise_multiplier
  if isinstance(value, str):
    errors.check_choice('clip_norm', value, _ADAPTIVE)
    stddev = _COUNT_NOISE * plan.sampler.expected_batch_size
    layers = value == 'adaptive_layers'
    # The counts of all layers together cost what one count costs.
    value = clip_norms.adaptive(
        (), clip_norm=_FIRST_CLIP, noise_stddev=stddev, blocks='whole')
    _check_adaptive(noise, value)
    if layers:
      value = clip_norms.LayerNorms(_FIRST_CLIP, stddev)
  elif isinstance(value, Adaptive):
    _check_adaptive(noise, value)
  elif weighted.is_infinite(value):
    if noise is not None:
      raise ValueError('clip_norm = infinity bounds no gradient, so no noise '
                       'makes the run private: give a finite clip_norm, or '
                       'epsilon = infinity')
  else:
    weighted.check_clip_norms(value)
  return value


def _check_adaptive(noise_multiplier: float | None,
                    clip_norm: Adaptive) -> None:
  """Raises if there is no noise, or too little for adaptive clip norms."""
  if noise_multiplier is None:
    raise ValueError('adaptive clip norms need noise, epsilon = infinity has '
                     'none: give a number')
  quantiles.check_budget(noise_multiplier, clip_norm)


def _optimizer(given: optax.GradientTransformation | str,
               learning_rate: float | None, schedule: str, steps: int | None
               ) -> optax.GradientTransformation:
  """Returns the optimiser; the arguments are those of `make_private`."""
  if isinstance(given, str):
    if learning_rate is None:
      raise ValueError(f'optimizer = {given!r} needs a learning_rate')
    return optimizers.named(given, learning_rate, schedule=schedule,
                            num_steps=steps)
  if not isinstance(given, optax.GradientTransformation):
    raise TypeError('optimizer must be an optax optimiser or one of '
                    f'{", ".join(optimizers.OPTIMIZERS)}; got a '
                    f'{type(given).__name__}')
  if learning_rate is not None or schedule != 'constant':
    raise ValueError('learning_rate and schedule are for optimizers that are '
                     'names; an optax optimizer has its own')
  return given
