"""These tests check the command that measures quantiles and resumes."""

import math
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from dpjax.stats.quantile_methods import histogram
from dpjax.stats.quantile_methods import smoothing
from dpjax.studies import quantile_study as study
from dpjax.studies import quantile_trials

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_OPTIONS = study.Options(bins=20, post='simplex')


def _settings(options=_OPTIONS, **kwargs):
  return study.settings(options, **dict(
      distributions=['beta_1_1'], methods=['emp', 'hist'], num_levels=[3], sizes=[60],
      epsilons=[1.0, 5.0], sigmas=[], adjacency='replace_one', first=0.0,
      last=1.0, repetitions=4, seed=0) | kwargs)


def test_settings_have_what_their_methods_read():
  settings = _settings(methods=['emp', 'hist', 'ind', 'hs_uniform', 'joint'],
                       sigmas=[.1, .2])
  assert [(each.method, each.epsilon, each.sigma)
          for each in settings[-6:]] == (
      [('hs_uniform', e, s) for e in (1.0, 5.0) for s in (.1, .2)]
      + [('joint', e, pytest.approx(math.nan, nan_ok=True))
         for e in (1.0, 5.0)])
  # Without privacy there is one epsilon.
  assert sum(each.method == 'emp' for each in settings) == 1
  assert {each.variant for each in settings if each.method == 'hist'} == {
      'bins=20 post=simplex'}
  np.testing.assert_allclose(settings[0].probs, [.25, .5, .75])


def test_every_method_is_what_its_name_says():
  distribution = study.distribution_of('beta_1_1')
  for method in study.METHODS[1:]:
    (setting,) = _settings(methods=[method], epsilons=[1.0])
    mechanism = study._MAKERS[method][0](setting, _OPTIONS, dict(
        probs=tuple(setting.probs), epsilon=1.0, lower=distribution.lower,
        upper=distribution.upper, adjacency=study.Adjacency.REPLACE_ONE))
    assert mechanism.epsilon == 1.0
    assert mechanism.adjacency.value == 'replace_one'
    if method == 'hist':
      assert isinstance(mechanism, histogram.HistogramQuantiles)
      assert (mechanism.num_bins, mechanism.post) == (20, 'simplex')
    if method.startswith('hs_'):
      assert isinstance(mechanism, smoothing.Smoothed)
      assert mechanism.kind == method.removeprefix('hs_')


@pytest.mark.slow
def test_lines_are_errors_and_are_kept(tmp_path, monkeypatch):
  distributions = {'beta_1_1': study.distribution_of('beta_1_1')}
  path = tmp_path / 'errors.csv'
  progress = []

  def measured(wanted):
    return study.resume(path, wanted, distributions, _OPTIONS,
                        lambda *done: progress.append(done[:2]))

  first = measured(_settings(epsilons=[1.0]))
  none, some, more = measured(_settings())
  # Only one setting of the second call was new.
  assert progress == [(1, 2), (2, 2), (1, 1)]
  assert [none.values, some.values] == [point.values for point in first]
  assert none['rank_sup'] < more['rank_sup'] < some['rank_sup'] < 60
  probs = _settings()[0].probs
  direct = quantile_trials.measure(
      distributions['beta_1_1'], probs, quantile_trials.without_privacy(probs),
      method='any', num_examples=60, repetitions=4, seed=0)
  assert none['rank_sup'] == float(direct['rank_sup'])
  monkeypatch.setattr(quantile_trials, 'measure', None)
  assert [point.values for point in measured(_settings())] == [
      none.values, some.values, more.values]
  path.write_text('a,b\n1,2\n')
  with pytest.raises(ValueError, match='not written by this command'):
    measured(_settings())


@pytest.mark.parametrize('kwargs, message', [
    (dict(methods=['median']), 'one of'),
    (dict(epsilons=[0.0]), 'epsilon'),
    (dict(num_levels=[0]), 'num_levels'),
    (dict(sizes=[0]), 'num_examples'),
    (dict(repetitions=1), 'repetitions'),
    (dict(first=.5, last=.5), 'within'),
    (dict(methods=['inverse'], sizes=[2]), '1 / n apart'),
    (dict(methods=['inverse'], adjacency='add_or_remove_one'), 'REPLACE_ONE'),
    (dict(methods=['hs_uniform'], sigmas=[-1.0]), 'sigma')])
def test_bad_settings_are_refused_before_any_is_run(kwargs, message,
                                                    monkeypatch):
  monkeypatch.setattr(quantile_trials, 'measure', None)
  distributions = {'beta_1_1': study.distribution_of('beta_1_1')}
  with pytest.raises(ValueError, match=message):
    # The first setting is a good one.
    list(study.run(_settings() + _settings(**kwargs), distributions, _OPTIONS))


def test_settings_of_no_use_are_reported():
  asked = _settings(methods=['emp', 'ind', 'rec', 'joint'], sizes=[1000],
                    num_levels=[5, 101], epsilons=[1.0])
  assert [(s.method, s.num_levels) for s in asked if study.caution(s)] == [
      ('ind', 101), ('joint', 101)]


@pytest.mark.slow
def test_the_command(tmp_path):
  column = 'x\n' + '\n'.join(map(str, np.linspace(0, 9, 30))) + '\n'
  (tmp_path / 'file.csv').write_text(column)
  words = [sys.executable, '-m', 'launch.quantiles',
           f'--distributions={tmp_path}/file.csv:x', '--lower=0', '--upper=9',
           '--methods=emp,hist', '--n=40,80', '--num_levels=2',
           '--repetitions=3', f'--output={tmp_path}/e.csv',
           f'--plot={tmp_path}/e.svg']
  done = subprocess.run(words, cwd=_ROOT, capture_output=True, text=True,
                        check=False)
  assert done.returncode == 0, done.stderr
  assert done.stderr.count('\n') == 4 and '4/4' in done.stderr
  assert (tmp_path / 'e.svg').read_text().startswith('<?xml')
  assert len((tmp_path / 'e.csv').read_text().splitlines()) == 5
  assert done.stdout.count('file.csv:x') == 4
  bad = subprocess.run([*words, '--upper=-1'], cwd=_ROOT, capture_output=True,
                       text=True, check=False)
  assert bad.returncode == 2
  assert bad.stderr.startswith('error: lower must be below upper')
