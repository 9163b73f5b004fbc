"""Runs the code of the page on samplers, as it is printed."""

import json
import pathlib
import re
import shlex

from absl.testing import flagsaver
import jax
import pytest

from dpjax.cli import train

_GUIDE = pathlib.Path(__file__).resolve().parents[2] / 'docs/samplers.md'


@pytest.mark.every(6)
def test_the_page_runs_and_keeps_its_budget(capsys):
  names = {}
  # Users have these settings, tests have stricter ones.
  with jax.numpy_dtype_promotion('standard'), jax.numpy_rank_promotion('allow'):
    for block in re.findall(r'```python\n(.*?)```', _GUIDE.read_text(),
                            re.DOTALL):
      exec(compile(block, _GUIDE.name, 'exec'), names)
  spent = re.findall(r'epsilon ([\d.]+), noise multiplier ([\d.]+)',
                     capsys.readouterr().out)
  assert [epsilon for epsilon, _ in spent] == ['2.00'] * 4
  # Allocations need less noise than Poisson samples.
  assert float(spent[1][1]) < float(spent[0][1])


@pytest.mark.slow
def test_the_command_of_the_page_keeps_its_budget(tmp_path):
  command, = re.findall(r'```\ndpjax (train .*?)```', _GUIDE.read_text(),
                        re.DOTALL)
  words = [word for word in shlex.split(command.replace('\\\n', ''))
           if not word.startswith('--output_dir')]
  with flagsaver.flagsaver():
    assert train.main(train.parse([*words, f'--output_dir={tmp_path}'])) == 0
  summary = json.loads((tmp_path / 'summary.json').read_text())
  assert summary['sampler'] == '10 random groups in turns, as a whole'
  assert 1.99 < summary['epsilon'] <= 2 and summary['epsilon_valid']
