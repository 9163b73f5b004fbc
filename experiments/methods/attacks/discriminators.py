"""Perceptrons that separate members from non-members by record features.

A problem is a pair of networks: a target and its shadow. Each problem has three
architectures at three learning rates. One compiled program trains all
discriminators of one architecture. Source: Lalanne (2023, section 1.3; item
MIA-03).
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from dpjax import errors
from dpjax.typing import Array, Params, PRNGKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
  """Hyperparameters for training discriminators; the defaults are MIA-03.

  Training uses Adam on the mean binary cross-entropy, without weight decay, and
  ReLU networks. The source specifies neither batch size nor activation.

  Attributes:
    hidden_widths: widths of the hidden layers, for each architecture.
    learning_rates: every architecture is trained at every one of these.
    num_epochs: passes over all records; each pass is shuffled anew.
    batch_size: records per step, or all records if there are fewer. The last,
      incomplete batch of an epoch is dropped.
  """
  hidden_widths: tuple[tuple[int, ...], ...] = ((30,), (30, 30),
                                                (100, 100, 100))
  learning_rates: tuple[float, ...] = (1e-2, 1e-3, 1e-4)
  num_epochs: int = 80
  batch_size: int = 256

  def __post_init__(self):
    errors.check_at_least('number of architectures', len(self.hidden_widths),
                          1)
    errors.check_at_least('number of learning rates',
                          len(self.learning_rates), 1)
    for width in sum(self.hidden_widths, ()):
      errors.check_at_least('hidden width', width, 1)
    for rate in self.learning_rates:
      errors.check_positive('learning rate', rate)
    errors.check_at_least('num_epochs', self.num_epochs, 1)
    errors.check_at_least('batch_size', self.batch_size, 1)

  @property
  def num_discriminators(self) -> int:
    """Returns the number D of discriminators for each problem; 9 by default."""
    return len(self.hidden_widths) * len(self.learning_rates)


class Discriminators(NamedTuple):
  """D trained discriminators for each of J problems.

  With L learning rates, discriminator a L + l has architecture a and learning
  rate l.

  Attributes:
    mean: mean of the training features, [J, F].
    scale: standard deviation of the training features, [J, F]; 1 where a
      feature is constant.
    params: parameters for each architecture, with leaves [J, L, ...].
    losses: mean loss over the batches of each epoch, [J, D, num_epochs].
  """
  mean: Array
  scale: Array
  params: tuple[Params, ...]
  losses: Array

  def logits(self, features: Array) -> Array:
    """Returns logits [J, D, m] of features [J, m, F]; positive means member."""
    return _logits(self, features)


def init(key: PRNGKey, num_features: int,
         hidden_widths: tuple[int, ...]) -> Params:
  """Draws layers (kernel, bias), uniform within fan_in^-1/2 of zero."""
  sizes = (num_features, *hidden_widths, 1)
  keys = jax.random.split(key, (len(sizes) - 1, 2))

  def layer(keys, fan_in, width):
    bound = fan_in**-0.5
    return tuple(jax.random.uniform(k, shape, minval=-bound, maxval=bound)
                 for k, shape in zip(keys, ((fan_in, width), (width,)),
                                     strict=True))

  return [layer(*each) for each in zip(keys, sizes[:-1], sizes[1:],
                                       strict=True)]


def apply(params: Params, features: Array) -> Array:
  """Returns one discriminator's logits [m] for features [m, F]."""
  *hidden, (kernel, bias) = params
  for inner, shift in hidden:
    features = jax.nn.relu(features @ inner + shift[None])
  return (features @ kernel + bias[None])[:, 0]


def batches(key: PRNGKey, num_records: int, batch_size: int) -> Array:
  """Draws one epoch's row numbers [num_steps, b], without repetition."""
  size = min(batch_size, num_records)
  steps = num_records // size
  order = jax.random.permutation(key, num_records)
  return order[:steps * size].reshape(steps, size)


def fit(key: PRNGKey, features: Array, members: Array,
        recipe: Recipe = Recipe()) -> Discriminators:
  """Trains all discriminators of all problems (MIA-03).

  Features are standardised by their own mean and standard deviation. All
  discriminators with the same architecture and problem start from the same
  parameters and see the same batches. The random draws for problem j depend
  only on the key and on j.

  Args:
    key: determines initial parameters and batches.
    features: record features, [J, m, F] float32.
    members: True for members, [J, m] bool.
    recipe: hyperparameters, see `Recipe`.

  Raises:
    ValueError: if the shapes do not match, or if there are no records.
  """
  if features.ndim != 3 or members.shape != features.shape[:2]:
    raise ValueError('features must be [J, m, F] and members [J, m], got '
                     f'{features.shape} and {members.shape}')
  errors.check_at_least('number of records', features.shape[1], 1)
  mean, scale, x = _standardise(features)
  labels = jnp.asarray(members, jnp.float32)
  fitted = [_fit(jax.random.fold_in(key, index), x, labels, widths=widths,
                 recipe=recipe)
            for index, widths in enumerate(recipe.hidden_widths)]
  params, losses = zip(*fitted, strict=True)
  return Discriminators(mean, scale, params, jnp.concatenate(losses, axis=1))


@functools.partial(jax.jit, static_argnames=('widths', 'recipe'))
def _fit(key: PRNGKey, x: Array, labels: Array, *, widths: tuple[int, ...],
         recipe: Recipe) -> tuple[Params, Array]:
  """Trains one architecture on all problems at all learning rates.

  Returns:
    Parameters, with leaves [J, L, ...], and losses [J, L, num_epochs].
  """
  rates = jnp.asarray(recipe.learning_rates, jnp.float32)

  def of_problem(number, x, labels):
    first, shuffling = jax.random.split(jax.random.fold_in(key, number))
    start = init(first, x.shape[1], widths)
    epochs = jax.random.split(shuffling, recipe.num_epochs)
    return jax.vmap(lambda rate: _descend(start, epochs, rate, x, labels,
                                          recipe.batch_size))(rates)

  return jax.vmap(of_problem)(jnp.arange(x.shape[0]), x, labels)


def _descend(params: Params, epochs: PRNGKey, rate: Array, x: Array,
             labels: Array, batch_size: int) -> tuple[Params, Array]:
  """Trains one discriminator, one epoch per key; returns it and its losses."""
  optimizer = optax.adam(rate)

  def loss(params, rows):
    return jnp.mean(optax.sigmoid_binary_cross_entropy(
        apply(params, x[rows]), labels[rows]))

  def step(state, rows):
    params, moments = state
    value, gradient = jax.value_and_grad(loss)(params, rows)
    # Optax raises a float decay to an integer power, which strict dtype
    # promotion forbids.
    with jax.numpy_dtype_promotion('standard'):
      change, moments = optimizer.update(gradient, moments)
    return (optax.apply_updates(params, change), moments), value

  def epoch(state, key):
    state, values = jax.lax.scan(step, state,
                                 batches(key, x.shape[0], batch_size))
    return state, jnp.mean(values)

  (params, _), losses = jax.lax.scan(epoch, (params, optimizer.init(params)),
                                     epochs)
  return params, losses


@jax.jit
def _logits(fitted: Discriminators, features: Array) -> Array:
  """Returns logits [J, D, m] for features [J, m, F]."""

  def of_problem(each):
    mean, scale, params, x = each
    x = (x - mean[None]) / scale[None]
    return jnp.concatenate([jax.vmap(apply, (0, None))(one, x)
                            for one in params])

  # One problem at a time: the hidden layers of all problems would not fit in
  # memory together.
  return jax.lax.map(of_problem, (*fitted[:3], features))


@jax.jit
def _standardise(features: Array) -> tuple[Array, Array, Array]:
  """Returns mean and scale [J, F], and the standardised features [J, m, F]."""
  mean = jnp.mean(features, axis=1)
  deviation = jnp.std(features, axis=1)
  scale = jnp.where(deviation > 0, deviation, 1.0)
  return mean, scale, (features - mean[:, None]) / scale[:, None]
