"""These tests check EXP-F5.3.2: what is timed, equal work and verdicts."""

import dataclasses
import time

import jax
import numpy as np
import pytest

from experiments import records
from experiments import registry
from experiments import selection
from experiments import verdicts
from experiments.lip_runtime import report
from experiments.lip_runtime import run
from experiments.lip_runtime import sweep
from experiments.lip_runtime import timing


@pytest.fixture(scope='module')
def rows(smoke_rows):
  return [dataclasses.replace(row, device='cpu')
          for row in smoke_rows('lip_runtime')]


def test_rows_say_how_they_were_timed(rows):
  values = report.collect(rows)
  (panel, methods), = values.items()
  assert panel == ('smoke', 'mnist', 'cpu')
  assert list(methods) == ['sgd', 'dp_sgd_vmap', 'dp_sgd', 'lip_dp_sgd']
  for sizes in methods.values():
    for size, metrics in sizes.items():
      assert metrics['synthetic'] == 1 and metrics['physical_rows'] <= 16
      assert metrics['steps_timed'] == 5 and metrics['compile_seconds'] > 0
      assert metrics['epochs_timed'] == pytest.approx(5 / round(100 / size))
      assert (0 < metrics['fastest_epoch'] <= metrics['epoch_seconds']
              <= metrics['slowest_epoch'])
  assert all(cells['ratio_to_sgd'] == 1 for cells in methods['sgd'].values())
  # The runs read no private data and release nothing.
  assert {(row.n, row.epsilon) for row in rows} == {(0, 0.0)}


@pytest.mark.slow
def test_the_unit_is_timed_even_if_it_is_not_asked_for():
  setting = dataclasses.replace(sweep.SMOKE[0], method='dp_sgd')
  (timed, lines), = run.run([setting], None, lambda *_: None)
  assert timed == setting
  assert {line.metric for line in lines} >= {'ratio_to_sgd', 'megabytes'}


def test_work_of_an_accelerator_is_refused_on_a_cpu():
  setting = next(s for s in sweep.SETTINGS if s.kind == 'gpu')
  with pytest.raises(ValueError, match='--tag=cpu'):
    list(run.run([setting], None, lambda *_: None))


def _programs(*names, batch_size=8, most_rows=16):
  work = sweep.WORK['smoke', 'mnist']
  dataset, real = run._images('mnist', work, None)
  assert not real and dataset.image_shape == work.image_shape
  batches = timing.sampler(work.num_examples, batch_size, most_rows)
  rows = timing.row_numbers(work.num_examples, 50)
  setting = dataclasses.replace(sweep.SMOKE[0], batch_size=batch_size)
  return {name: timing.compile_step(run._config(setting, work, name), dataset,
                                    dataset.records, rows, batches)
          for name in names}


@pytest.mark.slow
def test_book_keeping_trains_as_dp_sgd_does():
  """Book-keeping trains the same parameters as
  DP-SGD by `vmap` with one key."""
  programs = _programs('dp_sgd_vmap', 'dp_sgd')
  states = []
  for program in programs.values():
    state = program.state
    for _ in range(3):
      state = program.advance(state)
    states.append(state)
  assert int(states[0].step) == 3
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4),
               states[0].params, states[1].params)


def test_batches_are_worked_off_in_parts():
  assert timing.sampler(60_000, 64, 128).max_batch_size is None
  whole = timing.sampler(60_000, 64, 128)
  assert 64 + 6 * 7.9 < whole.part_size <= 128
  capped = timing.sampler(60_000, 1024, 128)
  assert capped.part_size == 128
  assert capped.expected_batch_size == pytest.approx(1024, rel=1e-5)


def test_samples_have_the_same_steps_and_take_turns(monkeypatch):
  """Timed samples take turns and have equally many steps.

  Two programs that sleep have known times.
  """
  seen = []

  def sleeper(name, seconds):
    def advance(state):
      time.sleep(seconds)
      seen.append(name)
      return state + 1

    return timing.Program(advance, 0, 0.0, 0.0)

  programs = {'slow': sleeper('slow', 0.02), 'unit': sleeper('unit', 0.005)}
  samples = timing.time_in_turn(programs, unit='unit', num_rounds=3,
                                sample_seconds=0.009, steps_per_epoch=100)
  length = samples['unit'].num_steps
  assert samples['slow'].num_steps == length and 1 <= length <= 2
  assert seen == ['slow', 'slow', 'unit', 'unit'] + 3 * (
      ['slow'] * length + ['unit'] * length)
  assert np.all(samples['slow'].step_seconds >= 0.02)
  assert samples['unit'].step_seconds.shape == (3,)
  short = timing.time_in_turn(programs, unit='unit', num_rounds=1,
                              sample_seconds=9.0, steps_per_epoch=2)
  assert short['unit'].num_steps == 2


@pytest.mark.slow
def test_all_methods_of_the_sweep_are_built():
  """All methods of the sweep can be built at full size without compiling."""
  for (kind, name), work in sweep.WORK.items():
    dataset, _ = run._images(name, work, None)
    for method in sweep.METHODS + sweep.EXTRA[name]:
      setting = sweep.Setting(kind=kind, dataset=name, method=method,
                              batch_size=64)
      config = run._config(setting, work, method)
      model = run.timing.building.make_model(config, dataset)
      built = run.timing.building.make_method(config, model, dataset)
      assert built.private == (method != 'sgd')


def test_the_sweep_is_what_was_asked_for():
  experiment = registry.load('lip_runtime')
  for tag in ('cpu', 'gpu'):
    settings = selection.with_tag(experiment.settings, experiment.tags, tag)
    for name in ('mnist', 'cifar10'):
      assert {s.batch_size for s in settings if s.dataset == name} == set(
          sweep.BATCH_SIZES[tag, name])
      methods = {s.method for s in settings if s.dataset == name}
      assert len(methods) == 7 and set(sweep.METHODS) < methods


def test_table_and_figure(rows):
  text = report.table(rows)
  assert 'Extrapolated from steps' in text and 'Synthetic images' in text
  assert text.count('| batch size |') == 2
  pytest.importorskip('matplotlib')
  ax, = report.figure(rows).axes
  assert ax.get_xlabel() == 'logical batch size' and len(ax.containers) == 4


def _made_up(ratios):
  """Returns rows of a panel from method -> ratios to sgd at 64 and 1024."""
  lines = []
  for method, values in ratios.items():
    for size, ratio in zip((64, 1024), values, strict=True):
      setting = sweep.Setting(kind='cpu', dataset='mnist', method=method,
                              batch_size=size)
      metrics = dict(ratio_to_sgd=ratio, epoch_seconds=ratio, epochs_timed=6.0,
                     compile_seconds=1.0, megabytes=1.0, synthetic=1.0)
      lines += selection.named('lip_runtime', setting, [records.Row(
          seed=0, metric=metric, value=value, n=0, epsilon_requested=0.0,
          epsilon=0.0, epsilon_valid=True, delta=0.0,
          adjacency='add_or_remove_one', accountant='-', method=method,
          device='cpu', dataset='mnist') for metric, value in metrics.items()])
  return lines


@pytest.mark.parametrize('ratios, outcomes', [
    # Clipping is slower, more so for large batches, as the text has it.
    (dict(lip_dp_sgd=(1.0, 1.0), dp_sgd_vmap=(2.0, 3.0),
          dp_sgd=(1.9, 2.8)), 'agrees agrees agrees'),
    # The gap is that of per-record gradients and does not grow.
    (dict(lip_dp_sgd=(1.0, 1.0), dp_sgd_vmap=(2.0, 2.0),
          dp_sgd=(1.1, 1.1)), 'agrees differs differs'),
    (dict(lip_dp_sgd=(1.0, 1.0), dp_sgd_vmap=(1.0, 1.05),
          dp_sgd=(0.9, 0.9)), 'differs differs not comparable'),
    (dict(lip_dp_sgd=(1.0, 1.0), dp_sgd_vmap=(2.0, 3.0)),
     'agrees agrees not run'),
])
def test_verdicts(ratios, outcomes):
  all_verdicts = verdicts.check(report.verdict(_made_up(ratios)))
  assert ' '.join(each.verdict for each in all_verdicts[:3]) == outcomes
  assert [each.verdict for each in all_verdicts[3:]] == [verdicts.NOT_RUN]
  assert '6 epochs or more' in report.table(_made_up(ratios))


def test_every_claim_is_there_without_rows():
  assert all(each.verdict == verdicts.NOT_RUN
             for each in verdicts.check(report.verdict([])))
  assert report.table([]) == 'no rows\n'
