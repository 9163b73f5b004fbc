"""Settings of the benchmarks: suites, with networks, sizes and methods."""

from collections.abc import Iterable, Sequence
import dataclasses
from typing import NamedTuple

from experiments.benchmarks import architectures
from experiments.benchmarks import layers
from experiments.benchmarks import methods
from experiments.benchmarks import network_names

NAME = 'benchmarks'
BATCHED = ('method', 'num_devices')
SUITES = {
    'step': 'a training step of dpjax and of other libraries, over L',
    'memory': 'peak memory of a step, minus resident memory before it',
    'scaling': 'a step with its batch over several devices, over one device',
    'compile': 'seconds of tracing and compiling, and whether it recurs',
    'norms': 'gradient norms and clipped sums of single layers',
    'sampling': 'Poisson batches and noise by generator',
    'loop': 'a step inside a whole training run, for every method',
    'estimators': 'repetitions of a private estimate, each on its own records',
    'quantiles': 'a release of private quantiles, beside published algorithms',
    'curves': 'smoothing, release and secure comparison of distribution '
              'functions',
    'densities': 'repetitions of a private density, each on its own counts',
    'parametric': 'repetitions of an estimator of a parameter, each on its own '
                  'sufficient statistic',
    'replicas': 'training of 16 networks at once, beside one large batch',
    'butterfly': 'products of square butterflies with 64 vectors, beside dense '
                 'matrices',
    'models': 'clipping of networks of today, beside a step without privacy',
    'stream': 'steps on records that are read while training, within 2 GB of '
              'memory, beside records in memory',
}
DEVICES = (1, 2, 4, 8)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One method at one size.

  Attributes:
    suite: one of `SUITES`.
    model: name of the network; in norms the layer, in sampling 'noise' or
      'poisson', in loop the training run, in estimators the statistic, in
      quantiles mechanism and number of levels, in curves the operation, in
      densities the estimator, in butterfly 'product' or 'gradients', in stream
      where records come from.
    size: batch size, in replicas of each network; in sampling the number of
      values or records, in estimators, quantiles and densities the records of a
      repetition, in curves the thresholds or keys, in butterfly the length of a
      vector, in stream the records of the data.
    method: name of the method.
    num_devices: number of devices over which the batch is divided.
  """
  suite: str
  model: str
  size: int
  method: str
  num_devices: int = 1

  @property
  def seed(self) -> int:
    """Returns 0, the seed that all rows of a benchmark carry."""
    return 0

  @property
  def dataset(self) -> str:
    """Returns the model, which fills the data-set column of the rows."""
    return self.model


class LoopWork(NamedTuple):
  """A training run on synthetic records."""
  num_examples: int
  num_features: int
  width: int
  num_steps: int
  depth: int = 1
  num_runs: int = 1


LOOP_WORK = {
    'quickstart': LoopWork(455, 30, 16, 2000),
    'quickstart_of_ten': LoopWork(455, 30, 16, 2000, num_runs=10),
    'adult': LoopWork(30_000, 108, 64, 400),
    'tiny_loop': LoopWork(40, 3, 4, 40),
}
"""Work of `--suite=loop`; its sizes are expected batch sizes."""

_SIZES = {
    'mlp': (256, 2048), 'cnn': (256, 2048), 'conv3': (256, 2048),
    'convnet': (256,), 'wrn_16_4': (32,), 'dense_stack': (64,),
    'quickstart': (227,), 'quickstart_of_ten': (227,), 'adult': (1024,),
    **dict.fromkeys(methods.ESTIMATED, (1000,)),
    **dict.fromkeys(methods.QUANTILE_MODELS, (10**4,)),
    **dict.fromkeys(('independent_1', 'joint_8', 'joint_30', 'recursive_127'),
                    (10**3, 10**4, 10**5)),
    **dict.fromkeys(methods.DENSITY_MODELS, (10**6,)),
    **dict.fromkeys(methods.PARAMETRIC_MODELS, (10**4,)),
    **dict.fromkeys(methods.BUTTERFLY_MODELS,
                    tuple(4**power for power in range(3, 9))),
    'squares': (2**10, 2**13, 2**15, 2**18, 2**20),
    'absolute': (2**10, 2**12, 2**15),
    'release_tree': (2**10, 2**15), 'release_square_root': (2**10, 2**15),
    'comparison': (10**3, 10**4), 'comparison_everywhere': (10**3, 45_211),
    **dict.fromkeys(methods.STREAM_MODELS, (64_000, 640_000, 6_400_000)),
    'noise': (10**4, 10**5, 10**6), 'poisson': (10**4, 10**5, 10**6),
    'resnet20_bfloat16': (256,), 'resnet20_float32': (256,),
    'tiny_resnet8': (8,),
    'tiny_mlp': (8,), 'tiny_cnn': (8,), 'tiny_resnet': (8,),
    'tiny_stack': (8,), 'tiny_loop': (10,),
    **{name: (8,) if name.startswith('tiny') else (64,)
       for name in layers.LAYERS},
}
_LARGE = ('mlp', 'cnn', 'conv3', 'convnet', 'wrn_16_4', 'dense_stack')
_MODELS = {
    'step': _LARGE, 'memory': _LARGE, 'compile': _LARGE,
    'scaling': ('mlp', 'convnet'),
    'norms': tuple(name for name in layers.LAYERS
                   if not name.startswith('tiny')),
    'sampling': ('noise', 'poisson'),
    'loop': ('quickstart', 'quickstart_of_ten', 'adult'),
    'estimators': methods.ESTIMATED,
    'quantiles': methods.QUANTILE_MODELS,
    'curves': methods.CURVE_MODELS,
    'densities': methods.DENSITY_MODELS,
    'parametric': methods.PARAMETRIC_MODELS,
    'replicas': methods.REPLICA_MODELS[:1],
    'butterfly': methods.BUTTERFLY_MODELS,
    'models': network_names.LARGE,
    'stream': methods.STREAM_MODELS,
}
_ON_CPU = {
    'replicas': methods.REPLICA_MODELS[-1:],
    'models': tuple(name for name in network_names.NETWORKS
                    if name not in network_names.LARGE),
}
"""Models by default on CPUs, where those above would take hours."""

_WITHOUT_YNN = ('limit', 'ours', 'vmap_scaled_sum', 'jax_privacy',
                'jax_privacy_microbatch')
_METHODS = {
    'step': (*methods.STEPS, *(f'{name}@noynn' for name in _WITHOUT_YNN)),
    'memory': ('nonprivate', 'limit', 'lip', 'ours', 'ours_per_layer',
               'ours_microbatch', 'vmap', 'jax_privacy@noynn',
               'jax_privacy_microbatch@noynn', 'torch', 'opacus_hooks',
               'opacus_ghost'),
    'scaling': ('limit', 'lip', 'ours', 'vmap'),
    'compile': ('nonprivate', 'limit', 'lip', 'ours', 'ours_per_layer', 'vmap',
                'jax_privacy', 'jax_privacy_microbatch'),
    'norms': tuple(methods.NORMS),
    'sampling': tuple(methods.DRAWS),
    'loop': methods.LOOPS,
    'estimators': tuple(methods.ESTIMATORS),
    'quantiles': tuple(methods.QUANTILES),
    'curves': tuple(methods.CURVES),
    'densities': tuple(methods.DENSITIES),
    'parametric': tuple(methods.PARAMETRIC),
    # Each size compiles for half a minute; other sizes must be asked for.
    'replicas': ('large', 'pack_1', 'pack_4', 'pack_8', 'vmap'),
    'butterfly': tuple(methods.BUTTERFLY),
    'models': tuple(methods.NETWORK_STEPS),
    'stream': tuple(methods.STREAMS),
}
_REPEATED = (('independent_1', 10**4), ('joint_8', 10**4), ('joint_30', 10**3),
             ('recursive_127', 10**4), ('histogram_30', 10**4),
             ('tree_30', 10**4))
"""Models and sizes at which `ours_repeated` is measured by default."""

_SMOKE = {
    'step': ('tiny_mlp', ('limit', 'ours', 'vmap', 'jax_privacy',
                          'opacus_ghost')),
    'memory': ('tiny_mlp', ('limit', 'ours')),
    'scaling': ('tiny_mlp', ('ours',)),
    'compile': ('tiny_mlp', ('limit', 'ours')),
    'norms': ('tiny_layer', tuple(methods.NORMS)),
    'sampling': ('noise', ('threefry', 'ours')),
    'loop': ('tiny_loop', ('sgd', 'dp_sgd')),
    'estimators': ('proportion', ('numpy', 'ours')),
    'quantiles': ('independent_1', ('published', 'ours')),
    'curves': ('comparison', ('numpy', 'ours')),
    'densities': ('heights', ('numpy', 'ours')),
    'parametric': ('share_geometric', ('numpy', 'ours')),
    'replicas': ('tiny_resnet8', ('large', 'pack_4')),
    'butterfly': ('product', ('dense', 'ours')),
    'models': ('tiny_gpt_scan', ('plain', 'ours', 'vmap')),
    'stream': ('computed', tuple(methods.STREAMS)),
}
_SMOKE_SIZES = {'sampling': (1000,), 'estimators': (50,), 'quantiles': (50,),
                'curves': (50,), 'densities': (50,), 'parametric': (50,),
                'replicas': (2,), 'butterfly': (64,), 'models': (4,),
                'stream': (3000,)}
_UNITS = {'step': methods.LIMITS, 'memory': ('limit',),
          'norms': ('gram', 'kept'), 'sampling': ('threefry',),
          'loop': ('sgd',), 'estimators': ('numpy',),
          'quantiles': ('published',), 'densities': ('numpy',),
          'parametric': ('numpy',), 'replicas': ('large',),
          'butterfly': ('dense',), 'stream': ('memory',),
          'curves': tuple(name for name in methods.CURVES if name != 'ours')}


def settings(suite: str, *, models: Sequence[str] = (),
             sizes: Sequence[int] = (), names: Sequence[str] = (),
             smoke: bool = False, cpu: bool = True) -> tuple[Setting, ...]:
  """Returns the settings of a command line, with defaults for the rest.

  Args:
    suite: one of `SUITES`.
    models: names of networks or other work; empty for the defaults.
    sizes: batch sizes; empty for the defaults.
    names: names of methods; empty for the defaults.
    smoke: True for tiny defaults.
    cpu: False leaves out methods with flags for CPUs, and takes networks for
      accelerators by default.

  Raises:
    ValueError: if a name is unknown.
  """
  if smoke:
    model, own = _SMOKE[suite]
    models, names = models or (model,), names or own
    sizes = sizes or _SMOKE_SIZES.get(suite, ())
  unasked = [] if names else ['ours_repeated']
  models = models or (cpu and _ON_CPU.get(suite)) or _MODELS[suite]
  _check_models(suite, models)
  names = [name for name in names or _METHODS[suite]
           if cpu or '@' not in name]
  for name in names:
    methods.find(suite, name)
  devices = (DEVICES[:2] if smoke else DEVICES) if suite == 'scaling' else (1,)
  return tuple(
      Setting(suite=suite, model=model, size=size, method=name,
              num_devices=count)
      for model in models for size in sizes or _default_sizes(suite, model)
      for name in names for count in devices
      if not methods.inapplicable(suite, name, model, size)
      and (name not in unasked or (model, size) in _REPEATED))


def _default_sizes(suite: str, model: str) -> tuple[int, ...]:
  """Returns default sizes: the largest alone for compiling, memory, scaling."""
  if suite == 'models':
    described = network_names.find(model)
    return (described.size,) if described else ()
  return _SIZES[model][-1:] if suite in ('compile', 'memory',
                                         'scaling') else _SIZES[model]


def _check_models(suite: str, models: Iterable[str]) -> None:
  """Raises a ValueError for a model that the suite does not have."""
  allowed = {'norms': tuple(layers.LAYERS), 'sampling': ('noise', 'poisson'),
             'estimators': methods.ESTIMATED,
             'quantiles': methods.QUANTILE_MODELS, 'loop': tuple(LOOP_WORK),
             'curves': methods.CURVE_MODELS,
             'densities': methods.DENSITY_MODELS,
             'parametric': methods.PARAMETRIC_MODELS,
             'replicas': methods.REPLICA_MODELS,
             'stream': methods.STREAM_MODELS,
             'butterfly': methods.BUTTERFLY_MODELS,
             'models': tuple(network_names.NETWORKS)}.get(
                 suite, tuple(architectures.MODELS))
  for model in models:
    known = model if suite != 'models' else model.removeprefix(
        network_names.TINY)
    if known not in allowed:
      raise ValueError(f'models of --suite={suite} must be among '
                       f'{", ".join(allowed)}; got {model!r}')


def units(setting: Setting, *, cpu: bool = True) -> tuple[Setting, ...]:
  """Returns settings; the fastest of them is the unit of this one's ratios."""
  if setting.suite == 'scaling':
    return (dataclasses.replace(setting, num_devices=1),)
  return tuple(dataclasses.replace(setting, method=name)
               for name in _UNITS.get(setting.suite, ())
               if (cpu or '@' not in name) and not methods.inapplicable(
                   setting.suite, name, setting.model, setting.size)
               and not methods.missing(setting.suite, name))


def runnable(settings_: Sequence[Setting]
             ) -> tuple[tuple[Setting, ...], list[str]]:
  """Returns the settings that can run here, and lines on those that cannot."""
  reasons = {setting.method: methods.missing(setting.suite, setting.method)
             for setting in settings_}
  kept = tuple(setting for setting in settings_ if not reasons[setting.method])
  by_reason: dict[str, list[str]] = {}
  for name, reason in reasons.items():
    if reason:
      by_reason.setdefault(reason, []).append(name)
  return kept, [f'skipping {", ".join(names)}: {reason}'
                for reason, names in sorted(by_reason.items())]
