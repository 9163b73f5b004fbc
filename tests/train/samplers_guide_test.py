"""Runs the code of the page on samplers, as it is printed."""

import pathlib
import re

import jax
import pytest

_GUIDE = pathlib.Path(__file__).resolve().parents[2] / 'docs/samplers.md'


@pytest.mark.every(8)
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
