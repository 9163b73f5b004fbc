"""These tests check the private radii of LDP-06 in training runs.

Radii are public state: a step bounds gradients with the radii it found and
leaves updated radii to the next step.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax import tree
from dpjax.grads import ball
from dpjax.grads import bounder as bounders
from dpjax.grads import per_example
from dpjax.grads import quantiles
from dpjax.lipschitz import losses
from dpjax.privacy import additive
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.train import loop
from dpjax.train import plan as plans
from dpjax.train import step as steps
from dpjax.typing import Batch

LOSS = losses.cross_entropy()
MULTIPLIER, SIGMA_B, LEARNING_RATE = 1.3, 2., 0.4
SAMPLER = PoissonSampler(num_examples=50, batch_size=12, max_batch_size=9)
ROWS = jnp.arange(50, dtype=jnp.int32)
SETTINGS = dict(target_quantile=0.5, learning_rate=0.2, noise_stddev=SIGMA_B)


def _radii_for(kind):
  return {'flat': 0.7, 'layers': {'dense_00': 0.6, 'dense_01': 0.4},
          'activations': {'dense_00': 1.5, 'dense_01': 1.}}[kind]


def _projected(radii, params, x):
  """Returns the logits and input norms of a tanh network on projected inputs.

  The norms are taken before projection, as LDP-06 needs them.
  """
  names, norms = sorted(params), {}
  for index, name in enumerate(names):
    x = jnp.tanh(x) if index else x
    # Padded rows are zeros, where the root has no derivative.
    norms[name] = jnp.sqrt(jnp.maximum(jnp.sum(jnp.square(x), -1), 1e-12))
    scale = jnp.minimum(1., radii[name] / norms[name])
    x = (x * scale[:, None]) @ params[name]['kernel'] + params[name][
      'bias'][None]
  return x, norms


def _activation_bounder(adaptive):
  """Returns an LDP-05 bounder with the adaptive
  radii of LDP-06 for two layers."""
  def sums(params, batch, mask, radii):
    plain = per_example.plain_sums(
      lambda p, x: _projected(radii, p, x)[0], LOSS.values, params, batch,
      mask)
    finite = jnp.all(jnp.isfinite(batch.x), -1)
    x = jnp.where(finite[:, None], batch.x, 0.)
    norms = _projected(radii, params, x)[1]
    return plain._replace(indicators=quantiles.centred_indicators(
      norms, radii, mask & finite))

  def l2_sensitivity(certificate, radii):
    after = {'dense_00': certificate['dense_01'], 'dense_01': jnp.float32(1.)}
    return {name: np.float32(LOSS.lipschitz) * after[name]
            * jnp.sqrt(jnp.square(radius) + 1) for name, radius
            in radii.items()}

  return bounders.GradientBounder(sums, l2_sensitivity, adaptive)


@pytest.fixture(name='make', scope='module')
def _make(make_model, make_method):
  """Returns a function from the kind of radii to (model, method)."""
  def make(kind, **changes):
    model = make_model(False)
    adaptive = quantiles.geometric(_radii_for(kind), **{**SETTINGS, **changes})
    if kind == 'activations':
      bounder = _activation_bounder(adaptive)
      constraint = make_method('lip_dp_sgd', make_model(True)).constraint
    else:
      bounder = per_example.adaptively_clipped(model.apply, LOSS.values,
                                               adaptive=adaptive)
      constraint = bounders.no_constraint()
    return model, bounders.Method(kind, bounder, constraint, private=True)
  return make


def _run(model, method, records, num_steps=3):
  """Returns the states and step infos of a few steps, taken one at a time."""
  transform_of = lambda key: steps.make_transform(
    method, SAMPLER, optax.sgd(LEARNING_RATE), key=key,
    noise_multiplier=MULTIPLIER, allocation='optimal')
  step = jax.jit(steps.make_step(method=method, sampler=SAMPLER,
                                 transform_of=transform_of))
  states = [steps.init_state(jax.random.key(4), model=model, method=method,
                             transform_of=transform_of)]
  infos = []
  for _ in range(num_steps):
    state, info = step(states[-1], records, ROWS)
    states.append(state)
    infos.append(info)
  return states, infos


def _flat(values):
  return np.concatenate([np.ravel(np.asarray(leaf, np.float64))
                         for leaf in jax.tree.leaves(values)])


def check_radii_are_of_the_step_before(model, method, records):
  """Checks that each step uses the radii found by the previous step.

  The test also recomputes the sensitivities and the multiplier.
  """
  states, infos = _run(model, method, records)
  for before, after, info in zip(states, states[1:], infos):
    jax.tree.map(np.testing.assert_array_equal, info.radii, before.radii)
    np.testing.assert_allclose(
      info.l2_sensitivity, np.stack(jax.tree.leaves(
        method.bounder.l2_sensitivity(before.certificate, before.radii))),
      rtol=1e-6)
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), after.radii,
      method.bounder.adaptive.update(before.radii,
                                     after.optimizer[0].indicators))
    assert MULTIPLIER <= float(info.joint_noise_multiplier) < MULTIPLIER * (
      1 + 1e-5)
  assert not np.array_equal(_flat(states[0].radii), _flat(states[1].radii))
  # The scales of the first step know no record, those of the second know the
  # records by the noisy indicators only.
  poisoned = Batch(jnp.full_like(records.x, jnp.nan), records.y)
  blind = _run(model, method, poisoned, num_steps=1)
  np.testing.assert_array_equal(blind[1][0].l2_sensitivity,
                                infos[0].l2_sensitivity)
  return states, infos


@pytest.mark.every(4)
@pytest.mark.parametrize('kind', ['flat', 'layers', 'activations'])
def test_radii_are_of_the_step_before(make, records, kind):
  check_radii_are_of_the_step_before(*make(kind), records)


@pytest.mark.every(2)
def test_indicators_are_counts_with_their_noise(make, records):
  """The noisy indicator equals a count by hand
  plus noise from the key's bits."""
  model, method = make('flat')
  states, _ = _run(model, method, records, num_steps=1)
  words = additive.random_words(
    jax.random.fold_in(states[0].keys.batch, 0), (50,))
  chosen = np.flatnonzero(np.asarray(words, np.int64)
                          < round(12 / 50 * 2**32))
  grads = jax.jit(lambda *task: per_example.per_example_gradients(
    model.apply, LOSS.values, *task)[1])(
      states[0].params, jax.tree.map(lambda leaf: leaf[chosen], records))
  norms = np.sqrt(sum(np.sum(np.square(leaf), tuple(range(1, leaf.ndim)))
                      for leaf in jax.tree.leaves(grads)))
  draws = _indicator_draw(states[0])
  expected = (np.sum(np.where(norms <= 0.7, 0.5, -0.5)) + SIGMA_B * draws) / 12
  # The release is rounded to a grid of stddev / 256 at most.
  assert float(states[1].optimizer[0].indicators) == pytest.approx(
    expected, abs=SIGMA_B / 12 / 256)


def _indicator_draw(state):
  """Returns the indicator's unit noise, which is the last draw of step 0."""
  return float(additive.standard_normal(
    jax.random.fold_in(state.keys.noise, 0), (),
    start=tree.count(state.params)))


@pytest.mark.every(2)
@pytest.mark.parametrize('kind', ['activations'])
def test_one_record_keeps_its_bounds(make, records, kind):
  """One record stays within its gradient and count bounds after radii move."""
  model, method = make(kind)
  states, _ = _run(model, method, records)
  state = states[-1]
  bounder = bounders.at_radii(method.bounder, state.radii)
  limits = bounder.l2_sensitivity(state.certificate)
  big = Batch(jnp.concatenate([records.x, 1e4 * records.x[:5]]),
              jnp.concatenate([records.y, records.y[:5]]))
  terms = jax.jit(jax.vmap(lambda only: bounder.sums(
    state.params, big, only)))(jnp.eye(65, dtype=jnp.bool_))
  for name, limit in limits.items():
    norms = np.sqrt(sum(np.sum(np.square(np.float64(leaf)), tuple(
      range(1, leaf.ndim))) for leaf in jax.tree.leaves(terms.total[name])))
    assert norms.max() <= float(limit) * (1 + 1e-5)
    np.testing.assert_array_equal(np.abs(terms.indicators[name]), 0.5)


def _plan(multiplier, num_steps=30, sampler=SAMPLER):
  return plans.TrainingPlan(sampler=sampler, num_steps=num_steps,
                            noise_multiplier=multiplier,
                            adjacency=Adjacency.ADD_OR_REMOVE_ONE)


def _fit(model, method, records, multiplier=MULTIPLIER, **changes):
  plan = _plan(multiplier, **changes)
  size = plan.sampler.num_examples
  return loop.fit(
    jax.random.key(4)[None], plans=[plan], model=model, method=method,
    optimizer=optax.sgd(LEARNING_RATE), records=records,
    rows=jnp.arange(size, dtype=jnp.int32)[None])


@pytest.mark.slow
def test_the_loop_is_the_steps(make, records):
  """The loop takes the same radii as single
  steps and meets the planned multiplier."""
  model, method = make('layers')
  result = _fit(model, method, records)
  states, infos = _run(model, method, records, num_steps=3)
  for name, path in result.info.radii.items():
    assert path.shape == (30, 1)
    np.testing.assert_allclose(
      path[:3, 0], [float(info.radii[name]) for info in infos], rtol=1e-3)
  assert result.joint_noise_multipliers[0] >= MULTIPLIER
  assert result.events == (_plan(MULTIPLIER).event,)


@pytest.mark.slow
def test_radii_settle_in_a_run(make):
  """The radius settles where half of a frozen
  network's gradients lie within it."""
  rng = np.random.default_rng(3)
  records = Batch(jnp.asarray(rng.normal(size=(400, 3)), jnp.float32),
                  jnp.asarray(rng.integers(0, 2, 400), jnp.int32))
  model, method = make('flat', noise_stddev=5.)
  plan = _plan(3., num_steps=200,
               sampler=PoissonSampler(num_examples=400, batch_size=100))
  result = loop.fit(
    jax.random.key(4)[None], plans=[plan], model=model, method=method,
    optimizer=optax.sgd(0.), records=records,
    rows=jnp.arange(400, dtype=jnp.int32)[None])
  params = jax.tree.map(lambda leaf: leaf[0], result.state.params)
  grads = per_example.per_example_gradients(model.apply, LOSS.values, params,
                                            records)[1]
  norms = np.sqrt(sum(np.sum(np.square(leaf), tuple(range(1, leaf.ndim)))
                      for leaf in jax.tree.leaves(grads)))
  radii = np.asarray(result.info.radii)[-100:, 0]
  within = np.mean(norms[:, None] <= radii)
  assert abs(within - 0.5) < 0.03


def test_refused_before_anything_is_spent(make, records):
  model, method = make('layers')
  with pytest.raises(ValueError, match='noise_stddev of 2 adaptive radii must '
                                       'be above') as caught:
    _fit(model, method, records, multiplier=2.9)
  assert '\n' not in str(caught.value)
  with pytest.raises(ValueError, match='adaptive radii, so it needs noise'):
    steps.make_transform(
      method._replace(private=False), SAMPLER, optax.sgd(1.),
      key=jax.random.key(0), noise_multiplier=1., allocation='optimal')


@pytest.mark.every(2)
def test_others_carry_no_radii(make_model, make_method, records):
  model = make_model(False)
  states, infos = _run(model, make_method('dp_sgd', model), records, 1)
  assert states[1].radii == () and infos[0].radii == ()
  assert states[1].optimizer[0].indicators == ()
  assert states[1].average == ()


# The tests below plant faults.


@pytest.mark.every(5)
def test_fault_indicators_free_of_charge(make, records, monkeypatch):
  """The loop must refuse a run whose multiplier
  ignores the indicator releases."""
  model, method = make('layers')
  monkeypatch.setattr(quantiles, 'gradient_noise_multiplier',
                      lambda noise_multiplier, adaptive: noise_multiplier)
  with pytest.raises(ValueError, match='less than the planned 1.3'):
    _fit(model, method, records)


@pytest.mark.slow
def test_fault_radii_of_this_batch(make, records):
  """Radii that this step's own records moved
  must fail the isolation check (R1)."""
  model, honest = make('flat')

  def sums(params, batch, mask, radii):
    first = honest.bounder.sums(params, batch, mask, radii)
    moved = honest.bounder.adaptive.update(
      radii, tree.scale(1 / 12, first.indicators))
    return honest.bounder.sums(params, batch, mask, moved)

  state = _run(model, honest, records, num_steps=1)[0][0]
  batch = jax.tree.map(lambda leaf: leaf[:9], records)

  def added(bounder, company):
    mask = jnp.arange(9) < company
    total = jax.jit(lambda mask: bounder.sums(state.params, batch, mask,
                                              state.radii).total)
    return _flat(total(mask.at[8].set(True))) - _flat(total(mask))

  np.testing.assert_allclose(added(honest.bounder, 0),
                             added(honest.bounder, 7), atol=1e-6)
  fault = honest.bounder._replace(sums=sums)
  with pytest.raises(AssertionError):
    np.testing.assert_allclose(added(fault, 0), added(fault, 7), atol=1e-6)


def test_fault_radii_moved_by_exact_counts(make, records, monkeypatch):
  """A radius update that reads exact counts
  must fail the check of the radii."""
  model, method = make('flat')
  honest = steps.make_step

  def leaking(**settings):
    step = honest(**settings)

    def leak(state, records, rows):
      after, info = step(state, records, rows)
      return after._replace(radii=method.bounder.adaptive.update(
        state.radii, info.batch_size / 24)), info
    return leak

  monkeypatch.setattr(steps, 'make_step', leaking)
  with pytest.raises(AssertionError):
    check_radii_are_of_the_step_before(model, method, records)


def test_norms_are_those_before_projection(make):
  """The network reports norms before projection.

  Projected norms are always within the radius, so the radius would only
  shrink.
  """
  x = jnp.asarray([[3., 4., 0.]])
  params = {'dense_00': {'kernel': jnp.zeros([3, 2]), 'bias': jnp.zeros([2])}}
  norms = _projected({'dense_00': jnp.float32(1.)}, params, x)[1]
  assert float(norms['dense_00'][0]) == pytest.approx(5.)
  assert float(jnp.linalg.norm(ball.project_ball(x, 1.))) <= 1 + 1e-6
