"""The options of a training run, each declared once.

To add an option, declare a field of `TrainingConfig` at the end of the class,
with `later=True`, and write the function that uses it. The flag of `dpjax
train`, the check of the value, the JSON of the summary and the documentation
follow from the declaration. Rules that join several options are in
`dpjax.runs.configuration`.
"""

import dataclasses
from dataclasses import field

from dpjax import errors
from dpjax.data import registry
from dpjax.grads import precision
from dpjax.lipschitz import pointwise
from dpjax.privacy import accounting
from dpjax.privacy import blocks
from dpjax.privacy.adjacency import Adjacency
from dpjax.runs import settings
from dpjax.runs import training_methods
from dpjax.runs.settings import about
from dpjax.train import averaging
from dpjax.train import clip_norms
from dpjax.train import optimizers

METHODS = tuple(training_methods.METHODS)
WITH_VIEWS = training_methods.having('views')
IN_ANY_DTYPE = training_methods.having('any_dtype')
RECERTIFYING = training_methods.having('recertifies')
TABLE_MODELS = ('mlp', 'orthogonal')
IMAGE_MODELS = ('convnet', 'wide_resnet', 'resnet')
SAMPLERS = ('poisson', 'fixed_size', 'random_allocation', 'cyclic')
WITH_BANDS = ('square_root', 'inverse_square_root', 'optimal_banded')
CORRELATIONS = ('independent', *WITH_BANDS, 'tree', 'optimal_buffered')
FEATURES = ('none', 'unit', 'binned', 'crossed', 'scattering')
LOSSES = ('cross_entropy', 'ordinal')
CANARY_KINDS = ('mislabelled', 'held_out', 'noise', 'blank')

DATA = 'data'
PRIVACY = 'privacy'
NETWORK = 'method and network'
OPTIMISER = 'optimiser'
MACHINE = 'machine'
GROUPS = (DATA, PRIVACY, NETWORK, OPTIMISER, MACHINE)
"""Groups of options, in the order in which help shows them."""

_AT_LEAST_1 = settings.at_least(1)


def _check_delta(name: str, value: float) -> None:
  del name  # the message of accounting names delta
  accounting.check_delta(value)


def _check_channels(name: str, counts: tuple[int, ...]) -> None:
  for count in counts:
    errors.check_at_least(name, count, 1)


@settings.documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
  """Everything a run depends on; None means the recipe's value.

  Every field is public, and printed in the summary of the run. The order of the
  fields is part of the key of a run, so a new field goes to the end.
  """
  dataset: str = field(metadata=about(
      DATA, f'Name of the data set, one of {", ".join(registry.names())}; '
      f'images: {", ".join(registry.image_names())}; or the path of your own '
      'table, which needs a public schema: a CSV file with a header, or '
      'Parquet. A folder or a pattern of Parquet files is streamed, and so is '
      'tfds:NAME, images that TensorFlow Datasets prepared as ArrayRecord '
      'files.'))
  method: str = field(metadata=about(
      NETWORK, 'Training method.', choices=METHODS))
  epsilon: float = field(default=1.0, metadata=about(
      PRIVACY, 'Privacy budget, > 0; sgd does not use it.',
      check=errors.check_positive))
  delta: float | None = field(default=None, metadata=about(
      PRIVACY, 'Probability in [1e-12, 1). Default: 1/n^delta_power with n '
      'training records.', check=_check_delta, filled=True))
  delta_power: float = field(default=1.1, metadata=about(
      PRIVACY, 'Exponent of the default delta; 1.1 keeps delta below 1/n. At '
      '1/n, publishing one record at random would count as private.',
      check=errors.check_positive))
  adjacency: str = field(
      default=Adjacency.ADD_OR_REMOVE_ONE.value, metadata=about(
          PRIVACY, 'Which data sets are neighbours.',
          choices=tuple(one.value for one in Adjacency)))
  accountant: str = field(default='pld', metadata=about(
      PRIVACY, 'Accountant that calibrates the noise and computes epsilon.',
      choices=tuple(accounting.ACCOUNTANTS)))
  num_examples: int | None = field(default=None, metadata=about(
      DATA, 'Number of training records to use. Default: all that are not held '
      'out.', check=_AT_LEAST_1, filled=True))
  test_fraction: float = field(default=0.2, metadata=about(
      DATA, 'Fraction of the records held out at random, in (0, 1).',
      check=errors.check_open_unit))
  num_steps: int | None = field(default=None, metadata=about(
      OPTIMISER, 'Number of training steps. Default: 100 below 2000 records, '
      '400 below 8000, else 800; sgd and bassily at most 400.',
      check=_AT_LEAST_1, filled=True))
  batch_size: float | None = field(default=None, metadata=about(
      OPTIMISER, 'Expected size of a batch, at most num_examples + '
      'num_canaries. Default: half of that, a quarter for images, at most '
      '1024; cyclic and random_allocation divide all records evenly.',
      check=errors.check_positive, filled=True))
  max_batch_size: int | None = field(default=None, metadata=about(
      MACHINE, 'Records processed at once; larger batches are processed in '
      'parts. No effect on results or privacy.', check=_AT_LEAST_1))
  microbatch_size: int | None = field(default=None, metadata=about(
      MACHINE, 'Records whose gradients dp_sgd holds in memory at once. '
      'Default: the whole batch.', check=_AT_LEAST_1))
  depth: int | None = field(default=None, metadata=about(
      NETWORK, 'Number of hidden layers of a perceptron, >= 0; convolutions of '
      'a ConvNet; 6 n + 4 or 6 n + 2 for residual networks. Default: 1, 2 for '
      'images, and 0 with features.', check=settings.at_least(0), filled=True))
  width: int | None = field(default=None, metadata=about(
      NETWORK, 'Units of every hidden layer of a perceptron; units of the '
      'hidden dense layer of a ConvNet; widening factor of a wide residual '
      'network. Default: 16, and 128 for images.', check=_AT_LEAST_1,
      filled=True))
  activation: str | None = field(default=None, metadata=about(
      NETWORK, 'Activation of the hidden layers. Default: tanh, and relu for '
      'images.', choices=pointwise.ACTIVATIONS, filled=True))
  temperature: float | None = field(default=None, metadata=about(
      OPTIMISER, 'Divisor of the logits in the loss. Default: from the method.',
      check=errors.check_positive, filled=True))
  optimizer: str | None = field(default=None, metadata=about(
      OPTIMISER, 'Optimizer applied to the noisy gradient; '
      'noise_corrected_adam takes the variance of the noise out of the second '
      'moment. Default: sgd.', choices=tuple(optimizers.OPTIMIZERS),
      filled=True))
  schedule: str | None = field(default=None, metadata=about(
      OPTIMISER, 'Schedule of the learning rate. Default: cosine.',
      choices=optimizers.SCHEDULES, filled=True))
  learning_rate: float | None = field(default=None, metadata=about(
      OPTIMISER, 'Initial learning rate. Default: from the method.',
      check=errors.check_positive, filled=True))
  clip_norm: float | None = field(default=None, metadata=about(
      NETWORK, 'Clipping methods: l2 bound of one record\'s gradient. Default: '
      'from the number of records.', check=errors.check_positive, filled=True))
  weight_norm: float | None = field(default=None, metadata=about(
      NETWORK, 'Lipschitz methods: bound on the spectral norm of every weight '
      'matrix. Default: from the method.', check=errors.check_positive,
      filled=True))
  input_radius: float | None = field(default=None, metadata=about(
      NETWORK, 'Lipschitz methods: radius of the l2 ball that records are '
      'projected onto. Default: from the method.',
      check=errors.check_positive, filled=True))
  hidden_radius: float | None = field(default=None, metadata=about(
      NETWORK, 'Lipschitz methods: bound on the l2 norm of hidden activations. '
      'Default: from the method.', check=errors.check_positive, filled=True))
  logit_clip: float | None = field(default=None, metadata=about(
      NETWORK, 'Lipschitz methods: bound on the loss gradient of one record at '
      'the logits. Default: from the method.', check=errors.check_positive,
      filled=True))
  allocation: str | None = field(default=None, metadata=about(
      NETWORK, 'Lipschitz methods: how the noise is split over the layers. '
      'Default: optimal.', choices=blocks.ALLOCATIONS, filled=True))
  seed: int = field(default=0, metadata=about(
      DATA, 'Public seed of the split and the initial parameters, >= 0. '
      'Batches and noise do not depend on it.', check=errors.check_seed))
  split_seed: int | None = field(default=None, metadata=about(
      DATA, 'Seed of the split, >= 0. Default: seed.',
      check=errors.check_seed, later=True))
  fold: int | None = field(default=None, metadata=about(
      DATA, 'Number of a fold of the training part, from 0, which is left out '
      'of training and evaluated on. Default: train on all records that are '
      'not held out, and evaluate on those held out.', later=True))
  num_folds: int = field(default=5, metadata=about(
      DATA, 'Number of folds of equal size.', check=settings.at_least(2),
      later=True))
  model: str | None = field(default=None, metadata=about(
      NETWORK, 'Network: mlp (default) or orthogonal for tables and features, '
      'convnet (default), wide_resnet or resnet for images. orthogonal is a '
      'perceptron that keeps norms, see `models.mlp`.',
      choices=TABLE_MODELS + IMAGE_MODELS, later=True, filled=True))
  residual: str = field(default='averaged', metadata=about(
      NETWORK, 'Residual networks: whether sums of branches are halved. Plain '
      'sums double certified bounds at every block.',
      choices=('averaged', 'plain'), later=True))
  num_groups: int = field(default=8, metadata=about(
      NETWORK, 'Image models: number of channel groups of normalisation '
      'layers.', check=_AT_LEAST_1, later=True))
  alpha: float = field(default=1.0, metadata=about(
      NETWORK, 'lip_norm: smallest standard deviation that normalisation '
      'layers divide by (NET-07); their Lipschitz constant is 1/alpha.',
      check=errors.check_positive, later=True))
  bias_norm: float = field(default=1.0, metadata=about(
      NETWORK, 'lip_propagated: bound on the l2 norm of biases.',
      check=errors.check_positive, later=True))
  weights: str = field(default='free', metadata=about(
      NETWORK, 'Parametrisation of kernels: free parameters, or a function of '
      'them (REG-02, SPEC-08).',
      choices=('free', 'standardised', 'orthogonal'), later=True))
  floor: float = field(default=0.01, metadata=about(
      NETWORK, 'lip_normalised: smallest divisor of a record\'s gradient.',
      check=errors.check_positive, later=True))
  noise_order: str = field(default='1', metadata=about(
      PRIVACY, 'lip_k_norm: p of the lp norm in the noise density.',
      choices=('1', 'inf'), later=True))
  target_quantile: float = field(default=0.5, metadata=about(
      NETWORK, 'Adaptive methods: target fraction of records within the '
      'radius, in (0, 1).', check=errors.check_open_unit, later=True))
  count_noise: float = field(default=0.05, metadata=about(
      PRIVACY, 'Adaptive methods: standard deviation of the noise on each '
      'count, as a fraction of the expected batch size.',
      check=errors.check_positive, later=True))
  views: int = field(default=1, metadata=about(
      DATA, 'Images: number of augmented views (crop and flip) of each record '
      'in each step (REG-04).', check=_AT_LEAST_1, later=True))
  average: str = field(default='none', metadata=about(
      OPTIMISER, 'Which average of the parameters is evaluated and written.',
      choices=('none', *averaging.NAMES), later=True))
  allow_unsound: bool = field(default=False, metadata=about(
      PRIVACY, 'Confirms that you accept that lip_printed (Barczewski, 2025, '
      'Algorithm 8 as printed) is not private. Its summary has epsilon_valid = '
      'false.', later=True))
  channels: tuple[int, ...] | None = field(default=None, metadata=about(
      NETWORK, 'ConvNet: channels of each convolution. Default: 32, then 64, '
      'depth in all.', check=_check_channels, later=True))
  kernel_size: int = field(default=3, metadata=about(
      NETWORK, 'ConvNet: side of the kernels.', check=_AT_LEAST_1, later=True))
  stride: int = field(default=1, metadata=about(
      NETWORK, 'ConvNet: stride of the convolutions.', check=_AT_LEAST_1,
      later=True))
  pool: str = field(default='max', metadata=about(
      NETWORK, 'ConvNet: pooling after the last convolution.',
      choices=('max', 'average', 'none'), later=True))
  use_bias: bool = field(default=True, metadata=about(
      NETWORK, 'ConvNet: whether its layers have biases.', later=True))
  downsample: int = field(default=1, metadata=about(
      DATA, 'Images: side, in pixels, of the square blocks that images are '
      'averaged over; 1 changes nothing.', check=_AT_LEAST_1, later=True))
  pixels: str = field(default='signed', metadata=about(
      DATA, 'Images: signed scales pixels to [-1, 1], unsigned to [0, 1].',
      choices=('signed', 'unsigned'), later=True))
  compute_dtype: str = field(default='float32', metadata=about(
      MACHINE, f'{", ".join(IN_ANY_DTYPE)}: data type of the network during '
      'training. Parameters, norms, sums and noise stay float32, and so does '
      'the evaluation. For accelerators; slower on CPU.',
      choices=precision.COMPUTE_DTYPES, later=True))
  recertify_every: int = field(default=1, metadata=about(
      MACHINE, f'{", ".join(RECERTIFYING)}: steps between projections of the '
      'weights of layers whose norm does not affect the noise scale, such as '
      'the first layer of a perceptron with balls. Saves time if that layer is '
      'wide.', check=_AT_LEAST_1, later=True))
  noise: str = field(default='gaussian', metadata=about(
      PRIVACY, 'gaussian adds floating-point noise. lattice_gaussian adds '
      'integer noise to rounded sums, so the release follows the theorem, '
      'except for float32 rounding within the sums.',
      choices=('gaussian', 'lattice_gaussian'), later=True))
  num_canaries: int = field(default=0, metadata=about(
      PRIVACY, 'Number of extra slots for dpjax audit --target=run (AUD-06). A '
      'fair coin flip per slot decides whether it holds a canary. Sampling, '
      'default delta and claim count all slots as records. Several hundred '
      'give the strongest audits.', check=settings.at_least(0), later=True))
  canary_kind: str = field(default=CANARY_KINDS[0], metadata=about(
      PRIVACY, 'Kind of canaries: held-out records with a wrong label or '
      'unchanged, which are then not used for evaluation; uniform noise or one '
      'constant for all features, with a random label.', choices=CANARY_KINDS,
      later=True))
  canary_seed: int | None = field(default=None, metadata=about(
      PRIVACY, 'Seed of canaries and coin flips, >= 0; it reveals which '
      'canaries are included. Default: noise_seed if given, else the random '
      'source of the system.', check=errors.check_seed, later=True))
  schema: str | None = field(default=None, metadata=about(
      DATA, 'Public schema of your own table, as JSON in the format of '
      '`data.schema_files`.', later=True))
  noise_seed: int | None = field(default=None, metadata=about(
      PRIVACY, 'For research only: seed of batches, noise and the canaries\' '
      'coin flips, >= 0, which makes the run reproducible. Anyone who knows or '
      'guesses it can subtract the noise, so the summary has epsilon_valid = '
      'false. Default: the random source of the system; two runs of one '
      'configuration are then two releases.', check=errors.check_seed,
      later=True))
  clip_blocks: str = field(default='whole', metadata=about(
      NETWORK, 'dp_sgd_adaptive: whether one clip norm adapts, for the whole '
      'gradient, or one for each layer.', choices=clip_norms.BLOCKS,
      later=True))
  stream: bool = field(default=False, metadata=about(
      DATA, 'Whether records of your own Parquet files are read from disk '
      'during training, so that memory does not grow with their number. The '
      'split is another one than in memory.', later=True))
  sampler: str = field(default='poisson', metadata=about(
      PRIVACY, 'How batches are drawn. poisson: each record with the same '
      'probability; fixed_size: uniform subsets, with replace_one; '
      'random_allocation: each record in one uniform batch of an epoch, with '
      'add_or_remove_one; cyclic: random groups of records take turns.',
      choices=SAMPLERS, later=True))
  sampler_groups: int | None = field(default=None, metadata=about(
      PRIVACY, 'cyclic: number of groups. Default: as many as batch_size '
      'allows.', check=_AT_LEAST_1, later=True, filled=True))
  correlation: str = field(default='independent', metadata=about(
      PRIVACY, 'Strategy that correlates the noise of the steps, so that later '
      'noise takes back a part of earlier noise; with the sampler cyclic. '
      'dpjax plan compares them. optimal_... need dpjax[matrix].',
      choices=CORRELATIONS, later=True))
  bands: int | None = field(default=None, metadata=about(
      PRIVACY, f'{", ".join(WITH_BANDS)}: number of bands; bands - 1 copies of '
      'the parameters are kept. Default: sampler_groups, at most num_steps.',
      check=_AT_LEAST_1, later=True, filled=True))
  user_column: str | None = field(default=None, metadata=about(
      DATA, 'Your own table: column with the id of the user whom a record '
      'belongs to, compared as text. Neighbouring data sets then differ by a '
      'user with all their records; num_examples, batch_size, clip_norm and '
      'test_fraction are of users.', later=True))
  user_records: int | None = field(default=None, metadata=about(
      DATA, 'With user_column: largest number of records that represent a '
      'user, the first ones in the file. Choose it without looking at the '
      'data. Default: 10.', check=_AT_LEAST_1, later=True, filled=True))
  features: str = field(default='none', metadata=about(
      DATA, 'Fixed features in the place of records, for a perceptron, by '
      'default a linear model; all have norm 1. Of tables: unit, the columns; '
      'binned, the columns and bins of each; crossed, bins of columns and of '
      'pairs of columns. Of images: scattering, averages of wavelet moduli.',
      choices=FEATURES, later=True))
  branch_share: float | None = field(default=None, metadata=about(
      NETWORK, 'model = orthogonal: weight in (0, 1) of every hidden layer but '
      'the first in a mean with its input. Default: a plain chain of layers.',
      check=errors.check_open_unit, later=True))

  loss: str = field(default=LOSSES[0], metadata=about(
      OPTIMISER, 'Loss function. ordinal is for classes in an order, that of '
      'the schema: the network gives one score, and public cuts between the '
      'classes are 1 apart (the proportional odds model).', choices=LOSSES,
      later=True))

  @property
  def num_slots(self) -> int:
    """The public n of a resolved run: training records plus canary slots."""
    return settings.known(self.num_examples) + self.num_canaries
