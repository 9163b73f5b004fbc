"""The attack by a shadow network: thesis 000, Figure 1.2, MIA-01 and MIA-02.

An attacker trains a network of their own in the same way as the target, learns
on it to tell members by features of records, and applies that to the target.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.audit import discriminators
from dpjax.typing import Array, PRNGKey

VAL_ROLES = ('exclude', 'member')
"""What validation records count as in the attack: erratum M-E06."""


class Half(NamedTuple):
  """The records of one network; row numbers, int32, in random order.

  Attributes:
    fitted: those that gradients see, [n / 4 - num_validation].
    validation: the rest of the training set, [num_validation].
    test: the non-members, [n / 4].
  """
  fitted: Array
  validation: Array
  test: Array

  @property
  def train(self) -> Array:
    """The members as in the source, [n / 4]."""
    return jnp.concatenate([self.fitted, self.validation])

  def attacked(self, val_role: str = 'exclude') -> tuple[Array, Array]:
    """Rows [m] int32 in ascending order, and which are members, [m] bool.

    Args:
      val_role: 'exclude' leaves validation records out, and as many
        non-members: m = n / 2 - 2 num_validation. As a 'member' each counts,
        the literal reading, m = n / 2: an attack that is always right on what
        was fitted is wrong on them.
    """
    errors.check_choice('val_role', val_role, VAL_ROLES)
    present = self.fitted if val_role == 'exclude' else self.train
    # The first are a random choice, since the order is random.
    rows = jnp.concatenate([present, self.test[:present.shape[0]]])
    order = jnp.argsort(rows)
    # In order of rows, so that places tell nothing of membership.
    return rows[order], order < present.shape[0]


class FourWaySplit(NamedTuple):
  """Disjoint halves of all records, MIA-01.

  Attributes:
    target: of the network under attack.
    shadow: of the attacker's network.
  """
  target: Half
  shadow: Half


def split(key: PRNGKey, num_records: int = 60000,
          num_validation: int = 1000) -> FourWaySplit:
  """A uniform partition into four sets of one size: MIA-01.

  Args:
    key: of the partition, drawn once for all experiments.
    num_records: n, a multiple of 4.
    num_validation: of each training set, below n / 4.

  Raises:
    ValueError: of numbers that do not fit.
  """
  size, rest = divmod(errors.check_at_least('num_records', num_records, 4), 4)
  errors.check_at_least('num_validation', num_validation, 0)
  if rest or num_validation >= size:
    raise ValueError('num_records must be a multiple of 4 with num_validation '
                     f'below a quarter, got {num_records} and '
                     f'{num_validation}')
  order = jax.random.permutation(key, num_records).astype(jnp.int32)
  num_fitted = size - num_validation
  return FourWaySplit(*[
      Half(half[:num_fitted], half[num_fitted:size], half[size:])
      for half in order.reshape(2, 2 * size)])


class AttackResult(NamedTuple):
  """What D discriminators of each of J pairs say of m records of the target.

  The membership of these records has had no part in it.

  Attributes:
    logits: [J, D, m] float32; positive for what looks like a member.
    held_out_accuracies: [J, D], on shadow records kept from training.
    chosen: [J] int32, the best of them there, the first if there is a tie.
  """
  logits: Array
  held_out_accuracies: Array
  chosen: Array

  @property
  def scores(self) -> Array:
    """Of the chosen discriminators, [J, m]; a positive one says member."""
    return _take(self.logits, self.chosen)

  def accuracies(self, members: Array) -> Array:
    """Of all discriminators on the target, [J, D]; of members [J, m]."""
    return _accuracies(self.logits, members)

  def accuracy(self, members: Array) -> Array:
    """Of the chosen discriminators on the target, [J]."""
    return _take(self.accuracies(members), self.chosen)

  def oracle(self, members: Array) -> Array:
    """Of the best on the target, [J]: more than any attacker attains, M-E07.

    The maximum of D estimates is above 1/2 even where all are guesses.
    """
    return jnp.max(self.accuracies(members), axis=1)


def attack(key: PRNGKey, shadow_features: Array, shadow_members: Array,
           target_features: Array, *,
           recipe: discriminators.Recipe = discriminators.Recipe(),
           held_out: float = 0.2) -> AttackResult:
  """Attacks the targets of J pairs at once: MIA-02, MIA-03.

  Which discriminator of the D is used, the source does not say (M-E07). Here
  it is the one with the highest accuracy on a random share of the shadow's
  records, on which none is trained. What is found of pair j depends on the
  key, on j and on this pair alone.

  Args:
    key: of initial parameters, batches and the records that are held out.
    shadow_features: [J, s, F] float32, `local_sensitivity.features`.
    shadow_members: [J, s] bool.
    target_features: [J, m, F] float32.
    recipe: how discriminators are trained.
    held_out: share of the shadow's records on which one is chosen.

  Raises:
    ValueError: of shapes that do not match, or of features that are not
      finite, as those of a network whose training has diverged.
  """
  errors.check_open_unit('held_out', held_out)
  _check_shapes(shadow_features, shadow_members, target_features)
  num_records = shadow_members.shape[1]
  count = round(held_out * num_records)
  if not 0 < count < num_records:
    raise ValueError(f'held_out = {held_out} of {num_records} records leaves '
                     'none to choose on, or none to train on')
  holding, training = jax.random.split(key)
  held, kept = _hold_out(holding, (shadow_features, shadow_members),
                         count=count)
  fitted = discriminators.fit(training, *kept, recipe)
  accuracies = _accuracies(fitted.logits(held[0]), held[1])
  return AttackResult(fitted.logits(target_features), accuracies,
                      jnp.argmax(accuracies, axis=1).astype(jnp.int32))


def attack_both_ways(
    key: PRNGKey, features: tuple[Array, Array], members: tuple[Array, Array],
    **options: Any) -> AttackResult:
  """Attacks each network of J pairs by the other, 2 J attacks: MIA-02.

  Args:
    key: see `attack`.
    features: of the first and of the second networks, [J, m, F] each.
    members: of the first and of the second networks, [J, m] each.
    **options: of `attack`.

  Returns:
    First the J attacks on the first networks, then those on the second.
  """
  return attack(key, jnp.concatenate(features[::-1]),
                jnp.concatenate(members[::-1]), jnp.concatenate(features),
                **options)


@functools.partial(jax.jit, static_argnames='count')
def _hold_out(key: PRNGKey, records: tuple[Array, Array], *,
              count: int) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
  """`count` random records [J, s, ...] of every pair, and the others."""
  num_pairs, num_records = records[1].shape
  draw = lambda number: jax.random.permutation(
      jax.random.fold_in(key, number), num_records)
  rows = jax.vmap(draw)(jnp.arange(num_pairs))
  take = lambda rows: tuple(_take(each, rows) for each in records)
  return take(rows[:, :count]), take(rows[:, count:])


def _accuracies(logits: Array, members: Array) -> Array:
  """Of logits [J, D, m] at threshold 0, [J, D]."""
  if members.shape != (logits.shape[0], logits.shape[2]):
    raise ValueError(f'members must be [{logits.shape[0]}, '
                     f'{logits.shape[2]}], got {members.shape}')
  right = (logits > 0) == members[:, None]
  return jnp.mean(right, axis=2, dtype=jnp.float32)


def _take(values: Array, places: Array) -> Array:
  """values[j, places[j]] for every j."""
  return jax.vmap(lambda row, place: row[place])(values, places)


def _check_shapes(shadow_features: Array, shadow_members: Array,
                  target_features: Array) -> None:
  shapes = (shadow_features.shape, shadow_members.shape,
            target_features.shape)
  one, two, three = shapes
  if (len(one), len(three)) != (3, 3) or two != one[:2] or (
      one[0], one[2]) != (three[0], three[2]):
    raise ValueError('shapes must be [J, s, F], [J, s] and [J, m, F], got '
                     '{}, {} and {}'.format(*shapes))
  for name, values in (('shadow', shadow_features),
                       ('target', target_features)):
    if not bool(jnp.all(jnp.isfinite(values))):
      raise ValueError(f'features of the {name} networks must be finite')
