"""Tests the stated cost of several runs together."""

from dpjax.runs import summary


def _run(epsilon=1.0, delta=1e-6, valid=True, assumption=None):
  return {'epsilon': epsilon, 'delta': delta, 'epsilon_valid': valid,
          'epsilon_assumption': assumption}


def test_the_cost_of_all_runs_adds_up():
  line = summary.cost_of_all([_run(), _run(0.5)])
  assert 'the 2 private runs together' in line
  assert 'cost epsilon 1.5 at delta 2e-06;' in line
  seeded = _run(valid=False, assumption='nobody knows the seed')
  assert 'the 2 private runs' in summary.cost_of_all([_run(), seeded])


def test_runs_without_a_guarantee_do_not_count():
  others = [_run(epsilon=None, delta=None), _run(valid=False)]
  assert summary.cost_of_all([_run(), *others]) is None
  assert summary.cost_of_all([]) is None
  assert summary.cost_of_all([_run(delta=.6)] * 2) is None
