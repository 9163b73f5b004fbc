"""Runs the code of the guide to private loops, as it is printed."""

import pathlib
import re

import jax
import pytest

_GUIDE = pathlib.Path(__file__).resolve().parents[2] / 'docs/private_loop.md'


@pytest.mark.every(4)
def test_the_guide_runs_and_keeps_its_budget(capsys):
  names = {}
  # Users have these settings, tests have stricter ones.
  with jax.numpy_dtype_promotion('standard'), jax.numpy_rank_promotion('allow'):
    for block in re.findall(r'```python\n(.*?)```', _GUIDE.read_text(),
                            re.DOTALL):
      exec(compile(block, _GUIDE.name, 'exec'), names)
  spent = re.findall(r'epsilon ([\d.]+)', capsys.readouterr().out)
  assert spent == ['2.00', '2.00']
  assert names['averaged'].keys() == {'w', 'b'}
  assert int(names['state'].step) == 30
  assert type(names['trained']).__name__ == 'Classifier'
