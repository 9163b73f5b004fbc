"""The shadow-network attack of Lalanne (2023, Figure 1.2; MIA-01, MIA-02).

The attacker trains a shadow network in the same way as the target, trains
discriminators to recognise the shadow's members by their features, and applies
the discriminators to the target.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.typing import Array, PRNGKey
from experiments.methods.attacks import discriminators

VAL_ROLES = ('exclude', 'member')
"""Roles that validation records can have in the attack (erratum M-E06)."""


class Half(NamedTuple):
  """The records of one network, as int32 row numbers in random order.

  Attributes:
    fitted: training records that gradients use, [n / 4 - num_validation].
    validation: the other training records, [num_validation].
    test: non-members, [n / 4].
  """
  fitted: Array
  validation: Array
  test: Array

  @property
  def train(self) -> Array:
    """Returns all members, as the source defines them, [n / 4]."""
    return jnp.concatenate([self.fitted, self.validation])

  def attacked(self, val_role: str = 'exclude') -> tuple[Array, Array]:
    """Returns the attacked rows and their memberships.

    Args:
      val_role: 'exclude' drops the validation records and equally many
        non-members, so m = n / 2 - 2 num_validation. 'member' counts validation
        records as members, the literal reading of the source, with m = n / 2;
        an attack that recognises all fitted records then errs on them.

    Returns:
      Row numbers [m] int32 in ascending order, and [m] bool, True for members.
    """
    errors.check_choice('val_role', val_role, VAL_ROLES)
    present = self.fitted if val_role == 'exclude' else self.train
    # The order is random, so the first rows are a random choice.
    rows = jnp.concatenate([present, self.test[:present.shape[0]]])
    order = jnp.argsort(rows)
    # Sorted by row number, so that positions do not reveal membership.
    return rows[order], order < present.shape[0]


class FourWaySplit(NamedTuple):
  """Two disjoint halves of all records (MIA-01).

  Attributes:
    target: records of the attacked network.
    shadow: records of the attacker's network.
  """
  target: Half
  shadow: Half


def split(key: PRNGKey, num_records: int = 60000,
          num_validation: int = 1000) -> FourWaySplit:
  """Draws a uniform partition into four sets of equal size (MIA-01).

  Args:
    key: determines the partition, drawn once for all experiments.
    num_records: number n of records, a multiple of 4.
    num_validation: validation records in each training set, below n / 4.

  Raises:
    ValueError: if n is no multiple of 4, or num_validation is too large.
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
  """Outputs of D discriminators per pair, J pairs, on m records of the target.

  The attack does not use the membership of these records.

  Attributes:
    logits: [J, D, m] float32, positive for records that look like members.
    held_out_accuracies: [J, D], accuracies on held-out shadow records.
    chosen: [J] int32, the discriminator with the best held-out accuracy, the
      first one in a tie.
  """
  logits: Array
  held_out_accuracies: Array
  chosen: Array

  @property
  def scores(self) -> Array:
    """Returns the chosen discriminators' logits [J, m]; positive means member.
    """
    return _take(self.logits, self.chosen)

  def accuracies(self, members: Array) -> Array:
    """Returns all accuracies [J, D] on the target, for members [J, m]."""
    return _accuracies(self.logits, members)

  def accuracy(self, members: Array) -> Array:
    """Returns the chosen discriminators' accuracies on the target, [J]."""
    return _take(self.accuracies(members), self.chosen)

  def oracle(self, members: Array) -> Array:
    """Returns the best accuracies on the target, [J] (item M-E07).

    An attacker cannot choose these: the maximum of D estimates exceeds 1/2 even
    if all discriminators guess.
    """
    return jnp.max(self.accuracies(members), axis=1)


def attack(key: PRNGKey, shadow_features: Array, shadow_members: Array,
           target_features: Array, *,
           recipe: discriminators.Recipe = discriminators.Recipe(),
           held_out: float = 0.2) -> AttackResult:
  """Attacks the targets of J pairs at once (MIA-02, MIA-03).

  The source does not say which of the D discriminators is used (M-E07). Here it
  is the one with the highest accuracy on a random part of the shadow's records,
  which is held out from training. The result for pair j depends only on the
  key, on j and on this pair.

  Args:
    key: determines initial parameters, batches and held-out records.
    shadow_features: [J, s, F] float32, from `local_sensitivity.features`.
    shadow_members: [J, s] bool, True for members of the shadow.
    target_features: [J, m, F] float32, features of the attacked records.
    recipe: hyperparameters of the discriminators.
    held_out: fraction of the shadow's records held out, in (0, 1).

  Raises:
    ValueError: if the shapes do not match, or if features are not finite, as
      those of a network whose training has diverged.
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
  """Attacks each network of J pairs with the other as its shadow (MIA-02).

  Args:
    key: see `attack`.
    features: features for the first and for the second networks, [J, m, F]
      each.
    members: memberships for the first and for the second networks, [J, m] each.
    **options: keyword arguments of `attack`.

  Returns:
    2 J attacks: first those on the first networks, then those on the second.
  """
  return attack(key, jnp.concatenate(features[::-1]),
                jnp.concatenate(members[::-1]), jnp.concatenate(features),
                **options)


@functools.partial(jax.jit, static_argnames='count')
def _hold_out(key: PRNGKey, records: tuple[Array, Array], *,
              count: int) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
  """Splits each pair's records [J, s, ...] at random: `count`, and the rest."""
  num_pairs, num_records = records[1].shape
  draw = lambda number: jax.random.permutation(
      jax.random.fold_in(key, number), num_records)
  rows = jax.vmap(draw)(jnp.arange(num_pairs))
  take = lambda rows: tuple(_take(each, rows) for each in records)
  return take(rows[:, :count]), take(rows[:, count:])


def _accuracies(logits: Array, members: Array) -> Array:
  """Returns accuracies [J, D] of logits [J, D, m] at threshold 0."""
  if members.shape != (logits.shape[0], logits.shape[2]):
    raise ValueError(f'members must be [{logits.shape[0]}, '
                     f'{logits.shape[2]}], got {members.shape}')
  right = (logits > 0) == members[:, None]
  return jnp.mean(right, axis=2, dtype=jnp.float32)


def _take(values: Array, places: Array) -> Array:
  """Returns values[j, places[j]] for every j."""
  return jax.vmap(lambda row, place: row[place])(values, places)


def _check_shapes(shadow_features: Array, shadow_members: Array,
                  target_features: Array) -> None:
  """Checks that shapes match and features are finite, or raises."""
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
