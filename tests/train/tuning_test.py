"""These tests check what `tune` charges, draws, and releases."""

import math
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from dpjax.privacy import accounting
from dpjax.privacy import tuning as costs
from dpjax.privacy.additive import GaussianMechanism
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.stopping import RandomStopping
from dpjax.train import tuning
from dpjax.train.private import make_private

ADD = Adjacency.ADD_OR_REMOVE_ONE
STOPPING = RandomStopping(mean=4.0)
RECORDS = np.linspace(-1, 1, 40, dtype=np.float32)


def _loss(weight, record):
  return jnp.square(record - weight)


def _make(rate, epsilon, **changed):
  given = dict(num_examples=40, batch_size=20, epsilon=epsilon, delta=1e-6,
               steps=2, accountant='rdp')
  return make_private(_loss, optax.sgd(rate), **given | changed)


def _train(private, rate, key):
  state = private.init(jnp.float32(rate), key=key)
  for _ in range(2):
    state, _ = private.step(state, RECORDS)
  return private.model(state)


def _tune(**changed):
  given = dict(
      make=_make, candidates=[.1, .2], train=_train, score=float, epsilon=3.0,
      delta=1e-5, validation='public', stopping=STOPPING,
      key=jax.random.key(0))
  return tuning.tune(**given | changed)


@pytest.mark.slow
@pytest.mark.parametrize('validation', ['public', GaussianMechanism(
    record_norm=1.0, noise_multiplier=8.0, adjacency=ADD)])
def test_the_whole_costs_what_was_asked_for(validation):
  """The events of all candidates, and of the score, are charged."""
  made = []

  def make(rate, epsilon):
    made.append(_make(rate, epsilon))
    return made[-1]

  best = _tune(make=make, validation=validation, epsilon=1.0)
  assert .95 < best.epsilon <= 1.0
  run = _make(.1, best.run_epsilon).plan.event
  if validation != 'public':
    run = accounting.composed_event([run, validation.event])
  assert costs.epsilon([run], STOPPING, delta=1e-5,
                       adjacency=ADD) == pytest.approx(best.epsilon, rel=1e-9)
  # Each run had an object of its own, and took the steps of its plan.
  used = [each for each in made if each.event != accounting.composed_event([])]
  assert used and all(each.event == each.plan.event for each in used)
  if validation != 'public':
    without = costs.epsilon([_make(.1, best.run_epsilon).plan.event], STOPPING,
                            delta=1e-5, adjacency=ADD)
    assert without < .9 * best.epsilon


class _Runs:
  """Counts runs, and gives each the score of a table."""

  def __init__(self, scores):
    self.scores, self.seen, self.keys = scores, [], []

  def train(self, private, candidate, key):
    del private
    self.seen.append(candidate)
    self.keys.append(tuple(jax.random.key_data(key).tolist()))
    return candidate, len(self.seen)

  def score(self, model):
    return self.scores[model[0]]


def _searches(count, scores, **changed):
  """Returns (candidates of all runs, what was chosen), for each search."""
  fixed = _make(.1, 1.0)
  with mock.patch.object(tuning, '_cost', lambda *_: 1.0):
    with mock.patch.object(tuning, '_unused', lambda each: each):
      for seed in range(count):
        runs = _Runs(scores)
        best = _tune(make=lambda *_: fixed, candidates=list(scores),
                     train=runs.train, score=runs.score,
                     key=jax.random.key(seed), **changed)
        yield runs, best


@pytest.mark.every(2)
def test_the_best_of_a_random_number_of_uniform_candidates():
  """Numbers and candidates have their distributions; false alarm 1e-6 each."""
  scores = {'a': 1.0, 'b': 3.0, 'c': math.nan}
  sizes, drawn = [], []
  for runs, best in _searches(300, scores):
    sizes.append(len(runs.seen))
    drawn += runs.seen
    assert best.candidate == ('b' if 'b' in runs.seen else 'a'
                              if 'a' in runs.seen else 'c')
    assert best.model == (best.candidate,
                          runs.seen.index(best.candidate) + 1)
    assert len(set(runs.keys)) == len(runs.keys)
  geometric = .25 * .75**np.arange(8)
  expected = 300 * np.append(geometric, 1 - geometric.sum())
  counts = [sizes.count(k) for k in range(1, 9)]
  assert stats.chisquare(counts + [300 - sum(counts)], expected).pvalue > 1e-6
  assert stats.chisquare([drawn.count(each) for each in scores]).pvalue > 1e-6


def test_no_run_releases_nothing():
  stopping = RandomStopping(mean=.05, shape=math.inf)
  empty = [best for runs, best in _searches(5, {'a': 1.0}, stopping=stopping)
           if not runs.seen]
  assert empty and all(each.candidate is None and each.model is None
                       and each.score == -math.inf for each in empty)


def test_private_scores_have_noise():
  """The mechanism releases the score that is compared, with a key of its own.
  """
  noise = GaussianMechanism(record_norm=1.0, noise_multiplier=8.0,
                            adjacency=ADD)
  key = jax.random.key(1)
  value = tuning._noisy(100, noise, key)
  assert value == float(noise.release(key, jnp.float32(100))) != 100.0
  assert tuning._noisy(100, 'public', None) == 100.0
  used = []
  with mock.patch.object(tuning, '_noisy', lambda score, validation, key:
                         used.append((validation, key)) or 0.0):
    runs = [runs for runs, _ in _searches(3, {'a': 1.0}, validation=noise)]
  words = {tuple(jax.random.key_data(key).tolist()) for _, key in used}
  assert len(words) == len(used) == sum(len(each.seen) for each in runs)
  assert all(each is noise for each, _ in used)
  assert words.isdisjoint(key for each in runs for key in each.keys)


@pytest.mark.every(2)
def test_secret_keys_are_the_default():
  with mock.patch.object(tuning, '_cost', lambda *_: 1.0):
    best = _tune(key=None, stopping=RandomStopping(mean=1.1))
  assert best.candidate in (.1, .2)


@pytest.mark.parametrize('changed, message', [
    (dict(candidates=[]), 'there must be at least one candidate'),
    (dict(validation='private'), "validation must be 'public' if the score"),
    (dict(validation=None), "validation must be 'public' if the score"),
    (dict(validation=GaussianMechanism(
        record_norm=1.0, noise_multiplier=8.0,
        adjacency=Adjacency.REPLACE_ONE)), 'all runs and the noise of the sco'),
    (dict(validation=GaussianMechanism(
        record_norm=1.0, noise_multiplier=.5, adjacency=ADD)),
     'validation must cost less than epsilon'),
    (dict(make=lambda rate, epsilon: _make(rate, math.inf)),
     'make must return private runs'),
    (dict(epsilon=0.0), 'epsilon must be'),
    (dict(delta=1.0), 'delta must lie'),
])
def test_refusals_before_a_run(changed, message):
  def train(*_):
    raise AssertionError('a run began')
  with pytest.raises(ValueError, match=f'^{message}[^\n]*$'):
    _tune(train=train, **changed)


@pytest.mark.every(2)
def test_an_object_cannot_serve_two_runs():
  once = _make(.1, .5)
  state = once.init(jnp.float32(0), key=jax.random.key(3))
  once.step(state, RECORDS)
  with pytest.raises(ValueError, match='^make must return a new object'):
    _tune(make=lambda *_: once)
  with pytest.raises(TypeError, match='^make must return an object of make_p'):
    _tune(make=lambda *_: 3)
