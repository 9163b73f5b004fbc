"""Tests how many records are enough or too few, on risks known exactly."""

import math

import pytest

from dpjax.privacy import notions
from dpjax.theory.minimax.bounds import Bound
from dpjax.theory.parametric import sample_sizes
from dpjax.theory.parametric import studies
from dpjax.theory.parametric import study

GUARANTEE = notions.PureDP(epsilon=1.0)


def of(risk, *, below=None, trivial=1e9):
  """Returns a study whose bounds are given functions of n."""
  below = below or risk
  return study.Study(
      name='known', help='', loss='', parameters={},
      lower=lambda *, num_examples, guarantee, scale=1.0: (
          Bound(scale * below(num_examples), 'below'),),
      upper=lambda *, num_examples, guarantee, scale=1.0: (
          study.Upper(scale * risk(num_examples), 'above', False),),
      non_private=lambda *, num_examples: 0.0,
      trivial=lambda *, scale=1.0: trivial, notions=(notions.PureDP,))


@pytest.mark.parametrize('power', [0.3, 1.0, 2.0, 7.0])
@pytest.mark.parametrize('target', [0.9, 1e-2, 3e-6])
def test_sizes_are_those_where_the_risk_meets_the_target(power, target):
  risk = lambda n: n**-power
  exact = target**(-1 / power)
  model = of(risk)
  known = dict(target_risk=target, guarantee=GUARANTEE)
  enough = sample_sizes.enough(model, **known)
  too_few = sample_sizes.too_few(model, **known)
  if exact > sample_sizes.LARGEST:
    largest = sample_sizes.LARGEST
    assert enough is None and largest / 8 <= too_few <= largest
    return
  assert risk(enough) <= target < risk(too_few)
  assert math.ceil(exact * (1 - 1e-9)) <= enough <= max(
      exact + 1, 1.002 * exact)
  assert min(exact - 1.001, exact / 1.002) <= too_few < exact * (1 + 1e-9)
  # A scale that is passed on is in units of the loss.
  assert sample_sizes.enough(model, **{**known, 'target_risk': 7 * target},
                             scale=7.0) == enough
  assert sample_sizes.too_few(model, **{**known, 'target_risk': 7 * target},
                              scale=7.0) == too_few


def test_steps_and_flat_stretches_are_found():
  """The least n is found to one in a thousand for steps and flat stretches."""
  def risk(n):
    return 1.0 if n < 1000 else 0.5 if n < 54_321 else 0.0
  known = dict(guarantee=GUARANTEE)
  assert sample_sizes.enough(of(risk), target_risk=0.7, **known) == 1000
  size = sample_sizes.enough(of(risk), target_risk=0.3, **known)
  assert 54_321 <= size <= 54_321 * 1.002
  few = sample_sizes.too_few(of(risk), target_risk=0.3, **known)
  assert 54_321 / 1.002 <= few < 54_321


def test_what_a_constant_does_takes_no_records():
  model = of(lambda n: 1 / n, trivial=0.25)
  for target, wanted in ((0.25, 0), (0.3, 0), (0.24, 5)):
    assert sample_sizes.enough(model, target_risk=target,
                               guarantee=GUARANTEE) == wanted
  assert sample_sizes.too_few(model, target_risk=0.25,
                              guarantee=GUARANTEE) == 0
  # One record is enough, so zero is too few.
  easy = of(lambda n: 0.1, trivial=0.25)
  assert sample_sizes.enough(easy, target_risk=0.2, guarantee=GUARANTEE) == 1
  assert sample_sizes.too_few(easy, target_risk=0.2, guarantee=GUARANTEE) == 0
  with pytest.raises(ValueError, match='target_risk must be'):
    sample_sizes.enough(easy, target_risk=0.0, guarantee=GUARANTEE)
  with pytest.raises(ValueError, match='target_risk must be'):
    sample_sizes.too_few(easy, target_risk=-1.0, guarantee=GUARANTEE)


@pytest.mark.every(2)
def test_of_a_proportion_they_enclose_the_size_that_is_needed():
  known = dict(target_risk=1e-3, guarantee=GUARANTEE)
  model = studies.STUDIES['proportion']
  few, enough = (find(model, **known) for find in (
      sample_sizes.too_few, sample_sizes.enough))
  assert 200 < few < enough < 300
  at = lambda n, bound: getattr(model, bound)(
      num_examples=n, guarantee=GUARANTEE).value
  assert at(few, 'best_lower') > 1e-3 >= at(enough, 'best_upper')
  assert at(enough - 2, 'best_upper') > 1e-3 >= at(few + 2, 'best_lower')
