"""These tests check that noise drawn, budget
paid and guarantee printed agree."""

import dataclasses
import fractions
import json
import math
import os
import re

import pytest

from dpjax.cli import estimate
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import costs
from dpjax.release import ledger
from dpjax.release import meter as meters
from dpjax.release import registry
from dpjax.release import reservations
from dpjax.release import sessions
from dpjax.release.costs import Cost
from dpjax.report import files
from tests.launch.people import OTHERS
from tests.launch.people import run

pytestmark = pytest.mark.every(1)

Fraction = fractions.Fraction
_ORDERS = tuple(1 + 10**(k / 40) for k in range(-80, 241))


def _epsilon_of(event, delta, adjacency):
  """Returns the epsilon of a printed event from the numbers in it alone."""
  pure, rhos, widths = (list(map(float, re.findall(f'{name}=([-+.e0-9]+)', event)
                                 )) for name in ('epsilon', 'rho', 'width'))
  counts = list(map(int, re.findall('count=([0-9]+)', event))) or [1] * len(
      widths)
  summed = sum(pure) + sum(map(math.prod, zip(widths, counts, strict=True)))
  if delta is None:
    assert not rhos
    return summed
  parts = [accounting.pure_event(epsilon=e, adjacency=adjacency) for e in pure]
  parts += [accounting.concentrated_event(rho=r, adjacency=adjacency)
            for r in rhos]
  parts += [accounting.repeated_event(accounting.bounded_range_event(
      width=width, adjacency=adjacency), count)
            for width, count in zip(widths, counts, strict=True)]
  epsilon = accounting.epsilon(
      accounting.composed_event(parts), delta=float(delta), adjacency=adjacency,
      accountant='rdp', orders=_ORDERS)
  return epsilon if rhos else min(epsilon, summed)


def test_every_statistic_has_a_case():
  assert set(OTHERS) == set(registry.STATISTICS)


@pytest.mark.parametrize('statistic', registry.STATISTICS)
def test_drawn_paid_and_printed_are_one(words, tmp_path, statistic,
                                        monkeypatch):
  """The noise drawn, the ledger entry and the printed guarantee cost the same.

  The test covers both kinds of budget and both adjacencies.
  """
  used = []

  class Recording(meters.Meter):
    """This meter notes itself in `used`, so
    that a test can read what it charged."""

    def __init__(self, *args):
      super().__init__(*args)
      used.append(self)

  monkeypatch.setattr(meters, 'Meter', Recording)
  for adjacency in Adjacency:
    for delta in (None, '1e-6'):
      path = tmp_path / f'{adjacency.value}{delta}'
      args = estimate.parse(words(
          statistic=statistic, delta=delta, ledger_budget_delta=delta,
          ledger_budget_epsilon='1/2', adjacency=adjacency.value, ledger=path,
          **OTHERS[statistic]))
      guarantee = estimate.release(args)['guarantee']
      entry, = ledger.read(path).entries
      drawn = costs.total(used.pop()._charged)
      plan = registry.plan(estimate.query_of(args))
      assert drawn == entry.cost == plan.cost
      assert guarantee['event'] == str(entry.cost.event(adjacency))
      assert (guarantee['epsilon'], guarantee.get('delta')) == (
          '1/2', delta and '1/1000000')
      spent = _epsilon_of(guarantee['event'], delta, adjacency)
      assert spent == pytest.approx(.5, rel=1e-9 if delta is None else 1e-3)
      assert float(ledger.read(path).spent()) == pytest.approx(spent, rel=1e-4)
      if delta is None:
        assert drawn.pure == ledger.read(path).spent() == Fraction(1, 2)


def _refusing(n):
  raise AssertionError(f'noise was drawn, of {n}')


def _cheaper_entry(monkeypatch):
  """Plants a fault: the ledger records less than the plan says."""
  real = reservations.Held.reserve

  def reserve(self, query, cost, sha256):
    reserved = real(self, query, cost.part(Fraction(1, 2)), sha256)
    return reserved
  monkeypatch.setattr(reservations.Held, 'reserve', reserve)


def _dearer_entry(monkeypatch):
  """Plants a fault: the ledger records more than the plan says."""
  real = reservations.Held.reserve
  monkeypatch.setattr(
      reservations.Held, 'reserve', lambda self, query, cost, sha256: real(
          self, query, cost.part(Fraction(2)), sha256))


def _another_event(monkeypatch):
  """Plants a fault: the event has another cost at every call."""
  monkeypatch.setattr(Cost, 'event', lambda self, adjacency, n=iter(
      range(9)): accounting.pure_event(epsilon=1. + next(n),
                                       adjacency=adjacency))


def _less_noise(monkeypatch, factor=2):
  """Plants a fault: noise is drawn for twice the planned epsilon."""
  real = registry.plan

  def planned(query):
    loose = real(dataclasses.replace(query, epsilon=factor * query.epsilon))
    kind = type('Loose', (type(loose),), {'cost': real(query).cost})
    return kind(**{field.name: getattr(loose, field.name)
                   for field in dataclasses.fields(loose)})
  monkeypatch.setattr(registry, 'plan', planned)


def _another_epsilon(monkeypatch):
  """Plants a fault: the printed epsilon differs from the paid one."""
  real = sessions.guarantee_of
  monkeypatch.setattr(sessions, 'guarantee_of', lambda query, cost: {
      **real(query, cost), 'epsilon': '1/4'})


@pytest.mark.parametrize('plant, paid', [
  (_cheaper_entry, True), (_dearer_entry, True), (_less_noise, True),
  (_another_event, False), (_another_epsilon, False)])
def test_disagreement_is_refused_before_noise_is_drawn(
    words, monkeypatch, tmp_path, plant, paid):
  """A disagreement is refused before noise is drawn.

  If the plan alone shows it, nothing is paid either.
  """
  plant(monkeypatch)
  with pytest.raises(meters.CostError):
    estimate.release(estimate.parse(words(statistic='count')), _refusing)
  assert not list(tmp_path.glob('ledger.answers/*'))
  assert (tmp_path / 'ledger').exists() == paid


def test_a_release_that_drew_less_than_it_paid_is_not_seen(
    words, monkeypatch, tmp_path):
  _less_noise(monkeypatch, Fraction(1, 2))
  with pytest.raises(meters.CostError, match='only'):
    estimate.release(estimate.parse(words(statistic='count')))
  assert not list(tmp_path.glob('ledger.answers/*'))
  assert not list(tmp_path.glob('ledger.secrets/*'))
  assert ledger.read(tmp_path / 'ledger').spent() == Fraction(1, 2)


@pytest.mark.parametrize('cost, delta, epsilon', [
  (Cost(epsilon=Fraction(1)), 0, '1'), (Cost(choices=(Fraction(1),) * 9),
                                        '1/1000000', '8')])
def test_guarantees_of_costs(cost, delta, epsilon):
  printed = {'epsilon': epsilon, 'delta': str(delta),
             'adjacency': 'replace_one',
             'event': str(cost.event(Adjacency.REPLACE_ONE))}
  meters.check_guarantee(printed, cost, cost)
  for change in ({'epsilon': '1/2'}, {'adjacency': 'add_or_remove_one'},
                 {'event': 'None'}):
    with pytest.raises(meters.CostError):
      meters.check_guarantee({**printed, **change}, cost)
  with pytest.raises(meters.CostError):
    meters.check_guarantee(printed, cost, cost.part(Fraction(1, 2)))


@pytest.mark.parametrize('change', [{}, {'dataset': 'people'}])
def test_a_budget_that_is_too_small_reveals_nothing_of_the_file(
    words, tmp_path, change, monkeypatch):
  """A refusal for lack of budget does not depend on the file at all.

  The file may contain the person or not, or may not exist.
  """
  asked = {'statistic': 'roc', 'label': 'person', 'positive': 'John Smith',
           'ledger_budget_epsilon': '0.1', 'thresholds': 8, **change}
  messages = []
  for people in (['John Smith', 'B'], ['A', 'B'], None):
    path = tmp_path / 'people.csv'
    if people:
      path.write_text('age,person\n' + ''.join(
          f'{30 + place},{name}\n' for place, name in enumerate(people)))
    else:
      path.unlink()
    with pytest.raises(ValueError) as error:
      run(words(**asked))
    messages.append(str(error.value))
    assert not (tmp_path / 'ledger').exists()
  assert len(set(messages)) == 1 and 'budget would be exceeded' in messages[0]
  # The same holds for a ledger with releases on it.
  path.write_text('age,person\n30,John Smith\n31,B\n')
  run(words(**{**asked, 'ledger_budget_epsilon': '0.6'}))
  path.unlink()
  with pytest.raises(ValueError, match='budget would be exceeded'):
    run(words(**{**asked, 'ledger_budget_epsilon': '0.6', 'positive': 'B'}))


def test_the_hash_and_the_values_are_of_the_same_bytes(words, tmp_path,
                                                       monkeypatch):
  """The hash and the values come from one
  snapshot, even if the file changes."""
  path, real = tmp_path / 'people.csv', files.snapshot
  before = estimate.release(estimate.parse(words(
      ledger_budget_epsilon=10**6, epsilon=10**5, ledger=tmp_path / 'first')))

  class Swapped:
    """This snapshot changes the file once it has been entered."""

    def __init__(self, name):
      self._snapshot = real(name)

    def __enter__(self):
      snapshot = self._snapshot.__enter__()
      with open(path, 'r+', encoding='utf-8') as file:
        file.write('age,kind\n99,a\n')
      return snapshot

    def __exit__(self, *what):
      return self._snapshot.__exit__(*what)

  monkeypatch.setattr(files, 'snapshot', Swapped)
  after = estimate.release(estimate.parse(words(
      ledger_budget_epsilon=10**6, epsilon=10**5)))
  monkeypatch.undo()
  assert after['value'] == pytest.approx(before['value'], abs=1e-3)
  with pytest.raises(ValueError, match='another file'):
    run(words(ledger_budget_epsilon=10**6, epsilon=10**5))


def test_quantiles_and_ends_gain_by_delta(words, tmp_path):
  """With delta, many quantiles get 2 to 3 times the rate they get without."""
  asked = {'statistic': 'quantiles', 'epsilon': '1', 'quantiles': ','.join(
      f'{k}/40' for k in range(1, 40)), 'quantile_method': 'independent'}
  rates = []
  for delta in (None, '1e-6'):
    run(words(**asked, delta=delta, ledger_budget_delta=delta,
              ledger=tmp_path / f'{delta}'))
    answer = json.loads((tmp_path / 'out.json').read_text())
    rates.append(Fraction(answer['noise']['1/4']['rate']))
    assert answer['guarantee']['notion'].startswith(
        '(epsilon, delta)-DP, by Renyi-DP' if delta else 'epsilon-DP')
  assert 2 < rates[1] / rates[0] < 3
  assert os.listdir(tmp_path / 'None.answers') == ['1.json']
