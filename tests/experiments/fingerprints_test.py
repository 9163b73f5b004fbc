"""These tests check that fingerprints follow random streams and recipes.

Rounding must not change them.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.privacy import additive
from dpjax.runs import building
from dpjax.runs import options
from dpjax.runs import recipes
from dpjax.train import state as states
from experiments import canonical
from experiments import fingerprints
from experiments import registry

METHOD = 'lip_dp_sgd'


def _training(method=METHOD):
  return fingerprints._training.__wrapped__(method, False)


@pytest.fixture(scope='module')
def present():
  """Returns the fingerprint of two steps, and of all streams."""
  return _training(), fingerprints.streams.__wrapped__()


def _plant_generator(monkeypatch):
  """Plants Gaussian noise from JAX's own generator."""

  def normal(key, shape, start=0):
    return jax.random.normal(jax.random.fold_in(key, start), shape)

  monkeypatch.setattr(additive, 'standard_normal', normal)
  monkeypatch.setattr(
      additive, 'normals_of_several', lambda key, shapes, start=0:
      [normal(key, shape, start + i) for i, shape in enumerate(shapes)])


def _plant_cotangent_clip(monkeypatch):
  """Plants a clip norm of nine tenths at the logits."""
  loss = building.make_loss
  monkeypatch.setattr(building, 'make_loss', lambda config, data: loss(
      dataclasses.replace(config, logit_clip=0.9 * config.logit_clip), data))


def _plant_batches(monkeypatch):
  """Plants exchanged keys of batches and initial parameters."""
  streams = states.streams

  def exchanged(key):
    keys = streams(key)
    return keys._replace(init=keys.batch, batch=keys.init)
  monkeypatch.setattr(states, 'streams', exchanged)


def _plant_drawn_ahead(monkeypatch):
  """Plants draws ahead that count steps from one."""
  ahead = canonical.steps.draw_ahead
  monkeypatch.setattr(
      canonical.steps, 'draw_ahead', lambda state, *args, **kwargs: ahead(
          state._replace(step=state.step + 1), *args, **kwargs))


@pytest.mark.every(4)
@pytest.mark.parametrize('plant', [
    _plant_generator, _plant_batches, _plant_cotangent_clip,
    _plant_drawn_ahead])
def test_another_step_has_another_fingerprint(plant, present, monkeypatch):
  plant(monkeypatch)
  assert _training() != present[0]


@pytest.mark.slow
def test_methods_have_fingerprints_of_their_own():
  prints = [_training(method) for method in options.METHODS
            if method != 'lip_norm']
  prints.append(fingerprints._training.__wrapped__('lip_norm', True))
  # `dp_sgd_vmap` computes what `dp_sgd` does, up to rounding.
  assert len(set(prints)) >= len(prints) - 1


@pytest.mark.every(2)
def test_other_draws_have_another_fingerprint(present, monkeypatch):
  assert fingerprints.streams.__wrapped__() == present[1]
  _plant_generator(monkeypatch)
  canonical.streams.clear_cache()
  assert fingerprints.streams.__wrapped__() != present[1]
  canonical.streams.clear_cache()


@pytest.mark.every(2)
def test_optimisations_of_the_compiler_do_not_count(present):
  before = jax.config.read('jax_disable_most_optimizations')
  try:
    jax.config.update('jax_disable_most_optimizations', not before)
    assert _training() == present[0]
  finally:
    jax.config.update('jax_disable_most_optimizations', before)


def test_last_digits_do_not_count_and_others_do():
  rng = np.random.default_rng(0)
  values = rng.normal(size=40)
  text = fingerprints._text(values)
  for error in rng.normal(size=(50, 40)):
    assert fingerprints._text(values * (1 + 1e-7 * error)) == text
    assert fingerprints._text(values * (1 + 0.1 * error)) != text
  # Each value is moved by itself, by a tenth of the largest.
  for place in range(40):
    assert fingerprints._text(values + 0.3 * (np.arange(40) == place)) != text
  assert fingerprints._text(values[::-1]) != text
  assert fingerprints._text(1024 * values) != text


def test_integers_count_exactly():
  words = jnp.arange(5, dtype=jnp.uint32) + jnp.uint32(2**31)
  assert fingerprints._text(words) != fingerprints._text(words.at[3].add(1))
  assert fingerprints._text(words) == fingerprints._text(words + 0)


def test_what_is_not_finite_is_refused():
  with pytest.raises(ValueError, match='not finite'):
    fingerprints._text(jnp.array([1.0, jnp.nan]))


@pytest.fixture
def cheap(monkeypatch):
  """Replaces the canonical computations, since
  only configurations are tested."""
  monkeypatch.setattr(fingerprints, 'streams', lambda: 's')
  monkeypatch.setattr(fingerprints, '_training',
                      lambda method, on_images: f'{method} {on_images}')


def _of(name, num_examples=455, **fields):
  experiment = registry.load(name)
  setting = next(each for each in experiment.settings if all(
      getattr(each, key) == value for key, value in fields.items()))
  return fingerprints.of(experiment, setting, num_examples=num_examples)


def test_a_recipe_counts_for_its_method_alone(cheap, monkeypatch):
  def both():
    return [_of('lip_depth', kind='train', dataset='nursery', method=method,
                num_examples=5000) for method in ('lip_dp_sgd', 'fix_lip_dp_sgd')]
  before = both()
  assert before[0] != before[1]
  recipe = recipes.recipe

  def changed(method, **kwargs):
    settings = recipe(method, **kwargs)
    return ({**settings, 'logit_clip': 0.3}
            if method == 'lip_dp_sgd' else settings)
  monkeypatch.setattr(recipes, 'recipe', changed)
  after = both()
  assert after[0] != before[0] and after[1] == before[1]


def test_seeds_do_not_count_and_budgets_do(cheap):
  cell = dict(name='lip_tabular', kind='grid', dataset='breast_cancer',
              method='dp_sgd')
  assert _of(**cell, epsilon=1.0, seed=0) == _of(**cell, epsilon=1.0, seed=1)
  assert _of(**cell, epsilon=1.0, seed=0) != _of(**cell, epsilon=2.0, seed=0)


def test_settings_that_train_nothing_have_the_streams_alone(cheap):
  prints = {_of('lip_depth', kind=kind) for kind in ('bounds', 'noise')}
  assert prints == {_of('polls')} == {_of('clipping_bias', kind='zero')}
  assert _of('lip_depth', kind='train', dataset='adult',
             num_examples=39_074) not in prints


def test_what_trains_says_what_it_trains():
  """Experiments that train have a `config`; one
  that does not train has none."""
  for name in ('clipping_bias', 'lip_depth', 'lip_images', 'lip_search',
               'lip_tabular'):
    experiment = registry.load(name)
    assert any(experiment.config(setting) is not None
               for setting in experiment.settings), name
  assert registry.load('polls').config(None) is None
