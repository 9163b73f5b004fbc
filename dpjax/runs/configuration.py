"""The configuration of a training run: one frozen, checked value."""

import dataclasses
from typing import Any

from dpjax import errors
from dpjax.data import registry
from dpjax.data import schema_files
from dpjax.data import user_tables
from dpjax.grads import precision
from dpjax.privacy import accounting
from dpjax.privacy import blocks
from dpjax.privacy.adjacency import Adjacency
from dpjax.runs import recipes

CLIPPING_METHODS = ('dp_sgd', 'dp_sgd_vmap', 'dp_sgd_per_layer',
                    'dp_sgd_automatic', 'dp_sgd_adaptive', 'layer_clipped')
LIPSCHITZ_METHODS = ('lip_dp_sgd', 'fix_lip_dp_sgd', 'lip_normalised',
                     'lip_propagated', 'lip_norm', 'lip_adaptive',
                     'lip_k_norm', 'bassily')
METHODS = ('sgd', *CLIPPING_METHODS, *LIPSCHITZ_METHODS, 'lip_printed')
# Methods that bound a record's whole contribution, or derive the bound from its
# cotangents, so that the bound holds for a mean over views.
WITH_VIEWS = tuple(name for name in METHODS
                   if name not in ('layer_clipped', 'lip_printed',
                                   'lip_adaptive'))
# Methods whose bound holds whatever the dtype of the network's arithmetic.
IN_ANY_DTYPE = ('sgd', *(name for name in CLIPPING_METHODS
                         if name != 'layer_clipped'))
WITHOUT_GAUSSIAN_NOISE = ('sgd', 'lip_k_norm')
RECERTIFYING = ('lip_dp_sgd', 'lip_propagated', 'lip_norm')
OPTIMIZERS = ('sgd', 'momentum', 'adam')
SCHEDULES = ('constant', 'cosine')
TABLE_MODELS = ('mlp',)
IMAGE_MODELS = ('convnet', 'wide_resnet', 'resnet')
MODELS = TABLE_MODELS + IMAGE_MODELS
RESIDUALS = ('averaged', 'plain')
WEIGHTS = ('free', 'standardised', 'orthogonal')
NOISE_ORDERS = ('1', 'inf')
NOISES = ('gaussian', 'lattice_gaussian')
AVERAGES = ('none', 'ema', 'polyak')
POOLS = ('max', 'average', 'none')
PIXELS = ('signed', 'unsigned')
# Largest epsilon at which noise on a lattice is the default: `release_noise`.
_MOST_ON_LATTICE = 8.0
CANARY_KINDS = ('mislabelled', 'held_out', 'noise', 'blank')


def _later(default: Any, *, filled: bool = False) -> Any:
  """Declares a field that was added after rows were published.

  At its default, such a field does not change the key of a run: see `run_keys`.
  `filled` is True if None is only a placeholder that `resolve` replaces.
  """
  return dataclasses.field(default=default,
                           metadata={'later': True, 'filled': filled})


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
  """Everything a run depends on; None stands for the recipe's value.

  Every field is public, and printed in the summary of the run.

  Attributes:
    dataset: a name of `data.registry` (a table or images), or the path of the
      user's CSV file, which needs a schema.
    method: training method, one of `METHODS`.
    epsilon: target epsilon; not used by 'sgd'.
    delta: target delta; None for n^-delta_power with n training records.
    delta_power: exponent of the default delta; 1.1 keeps delta below 1/n. At
      1/n, publishing one record at random would count as private.
    adjacency: which data sets are neighbours, a value of `Adjacency`.
    accountant: 'pld' or 'rdp', for calibration and the reported epsilon.
    num_examples: training records to use; None for all that are not held out.
    test_fraction: share of the records held out at random, in (0, 1).
    split_seed: seed of the split; None for `seed`.
    fold: None to train on all records that are not held out and to evaluate
      on those held out. Or the number of a fold of the training part, which is
      left out of training and evaluated on.
    num_folds: number of folds of equal size.
    model: one of `MODELS`; None for the perceptron on tables, the ConvNet on
      images.
    residual: how residual blocks are added, one of `RESIDUALS`.
    num_groups: groups of each group normalisation.
    alpha: constant of Lipschitz normalisations (NET-07).
    bias_norm: l2 bound on every bias, for 'lip_propagated'.
    weights: parametrisation of the kernels, one of `WEIGHTS` (REG-02, SPEC-08).
    floor: smallest divisor of 'lip_normalised'.
    noise_order: p of 'lip_k_norm', one of `NOISE_ORDERS`.
    target_quantile: quantile level that adaptive radii follow, in (0, 1).
    count_noise: standard deviation of the noise on their counts, divided by
      the expected batch size.
    views: augmented views of an image in each step (REG-04).
    average: which average of the parameters is evaluated, one of `AVERAGES`.
    allow_unsound: True confirms that you accept that 'lip_printed' is not
      private.
    num_steps: training steps.
    batch_size: expected size of a Poisson batch.
    max_batch_size: batch rows computed at once.
    microbatch_size: records whose gradients dp_sgd holds at once.
    depth: hidden layers of a perceptron; convolutions of a ConvNet; 6 n + 4 or
      6 n + 2 for the residual networks.
    width: units per hidden layer of a perceptron; units of the hidden dense
      layer of a ConvNet; widening factor of a wide residual network.
    channels: channels of each ConvNet convolution; None for 32, then 64 in
      each of the other `depth` - 1.
    kernel_size: kernel size of ConvNet convolutions.
    stride: stride of ConvNet convolutions.
    pool: pooling after the last ConvNet convolution, one of `POOLS`.
    use_bias: whether the layers of a ConvNet have biases.
    downsample: side, in pixels, of the square blocks that images are averaged
      over; 1 changes nothing.
    pixels: range that pixels are scaled to, one of `PIXELS`: 'signed' is
      [-1, 1], 'unsigned' is [0, 1].
    compute_dtype: dtype of the network in training, one of
      `precision.COMPUTE_DTYPES`; it is evaluated in float32.
    recertify_every: steps between projections of weights whose norm no
      sensitivity depends on, for the methods in `RECERTIFYING`.
    noise: noise sampler, one of `NOISES`: floating-point draws, or an exact
      distribution on a lattice.
    activation: activation of the hidden layers.
    temperature: temperature of the cross entropy.
    optimizer: one of `OPTIMIZERS`.
    schedule: learning rate schedule, one of `SCHEDULES`.
    learning_rate: learning rate at the start.
    clip_norm: l2 bound of clipping methods on a record's gradient.
    weight_norm: bound of the Lipschitz methods on each weight matrix.
    input_radius: radius of their ball for records.
    hidden_radius: radius of their ball for hidden activations.
    logit_clip: their bound on a record's cotangent at the logits.
    allocation: how they split the noise over layers.
    seed: seed of the split and the initial parameters; public.
    noise_seed: None draws batches, noise, views and canary coin flips from the
      system's random source, as a release needs. An integer seeds them, so
      that the run can be reproduced: for research only, because anybody who
      knows or guesses the seed can subtract the noise.
    num_canaries: canary slots beside the records; a fair coin fills each slot
      with its canary (AUD-06), see `dpjax.runs.canaries`.
    canary_kind: kind of canary, one of `CANARY_KINDS`.
    canary_seed: seed of canaries and coin flips; None for the noise_seed if
      there is one, else for the system's random source.
    schema: schema of the user's CSV file, in the format of
      `data.schema_files`.
  """
  dataset: str
  method: str
  epsilon: float = 1.0
  delta: float | None = None
  delta_power: float = 1.1
  adjacency: str = Adjacency.ADD_OR_REMOVE_ONE.value
  accountant: str = 'pld'
  num_examples: int | None = None
  test_fraction: float = 0.2
  num_steps: int | None = None
  batch_size: float | None = None
  max_batch_size: int | None = None
  microbatch_size: int | None = None
  depth: int | None = None
  width: int | None = None
  activation: str | None = None
  temperature: float | None = None
  optimizer: str | None = None
  schedule: str | None = None
  learning_rate: float | None = None
  clip_norm: float | None = None
  weight_norm: float | None = None
  input_radius: float | None = None
  hidden_radius: float | None = None
  logit_clip: float | None = None
  allocation: str | None = None
  seed: int = 0
  split_seed: int | None = _later(None)
  fold: int | None = _later(None)
  num_folds: int = _later(5)
  model: str | None = _later(None, filled=True)
  residual: str = _later('averaged')
  num_groups: int = _later(8)
  alpha: float = _later(1.0)
  bias_norm: float = _later(1.0)
  weights: str = _later('free')
  floor: float = _later(0.01)
  noise_order: str = _later('1')
  target_quantile: float = _later(0.5)
  count_noise: float = _later(0.05)
  views: int = _later(1)
  average: str = _later('none')
  allow_unsound: bool = _later(False)
  channels: tuple[int, ...] | None = _later(None)
  kernel_size: int = _later(3)
  stride: int = _later(1)
  pool: str = _later('max')
  use_bias: bool = _later(True)
  downsample: int = _later(1)
  pixels: str = _later('signed')
  compute_dtype: str = _later('float32')
  recertify_every: int = _later(1)
  noise: str = _later('gaussian')
  num_canaries: int = _later(0)
  canary_kind: str = _later('mislabelled')
  canary_seed: int | None = _later(None)
  schema: str | None = _later(None)
  noise_seed: int | None = _later(None)

  @property
  def num_slots(self) -> int:
    """The public n of a resolved run: training records plus canary slots."""
    return self.num_examples + self.num_canaries


def check(config: TrainingConfig) -> TrainingConfig:
  """Returns a configuration that can run; raises ValueError if it cannot.

  Nothing is loaded or trained. The error message is one line.
  """
  _check_dataset(config)
  errors.check_choice('method', config.method, METHODS)
  errors.check_positive('epsilon', config.epsilon)
  if config.delta is not None:
    accounting.check_delta(config.delta)
  errors.check_choice('adjacency', config.adjacency,
                      [a.value for a in Adjacency])
  errors.check_choice('accountant', config.accountant, accounting.ACCOUNTANTS)
  for name, choices in (('optimizer', OPTIMIZERS), ('schedule', SCHEDULES),
                        ('allocation', blocks.ALLOCATIONS)):
    if getattr(config, name) is not None:
      errors.check_choice(name, getattr(config, name), choices)
  errors.check_open_unit('test_fraction', config.test_fraction)
  errors.check_seed('seed', config.seed)
  for name in ('split_seed', 'noise_seed'):
    if getattr(config, name) is not None:
      errors.check_seed(name, getattr(config, name))
  errors.check_at_least('num_folds', config.num_folds, 2)
  if config.fold is not None and config.fold not in range(config.num_folds):
    raise ValueError(f'fold must be an integer from 0 to '
                     f'{config.num_folds - 1}, got {config.fold}')
  if config.depth is not None:
    errors.check_at_least('depth', config.depth, 0)
  for name in ('num_examples', 'num_steps', 'max_batch_size',
               'microbatch_size', 'width'):
    if getattr(config, name) is not None:
      errors.check_at_least(name, getattr(config, name), 1)
  for name in ('batch_size', 'delta_power', 'learning_rate', 'clip_norm',
               'weight_norm', 'input_radius', 'hidden_radius', 'logit_clip',
               'temperature', 'alpha', 'bias_norm', 'floor', 'count_noise'):
    if getattr(config, name) is not None:
      errors.check_positive(name, getattr(config, name))
  _check_canaries(config)
  return _check_networks(config)


def _check_dataset(config: TrainingConfig) -> None:
  """Checks that the data set is a known name, or a CSV file with a schema."""
  if config.schema is not None:
    if not user_tables.is_path(config.dataset):
      raise ValueError(f'dataset {config.dataset!r} is not the path of a CSV '
                       'file; give a schema with a CSV file only')
    schema_files.parse(config.schema)
  elif user_tables.is_path(config.dataset):
    raise ValueError(
        f'{config.dataset} needs a public schema: bounds of numbers, '
        'categories, and classes of the label')
  else:
    errors.check_choice('dataset', config.dataset,
                        (*registry.names(), *registry.image_names()))


def _check_canaries(config: TrainingConfig) -> None:
  """Checks the canary fields, which need num_canaries above 0."""
  errors.check_at_least('num_canaries', config.num_canaries, 0)
  errors.check_choice('canary_kind', config.canary_kind, CANARY_KINDS)
  if config.canary_seed is not None:
    errors.check_seed('canary_seed', config.canary_seed)
  if not config.num_canaries and (config.canary_seed is not None or
                                  config.canary_kind != CANARY_KINDS[0]):
    raise ValueError('canary_kind and canary_seed need canaries; '
                     'num_canaries must say how many, and be at least 1')


def _check_networks(config: TrainingConfig) -> TrainingConfig:
  """Checks that model, method and data set fit together."""
  images = config.dataset in registry.IMAGES
  kind = IMAGE_MODELS if images else TABLE_MODELS
  if config.model is not None:
    errors.check_choice(
        f'model on {"images" if images else "tables"}', config.model, kind)
  for name, choices in (('residual', RESIDUALS), ('weights', WEIGHTS),
                        ('average', AVERAGES), ('pool', POOLS),
                        ('pixels', PIXELS),
                        ('compute_dtype', precision.COMPUTE_DTYPES)):
    errors.check_choice(name, getattr(config, name), choices)
  errors.check_open_unit('target_quantile', config.target_quantile)
  for name in ('num_groups', 'views', 'kernel_size', 'stride', 'downsample'):
    errors.check_at_least(name, getattr(config, name), 1)
  for count in config.channels or ():
    errors.check_at_least('channels', count, 1)
  if config.downsample > 1 and not images:
    raise ValueError('downsample needs images; tables have no pixels')
  if config.views > 1 and not images:
    raise ValueError('views of a record are augmented images; tables have '
                     'none')
  if config.views > 1 and config.method not in WITH_VIEWS:
    raise ValueError(f'{config.method} bounds each view by itself, not their '
                     'mean; with views above 1, method must be one of '
                     f'{", ".join(WITH_VIEWS)}')
  if config.compute_dtype != 'float32' and config.method not in IN_ANY_DTYPE:
    raise ValueError(f'{config.method} is bounded in float32 only; with '
                     f'compute_dtype = {config.compute_dtype}, method must be '
                     f'one of {", ".join(IN_ANY_DTYPE)}')
  _check_method(config, images)
  return config


def _check_method(config: TrainingConfig, images: bool) -> None:
  """Checks the fields that depend on the method."""
  errors.check_at_least('recertify_every', config.recertify_every, 1)
  if config.recertify_every > 1 and (config.method not in RECERTIFYING
                                     or config.weights != 'free'):
    raise ValueError('recertify_every above 1 needs weights = free and a '
                     f'method of {", ".join(RECERTIFYING)}')
  if config.method == 'lip_norm' and not images:
    raise ValueError('lip_norm needs images; on tables use lip_dp_sgd')
  if config.method == 'lip_k_norm' and images:
    raise ValueError('lip_k_norm is for perceptrons on tables')
  errors.check_choice('noise_order', config.noise_order, NOISE_ORDERS)
  errors.check_choice('noise', config.noise, NOISES)
  if (config.noise != 'gaussian' and
      config.method in WITHOUT_GAUSSIAN_NOISE):
    raise ValueError(f'{config.method} has no Gaussian noise to put on a '
                     'lattice')
  if config.method == 'lip_printed' and not config.allow_unsound:
    raise ValueError('lip_printed (Algorithm 8) is not private: its epsilon '
                     'does not hold; allow_unsound confirms that you accept '
                     'that')
  if config.method == 'bassily' and config.depth not in (None, 0):
    raise ValueError('bassily trains a linear model: depth must be 0, got '
                     f'{config.depth}')


def resolve(config: TrainingConfig, *, num_available: int) -> TrainingConfig:
  """Returns the configuration with every None replaced by its default.

  With canaries, the default delta, the recipe and the sampling rate use the
  number of slots (public), so the run leaks nothing about the coin flips.

  Args:
    config: a configuration, maybe with fields that are None.
    num_available: number of training records of the data set.

  Raises:
    ValueError: with a message of one line, for more records than available or
      an expected batch larger than the training set.
  """
  check(config)
  num_train = config.num_examples or num_available
  if num_train > num_available:
    raise ValueError(f'num_examples must be at most {num_available}, the '
                     f'training part of {config.dataset}, got {num_train}')
  images = config.dataset in registry.IMAGES
  filled = dict(num_examples=num_train)
  num_slots = num_train + config.num_canaries
  if config.model is None:
    filled['model'] = 'convnet' if images else None
  if config.delta is None:
    filled['delta'] = num_slots**-config.delta_power
  defaults = recipes.recipe(config.method, num_train=num_slots,
                            dataset=config.dataset, images=images)
  for name, value in dataclasses.asdict(defaults).items():
    if getattr(config, name) is None:
      filled[name] = value
  resolved = dataclasses.replace(config, **filled)
  if resolved.batch_size > num_slots:
    slots = ' + num_canaries' if config.num_canaries else ''
    raise ValueError(f'batch_size must be at most num_examples{slots} = '
                     f'{num_slots}, got {resolved.batch_size}')
  return resolved


def release_noise(config: TrainingConfig) -> str:
  """Returns the default noise of a run, one of `NOISES`.

  Releases use noise on a lattice. Runs with a noise_seed are for research and
  use floating-point noise: their seed reveals the noise anyway. The distance of
  lattice noise from Gaussian noise costs e^epsilon times that distance in
  delta. Up to epsilon = 8 this is below 10^-10 for 10^10 released values; for
  epsilon far above 8 it would use up delta.

  Args:
    config: a configuration, resolved or not.
  """
  if (config.noise_seed is None and config.epsilon <= _MOST_ON_LATTICE and
      config.method not in (*WITHOUT_GAUSSIAN_NOISE, 'lip_printed')):
    return 'lattice_gaussian'
  return 'gaussian'
