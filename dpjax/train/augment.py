"""Augmentation multiplicity: a record's gradient is the mean over its views."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.grads import ball
from dpjax.grads.bounder import GradientBounder
from dpjax.typing import Array, LossFn, Params, PRNGKey

Augmentation = Callable[[PRNGKey, Array], Array]
"""(key, features [...] of one record) -> features of the same shape."""

_PAD_MODES = {'reflect': 'reflect', 'zero': 'constant'}


def augmented(make_bounder: Callable[[Callable, LossFn], GradientBounder],
              apply: Callable[[Params, Array], Array], loss: LossFn, *,
              augmentation: Augmentation,
              multiplicity: int) -> GradientBounder:
  """A bounder whose records contribute h(z) = mean_a h(augmentation_a(z)).

  Realised as the loss (1/A) sum_a loss(view a) of one record: the average is
  taken before anything is clipped, and for a bounder of plain batch sums it is
  a batch of b A rows of weight 1/A. Source: REG-04; De et al. 2022, section 3.

  Guarantee: that of the bounder. A view is a function of one record and of a
  key made from that record's number, so no record enters another's
  contribution. `make_bounder` must bound a *record*, whose cotangents at the
  logits are 1/A of a row's: true of clipped whole gradients and of bounds
  proved from the cotangents; not of a layer that clips each row by itself,
  whose records then contribute A times as much.

  Args:
    make_bounder: (apply, loss) -> bounder, such as `per_example.clipped`.
    apply: (params, x [b, ...]) -> logits [b, c].
    loss: (logits, labels) -> [b].
    augmentation: draws one view; `crop_and_flip` or any other.
    multiplicity: views A of each record in each step.

  Examples:
    augmented(lambda a, l: per_example.clipped(a, l, clip_norm=1.0), apply,
              loss, augmentation=crop_and_flip(padding=4), multiplicity=16)
  """
  errors.check_at_least('multiplicity', multiplicity, 1)

  def apply_views(params: Params, x) -> Array:
    logits = apply(params, ball.merge_views(x))
    return logits.reshape((-1, multiplicity) + logits.shape[1:])

  def loss_views(logits: Array, labels: Array) -> Array:
    rows = logits.reshape((-1,) + logits.shape[2:])
    values = loss(rows, jnp.repeat(labels, multiplicity))
    return jnp.mean(values.reshape((-1, multiplicity)), 1)

  def views(key: PRNGKey, numbers: Array, x):
    draw = lambda record, number: _draw_views(
        jax.random.fold_in(key, number), record, augmentation, multiplicity)
    if not isinstance(x, ball.BallRecords):
      return jax.vmap(draw)(x, numbers)
    drawn = jax.vmap(draw)(x.values, numbers)
    # A view can be longer than its record, so it is projected again.
    rows = ball.project_ball(drawn.reshape((-1,) + drawn.shape[2:]), x.radius)
    return ball.BallRecords(rows.reshape(drawn.shape), x.finite, x.radius)

  return make_bounder(apply_views, loss_views)._replace(views=views)


def _draw_views(key: PRNGKey, record: Array, augmentation: Augmentation,
                multiplicity: int) -> Array:
  """[A, ...] views of one record; all NaN if it is not finite anywhere."""
  keys = jax.random.split(key, multiplicity)
  drawn = jax.vmap(augmentation, (0, None))(keys, record)
  # A crop may leave the bad pixel out, and the record must still count for
  # nothing.
  return jnp.where(jnp.all(jnp.isfinite(record)), drawn, jnp.nan)


def crop_and_flip(*, padding: int, mode: str = 'reflect',
                  flip: bool = True) -> Augmentation:
  """Random crop of a padded image [h, w, c], then a fair coin's mirror image.

  Args:
    padding: pixels on each side, >= 0 and below h and w for 'reflect'; a crop
      is shifted by up to as many.
    mode: 'reflect' or 'zero', what is beyond the border.
    flip: mirror left and right with probability 1/2.
  """
  errors.check_at_least('padding', padding, 0)
  errors.check_choice('mode', mode, _PAD_MODES)
  borders = ((padding, padding), (padding, padding), (0, 0))

  def augment(key: PRNGKey, image: Array) -> Array:
    crop_key, flip_key = jax.random.split(key)
    shift = jax.random.randint(crop_key, (2,), 0, 2 * padding + 1)
    padded = jnp.pad(image, borders, mode=_PAD_MODES[mode])
    view = jax.lax.dynamic_slice(padded, (shift[0], shift[1], 0), image.shape)
    if not flip:
      return view
    return jnp.where(jax.random.bernoulli(flip_key), view[:, ::-1], view)

  return augment
