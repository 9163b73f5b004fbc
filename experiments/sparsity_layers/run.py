"""Counts what `sweep.py` asks for; no records, no noise."""

from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.report import records
from dpjax.sparsity import chains
from dpjax.sparsity import networks
from dpjax.typing import Params
from experiments import rows
from experiments.sparsity_layers import sweep

_WIDTHS = (16, 32, 64)
_BLOCKS = 3


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), setting.kind)
    found = _network(setting) if setting.kind == 'network' else _layer(setting)
    yield setting, rows.exact(setting, found)


def resnet_20(key: jax.Array) -> Params:
  """Parameters of the shapes of ResNet-20, all zero: they are counted only."""
  del key
  params = {**_layers('', 'conv', 'norm', 3, 3, _WIDTHS[0]),
            'dense': {'kernel': jnp.zeros((_WIDTHS[-1], 10)),
                      'bias': jnp.zeros(10)}}
  entering = _WIDTHS[0]
  for group, width in enumerate(_WIDTHS):
    for number in range(_BLOCKS):
      block = {**_layers('_0', 'conv', 'norm', 3, entering, width),
               **_layers('_1', 'conv', 'norm', 3, width, width)}
      if entering != width:
        block |= _layers('', 'shortcut', 'norm_shortcut', 1, entering, width)
      params[f'block_{group}_{number}'] = block
      entering = width
  return params


def _layers(suffix, conv, norm, size, entering, leaving):
  return {conv + suffix: {'kernel': jnp.zeros((size, size, entering, leaving))},
          norm + suffix: {'scale': jnp.zeros(leaving),
                          'bias': jnp.zeros(leaving)}}


def _network(setting: sweep.Setting) -> dict[str, float]:
  made = networks.butterfly(resnet_20, segments=setting.segments,
                            num_factors=setting.num_factors)
  first = f'block_{len(_WIDTHS) - setting.segments}_'
  shapes = jax.eval_shape(resnet_20, jax.random.key(0))
  kernels = [block[name]['kernel'].shape for key, block in shapes.items()
             if key.startswith(first) for name in ('conv_0', 'conv_1')]
  more = 0
  for height, width, entering, leaving in kernels:
    least, following, *_ = _numbers(leaving, height * width * entering,
                                    setting.num_factors)
    more += following - least
  return dict(parameters=made.num_parameters, dense=made.num_dense,
              next_parameters=made.num_parameters + more)


def _numbers(num_rows: int, num_columns: int, num_factors: int) -> list[int]:
  """Numbers of parameters that monotone chains have, least first."""
  return sorted({chain.num_parameters for chain in chains.monotone_chains(
      num_rows, num_columns, num_factors=num_factors)})


def _layer(setting: sweep.Setting) -> dict[str, float]:
  size = setting.num_rows, setting.num_columns
  chain = chains.smallest_chain(*size, num_factors=setting.num_factors)
  every = chains.monotone_chains(*size, num_factors=setting.num_factors)
  supports = [support.astype(int) for support in chain.supports()]
  paths = np.eye(setting.num_columns, dtype=int)
  for support in supports:
    paths = support @ paths
  found = dict(
      parameters=chain.num_parameters, dense=chain.size[0] * chain.size[1],
      chains=len(every),
      as_few=sum(other.num_parameters == chain.num_parameters
                 for other in every),
      paths_least=paths.min(), paths_most=paths.max(),
      in_a_row=max(support.sum(1).max() for support in supports),
      in_a_column=max(support.sum(0).max() for support in supports))
  following = _numbers(*size, setting.num_factors)[1:]
  if following:
    found['next_parameters'] = following[0]
  for number, (r, s) in enumerate(zip(chain.rows, chain.columns), 1):
    found |= {f'r_{number}': r, f's_{number}': s}
  return found
