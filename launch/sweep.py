r"""Runs the settings of an experiment that have no rows yet.

A smoke run of seconds:
  python -m launch.sweep --experiment=lip_tabular --smoke \
    --output_dir=results/smoke

Two data sets of the whole sweep, on the second of four machines; repeating the
command resumes an interrupted run:
  python -m launch.sweep --experiment=lip_tabular --data_dir=data \
    --output_dir=results --only=dataset=adult,dropout --shard=2/4

List the settings (without --experiment: list the experiments):
  python -m launch.sweep --experiment=lip_tabular --list

Twenty cluster jobs of at most two hours, submitted from the login node, with
DIR on a file system that all nodes share; logs are in DIR/shards/1/logs:
  ... --output_dir=DIR --submitit=slurm --num_shards=20 --partition=gpu \
    --time=120 --gpus=1 --cpus=4 --memory=16 --nowait
When the jobs are done, the same command merges their rows in DIR and submits
what is missing. --submitit=local uses local processes instead.
"""

from collections.abc import Sequence
import shlex
import sys

from absl import flags

from dpjax.cli import errors
from dpjax.cli import flags as shared
from experiments import choosing
from experiments import engine
from experiments import records
from experiments import registry
from experiments import selection
from launch import cluster
from launch import flags as experiment_flags
from launch import signals

flags.adopt_module_key_flags(cluster)
for _name in ('experiment', 'output_dir', 'data_dir', 'state_dir', 'traceback'):
  flags.declare_key_flag(_name)

_SMOKE = flags.DEFINE_bool(
    'smoke', False, 'Run the smoke sweep: toy settings that take seconds.')
_TAG = flags.DEFINE_string(
    'tag', None, 'Run only the settings with this tag of the experiment.')
_ONLY = flags.DEFINE_multi_string(
    'only', [], 'Run only settings with one of these values, as '
    'key=value[,value]. If repeated, all keys must match.')
_SHARD = flags.DEFINE_string(
    'shard', None, 'Run the i-th of n parts, as i/n with i from 1 to n.')
_RESUME = flags.DEFINE_bool(
    'resume', True, 'Skip settings that have rows; with --noresume a folder '
    'with rows is an error.')
_APPEND_ANYWAY = flags.DEFINE_bool(
    'append_anyway', False, 'Append even to rows of another configuration.')
_LIST = flags.DEFINE_bool(
    'list', False, 'Print the ids of the settings and run nothing.')


def _command(name: str) -> str:
  """Returns the command that makes these rows, without machine paths."""
  words = ['python', '-m', 'launch.sweep', f'--experiment={name}']
  words += ['--smoke'] if _SMOKE.value else []
  words += [f'--tag={_TAG.value}'] if _TAG.value else []
  words += [f'--only={text}' for text in _ONLY.value]
  words += [f'--shard={_SHARD.value}'] if _SHARD.value else []
  return shlex.join(words)


def _print_experiments() -> None:
  """Prints a line about each experiment."""
  for name in sorted(registry.EXPERIMENTS):
    experiment = registry.load(name)
    tags = ', '.join(sorted(experiment.tags)) or 'none'
    print(f'{name}: {experiment.artefact}; {len(experiment.settings)} '
          f'settings; tags: {tags}; cost: {experiment.cost}')


def _run(experiment: registry.Experiment,
         settings: Sequence[selection.Setting],
         options: engine.Options) -> int:
  """Runs the sweep, here or as jobs; returns the exit status."""
  status: int | None = 0
  try:
    with signals.interrupt_on_sigterm():
      if cluster.is_asked_for():
        status = cluster.run(experiment, settings, options, _SHARD.value,
                             sys.stderr)
      else:
        engine.run_sweep(experiment, settings, options, sys.stderr)
  except KeyboardInterrupt:
    print('interrupted; no finished row is lost. The same command goes on:\n'
          f'  python -m launch.sweep {shlex.join(sys.argv[1:])}',
          file=sys.stderr)
    return errors.INTERRUPTED
  if status is None:
    print('when the jobs are done, the same command brings their rows '
          f'together:\n  python -m launch.sweep {shlex.join(sys.argv[1:])}')
    return 0
  if status:
    return status
  _print_cost_of_choosing(experiment, settings, options)
  print(f'{options.rows_path} has the rows of {len(settings)} settings; now\n'
        f'  python -m launch.report --experiment={experiment.name} '
        f'--rows_dir={shlex.quote(str(options.output_dir))}')
  return 0


def _print_cost_of_choosing(experiment: registry.Experiment,
                            settings: Sequence[selection.Setting],
                            options: engine.Options) -> None:
  """Prints what keeping the best of these runs would cost."""
  ids = {selection.setting_id(experiment.name, setting) for setting in settings}
  for line in choosing.lines([row for row in records.read(options.rows_path)
                              if row.id in ids]):
    print(line)


def main(argv: Sequence[str]) -> int:
  """Runs or lists the settings of the flags; returns the exit status."""
  errors.check_no_arguments(argv)
  if not experiment_flags.EXPERIMENT.value:
    if _LIST.value:
      _print_experiments()
      return 0
    raise ValueError('--experiment must be one of '
                     f'{", ".join(sorted(registry.EXPERIMENTS))}')
  experiment = registry.load(experiment_flags.EXPERIMENT.value)
  settings = engine.select(
      experiment, smoke=_SMOKE.value, tag=_TAG.value, only=_ONLY.value,
      shard=_SHARD.value)
  if _LIST.value:
    for setting in settings:
      print(selection.setting_id(experiment.name, setting))
    return 0
  if not shared.OUTPUT_DIR.value:
    raise ValueError('--output_dir must be given')
  return _run(experiment, settings, engine.Options(
      output_dir=shared.OUTPUT_DIR.value, data_dir=shared.DATA_DIR.value,
      smoke=_SMOKE.value, resume=_RESUME.value,
      append_anyway=_APPEND_ANYWAY.value, command=_command(experiment.name),
      state_dir=experiment_flags.STATE_DIR.value))


if __name__ == '__main__':
  errors.run_main(main)
