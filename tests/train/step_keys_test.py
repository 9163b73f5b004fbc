"""These tests check that every key has one purpose and serves one step."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpjax.grads import bounder as bounders
from dpjax.models.model import Model
from dpjax.privacy import additive
from dpjax.sampling import PoissonSampler
from dpjax.sampling import Selection
from dpjax.train import state as states
from dpjax.train import step as steps
from dpjax.typing import Batch

MODEL = Model(init=lambda key: {'w': jax.random.uniform(key, (2,))},
              apply=None, network=None)
RECORDS = Batch(jnp.ones((6, 2)), jnp.zeros(6, jnp.int32))
SAMPLER = PoissonSampler(num_examples=6, batch_size=6)


def _words(key):
  return tuple(np.ravel(jax.random.key_data(key)).tolist())


def _steps(monkeypatch, num_steps=3):
  """Returns (first state, {purpose: keys of the steps})."""
  used = {'batch': [], 'augment': [], 'noise': []}

  def views(key, numbers, x):
    del numbers
    used['augment'].append(_words(key))
    return x

  # Nothing is traced, so that keys are numbers, and little is computed.
  monkeypatch.setattr(PoissonSampler, 'draw', lambda self, key: used[
      'batch'].append(_words(key)) or Selection(jnp.arange(6), jnp.int32(6)))
  monkeypatch.setattr(PoissonSampler, 'sum_parts', lambda self, sums, drawn:
                      sums(drawn.rows, drawn.rows < drawn.num_selected))
  monkeypatch.setattr(additive, 'add_gaussian_noise', lambda key, values, _:
                      used['noise'].append(_words(key)) or values)
  bounder = bounders.GradientBounder(
      lambda params, batch, mask: bounders.BoundedSums(
          {'w': batch.x[0]}, jnp.float32(0), jnp.int32(0)),
      lambda certificate: jnp.float32(1), views=views)
  method = bounders.Method('x', bounder, bounders.no_constraint(), True)
  transform_of = lambda key: steps.make_transform(
      method, SAMPLER, optax.sgd(1.0), key=key, noise_multiplier=1.0,
      allocation='optimal')
  state = first = steps.init_state(jax.random.key(8), model=MODEL,
                                   method=method, transform_of=transform_of)
  step = steps.make_step(method=method, sampler=SAMPLER,
                         transform_of=transform_of)
  for _ in range(num_steps):
    state, _ = step(state, RECORDS, jnp.arange(6))
  return first, used


def test_batches_views_and_noise_have_streams_of_their_own(monkeypatch):
  state, used = _steps(monkeypatch)
  for purpose, keys in used.items():
    stream = getattr(state.keys, purpose)
    assert keys == [_words(jax.random.fold_in(stream, step))
                    for step in range(3)], purpose
  every = sum(used.values(), []) + [
      _words(key) for key in (jax.random.key(8), *state.keys)]
  assert len(set(every)) == len(every) == 14


def test_initial_parameters_are_of_the_stream_for_them(monkeypatch):
  state, _ = _steps(monkeypatch, 0)
  streams = states.streams(jax.random.key(8))
  assert [*map(_words, state.keys)] == [*map(_words, streams)]
  np.testing.assert_array_equal(state.params['w'],
                                MODEL.init(streams.init)['w'])
