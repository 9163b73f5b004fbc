"""These tests check that all ways to train many networks get the same work."""

import numpy as np
import pytest

from experiments.benchmarks import findings
from experiments.benchmarks import methods
from experiments.benchmarks import program
from experiments.benchmarks import replicas
from experiments.benchmarks import report
from experiments.benchmarks import sweep
from experiments.benchmarks import values


@pytest.fixture(autouse=True)
def few(monkeypatch):
  monkeypatch.setattr(replicas, 'REPLICAS', 4)
  monkeypatch.setattr(replicas, 'STEPS', 2)


def _program(method):
  return replicas.make(program.Spec(suite='replicas', model='tiny_resnet8',
                                    size=3, method=method))


@pytest.mark.slow
def test_epochs_of_packs_follow_each_other():
  built = _program('pack_2')
  assert built.repeats == 2 * 4 * 3 and built.info['compile_seconds'] > 0
  first, second = (built.audit()['params'] for _ in range(2))
  assert first.shape == (4, 5214) and len(np.unique(first[:, 0])) == 4
  assert not np.array_equal(first, second)


@pytest.mark.slow
def test_packs_and_vmap_take_the_same_steps_and_large_ones_as_many_images():
  params, wanted = (_program(method).audit()['params']
                    for method in ('pack_2', 'vmap'))
  np.testing.assert_allclose(params, wanted, rtol=1e-3, atol=1e-4)
  large = _program('large')
  assert large.repeats == 2 * 4 * 3
  assert large.audit()['params'].shape == (1, 5214)


def _table(ratios, **shared):
  """Returns the report's text on ratios {method: ratio}."""
  lines = {values.Line(method, 1): {256: dict(ratio=ratio, **shared)}
           for method, ratio in ratios.items()}
  return '\n'.join(findings.of_suite('replicas', {'resnet20_bfloat16': lines}))


def test_the_best_pack_is_held_to_its_share_of_the_large_batch():
  ratios = dict(large=1.0, pack_1=4.0, pack_4=1.5, pack_8=2.0, vmap=0.5)
  text = _table(ratios, accelerator=1.0)
  assert '| 1.5 of large | 1.667 of large | yes |' in text
  assert '| 1.7 of large | 1.667 of large | NO  |' in _table(
    ratios | {'pack_4': 1.7}, accelerator=1.0)
  assert not _table(ratios, accelerator=0.0)
  assert not _table({'large': 1.0, 'vmap': 1.0}, accelerator=1.0)


def test_cells_tell_images_a_second():
  cell = report._CELLS['replicas'](dict(
    ratio=1.5, ratio_low=1.4, ratio_high=1.6, wall_ms=1e3 / 250_000,
    compile_seconds=30.0, temp_kib=1000.0), 256)
  assert cell == '1.5 [1.4, 1.6]; 250,000 images/s; 30 s; 1.02 MB by XLA'


def test_accelerators_train_the_network_of_the_study():
  on_gpu = sweep.settings('replicas', cpu=False)
  assert {(setting.model, setting.size) for setting in on_gpu} == {
    ('resnet20_bfloat16', 256)}
  assert 'large' in {unit.method for unit in sweep.units(on_gpu[-1])}
  assert {setting.model for setting in sweep.settings('replicas')} == {
    'tiny_resnet8'}
  assert [methods.pack_size(name) for name in methods.REPLICAS] == [
    1, 1, 2, 4, 8, 16, 1]
  asked = sweep.settings('replicas', cpu=False, names=('pack_16',),
                         models=('resnet20_float32',))
  assert len(asked) == 1
