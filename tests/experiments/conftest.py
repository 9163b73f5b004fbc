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


# Their smoke sweeps train half a dozen programs; tables and verdicts of the
# committed rows are checked without them.
_SLOW_ROWS = {'lip_depth_test', 'lip_images_test', 'lip_runtime_test',
              'lip_search_test'}


def pytest_collection_modifyitems(items):
  for item in items:
    if item.path.stem in _SLOW_ROWS and {'rows', 'smoke'} & set(
        item.fixturenames):
      item.add_marker(pytest.mark.slow)
