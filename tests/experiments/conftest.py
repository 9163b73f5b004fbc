"""The toy experiment, registered beside the real ones."""

import pathlib

import pytest

from experiments import registry


@pytest.fixture
def toy(monkeypatch):
  """Returns the toy experiment; its folder is importable meanwhile."""
  monkeypatch.syspath_prepend(str(pathlib.Path(__file__).parent))
  monkeypatch.setitem(registry.EXPERIMENTS, 'toy', 'toy')
  return registry.load('toy')
