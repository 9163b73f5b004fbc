"""These tests check the benchmark's ratios, tables and figures."""

import io

import numpy as np
import pytest

from dpjax.report import plots
from dpjax.runs import environment
from experiments import engine
from experiments import figures
from experiments import records
from experiments import registry
from experiments.benchmarks import architectures
from experiments.benchmarks import clients
from experiments.benchmarks import findings
from experiments.benchmarks import methods
from experiments.benchmarks import program
from experiments.benchmarks import report
from experiments.benchmarks import run
from experiments.benchmarks import sweep
from experiments.benchmarks import values
from experiments.benchmarks import worker

_RESULTS = environment.ROOT / 'experiments' / 'benchmarks' / 'results'
_HERE = environment.Environment('cpu', '1', 'c0', {'jax': '1'})


class _Here:
  """This worker runs the program in the same process."""

  def __init__(self, spec, timeout):
    del timeout
    self._program = worker.make(spec)
    self.info = worker.warm_up(self._program)

  def sample(self, seconds):
    return program.sample(self._program, seconds)

  def close(self):
    pass

  def __enter__(self):
    return self

  def __exit__(self, *_):
    pass


def _measure(settings, folder, monkeypatch, worker_class, **how):
  """Returns (rows of settings from the engine, what was said meanwhile)."""
  monkeypatch.setattr(clients, 'Worker', worker_class)
  said = []
  how = run.How(**{'rounds': 2, 'seconds': 0.0, 'timeout': 9.0,
                   'say': said.append, **how})
  experiment = registry.Experiment(
      name=sweep.NAME, settings=settings, smoke=settings, tags={},
      batched=sweep.BATCHED, artefact='', cost='', headlines=(),
      report=report,
      run=lambda *arguments: run.run(*arguments, how=how))
  engine.run_sweep(experiment, settings, engine.Options(
      output_dir=folder, append_anyway=True), io.StringIO(), _HERE)
  return records.sort(records.read(folder / engine.ROWS)), said


def _metrics(rows, method, **cells):
  return {row.metric: row.value for row in rows if row.method == method
          and all(f'{key}={value}' in row.id for key, value in cells.items())}


_FIELDS = {
    'step': {'cpu_ms', 'cpu_ms_low', 'wall_ms_high', 'ratio', 'ratio_low',
             'compile_seconds', 'temp_kib', 'peak_kib', 'steps', 'others'},
    'memory': {'peak_kib', 'peak_kib_low', 'temp_kib', 'first_step_seconds'},
    'compile': {'compile_seconds', 'trace_seconds_high', 'compiled_again'},
    'scaling': {'cpu_ms', 'ratio', 'compile_seconds'},
    'norms': {'cpu_ms', 'ratio', 'temp_kib', 'by_gram', 'products_per_number'},
    'sampling': {'cpu_ms', 'ratio', 'wall_ms'},
    'estimators': {'cpu_ms', 'ratio', 'wall_ms'},
    'quantiles': {'cpu_ms', 'ratio', 'wall_ms'},
    'curves': {'cpu_ms', 'ratio', 'wall_ms'},
}
_NAMES = {'norms': tuple(methods.NORMS), 'sampling': ('threefry', 'ours'),
          'estimators': ('numpy', 'ours'),
          'quantiles': ('published', 'ours', 'ours_repeated'),
          'curves': ('numpy', 'ours')}


@pytest.mark.slow
@pytest.mark.every(8)
@pytest.mark.parametrize('suite', [
    pytest.param(suite, marks=[pytest.mark.slow]
                 if suite in ('memory', 'scaling') else [])
    for suite in _FIELDS])
def test_a_suite_gives_rows_a_table_and_a_figure(suite, tmp_path, monkeypatch):
  settings = sweep.settings(suite, smoke=True,
                            names=_NAMES.get(suite, ('limit', 'ours')))
  monkeypatch.setattr(methods, 'LIMITS', ('limit',))
  monkeypatch.setitem(sweep._UNITS, 'step', ('limit',))
  rows, said = _measure(settings, tmp_path, monkeypatch, _Here)
  assert not said
  for setting in settings:
    metrics = _metrics(rows, setting.method, size=setting.size,
                       num_devices=setting.num_devices)
    assert _FIELDS[suite] <= metrics.keys(), metrics
    assert all(np.isfinite(value) for value in metrics.values())
    assert metrics['rounds'] == 2
    for name in ('cpu_ms', 'ratio', 'peak_kib', 'compile_seconds'):
      if name in metrics:
        assert (metrics[f'{name}_low'] <= metrics[name] <=
                metrics[f'{name}_high'])
    if suite == 'compile':
      assert metrics['compiled_again'] == 0
  text = report.table(rows, suite, commands=('python',))
  for setting in settings:
    assert f'| {setting.method}' in text and f'{setting.size:,} ' in text
  assert 'nan' not in text and 'Made by `python`' in text
  report.figure(rows, suite)


@pytest.mark.slow
def test_the_loop_suite_times_whole_training(tmp_path, monkeypatch):
  settings = sweep.settings('loop', smoke=True, names=('sgd',))
  rows, _ = _measure(settings, tmp_path, monkeypatch, _Here, rounds=1)
  metrics = _metrics(rows, 'sgd')
  assert metrics['ratio'] == 1 and metrics['steps'] == 19  # between 20 chunks
  assert metrics['compile_seconds'] > 0 and 0 < metrics['cpu_ms'] < 1000
  assert '| sgd' in report.table(rows, 'loop')


class _Scripted:
  """This worker returns given times: method -> milliseconds in each round."""
  times = {}
  slow = {}

  def __init__(self, spec, timeout):
    del timeout
    self._times = iter(self.times[spec.method])
    self.info = {'first_step_seconds': self.slow.get(spec.method, 0.0),
                 'compile_seconds': 2.0}

  def sample(self, seconds):
    del seconds
    wall = next(self._times)
    if isinstance(wall, Exception):
      raise wall
    # The wall time is that of a busy machine.
    return program.Sample(0.1 * wall, 1e-3 * wall, 1, 0.5)

  def close(self):
    pass

  __enter__ = _Here.__enter__
  __exit__ = _Here.__exit__


def _scripted(times, tmp_path, monkeypatch, names=('ours',), **how):
  monkeypatch.setattr(_Scripted, 'times', times)
  settings = sweep.settings('step', models=('mlp',), sizes=(4,), names=names)
  return _measure(settings, tmp_path, monkeypatch, _Scripted, **how)


@pytest.mark.every(2)
def test_ratios_are_over_the_fastest_limit_of_the_same_round(
    tmp_path, monkeypatch):
  rows, _ = _scripted({
      'ours': [6, 4, 20], 'limit': [9, 9, 9], 'limit@noynn': [3, 2, 5],
      'limit_normal': [1, 8, 8], 'limit_microbatch': [9, 9, 9]}, tmp_path, monkeypatch, rounds=3)
  metrics = _metrics(rows, 'ours')
  # Limits are timed for the ratios, but get no rows of their own.
  assert {row.method for row in rows} == {'ours'}
  assert metrics['ratio'] == pytest.approx(2)
  assert metrics['ratio_high'] == pytest.approx(3)  # halfway from 2 to 4
  assert metrics['cpu_ms'] == pytest.approx(6)
  assert metrics['wall_ms'] == pytest.approx(600)
  assert metrics['others'] == 0.5


def test_on_accelerators_ratios_are_of_wall_time(tmp_path, monkeypatch):
  monkeypatch.setattr(
      _Scripted, 'sample', lambda self, seconds: program.Sample(
          next(self._times), 7.0, 1, 0.0))
  rows, _ = _scripted({'ours': [6], 'limit': [2], 'limit_normal': [9],
                       'limit_microbatch': [9]},
                      tmp_path, monkeypatch, rounds=1, cpu=False)
  metrics = _metrics(rows, 'ours')
  assert metrics['ratio'] == pytest.approx(3) and metrics['accelerator'] == 1


def test_tables_say_which_time_it_is(tmp_path, monkeypatch):
  times = {'ours': [6], 'limit': [2], 'limit_normal': [9],
           'limit_microbatch': [9], 'limit@noynn': [9]}
  for cpu in (True, False):
    rows, _ = _scripted(times, tmp_path / str(cpu), monkeypatch, rounds=1,
                        cpu=cpu)
    text = report.table(rows, 'step')
    assert ('ratio; CPU time of a step over all threads.' in text) == cpu
    assert ('ratio; wall time of a step.' in text) != cpu


@pytest.mark.parametrize('folder', sorted(_RESULTS.iterdir()),
                         ids=lambda folder: folder.name)
def test_tables_are_of_their_rows(folder):
  """Committed tables follow from their rows, for CPU and accelerator rows."""
  suite, _, kind = folder.name.partition('_')
  assert report.table_of(folder, suite) == (folder / 'table.md').read_text()
  device, = {row.device for row in records.read(folder / engine.ROWS)}
  assert device.startswith('NVIDIA') == (kind == 'gpu')


def test_what_fails_or_is_slow_is_reported_and_the_rest_goes_on(
    tmp_path, monkeypatch):
  slow = clients.WorkerFailed('over 9 s', timed_out=True)
  times = {'ours': [4, 4], 'limit': [2, 2], 'limit_normal': [3, 3],
           'limit_microbatch': [3, 3],
           'limit@noynn': [clients.WorkerFailed('killed by signal 9')],
           'vmap': [8, slow]}
  rows, said = _scripted(times, tmp_path, monkeypatch, ('ours', 'vmap'))
  assert _metrics(rows, 'ours')['ratio'] == pytest.approx(2)
  assert _metrics(rows, 'vmap') == {'timeout_seconds': 9, 'accelerator': 0}
  assert sorted(said) == ['limit@noynn on mlp, 4: killed by signal 9',
                          'vmap on mlp, 4: over 9 s']
  assert '| vmap   | over 9 s ' in report.table(rows, 'step')


def test_slow_steps_are_sampled_thrice(tmp_path, monkeypatch):
  monkeypatch.setattr(_Scripted, 'slow', {'vmap': 6.0})
  rows, _ = _scripted(dict.fromkeys(
      ('vmap', *methods.LIMITS), [2.0] * 5), tmp_path, monkeypatch, ('vmap',),
      rounds=5)
  assert _metrics(rows, 'vmap')['rounds'] == 3
  assert _metrics(rows, 'vmap')['ratio'] == pytest.approx(1)


def test_the_cost_of_scaled_sums_is_shown(tmp_path, monkeypatch):
  times = dict.fromkeys(methods.LIMITS, [1.0, 1.0]) | {
      'vmap_scaled_sum': [60, 60], 'vmap_scaled_sum@noynn': [5, 5],
      'ours': [2, 2], 'ours@noynn': [2, 2]}
  rows, _ = _scripted(times, tmp_path, monkeypatch, [
      name for name in times if name not in methods.LIMITS])
  text = report.table(rows, 'step')
  lines = text[text.index('## Effect of XLA flags'):].splitlines()
  assert [line.split('|')[2:4] for line in lines if '@' in line] == [
      [' ours@noynn            ', ' 4: 1  '],
      [' vmap_scaled_sum@noynn ', ' 4: 12 ']]
  assert ('Time of scaled sums over themselves with @noynn: 4: 12. '
          'Ratio of `ours` over L: 4: 2.') in text
  assert 'over contracted ones' not in text  # there are no rows of these


def _lines(times, **shared):
  """Returns lines from {method: {size: metrics}}."""
  return {values.Line(method, 1): {
      size: shared | metrics for size, metrics in sizes.items()}
      for method, sizes in times.items()}


def test_scaled_sums_are_beside_contracted_ones():
  lines = _lines({
      'vmap': {8: {'cpu_ms': 2.0}, 64: {'cpu_ms': 3.0}},
      'vmap_scaled_sum': {8: {'cpu_ms': 7.0}, 64: {'cpu_ms': 144.0}},
      'ours': {64: {'ratio': 1.04, 'cpu_ms': 1.0}}})
  assert findings.of_model('step', lines) == [
      'Time of scaled sums over contracted ones: 8: 3.5, 64: 48. '
      'Ratio of `ours` over L: 64: 1.04.\n']
  del lines[values.Line('vmap_scaled_sum', 1)]
  assert not findings.of_model('step', lines)
  assert not findings.of_model('memory', lines)


def test_the_fastest_generator_is_named():
  lines = _lines({
      'threefry': {1000: {'cpu_ms': 2.0, 'wall_ms': 1.0}, 2000: {'failed': 1.0}},
      'ours': {1000: {'cpu_ms': 1.0, 'wall_ms': 9.0},
               2000: {'cpu_ms': 5.0, 'wall_ms': 4.0}},
      'numpy': {1000: {'cpu_ms': 0.1, 'wall_ms': 0.1}}})
  assert findings.of_model('sampling', lines) == [
      'Fastest draw by JAX on this CPU: 1,000: ours (1e+03 ns each), '
      '2,000: ours (2.5e+03 ns each).\n']
  for sizes in lines.values():
    for metrics in sizes.values():
      metrics['accelerator'] = 1.0
  assert findings.of_model('sampling', lines)[0].startswith(
      'Fastest draw by JAX on this accelerator: 1,000: threefry (1e+03 ns each), ')


def test_the_costliest_choice_is_named():
  lines = lambda gram, kept, by_gram: _lines({
      'gram': {8: {'cpu_ms': gram}}, 'kept': {8: {'cpu_ms': kept}},
      'chosen': {8: {'by_gram': by_gram, 'ratio': (
          gram if by_gram else kept) / min(gram, kept)}}})
  text = '\n'.join(findings.of_suite('norms', {
      'wrn_late': lines(1.0, 4.0, 1.0), 'dense_wide': lines(2.0, 3.0, 0.0)}))
  table = [[cell.strip() for cell in line.split('|')[1:-1]]
           for line in text.splitlines() if line.startswith('|')]
  assert table[2:] == [['wrn_late', 'gram', '8: 0.25'],
                       ['dense_wide', 'kept', '8: 0.667']]
  assert 'takes 1.5 times as long as the faster way: dense_wide, 8 ' in text


def test_what_has_rows_is_not_measured_again(tmp_path, monkeypatch):
  times = dict.fromkeys(methods.LIMITS, [2.0, 2.0])
  before, _ = _scripted({'ours': [3, 3], **times}, tmp_path, monkeypatch)
  rows, _ = _scripted({'vmap': [9, 9], **times}, tmp_path, monkeypatch,
                      ('ours', 'vmap'))
  assert [row for row in rows if row.method == 'ours'] == before
  assert _metrics(rows, 'vmap')['ratio'] == pytest.approx(4.5)


def test_missing_peers_are_left_out_in_one_line(monkeypatch):
  monkeypatch.setattr(methods.importlib.util, 'find_spec',
                      lambda name: None if name == 'opacus' else name)
  settings = sweep.settings('step', models=('mlp',), sizes=(4,), names=(
      'ours', 'opacus_hooks', 'opacus_ghost', 'torch'))
  kept, lines = sweep.runnable(settings)
  assert [setting.method for setting in kept] == ['ours', 'torch']
  assert lines == ['skipping opacus_hooks, opacus_ghost: opacus is not '
                   'installed: pip install dpjax[bench]']


@pytest.mark.every(2)
def test_defaults_hold_every_method_and_network():
  settings = sweep.settings('step')
  assert {s.model for s in settings} == {
      name for name in architectures.MODELS if not name.startswith('tiny')}
  assert {methods.split(s.method)[0] for s in settings} == set(methods.STEPS)
  assert not any(s.method == 'lip' and s.model == 'dense_stack'
                 for s in settings)
  on_gpu = sweep.settings('step', cpu=False)
  assert not any('@' in s.method for s in on_gpu)
  assert all('@' not in unit.method
             for unit in sweep.units(on_gpu[0], cpu=False))
  for suite in sweep.SUITES:
    assert sweep.settings(suite) and sweep.settings(suite, smoke=True)
    for setting in sweep.settings(suite):
      assert all(unit in sweep.settings(suite)
                 for unit in sweep.units(setting))


@pytest.mark.every(2)
@pytest.mark.parametrize('arguments, message', [
    (dict(names=('adamw',)), "methods of --suite=step must be among .*'adamw'"),
    (dict(names=('ours@fast',)), "no set of XLA flags 'fast'"),
    (dict(models=('vgg',)), "models of --suite=step must be among .*'vgg'"),
])
def test_unknown_names_are_refused(arguments, message):
  with pytest.raises(ValueError, match=message):
    sweep.settings('step', **arguments)


def test_figures_say_which_rows_they_are_of(tmp_path, monkeypatch):
  rows, _ = _scripted(dict.fromkeys(
      ('ours', *methods.LIMITS), [2.0, 2.0]), tmp_path, monkeypatch)
  pytest.importorskip('matplotlib')
  path = tmp_path / 'figure.svg'
  plots.save(report.figure(rows, 'step'), path, digest=records.digest(rows))
  assert figures.read_digest(path) == records.digest(rows)
