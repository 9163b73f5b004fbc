"""Names of the measured methods, and the packages that they need.

A name may end in a set of XLA flags, as in `ours@noynn`.
"""

import importlib.util
from typing import NamedTuple

from experiments.benchmarks import architectures
from experiments.benchmarks import network_names


class Method(NamedTuple):
  """A method to measure.

  Attributes:
    maker: name of the module that makes its program.
    about: description of the method.
    packages: names of the packages that must be installed.
  """
  maker: str
  about: str
  packages: tuple[str, ...] = ()


XLA_FLAGS = {
    'noynn': ('--xla_cpu_experimental_ynn_fusion_type='
              'LIBRARY_FUSION_TYPE_DOT'),
}
"""Sets of XLA flags. On jaxlib 0.10.2 YNN fusions make scaled sums slow."""

STEPS = {
    'nonprivate': Method('jax_steps', 'JAX, no privacy'),
    'limit': Method('jax_steps', 'the same and one draw of our noise: L'),
    'limit_normal': Method('jax_steps', 'the same, jax.random.normal: L'),
    'limit_microbatch': Method('jax_steps', 'the same as limit, with the plain '
                               'sums of dpjax, maybe in microbatches: L'),
    'lip': Method('jax_steps', 'Lip-DP-SGD: no clipping, noise, projection'),
    'lip_rarely': Method('jax_steps', 'the same, with norms that no '
                         'sensitivity uses updated every 32 steps'),
    'ours': Method('jax_steps', 'dpjax, one clip norm'),
    'ours_release': Method('jax_steps', 'the same in release mode: exact noise '
                           'on a lattice, keys of 256 bits'),
    'ours_per_layer': Method('jax_steps', 'dpjax, a clip norm for each layer'),
    'ours_microbatch': Method('jax_steps', 'the same as ours, 1/16 of the '
                              'batch or 32 records at a time'),
    'ours_views': Method('jax_steps', 'the same as ours, on as many images: '
                         '16 random crops of each record'),
    'ours_norms': Method('jax_steps', 'dpjax, norms of gradients only'),
    'vmap': Method('jax_steps', 'jax.vmap(jax.grad), contracted'),
    'vmap_scaled_sum': Method('jax_steps',
                              'jax.vmap(jax.grad), (c * g).sum(0)'),
    'jax_privacy': Method('jax_peers', 'jax_privacy.clipped_grad',
                          ('jax_privacy',)),
    'jax_privacy_microbatch': Method(
        'jax_peers', 'the same, 1/16 of the batch or 32 records at a time',
        ('jax_privacy',)),
    'torch': Method('torch_steps', 'PyTorch, no privacy', ('torch',)),
    'opacus_hooks': Method('torch_steps', 'Opacus, hooks',
                           ('torch', 'opacus')),
    'opacus_ghost': Method('torch_steps', 'Opacus, ghost clipping',
                           ('torch', 'opacus')),
}
LIMITS = ('limit', 'limit_normal', 'limit_microbatch', 'limit@noynn')
"""Methods without clipping; the fastest of them sets the reference time L."""

PER_LAYER = ('ours_per_layer',)
BASELINES = ('nonprivate', 'torch')
"""Methods without noise."""

DRAWS = {
    'threefry': Method('draws', 'jax.random.normal, threefry'),
    'rbg': Method('draws', 'jax.random.normal, rbg'),
    'unsafe_rbg': Method('draws', 'jax.random.normal, unsafe_rbg'),
    'ours': Method('draws', 'dpjax, 2^32 outcomes'),
    'ours_rbg': Method('draws', 'dpjax, 2^32 outcomes, words by rbg'),
    'ours_lattice': Method('draws', 'dpjax, exact, on a lattice'),
    'ours_chacha': Method('draws', 'dpjax, 2^32 outcomes, words by ChaCha'),
    'ours_release': Method('draws', 'dpjax, exact, on a lattice, by ChaCha'),
    'numpy': Method('draws', 'NumPy, PCG64'),
    'torch': Method('draws', 'PyTorch', ('torch',)),
}
"""Methods that draw noise, or a Poisson batch; torch draws noise only."""

HOST_DRAWS = ('numpy', 'torch')
"""Methods that draw without JAX."""

ESTIMATORS = {
    'numpy': Method('estimators', 'NumPy in a loop'),
    'ours': Method('estimators', 'dpjax, vmap over repetitions'),
    'diffprivlib': Method('estimators', 'diffprivlib in a loop',
                          ('diffprivlib',)),
    'opendp': Method('estimators', 'OpenDP in a loop', ('opendp',)),
}
"""Methods that repeat an experiment, each time on its own records."""

REPETITIONS = 1024
"""Number of repetitions in a step of each of them."""

ESTIMATED = ('proportion', 'mean', 'private_size_mean', 'histogram', 'poll',
             'support', 'local_support', 'exponential', 'permute_and_flip',
             'inverse_median', 'smooth_median')
_ESTIMATED_BY = {
    'diffprivlib': ('proportion', 'mean', 'histogram', 'inverse_median'),
    'opendp': ('proportion', 'mean', 'histogram'),
}

QUANTILES = {
    'ours': Method('quantiles', 'dpjax, one release at a time'),
    'ours_repeated': Method('quantiles', 'dpjax, 50 releases at a time, each '
                            'from its own records, by vmap; time of one'),
    'published': Method('quantile_peers', 'the published algorithm in NumPy'),
    'published_tight': Method('quantile_peers', 'the same without the zeros '
                              'in its tables'),
    'diffprivlib': Method('quantile_peers', 'diffprivlib, level by level',
                          ('diffprivlib',)),
    'opendp': Method('quantile_peers', 'OpenDP, among 1001 candidates',
                     ('opendp',)),
}
"""Methods for private quantiles of unsorted records."""

QUANTILE_MODELS = ('independent_1', 'independent_30', 'joint_2', 'joint_8',
                   'joint_30', 'inverse_8', 'recursive_7', 'recursive_31',
                   'recursive_127', 'histogram_30', 'tree_30', 'auto_30')
"""Families of mechanisms with their numbers of levels."""

CHECKED_DRAWS = 2000
"""Number of draws that check the distribution of a method."""

_QUANTILES_BY = {
    'published_tight': ('joint',),
    'published': ('independent', 'joint', 'inverse', 'recursive'),
    'diffprivlib': ('independent',), 'opendp': ('independent',),
}
CURVES = {
    'ours': Method('curves', 'dpjax'),
    'numpy': Method('curve_peers', 'NumPy; comparisons key by key'),
    'cvxopt': Method('curve_solvers', 'CVXOPT, as Barczewski (2025) solves it',
                     ('cvxopt',)),
    'osqp': Method('curve_solvers', 'OSQP, to 1e-4', ('osqp',)),
    'clarabel': Method('curve_solvers', 'Clarabel', ('clarabel',)),
    'highs': Method('curve_solvers', 'HiGHS, by SciPy'),
}
"""Methods for distribution functions of N thresholds, or of N keys."""

CURVE_MODELS = ('squares', 'absolute', 'release_tree', 'release_square_root',
                'comparison', 'comparison_everywhere')
"""Smoothing with p = 2 and p = 1, releases, and secure comparisons."""

_CURVES_BY = {
    'numpy': {'release_tree': 2**15, 'release_square_root': 2**15,
              'comparison': 10**4, 'comparison_everywhere': 10**4},
    'cvxopt': {'squares': 2**20, 'absolute': 2**15},
    'osqp': {'squares': 2**20}, 'clarabel': {'squares': 2**20},
    'highs': {'absolute': 2**15},
}
"""Maps a peer to its models, with the size that takes it about a minute."""

DENSITIES = {
    'ours': Method('densities', 'dpjax, vmap over repetitions'),
    'numpy': Method('density_peers', 'NumPy, all repetitions at once'),
    'opendp': Method('density_peers', 'OpenDP, one histogram after the other',
                     ('opendp',)),
}
"""Methods that repeat an estimate on fresh counts; times are per estimate."""

DENSITY_MODELS = ('heights', 'heights_gaussian', 'polygon', 'projection',
                  'projection_gaussian', 'weighted_gaussian', 'spectral',
                  'spectral_gaussian', 'adaptive', 'adaptive_gaussian',
                  'default', 'sums_gaussian', 'resolutions', 'stages', 'tree',
                  'haar', 'merged', 'sparse_gaussian')
"""Estimators; the budget is epsilon, except for those with Gaussian noise."""

_DENSITIES_BY = {
    'opendp': ('heights',),
}

PARAMETRIC = {
    'ours': Method('parametric', 'dpjax, vmap over repetitions'),
    'numpy': Method('parametric', 'NumPy, all repetitions at once'),
}
"""Methods that repeat an estimate; times are those of one repetition."""

PARAMETRIC_MODELS = ('share', 'share_geometric', 'share_gaussian', 'doubled',
                     'truncated_l2', 'truncated_laplace', 'truncated_gaussian',
                     'likelihood')

PACKS = ('pack_1', 'pack_2', 'pack_4', 'pack_8', 'pack_16')
REPLICAS = {
    'large': Method('replicas', 'one network, in one batch of as many images'),
    **{name: Method('replicas', f'dpjax, {name[5:]} networks as one')
       for name in PACKS},
    'vmap': Method('replicas', 'jax.vmap over all networks'),
}
"""Methods that train networks at once; times are per image."""

REPLICA_MODELS = ('resnet20_bfloat16', 'resnet20_float32', 'tiny_resnet8')
BUTTERFLY = {
    'ours': Method('butterflies', 'dpjax'),
    'dense': Method('butterflies', 'JAX, the same matrix, dense'),
    'numpy': Method('butterflies', 'NumPy, one factor after the other'),
    'blas': Method('butterflies', 'NumPy, the same matrix, dense'),
    'fft': Method('butterflies', 'SciPy, the Fourier transform'),
    'hadamard': Method('butterflies', 'NumPy, the Hadamard transform'),
}
"""Methods for 64 vectors of length N; the last two have no free parameters."""

BUTTERFLY_MODELS = ('product', 'gradients')
"""Gradients are in all factors, or in the dense matrix, and in the vectors."""

_MOST_DENSE = 2**12
"""Largest N with a dense matrix, which takes 64 MiB."""

NETWORK_STEPS = {
    'plain': Method('network_steps', 'JAX, no clipping, compiled twice'),
    'ours': Method('network_steps', 'dpjax, book-keeping'),
    'vmap': Method('network_steps', 'jax.vmap(jax.grad), contracted'),
    'jax_privacy': Method('network_peers', 'jax_privacy.clipped_grad',
                          ('jax_privacy',)),
    'opacus_hooks': Method('network_torch', 'Opacus, hooks, over PyTorch',
                           ('torch', 'opacus')),
    'opacus_ghost': Method('network_torch', 'Opacus, ghost clipping, over '
                           'PyTorch', ('torch', 'opacus')),
}
"""Methods that clip the gradients of networks; ratios are over a plain step."""

OPACUS_NETWORKS = {
    'opacus_hooks': ('mlp', 'cnn', 'gpt', 'gpt_lora', 'unet', 'lstm', 'gru'),
    'opacus_ghost': ('mlp', 'cnn', 'gpt', 'gpt_lora', 'unet'),
}
"""Networks that are built of the modules that Opacus supports."""

NORMS = {
    'gram': Method('norms', 'norms from Gram matrices, sums of all at once'),
    'kept': Method('norms', 'gradients computed, their norms taken, summed'),
    'chosen': Method('norms', 'the choice of dpjax'),
}
"""Methods for one layer; the first two force one way."""

STREAMS = {
    'memory': Method('streams', 'dpjax, 64,000 records in memory'),
    'ours': Method('streams', 'dpjax, records read while training'),
}
"""Where the records are that a step is made on."""

STREAM_MODELS = ('computed', 'mapped')
"""Records that are computed from their numbers, or mapped from a file."""

LOOPS = ('sgd', 'dp_sgd', 'dp_sgd_vmap', 'dp_sgd_per_layer',
         'dp_sgd_automatic', 'dp_sgd_adaptive', 'layer_clipped', 'lip_dp_sgd',
         'fix_lip_dp_sgd', 'lip_normalised', 'lip_propagated', 'lip_adaptive')


def split(name: str) -> tuple[str, str]:
  """Splits a name into the method and its XLA flags."""
  base, at, flags = name.partition('@')
  if at and flags not in XLA_FLAGS:
    raise ValueError(f'no set of XLA flags {flags!r}; there is '
                     f'{", ".join(XLA_FLAGS)}')
  return base, XLA_FLAGS[flags] if at else ''


def quantile_model(model: str) -> tuple[str, int]:
  """Splits a model into the family of mechanisms and the number of levels."""
  family, _, levels = model.partition('_')
  return family, int(levels)


def pack_size(name: str) -> int:
  """Returns how many networks a method of `REPLICAS` trains as one."""
  return int(name[5:]) if name in PACKS else 1


def find(suite: str, name: str) -> Method:
  """Returns a method of a suite by its name.

  Raises:
    ValueError: if the suite has no method of this name.
  """
  base, _ = split(name)
  known = {'sampling': DRAWS, 'norms': NORMS, 'estimators': ESTIMATORS,
           'quantiles': QUANTILES, 'curves': CURVES, 'densities': DENSITIES,
           'parametric': PARAMETRIC, 'replicas': REPLICAS,
           'butterfly': BUTTERFLY, 'models': NETWORK_STEPS,
           'stream': STREAMS,
           'loop': dict.fromkeys(LOOPS, Method(
               'loops', 'training of dpjax'))}.get(suite, STEPS)
  if base not in known:
    raise ValueError(f'methods of --suite={suite} must be among '
                     f'{", ".join(known)}; got {name!r}')
  return known[base]


def missing(suite: str, name: str) -> str | None:
  """Returns a line on why a method cannot run here; None if it can."""
  for package in find(suite, name).packages:
    if importlib.util.find_spec(package) is None:
      return f'{package} is not installed: pip install dpjax[bench]'
  return None


def inapplicable(suite: str, name: str, model: str,
                 size: int = 0) -> str | None:
  """Returns a line on why a method does not apply to a model; None if it does.
  """
  base, _ = split(name)
  if suite == 'sampling' and model == 'poisson' and base in (
      'unsafe_rbg', 'ours_rbg', 'ours_lattice', 'ours_release', 'torch'):
    return f'{base} draws noise only'
  if suite == 'models':
    return _no_network(base, model)
  if base == 'ours_views' and len(architectures.MODELS[model].input_shape) < 3:
    return 'ours_views needs images'
  if suite == 'estimators' and model not in _ESTIMATED_BY.get(
      base, (model,)):
    return f'{base} has no {model}'
  if suite == 'quantiles':
    return _no_quantiles(base, model)
  if suite == 'curves':
    return _no_curves(base, model, size)
  if suite == 'densities':
    return _no_densities(base, model)
  if suite == 'parametric':
    return None
  if suite == 'butterfly':
    return _no_butterfly(base, model, size)
  if base.startswith('lip') and suite != 'loop' and architectures.MODELS[
      model].vocabulary:
    return f'lip has no certified form of {model}'
  return None


def _no_network(base: str, model: str) -> str | None:
  """Applies `inapplicable` to the suite 'models'."""
  known = OPACUS_NETWORKS.get(base)
  if known is None or model.removeprefix(network_names.TINY) in known:
    return None
  return f'{base} has no {model}'


def _no_curves(base: str, model: str, size: int) -> str | None:
  """Applies `inapplicable` to the suite 'curves'."""
  most = _CURVES_BY.get(base, {model: size}).get(model)
  if most is None:
    return f'{base} has no {model}'
  return f'{base} takes long for {size} of {model}' if size > most else None


def _no_butterfly(base: str, model: str, size: int) -> str | None:
  """Applies `inapplicable` to the suite 'butterfly'."""
  if model == 'gradients' and base not in ('ours', 'dense'):
    return f'{base} has no {model}'
  return (f'a dense matrix of {size} rows takes much memory'
          if base in ('dense', 'blas') and size > _MOST_DENSE else None)


def _no_densities(base: str, model: str) -> str | None:
  """Applies `inapplicable` to the suite 'densities'."""
  family, _, noise = model.partition('_')
  if family not in _DENSITIES_BY.get(base, (family,)) or (
      base == 'opendp' and noise):
    return f'{base} has no {model}'
  return None


def _no_quantiles(base: str, model: str) -> str | None:
  """Applies `inapplicable` to the suite 'quantiles'."""
  family, num_levels = quantile_model(model)
  if family not in _QUANTILES_BY.get(base, (family,)) or (
      base == 'opendp' and num_levels > 1):
    return f'{base} has no {model}'
  return None
