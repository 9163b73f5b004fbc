"""These fixtures add the toy experiment to the registry and read rows."""

import pathlib

import jax
import pytest

from dpjax.runs import grouping
from experiments import fingerprints
from experiments import records
from experiments import registry
from experiments import selection


@pytest.fixture
def make_row():
  """Returns a function from what matters to a whole row."""
  def make(**changes):
    defaults = dict(
        experiment='toy', id=f'toy/seed={changes.get("seed", 0)}', seed=0,
        metric='accuracy', value=.5, n=100, epsilon_requested=1.,
        epsilon=.99, epsilon_valid=True, delta=.01,
        adjacency='add_or_remove', accountant='pld', method='dp_sgd',
        dataset='adult', wall_s=1.5, device='cpu', jax='1', commit='c0',
        fingerprint='f0')
    return records.Row(**{**defaults, **changes})
  return make


@pytest.fixture
def toy(monkeypatch):
  """Returns the toy experiment; its folder is importable meanwhile."""
  monkeypatch.syspath_prepend(str(pathlib.Path(__file__).parent))
  monkeypatch.setitem(registry.EXPERIMENTS, 'toy', 'toy')
  # Its rows have no random streams; to compute a fingerprint takes seconds.
  monkeypatch.setattr(fingerprints, 'streams', lambda: 'f0')
  return registry.load('toy')


@pytest.fixture(scope='session')
def kept():
  """Returns a function: the committed rows of an experiment, by its name."""
  folder = pathlib.Path(__file__).resolve().parents[2] / 'experiments'
  return lambda name: records.read(folder / name / 'results' / 'rows.csv')


@pytest.fixture(scope='session')
def smoke_rows():
  """Returns a function: rows of a smoke sweep, named as the engine does."""

  def run(name, keep=lambda setting: True, promotion='strict'):
    experiment = registry.load(name)
    settings = [setting for setting in experiment.smoke if keep(setting)]
    lines = []
    with jax.numpy_dtype_promotion(promotion):
      for group in grouping.groups(settings, experiment.batched):
        for setting, rows in experiment.run(group, None, lambda *_: None):
          lines += selection.named(name, setting, rows)
    return records.sort(lines)

  return run


# Their smoke sweeps train half a dozen programs; tables and verdicts of the
# committed rows are checked without them.
_SLOW_ROWS = {'clipping_bias_test', 'lip_depth_test', 'lip_images_test',
              'lip_noise_test', 'lip_runtime_test', 'lip_search_test',
              'lip_tabular_test'}


def pytest_collection_modifyitems(items):
  for item in items:
    if item.path.stem in _SLOW_ROWS and {'rows', 'smoke'} & set(
        item.fixturenames):
      item.add_marker(pytest.mark.slow)
