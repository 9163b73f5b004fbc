"""Computes the rows of the settings in `sweep.py`; no records, no noise."""

from collections.abc import Iterator, Sequence
import functools
import math

import numpy as np

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import bandwidths
from dpjax.stats.density_methods import sensitivities
from experiments import records
from experiments import rows
from experiments.density_bounds import sweep
from experiments.methods.statistics import spectral_risks
from experiments.methods.theory import density_lower_bounds as lower_bounds
from experiments.methods.theory import density_packings as packings

_REPLACE = Adjacency.REPLACE_ONE
# Largest number of bins, and of half as many frequencies.
_BINS = np.unique(np.round(np.geomspace(1, 1e5, 3000)))
# Cut-offs W tried; a series has weights below frequency W only.
_CUTS = np.unique(np.round(np.geomspace(2, 3000, 90)))


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.dataset} {setting.notion} '
             f'{setting.amount:g}')
    if setting.dataset == 'point':
      metrics = _point(setting)
    else:
      metrics = lower(setting) | upper(setting)
    yield setting, rows.exact(setting, metrics)


def _budget(setting: sweep.Setting) -> dict[str, float]:
  if setting.notion == 'pure':
    return dict(epsilon=setting.alpha)
  return dict(rho=setting.alpha**2)


def _variance(setting: sweep.Setting) -> float:
  """Returns the variance of Laplace or Gaussian noise of a count."""
  return (8 if setting.notion == 'pure' else 1) / setting.alpha**2


def lower(setting: sweep.Setting) -> dict[str, float]:
  """Returns lower bounds on the integrated squared error over a class."""
  beta, known = sweep.SMOOTHNESS[setting.dataset], dict(
      radius=sweep.RADII[setting.dataset], num_records=setting.num_records)
  lipschitz = setting.dataset == 'lipschitz'
  bump = packings.triangle() if lipschitz else packings.smooth(beta)
  cell = packings.sawtooth() if lipschitz else packings.wave(beta)
  budget = _budget(setting)
  fano = lower_bounds.fano(bump, **known, **budget, printed=True).value
  free = lower_bounds.fano(bump, **known, printed=True).value
  cube = functools.partial(lower_bounds.assouad, bump, **known)
  # The papers prove the pure-DP rate by Fano's lemma alone.
  printed = fano if setting.notion == 'pure' else max(
      fano, cube(**budget, statement='thesis').value)
  values = dict(printed=max(free, printed), fano=fano,
               corrected=max(cube(**budget).value, cube().value))
  for name, sharp in (('cells', False), ('sharp', True)):
    bound = functools.partial(lower_bounds.cells, cell, **known, sharp=sharp)
    values[name] = max(bound(**budget).value, bound().value)
  return {name: value for name, value in values.items() if value}


def upper(setting: sweep.Setting) -> dict[str, float]:
  """Returns upper bounds on it, of estimators that know the class."""
  n, beta = setting.num_records, sweep.SMOOTHNESS[setting.dataset]
  radius, variance = sweep.RADII[setting.dataset], _variance(setting)
  if setting.dataset == 'lipschitz':
    values = dict(uniform=radius**2 / 12, histogram=np.min(
        bandwidths.histogram_bound(_BINS, num_records=n, variance=variance,
                                   lipschitz=radius)))
  else:
    order = 2 * np.arange(1, 50_000) + 1
    noise = (16 * order**3 / setting.amount**2 if setting.notion == 'pure'
             else 4 * order**2 / setting.amount**2)
    values = dict(
        uniform=radius**2 / (2 * math.pi)**(2 * beta),
        spectral=np.min(spectral_risks.worst_risk(
            _BINS[_BINS % 2 == 1][1:], num_records=n, noise_variance=variance,
            smoothness=beta, lipschitz=radius)),
        theorem_4=np.min(radius**2 * (np.pi * (order + 1.0))**(-2 * beta)
                         + (order - 1) / n + noise))
  if setting.notion == 'zcdp':
    values['weighted'] = _weighted(setting)
  return values


@functools.cache
def _weights(smoothness: int) -> tuple[np.ndarray, ...]:
  """Returns W and sums over weights w_k = 1 - (k / W)^beta, for all cuts W.

  The sums are of w_k^2, of w_k^2 / k, and kappa 2 rho times the sum of w_k.
  """
  columns = []
  for cut in _CUTS[:None if smoothness == 1 else 60]:
    k = np.arange(1, cut)
    weight = 1 - (k / cut)**smoothness
    # Fejer's kernel is nonnegative on a circle and, used twice, on an interval.
    largest = 4 * weight.sum() + 2 if smoothness == 1 else (
        sensitivities.weighted_circle(weight.tolist(), adjacency=_REPLACE))
    columns.append((cut, np.sum(weight**2), np.sum(weight**2 / k),
                  largest * weight.sum()))
  return tuple(np.array(columns).T)


def _weighted(setting: sweep.Setting) -> float:
  """Returns the error with noise of variance kappa / lambda_k.

  The taper is that of the class, with the best cut-off.
  """
  lipschitz = setting.dataset == 'lipschitz'
  beta, radius = sweep.SMOOTHNESS[setting.dataset], sweep.RADII[setting.dataset]
  cut, squares, over, privacy = _weights(beta)
  period = np.pi if lipschitz else 2 * np.pi
  # The variance of a cosine is 1 + theta_2k / sqrt 2, where theta_2k <= L / (2
  # pi k). The variances of a sine and a cosine together are at most 2.
  sampling = (squares + radius / (2 * math.sqrt(2) * math.pi) * over
              if lipschitz else 2 * squares)
  noise = (1 if lipschitz else 2) * privacy / (2 * setting.amount**2)
  return float(np.min(radius**2 * (period * cut)**(-2 * beta)
                      + sampling / setting.num_records + noise))


def _point(setting: sweep.Setting) -> dict[str, float]:
  """Returns bounds on the squared error at 1/2 over Lipschitz densities."""
  n, radius = setting.num_records, sweep.RADII['point']
  bound = functools.partial(lower_bounds.pointwise, radius, num_records=n)
  budget = _budget(setting)
  printed = functools.partial(lower_bounds.printed_pointwise, radius,
                              num_records=n)
  values = dict(
      printed=max(printed(**budget), printed()),
      corrected=max(bound(**budget).value, bound().value),
      sharp=max(bound(**budget, sharp=True).value, bound(sharp=True).value),
      # Squared bias, sampling error at the largest possible density, and noise.
      histogram=np.min(
          radius**2 / (4 * _BINS**2) + _BINS**2 * _variance(setting) / n**2
          + packings.lipschitz_maximum(radius) * _BINS / n))
  if setting.notion == 'zcdp':
    values['derived'] = max(printed(**budget, derived=True), printed())
  return values
