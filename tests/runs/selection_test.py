"""These tests check what a private choice of a run costs, draws and writes."""

import dataclasses
import functools
import itertools
import json
import math
import random
from unittest import mock

import jax
import numpy as np
import pytest
from scipy import stats

from dpjax.audit.suite import run_folders
from dpjax.data import registry
from dpjax.privacy import accounting
from dpjax.privacy import tuning
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.stopping import RandomStopping
from dpjax.runs import building
from dpjax.runs import run_keys
from dpjax.runs import selecting
from dpjax.runs import selection
from dpjax.runs import summary as summaries
from dpjax.runs import training
from dpjax.runs.options import TrainingConfig
from dpjax.train import evaluate

ADD = Adjacency.ADD_OR_REMOVE_ONE
BASE = dict(dataset='breast_cancer', method='dp_sgd', epsilon=3.0, num_steps=4,
            batch_size=364.0, width=4, noise='lattice_gaussian')


def _candidates(**changed):
  return [TrainingConfig(**{**BASE, 'depth': depth, 'learning_rate': rate,
                            **changed})
          for depth in (0, 1) for rate in (.5, 2.0)]


def _search(counts, stopping, score_epsilon, noise_seed=None):
  """Returns a search among candidates; `counts` are for the caller."""
  runs = tuple(TrainingConfig(**BASE, learning_rate=1.0 + place,
                              noise_seed=noise_seed)
               for place in range(len(counts)))
  return selection.Search(
      runs=runs, plans=(), stopping=stopping, score_epsilon=score_epsilon,
      num_held=10, target=1.0, epsilon=1.0, delta=1e-5)


def _chosen_probs(counts, stopping, score_epsilon, span=60):
  """Returns the exact probabilities [m, span] of candidate and score.

  Scores are those from 5 - span / 2. Of k equal runs each is as likely the
  first, so a candidate has its share of the runs with the best score.
  """
  scores = np.arange(span) + 5 - span // 2
  noise = math.tanh(score_epsilon / 2) * np.exp(
      -score_epsilon * np.abs(scores - np.array(counts)[:, None]))
  one = noise / len(counts)
  at_most = np.cumsum(one.sum(0))
  number = stopping.probs()
  below = np.append(0.0, [number @ s**np.arange(1, len(number) + 1)
                          for s in at_most])
  return one / one.sum(0) * np.diff(below)


@pytest.mark.sound
def test_the_choice_has_its_exact_distribution():
  """Candidate and score of 5,000 searches; false alarm 1e-6."""
  counts, stopping, size = (4, 5, 7), RandomStopping(mean=3.0), 5_000
  generator = random.Random(0)
  search = _search(counts, stopping, .8)

  def train(config):
    place = search.runs.index(config)
    return mock.Mock(test_accuracy=np.float32(counts[place]) / np.float32(10),
                     num_test=10, config=config)

  drawn = np.zeros((3, 60), int)
  keys = itertools.repeat(None)
  with mock.patch.object(selection.stoppings, 'integers_of',
                         lambda key: generator.randrange):
    for _ in range(size):
      index, score, result = selection.best_run(search, train, keys)
      assert result.config is search.runs[index]
      drawn[index, min(max(score + 25, 0), 59)] += 1
  expected = size * _chosen_probs(counts, stopping, .8)
  # Scores of 2 or less and of 10 or more are pooled, so that none is rare.
  edges = [0, 28, *range(29, 36)]
  drawn, expected = (np.add.reduceat(each, edges, axis=1).ravel()
                     for each in (drawn, expected))
  assert expected.sum() == pytest.approx(size, rel=1e-6) and min(expected) > 5
  assert stats.chisquare(drawn, expected * size / expected.sum()
                         ).pvalue > 1e-6


@pytest.mark.sound
@pytest.mark.parametrize('score_epsilon', [.5, 2.0])
def test_a_held_out_record_has_the_cost_of_the_score(score_epsilon):
  """Every change of the numbers of right answers by at most 1 is enumerated."""
  stopping, delta = RandomStopping(mean=4.0), 1e-4
  best = tuning.epsilon([selection.score_event(score_epsilon)], stopping,
                        delta=delta, adjacency=ADD)
  counts = np.array([3, 5, 6])
  probs = _chosen_probs(counts, stopping, score_epsilon)

  def largest_delta(epsilon):
    others = [_chosen_probs(counts + change, stopping, score_epsilon)
              for change in itertools.product((-1, 0, 1), repeat=3)]
    return max(np.maximum(one - math.exp(epsilon) * two, 0).sum()
               for other in others
               for one, two in ((probs, other), (other, probs)))

  assert best > 1.2 * score_epsilon and largest_delta(best) <= delta
  # The epsilon of a score alone does not cover the choice.
  assert largest_delta(score_epsilon) > delta


def test_runs_of_a_seed_have_seeds_of_their_own():
  search = _search((1, 1), RandomStopping(mean=12.0), 1.0, noise_seed=3)
  used = []

  def train(config):
    used.append(config)
    return mock.Mock(test_accuracy=.1, num_test=10)

  first = selection.best_run(search, train, selection.fresh_keys(3))
  num = len(used)
  assert num > 3 and len({each.noise_seed for each in used}) == num
  words = [tuple(jax.random.key_data(run_keys.run_key(each)).tolist())
           for each in used]
  assert len(set(words)) == num
  again = selection.best_run(search, train, selection.fresh_keys(3))
  assert first[:2] == again[:2] and used[:num] == used[num:]


@pytest.fixture(scope='module')
def breast_cancer():
  """Returns the data set of these tests."""
  return registry.load('breast_cancer')


@pytest.fixture(scope='module', params=[a.value for a in Adjacency])
def search(request, breast_cancer):
  """Returns the budgets of a choice among four candidates."""
  return selection.plan(_candidates(adjacency=request.param), 3.0,
                        breast_cancer)


def _cost(runs, score_epsilon, *, mean, shape, delta, adjacency):
  """Returns the cost of a choice from the numbers of a summary."""
  events = [accounting.poisson_gaussian_event(
      sampling_prob=run['sampling_prob'], num_steps=run['num_steps'],
      noise_multiplier=run['noise_multiplier']) for run in runs]
  score = accounting.discrete_laplace_event(noise_parameter=score_epsilon,
                                            sensitivity=1)
  stopping = RandomStopping(mean=mean, shape=shape)
  return [tuning.epsilon(each, stopping, delta=delta,
                         adjacency=Adjacency(adjacency))
          for each in (events, [score])]


@pytest.mark.slow
@pytest.mark.sound
def test_the_whole_costs_what_was_asked_for(search):
  """Training and score each use the budget, and no run has all of it."""
  runs = [dict(sampling_prob=1.0, num_steps=4,
               noise_multiplier=plan.noise_multiplier) for plan in search.plans]
  costs = _cost(runs, search.score_epsilon, mean=3.0, shape=1.0,
                delta=search.delta, adjacency=search.runs[0].adjacency)
  assert max(costs) == pytest.approx(search.epsilon, rel=1e-6)
  assert all(.98 * 3 < cost <= 3 for cost in costs)
  assert search.delta == pytest.approx((364 + 91)**-1.1)
  assert search.num_held == 91
  for config, plan in zip(search.runs, search.plans, strict=True):
    assert config.fold == 0 and config.epsilon < 2.6
    assert plan.epsilon(search.delta) <= config.epsilon
  assert search.score_epsilon < 2.6


def test_noise_on_a_lattice_is_paid_for_in_every_run():
  stopping = RandomStopping(mean=4.0)
  event = accounting.gaussian_event(noise_multiplier=4.0)
  plans = [mock.Mock(event=event, noise_variation=variation, adjacency=ADD)
           for variation in (0.0, 5e-7)]
  cost = selection.training_cost(plans, stopping, delta=1e-5, target=1.0)
  left = 1e-5 - (1 + math.e) * 4 * 5e-7
  assert cost == tuning.epsilon([event], stopping, delta=left, adjacency=ADD)
  with pytest.raises(ValueError, match='use a larger delta'):
    selection.training_cost(plans, stopping, delta=5e-6, target=1.0)


def test_choices_that_cannot_be_private_are_refused():
  cases = [
      ('nothing to choose', _candidates()[:1]),
      ('one value of every other option',
       [*_candidates(), *_candidates(seed=1)]),
      ('one value of every other option',
       [*_candidates(), *_candidates(epsilon=1.0)]),
      ('one value of every other option',
       [*_candidates(), *_candidates(num_examples=90)]),
      ('sgd is not private', _candidates(method='sgd')),
      ('lip_printed is not private',
       _candidates(method='lip_printed', allow_unsound=True)),
      ('canaries', _candidates(num_canaries=10)),
      ('user_column', _candidates(user_column='id')),
      ('stream must be', _candidates(stream=True)),
      ('fold must not be given', _candidates(fold=1)),
      ('accountant', _candidates(accountant='rdp'))]
  for message, candidates in cases:
    with pytest.raises(ValueError, match=message):
      selection.check(candidates, 3.0)
  with pytest.raises(ValueError, match='mean must be'):
    selection.check(_candidates(), 1.0)


def _fake_train(dataset, made):
  """Returns a quick `training.train`, whose parameters are initial ones."""
  def train(configs, *, dataset=dataset):
    config, = configs
    made.append(config)
    model = building.make_model(config, dataset)
    params = jax.tree.map(np.asarray, model.init(jax.random.key(len(made))))
    return [training.TrainingResult(
        config=config, plan=training.make_plan(
            config, training.lattice_size(config, dataset)),
        num_train=config.num_examples, num_test=91, params=params,
        test_accuracy=50 / 91, epsilon=config.epsilon, epsilon_valid=True,
        joint_noise_multiplier=1.0, l2_sensitivity=(1.0,), num_nonfinite=0,
        compile_seconds=float(len(made)), train_seconds=float(len(made)))]
  return train


_plan = functools.cache(functools.partial(
    lambda plan, candidates, mean_runs: plan(
        candidates, mean_runs, registry.load('breast_cancer')),
    selection.plan))


@pytest.fixture
def choose(breast_cancer, tmp_path, monkeypatch, capsys):
  """Returns a function that makes a choice with quick runs.

  It returns the summary, what was printed, and the configurations that ran.
  """
  made = []
  # Several tests make the same choice, and its budgets take seconds.
  monkeypatch.setattr(selection, 'plan', lambda candidates, mean_runs, _:
                      _plan(tuple(candidates), mean_runs))
  monkeypatch.setattr(training, 'train', _fake_train(breast_cancer, made))

  def run(folder='out', mean_runs=3.0, **changed):
    made.clear()
    summary = selecting.run(_candidates(**changed), mean_runs,
                            tmp_path / folder, data_dir=None)
    return summary, capsys.readouterr(), list(made)
  return run


@pytest.mark.slow
def test_only_the_chosen_run_is_written(choose, tmp_path, breast_cancer,
                                        monkeypatch):
  """Neither files nor lines tell how many runs there were."""
  printed = set()
  for place in range(1, 4):
    monkeypatch.setattr(RandomStopping, 'draw', lambda self, below, n=place: n)
    summary, out, made = choose(str(place))
    printed.add((out.out, out.err))
    assert len(made) == place
    assert sorted(path.name for path in (tmp_path / str(place)).iterdir()) == [
        'params.npz', 'private_diagnostics.json', 'summary.json']
    chosen = summary['selection']['runs'][summary['selection']['chosen']]
    assert all(summary['config'][name] == chosen[name]
               for name in selection.TUNED)
    assert [summary[name] for name in (
        'compile_seconds', 'train_seconds', 'wall_seconds')] == [None] * 3
  assert len(printed) == 1
  assert any('number of runs' in each for each in summary['falls_short'])
  # The accuracy is that of the test part, which selected nothing.
  config = TrainingConfig(**summary['config'])
  plain = dataclasses.replace(config, fold=None)
  rows = training.split_rows(plain, breast_cancer).test
  held = training.split_rows(config, breast_cancer)
  assert not set(rows.tolist()) & set(held.test.tolist() + held.train.tolist())
  with np.load(tmp_path / '3' / 'params.npz') as file:
    params = {}
    for name, leaf in file.items():
      layer, _, key = name.rpartition('/')
      params.setdefault(layer, {})[key] = leaf
  params = params if '' not in params else params['']
  model = building.make_model(config, breast_cancer)
  accuracy = evaluate.accuracy(model.apply, params, breast_cancer.records, rows)
  assert summary['test_accuracy'] == pytest.approx(float(accuracy))
  assert summary['num_test'] == len(rows) == 114


@pytest.mark.slow
def test_a_summary_alone_gives_the_cost(choose, tmp_path):
  choose()
  summary = json.loads((tmp_path / 'out' / 'summary.json').read_text())
  chosen = summary['selection']
  costs = _cost(chosen['runs'], chosen['score_epsilon'],
                mean=chosen['mean_runs'], shape=chosen['shape'],
                delta=summary['delta'], adjacency=summary['adjacency'])
  assert max(costs) == pytest.approx(summary['epsilon'], rel=1e-6)
  assert summary['epsilon'] <= summary['epsilon_requested'] == 3.0
  own = chosen['runs'][chosen['chosen']]
  assert summary['noise_multiplier'] == own['noise_multiplier']
  assert summary['event'] == own['event'] and summary['epsilon_valid'] is True
  assert summary['epsilon_run'] < summary['epsilon']


@pytest.mark.slow
def test_a_folder_holds_one_choice_or_one_run(choose, tmp_path):
  first, _, _ = choose()
  again, out, made = choose()
  assert again == json.loads(json.dumps(first)) and not made
  assert out.out == 'the choice is finished already\n'
  for changed in (dict(mean_runs=4.0), dict(epsilon=2.0), dict(delta=1e-5),
                  dict(noise_seed=1), dict(num_steps=5), dict(seed=1)):
    with pytest.raises(ValueError, match='use another --output_dir'):
      choose(**changed)
  folder = tmp_path / 'out'
  run = TrainingConfig(**first['config'])
  with pytest.raises(ValueError, match='is of a choice'):
    summaries.find(folder, run)
  with pytest.raises(ValueError, match='has no canaries'):
    run_folders.load(folder)
  # The folder of a single run is refused, too.
  path = folder / 'summary.json'
  path.write_text(json.dumps({**first, 'selection': None}))
  assert summaries.find(folder, run) is not None
  with pytest.raises(ValueError, match='another run or choice'):
    choose()


@pytest.mark.slow
def test_a_seeded_choice_is_for_research(choose):
  summary, out, made = choose(noise_seed=1)
  again, _, made_again = choose('again', noise_seed=1)
  assert summary['epsilon_valid'] is False and 'research' in out.err
  assert made == made_again and len(made) == len(
      {each.noise_seed for each in made})
  assert summary['selection'] == again['selection']
  assert summary['selection']['noise_seed'] == 1


@pytest.mark.slow
def test_candidates_may_have_other_samplers(choose):
  summary, _, _ = choose(sampler='cyclic', correlation='tree', noise='gaussian')
  assert 'groups' in summary['sampler'] and summary['strategy'] is not None
  assert {run['sampling_prob'] for run in summary['selection']['runs']} == {
      None}
