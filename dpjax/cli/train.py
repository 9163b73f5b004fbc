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

Your own CSV file. Bounds, categories and classes are public and must be chosen
without looking at the data (dpjax schema drafts a file of them):
  dpjax train --dataset=survey.csv --label=outcome \
    --classes='no|yes' --bounds=age=18:90,income=0:200000 \
    --categories='sex=F|M' --epsilon=1 --output_dir=results/survey

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

--num_devices=all divides every batch among the devices of the machine. To use
several machines, run the same command on each with
--coordinator_address=HOST:PORT --num_processes=N and a --process_id from 0, or
with --distributed under Slurm. Batches, noise and results equal those of one
device up to rounding.
"""

from collections.abc import Sequence
import dataclasses
import itertools
import pathlib
from typing import Any

from absl import flags

from dpjax.cli import devices
from dpjax.cli import errors
from dpjax.cli import flags as shared
from dpjax.cli import own_data
from dpjax.data import registry
from dpjax.grads import precision
from dpjax.report import tables
from dpjax.runs import configuration
from dpjax.runs import grouping
from dpjax.runs import interrupted
from dpjax.runs import running
from dpjax.runs import summary as summaries

for _name in ('output_dir', 'data_dir', 'traceback'):
  flags.declare_key_flag(_name)
flags.adopt_module_key_flags(devices)
flags.adopt_module_key_flags(own_data)

_DEFAULTS = configuration.TrainingConfig(dataset='', method='')

_DATASET = flags.DEFINE_string(
    'dataset', 'breast_cancer', 'Name of the data set, one of '
    f'{", ".join(registry.names())}; images: '
    f'{", ".join(registry.image_names())}; or the path of a CSV file with a '
    'header.')
_METHOD = flags.DEFINE_string(
    'method', 'dp_sgd', f'One of {", ".join(configuration.METHODS)}.')
_EPSILON = flags.DEFINE_string(
    'epsilon', '1', 'Privacy budget, > 0; a comma-separated list sweeps.')
_DELTA = flags.DEFINE_string(
    'delta', None, 'Probability in [1e-12, 1), or 1/n with n the number of '
    'training records. Default: 1/n^1.1.')
_NUM_EXAMPLES = flags.DEFINE_string(
    'num_examples', None, 'Number of training records to use. Default: all '
    'that are not held out. A comma-separated list sweeps.')
_DEPTH = flags.DEFINE_string(
    'depth', None, 'Number of hidden layers, >= 0; a comma-separated list '
    'sweeps. Default: 1. For some data sets, values selected by a search '
    'replace the defaults of flags.')
_SEED = flags.DEFINE_string(
    'seed', '0', 'Public seed of the split and the initial parameters, >= 0; a '
    'comma-separated list sweeps. Batches and noise do not depend on it.')
_NOISE_SEED = flags.DEFINE_integer(
    'noise_seed', None, 'For research only: seed of batches, noise and the '
    'canaries\' coin flips, >= 0, which makes the run reproducible. Anyone who '
    'knows or guesses it can subtract the noise, so the summary has '
    'epsilon_valid = false. Default: the random source of the system; two runs '
    'of one configuration are then two releases.')

_ADJACENCY = flags.DEFINE_enum(
    'adjacency', _DEFAULTS.adjacency, ['add_or_remove_one', 'replace_one'],
    'Which data sets are neighbours.')
_ACCOUNTANT = flags.DEFINE_enum(
    'accountant', _DEFAULTS.accountant, ['pld', 'rdp'],
    'Accountant that calibrates the noise and computes epsilon.')
_NUM_STEPS = flags.DEFINE_integer(
    'num_steps', None, 'Number of training steps. Default: 100 below 2000 '
    'records, else 400.')
_BATCH_SIZE = flags.DEFINE_float(
    'batch_size', None, 'Expected size of a Poisson-sampled batch, at most '
    'num_examples + num_canaries. Default: half of that, at most 1024.')
_MAX_BATCH_SIZE = flags.DEFINE_integer(
    'max_batch_size', None, 'Records processed at once; larger batches are '
    'processed in parts. No effect on results or privacy.')
_MICROBATCH_SIZE = flags.DEFINE_integer(
    'microbatch_size', None, 'Records whose gradients dp_sgd holds in memory '
    'at once. Default: the whole batch.')
_WIDTH = flags.DEFINE_integer(
    'width', None, 'Units of every hidden layer. Default: 16.')
_ACTIVATION = flags.DEFINE_enum(
    'activation', None, ['relu', 'sigmoid', 'tanh'],
    'Activation of the hidden layers. Default: tanh.')
_TEMPERATURE = flags.DEFINE_float(
    'temperature', None, 'Divisor of the logits in the loss. Default: from the '
    'method.')
_OPTIMIZER = flags.DEFINE_enum(
    'optimizer', None, list(configuration.OPTIMIZERS),
    'Optimizer applied to the noisy gradient. Default: sgd.')
_SCHEDULE = flags.DEFINE_enum(
    'schedule', None, list(configuration.SCHEDULES),
    'Schedule of the learning rate. Default: cosine.')
_LEARNING_RATE = flags.DEFINE_float(
    'learning_rate', None, 'Initial learning rate. Default: from the method.')
_CLIP_NORM = flags.DEFINE_float(
    'clip_norm', None, 'dp_sgd: l2 bound of one record\'s '
    'gradient. Default: from the number of records.')
_WEIGHT_NORM = flags.DEFINE_float(
    'weight_norm', None, 'Lipschitz methods: bound on the spectral norm of '
    'every weight matrix. Default: from the method.')
_INPUT_RADIUS = flags.DEFINE_float(
    'input_radius', None, 'Lipschitz methods: radius of the l2 ball that '
    'records are projected onto. Default: from the method.')
_HIDDEN_RADIUS = flags.DEFINE_float(
    'hidden_radius', None, 'Lipschitz methods: bound on the l2 norm of hidden '
    'activations. Default: from the method.')
_LOGIT_CLIP = flags.DEFINE_float(
    'logit_clip', None, 'Lipschitz methods: bound on the loss gradient of one '
    'record at the logits. Default: from the method.')
_MODEL = flags.DEFINE_enum(
    'model', None, list(configuration.MODELS), 'mlp for tables (default), '
    'convnet (default), wide_resnet or resnet for images.')
_RESIDUAL = flags.DEFINE_enum(
    'residual', _DEFAULTS.residual, list(configuration.RESIDUALS),
    'Residual networks: whether sums of branches are halved. Plain sums double '
    'certified bounds at every block.')
_NUM_GROUPS = flags.DEFINE_integer(
    'num_groups', _DEFAULTS.num_groups, 'Image models: number of channel '
    'groups of normalisation layers.')
_ALPHA = flags.DEFINE_float(
    'alpha', _DEFAULTS.alpha, 'lip_norm: smallest standard deviation that '
    'normalisation layers divide by; their Lipschitz constant is 1/alpha.')
_BIAS_NORM = flags.DEFINE_float(
    'bias_norm', _DEFAULTS.bias_norm,
    'lip_propagated: bound on the l2 norm of biases.')
_WEIGHTS = flags.DEFINE_enum(
    'weights', _DEFAULTS.weights, list(configuration.WEIGHTS),
    'Parametrisation of kernels: free parameters, or a function of them.')
_FLOOR = flags.DEFINE_float(
    'floor', _DEFAULTS.floor, 'lip_normalised: smallest divisor of a record\'s '
    'gradient.')
_NOISE_ORDER = flags.DEFINE_enum(
    'noise_order', _DEFAULTS.noise_order, list(configuration.NOISE_ORDERS),
    'lip_k_norm: p of the lp norm in the noise density.')
_TARGET_QUANTILE = flags.DEFINE_float(
    'target_quantile', _DEFAULTS.target_quantile, 'Adaptive methods: target '
    'fraction of records within the radius, in (0, 1).')
_COUNT_NOISE = flags.DEFINE_float(
    'count_noise', _DEFAULTS.count_noise, 'Adaptive methods: noise on each '
    'count, as a fraction of the expected batch size.')
_VIEWS = flags.DEFINE_integer(
    'views', _DEFAULTS.views, 'Images: number of augmented views (crop and '
    'flip) of each record in each step.')
_AVERAGE = flags.DEFINE_enum(
    'average', _DEFAULTS.average, list(configuration.AVERAGES),
    'Which average of the parameters is evaluated and written.')
_CHANNELS = flags.DEFINE_string(
    'channels', None, 'ConvNet: comma-separated channels of each convolution. '
    'Default: 32, then 64, --depth in all.')
_KERNEL_SIZE = flags.DEFINE_integer(
    'kernel_size', _DEFAULTS.kernel_size, 'ConvNet: side of the kernels.')
_STRIDE = flags.DEFINE_integer(
    'stride', _DEFAULTS.stride, 'ConvNet: stride of the convolutions.')
_POOL = flags.DEFINE_enum(
    'pool', _DEFAULTS.pool, list(configuration.POOLS),
    'ConvNet: pooling after the last convolution.')
_USE_BIAS = flags.DEFINE_bool(
    'use_bias', _DEFAULTS.use_bias, 'ConvNet: whether its layers have biases.')
_DOWNSAMPLE = flags.DEFINE_integer(
    'downsample', _DEFAULTS.downsample, 'Images: average over square blocks '
    'with a side of so many pixels.')
_PIXELS = flags.DEFINE_enum(
    'pixels', _DEFAULTS.pixels, list(configuration.PIXELS),
    'Images: signed scales pixels to [-1, 1], unsigned to [0, 1].')
_COMPUTE_DTYPE = flags.DEFINE_enum(
    'compute_dtype', _DEFAULTS.compute_dtype, list(precision.COMPUTE_DTYPES),
    f'{", ".join(configuration.IN_ANY_DTYPE)}: data type of the network during '
    'training. Parameters, norms, sums and noise stay float32. For '
    'accelerators; slower on CPU.')
_RECERTIFY_EVERY = flags.DEFINE_integer(
    'recertify_every', _DEFAULTS.recertify_every,
    f'{", ".join(configuration.RECERTIFYING)}: steps between ClipWeights of '
    'layers whose norm does not affect the noise scale, such as the first '
    'layer of a perceptron with balls. Saves time if that layer is wide.')
_NOISE = flags.DEFINE_enum(
    'noise', None, list(configuration.NOISES),
    'gaussian adds floating-point noise. lattice_gaussian adds integer noise '
    'to rounded sums, so the release follows the theorem, except for float32 '
    'rounding within the sums. Default: lattice_gaussian for releases up to '
    'epsilon 8 by methods with Gaussian noise; gaussian otherwise and with '
    '--noise_seed.')
_ALLOW_UNSOUND = flags.DEFINE_bool(
    'allow_unsound', False, 'Confirms that you accept that lip_printed '
    '(Barczewski, 2025, Algorithm 8 as printed) is not private. Its summary '
    'has epsilon_valid = false.')
_NUM_CANARIES = flags.DEFINE_integer(
    'num_canaries', _DEFAULTS.num_canaries, 'Number of extra slots for dpjax '
    'audit --target=run. A fair coin flip per slot decides whether it holds a '
    'canary. Sampling, default delta and claim count all slots as records. '
    'Several hundred give the strongest audits.')
_CANARY_KIND = flags.DEFINE_enum(
    'canary_kind', _DEFAULTS.canary_kind, list(configuration.CANARY_KINDS),
    'Kind of canaries: held-out records with a wrong label or unchanged, which '
    'are then not used for evaluation; uniform noise or one constant for all '
    'features, with a random label.')
_CANARY_SEED = flags.DEFINE_integer(
    'canary_seed', None, 'Seed of canaries and coin flips, >= 0; it reveals '
    'which canaries are included. Default: the random source of the system, '
    'or --noise_seed.')
_ALLOCATION = flags.DEFINE_enum(
    'allocation', None, ['equal', 'global', 'optimal'],
    'How the noise is split over the layers. Default: optimal.')
_CHECKPOINT_SECONDS = flags.DEFINE_float(
    'checkpoint_seconds', 60., 'Least seconds between two checkpoints, which '
    'are written between twentieths of a run and removed after it; 0 writes '
    'none. They hold the keys of the noise and must not be published.',
    lower_bound=0.)

_SWEPT = ('epsilon', 'num_examples', 'depth', 'seed')


def _numbers(name: str, text: str | None, kind: type) -> list[Any]:
  """Returns the values of a comma-separated list; [None] without a flag."""
  if text is None:
    return [None]
  try:
    values = [kind(part) for part in text.split(',')]
  except ValueError:
    what = 'integers' if kind is int else 'numbers'
    raise ValueError(f'--{name} must be {what} separated by commas, got '
                     f'{text!r}') from None
  if len(set(values)) < len(values):
    raise ValueError(f'--{name} must not repeat a value, got {text!r}')
  return values


def _channels() -> tuple[int, ...] | None:
  """Returns the field that --channels sets."""
  if _CHANNELS.value is None:
    return None
  try:
    return tuple(int(part) for part in _CHANNELS.value.split(','))
  except ValueError:
    raise ValueError('--channels must be integers separated by commas, got '
                     f'{_CHANNELS.value!r}') from None


def _delta() -> dict[str, float]:
  """Returns the fields that --delta sets."""
  text = _DELTA.value
  if text is None:
    return {}
  if text.replace(' ', '') == '1/n':
    return {'delta_power': 1.0}
  try:
    return {'delta': float(text)}
  except ValueError:
    raise ValueError(f'--delta must be a number or 1/n, got {text!r}') from None


def _configs() -> list[configuration.TrainingConfig]:
  """Returns the checked configurations that the flags ask for."""
  base = configuration.TrainingConfig(
      dataset=_DATASET.value, method=_METHOD.value,
      adjacency=_ADJACENCY.value, accountant=_ACCOUNTANT.value,
      num_steps=_NUM_STEPS.value, batch_size=_BATCH_SIZE.value,
      max_batch_size=_MAX_BATCH_SIZE.value,
      microbatch_size=_MICROBATCH_SIZE.value, width=_WIDTH.value,
      activation=_ACTIVATION.value, temperature=_TEMPERATURE.value,
      optimizer=_OPTIMIZER.value, schedule=_SCHEDULE.value,
      learning_rate=_LEARNING_RATE.value, clip_norm=_CLIP_NORM.value,
      weight_norm=_WEIGHT_NORM.value, input_radius=_INPUT_RADIUS.value,
      hidden_radius=_HIDDEN_RADIUS.value, logit_clip=_LOGIT_CLIP.value,
      allocation=_ALLOCATION.value, model=_MODEL.value,
      residual=_RESIDUAL.value, num_groups=_NUM_GROUPS.value,
      alpha=_ALPHA.value, bias_norm=_BIAS_NORM.value, weights=_WEIGHTS.value,
      floor=_FLOOR.value, noise_order=_NOISE_ORDER.value,
      target_quantile=_TARGET_QUANTILE.value,
      count_noise=_COUNT_NOISE.value, views=_VIEWS.value,
      average=_AVERAGE.value, allow_unsound=_ALLOW_UNSOUND.value,
      channels=_channels(), kernel_size=_KERNEL_SIZE.value,
      stride=_STRIDE.value, pool=_POOL.value, use_bias=_USE_BIAS.value,
      downsample=_DOWNSAMPLE.value, pixels=_PIXELS.value,
      compute_dtype=_COMPUTE_DTYPE.value,
      recertify_every=_RECERTIFY_EVERY.value,
      noise_seed=_NOISE_SEED.value, num_canaries=_NUM_CANARIES.value,
      canary_kind=_CANARY_KIND.value,
      canary_seed=_CANARY_SEED.value,
      schema=own_data.schema(_DATASET.value), **_delta())
  swept = [_numbers('epsilon', _EPSILON.value, float),
           _numbers('num_examples', _NUM_EXAMPLES.value, int),
           _numbers('depth', _DEPTH.value, int),
           _numbers('seed', _SEED.value, int)]
  configs = [dataclasses.replace(base, **dict(zip(_SWEPT, values, strict=True)))
             for values in itertools.product(*swept)]
  return [
      configuration.check(dataclasses.replace(
          config, noise=_NOISE.value or configuration.release_noise(config)))
      for config in map(configuration.check, configs)
  ]


def _folders(configs: Sequence[configuration.TrainingConfig],
             output_dir: str) -> list[pathlib.Path]:
  """Returns the folder of each run: output_dir itself for a single run."""
  root = pathlib.Path(output_dir)
  if len(configs) == 1:
    return [root]
  varying = [name for name in _SWEPT
             if len({getattr(config, name) for config in configs}) > 1]
  return [root / ','.join(f'{name}={getattr(config, name)}'
                          for name in varying) for config in configs]


def _groups(
    configs: Sequence[configuration.TrainingConfig],
    output_dir: str) -> list[tuple[Sequence, pathlib.Path]]:
  """Returns groups of runs trained together, and their checkpoint folders."""
  groups = grouping.groups(configs, interrupted.BATCHED)
  root = str(pathlib.Path(output_dir) / interrupted.FOLDER)
  return list(zip(groups, _folders([group[0] for group in groups], root),
                  strict=True))


def _table(all_summaries: Sequence[dict[str, Any]]) -> str:
  """Returns a Markdown table with a line per run."""
  def text(value, digits=4):
    return 'inf' if value is None else f'{value:.{digits}g}'
  headers = ('method', 'n', 'depth', 'seed', 'epsilon asked', 'epsilon spent',
             'delta', 'noise multiplier', 'test accuracy', 'seconds')
  return tables.markdown(headers, [
      (s['method'], s['n'], s['config']['depth'], s['seed'],
       text(s['epsilon_requested']), text(s['epsilon'], 5),
       '-' if s['delta'] is None else text(s['delta'], 3),
       '0' if s['noise_multiplier'] is None else text(s['noise_multiplier']),
       f'{s["test_accuracy"]:.4f}', f'{s["train_seconds"]:.2f}')
      for s in all_summaries
  ])


def main(argv: Sequence[str]) -> int:
  """Trains the runs that the flags ask for; returns the exit status."""
  errors.check_no_arguments(argv)
  if not shared.OUTPUT_DIR.value:
    raise ValueError('--output_dir must be given')
  configs = _configs()
  errors.check_folder(shared.OUTPUT_DIR.value)
  folders = _folders(configs, shared.OUTPUT_DIR.value)
  devices.start()
  with devices.first_speaks():
    done = running.run(
        _groups(configs, shared.OUTPUT_DIR.value),
        dict(zip(configs, folders, strict=True)),
        data_dir=shared.DATA_DIR.value, mesh=devices.mesh(),
        checkpoint_seconds=_CHECKPOINT_SECONDS.value)
    print(_table([done[config] for config in configs]), end='')
    print(f'written to {shared.OUTPUT_DIR.value}')
    print(summaries.not_to_publish(configs))
    if configs[0].schema is not None:
      own_data.say_what_is_public()
  return 0
