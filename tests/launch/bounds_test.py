"""These tests check what the planning command
prints, keeps, draws and refuses."""

import csv
import json
import math
import pathlib
import subprocess
import sys

import pytest

from dpjax.cli import bounds
from dpjax.privacy import notions
from dpjax.theory.minimax import bounds as lower_bounds
from dpjax.theory.minimax import two_points
from dpjax.theory.parametric import sample_sizes
from dpjax.theory.parametric import studies
from dpjax.theory.parametric.study import Parameter
from dpjax.theory.parametric.study import Study
from dpjax.theory.parametric.study import Upper

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def _lower(*, num_examples, guarantee, width):
  gap = .5
  return (
      lower_bounds.Bound(width**2 * gap**2 / 4 * float(
          two_points.product_risk(gap, num_examples=num_examples,
                                   guarantee=guarantee)), 'two points'),
      lower_bounds.Bound(-1.0, 'nothing'))


def _upper(*, num_examples, guarantee, width):
  if not isinstance(guarantee, notions.PureDP):
    return ()
  noise = 2 / (num_examples * guarantee.epsilon)**2
  return (Upper(width**2 * (.25 / num_examples + 4 * noise), 'twice', False),
          Upper(width**2 * (.25 / num_examples + noise), 'laplace', True))


_STUDY = Study(
    name='share', help='A share of answers.', loss='squared error',
    parameters={'width': Parameter(1.0, 'Of the range.')},
    lower=_lower, upper=_upper,
    non_private=lambda *, num_examples, width: width**2 / 4 / (
        1 + math.sqrt(num_examples))**2,
    trivial=lambda *, width: width**2 / 4, notions=(notions.PureDP,))


@pytest.fixture
def call(monkeypatch, capsys):
  """Returns a function of flags that runs the command on one small study."""
  monkeypatch.setattr(studies, 'STUDIES', {'share': _STUDY})

  def run(**changed):
    given = {'model': 'share', 'n': 100, 'epsilon': '0.5', **changed}
    assert not bounds.main(bounds.parse(['bounds', *(
        f'--{name}={value}' for name, value in given.items()
        if value is not None)]))
    return capsys.readouterr().out
  return run


def _cells(line):
  return [cell.strip() for cell in line.strip('| \n').split('|')]


def test_all_bounds_of_a_setting_are_reported(call, tmp_path):
  shown = call(output=tmp_path / 'a.json').splitlines()
  assert shown[0] == 'share: A share of answers. (squared error)'
  n, budget, low, by, up, of, ratio, free, constant = _cells(shown[4])
  assert (n, budget, by, of) == ('100', 'epsilon 0.5', 'two points', 'laplace')
  assert float(up) == pytest.approx(.0025 + 2 / 2500, rel=1e-3)
  assert float(ratio) == pytest.approx(float(up) / float(low), rel=1e-2)
  assert (free, constant) == ('0.002066', '0.25')
  rows = json.loads((tmp_path / 'a.json').read_text())['bounds']
  assert [(row['kind'], row['name']) for row in rows] == [
      ('lower', 'two points'), ('lower', 'nothing'), ('upper', 'laplace'),
      ('upper', 'twice'), ('non_private', 'without privacy'),
      ('trivial', 'best constant')]
  assert rows[1]['value'] == 0 and rows[3]['is'] == 'bound'
  assert [_cells(line)[0] for line in shown[8:14]] == [
      row['kind'].replace('_', '-') for row in rows]


def test_lists_are_swept_and_kept(call, tmp_path):
  shown = call(n='10,1000', epsilon='1,0.1', width='1,2',
               output=tmp_path / 'a.csv', target_risk='0.01')
  lines = [_cells(line) for line in shown.splitlines()[4:12]]
  assert [tuple(line[:3]) for line in lines[:3]] == [
      ('1', '10', 'epsilon 1'), ('1', '1000', 'epsilon 1'),
      ('1', '10', 'epsilon 0.1')]
  with (tmp_path / 'a.csv').open() as file:
    kept = list(csv.DictReader(file))
  assert len(kept) == 8 * 6 + 4 * 2
  wide = [row for row in kept if row['width'] == '2.0']
  assert {row['value'] for row in wide if row['kind'] == 'trivial'} == {'1.0'}
  assert sum('too few for any' in line for line in shown.splitlines()) == 4


def test_delta_and_other_budgets(call):
  shown = call(delta='1e-6')
  assert 'epsilon 0.5, delta 1e-06' in shown and '| none' in shown
  for name, kind in (('rho', notions.ZCDP), ('tv', notions.
                     TotalVariationPrivacy), ('kl', notions.
                     KullbackLeiblerPrivacy)):
    shown = call(epsilon=None, **{name: '.1'})
    assert f'{name} 0.1' in shown
    (_, guarantee), = bounds.guarantees(bounds.parse(['', f'--{name}=.1']))
    assert isinstance(guarantee, kind)


@pytest.mark.parametrize('target', [.04, 1e-2, 3e-5])
def test_numbers_of_records_bracket_the_target(target):
  given = {'guarantee': notions.PureDP(epsilon=.3), 'width': 1.0}
  enough = sample_sizes.enough(_STUDY, target_risk=target, **given)
  few = sample_sizes.too_few(_STUDY, target_risk=target, **given)
  up = lambda n: _STUDY.best_upper(num_examples=n, **given).value
  low = lambda n: _STUDY.best_lower(num_examples=n, **given).value
  assert 0 < few < enough
  assert up(enough) <= target < up(math.floor(enough * .998))
  assert low(math.ceil(few * 1.002)) <= target < low(few)


def test_no_records_are_needed_for_the_best_constant():
  given = {'guarantee': notions.PureDP(epsilon=.3), 'width': 1.0}
  assert sample_sizes.enough(_STUDY, target_risk=.25, **given) == 0
  assert sample_sizes.too_few(_STUDY, target_risk=.25, **given) == 0
  assert sample_sizes.enough(
      _STUDY, target_risk=.01, guarantee=notions.ZCDP(rho=1.0),
      width=1.0) is None
  # No bound is reported beyond hundreds of millions of records.
  assert sample_sizes.too_few(
      _STUDY, target_risk=.01, guarantee=notions.KullbackLeiblerPrivacy(
          level=0.0), width=1.0) == sample_sizes.LARGEST


@pytest.mark.slow
def test_figure(call, tmp_path):
  pytest.importorskip('matplotlib')
  call(epsilon='0.1,1', plot=tmp_path / 'a.svg')
  drawn = (tmp_path / 'a.svg').read_text()
  assert drawn.count('<g id="axes_') == 2


@pytest.mark.parametrize('change, message', [
  ({'model': None}, '--model must be given'),
  ({'model': 'shares'}, "model must be one of share; got 'shares'"),
  ({'n': None}, '--n must be given'), ({'n': 'ten'}, '--n must be numbers'),
  ({'n': '0'}, '--n must be whole'), ({'n': '1.5'}, '--n must be whole'),
  ({'n': 'inf'}, '--n must be whole'), ({'epsilon': None}, '--epsilon .or another budget. must be given'),
  ({'rho': 1}, 'give one budget'), ({'epsilon': -1}, 'epsilon must be'),
  ({'epsilon': None, 'delta': .1}, 'give one budget'),
  ({'delta': 1}, 'delta must lie'), ({'width': 'x'}, '--width must be numbers'),
  ({'target_risk': 0}, '--target_risk must be a positive'),
  ({'output': 'a.txt'}, '--output must end in .csv or .json'),
  ({'output': '/nowhere/a.csv'}, '--output must be a file'),
  ({'plot': 'a.png'}, '--plot must end in .svg'),
  ({'plot': 'a.svg', 'epsilon': '1,2,3,4,5,6,7'}, '--plot has 6 axes at most'),
])
def test_bad_input_is_one_line(call, change, message):
  with pytest.raises(ValueError, match=message) as error:
    call(**change)
  assert '\n' not in str(error.value)


def test_numbers_of_records_where_nothing_is_a_power():
  """The search finds the first sufficient n to
  0.1 %, even on a flat, steep risk.

  The n found suffices and the n returned as too small does not.
  """
  for edge in (2, 3, 1_000, 54_321):
    for steep in (1.0, 1e-9):
      risk = lambda n, e=edge, s=steep: 1.0 if n < e else s * .5
      assert 0 <= sample_sizes._first(risk, .9) - edge <= edge / 1_000
      before = sample_sizes._first(risk, .9, below=True)
      assert 0 < edge - before <= 1 + edge / 1_000


@pytest.mark.slow
def test_all_studies_on_the_command_line():
  """The command plans a study in its own
  process and reports bad flags in a line."""
  words = [sys.executable, '-m', 'launch.bounds', '--n=200', '--epsilon=1']
  done = subprocess.run([*words, '--model=mean', '--d=2', '--k=inf', '--r=3'],
                        cwd=_ROOT, text=True, capture_output=True, check=True)
  assert done.stdout.startswith('mean: ') and 'lower' in done.stdout
  bad = subprocess.run([*words, '--model=mean', '--b=2'], cwd=_ROOT, text=True,
                       capture_output=True, check=False)
  assert bad.returncode == 2
  assert bad.stderr == ('error: mean has no --b; it has dimension, moment, '
                        'radius\n')


@pytest.mark.slow
@pytest.mark.parametrize('name', studies.STUDIES)
def test_lower_bounds_are_below_upper_ones_in_every_study(name):
  study = studies.STUDIES[name]
  parameters = {key: p.default for key, p in study.parameters.items()}
  rows = bounds.rows(study, 'any', notions.PureDP(epsilon=.5), 300, parameters)
  kinds = [row['kind'] for row in rows]
  assert kinds == sorted(kinds, key=('lower', 'upper', 'non_private',
                                     'trivial').index)
  assert rows[0]['value'] > 0 and kinds.count('upper')
  for row in rows:
    if row['kind'] != 'non_private':
      assert (row['kind'] == 'lower') == (row['to_best_lower'] <= 1)


def test_help_names_every_study_and_parameter(capsys):
  with pytest.raises(SystemExit) as stop:
    bounds.parse(['bounds', '--help'])
  assert not stop.value.code
  shown = capsys.readouterr().out
  for name, study in studies.STUDIES.items():
    assert f'\n  {name}: ' in shown
    assert all(f'--{key}: ' in shown for key in study.parameters)
