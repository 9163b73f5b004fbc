"""Command lines with the toy experiment, in this process and in others."""

import pathlib
import subprocess
import sys

from absl import flags
from absl.testing import flagsaver
import pytest

from experiments import environment
from experiments import registry

TOY = pathlib.Path(__file__).resolve().parents[1] / 'experiments'


@pytest.fixture
def toy(monkeypatch):
  """Returns the toy experiment, the only one that is registered."""
  monkeypatch.syspath_prepend(str(TOY))
  monkeypatch.setattr(registry, 'EXPERIMENTS', {'toy': 'toy'})
  monkeypatch.setattr(environment, 'commit', lambda: 'c0')
  monkeypatch.setattr(
      environment, 'current',
      lambda: environment.Environment('cpu', '1', 'c0', {'jax': '1'}))
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
