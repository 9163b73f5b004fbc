"""Runs the code of the guide to models larger than one device, as printed."""

import pathlib
import re

import jax
import pytest

_GUIDE = pathlib.Path(__file__).resolve().parents[2] / 'docs/sharding.md'


@pytest.mark.every(8)
def test_the_guide_runs_and_keeps_its_budget(capsys):
  names = {}
  # Users have these settings, tests have stricter ones.
  with jax.numpy_dtype_promotion('standard'), jax.numpy_rank_promotion('allow'):
    for block in re.findall(r'```python\n(.*?)```', _GUIDE.read_text(),
                            re.DOTALL):
      exec(compile(block, _GUIDE.name, 'exec'), names)
  printed = capsys.readouterr().out
  assert re.findall(r'epsilon ([\d.]+)', printed) == ['2.00', '2.00']
  assert "P(None, None, 'data')" in printed
  assert "P(None, 'model')" in printed
  layers = names['state'].params['layers']
  assert layers.sharding.shard_shape(layers.shape) == (4, 128, 64)
