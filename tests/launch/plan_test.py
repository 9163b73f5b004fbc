"""These tests check what `dpjax plan` prints, keeps and refuses."""

import json

import pytest

from dpjax.cli import plan

FLAGS = {'num_examples': 40, 'batch_size': 20, 'steps': 4, 'epsilon': 2,
         'delta': '1e-4'}


def call(**changed):
  given = {**FLAGS, **changed}
  return plan.main(plan.parse(['plan', *(
      f'--{name}={value}' for name, value in given.items()
      if value is not None)]))


@pytest.mark.every(6)
def test_plans_are_printed_and_kept(capsys, tmp_path):
  output = tmp_path / 'plans.json'
  assert not call(output=output)
  shown = capsys.readouterr().out.splitlines()
  kept = json.loads(output.read_text())
  assert kept['num_steps'] == 4 and kept['adjacency'] == 'add_or_remove_one'
  assert len(shown) == 2 + len(kept['plans']) + 1 + len(kept['left_out'])
  for line, row in zip(shown[2:], kept['plans'], strict=False):
    cells = [cell.strip() for cell in line.strip('|').split('|')]
    assert cells[:2] == [row['sampler'], row['noise']]
    assert float(cells[4]) == pytest.approx(row['prefix_noise'], rel=0.01)
  assert shown[-1].startswith('without fixed size: ')
  ratios = {row['sampler']: row['to_poisson'] for row in kept['plans']
            if row['noise'] == 'independent'}
  assert ratios['Poisson'] == 1 and ratios['random allocation'] < 1


@pytest.mark.parametrize('changed, message', [
  ({'steps': None}, '--steps must be given'),
  ({'steps': 2.5}, "--steps must be a whole number >= 1, got '2.5'"),
  ({'epsilon': '1,2'}, "--epsilon must be one number, got '1,2'"),
  ({'epsilon': -1}, '--epsilon must be a positive number'),
  ({'delta': 2}, 'delta must lie in'),
  ({'batch_size': 50}, 'batch_size must be at most num_examples = 40'),
  ({'adjacency': 'both'}, 'adjacency must be one of'),
  ({'output': 'plans.csv'}, '--output must end in .json')])
def test_refusals(changed, message):
  with pytest.raises(ValueError, match=message):
    call(**changed)
