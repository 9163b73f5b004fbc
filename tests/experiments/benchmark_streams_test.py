"""Tests of the benchmark of steps on records that are not in memory."""

import numpy as np
import pytest

from experiments.benchmarks import findings
from experiments.benchmarks import methods
from experiments.benchmarks import program
from experiments.benchmarks import streams
from experiments.benchmarks import sweep
from experiments.benchmarks.values import Line


@pytest.mark.every(4)
@pytest.mark.parametrize('model', methods.STREAM_MODELS)
@pytest.mark.parametrize('method', methods.STREAMS)
def test_steps_are_made_within_the_limit(monkeypatch, model, method):
  limits = []
  monkeypatch.setattr(streams.resource, 'setrlimit',
                      lambda kind, limit: limits.append(limit))
  monkeypatch.setattr(streams, '_IN_MEMORY', 1200)
  made = streams.make(program.Spec(suite='stream', model=model, size=1500,
                                   method=method))
  made.step()
  made.step()
  assert limits == [(streams.LIMIT, streams.LIMIT)]


def test_the_largest_data_set_is_ten_times_the_limit():
  settings = sweep.settings('stream')
  size = max(setting.size for setting in settings)
  assert 10 * streams.LIMIT <= 4 * streams._FEATURES * size < 11 * streams.LIMIT
  assert {setting.method for setting in settings} == set(methods.STREAMS)
  for setting in settings:
    unit, = sweep.units(setting)
    assert (unit.method, unit.size) == ('memory', setting.size)


def test_records_of_a_file_have_no_contents_and_others_are_distinct():
  numbers = np.array([0, 1, 1499])
  computed, mapped = (maker(1500).load(numbers) for maker in (
      streams._computed, streams._mapped))
  assert computed['x'].shape == mapped['x'].shape == (3, 784)
  assert len(np.unique(computed['x'][:, 0])) == 3 and not np.any(mapped['x'])


@pytest.mark.parametrize('ratio, met', [(1.05, 'yes'), (1.2, 'no')])
def test_the_target_is_stated(ratio, met):
  lines = {Line('ours', 1): {6_400_000: {'ratio': ratio}}}
  text = '\n'.join(findings.of_suite('stream', {'mapped': lines}))
  assert f'| {met} ' in text.lower()
