"""Runs the code of the guides to private loops, as it is printed."""

import pathlib
import re

import jax
import pytest

_DOCS = pathlib.Path(__file__).resolve().parents[2] / 'docs'


def _run(page):
  """Runs all code of a page; returns its names."""
  names = {}
  # Users have these settings, tests have stricter ones.
  with jax.numpy_dtype_promotion('standard'), jax.numpy_rank_promotion('allow'):
    for block in re.findall(r'```python\n(.*?)```', (_DOCS / page).read_text(),
                            re.DOTALL):
      exec(compile(block, page, 'exec'), names)
  return names


@pytest.mark.every(4)
def test_the_guide_runs_and_keeps_its_budget(capsys):
  names = _run('private_loop.md')
  spent = re.findall(r'epsilon ([\d.]+)', capsys.readouterr().out)
  assert spent == ['2.00', '2.00']
  assert names['averaged'].keys() == {'w', 'b'}
  assert int(names['state'].step) == 30
  assert type(names['trained']).__name__ == 'Classifier'
  assert 3.9 < names['best'].epsilon <= 4


@pytest.mark.every(2)
def test_the_guide_to_users_runs_and_keeps_its_budget(capsys):
  names = _run('user_privacy.md')
  assert capsys.readouterr().out == 'epsilon 2.00\n'
  assert names['private'].unit == 'user'
