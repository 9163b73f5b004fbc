"""Simulates the settings in `sweep.py`."""

from collections.abc import Iterator, Sequence
import dataclasses
import functools
import math
import zlib

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import estimate
from dpjax.stats.density_methods import histograms
from dpjax.stats.density_methods import post_processing
from experiments import density_settings
from experiments import records
from experiments import rows
from experiments import simulation
from experiments.density_post_processing import sweep

# Method -> (release, post-processing).
_OF = {'printed': ('printed', 'none'), 'tuned': ('tuned', 'none'),
       'tuned_simplex': ('tuned', 'simplex'), 'polygon': ('tuned', 'simplex'),
       'tuned_shrunk': ('tuned', 'james_stein'),
       'unimodal': ('fine', 'unimodal'),
       **{post: ('printed', post) for post in sweep.POSTS}}


def _release(setting: sweep.Setting, name: str) -> histograms.Histogram:
  """Returns the released histogram, before post-processing."""
  public = dict(num_records=setting.num_records, epsilon=setting.epsilon,
                adjacency=Adjacency.REPLACE_ONE)
  if name == 'printed':
    return histograms.Histogram.printed(**public)
  public |= dict(noise='laplace')
  if name == 'fine':
    return histograms.Histogram(num_bins=sweep.FINE, **public)
  public |= dict(fix_mass=False)
  if name == 'oracle':
    return histograms.Histogram.oracle_tuned(
        density_settings.density(setting.density), **public)
  return histograms.Histogram.tuned(
      lipschitz=sweep.LIPSCHITZ[setting.density], **public)


def _heights(shared: sweep.Setting,
             histogram: histograms.Histogram) -> np.ndarray:
  """Returns released heights [R, m], each of its own data set."""
  generator = np.random.default_rng(
      [shared.seed, zlib.crc32(repr(shared).encode())])
  counts = density_settings.density(shared.density).counts(
      generator, num_records=shared.num_records, num_bins=histogram.num_bins,
      repetitions=shared.repetitions)
  return histogram.coefficients(simulation.key_of(shared), counts)


@functools.partial(jax.jit, static_argnames='post')
def _processed(heights, noise, post):
  if post == 'fix_mass':
    return post_processing.fix_mass(heights)
  return post_processing.processed(heights, post, noise)


def _metrics(setting: sweep.Setting, cells: dict[str, tuple]
             ) -> dict[str, float]:
  """Returns mean and standard error, and the closed form if there is one.

  `cells` caches the releases that the methods of a group share.
  """
  density = density_settings.density(setting.density)
  if setting.method == 'oracle':
    histogram = _release(setting, 'oracle')
    return dict(mse=histogram.expected(density).total, bins=histogram.num_bins)
  release, post = _OF[setting.method]
  if release not in cells:
    shared = dataclasses.replace(setting, method=release)
    histogram = _release(setting, release)
    cells[release] = histogram, _heights(shared, histogram)
  histogram, heights = cells[release]
  noise = histogram.height_variance + histogram.num_bins / histogram.num_records
  with jax.enable_x64(True):
    after = np.asarray(_processed(jnp.asarray(heights), noise, post))
  squares = estimate.errors_of(
      'polygon' if setting.method == 'polygon' else 'histogram', after, density)
  metrics = dict(mse=np.mean(squares), mse_se=np.std(squares, ddof=1)
                 / math.sqrt(squares.size), bins=histogram.num_bins)
  if post == 'none':
    metrics['closed'] = histogram.expected(density).total
  if post == 'fix_mass':
    metrics['closed'] = dataclasses.replace(histogram, fix_mass=True).expected(
        density).total
  if release == 'printed' and post == 'simplex':
    before = estimate.errors_of('histogram', heights, density)
    metrics['worst'] = np.max(squares / before)
  return metrics


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  metrics = {}
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.method} {setting.density} '
             f'n={setting.num_records} {setting.epsilon:g}')
    yield setting, rows.released(
        setting, _metrics(setting, metrics), n=setting.num_records,
        epsilon=setting.epsilon)
