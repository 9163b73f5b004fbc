"""These tests check what canaries are and that only their coins matter."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.data import registry
from dpjax.grads import bounder as bounders
from dpjax.runs import building
from dpjax.runs import canaries
from dpjax.runs import configuration
from dpjax.runs import options
from dpjax.runs import run_keys
from dpjax.runs import training
from dpjax.train import checkpoint
from dpjax.train import requirements

_DATA = registry.load('breast_cancer')
_CONFIG = configuration.TrainingConfig(
    dataset='breast_cancer', method='dp_sgd', num_steps=5, width=4,
    num_canaries=40)


def _resolved(**changes):
  return run_keys.reproducible(configuration.resolve(
      dataclasses.replace(_CONFIG, **changes), num_available=455))


def _draw(data=_DATA, /, **changes):
  config = _resolved(**changes)
  split = training.split_rows(config, data)
  return *canaries.draw(config, data, split), split


@pytest.mark.every(3)
@pytest.mark.parametrize('kind', ['held_out', 'mislabelled'])
def test_held_out_canaries_leave_the_test_part(kind):
  drawn, rest, split = _draw(canary_kind=kind)
  np.testing.assert_array_equal(rest.train, split.train)
  taken = set(split.test.tolist()) - set(rest.test.tolist())
  assert len(taken) == 40 and len(rest.test) == len(split.test) - 40
  rows = np.array([np.flatnonzero((np.asarray(_DATA.x) == x).all(1))[0]
                   for x in np.asarray(drawn.records.x)])
  assert set(rows.tolist()) == taken
  same = np.asarray(drawn.records.y) == np.asarray(_DATA.y)[rows]
  assert same.all() if kind == 'held_out' else not same.any()
  assert set(np.unique(drawn.records.y)) == {0, 1}


@pytest.mark.slow
def test_wrong_labels_are_all_the_other_ones():
  digits = registry.load('digits')
  drawn, _, _ = _draw(digits, dataset='digits', canary_kind='mislabelled',
                      num_canaries=300)
  by_image = {np.asarray(x).tobytes(): int(y) for x, y in zip(
      digits.records.x, digits.records.y)}
  true = [by_image[np.asarray(x).tobytes()] for x in drawn.records.x]
  shift = (np.asarray(drawn.records.y) - true) % 10
  assert set(shift.tolist()) == set(range(1, 10))


@pytest.mark.every(3)
@pytest.mark.parametrize('dataset, low', [('breast_cancer', -1.0),
                                          ('digits', 0.0)])
def test_made_canaries_fill_the_public_range(dataset, low):
  data = registry.load(dataset)
  data = building.prepare(_resolved(dataset=dataset, pixels='unsigned'), data)
  shape = building.shapes(data).record
  drawn = {}
  for kind in ('noise', 'blank'):
    made_up, rest, split = _draw(data, dataset=dataset, pixels='unsigned',
                                 canary_kind=kind)
    x = np.asarray(made_up.records.x).reshape(40, -1)
    assert made_up.records.x.shape == (40, *shape) and x.dtype == np.float32
    assert x.min() >= low and x.max() <= 1
    assert x.min() < low + 0.05 and x.max() > 0.95
    assert len(np.unique(x, axis=0)) == 40 and rest == split
    assert len(np.unique(made_up.records.y)) == building.shapes(
        data).num_classes
    drawn[kind] = x
  assert (np.ptp(drawn['blank'], axis=1) == 0).all()
  assert stats.kstest(drawn['noise'].ravel(),
                      stats.uniform(low, 1 - low).cdf).pvalue > 1e-4


def test_coins_are_fair_and_hang_on_the_seed_alone():
  # 3000 fair coins are off by over 4 standard deviations with probability 6e-5.
  large = dict(canary_kind='noise', num_canaries=3000)
  first, second = (np.asarray(_draw(seed=seed, **large)[0].included)
                   for seed in (0, 1))
  for each in (first, second, first == second):
    assert abs(each.mean() - 0.5) < 4 * 0.5 / 3000**0.5
  for changes in (dict(method='sgd'), dict(epsilon=3.0), dict(num_steps=7),
                  dict(seed=5, split_seed=0, canary_seed=0)):
    again, _, _ = _draw(**large, **changes)
    np.testing.assert_array_equal(again.included, first)
  # Labels are independent of the coin flips.
  labels = np.asarray(_draw(**large)[0].records.y)
  assert abs((labels == first).mean() - 0.5) < 4 * 0.5 / 3000**0.5


@pytest.mark.every(2)
def test_coins_without_a_seed_come_from_the_secret_key():
  config = dataclasses.replace(
      _resolved(canary_kind='noise', num_canaries=3000), noise_seed=None)
  split = training.split_rows(config, _DATA)
  keys = run_keys.new_keys(2)
  drawn = [canaries.draw(config, _DATA, split, key)[0]
           for key in (keys[0], keys[1], keys[0])]
  coins = [np.asarray(each.included) for each in drawn]
  np.testing.assert_array_equal(coins[0], coins[2])
  np.testing.assert_array_equal(drawn[0].records.x, drawn[2].records.x)
  seeded = np.asarray(_draw(canary_kind='noise', num_canaries=3000)[0].included)
  # These are 4 standard deviations of 3000 fair coins, as above.
  for each in (coins[0], coins[1], coins[0] == coins[1], coins[0] == seeded):
    assert abs(each.mean() - 0.5) < 4 * 0.5 / 3000**0.5
  with pytest.raises(ValueError, match='need the key of their run'):
    training.draw_parts(config, _DATA)


def test_rows_of_runs_meet_their_own_canaries_or_nothing():
  drawn = [_draw(seed=seed)[0] for seed in (0, 1)]
  records, slots = canaries.join(_DATA.records, drawn)
  assert records.y.shape == (569 + 80 + 40,)
  np.testing.assert_array_equal(records.x[:569], _DATA.x)
  for each, rows in zip(drawn, slots, strict=True):
    assert rows.dtype == jnp.int32 and each.included.any()
    x, y = np.asarray(records.x[rows]), np.asarray(records.y[rows])
    included = np.asarray(each.included)
    np.testing.assert_array_equal(x[included],
                                  np.asarray(each.records.x)[included])
    np.testing.assert_array_equal(y[included],
                                  np.asarray(each.records.y)[included])
    assert np.isnan(x[~included]).all()
  first, second = ({*np.asarray(rows).tolist()} for rows in slots)
  # A record in two slots of a run would count twice.
  assert len(first) == len(second) == 40
  assert all(row >= 649 for row in first & second)


_QUICK = ('sgd', 'dp_sgd_adaptive', 'lip_normalised', 'lip_adaptive')


@pytest.mark.parametrize('method', [
    pytest.param(method, marks=() if method in _QUICK else pytest.mark.slow)
    for method in options.METHODS])
def test_a_canary_left_out_adds_nothing_to_any_sum(method):
  """A canary that is left out adds nothing to any sum."""
  images = method == 'lip_norm'
  data = registry.load('digits') if images else _DATA
  config = _resolved(
      method=method, dataset='digits' if images else 'breast_cancer',
      depth=0 if method == 'bassily' else 1, num_groups=2,
      allow_unsound=method == 'lip_printed')
  model = building.make_model(config, data)
  built = building.make_method(config, model, data)
  params, _ = built.constraint.constrain(model.init(jax.random.key(0)))
  bounder = bounders.at_radii(
      built.bounder, built.bounder.adaptive.init if built.bounder.adaptive
      else ())
  drawn = _draw(data, dataset=config.dataset)[0]
  records, (slots,) = canaries.join(data.records, [drawn])
  rows = jnp.concatenate([jnp.arange(8, dtype=jnp.int32), slots[:16]])
  batch = jax.tree.map(lambda leaf: leaf[rows], records)
  batch = batch._replace(x=model.prepare(batch.x))
  out = np.append(np.zeros(8, bool), ~np.asarray(drawn.included[:16]))
  assert 0 < out.sum() < 16
  sums = jax.jit(bounder.sums)
  bounded = sums(params, batch, jnp.ones([24], bool))
  without = sums(params, batch, jnp.asarray(~out))
  for a, b in zip(jax.tree.leaves(bounded._replace(num_nonfinite=0)),
                  jax.tree.leaves(without._replace(num_nonfinite=0)),
                  strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
  assert bounded.num_nonfinite == out.sum() and without.num_nonfinite == 0
  assert max(float(jnp.abs(leaf).max())
             for leaf in jax.tree.leaves(bounded.total)) > 0


def _negated(drawn, which):
  x = jnp.where(which[:, None], -drawn.records.x, drawn.records.x)
  return drawn._replace(records=drawn.records._replace(x=x))


@pytest.mark.slow
def test_a_run_sees_the_canaries_that_are_in_and_no_others(monkeypatch):
  """A run depends on the included canaries only, bit for bit.

  Four runs share one key; their epsilon tells them apart.
  """
  change = {1.0: lambda drawn: drawn,
            2.0: lambda drawn: _negated(drawn, ~drawn.included),
            3.0: lambda drawn: _negated(drawn, drawn.included),
            4.0: lambda drawn: drawn._replace(
                included=jnp.ones_like(drawn.included))}
  honest = canaries.draw

  def draw(config, *rest):
    drawn, split = honest(config, *rest)
    return change[config.epsilon](drawn), split
  monkeypatch.setattr(canaries, 'draw', draw)
  for seed, name in enumerate(('run_key', 'init_key')):
    monkeypatch.setattr(run_keys, name,
                        lambda _, seed=seed: jax.random.key(seed))
  # The keys are equal, so that nothing else differs; a check would refuse this.
  monkeypatch.setattr(requirements, 'check_keys', lambda *_: None)
  runs = training.train([
      dataclasses.replace(_CONFIG, method='sgd', num_steps=3, epsilon=epsilon,
                          batch_size=495.0, noise_seed=0)
      for epsilon in change])
  plain, others_out, others_in, all_in = (
      np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(run.params)]
                     ).tobytes() for run in runs)
  assert plain == others_out
  assert len({plain, others_in, all_in}) == 3
  # No coin changes what is planned, sampled or evaluated.
  assert runs[3].plan == runs[0].plan
  assert {run.num_test for run in runs} == {74}
  out = int((~runs[0].canaries.included).sum())
  assert [run.num_nonfinite for run in runs] == [3 * out] * 3 + [0]


def test_the_public_number_of_records_is_that_of_slots():
  config = _resolved()
  assert config.num_examples == 455 and config.num_slots == 495
  assert config.delta == pytest.approx(495**-1.1)
  assert config.batch_size == 495
  plan = training.make_plan(_resolved(batch_size=99.0, accountant='rdp'))
  assert plan.sampler.num_examples == 495
  assert plan.sampler.sampling_prob == pytest.approx(0.2)
  assert plan.sampler.expected_batch_size == pytest.approx(99)
  assert training.plan_of(_resolved(batch_size=99.0),
                          plan.noise_multiplier) == plan
  assert training.plan_of(_resolved(method='sgd'), None) == (
      training.make_plan(_resolved(method='sgd')))


def test_keys_of_runs_without_canaries_stay():
  plain = _resolved(num_canaries=0)
  keys = {tuple(jax.random.key_data(run_keys.run_key(config)).tolist())
          for config in (plain, dataclasses.replace(plain, num_canaries=40),
                         dataclasses.replace(plain, num_canaries=40,
                                             canary_seed=1))}
  assert len(keys) == 3
  # These keys were pinned before canaries existed.
  default = run_keys.reproducible(configuration.resolve(
      configuration.TrainingConfig(dataset='breast_cancer', method='dp_sgd'),
      num_available=455))
  assert jax.random.key_data(run_keys.run_key(default)).tolist() == [
      1973122803, 3299492099]


def test_a_checkpoint_of_other_coins_is_another_one():
  def of(changes):
    drawn = _draw(canary_kind='noise', **changes)[0]
    records, slots = canaries.join(_DATA.records, [drawn])
    return checkpoint.fingerprint(
        jax.random.key(0), plans=[training.make_plan(_resolved(method='sgd'))],
        method_name='sgd', records=records, rows=jnp.stack(slots),
        allocation='optimal', num_groups=1, chunks=[5])
  assert of({}) == of({})
  assert of({})['rows'] != of(dict(canary_seed=3))['rows']


@pytest.mark.every(2)
@pytest.mark.parametrize('change, message', [
    (dict(num_canaries=-1), 'num_canaries must be an integer >= 0'),
    (dict(canary_kind='loud'), 'canary_kind must be one of blank, held_out'),
    (dict(canary_seed=-1), 'canary_seed must be an integer >= 0'),
    (dict(num_canaries=0, canary_kind='noise'), 'num_canaries must be at least 1'),
    (dict(num_canaries=0, canary_seed=1), 'num_canaries must be at least 1'),
    (dict(num_canaries=114), 'num_canaries must be below 114, the held-out'),
    (dict(batch_size=496.0),
     r'at most num_examples \+ num_canaries = 495, got 496')])
def test_what_cannot_be_is_refused(change, message):
  with pytest.raises(ValueError, match=message):
    training.train([dataclasses.replace(_CONFIG, **change)])
