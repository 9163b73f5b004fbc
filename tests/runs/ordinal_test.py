"""These tests train scores of ordered classes: all methods, users and audits.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from dpjax.audit.suite import runs
from dpjax.data import arrays
from dpjax.runs import building
from dpjax.runs import configuration
from dpjax.runs import options
from dpjax.runs import recipes
from dpjax.runs import run_users
from dpjax.runs import training
from dpjax.train import evaluate

_RNG = np.random.default_rng(3)
_X = _RNG.uniform(-1, 1, (1500, 3))
# Four intervals of a sum of three columns.
_Y = np.digitize(_X @ [1, 1, -1], [-0.7, 0, 0.7])
_DATA = arrays.from_arrays(_X, _Y, num_classes=4)
_CONFIG = configuration.TrainingConfig(
    dataset='breast_cancer', method='dp_sgd', loss='ordinal', num_steps=60,
    epsilon=8.0, depth=0, optimizer='sgd', noise_seed=0)


def _resolved(**changes):
  return configuration.resolve(dataclasses.replace(_CONFIG, **changes),
                               num_available=1200)


def _accuracy(**changes):
  config = dataclasses.replace(_CONFIG, **changes)
  return training.train([config], dataset=_DATA)[0].test_accuracy


@pytest.mark.parametrize('method, changes', [
    ('dp_sgd', dict(clip_norm=1.0, learning_rate=2.0)),
    ('lip_dp_sgd', dict(learning_rate=2.0, logit_clip=1.0))])
def test_private_scores_find_the_classes(method, changes):
  """Four classes are found; the most frequent one alone has about .3."""
  assert _accuracy(method=method, temperature=0.2, **changes) > 0.85


def test_predictions_come_from_the_cuts():
  config = _resolved(temperature=0.1)
  model = building.make_model(config, _DATA)
  params = {'dense_00': {'kernel': jnp.asarray([[1.4], [1.4], [-1.4]]),
                         'bias': jnp.zeros(1)}}
  assert model.apply(params, _DATA.x[:5]).shape == (5, 1)
  predict = building.make_predictor(config, model, _DATA)
  assert predict(params, _DATA.x[:5]).shape == (5, 4)
  rows = jnp.arange(1500)
  # The cuts -1, 0 and 1 of 1.4 times the sum are near those of the labels.
  assert evaluate.accuracy(predict, params, _DATA.records, rows) > 0.98
  # As logits, scores would always say the first class.
  assert evaluate.accuracy(model.apply, params, _DATA.records, rows) < 0.4


@pytest.mark.slow
@pytest.mark.parametrize('method', [
    method for method in options.METHODS if method != 'lip_norm'])  # of images
def test_every_method_trains_scores(method):
  assert 0 <= _accuracy(method=method, num_steps=2, allow_unsound=True,
                        depth=1 if method == 'lip_adaptive' else 0) <= 1


def test_recipes_of_scores_fit_every_size():
  for method in options.METHODS:
    for size in (1, 455, 9000):
      for features in options.FEATURES:
        recipe = recipes.recipe(method, num_train=size, features=features,
                                loss='ordinal')
        assert 1 <= recipe['batch_size'] <= size


def test_the_loss_of_a_user_is_the_mean_of_their_records():
  users = run_users.group(_DATA, np.arange(1500) // 3, most=4)
  loss = building.make_loss(_resolved(), users)
  scores = jnp.asarray(_RNG.normal(size=(500, 4, 1)), jnp.float32)
  labels = users.records.y[:500]
  got = run_users.mean_loss(loss.values)(scores, labels)
  single = loss.values(scores[:, :3].reshape(-1, 1), labels[:, :3].reshape(-1))
  np.testing.assert_allclose(got, single.reshape(500, 3).mean(1), rtol=1e-5)


def test_audits_score_the_likelihood_of_the_label():
  """The log-odds of a finished run are those of the ordinal model."""
  config = _resolved(temperature=1.0)
  model = building.make_model(config, _DATA)
  params = model.init(jax.random.key(0))
  records = jax.tree.map(lambda leaf: leaf[:50], _DATA.records)
  score = np.float64(model.apply(params, records.x))
  above = special.expit(score - np.array([-1.0, 0.0, 1.0]))
  edges = np.column_stack([np.ones(50), above, np.zeros(50)])
  likely = (edges[:, :-1] - edges[:, 1:])[np.arange(50), records.y]
  np.testing.assert_allclose(
      runs.log_odds(building.make_predictor(config, model, _DATA), params,
                    records), special.logit(likely), rtol=1e-3, atol=1e-4)
