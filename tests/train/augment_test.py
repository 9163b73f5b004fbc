"""These tests check REG-04: views of a record are averaged before clipping."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from dpjax.audit import whitebox
from dpjax.grads import ball
from dpjax.grads import bounder as bounders
from dpjax.grads import per_example
from dpjax.lipschitz import bounder as lipschitz_bounder
from dpjax.lipschitz import losses
from dpjax.models import mlp
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.train import augment
from dpjax.train import loop
from dpjax.train import plan as plans
from dpjax.train import state as states
from dpjax.train import step as steps
from dpjax.typing import Batch

LOSS = losses.cross_entropy()
CLIP_NORM = 0.3
VIEWS = 5


def _apply(params, x):
  """Returns the logits of a linear network on images [b, 4, 5, 2]."""
  flat = x.reshape((x.shape[0], -1))
  return flat @ params['d']['w'] + params['d']['b'][None]


@pytest.fixture(name='task', scope='module')
def _task():
  """Returns (params, batch of 7 images with labels)."""
  rng = np.random.default_rng(0)
  draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
  return {'d': {'w': draw(40, 3), 'b': draw(3)}}, Batch(
    draw(7, 4, 5, 2), jnp.asarray(rng.integers(0, 3, 7), jnp.int32))


def _clipped(apply, loss):
  return per_example.clipped(apply, loss, clip_norm=CLIP_NORM)


def _make(augmentation=None, multiplicity=VIEWS, make_bounder=_clipped):
  return augment.augmented(
    make_bounder, _apply, LOSS.values, multiplicity=multiplicity,
    augmentation=augmentation or augment.crop_and_flip(padding=2))


def _sums(bounder, params, batch, *, key=0, mask=None, numbers=None):
  """Returns the sums that a step would noise."""
  size = batch.y.shape[0]
  numbers = jnp.arange(size) if numbers is None else numbers
  mask = jnp.ones([size], jnp.bool_) if mask is None else mask

  @jax.jit
  def sums(key, numbers, params, batch, mask):
    views = bounder.views(key, numbers, batch.x)
    return bounder.sums(params, batch._replace(x=views), mask)

  return sums(jax.random.key(key), numbers, params, batch, mask)


def _flat(values):
  return np.concatenate([np.ravel(np.asarray(leaf, np.float64))
                         for leaf in jax.tree.leaves(values)])


# The next tests take one view.


@pytest.mark.slow
@pytest.mark.parametrize('mode, numpy_mode', [('reflect', 'reflect'),
                                              ('zero', 'constant')])
def test_views_are_all_crops_and_mirrors(task, mode, numpy_mode):
  """All 9 shifts and both mirrorings occur
  equally often, by a chi-square test."""
  image = np.asarray(task[1].x[0])
  padded = np.pad(image, ((1, 1), (1, 1), (0, 0)), mode=numpy_mode)
  crops = [padded[i:i + 4, j:j + 5][:, ::side] for i, j, side in
           itertools.product(range(3), range(3), (1, -1))]
  transform = augment.crop_and_flip(padding=1, mode=mode)
  views = np.asarray(jax.jit(jax.vmap(lambda k: transform(k, image)))(
    jax.random.split(jax.random.key(1), 3600)))
  which = [np.flatnonzero([np.array_equal(view, crop) for crop in crops])
           for view in views]
  assert all(len(each) == 1 for each in which)
  counts = np.bincount(np.concatenate(which), minlength=18)
  assert np.sum((counts - 200)**2 / 200) < stats.chi2(17).isf(1e-6)


def test_no_flip_and_no_padding_is_the_image(task):
  transform = augment.crop_and_flip(padding=0, flip=False)
  np.testing.assert_array_equal(
    transform(jax.random.key(0), task[1].x[0]), task[1].x[0])


def test_refuses_settings(task):
  with pytest.raises(ValueError, match='padding must be an integer >= 0'):
    augment.crop_and_flip(padding=-1)
  with pytest.raises(ValueError, match='mode must be one of reflect, zero'):
    augment.crop_and_flip(padding=1, mode='wrap')
  with pytest.raises(ValueError, match='multiplicity must be an integer >= 1'):
    _make(multiplicity=0)


# The next tests take many views.


@pytest.mark.every(3)
@pytest.mark.parametrize('make_bounder', [_clipped, per_example.summed])
def test_identical_views_are_one(task, make_bounder):
  params, batch = task
  same = _make(lambda key, image: image, make_bounder=make_bounder)
  bounded = jax.jit(lambda p, b: _sums(same, p, b))(params, batch)
  plain = jax.jit(make_bounder(_apply, LOSS.values).sums)(
    params, batch, jnp.ones([7], jnp.bool_))
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=3e-6),
               bounded, plain)


def check_average_is_clipped(bounder, task):
  """Checks sums against a loop that averages
  each record's views, then clips."""
  params, batch = task
  views = np.asarray(jax.jit(bounder.views)(
    jax.random.key(3), jnp.arange(7), batch.x))
  gradient = jax.jit(jax.grad(lambda p, x, y: LOSS.values(
    _apply(p, x[None]), y[None])[0]))
  total = 0
  for index in range(7):
    mean = np.mean([_flat(gradient(params, view, batch.y[index]))
                    for view in views[index]], 0)
    total += mean * min(1, CLIP_NORM / np.linalg.norm(mean))
  bounded = _sums(bounder, params, batch, key=3).total
  np.testing.assert_allclose(_flat(bounded), total, atol=1e-5)


@pytest.mark.every(2)
def test_average_is_taken_before_clipping(task):
  check_average_is_clipped(_make(), task)


@pytest.mark.slow
def test_batch_sums_are_rows_of_weight_one_over_views(task):
  """Sums over views equal an ordinary sum over all b A views, divided by A."""
  params, batch = task
  bounder = _make(make_bounder=per_example.summed)
  views = bounder.views(jax.random.key(0), jnp.arange(7), batch.x)
  rows = Batch(views.reshape((-1,) + views.shape[2:]),
               jnp.repeat(batch.y, VIEWS))
  weighted = per_example.summed(_apply, LOSS.values).sums(
    params, rows, jnp.ones([7 * VIEWS], jnp.bool_)).total
  np.testing.assert_allclose(_flat(_sums(bounder, params, batch).total),
                             _flat(weighted) / VIEWS, atol=1e-5)


def check_records_are_isolated(bounder, task):
  """Checks that record 2 adds the same bits in any batch and at any place."""
  params, batch = task
  alone = jnp.arange(7) == 2
  sums = jax.jit(lambda b, m, n: _sums(bounder, params, b, mask=m, numbers=n))
  before = sums(batch, alone, jnp.arange(7)).total
  others = jnp.where(alone[:, None, None, None], batch.x, 9 * batch.x[::-1])
  jax.tree.map(np.testing.assert_array_equal, before, sums(
    Batch(others, batch.y), alone, jnp.arange(7)).total)
  order = jnp.asarray([4, 2, 6, 0, 1, 3, 5])
  moved = jax.tree.map(lambda leaf: leaf[order], batch)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), before,
    sums(moved, order == 2, order).total)
  assert np.linalg.norm(_flat(before)) <= CLIP_NORM * (1 + 1e-6)


@pytest.mark.every(2)
def test_records_are_isolated(task):
  check_records_are_isolated(_make(), task)


@pytest.mark.every(2)
def test_views_differ_by_view_record_and_step(task):
  bounder = _make()
  batch = jnp.tile(task[1].x[:1], (7, 1, 1, 1))
  first, second = (np.asarray(bounder.views(jax.random.key(key),
                                            jnp.arange(7), batch))
                   for key in (0, 1))
  assert first.shape == (7, VIEWS, 4, 5, 2)
  seen = {view.tobytes() for view in first.reshape(35, -1)}
  # There are 50 outcomes: 35 views have fewer than 8 with probability 1e-18.
  assert len(seen) >= 8 and not np.array_equal(first, second)
  assert any(not np.array_equal(first[0], other) for other in first[1:])


def test_bad_pixel_is_nothing_even_if_cropped_out(task):
  params, batch = task
  bounder = _make(lambda key, image: image.at[0, 0].set(0.))
  mask = jnp.ones([7], jnp.bool_)
  good = _sums(bounder, params, batch, mask=mask.at[4].set(False))
  for bad in (jnp.nan, jnp.inf):
    poisoned = batch._replace(x=batch.x.at[4, 0, 0, 0].set(bad))
    bounded = _sums(bounder, params, poisoned, mask=mask)
    assert int(bounded.num_nonfinite) == 1
    jax.tree.map(np.testing.assert_array_equal, bounded.total, good.total)


@pytest.mark.slow
@pytest.mark.parametrize('prepared', [True, False])
def test_certified_networks_bound_every_view(prepared):
  """A certified network bounds every view, even one longer than its record.

  The network projects such a view again.
  """
  model = mlp.mlp(num_features=3, num_classes=2, depth=1, width=4,
                  input_radius=1., hidden_radius=1.)
  params = model.init(jax.random.key(0))
  rng = np.random.default_rng(2)
  x = jnp.asarray(3 * rng.normal(size=(6, 3)), jnp.float32).at[1, 0].set(
    jnp.nan)
  y = jnp.asarray([0, 1, 0, 1, 1, 0], jnp.int32)
  bounder = augment.augmented(
    lambda apply, values: lipschitz_bounder.certified(
      model.network, LOSS._replace(values=values), weight_norm=1e3),
    model.apply, LOSS.values, multiplicity=3,
    augmentation=lambda key, record: record * (1 + 9 * jax.random.uniform(
      key)))
  batch = Batch(model.prepare(x) if prepared else x, y)
  views = bounder.views(jax.random.key(0), jnp.arange(6), batch.x)
  if prepared:
    assert isinstance(views, ball.BallRecords)
    norms = np.linalg.norm(np.float64(views.values), axis=-1)
    assert norms.max() <= 1 + 1e-6 and norms[[0, 2, 3, 4, 5]].min() > 0.99
  norms = {name: jnp.float32(np.linalg.norm(layer['kernel'], 2) * 1.00001)
           for name, layer in params.items()}
  limits = bounder.l2_sensitivity(norms)
  sums = jax.jit(bounder.sums)
  for index in range(6):
    bounded = sums(params, batch._replace(x=views), jnp.arange(6) == index)
    for name, limit in limits.items():
      moved = np.linalg.norm(_flat(bounded.total[name]))
      assert moved <= float(limit) * (1 + 1e-5)
      assert (moved == 0) == (index == 1)
    assert int(bounded.num_nonfinite) == (index == 1)


# The tests below check the stream of keys and the loop.


def test_other_streams_are_as_they_were():
  """The first three streams stay jax.random.split's, as committed runs need."""
  key = jax.random.key(17)
  streams = states.streams(key)
  for stream, expected in zip(streams[:3], jax.random.split(key, 3),
                              strict=True):
    assert stream == expected
  words = {tuple(np.ravel(jax.random.key_data(stream))) for stream in streams}
  assert len(words) == 4


@pytest.mark.slow
def test_in_the_loop(task):
  params, batch = task
  model = mlp.mlp(num_features=3, num_classes=3)._replace(
    init=lambda key: params, apply=_apply)
  plan = plans.TrainingPlan(
    sampler=PoissonSampler(num_examples=7, batch_size=3), num_steps=4,
    noise_multiplier=1., adjacency=Adjacency.ADD_OR_REMOVE_ONE)

  def fit(bounder):
    return loop.fit(
      jax.random.split(jax.random.key(0), 1), plans=[plan], model=model,
      method=bounders.Method('dp_sgd', bounder, bounders.no_constraint(),
                             private=True),
      optimizer=optax.sgd(0.5), records=batch,
      rows=jnp.arange(7, dtype=jnp.int32)[None])

  plain = fit(_clipped(_apply, LOSS.values))
  same = fit(_make(lambda key, image: image))
  varied = fit(_make())
  np.testing.assert_array_equal(plain.info.batch_size, varied.info.batch_size)
  assert plain.joint_noise_multipliers == varied.joint_noise_multipliers
  # The noise is the same; a rounding may move it by one point of its grid.
  slack = 4 * 0.5 * CLIP_NORM / 3 / 256 + 1e-6
  np.testing.assert_allclose(_flat(plain.state.params),
                             _flat(same.state.params), atol=slack)
  assert np.abs(_flat(plain.state.params)
                - _flat(varied.state.params)).max() > slack


def test_views_are_drawn_anew_at_each_step(task):
  """Steps and runs draw new views: eight full
  batches have eight different sums."""
  batch = task[1]
  shift = lambda key, image: image + jax.random.uniform(key)
  bounder = _make(shift, make_bounder=lambda apply, loss: (
    bounders.GradientBounder(
      lambda params, part, mask: bounders.BoundedSums(
        {'w': jnp.sum(part.x)}, jnp.float32(0), jnp.int32(0)),
      lambda certificate: jnp.float32(1.))))
  method = bounders.Method('sum', bounder, bounders.no_constraint(), False)
  sampler = PoissonSampler(num_examples=7, batch_size=7)
  transform_of = lambda key: steps.make_transform(
    method, sampler, optax.chain(whitebox.recorder(lambda u: u['w'], 4),
                                 optax.sgd(0.)),
    key=key, noise_multiplier=0., allocation='optimal')
  model = mlp.mlp(num_features=3, num_classes=3)._replace(
    init=lambda key: {'w': jnp.float32(0.)})
  step = jax.jit(steps.make_step(method=method, sampler=sampler,
                                 transform_of=transform_of))
  seen = []
  for seed in (0, 1):
    state = steps.init_state(jax.random.key(seed), model=model, method=method,
                             transform_of=transform_of)
    for _ in range(4):
      state, _ = step(state, batch, jnp.arange(7, dtype=jnp.int32))
    seen.extend(np.asarray(state.optimizer[1][0].history))
  assert len({float(value) for value in seen}) == 8


# The tests below plant faults.


@pytest.mark.slow
def test_fault_views_clipped_one_by_one(task):
  """The mean of separately clipped views is
  bounded but must fail REG-04's check."""
  def each(params, batch, mask):
    rows = Batch(batch.x.reshape((-1,) + batch.x.shape[2:]),
                 jnp.repeat(batch.y, VIEWS))
    clipped = _clipped(_apply, LOSS.values).sums(params, rows,
                                                 jnp.repeat(mask, VIEWS))
    return clipped._replace(total=jax.tree.map(lambda leaf: leaf / VIEWS,
                                               clipped.total))

  with pytest.raises(AssertionError):
    check_average_is_clipped(_make()._replace(sums=each), task)


def test_fault_records_mixed(task):
  honest = _make()

  def mixed(key, numbers, x):
    views = honest.views(key, numbers, x)
    return 0.9 * views + 0.1 * jnp.roll(views, 1, 0)

  with pytest.raises(AssertionError):
    check_records_are_isolated(honest._replace(views=mixed), task)


@pytest.mark.every(2)
def test_fault_views_by_place_in_the_batch(task):
  """Keys by place in the batch must fail: other
  records would choose the views."""
  honest = _make()
  fault = honest._replace(views=lambda key, numbers, x: honest.views(
    key, jnp.arange(numbers.size), x))
  with pytest.raises(AssertionError):
    check_records_are_isolated(fault, task)
