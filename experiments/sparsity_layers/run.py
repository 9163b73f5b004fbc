"""Counts parameters for the settings in `sweep.py`; no records, no noise."""

from collections.abc import Iterator, Sequence

import numpy as np

from experiments import records
from experiments import rows
from experiments.methods.sparsity import chains
from experiments.methods.sparsity import networks
from experiments.methods.training.batch_resnet import BatchResnet
from experiments.sparsity_layers import sweep

_RESNET_20 = BatchResnet()


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), setting.kind)
    metrics = (_network(setting) if setting.kind == 'network' else
               _layer(setting))
    yield setting, rows.exact(setting, metrics)


def _network(setting: sweep.Setting) -> dict[str, float]:
  network = networks.butterfly(_RESNET_20.init, segments=setting.segments,
                            num_factors=setting.num_factors)
  first = f'block_{len(_RESNET_20.widths) - setting.segments}_'
  more = 0
  for path, (size, entering, leaving, _) in _RESNET_20.convolutions().items():
    if path[0].startswith(first) and size == 3:
      least, following, *_ = _numbers(leaving, size**2 * entering,
                                      setting.num_factors)
      more += following - least
  return dict(parameters=network.num_parameters, dense=network.num_dense,
              next_parameters=network.num_parameters + more)


def _numbers(num_rows: int, num_columns: int, num_factors: int) -> list[int]:
  """Returns numbers of parameters of monotone chains, in increasing order."""
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
  values = dict(
      parameters=chain.num_parameters, dense=chain.size[0] * chain.size[1],
      chains=len(every),
      as_few=sum(other.num_parameters == chain.num_parameters
                 for other in every),
      paths_least=paths.min(), paths_most=paths.max(),
      in_a_row=max(support.sum(1).max() for support in supports),
      in_a_column=max(support.sum(0).max() for support in supports))
  following = _numbers(*size, setting.num_factors)[1:]
  if following:
    values['next_parameters'] = following[0]
  for number, (r, s) in enumerate(zip(chain.rows, chain.columns), 1):
    values |= {f'r_{number}': r, f's_{number}': s}
  return values
