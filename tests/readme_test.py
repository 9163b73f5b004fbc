"""Tests that the README's code runs, and its commands and flags exist."""

import dataclasses
import inspect
import pathlib
import re

from flax import linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.release import query
from dpjax.release import registry
from dpjax.runs.options import TrainingConfig
from dpjax.typing import Batch

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_TEXT = (_ROOT / 'README.md').read_text()
_BLOCKS = [text for _, text in re.findall(r'^```(\w*)\n(.*?)^```', _TEXT,
                                          re.DOTALL | re.MULTILINE)]


def _code(first: str) -> str:
  """Returns the Python block that contains this text."""
  code, = [block for block in re.findall(r'```python\n(.*?)```', _TEXT,
                                          re.DOTALL) if first in block]
  return code


def _run(code: str, **known) -> dict:
  names = {'np': np, 'jax': jax, **known}
  exec(compile(code, 'README.md', 'exec'), names)
  return names


@pytest.mark.every(4)
def test_the_example_of_training_prints_what_it_should(capsys):
  code = _code('import jax, optax')
  assert code.count('\n') <= 16
  _run(inspect.cleandoc(code))
  epsilon, accuracy = map(
      float, re.findall(r'epsilon ([\d.]+), accuracy ([\d.]+)',
                        capsys.readouterr().out)[0])
  # Runs have no seed, so the limit is far below what they attain.
  assert 1.99 < epsilon <= 2.0 and accuracy > 0.7


@pytest.mark.every(2)
def test_a_network_of_ones_own_is_clipped():
  module = linen.Dense(3)
  x, y = jnp.ones([4, 5]), jnp.zeros([4], jnp.int32)

  def loss(logits, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None],
                                1)[:, 0]

  params = module.init(jax.random.key(0), x)
  names = _run(_code('grads.clipped(module.apply'),
               Batch=Batch, module=module, loss=loss,
               params=params, x=x, y=y, mask=jnp.ones([4], bool))
  assert names['norms'].shape == (4,)
  assert jax.tree.structure(names['sums']) == jax.tree.structure(params)


@pytest.mark.slow
@pytest.mark.every(1)
@pytest.mark.parametrize('first, result', [
    ('stats.quantiles(key', 'stats'), ('stats.ecdf(key', 'curve'),
    ('stats.density(key', 'curve'),
])
def test_statistics_of_an_array(first, result):
  names = _run(_code(first), key=jax.random.key(0), x=np.arange(1000) % 90,
               grid=np.linspace(0, 120, 9), other_key=jax.random.key(1))
  assert names[result] is not None


def test_a_ledger_in_python(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  names = _run(_code('release import Ledger'), ages=np.arange(1000) % 90)
  assert 40 < names['released']['value'] < 50
  assert names['ledger'].spent()['spent_epsilon'] == 1.0
  assert 40 < names['median']['value']['1/2'] < 50


@pytest.mark.every(2)
def test_the_price_of_privacy():
  names = _run(_code('theory.solve'), key=jax.random.key(0),
               x=jnp.arange(1000) % 2)
  assert names['theory'].solve(
      num_examples=1000, epsilon=0.1).upper < 1e-3


def test_membership_inference():
  draw = np.random.default_rng(0)
  inclusion = draw.random((8, 200)) < 0.5
  names = _run(_code('audit.each_as_target'), inclusion=inclusion,
               log_odds=draw.normal(size=(8, 200)) + 2 * inclusion)
  assert names['audit'].measures(
      np.asarray(names['scores'][0]), inclusion[0], threshold=0.0)['auc'] > 0.8


def test_all_statistics_are_listed():
  text = re.search(r'^Statistics: (.*?)\.', _TEXT, re.DOTALL | re.MULTILINE)[1]
  assert not [name for name in registry.STATISTICS
              if not re.search(rf'\b{name}\b', text)]


def test_commands_and_flags_are_there():
  commands = [command for block in _BLOCKS
              for command in block.replace('\\\n', ' ').splitlines()
              if command.startswith(('python -m launch', './launch'))]
  assert len(commands) > 15
  defined = '\n'.join(path.read_text() for folder in ('launch', 'dpjax/cli')
                      for path in sorted((_ROOT / folder).glob('*.py')))
  defined += ''.join(f"'{name}'" for name in query.PARAMETERS)
  options = {field.name for field in dataclasses.fields(TrainingConfig)}
  for command in commands:
    name = re.search(r'launch[./](\w+)', command)[1]
    assert any((_ROOT / 'launch' / file).exists()
               for file in (name, f'{name}.py')), command
    for flag in re.findall(r' --(\w+)', command):
      # Boolean flags have an opposite.
      assert flag == 'help' or (name == 'train' and flag in options) or (
          re.search(rf"'(--)?({flag}|{flag.removeprefix('no')})'", defined)), (
              f'{command}: no --{flag}')
