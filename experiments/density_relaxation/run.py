"""Computes the rows of the settings in `sweep.py`: closed forms, no records."""

from collections.abc import Iterator, Sequence
import dataclasses
import math

import numpy as np

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import densities
from dpjax.stats.density_methods import projections
from dpjax.stats.density_methods import sensitivities
from dpjax.stats.density_methods import spectral
from experiments import records
from experiments import rows
from experiments.density_relaxation import sweep
from experiments.methods.statistics import compared_densities
from experiments.methods.statistics import density_relaxation as relaxation
from experiments.methods.statistics import projection_tunings
from experiments.methods.statistics import spectral_risks
from experiments.methods.theory import tradeoffs

_REPLACE = Adjacency.REPLACE_ONE
# Ratios of bins to functions of the spectral histogram; many bins pay off where
# the noise is small.
_OVERSAMPLING = (1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 8.0)
_WIDTH = 200.5


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.kind} n={setting.num_records}')
    metrics = {'rules': _rules, 'truth': _truth, 'noise': _noise,
             'cells': _cells, 'worst': _worst}[setting.kind](setting)
    yield setting, rows.exact(setting, metrics)


def _rho(setting: sweep.Setting, rule: str) -> float:
  return relaxation.rho_of(rule, epsilon=setting.epsilon, delta=float(
      setting.num_records)**-setting.gamma, allow_unsound=True)


def _rules(setting: sweep.Setting) -> dict[str, float]:
  return {rule: relaxation.noise_multiplier(_rho(setting, rule))
          for rule in relaxation.RULES}


def _truth(setting: sweep.Setting) -> dict[str, float]:
  rho = relaxation.rho_of('classical', epsilon=setting.epsilon,
                          delta=sweep.DELTA, allow_unsound=True)
  shift = math.sqrt(2 * rho)
  # The printed noise is calibrated to the printed sensitivity; what counts is
  # its ratio to the exact one.
  shrunk = shift * np.divide(*(sensitivities.trigonometric(
      9, order=2, adjacency=_REPLACE, printed=printed)
                               for printed in (False, True)))
  return {name: float(tradeoffs.gaussian_delta(setting.epsilon, shift=value))
          for name, value in (('tight', shift), ('of_sums', shrunk))}


def _mechanisms(setting: sweep.Setting) -> dict[str, projections.Projection]:
  """Returns all projections that are compared, with three functions each."""
  public = dict(num_records=setting.num_records, num_functions=3,
                adjacency=_REPLACE)
  printed = dict(tuning='printed', fix_mass=False)
  return {
      'pure': projections.Projection(epsilon=setting.epsilon, **printed,
                                     **public),
      'pure_exact': projections.Projection(epsilon=setting.epsilon, **public),
      **{rule: projections.Projection(rho=_rho(setting, rule), **printed,
                                      **public)
         for rule in ('classical', 'corollary')},
      'gaussian': projections.Projection(rho=_rho(setting, 'exact'), **public)}


def _histogram(setting: sweep.Setting, num_bins: int,
               top: int) -> spectral.SpectralHistogram:
  return spectral.SpectralHistogram(
      num_records=setting.num_records, epsilon=setting.epsilon,
      num_bins=num_bins, weights=(1.0,) * top, noise='laplace',
      adjacency=_REPLACE)


def _noise(setting: sweep.Setting) -> dict[str, float]:
  values = {name: dataclasses.replace(one, num_functions=setting.size)
           for name, one in _mechanisms(setting).items()}
  values['spectral'] = _histogram(setting, setting.size, setting.size // 2)
  unit = (setting.num_records * setting.epsilon)**2
  return {name: unit * one.expected(densities.uniform()).privacy
          for name, one in values.items()}


def _cells(setting: sweep.Setting) -> dict[str, float]:
  """Returns the least errors, and in `size_...` the N that attains them."""
  density, result = compared_densities.random_phases(setting.size), {}
  for name, one in _mechanisms(setting).items():
    size = projection_tunings.oracle_num_functions(one, density)
    result[f'size_{name}'] = size
    result[name] = dataclasses.replace(
        one, num_functions=size).expected(density).total
  result['size_spectral'], result['spectral'] = _best_histogram(
      setting, density)
  return result | {'trivial': density.energy}


def _best_histogram(setting, density) -> tuple[int, float]:
  best, size, top = math.inf, 3, 1
  while True:
    risks = [_histogram(setting, bins, top).expected(density) for bins in (
        _odd(times * (2 * top + 1)) for times in _OVERSAMPLING)]
    if min(risk.sampling + risk.privacy for risk in risks) >= best:
      return size, best
    least = min(risk.total for risk in risks)
    if least < best:
      best, size = least, 2 * top + 1
    top += max(1, top // 12)


def _odd(value: float) -> int:
  return math.ceil(value - 1e-9) // 2 * 2 + 1


def _worst(setting: sweep.Setting) -> dict[str, float]:
  """Returns C of C L^(2 / (beta + 1)) (n epsilon)^(-2 beta / (beta + 1))."""
  beta, result = setting.size, {}
  rho = _rho(setting, 'exact') / setting.epsilon**2
  # Noise of N = 2 W functions without and with a taper of width W, for large W.
  equal = sensitivities.trigonometric(
      2 * int(_WIDTH) + 1, order=2, adjacency=_REPLACE)**2 / (4 * _WIDTH)
  weights = projection_tunings.pinsker_weights(_WIDTH, smoothness=beta)
  tapered = projections.WeightedProjection(
      num_records=1, rho=rho, coefficient_weights=weights, adjacency=_REPLACE,
      allocation='least')
  error = 2 * np.sum(tapered.weights**2 * tapered.noise_variances[1:])
  # Noise is divided by the square of the number of functions, 2 W.
  result['gaussian'] = _constant(beta, 1.0, equal / rho)
  result['gaussian_taper'] = _constant(beta, 1.0, float(error) / (
      2 * _WIDTH)**2)
  for taper, name in (('none', 'spectral'), ('pinsker', 'spectral_taper')):
    known = spectral_risks.constants(beta, taper)
    result[name] = _constant(beta, known.bias, 8 * known.noise)
  return result


def _constant(beta: int, bias: float, noise: float) -> float:
  """Returns min over N of bias (pi N)^(-2 beta) + noise N^2, over its unit."""
  share = beta / (beta + 1)
  return (bias * math.pi**(-2 * beta))**(1 - share) * noise**share * (
      beta**-share + beta**(1 - share))
