"""These tests run the attack on networks that memorise or know nothing.

Small perceptrons learn random labels by heart. One call runs all attacks of
this file: on features of training data, on features of other data, with
shuffled members, and with swapped halves.
"""

import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from dpjax.audit import membership
from experiments.methods.attacks import discriminators
from experiments.methods.attacks import local_sensitivity
from experiments.methods.attacks import shadow

_KEY = jax.random.key(0)
_PAIRS, _DIM, _CLASSES, _RECORDS = 4, 16, 10, 512
_SPLIT = shadow.split(jax.random.key(1), _RECORDS, 8)
_MEMBERS, _ATTACKED, _HELD = 120, 240, 48
_RECIPE = discriminators.Recipe(
    hidden_widths=((16,), (32, 32)), learning_rates=(3e-2, 3e-3),
    num_epochs=40, batch_size=32)


def _network(params, x):
  (first, shift), last = params
  return jnp.tanh(x @ first + shift[None]) @ last


def _memorise(key, x, y):
  """Returns a perceptron after 300 steps of Adam on all records."""
  keys = jax.random.split(key)
  params = ((jax.random.normal(keys[0], (_DIM, 64)) * .3, jnp.zeros(64)),
            jax.random.normal(keys[1], (64, _CLASSES)) * .1)
  optimizer = optax.adam(1e-2)

  def step(state, _):
    params, moments = state
    gradient = jax.grad(lambda p: jnp.mean(
        optax.softmax_cross_entropy_with_integer_labels(
            _network(p, x), y)))(params)
    with jax.numpy_dtype_promotion('standard'):
      change, moments = optimizer.update(gradient, moments)
    return (optax.apply_updates(params, change), moments), None

  return jax.lax.scan(step, (params, optimizer.init(params)),
                      length=300)[0][0]


def _seen(key, data, rows):
  """Returns features [m, F] of `rows` by a network that learnt `data`."""
  training, looking = jax.random.split(key)
  params = _memorise(training, *data)
  return local_sensitivity.features(
      looking, lambda x: _network(params, x), *rows, _CLASSES)


@pytest.fixture(name='attacks', scope='module')
def _attacks():
  """Returns the features, members, results and accuracies of all attacks.

  There are four cases: learnt, unseen, shuffled and separable features.
  """
  keys = jax.random.split(_KEY, 3)
  shape = (_PAIRS, 2, _RECORDS)  # The second are other records.
  x = jax.random.normal(keys[0], (*shape, _DIM))
  y = jax.random.randint(keys[1], shape, 0, _CLASSES)
  fitted = jnp.stack([half.fitted for half in _SPLIT])
  rows = jnp.stack([half.attacked()[0] for half in _SPLIT])
  data = x[:, :, fitted], y[:, :, fitted]
  asked = [jnp.broadcast_to(v[:, :1, rows], (_PAIRS, 2, *v[0, 0, rows].shape))
           for v in (x, y)]
  features = jax.jit(jax.vmap(jax.vmap(jax.vmap(_seen))))(
      jax.random.split(keys[2], (_PAIRS, 2, 2)), data, asked)
  learnt, other = features[:, 0], features[:, 1]
  members = jnp.stack([half.attacked()[1] for half in _SPLIT])
  members = jnp.broadcast_to(members, (_PAIRS, *members.shape))
  tossed = jax.vmap(jax.random.permutation)(
      jax.random.split(jax.random.key(2), _PAIRS), members[:, 1])
  noise = jax.random.normal(jax.random.key(4), other.shape)
  apart = noise.at[..., 5:].set(0).at[..., 17].set(
      jnp.where(members, 1.0, -1.0) * (1 + jnp.abs(noise[..., 17])))
  # The four cases are in this order: learnt, unseen, shuffled, separable.
  features = [jnp.concatenate([v[:, role] for v in (
      learnt, other, learnt, apart)]) for role in (0, 1)]
  truth = [jnp.concatenate([members[:, 0]] * 4),
           jnp.concatenate([members[:, 1]] * 2 + [tossed, members[:, 1]])]
  # Members come first, because an attack must not go by places.
  orders = [jnp.argsort(~each, axis=1) for each in truth]
  truth = [jnp.take_along_axis(v, o, 1)
           for v, o in zip(truth, orders, strict=True)]
  features = [jnp.take_along_axis(v, o[..., None], 1)
              for v, o in zip(features, orders, strict=True)]
  result = shadow.attack_both_ways(jax.random.key(3), features, truth,
                                   recipe=_RECIPE)
  return types.SimpleNamespace(
      features=features, members=truth, result=result,
      accuracies=np.asarray(result.accuracy(jnp.concatenate(truth))).reshape(
          2, 4, _PAIRS))


def _margin(num_decisions):
  """Returns four standard errors of the share
  of heads of so many fair coins."""
  return 4 * .5 / num_decisions**.5


@pytest.mark.every(8)
def test_networks_that_memorise_are_attacked(attacks):
  assert attacks.accuracies[:, 0].mean() > .9
  assert attacks.accuracies[:, 0].min() > .8


@pytest.mark.every(4)
def test_networks_that_saw_none_of_the_records_are_not(attacks):
  assert abs(attacks.accuracies[:, 1].mean() - .5) < _margin(
      2 * _PAIRS * _ATTACKED)


def test_shuffled_members_teach_nothing(attacks):
  # One way the shadow's members are shuffled. A discriminator by chance still
  # distinguishes what was learnt from what was not, or the reverse: pairs, and
  # not records, are independent.
  assert stats.ttest_1samp(attacks.accuracies[0, 2], .5).pvalue > 1e-3
  # In the other direction the target's members are shuffled.
  assert abs(attacks.accuracies[1, 2].mean() - .5) < _margin(
      _PAIRS * _ATTACKED)


@pytest.mark.every(8)
def test_swapped_roles_have_one_distribution(attacks):
  one, other = attacks.accuracies[:, 0]
  spread = np.sqrt((one.var(ddof=1) + other.var(ddof=1)) / _PAIRS) + .005
  assert abs(one.mean() - other.mean()) < 4 * spread


def test_accuracy_on_held_out_records_is_not_that_of_training(attacks):
  # Tossed members of 192 records are learnt by heart to a good part: had
  # discriminators seen the 48 others, they would be right on those.
  held = np.asarray(attacks.result.held_out_accuracies).reshape(
      2, 4, _PAIRS, 4)
  null = np.concatenate([held[:, 1].reshape(-1, 4), held[0, 2]])
  np.testing.assert_allclose(null.mean(0), .5, atol=_margin(null.shape[0] * _HELD))
  assert held[:, 0].max(-1).mean() > .9


@pytest.mark.every(2)
def test_the_choice_is_made_on_the_shadow_alone(attacks):
  result, members = attacks.result, jnp.concatenate(attacks.members)
  held = np.asarray(result.held_out_accuracies)
  np.testing.assert_array_equal(result.chosen, held.argmax(1))
  every, best = result.accuracies(members), result.oracle(members)
  right = (np.asarray(result.logits) > 0) == np.asarray(members)[:, None]
  np.testing.assert_allclose(every, right.mean(2), rtol=1e-6)
  for j, place in enumerate(result.chosen):
    np.testing.assert_array_equal(result.scores[j], result.logits[j, place])
    assert result.accuracy(members)[j] == every[j, place]
    assert best[j] == every[j].max()
  assert (np.asarray(best) > result.accuracy(members)).any()


@pytest.mark.every(3)
def test_both_ways_are_attacks_that_score_each_record_by_itself(attacks):
  # Half of the target's records are replaced, and the others change places.
  features = jnp.concatenate(attacks.features)
  order = jax.random.permutation(_KEY, _ATTACKED)
  kept = order[:_MEMBERS]
  other = features.at[:, order[_MEMBERS:]].set(1e3)[:, order]
  result = shadow.attack(
      jax.random.key(3), jnp.concatenate(attacks.features[::-1]),
      jnp.concatenate(attacks.members[::-1]), other, recipe=_RECIPE)
  np.testing.assert_array_equal(result.held_out_accuracies,
                                attacks.result.held_out_accuracies)
  np.testing.assert_allclose(result.logits[:, :, :_MEMBERS],
                             attacks.result.logits[:, :, kept], rtol=1e-3,
                             atol=1e-3)


def test_a_separable_problem_is_solved(attacks):
  # One feature has a gap of two between the classes.
  assert attacks.accuracies[:, 3].min() == 1


@pytest.mark.slow
def test_the_nine_learn_and_the_chosen_solves_a_separable_problem():
  draws = jax.random.normal(_KEY, (2, 1, 500, 16))
  members = draws[..., 0] > 0
  draws = draws.at[..., 0].add(jnp.where(members, 1.0, -1.0))
  result = shadow.attack(_KEY, draws[0], members[0], draws[1])
  assert result.logits.shape == (1, 9, 500)
  assert result.accuracy(members[1])[0] == 1.0
  fitted = discriminators.fit(_KEY, draws[0, :, :400], members[0, :, :400])
  assert fitted.losses.shape == (1, 9, 80)
  assert np.all(fitted.losses[..., -1] < fitted.losses[..., 0])


@pytest.mark.every(3)
@pytest.mark.parametrize('size, num_validation', [(60000, 1000), (64, 0)])
def test_split_is_a_partition(size, num_validation):
  split = shadow.split(_KEY, size, num_validation)
  for half in split:
    assert [part.shape for part in half] == [
        (size // 4 - num_validation,), (num_validation,), (size // 4,)]
    assert half.train.dtype == jnp.int32
    assert set(half.train.tolist()) == set(half.fitted.tolist()) | set(
        half.validation.tolist())
  rows = np.concatenate([part for half in split for part in half])
  np.testing.assert_array_equal(np.sort(rows), np.arange(size))
  again, other = (shadow.split(key, size, num_validation)
                  for key in (_KEY, jax.random.key(1)))
  jax.tree.map(np.testing.assert_array_equal, split, again)
  assert not np.array_equal(split.target.test, other.target.test)


def test_classes_are_shared_out_evenly():
  # The count is hypergeometric: 6000 of a class vary by 31.8 in 15000.
  y = np.repeat(np.arange(10), 6000)
  for half in shadow.split(_KEY):
    for part in (half.train, half.test):
      counts = np.bincount(y[part])
      assert np.abs(counts - 1500).max() < 4 * 31.8


@pytest.mark.every(3)
@pytest.mark.parametrize('val_role, num_members', [
    ('exclude', _MEMBERS), ('member', 128)])
def test_attacked_records_are_balanced_and_in_order(val_role, num_members):
  for half in _SPLIT:
    rows, members = half.attacked(val_role)
    assert rows.shape == members.shape == (2 * num_members,)
    assert np.all(np.diff(rows) > 0)
    present = half.fitted if val_role == 'exclude' else half.train
    assert set(rows[members].tolist()) == set(present.tolist())
    assert set(rows[~members].tolist()) <= set(half.test.tolist())
    # Places carry no information: members are as far to the front as others.
    places = np.flatnonzero(members)
    assert abs(places.mean() - (2 * num_members - 1) / 2) < (
        4 * num_members / np.sqrt(6 * num_members))


@pytest.mark.every(2)
def test_validation_records_as_members_cap_an_attack():
  """Validation records as members cap an attack at 29000 of 30000 (M-E06).

  It guesses every fitted record rightly.
  """
  half = shadow.split(_KEY).target
  for val_role, most in (('member', 29 / 30), ('exclude', 1.0)):
    rows, members = map(np.asarray, half.attacked(val_role))
    rates = membership.rates(1.0 * np.isin(rows, half.fitted), members, 0.5)
    assert rates.accuracy.value == pytest.approx(most)
    assert rates.defence == pytest.approx(200 * (1 - most))
  assert membership.defence(29 / 30) == pytest.approx(6.67, abs=5e-3)


@pytest.mark.parametrize('size, num_validation, message', [
    (62, 1, '^num_records must be a multiple of 4'),
    (64, 16, 'below a quarter, got 64 and 16'),
    (0, 0, '^num_records must be an integer >= 4'),
    (64, -1, '^num_validation must be an integer >= 0')])
def test_refuses_bad_splits(size, num_validation, message):
  with pytest.raises(ValueError, match=message):
    shadow.split(_KEY, size, num_validation)


def test_refuses_another_role():
  with pytest.raises(ValueError, match='^val_role must be one of exclude, me'):
    _SPLIT.target.attacked('non-member')


@pytest.mark.parametrize('change, message', [
    (dict(held_out=0.0), '^held_out must lie strictly'),
    (dict(held_out=0.01), 'leaves none to choose on'),
    (dict(shadow_members=jnp.zeros((2, 9), bool)), '^shapes must be'),
    (dict(target_features=jnp.zeros((1, 8, 3))), '^shapes must be'),
    (dict(target_features=jnp.zeros((2, 8, 4))), '^shapes must be'),
    (dict(target_features=jnp.full((2, 8, 3), jnp.nan)),
     '^features of the target networks must be finite')])
def test_refuses_bad_attacks(change, message):
  good = dict(shadow_features=jnp.zeros((2, 8, 3)), held_out=0.2,
              shadow_members=jnp.zeros((2, 8), bool),
              target_features=jnp.zeros((2, 8, 3)))
  with pytest.raises(ValueError, match=message):
    shadow.attack(_KEY, **{**good, **change})


def test_members_of_another_number_are_refused(attacks):
  with pytest.raises(ValueError, match=r'^members must be \[32, 240\]'):
    attacks.result.accuracy(jnp.zeros(_ATTACKED, bool))


@pytest.mark.every(2)
def test_a_score_of_zero_is_no_member():
  result = shadow.AttackResult(jnp.array([[[0., 1., -1., 0.]]]),
                               jnp.zeros((1, 1)), jnp.zeros(1, jnp.int32))
  members = jnp.array([[True, True, False, False]])
  assert result.accuracy(members).tolist() == [.75]
  assert result.accuracy(~members).tolist() == [.25]


@pytest.mark.every(2)
def test_what_is_held_out_and_what_is_trained_have_keys_of_their_own(
    monkeypatch):
  keys, fitted = [], types.SimpleNamespace(
      logits=lambda features: jnp.zeros((1, 1, features.shape[1])))
  monkeypatch.setattr(shadow, '_hold_out', lambda key, records, count: (
      keys.append(key), tuple(each[:, :count] for each in records))[1:] * 2)
  monkeypatch.setattr(discriminators, 'fit', lambda key, *_: (
      keys.append(key), fitted)[1])
  shadow.attack(_KEY, jnp.zeros((1, 8, 3)), jnp.zeros((1, 8), bool),
                jnp.zeros((1, 5, 3)))
  assert len({str(jax.random.key_data(key)) for key in (_KEY, *keys)}) == 3
