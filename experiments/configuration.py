"""What a training run depends on, as one frozen value."""

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
from experiments import recipes

CLIPPING_METHODS = ('dp_sgd', 'dp_sgd_vmap', 'dp_sgd_per_layer',
                    'dp_sgd_automatic', 'dp_sgd_adaptive', 'layer_clipped')
LIPSCHITZ_METHODS = ('lip_dp_sgd', 'fix_lip_dp_sgd', 'lip_normalised',
                     'lip_propagated', 'lip_norm', 'lip_adaptive',
                     'lip_k_norm', 'bassily')
METHODS = ('sgd', *CLIPPING_METHODS, *LIPSCHITZ_METHODS, 'lip_printed')
# Methods whose bound is of a record's whole contribution or proved from its
# cotangents, so that it holds for a mean over views.
WITH_VIEWS = tuple(name for name in METHODS
                   if name not in ('layer_clipped', 'lip_printed',
                                   'lip_adaptive'))
# Methods whose bound does not hang on how the network is computed.
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
_MOST_ON_LATTICE = 8.0
CANARY_KINDS = ('mislabelled', 'held_out', 'noise', 'blank')


def _later(default: Any, *, filled: bool = False) -> Any:
  """A field that came after rows were published, see `run_keys`.

  `filled` says that None is not a value of its own: `resolve` replaces it.
  """
  return dataclasses.field(default=default,
                           metadata={'later': True, 'filled': filled})


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
  """Everything a run depends on; None stands for the recipe's value.

  Attributes:
    dataset: a name of `data.registry`, a table or images; or the path of a
      table of one's own, which has a schema.
    method: one of `METHODS`.
    epsilon: target; not used by 'sgd'.
    delta: a number, or None for n^-delta_power with n training records.
    delta_power: 1.1 keeps delta below 1/n, where releasing one record at
      random would be called private.
    adjacency: a value of `Adjacency`.
    accountant: 'pld' or 'rdp', for calibration and the reported epsilon.
    num_examples: training records to use; None for all that are not held out.
    test_fraction: share held out, at random for each split seed.
    split_seed: of the split; None for `seed`.
    fold: None to train on all that is not held out and to evaluate on what
      is; or which fold of the former to leave out and evaluate on.
    num_folds: equal parts that `fold` counts.
    model: one of `MODELS`; None for the perceptron on tables, the ConvNet on
      images.
    residual: how residual sums are made, one of `RESIDUALS`.
    num_groups: of normalisations.
    alpha: of Lipschitz normalisations, see NET-07.
    bias_norm: 'lip_propagated' bounds every bias to this l2 norm.
    weights: what the kernels are, one of `WEIGHTS` (REG-02, SPEC-08).
    floor: 'lip_normalised' divides by no less than this.
    noise_order: p of 'lip_k_norm', one of `NOISE_ORDERS`.
    target_quantile: of the methods whose radii adapt.
    count_noise: their noise on each count, over the expected batch size.
    views: augmented views of an image in each step (REG-04).
    average: which average of the parameters is evaluated, one of `AVERAGES`.
    allow_unsound: that 'lip_printed' is not private is known.
    num_steps: of training.
    batch_size: expected size of a Poisson batch.
    max_batch_size: rows computed at once.
    microbatch_size: records that dp_sgd works on at once.
    depth: hidden layers; convolutions of a ConvNet; 6 n + 4 or 6 n + 2 of
      the residual networks.
    width: units of each; of the hidden dense layer of a ConvNet; widening of
      a wide residual network.
    channels: of each convolution of a ConvNet; None: 32, then 64, `depth` in
      all.
    kernel_size: of a ConvNet's convolutions.
    stride: of a ConvNet's convolutions.
    pool: of a ConvNet, after the last convolution, one of `POOLS`.
    use_bias: of a ConvNet's layers.
    downsample: images are averaged over blocks of so many pixels squared.
    pixels: the range that they are scaled to, one of `PIXELS`: [-1, 1] or
      [0, 1].
    compute_dtype: of the network while it trains, one of
      `precision.COMPUTE_DTYPES`; it is evaluated in float32.
    recertify_every: steps between norms that no sensitivity reads, of the
      methods in `RECERTIFYING`.
    noise: one of `NOISES`: of floats, or exact on a lattice.
    activation: of the hidden layers.
    temperature: of the cross entropy.
    optimizer: one of `OPTIMIZERS`.
    schedule: of the learning rate, one of `SCHEDULES`.
    learning_rate: at the start.
    clip_norm: dp_sgd's bound on a record's gradient.
    weight_norm: the bound of the Lipschitz methods on each weight matrix.
    input_radius: their ball for records.
    hidden_radius: their ball for hidden activations.
    logit_clip: their bound on a record's cotangent at the logits.
    allocation: their split of the noise over layers.
    seed: of the split and the initial parameters; public.
    noise_seed: None draws batches, noise, views and coins of canaries from the
      random source of the system, as a release needs. An integer draws them
      from it, so that the run can be made again: for research, because whoever
      knows or guesses it takes the noise off.
    num_canaries: slots beside the records, each with a canary by a coin of its
      own (AUD-06), see `experiments.canaries`.
    canary_kind: what canaries are, one of `CANARY_KINDS`.
    canary_seed: of canaries and coins; None for the system's random source,
      or for `seed` if there is a noise_seed.
    schema: of a table of one's own, as `data.schema_files` spells it.
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
    """The public n of a resolved run: records, and slots of canaries."""
    return self.num_examples + self.num_canaries


def check(config: TrainingConfig) -> TrainingConfig:
  """Refuses a configuration that cannot run, in one line, at no cost."""
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
  if config.schema is not None:
    if not user_tables.is_path(config.dataset):
      raise ValueError(f'dataset {config.dataset!r} is no path of a CSV file, '
                       'and a schema is of such a file')
    schema_files.parse(config.schema)
  elif user_tables.is_path(config.dataset):
    raise ValueError(
        f'{config.dataset} needs a public schema: bounds of numbers, '
        'categories, and classes of the label')
  else:
    errors.check_choice('dataset', config.dataset,
                        (*registry.names(), *registry.image_names()))


def _check_canaries(config: TrainingConfig) -> None:
  errors.check_at_least('num_canaries', config.num_canaries, 0)
  errors.check_choice('canary_kind', config.canary_kind, CANARY_KINDS)
  if config.canary_seed is not None:
    errors.check_seed('canary_seed', config.canary_seed)
  if not config.num_canaries and (config.canary_seed is not None or
                                  config.canary_kind != CANARY_KINDS[0]):
    raise ValueError('canary_kind and canary_seed are of canaries; '
                     'num_canaries must say how many')


def _check_networks(config: TrainingConfig) -> TrainingConfig:
  """What method and model ask of each other."""
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
    raise ValueError('downsample is of images; tables have no pixels')
  if config.views > 1 and not images:
    raise ValueError('views of a record are augmented images; tables have '
                     'none')
  if config.views > 1 and config.method not in WITH_VIEWS:
    raise ValueError(f'{config.method} bounds each view by itself, not their '
                     f'mean; with views, one of {", ".join(WITH_VIEWS)}')
  if config.compute_dtype != 'float32' and config.method not in IN_ANY_DTYPE:
    raise ValueError(f'{config.method} bounds products of float32; in '
                     f'{config.compute_dtype}, one of '
                     f'{", ".join(IN_ANY_DTYPE)}')
  _check_method(config, images)
  return config


def _check_method(config: TrainingConfig, images: bool) -> None:
  """What a method asks of the rest."""
  errors.check_at_least('recertify_every', config.recertify_every, 1)
  if config.recertify_every > 1 and (config.method not in RECERTIFYING
                                     or config.weights != 'free'):
    raise ValueError('recertify_every is for free weights and one of '
                     f'{", ".join(RECERTIFYING)}')
  if config.method == 'lip_norm' and not images:
    raise ValueError('lip_norm normalises images; on tables use lip_dp_sgd')
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
                     'does not hold; allow_unsound says that you know')
  if config.method == 'bassily' and config.depth not in (None, 0):
    raise ValueError('bassily trains a linear model: depth must be 0, got '
                     f'{config.depth}')


def resolve(config: TrainingConfig, *, num_available: int) -> TrainingConfig:
  """Fills in what the configuration leaves to its recipe.

  With canaries the number of records that default delta, recipe and sampling
  go by is that of the slots: what a run may depend on of the coins is nothing.

  Args:
    config: maybe with None in places.
    num_available: training records there are.

  Raises:
    ValueError: one line, for more records than there are or a batch larger
      than the training set.
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
  """Returns the noise of `NOISES` that a run uses unless told otherwise.

  On a lattice for releases: of a run with a noise_seed, which is for research,
  the noise comes off anyway. Its difference from Gaussian noise is paid for out
  of delta, e^epsilon times; up to an epsilon of 8 that is less than 10^-10 for
  10^10 released values, and far beyond nothing is left of delta.

  Args:
    config: resolved or not.
  """
  if (config.noise_seed is None and config.epsilon <= _MOST_ON_LATTICE and
      config.method not in (*WITHOUT_GAUSSIAN_NOISE, 'lip_printed')):
    return 'lattice_gaussian'
  return 'gaussian'
