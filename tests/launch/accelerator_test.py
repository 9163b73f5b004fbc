"""These tests check what the queue of accelerators runs, and what it loses."""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

from absl.testing import flagsaver
import pytest

from experiments import engine
from experiments import fingerprints
from experiments import records
from experiments import registry
from experiments import selection
from experiments.accelerator import costs
from experiments.accelerator import jobs
from experiments.accelerator import lease
from experiments.accelerator import queue
from experiments.accelerator.queue import Journal
from launch import accelerator
from launch import signals

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_TOY_MAIN = _ROOT / 'tests' / 'experiments' / 'toy_main.py'
_TOY = jobs.Job(name='toy', about='toys', experiment='toy', seconds=1.0,
                start_seconds=2.0)
_LONG = lease.RESERVE + 60.0


@pytest.fixture(name='places')
def _places(toy, tmp_path, monkeypatch):
  """Returns empty folders; units of the toy experiment need no JAX."""
  monkeypatch.setattr(lease, 'command', lambda words: [
      sys.executable, str(_TOY_MAIN), *words])
  monkeypatch.setattr(fingerprints, 'streams', lambda: 'f0')
  return queue.Places(tmp_path / 'checkout', tmp_path / 'out',
                      tmp_path / 'state')


def _script(monkeypatch, text):
  """Makes every unit run a Python program of one line."""
  monkeypatch.setattr(lease, 'command',
                      lambda words: [sys.executable, '-c', text])


def _run(places, *chosen, seconds=_LONG):
  """Runs a lease; returns its units with their outcomes."""
  places.output.mkdir(parents=True, exist_ok=True)
  with lease.locked(places.state) as lock:
    return lease.run(chosen or (_TOY,), places, seconds=seconds, lock=lock,
                     say=lambda line: None)


def _rows(folder):
  return [dataclasses.replace(row, wall_s=0.0) for row in records.read(
      folder / _TOY.rows_folder / engine.ROWS)]


def _with_rows(places, job, units):
  """Stores committed rows of some units of a toy job."""
  folder = places.checkout / job.rows_folder
  engine.run_sweep(
      registry.load('toy'), [each for unit in units for each in unit.settings],
      engine.Options(output_dir=folder, command='committed'), sys.stderr)
  return folder


def test_the_order_of_the_queue():
  assert [job.name for job in jobs.JOBS] == [
      'step', 'models', 'de_et_al', 'lip_images', 'lip_runtime',
      'mia_sparsity', 'butterfly']
  units = {job.name: jobs.units(job)[0] for job in jobs.JOBS}
  assert [unit.name for unit in units['de_et_al']] == [
      'de_et_al: epsilon=1', 'de_et_al: epsilon=8']
  assert len(units['lip_images']) == 555 and len(units['mia_sparsity']) == 1
  seeds = [unit.settings[0].seed for unit in units['lip_images']]
  assert seeds == sorted(seeds)


def test_filters_select_the_settings_of_a_unit():
  for job in jobs.JOBS + jobs.SMOKE:
    units = jobs.units(job)[0]
    assert len({unit.name for unit in units}) == len(units)
    for unit in units[::20] if job.experiment else ():
      experiment = registry.load(job.experiment)
      flags = [word.removeprefix('--only=') for word in jobs.words(
          unit, rows=pathlib.Path('r'), state=pathlib.Path('s'), data_dir=None)
               if word.startswith('--only=')]
      assert set(unit.settings) == set(selection.only(
          experiment.smoke if job.smoke else experiment.settings, flags))


def test_the_first_that_fits_is_next():
  def entry(name, seconds, left=1, **changes):
    job = dataclasses.replace(_TOY, name=name, **changes)
    return queue.Entry(jobs.Unit(job, f'{name}: 1', (), {}), left, seconds, 0.0,
                       '')
  entries = [entry('finished', 5.0, left=0), entry('long', 900.0),
             entry('resumed', 900.0, checkpoints=True, start_seconds=20.0),
             entry('short', 30.0)]
  name = lambda *args: queue.choose(entries, *args).unit.job.name
  assert name(1000.0) == 'long'
  assert name(899.0) == 'resumed'
  assert name(899.0, {'resumed: 1'}) == name(899.0, {'resumed'}) == 'short'
  assert name(39.0) == 'short'
  # A unit that ended in a fault waits for all others.
  again = [each._replace(faults=int(each.unit.job.name == 'long'))
           for each in entries]
  assert queue.choose(again, 1000.0).unit.job.name == 'resumed'
  assert queue.choose(again, 1000.0, {'resumed', 'short'}) == again[1]
  assert queue.choose(entries, 29.0) is None


def test_what_has_rows_is_not_run_again(places):
  units = jobs.units(_TOY)[0]
  committed = _with_rows(places, _TOY, units[:3])
  ran = _run(places)
  assert [(each.unit.name, each.outcome) for each in ran] == [
      (units[3].name, lease.DONE)]
  # The new file has the committed rows, too, so that it can replace theirs.
  rows = _rows(places.output)
  assert len(records.ids(rows)) == 16
  assert set(_rows(places.checkout)) < set(rows)
  runs = json.loads((places.rows(_TOY) / 'provenance.json').read_text())['runs']
  assert [run['command'] for run in runs] == [
      'committed', 'python -m launch.sweep --experiment=toy '
      '--only=dataset=dropout --only=method=lip_dp_sgd']
  assert _run(places) == []
  (committed / engine.ROWS).unlink()
  assert _run(places) == []
  text = (places.output / lease.REPORT).read_text()
  assert 'Nothing ran' in text and '| toy | toys | 16            | 0    |' in text


def test_a_short_lease_starts_nothing(places, monkeypatch):
  _script(monkeypatch, 'raise SystemExit(9)')
  assert _run(places, seconds=lease.RESERVE + 5.9) == []
  checkpoints = dataclasses.replace(_TOY, checkpoints=True, seconds=900.0)
  assert _run(places, checkpoints, seconds=lease.RESERVE + 3.9) == []
  assert len(_run(places, seconds=lease.RESERVE + 7.0)) == 2


def test_a_unit_that_was_too_long_waits_for_a_longer_lease(places, monkeypatch):
  _script(monkeypatch, 'import time; time.sleep(60)')
  monkeypatch.setattr(lease, '_BEAT', 0.1)
  job = dataclasses.replace(_TOY, seconds=0.1, start_seconds=0.1)
  first, = _run(places, job, seconds=lease.RESERVE + 1.5)
  assert first.outcome == lease.STOPPED and not first.is_fault
  second, = _run(places, job, seconds=lease.RESERVE + 1.5)
  assert second.unit.name != first.unit.name


def test_expected_seconds_come_from_rows():
  job, = jobs.choose(jobs.JOBS, ['de_et_al'])
  first, second = [unit.settings[0] for unit in jobs.units(job)[0]]
  # A step is 32 parts of 2,048 images, of 353 ms each on an H200.
  cost = costs.of(job, [], _ROOT)
  assert 875 * 32 * 0.2 < cost.seconds(first) < 875 * 32 * 0.7
  assert costs.of(job, [], _ROOT / 'docs').seconds(first) == job.seconds
  row = records.Row(
      id=jobs.units(job)[0][0].ids[0], seed=0, metric='step_microseconds',
      value=2e6, n=0, epsilon_requested=1.0, epsilon=1.0, epsilon_valid=True,
      delta=1e-5, adjacency='-', accountant='-', method='-', dataset='-',
      device='cpu')
  assert costs.of(job, [row], _ROOT).seconds(second) == pytest.approx(
      2500 / 875 * cost.seconds(first))
  measured = costs.of(job, [dataclasses.replace(row, device='GPU')], _ROOT)
  assert measured.seconds(second) == 2500 * 2.0
  suite, = jobs.choose(jobs.JOBS, ['butterfly'])
  timed = [dataclasses.replace(row, id=str(id_), wall_s=seconds)
           for id_, seconds in enumerate((9.0, 0.0))]
  assert costs.of(suite, timed, _ROOT).seconds(None) == 4.5
  assert costs.of(suite, [], _ROOT).source == 'guessed'


def test_the_journal_counts_killed_leases(places, tmp_path):
  unit, other = jobs.units(_TOY)[0][:2]
  tmp_path.joinpath('state').mkdir()
  journal = Journal(places.state)
  journal.begin(unit)
  journal.update(unit, 7.0)
  journal.begin(unit)
  journal.update(unit, 5.0)
  journal.begin(other)  # Killed before the first entry.
  again = Journal(places.state)
  assert again.spent(unit) == (12.0, 7.0) and again.spent(other) == (0.0, 0.0)
  resumed = dataclasses.replace(_TOY, checkpoints=True, seconds=100.0)
  seconds = [queue.entries([job], places, again)[0].seconds
             for job in (_TOY, resumed)]
  # Four settings; with checkpoints the time that they ran is not lost.
  assert seconds == [2.0 + 1.5 * 7.0, 2.0 + 400.0 - 12.0]


def test_rows_or_checkpoints_that_are_not_written_are_noticed(
    places, monkeypatch):
  other = dataclasses.replace(_TOY, name='other', checkpoints=True,
                              seconds=0.2, start_seconds=0.2)
  _script(monkeypatch, 'pass')
  ran = _run(places, _TOY, other)
  # After two faults a job is left, and the next one runs.
  assert [each.unit.job.name for each in ran] == ['toy'] * 2 + ['other'] * 2
  assert {each.outcome for each in ran} == {lease.NO_ROWS}
  assert all(each.is_fault for each in ran)
  assert [Journal(places.state).faults(each.unit) for each in ran] == [1] * 4
  _script(monkeypatch, 'import time; time.sleep(60)')
  ran, = _run(places, other, seconds=lease.RESERVE + 0.8)
  assert ran.outcome == lease.NOT_SAVED and ran.is_fault
  assert Journal(places.state).spent(ran.unit) == (0.0, 0.0)
  folder = places.state_of(other)
  _script(monkeypatch, f'import pathlib, time; p = pathlib.Path({str(folder)!r})'
          '; p.mkdir(); (p / "5").touch(); time.sleep(60)')
  ran, = _run(places, other, seconds=lease.RESERVE + 0.8)
  assert ran.outcome == lease.STOPPED
  _script(monkeypatch, 'raise SystemExit(3)')
  alone = dataclasses.replace(_TOY, only=('dataset=adult', 'method=dp_sgd'))
  assert len(_run(places, alone)) == 1
  assert _run(places)[0].outcome == 'failed with status 3, see log.txt'
  assert 'failed with status 3' in (places.output / lease.REPORT).read_text()


def test_sigterm_stops_the_unit_and_writes_the_report(places, monkeypatch):
  monkeypatch.setenv('TOY_SLEEP', '60')
  monkeypatch.setattr(lease, '_BEAT', 0.1)
  timer = threading.Timer(1.2, os.kill, (os.getpid(), signal.SIGTERM))
  timer.start()
  start = time.monotonic()
  with pytest.raises(KeyboardInterrupt), signals.interrupt_on_sigterm():
    _run(places)
  assert time.monotonic() - start < 20
  assert 'stopped' in (places.output / lease.REPORT).read_text()
  assert Journal(places.state).spent(jobs.units(_TOY)[0][0])[0] > 0.5


def test_two_queues_do_not_share_a_state_folder(places, tmp_path):
  with lease.locked(tmp_path) as lock, open(tmp_path / 'log', 'wb') as log:
    # A unit keeps the lock when its queue has been killed.
    unit = lease._start([sys.executable, '-c', 'import time; time.sleep(60)'],
                        places, lock, log)
    with pytest.raises(ValueError, match='is used by another queue'):
      with lease.locked(tmp_path):
        pass
  with pytest.raises(ValueError, match='left behind'):
    with lease.locked(tmp_path):
      pass
  unit.kill()
  unit.wait()
  with lease.locked(tmp_path):
    pass


def test_a_copied_state_is_closed_to_others(tmp_path):
  (tmp_path / 'job').mkdir(mode=0o755)
  (tmp_path / 'job' / 'file').touch(mode=0o644)
  lease.close_to_others(tmp_path)
  assert {path.stat().st_mode & 0o777 for path in (
      tmp_path, tmp_path / 'job')} == {0o700}
  assert (tmp_path / 'job' / 'file').stat().st_mode & 0o777 == 0o600


def _call(*words):
  with flagsaver.flagsaver():
    return accelerator.main(accelerator.flags.FLAGS(['accelerator', *words]))


def test_a_machine_without_an_accelerator_is_refused(tmp_path):
  with pytest.raises(ValueError, match='finds no accelerator on this machine'):
    _call(f'--output_dir={tmp_path / "out"}')
  assert not (tmp_path / 'out').exists()


@pytest.mark.parametrize('words, says', [
    (['--minutes=1'], '--minutes must be above 1, which'),
    (['--minutes=0'], 'minutes must be a positive number'),
    (['--jobs=step,steps'], "--jobs must be among step, models.*'steps'")])
def test_bad_flags_are_refused(words, says):
  with pytest.raises(ValueError, match=says):
    _call(*words)


def test_a_dry_run_prints_the_queue(capsys, tmp_path):
  assert _call('--dry_run', f'--output_dir={tmp_path / "out"}',
               '--jobs=butterfly,de_et_al', '--minutes=5') == 0
  lines = capsys.readouterr().out.splitlines()
  assert [line.split('|')[1].strip() for line in lines[:4]] == [
      'job', '-' * 9, 'de_et_al', 'butterfly']
  assert 'would begin with de_et_al: epsilon=1' in lines[5]
  assert not (tmp_path / 'out').exists()


def _start(folder):
  """Starts a queue of tiny private trainings, in a session of its own."""
  return subprocess.Popen(
      [sys.executable, '-m', 'launch.accelerator', '--allow_cpu',
       '--jobs=lip_images', f'--output_dir={folder}'], cwd=_ROOT, text=True,
      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
      env={**os.environ, 'JAX_DISABLE_MOST_OPTIMIZATIONS': '1'})


@pytest.mark.slow
def test_a_killed_private_training_goes_on_to_the_same_bits(tmp_path):
  whole = _start(tmp_path / 'whole')
  out, _ = whole.communicate(timeout=300)
  assert whole.returncode == 0, out
  killed = _start(tmp_path / 'killed')
  state = tmp_path / 'killed' / 'state' / 'lip_images'
  while not list(state.glob('*/*/checksums')):
    assert killed.poll() is None
    time.sleep(0.02)
  os.killpg(killed.pid, signal.SIGKILL)
  killed.communicate()
  job, = jobs.choose(jobs.SMOKE, ['lip_images'])
  path = job.rows_folder / engine.ROWS
  assert not (tmp_path / 'killed' / path).exists()
  saved = max(int(each.parent.name) for each in state.glob('*/*/checksums'))
  assert 0 < saved < 24
  resumed = _start(tmp_path / 'killed')
  out, _ = resumed.communicate(timeout=300)
  assert resumed.returncode == 0, out
  assert 'resuming at step' in (tmp_path / 'killed/log.txt').read_text()
  assert not state.exists()
  values = [[(row.id, row.metric, row.value, row.epsilon) for row in
             records.read(tmp_path / name / path)
             if row.metric != 'step_microseconds'] for name in
            ('whole', 'killed')]
  assert values[0] == values[1] and len(values[0]) == 6
