"""Perceptrons that tell members from non-members by features of records.

Three architectures at three learning rates for each problem, a pair of
networks; those of one architecture are trained by one program: MIA-03.
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
  """How discriminators are trained; defaults of MIA-03.

  Adam on the mean binary cross-entropy, without weight decay; ReLU. The batch
  size and the activation are unspecified in the source.

  Attributes:
    hidden_widths: of each architecture.
    learning_rates: each architecture is trained at every one.
    num_epochs: passes over all records, shuffled anew each time.
    batch_size: records of a step; all of them if they are fewer. What is left
      of an epoch after the last full batch is not seen in it.
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
    """D of each problem, 9 of the defaults."""
    return len(self.hidden_widths) * len(self.learning_rates)


class Discriminators(NamedTuple):
  """D trained discriminators of each of J problems.

  Discriminator a L + l has architecture a and learning rate l of L.

  Attributes:
    mean: of the features they were trained on, [J, F].
    scale: their standard deviation, 1 where they are constant, [J, F].
    params: of each architecture, leaves [J, L, ...].
    losses: mean over the batches of each epoch, [J, D, num_epochs].
  """
  mean: Array
  scale: Array
  params: tuple[Params, ...]
  losses: Array

  def logits(self, features: Array) -> Array:
    """Positive for members: [J, D, m] of features [J, m, F]."""
    return _logits(self, features)


def init(key: PRNGKey, num_features: int,
         hidden_widths: tuple[int, ...]) -> Params:
  """Layers (kernel, bias), uniform within fan_in^-1/2 of zero."""
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
  """One discriminator: features [m, F] -> logits [m]."""
  *hidden, (kernel, bias) = params
  for inner, shift in hidden:
    features = jax.nn.relu(features @ inner + shift[None])
  return (features @ kernel + bias[None])[:, 0]


def batches(key: PRNGKey, num_records: int, batch_size: int) -> Array:
  """Rows of the steps of one epoch, [num_steps, b]; none comes twice."""
  size = min(batch_size, num_records)
  steps = num_records // size
  order = jax.random.permutation(key, num_records)
  return order[:steps * size].reshape(steps, size)


def fit(key: PRNGKey, features: Array, members: Array,
        recipe: Recipe = Recipe()) -> Discriminators:
  """Trains all discriminators of all problems: MIA-03.

  Features are standardised by their own mean and deviation. Discriminators of
  one architecture and problem start alike and see the same batches. What is
  drawn for problem j depends on the key and on j alone.

  Args:
    key: of initial parameters and of batches.
    features: [J, m, F] float32.
    members: [J, m] bool.
    recipe: see `Recipe`.

  Raises:
    ValueError: of shapes that do not match, or of no records.
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
  """Parameters, leaves [J, L, ...], and losses [J, L, num_epochs]."""
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
  """One discriminator after an epoch for each key, and their losses."""
  optimizer = optax.adam(rate)

  def loss(params, rows):
    return jnp.mean(optax.sigmoid_binary_cross_entropy(
        apply(params, x[rows]), labels[rows]))

  def step(state, rows):
    params, moments = state
    value, gradient = jax.value_and_grad(loss)(params, rows)
    # Optax raises a decay, a float, to the power of an integer.
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
  """[J, D, m] of features [J, m, F]."""

  def of_problem(each):
    mean, scale, params, x = each
    x = (x - mean[None]) / scale[None]
    return jnp.concatenate([jax.vmap(apply, (0, None))(one, x)
                            for one in params])

  # One problem after the other: hidden layers of all at once would not fit.
  return jax.lax.map(of_problem, (*fitted[:3], features))


@jax.jit
def _standardise(features: Array) -> tuple[Array, Array, Array]:
  """Mean and scale [J, F], and features [J, m, F] by them."""
  mean = jnp.mean(features, axis=1)
  deviation = jnp.std(features, axis=1)
  scale = jnp.where(deviation > 0, deviation, 1.0)
  return mean, scale, (features - mean[:, None]) / scale[:, None]
