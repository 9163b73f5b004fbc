"""These tests check runs whose unit is a user: groups, sums, splits, claims."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.data import arrays
from dpjax.data import schema_files
from dpjax.grads import bounder as bounders
from dpjax.runs import building
from dpjax.runs import configuration
from dpjax.runs import run_keys
from dpjax.runs import run_users
from dpjax.runs import summary as summaries
from dpjax.runs import training
from dpjax.runs import training_methods
from dpjax.runs.options import TrainingConfig
from dpjax.typing import Batch

_RNG = np.random.default_rng(5)
# 30 users have from 1 to 9 records, in mixed order.
_IDS = _RNG.permutation(np.repeat(
    [f'u{number}' for number in range(30)], 1 + np.arange(30) % 9))
_SIZE = len(_IDS)
_TABLE = arrays.from_arrays(_RNG.uniform(-1, 1, (_SIZE, 3)),
                            _RNG.integers(2, size=_SIZE), num_classes=2)
_SCHEMA = schema_files.of_parts(
    label='y', classes=['0', '1'], categories={},
    bounds={name: (-1.0, 1.0) for name in ('a', 'b', 'c')})
_CONFIG = TrainingConfig(
    dataset='visits.csv', schema=_SCHEMA, method='dp_sgd', user_column='user',
    user_records=4, num_steps=3, width=4, clip_norm=0.1, noise_seed=0)
_USERS = run_users.group(_TABLE, _IDS, most=4)


def resolved(**changes):
  config = dataclasses.replace(_CONFIG, **changes)
  return configuration.resolve(
      config, num_available=training.num_available(config, _USERS))


def of(method, users=_USERS, **changes):
  """Returns (bounder, parameters, certificate, prepared users) of a method."""
  config = resolved(method=method, allow_unsound=True, **changes)
  model = building.make_model(config, users)
  made = building.make_method(config, model, users)
  params, certificate = made.constraint.constrain(model.init(jax.random.key(0)))
  # Far from the start, gradients are long and differ between records.
  adaptive = made.bounder.adaptive
  bounder = bounders.at_radii(made.bounder,
                              () if adaptive is None else adaptive.init)
  records = users.records
  return types.SimpleNamespace(
      bounder=bounder, params=params, certificate=certificate, model=model,
      loss=building.make_loss(config, users), clip_norm=config.clip_norm,
      records=records._replace(x=model.prepare(records.x)))


def _flat(values):
  return np.concatenate([np.ravel(np.asarray(leaf, np.float64))
                         for leaf in jax.tree.leaves(values)])


def test_records_are_grouped_and_no_shape_tells_how_many_there_are():
  names = sorted(set(_IDS))
  assert _USERS.num_users == 30 and _USERS.rows.shape == (30, 4)
  for number, name in enumerate(names):
    own = np.flatnonzero(_IDS == name)
    used = _USERS.used[number]
    np.testing.assert_array_equal(_USERS.rows[number][used], own[:4])
    assert set(_USERS.rows[number]) <= set(own)
    np.testing.assert_array_equal(_USERS.rows_of([number]), own)
    x, y = (leaf[number] for leaf in _USERS.records)
    np.testing.assert_array_equal(x, _TABLE.x[_USERS.rows[number]])
    np.testing.assert_array_equal(
        y, np.where(used, _TABLE.y[_USERS.rows[number]], run_users.NO_LABEL))
  wide = run_users.group(_TABLE, _IDS, most=50)
  assert wide.rows.shape == wide.used.shape == (30, 50)
  np.testing.assert_array_equal(wide.used.sum(1), [
      (_IDS == name).sum() for name in names])


@pytest.mark.sound
@pytest.mark.parametrize('method', ['dp_sgd', 'dp_sgd_vmap', 'lip_dp_sgd'])
def test_a_user_contributes_the_mean_gradient_clipped_once(method):
  """Sums equal a loop over users and their records."""
  made = of(method, clip_norm=0.8)
  mask = np.arange(30) % 3 != 1
  sums = jax.jit(made.bounder.sums)(made.params, made.records,
                                    jnp.asarray(mask))
  plain = building.make_model(resolved(method=method, user_column=None,
                                       user_records=None), _TABLE)
  gradient = jax.jit(jax.grad(lambda p, x, y: made.loss.values(
      plain.apply(p, x[None]), y[None])[0]))
  total, norms = 0, []
  for name in np.array(sorted(set(_IDS)))[mask]:
    mean = np.mean([_flat(gradient(made.params, _TABLE.x[i], _TABLE.y[i]))
                    for i in np.flatnonzero(_IDS == name)[:4]], 0)
    norms.append(np.linalg.norm(mean))
    if method != 'lip_dp_sgd':
      mean *= min(1, made.clip_norm / norms[-1])
    total += mean
  if method != 'lip_dp_sgd':
    assert np.mean(np.array(norms) > made.clip_norm) == pytest.approx(
        0.5, abs=0.4)
  np.testing.assert_allclose(_flat(sums.total), total, atol=5e-5)


@pytest.mark.sound
@pytest.mark.parametrize('method', [
    name for name in training_methods.having('views')
    if name not in ('sgd', 'lip_norm')])
def test_a_user_with_many_records_moves_a_sum_by_the_sensitivity_at_most(
    method):
  x = jnp.tile(jnp.asarray([[1.0, -1.0, 1.0]]), (200, 1)).at[::2, 0].set(-1.0)
  shares = []
  for label in (0, 1):
    table = _TABLE._replace(x=x, y=jnp.full([200], label, jnp.int32))
    users = run_users.group(table, np.repeat(['ann', 'bob'], [199, 1]),
                            most=199)
    made = of(method, users, depth=0 if method == 'bassily' else 1,
              temperature=0.05, batch_size=1.0, num_examples=2, logit_clip=None)
    limits = made.bounder.l2_sensitivity(made.certificate)
    sums = jax.jit(made.bounder.sums)
    for user in (0, 1):
      total = sums(made.params, made.records, jnp.arange(2) == user).total
      shares += jax.tree.leaves(jax.tree.map(
          lambda limit, part: np.linalg.norm(_flat(part)) / float(limit),
          limits, total))
  assert 0 < max(shares) <= 1 + 1e-5
  if method == 'dp_sgd':
    # Both users are as long as one record may be.
    assert np.sum(np.isclose(shares, 1, rtol=1e-5)) == 2


def test_each_record_of_a_user_is_projected_by_itself():
  made = of('lip_dp_sgd', input_radius=0.5)
  norms = np.linalg.norm(np.float64(made.records.x.values), axis=-1)
  np.testing.assert_allclose(norms, np.minimum(0.5, np.linalg.norm(
      _USERS.records.x, axis=-1)), rtol=1e-5)
  assert made.records.x.finite.shape == (30,)


def test_a_user_with_a_bad_record_contributes_nothing():
  x = _TABLE.x.at[_USERS.rows[3, 0], 1].set(jnp.nan)
  users = _USERS._replace(table=_TABLE._replace(x=x))
  for method in ('dp_sgd', 'lip_dp_sgd'):
    made = of(method, users)
    sums = jax.jit(made.bounder.sums)(made.params, made.records,
                                      jnp.arange(30) == 3)
    assert not _flat(sums.total).any() and int(sums.num_nonfinite) == 1


@pytest.mark.slow
def test_a_run_counts_users_and_holds_users_out():
  config = dataclasses.replace(_CONFIG, epsilon=8.0)
  results = training.train([dataclasses.replace(config, seed=seed)
                            for seed in (0, 1)], dataset=_USERS)
  for result in results:
    assert (result.num_train, result.num_test) == (24, 6)
    assert result.config.delta == pytest.approx(24**-1.1)
    assert result.plan.sampler.num_examples == 24
    split = training.split_rows(result.config, _USERS)
    assert sorted(np.concatenate(split).tolist()) == list(range(30))
    names = np.array(sorted(set(_IDS)))[np.asarray(split.test)]
    held_out = np.isin(_IDS, names)
    model = building.make_model(result.config, _USERS)
    guesses = np.argmax(model.apply(result.params, _TABLE.x[held_out]), -1)
    assert result.test_accuracy == pytest.approx(
        np.mean(guesses == np.asarray(_TABLE.y)[held_out]))
    environment = types.SimpleNamespace(device='', commit='', versions={})
    summary = summaries.summarize(result, environment)
    assert (summary['unit'], summary['n'], summary['num_test']) == (
        'user', 24, 6)


def test_a_secret_key_is_bound_to_the_groups():
  config = dataclasses.replace(resolved(), noise_seed=None)
  keys = run_keys.new_keys(1)
  other = run_users.group(_TABLE, np.roll(_IDS, 1), most=4)
  drawn = [jax.random.key_data(run_keys.draw([config], keys, each.records))
           for each in (_USERS, _USERS, other)]
  assert np.array_equal(drawn[0], drawn[1])
  assert not np.array_equal(drawn[0], drawn[2])


@pytest.mark.parametrize('changes, message', [
    (dict(user_column=None), 'user_records needs a user_column'),
    (dict(schema=None, dataset='adult'), 'user_column needs your own table: '),
    (dict(user_column='b'), "'b' must be neither a feature nor the label"),
    (dict(user_column='y'), "'y' must be neither a feature nor the label"),
    (dict(user_records=0), 'user_records must be'),
    (dict(method='layer_clipped'), 'method with a user_column must be one of'),
    (dict(method='lip_adaptive'), 'method with a user_column must be one of'),
    (dict(num_canaries=3), 'num_canaries must be 0, got 3')])
def test_options_that_do_not_go_with_users_are_refused(changes, message):
  with pytest.raises(ValueError, match=message) as error:
    configuration.check(dataclasses.replace(_CONFIG, **changes))
  assert '\n' not in str(error.value)


def test_a_data_set_that_is_not_grouped_is_refused():
  plain = dataclasses.replace(_CONFIG, user_column=None, user_records=None)
  for config, dataset in ((_CONFIG, _TABLE), (plain, _USERS)):
    with pytest.raises(ValueError, match='need each other'):
      training.train([config], dataset=dataset)


def test_rows_that_fill_up_have_no_weight():
  loss = run_users.mean_loss(lambda logits, labels: jnp.where(
      labels == 1, logits[:, 0], 7.0))
  logits = jnp.asarray([[[1.0], [3.0], [9.0]], [[2.0], [5.0], [5.0]]])
  labels = jnp.asarray([[1, 1, -1], [0, -1, -1]], jnp.int32)
  np.testing.assert_array_equal(loss(logits, labels), [2.0, 7.0])
  assert isinstance(_USERS.records, Batch)
