"""Tests that values are rounded to the safe side, and limits hold."""

import decimal
import fractions
import io

import numpy as np
import pytest
from scipy import stats

from dpjax.privacy.adjacency import Adjacency
from dpjax.release import costs
from dpjax.release import noise
from dpjax.release import registry
from dpjax.release import sample_means
from dpjax.release.costs import Cost
from dpjax.release.query import Query
from dpjax.tables import formats
from dpjax.tables import reader

pytestmark = pytest.mark.every(1)

Decimal, Fraction = decimal.Decimal, fractions.Fraction
_AR, _RO = Adjacency


def _exact(rho, order, delta):
  """Returns rho a + ln(1 - 1 / a) - ln(delta a) / (a - 1), to 50 digits."""
  rho, delta = (Decimal(value.numerator) / value.denominator
                for value in (rho, delta))
  order = Decimal(order)
  return rho * order + (1 - 1 / order).ln() - (delta * order).ln() / (order - 1)


def test_epsilons_of_orders_are_never_below_their_formula():
  generator = np.random.default_rng(0)
  with decimal.localcontext(prec=50):
    for _ in range(60):
      rho = Fraction(int(generator.integers(1, 10**6)), 10**6)
      delta = Fraction(1, int(generator.integers(10**3, 10**9)))
      order = float(1 + 10**generator.uniform(-.5, 1.5))
      epsilon = costs._at_orders([Cost(rho=rho)], (order,), delta, _RO)
      exact = _exact(rho, order, delta)
      if exact > 0:
        above = Decimal(epsilon.numerator) / epsilon.denominator / exact - 1
        assert 0 <= above < Decimal('1e-11')


@pytest.mark.parametrize('most, variance, number, step', [
  (.8, .16, 5, .01), (.5, .05, 40, .07), (.3, .2, 12, .3)])
def test_two_points_are_rounded_up_by_less_than_a_step(most, variance, number,
                                                       step):
  grid = sample_means._two_points(most, variance, number, step)
  p = variance / (variance + most**2)
  chances = stats.binom.pmf(np.arange(number + 1), number, p)
  values = np.arange(number + 1) * (most + variance / most) - (
      number * variance / most)
  assert grid.pmf.sum() == pytest.approx(1)
  assert grid.pmf @ grid.points >= chances @ values
  for value in values:
    exact = chances[values >= value].sum()
    assert grid.pmf[grid.points >= value - 1e-12].sum() >= exact - 1e-12
    assert grid.pmf[grid.points >= value + step].sum() <= exact + 1e-12


def test_the_largest_confidence_of_bands_is_allowed():
  common = {'statistic': 'ecdf', 'adjacency': _RO, 'epsilon': Fraction(1),
            'column': 'x', 'lower': Decimal(0), 'upper': Decimal(1)}
  assert registry.plan(Query(confidence=Fraction(999, 1000), **common))
  with pytest.raises(ValueError, match='confidence must be at most 0.999'):
    registry.plan(Query(confidence=Fraction(9991, 10000), **common))


@pytest.mark.parametrize('delta', [None, Fraction(1, 10**6)])
@pytest.mark.parametrize('adjacency', Adjacency)
def test_a_density_says_what_its_noise_is_for(adjacency, delta):
  plan = registry.plan(Query(
      statistic='density', adjacency=adjacency, epsilon=Fraction(1),
      delta=delta, column='x', lower=Decimal(0), upper=Decimal(1)))
  distribution = plan.noise_of_bins(7)
  facts = plan._noise_facts(distribution, 7)
  sensitivities = plan._sensitivities(7)
  bins = facts['bins']
  unit = Fraction(bins['unit'])
  assert unit == Fraction(1, 7)
  assert distribution.to_json().items() <= bins.items()
  assert Fraction(bins['l1_sensitivity']) == (
      sensitivities['l1_sensitivity'] * unit)
  assert Fraction(bins['l2_sensitivity_squared']) == (
      sensitivities['l2_sensitivity_squared'] * unit**2)
  assert ('records' in facts) == (adjacency is _AR)
  if adjacency is _AR:
    assert plan.noise_of_records.to_json().items() <= facts['records'].items()
    assert [facts['records'][name] for name in (
        'unit', 'l1_sensitivity', 'l2_sensitivity_squared')] == ['1'] * 3


@pytest.mark.parametrize('declared', [
  {'separator': ';;'}, {'separator': 'a'}, {'separator': '"'},
  {'encoding': 'utf-16'}, {'decimal': ';'}, {'thousands': ';'},
  {'thousands': '.'}, {'dates': 'dym'}, {'unparsed': 'drop'}, {'bad_lines': 'drop'}])
def test_formats_that_make_no_sense_are_refused(declared):
  with pytest.raises(ValueError, match=f'{list(declared)[0]}.* must'):
    formats.Format(**declared)
  assert formats.Format().to_json() == {'separator': ','}
  other = {'separator': ';', 'decimal': ',', 'missing_tokens': ['-99']}
  assert formats.Format(**{**other, 'missing_tokens': ('-99',)}).to_json() == (
      other)


def test_a_file_may_have_gaps_where_a_rule_says_what_they_are():
  bounds = {'lower': Decimal(0), 'upper': Decimal(1), 'column': 'x'}
  common = {'adjacency': _AR, 'epsilon': Fraction(1), **bounds}
  assert not registry.gaps(Query(statistic='mean', **common))
  assert registry.gaps(Query(statistic='mean', missing='absent', **common))
  # A count of a range has a rule for records without a number.
  assert registry.gaps(Query(statistic='count', **common))


def test_one_mark_of_decimals_is_one():
  form = formats.Format(decimal=',')
  assert form.number('1,5') == Decimal('1.5')
  for text in ('1,5,7', '1,,5', '1.5', ',5,'):
    assert form.number(text) is None


@pytest.mark.parametrize('missing, said, rule', [
  (None, '', 'declared: no number is missing'),
  ('absent', 'missing completely at random', 'counts as absent'),
  ('lower', 'a missing number is the lower bound', 'as the lower bound'),
  ('middle', 'is the middle of the bounds', 'as the middle of the bounds'),
  ('upper', 'a missing number is the upper bound', 'as the upper bound')])
def test_what_is_assumed_of_missing_numbers_is_said(missing, said, rule):
  query = Query(statistic='mean', adjacency=_RO, epsilon=Fraction(1),
                column='x', lower=Decimal(0), upper=Decimal(1), missing=missing)
  assert said in query.missing_assumption and rule in query.missing_text
  assert bool(query.missing_assumption) == (missing is not None)
  assert query.knows_size == (missing != 'absent')


@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('delta', [None, Fraction(1, 10**6)])
def test_the_end_of_a_uniform_law_divides_its_budget(adjacency, delta):
  """A twentieth of the budget goes to a private number of records."""
  plan = registry.plan(Query(
      statistic='support_max', adjacency=adjacency, epsilon=Fraction(1),
      delta=delta, column='x', lower=Decimal(1), upper=Decimal(4)))
  point = Cost(choices=(2 * plan.rate,))
  if adjacency is _RO:
    assert plan.cost == point
    return
  count = plan.query.cost().part(Fraction(1, 20))
  assert plan.cost == point + count
  assert plan.count_noise == noise.calibrated(count, l1_sensitivity=1,
                                            l2_sensitivity_squared=1)
  assert costs.epsilon([plan.cost], delta=delta or Fraction(0),
                       adjacency=adjacency) <= 1


def test_a_record_with_an_empty_field_is_a_record():
  text = b'a,b\n,1\n2,\n,\n\n3,4\n'
  pairs = list(reader.read('x.csv', io.BytesIO(text), 'a', 'b', numeric=True))
  assert pairs == [(None, '1'), (Decimal(2), ''), (None, ''), (Decimal(3), '4')]
  assert len(list(reader.read('x.csv', io.BytesIO(text), numeric=False))) == 4


def test_the_accountant_is_given_no_less_than_is_spent(monkeypatch):
  """Fractions are rounded up for costs and down for delta before accounting."""
  given = []
  honest = costs.accounting.epsilon

  def epsilon(event, *, delta, **how):
    given.append((event, delta))
    return honest(event, delta=delta, **how)

  monkeypatch.setattr(costs.accounting, 'epsilon', epsilon)
  for denominator in (3, 7, 11, 13, 10**5 + 3):
    part = Fraction(1, denominator)
    costs.epsilon([Cost(epsilon=part, rho=part, choices=(part,))],
                  delta=part / 10**6, adjacency=_RO)
    event, delta = given.pop()
    assert Fraction(delta) <= part / 10**6
    inner, = event.events
    pure, gaussian, choice = inner.events
    for value in (pure.epsilon, gaussian.rho, choice.width):
      assert part <= Fraction(value) <= part * (1 + Fraction(1, 10**15))
