"""Augmentation multiplicity: average a record's gradient over random views."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.grads import ball
from dpjax.grads.bounder import GradientBounder
from dpjax.typing import ApplyFn, Array, LossFn, Params, PRNGKey, PyTree

Augmentation = Callable[[PRNGKey, Array], Array]
"""Draws one view: (key, features [...] of one record) -> same shape."""

_PAD_MODES = {'reflect': 'reflect', 'zero': 'constant'}


def augmented(make_bounder: Callable[[ApplyFn, LossFn], GradientBounder],
              apply: ApplyFn, loss: LossFn, *, augmentation: Augmentation,
              multiplicity: int) -> GradientBounder:
  """Returns a bounder whose records contribute h(z) = mean_a h(view_a(z)).

  The loss of a record becomes (1/A) sum_a loss(view a), so gradients are
  averaged over views before they are clipped. A bounder of plain batch sums
  sees a batch of b A rows with weight 1/A each. Source: REG-04; De et al.
  (2022, section 3).

  Guarantee: the bounder's own. A view is a function of one record and of a key
  made from that record's number, so no record enters the contribution of
  another one. `make_bounder` must bound a *record*, whose cotangents at the
  logits are 1/A of those of one row. Clipping whole gradients does so, and so
  do bounds proved from the cotangents. A layer that clips each *row* does not:
  a record would contribute A times as much.

  Args:
    make_bounder: (apply, loss) -> bounder, such as `per_example.clipped`.
    apply: (params, x [b, ...]) -> logits [b, c].
    loss: (logits [b, c], labels [b]) -> [b].
    augmentation: draws one view; `crop_and_flip` or any other.
    multiplicity: A >= 1, the number of views of each record in each step.

  Examples:
    augmented(lambda a, l: per_example.clipped(a, l, clip_norm=1.0), apply,
              loss, augmentation=crop_and_flip(padding=4), multiplicity=16)
  """
  errors.check_at_least('multiplicity', multiplicity, 1)

  def apply_views(params: Params, x: PyTree) -> Array:
    logits = apply(params, ball.merge_views(x))
    return logits.reshape((-1, multiplicity) + logits.shape[1:])

  def loss_views(logits: Array, labels: Array) -> Array:
    rows = logits.reshape((-1,) + logits.shape[2:])
    values = loss(rows, jnp.repeat(labels, multiplicity))
    return jnp.mean(values.reshape((-1, multiplicity)), 1)

  def views(key: PRNGKey, numbers: Array, x: PyTree) -> PyTree:
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
  """Returns A views [A, ...] of a record; all NaN if the record has a NaN."""
  keys = jax.random.split(key, multiplicity)
  drawn = jax.vmap(augmentation, (0, None))(keys, record)
  # A crop may leave a NaN or infinite pixel out, but the record must still
  # contribute zero.
  return jnp.where(jnp.all(jnp.isfinite(record)), drawn, jnp.nan)


def crop_and_flip(*, padding: int, mode: str = 'reflect',
                  flip: bool = True) -> Augmentation:
  """Returns an augmentation: a random crop of a padded image, then a flip.

  Args:
    padding: pixels added on each side of an image [h, w, c], >= 0, and below h
      and w for 'reflect'. A crop is shifted by at most this many pixels.
    mode: how to fill the padding, 'reflect' or 'zero'.
    flip: whether to mirror left and right with probability 1/2.
  """
  errors.check_at_least('padding', padding, 0)
  errors.check_choice('mode', mode, _PAD_MODES)
  borders = ((padding, padding), (padding, padding), (0, 0))

  def augment(key: PRNGKey, image: Array) -> Array:
    crop_key, flip_key = jax.random.split(key)
    shift = jax.random.randint(crop_key, (2,), 0, 2 * padding + 1)
    padded = jnp.pad(image, borders, mode=_PAD_MODES[mode])
    # Only the offset is random: the crop has the static shape of the image.
    view = jax.lax.dynamic_slice(padded, (shift[0], shift[1], 0), image.shape)
    if not flip:
      return view
    return jnp.where(jax.random.bernoulli(flip_key), view[:, ::-1], view)

  return augment
