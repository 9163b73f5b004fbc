"""These tests check REG-05: parameter averages have their closed forms."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.train import averaging
from dpjax.train import evaluate
from dpjax.train import loop
from dpjax.train import plan as plans
from dpjax.train import step as steps


def _average(averager, values):
  """Returns the averages after each of values[1:], starting from values[0]."""
  def step(state, value):
    state = averager.update(state, {'w': value})
    return state, state.mean['w']

  first, rest = jnp.float32(values[0]), jnp.asarray(values[1:], jnp.float32)
  state, means = jax.lax.scan(step, averager.init({'w': first}), rest)
  assert int(state.count) == len(values) - 1
  return np.asarray(means, np.float64)


ALL = [averaging.ema(), averaging.ema(0.9), averaging.ema(0.9, warm_up=False),
       averaging.polyak()]


@pytest.mark.parametrize('averager', ALL)
def test_constant_stays(averager):
  np.testing.assert_array_equal(_average(averager, [3.25] * 200), [3.25] * 199)


def test_polyak_of_a_line_is_its_middle():
  """Polyak's average of a + b t over t = 1 ... T equals a + b (T + 1) / 2."""
  steps = np.arange(301)
  averages = _average(averaging.polyak(), 2. - 0.5 * steps)
  np.testing.assert_allclose(averages, 2. - 0.5 * (steps[1:] + 1) / 2,
                             rtol=1e-5)


def test_polyak_forgets_the_start():
  assert _average(averaging.polyak(), [1e6, 2., 2.])[-1] == pytest.approx(2.)


def test_average_of_a_line_lags():
  """The average of x_t = a + b t lags as e_T = x_T - b d (1 - d^T) / (1 - d).

  It starts at e_0 = a.
  """
  decay, steps = 0.9, np.arange(101)
  averages = _average(averaging.ema(decay, warm_up=False), 2. + 0.5 * steps)
  lag = 0.5 * decay * (1 - decay**steps) / (1 - decay)
  np.testing.assert_allclose(averages, (2. + 0.5 * steps - lag)[1:], rtol=1e-5)


@pytest.mark.parametrize('num_steps', [1, 2, 10, 500])
def test_warm_up_weighs_the_start_as_said(num_steps):
  """With warm-up the start keeps the weight T! 9! / (T + 9)!.

  This is the product over t < T of (1 + t) / (10 + t).
  """
  average = _average(averaging.ema(), [1.] + [0.] * num_steps)[-1]
  expected = math.exp(math.lgamma(num_steps + 1) + math.lgamma(10)
                      - math.lgamma(num_steps + 10))
  assert average == pytest.approx(expected, rel=1e-4)


def test_warm_up_ends_at_the_decay():
  """The decay (1 + t) / (10 + t) stops growing
  at 0.9, which it passes at t = 80."""
  values = np.random.default_rng(0).normal(size=200)
  averages = _average(averaging.ema(0.9), values)
  mean = values[0]
  for count, value in enumerate(values[1:]):
    decay = min(0.9, (1 + count) / (10 + count))
    mean = decay * mean + (1 - decay) * value
    assert averages[count] == pytest.approx(mean, abs=1e-5)


@pytest.mark.parametrize('decay', [0., 1., 1.5, math.nan])
def test_refuses_a_decay(decay):
  with pytest.raises(ValueError, match='decay must lie strictly between'):
    averaging.ema(decay)


@pytest.mark.slow
def test_kept_by_the_loop(make_model, make_method, records):
  """Averaging is post-processing: it changes no bit of the run itself."""
  model = make_model(False)
  method = make_method('dp_sgd', model)
  plan = plans.TrainingPlan(
    sampler=PoissonSampler(num_examples=40, batch_size=5), num_steps=8,
    noise_multiplier=2., adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  keys = jax.random.split(jax.random.key(0), 2)
  rows = jnp.tile(jnp.arange(40, dtype=jnp.int32), (2, 1))
  fits = [loop.fit(keys, plans=[plan] * 2, model=model, method=method,
                   optimizer=optax.sgd(0.5), records=records, rows=rows,
                   averaging=averager)
          for averager in (averaging.polyak(), None)]
  jax.tree.map(np.testing.assert_array_equal, fits[0].state.params,
               fits[1].state.params)
  assert fits[0].events == (plan.event,) * 2 and fits[1].state.average == ()
  transform_of = lambda key: steps.make_transform(
    method, plan.sampler, optax.sgd(0.5), key=key, noise_multiplier=2.,
    allocation='optimal')
  state = steps.init_state(keys[1], model=model, method=method,
                           transform_of=transform_of)
  step = jax.jit(steps.make_step(method=method, sampler=plan.sampler,
                                 transform_of=transform_of))
  iterates = []
  for _ in range(8):
    state, _ = step(state, records, rows[1])
    iterates.append(state.params)
  jax.tree.map(
    lambda mean, *each: np.testing.assert_allclose(
      mean[1], np.mean(each, 0), atol=1e-5),
    fits[0].state.average.mean, *iterates)
  held_out = jnp.tile(jnp.arange(40, 60, dtype=jnp.int32), (2, 1))
  for params in (fits[0].state.params, fits[0].state.average.mean):
    scores = evaluate.accuracies(model.apply, params, records, held_out)
    assert scores.shape == (2,) and np.all((0 <= scores) & (scores <= 1))


def test_fault_initial_parameters_counted():
  """Counting the start as the first iterate
  must fail: it shifts a line's average."""
  averager = averaging.Averaging(
    averaging.polyak().init,
    lambda state, params: averaging.polyak().update(
      state._replace(count=state.count + 1), params)._replace(
        count=state.count + 1))
  steps = np.arange(301)
  with pytest.raises(AssertionError):
    np.testing.assert_allclose(_average(averager, 2. - 0.5 * steps),
                               2. - 0.5 * (steps[1:] + 1) / 2, rtol=1e-5)
