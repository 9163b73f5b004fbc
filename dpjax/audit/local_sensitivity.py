"""What an attacker sees of a network around a record: label, output, slope.

The first-order information is s(x) = (1/e) E |R(x) - R(x + e N)|, N standard
normal, component by component: MIA-03. Overfitted networks are flatter around
the records they were trained on.
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
  """What the published attack leaves open, erratum M-E08, and its constants.

  Attributes:
    output: R is the 'softmax' of the logits, or the 'logits'.
    norm: 'none' keeps the c components of s, 'l1' their sum.
    label: the true class is 'one_hot', or an 'integer'.
    exact: the derivative along the draws in place of the difference quotient,
      its limit as `step` falls to 0. `None` is the quotient on CPU and the
      derivative elsewhere, where products are rounded too much for a quotient
      unless asked not to (`jax.default_matmul_precision`), which is slow.
    step: e, in units of x.
    num_draws: of N for each record.
    batch_size: records that are looked at together; changes no draw.
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
    """F: 3 c, 30 of ten classes; 21 of them under the l1 norm."""
    return (num_classes + (num_classes if self.label == 'one_hot' else 1) +
            (num_classes if self.norm == 'none' else 1))


class Response(NamedTuple):
  """What a network shows of N records.

  Attributes:
    prediction: R(x), [N, c] float32.
    sensitivity: s(x), [N, c]; [N, 1] under the l1 norm.
  """
  prediction: Array
  sensitivity: Array


def respond(key: PRNGKey, predict: Callable[[Array], Array], x: Array,
            options: Options = Options()) -> Response:
  """Outputs of a network and how fast they change: MIA-03.

  Pure: to look at many networks of one kind, compile it once as a function of
  their parameters, `jax.jit(lambda key, params, x: respond(key, lambda rows:
  apply(params, rows), x))`.

  Args:
    key: draws of record i depend on it and on i alone.
    predict: x [b, ...] -> logits [b, c] of one network in evaluation mode,
      row by row.
    x: records, [N, ...] float32.
    options: see `Options`.

  Raises:
    ValueError: of no records, or of x that are not float32.
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
  found = jax.lax.map(batch, numbers.reshape(parts, size))
  return jax.tree.map(
      lambda leaf: leaf.reshape(-1, leaf.shape[-1])[:num_records], found)


def features(key: PRNGKey, predict: Callable[[Array], Array], x: Array,
             y: Array, num_classes: int,
             options: Options = Options()) -> Array:
  """What a discriminator is told of each record, [N, F] float32: MIA-03.

  Args:
    key: see `respond`.
    predict: see `respond`.
    x: records, [N, ...] float32.
    y: their classes, [N] integers below `num_classes`.
    num_classes: c.
    options: see `Options`.

  Returns:
    In this order the true class, the prediction and the sensitivity.

  Raises:
    ValueError: of another number of labels or classes, and see `respond`.
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
  """(x [b, ...], noise [draws, b, ...]) -> Response."""
  exact = options.exact
  if exact is None:
    exact = jax.default_backend() != 'cpu'

  def output(x):
    return _OUTPUTS[options.output](predict(x).astype(jnp.float32))

  def slopes(x, noise):
    if exact:
      prediction, push = jax.linearize(output, x)
      return prediction, jax.vmap(push)(noise)
    with jax.default_matmul_precision('highest'):
      prediction = output(x)
      moved = jax.vmap(lambda n: output(x + options.step * n))(noise)
    return prediction, (prediction[None] - moved) / options.step

  def look(x, noise):
    prediction, change = slopes(x, noise)
    sensitivity = jnp.mean(jnp.abs(change), axis=0)
    if options.norm == 'l1':
      sensitivity = jnp.sum(sensitivity, axis=1, keepdims=True)
    return Response(prediction, sensitivity)

  return look
