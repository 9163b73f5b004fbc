"""Draws and counts for the settings of `sweep.py`."""

from collections.abc import Iterator, Sequence

import jax
import numpy as np

from dpjax.studies import quantile_distributions
from experiments import records
from experiments import rows
from experiments.quantile_distributions import sweep

_AT_ONCE = 10**6


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  for done, setting in enumerate(settings):
    progress(done / len(settings), setting.dataset)
    distribution = quantile_distributions.named(setting.dataset, data_dir)
    yield setting, rows.exact(setting, _shares(distribution, setting))


def _shares(distribution: quantile_distributions.Distribution,
            setting: sweep.Setting) -> dict[str, float]:
  """Returns the bounds, the shares of bins, and the largest atom's share."""
  size = min(setting.num_draws, _AT_ONCE)
  parts = setting.num_draws // size
  ends = np.linspace(distribution.lower, distribution.upper, sweep.NUM_BINS + 1)
  counts = np.zeros(sweep.NUM_BINS, np.int64)
  with jax.enable_x64(True):
    draw = jax.jit(lambda key: distribution.sample(key, size))
    for key in quantile_distributions.keys(setting.seed, distribution.name,
                                           size, parts):
      result = np.clip(np.asarray(draw(key)), distribution.lower,
                       distribution.upper)
      counts += np.histogram(result, ends)[0]
  # The share of the largest atom is estimated from the last part of the draws.
  largest = np.unique(result, return_counts=True)[1].max() / size
  return dict(lower=distribution.lower, upper=distribution.upper,
              largest_atom=largest, **{
      f'share_{place:02d}': count / (size * parts)
      for place, count in enumerate(counts)})
