"""These tests check the canaries and the audits of records of accuracy."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.accuracy_records import audits
from experiments.accuracy_records import data
from experiments.accuracy_records import fitting
from tests.experiments import accuracy_rows
from tests.experiments.accuracy_rows import ENTRY
from tests.experiments.accuracy_rows import RECIPES

SOURCES = data.Sources()


@pytest.fixture
def tiny(monkeypatch):
  """Makes `ENTRY` the only entry."""
  yield from accuracy_rows.only_entry(monkeypatch)


def _joined(size=60):
  # Reproducible: for research, not for a release.
  key, = fitting.keys('canaries of a test', [7])
  training = data.training_set(ENTRY, RECIPES[0], SOURCES)
  return training, *audits.with_canaries(key, training, size, 10)


@pytest.mark.sound
def test_canaries_take_the_place_of_records(tiny):
  training, joined, rows, canaries = _joined()
  rows, included = np.asarray(rows), np.asarray(canaries.included)
  assert len(rows) == len(set(rows.tolist())) == len(training.y) == 1437
  kept, slots = rows[:-60], rows[-60:]
  out = sorted(set(range(1437)) - set(kept.tolist()))
  assert len(out) == 60 and (kept < 1437).all() and (slots >= 1437).all()
  x, y = np.asarray(joined.x), np.asarray(joined.y)
  np.testing.assert_array_equal(x[:1437], training.x)
  np.testing.assert_array_equal(y[:1437], training.y)
  # What is in a slot: a canary, or a record that counts as zero.
  assert np.isnan(x[slots][~included]).all()
  np.testing.assert_array_equal(x[slots][included],
                                np.asarray(canaries.records.x)[included])
  assert 15 < included.sum() < 45
  # A canary is a removed record with a wrong label and noise of its norm.
  canary, removed = (np.asarray(each).reshape(60, 1, -1).astype(np.float64)
                     for each in (canaries.records.x, x[out]))
  removed = removed.reshape(1, 60, -1)
  share = (np.linalg.norm(canary - removed, axis=2) /
           np.linalg.norm(removed, axis=2))
  origin = np.argmin(np.abs(share - 1), axis=1)
  np.testing.assert_allclose(share[np.arange(60), origin], 1, atol=1e-5)
  assert sorted(origin) == list(range(60))
  label = np.asarray(canaries.records.y)
  assert ((0 <= label) & (label < 10) & (label != y[out][origin])).all()
  assert fitting.plan(ENTRY, RECIPES[0], len(rows)) == fitting.plan(
      ENTRY, RECIPES[0], len(training.y))
  with pytest.raises(ValueError, match='below the 1437 training records'):
    _joined(1437)


@pytest.mark.sound
@pytest.mark.parametrize('knows', [True, False])
def test_the_auditor_counts_what_a_model_shows_of_coins(knows):
  """A model that knows all coins is refuted as far as a count of guesses can.

  Canary k has the feature k alone, and the model has a weight for it.
  """
  size = 200
  # Reproducible: for research, not for a release.
  coins = jax.random.bernoulli(jax.random.key(3), 0.5, (2, size))
  canaries = audits.Canaries(
      audits.Batch(jnp.eye(size).reshape(size, 1, 1, size),
                   jnp.zeros(size, jnp.int32)), coins[0])
  model = fitting._model(RECIPES[0], (1, 1, size), 2)
  initial = jax.tree.map(
      lambda leaf: jnp.zeros((1, *leaf.shape)),
      jax.eval_shape(model.init, jax.random.key(0)))
  weights = jnp.where(coins[0 if knows else 1], 3.0, -3.0)
  name, = initial
  params = {name: dict(initial[name], kernel=jnp.stack(
      [weights, jnp.zeros(size)], 1)[None])}
  found = audits.judge(ENTRY, fitting.Fit(
      None, 4.0, model, (lambda x: fitting.inputs(RECIPES[0], x),), params,
      initial, 1.0), canaries)
  assert 3 < found.largest < 4
  if knows:
    assert found.epsilon_lower == found.largest
    assert found.num_correct == found.num_guesses
  else:
    assert found.epsilon_lower < 1


@pytest.mark.slow
def test_an_audit_refutes_a_run_with_too_little_noise(tiny):
  recipe = dataclasses.replace(RECIPES[1], num_steps=300, batch_size=1437,
                               clip_norm=5.0)
  _, joined, rows, canaries = _joined(200)
  fit = fitting.fit(
      dataclasses.replace(ENTRY, epsilon=100.0), recipe, joined, rows[None],
      num_classes=10, run_keys=fitting.keys('audited', [0]),
      init_keys=fitting.keys('initial', [0]))
  assert audits.judge(ENTRY, fit, canaries).epsilon_lower > 0.5
