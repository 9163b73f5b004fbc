"""Computes the rows of the settings in `sweep.py` by quadrature."""

from collections.abc import Iterator, Sequence

import numpy as np

from experiments import records
from experiments import rows
from experiments.density_packings import sweep
from experiments.density_packings import words
from experiments.methods.theory import density_packings as packings
from experiments.methods.theory import testing

_NUM_WORDS = 20


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), setting.kernel)
    yield setting, rows.exact(setting, measured(setting))


def measured(setting: sweep.Setting) -> dict[str, float]:
  """Returns membership and distances over their bounds, worst over words."""
  packing = words.packing(setting)
  cube = _words(setting, packing.kernel.balanced)
  x, weights = packing.rule()
  densities = packing.densities(cube, x)
  values = dict(
      integral=np.max(np.abs(densities @ weights - 1)),
      least=np.min(densities), largest=np.max(densities),
      class_norm=words.norm(packing, cube) / setting.radius)
  bounds = packing.variation_bound(cube)
  hamming = np.sum(cube[:, None] != cube[None], -1)
  apart = hamming > 0
  variations = testing.variations(densities, weights)[apart]
  values['variation'] = np.max(variations / bounds[apart])
  values['crude_variation'] = np.max(
      variations / (setting.num_bumps * packing.absolute))
  from_uniform = np.sum(densities * np.log(densities) * weights, -1)
  limits = packing.divergence_bound(cube)
  off = limits > 0
  values['divergence'] = np.max(from_uniform[off] / limits[off])
  if setting.kernel == 'smooth':
    printed = packing.divergence_bound(cube, printed=True)
    values['printed_divergence'] = np.min(printed[off] / from_uniform[off])
  squares = testing.distances(densities, weights)[apart]**2
  values['separation'] = np.min(
      squares / (2 * packing.separation() * hamming[apart]))
  if not packing.kernel.balanced:
    printed = packings.separation(packing.energy, packing.mass,
                                  setting.num_bumps, printed=True)
    values['printed_separation'] = printed / packing.separation()
  return values


def _words(setting: sweep.Setting, balanced: bool) -> np.ndarray:
  """Returns 20 random words, with all zeros and all ones; both if one bit."""
  size = setting.num_bumps
  both = np.stack([np.zeros(size, np.int64), np.ones(size, np.int64)])
  drawn = np.random.default_rng(setting.seed).integers(
      0, 2, (_NUM_WORDS * (size > 1), size))
  result = np.concatenate([both, drawn])
  return 2 * result - 1 if balanced else result
