"""Attack features of a record: its label, the network's output and its slope.

The slope is s(x) = (1/e) E |R(x) - R(x + e N)| with N standard normal, taken
for each component of the output R (Lalanne 2023, section 1.3; item MIA-03).
Overfitted networks are flatter around the records they were trained on.
"""

from collections.abc import Callable
import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.grads import convolutions
from dpjax.typing import Array, PRNGKey

_OUTPUTS = {'softmax': jax.nn.softmax, 'logits': lambda logits: logits}
_LABELS = ('one_hot', 'integer')
_NORMS = ('none', 'l1')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """Options of the features that an attack computes for a record.

  The published attack leaves some of them open (item M-E08).

  Attributes:
    output: R is the 'softmax' of the logits, or the 'logits'.
    norm: 'none' keeps the c components of s, 'l1' uses their sum.
    label: encoding of the true class, 'one_hot' or 'integer'.
    exact: if True, uses the derivative along the draws, the limit of the
      difference quotient as `step` falls to 0. None uses the quotient on CPU
      and the derivative elsewhere: accelerators round matrix products too
      coarsely for a quotient, unless `jax.default_matmul_precision` is raised,
      which is slow.
    step: step e of the quotient, in units of x.
    num_draws: number of draws of N for each record.
    batch_size: number of records processed together; does not change the draws.
  """
  output: str = 'softmax'
  norm: str = 'none'
  label: str = 'one_hot'
  exact: bool | None = None
  step: float = 1e-3
  num_draws: int = 5
  batch_size: int = 500

  def __post_init__(self):
    errors.check_choice('output', self.output, _OUTPUTS)
    errors.check_choice('norm', self.norm, _NORMS)
    errors.check_choice('label', self.label, _LABELS)
    errors.check_positive('step', self.step)
    errors.check_at_least('num_draws', self.num_draws, 1)
    errors.check_at_least('batch_size', self.batch_size, 1)

  def num_features(self, num_classes: int) -> int:
    """Returns the number F of features; by default 3 c for c classes."""
    return (num_classes + (num_classes if self.label == 'one_hot' else 1) +
            (num_classes if self.norm == 'none' else 1))


class Response(NamedTuple):
  """A network's outputs for N records, and their slopes.

  Attributes:
    prediction: outputs R(x), [N, c] float32.
    sensitivity: slopes s(x), [N, c], or [N, 1] for the l1 norm.
  """
  prediction: Array
  sensitivity: Array


def respond(key: PRNGKey, predict: Callable[[Array], Array], x: Array,
            options: Options = Options()) -> Response:
  """Returns a network's outputs and how fast they change (MIA-03).

  The function is pure. For many networks of one architecture, compile it once
  as a function of their parameters: `jax.jit(lambda key, params, x:
  respond(key, lambda rows: apply(params, rows), x))`.

  Args:
    key: the draws for record i depend only on it and on i.
    predict: function of x [b, ...] that returns the logits [b, c] of one
      network in evaluation mode, each row independent of the others.
    x: records, [N, ...] float32.
    options: see `Options`.

  Raises:
    ValueError: if there are no records, or if x is not float32.
  """
  num_records = errors.check_at_least('number of records', x.shape[0], 1)
  if x.dtype != jnp.float32:
    raise ValueError(f'x must be float32, got {x.dtype}')
  x = jnp.asarray(x)
  look = convolutions.fast_in_loops(_look(predict, options))
  draw = lambda number: jax.random.normal(
      jax.random.fold_in(key, number), (options.num_draws, *x.shape[1:]))

  def batch(numbers):
    return look(x[numbers], jnp.swapaxes(jax.vmap(draw)(numbers), 0, 1))

  parts = -(-num_records // options.batch_size)
  size = -(-num_records // parts)
  # The last batch is padded with the last record.
  numbers = jnp.minimum(jnp.arange(parts * size), num_records - 1)
  responses = jax.lax.map(batch, numbers.reshape(parts, size))
  return jax.tree.map(
      lambda leaf: leaf.reshape(-1, leaf.shape[-1])[:num_records], responses)


def features(key: PRNGKey, predict: Callable[[Array], Array], x: Array,
             y: Array, num_classes: int,
             options: Options = Options()) -> Array:
  """Returns a discriminator's input for each record, [N, F] float32 (MIA-03).

  Args:
    key: see `respond`.
    predict: see `respond`.
    x: records, [N, ...] float32.
    y: true classes, [N] integers below `num_classes`.
    num_classes: number c of classes.
    options: see `Options`.

  Returns:
    The true class, the prediction and the sensitivity, concatenated in this
    order.

  Raises:
    ValueError: if the number of labels or of classes does not match; see also
      `respond`.
  """
  errors.check_records(y.shape, x.shape[0])
  seen = respond(key, predict, x, options)
  if seen.prediction.shape[1] != num_classes:
    raise ValueError(f'the network must have {num_classes} outputs, got '
                     f'{seen.prediction.shape[1]}')
  label = jnp.asarray(y, jnp.float32)[:, None]
  if options.label == 'one_hot':
    label = jax.nn.one_hot(y, num_classes, dtype=jnp.float32)
  return jnp.concatenate([label, *seen], axis=1)


def _look(predict: Callable, options: Options) -> Callable:
  """Returns a function (x [b, ...], noise [draws, b, ...]) -> Response."""
  exact = options.exact
  if exact is None:
    exact = jax.default_backend() != 'cpu'

  def output(x):
    return _OUTPUTS[options.output](predict(x).astype(jnp.float32))

  def slopes(x, noise):
    if exact:
      # One forward pass serves all draws.
      prediction, push = jax.linearize(output, x)
      return prediction, jax.vmap(push)(noise)
    with jax.default_matmul_precision('highest'):
      prediction = output(x)
      perturbed = jax.vmap(lambda n: output(x + options.step * n))(noise)
    return prediction, (prediction[None] - perturbed) / options.step

  def look(x, noise):
    prediction, change = slopes(x, noise)
    sensitivity = jnp.mean(jnp.abs(change), axis=0)
    if options.norm == 'l1':
      sensitivity = jnp.sum(sensitivity, axis=1, keepdims=True)
    return Response(prediction, sensitivity)

  return look
