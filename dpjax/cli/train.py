r"""Trains one private model, or one for each value of a comma-separated list.

One run; scikit-learn provides the breast cancer data:
  dpjax train --dataset=breast_cancer --method=lip_dp_sgd \
    --epsilon=1 --output_dir=results/one

A sweep over budgets and depths, three seeds each, one folder for each run:
  dpjax train --dataset=breast_cancer --method=dp_sgd \
    --epsilon=0.5,1,2,4 --depth=0,1,2 --seed=0,1,2 --output_dir=results/sweep

Another data set, read from its original files in data/adult, on fewer records:
  dpjax train --dataset=adult --data_dir=data --method=dp_sgd \
    --epsilon=1 --delta=1e-6 --num_examples=1000,10000 --output_dir=results/n

A private choice among nine candidates, eight runs in the mean, at epsilon 3:
  dpjax train --dataset=breast_cancer --method=dp_sgd --select=private \
    --mean_runs=8 --depth=0,1,2 --learning_rate=0.5,1,2 --epsilon=3 \
    --output_dir=results/best

Your own CSV file. Bounds, categories and classes are public and must be chosen
without looking at the data (dpjax schema drafts a file of them):
  dpjax train --dataset=survey.csv --label=outcome \
    --classes='no|yes' --bounds=age=18:90,income=0:200000 \
    --categories='sex=F|M' --epsilon=1 --output_dir=results/survey

Parquet files larger than memory: a folder, a pattern, or one file with
--stream. Records are read while training; each step reads most row groups, so
small ones (about 1,000 records) keep the memory small:
  dpjax train --dataset='visits/*.parquet' --label=outcome \
    --classes='no|yes' --bounds=age=18:90 --categories='sex=F|M' \
    --epsilon=1 --output_dir=results/visits
--dataset=tfds:NAME reads images in the same way, which TensorFlow Datasets
prepared as ArrayRecord files.

If a person may have several records, --user_column names the column of their
ids, and epsilon is that of a person with all of them:
  dpjax train --dataset=visits.csv --label=outcome --classes='no|yes' \
    --bounds=age=18:90 --user_column=patient --epsilon=1 \
    --output_dir=results/visits

--sampler and --correlation choose how batches are drawn and whether the noise
of the steps is correlated; dpjax plan compares the choices.

Each run writes summary.json and params.npz. The epsilon in summary.json is that
of the mechanism that ran and can be recomputed from the file alone. For the
data owner only, a run also writes private_diagnostics.json and, with
--num_canaries, canaries.npz: these two are not covered by epsilon and must not
be published. A folder that already holds the run is not run again; one that
holds another run is rejected. Repeating the command resumes an interrupted run
from checkpoints/ in the output folder, with the same parameters and epsilon as
an uninterrupted run.

Batches and noise come from a secret key of the system's random source. The key
is stored in checkpoints/ only, which is as private as the records and removed
at the end. A run therefore cannot be repeated, and the same command with
another --output_dir is another release, which spends epsilon again. For
research, --noise_seed makes a reproducible run: its epsilon does not hold
against anyone who guesses the seed, and its summary says so. falls_short in
summary.json lists further differences between the run and the mechanism that
epsilon is proven for.

With --select=private a secret number of runs is trained, each with less budget,
and only the best of them, by a noisy score on held-out training records, is
written. The guarantee needs that nobody learns the number of runs, so show
neither the time that the command takes nor its use of the machine to others.
There are no checkpoints: an interrupted choice has released nothing, and the
same command starts it again with new keys.

--num_devices=all divides every batch among the devices of the machine, and
--mesh=data:2,model:4 divides parameters too, for models larger than one device;
for several machines see --helpfull. Results equal those of one device up to
rounding.
"""

from collections.abc import Sequence
import dataclasses
import functools
import itertools
import pathlib
from typing import Any

from absl import flags

from dpjax.cli import devices
from dpjax.cli import errors
from dpjax.cli import flags as shared
from dpjax.cli import own_data
from dpjax.data import streamed
from dpjax.report import tables
from dpjax.runs import configuration
from dpjax.runs import grouping
from dpjax.runs import interrupted
from dpjax.runs import options
from dpjax.runs import running
from dpjax.runs import selecting
from dpjax.runs import selection
from dpjax.runs import settings
from dpjax.runs import summary as summaries
from dpjax.runs.options import TrainingConfig

# Group of options -> their flags, which `_define` adds.
_TABLES = {group: flags.FlagValues() for group in options.GROUPS}

# Options whose flag is a comma-separated list, with a run for each value.
_SWEPT = ('epsilon', 'num_examples', 'depth', 'seed',
          *(name for name in selection.TUNED if name != 'depth'))
_SETTINGS = {setting.name: setting
             for setting in settings.declared(TrainingConfig)}
_LISTS = tuple(name for name, setting in _SETTINGS.items()
               if setting.kind is tuple)
# Flags whose value is a text that `_configs` reads.
_TEXTS = (*_SWEPT, *_LISTS, 'delta')
# Options that other flags set: those of `own_data`, and --delta=1/n.
_WITHOUT_FLAG = ('schema', 'delta_power')
# Where the default of a flag is not that of the option.
_DEFAULTS = {'dataset': 'breast_cancer', 'method': 'dp_sgd', 'noise': None}
# What help says of a flag besides the description of the option.
_MORE_HELP = {
    **dict.fromkeys(_SWEPT, 'A comma-separated list sweeps.'),
    **dict.fromkeys(_LISTS, 'Separated by commas.'),
    'delta': '--delta=1/n stands for delta_power = 1.',
    'noise': 'Default: lattice_gaussian for releases up to epsilon 8 by '
             'methods with Gaussian noise; gaussian otherwise and with '
             '--noise_seed.'}


def _define(setting: settings.Setting) -> flags.FlagHolder[Any]:
  """Defines the flag of an option; the type of its value is the option's."""
  name = setting.name
  # Of the type that the declaration gives, or None.
  default: Any = _DEFAULTS.get(name, setting.default)
  text = f'{setting.description} {_MORE_HELP.get(name, "")}'.rstrip()
  table = _TABLES[setting.group]
  if name in _TEXTS:
    if default is not None:
      default = (','.join(map(str, default)) if setting.kind is tuple
                 else f'{default:g}')
    return flags.DEFINE_string(name, default, text, table)
  if setting.kind is bool:
    return flags.DEFINE_bool(name, default, text, table)
  if setting.kind is int:
    return flags.DEFINE_integer(name, default, text, flag_values=table)
  if setting.kind is float:
    return flags.DEFINE_float(name, default, text, flag_values=table)
  # `settings.check` refuses other than the choices, and suggests one.
  return flags.DEFINE_string(name, default, text, table)


_FLAGS = {name: _define(setting) for name, setting in _SETTINGS.items()
          if name not in _WITHOUT_FLAG}
_CHECKPOINT_SECONDS = flags.DEFINE_float(
    'checkpoint_seconds', 60., 'Least seconds between two checkpoints, which '
    'are written between twentieths of a run and removed after it; 0 writes '
    'none. They hold the keys of the noise and must not be published.',
    lower_bound=0., flag_values=_TABLES[options.MACHINE])
_SELECT = flags.DEFINE_enum(
    'select', 'none', ('none', 'private'), 'private: the combinations of the '
    'lists are candidates, of which one is chosen and written, within epsilon '
    'and delta for the whole choice; fold 0 of the training part is held out '
    f'for it. Lists of {", ".join(selection.TUNED)} are allowed.',
    flag_values=_TABLES[options.PRIVACY])
_MEAN_RUNS = flags.DEFINE_float(
    'mean_runs', None, '--select=private: mean of the random number of runs, '
    'above 1. More runs find better candidates, and leave each run less '
    'budget. Default: the number of candidates.',
    flag_values=_TABLES[options.PRIVACY])
shared.add_shared(_TABLES[options.DATA], 'data_dir')

_GROUPS: shared.Groups = {
    'Data': _TABLES[options.DATA],
    'Your own CSV file': own_data.FLAGS,
    'Privacy': _TABLES[options.PRIVACY],
    'Method and network': _TABLES[options.NETWORK],
    'Optimiser': _TABLES[options.OPTIMISER],
    'Machine': _TABLES[options.MACHINE],
    'Several devices or machines': devices.FLAGS,
    'Output': shared.add_shared(flags.FlagValues(), 'output_dir')}
# The flags that --help shows.
_MAIN = (
    'dataset data_dir method epsilon delta num_steps batch_size '
    'learning_rate seed output_dir').split()
parse = functools.partial(errors.parse_groups, groups=_GROUPS,
                          doc=__doc__ or '', main=_MAIN)


def _swept(name: str) -> list[Any]:
  """Returns the values that a run is asked for; [None] without a flag."""
  text = _FLAGS[name].value
  if text is None:
    return [None]
  values = shared.numbers(name, text, _SETTINGS[name].kind)
  # Two runs of one value would be written to one folder.
  if len(set(values)) < len(values):
    raise ValueError(f'--{name} must not repeat a value, got {text!r}')
  return values


def _delta() -> dict[str, float]:
  """Returns the options that --delta sets."""
  text = _FLAGS['delta'].value
  if text is None:
    return {}
  if text.replace(' ', '') == '1/n':
    return {'delta_power': 1.0}
  try:
    return {'delta': float(text)}
  except ValueError:
    raise ValueError(f'--delta must be a number or 1/n, got {text!r}') from None


def _configs() -> list[TrainingConfig]:
  """Returns the checked configurations that the flags ask for."""
  values = {name: flag.value for name, flag in _FLAGS.items()
            if name not in _TEXTS} | _delta()
  for name in _LISTS:
    text = _FLAGS[name].value
    values[name] = None if text is None else tuple(
        shared.numbers(name, text, int))
  # The schema is an option: with another, the run is another.
  values['schema'] = own_data.schema(values['dataset'])
  values['stream'] |= streamed.stays_on_disk(values['dataset'],
                                             data_dir=shared.DATA_DIR.value)
  noise = values.pop('noise')
  configs = [
      configuration.check(TrainingConfig(
          **values, **dict(zip(_SWEPT, point, strict=True))))
      for point in itertools.product(*map(_swept, _SWEPT))]
  # The default of the noise depends on a configuration that is checked.
  return [configuration.check(dataclasses.replace(
      config, noise=noise or configuration.release_noise(config)))
          for config in configs]


def _folders(configs: Sequence[TrainingConfig],
             output_dir: str) -> list[pathlib.Path]:
  """Returns the folder of each run: output_dir itself for a single run."""
  root = pathlib.Path(output_dir)
  if len(configs) == 1:
    return [root]
  # Folders are named by what differs between the runs.
  varying = [name for name in _SWEPT
             if len({getattr(config, name) for config in configs}) > 1]
  return [root / ','.join(f'{name}={getattr(config, name)}'
                          for name in varying) for config in configs]


def _groups(
    configs: Sequence[TrainingConfig],
    output_dir: str) -> list[tuple[Sequence[TrainingConfig], pathlib.Path]]:
  """Returns groups of runs trained together, and their checkpoint folders."""
  groups = grouping.groups(
      configs, () if configs[0].stream else interrupted.BATCHED)
  # Checkpoints of a group are named after its first run.
  root = str(pathlib.Path(output_dir) / interrupted.FOLDER)
  return list(zip(groups, _folders([group[0] for group in groups], root),
                  strict=True))


def _table(all_summaries: Sequence[dict[str, Any]]) -> str:
  """Returns a Markdown table with a line per run."""
  tuned = [name for name in selection.TUNED if name != 'depth' and
           len({s['config'][name] for s in all_summaries}) > 1]
  def text(value: float | None, digits: int = 4) -> str:
    return 'inf' if value is None else f'{value:.{digits}g}'
  headers = ('method', 'n', 'depth', 'seed', *tuned, 'epsilon asked',
             'epsilon spent', 'delta', 'noise multiplier', 'test accuracy',
             'seconds')
  return tables.markdown(headers, [
      (s['method'], s['n'], s['config']['depth'], s['seed'],
       *(text(s['config'][name]) for name in tuned),
       text(s['epsilon_requested']), text(s['epsilon'], 5),
       '-' if s['delta'] is None else text(s['delta'], 3),
       '0' if s['noise_multiplier'] is None else text(s['noise_multiplier']),
       f'{s["test_accuracy"]:.4f}',
       # Null for a run that was chosen privately.
       '-' if s['train_seconds'] is None else f'{s["train_seconds"]:.2f}')
      for s in all_summaries
  ])


def main(argv: Sequence[str]) -> int:
  """Trains the runs that the flags ask for; returns the exit status."""
  errors.check_no_arguments(argv)
  shared.check_given({'output_dir': shared.OUTPUT_DIR.value,
                      **own_data.required(_FLAGS['dataset'].value)})
  output_dir = shared.given(shared.OUTPUT_DIR)
  # All runs are checked before the first spends epsilon.
  configs = _configs()
  errors.check_folder(output_dir)
  if _SELECT.value == 'private':
    return _select(configs, output_dir)
  if _MEAN_RUNS.value is not None:
    raise ValueError('--mean_runs needs --select=private')
  folders = _folders(configs, output_dir)
  # JAX must know of other processes before it first computes.
  devices.start()
  with devices.first_speaks():
    mesh = devices.mesh()
    summaries_by_config = running.run(
        _groups(configs, output_dir),
        dict(zip(configs, folders, strict=True)),
        data_dir=shared.DATA_DIR.value, mesh=mesh,
        place=devices.place(mesh), checkpoint_seconds=_CHECKPOINT_SECONDS.value)
    print(_table([summaries_by_config[config] for config in configs]), end='')
    print(f'written to {output_dir}')
    print(summaries.not_to_publish(configs))
    cost = summaries.cost_of_all([summaries_by_config[c] for c in configs])
    if cost is not None:
      print(cost)
    if configs[0].schema is not None:
      own_data.say_what_is_public()
  return 0


def _select(configs: Sequence[TrainingConfig], output_dir: str) -> int:
  """Makes a private choice among configurations; returns the exit status."""
  if devices.several():
    raise ValueError('--select=private trains on one device: leave out '
                     '--num_devices, --mesh and the flags of several machines')
  mean_runs = _MEAN_RUNS.value
  summary = selecting.run(
      configs, float(len(configs)) if mean_runs is None else mean_runs,
      pathlib.Path(output_dir), data_dir=shared.DATA_DIR.value)
  print(_table([summary]), end='')
  values = ', '.join(
      f'{name} = {value:g}' for name, value in
      summary['selection']['candidates'][summary['selection']['chosen']].items())
  print(f'chosen: {values}')
  print(f'written to {output_dir}')
  print(summaries.not_to_publish(configs))
  if configs[0].schema is not None:
    own_data.say_what_is_public()
  return 0
