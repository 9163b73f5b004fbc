"""These fixtures give command lines for the toy experiment and a small file."""

import pathlib
import subprocess
import sys

from absl import flags
from absl.testing import flagsaver
import pytest

from dpjax.runs import environment
from experiments import registry
from tests.launch import people

TOY = pathlib.Path(__file__).resolve().parents[1] / 'experiments'


@pytest.fixture
def toy(monkeypatch):
  """Returns the toy experiment, the only one that is registered."""
  monkeypatch.syspath_prepend(str(TOY))
  monkeypatch.setattr(registry, 'EXPERIMENTS', {'toy': 'toy'})
  monkeypatch.setattr(environment, 'commit', lambda: 'c0')
  monkeypatch.setattr(
      environment, 'current',
      lambda **_: environment.Environment('cpu', '1', 'c0', {'jax': '1'}))
  return registry.load('toy')


@pytest.fixture
def call(toy):
  """Returns a function that calls a main with flags, in this process."""
  def run(main, *words):
    with flagsaver.flagsaver():
      rest = flags.FLAGS(['main', *words])
      return main(rest)
  return run


@pytest.fixture
def start(monkeypatch):
  """Returns a function that starts a command line in its own process."""
  started = []

  def run(*words, **environ):
    for name, value in environ.items():
      monkeypatch.setenv(name, value)
    started.append(subprocess.Popen(
        [sys.executable, str(TOY / 'toy_main.py'), *map(str, words)],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    return started[-1]
  yield run
  for process in started:
    process.kill()
    process.communicate()


@pytest.fixture
def words(tmp_path):
  """Returns a function of flags that makes a command line on a small file."""
  (tmp_path / 'people.csv').write_text(
      'age,kind\n' + ''.join(f'{age},{kind}\n' for age, kind in people.ROWS))

  def flags(**changed):
    given = {'input': tmp_path / 'people.csv', 'statistic': 'mean',
             'column': 'age', 'lower': 0, 'upper': 100, 'epsilon': '0.5',
             'adjacency': 'add_or_remove_one', 'output': tmp_path / 'out.json',
             'ledger': tmp_path / 'ledger', 'ledger_budget_epsilon': '2',
             **changed}
    return ['estimate', *(f'--{name}={value}' for name, value in given.items()
                          if value is not None)]
  return flags
