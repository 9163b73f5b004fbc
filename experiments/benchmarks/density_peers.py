"""Density estimators in NumPy, with all repetitions at once, and OpenDP.

They have the distributions of dpjax, and are written from descriptions (items
DEN-H1, P1, B2 to B8, B10 to B12): counts with noise, Fourier transforms for
coefficients, SciPy's isotonic regression row by row. Bins, scales and weights
are those of the mechanism of dpjax. OpenDP makes one histogram after the other.
"""

from collections.abc import Callable
import math

import numpy as np
from scipy import fft
from scipy import optimize

from dpjax.privacy import draws
from dpjax.stats.density_methods import bases
from dpjax.stats.density_methods import estimate
from experiments.benchmarks import density_work as work
from experiments.benchmarks import methods
from experiments.benchmarks.program import Program
from experiments.benchmarks.program import Spec

Sampler = Callable[[np.random.Generator, np.ndarray], np.ndarray]
"""(generator, counts [R, m]) -> coefficients [R, c]."""

LIBRARY_REPETITIONS = 100
_PENALTY = 2


def make(spec: Spec) -> Program:
  """Returns a program of estimates and errors, as in `densities`."""
  name, _ = methods.split(spec.method)
  given = work.of_model(spec.model, spec.size)
  if name == 'numpy':
    repetitions, draw = work.REPETITIONS, sampler(spec.model, spec.size)
  else:
    repetitions, draw = LIBRARY_REPETITIONS, _opendp(given)
  rng = np.random.default_rng(3)

  def step() -> np.ndarray:
    drawn = draw(rng, work.counts(rng, given, repetitions))
    return estimate.errors_of(given.estimator.kind, drawn, work.density())

  def audit() -> dict[str, np.ndarray]:
    counts = work.checked(given)
    if name != 'numpy':
      counts = counts[:methods.CHECKED_DRAWS // 4]
    return {'draws': draw(rng, counts)}

  return Program(step=step, info={}, repeats=repetitions, audit=audit)


def sampler(model: str, size: int) -> Sampler:
  """Returns the sampler of a model in NumPy."""
  mechanism = work.of_model(model, size).estimator
  family = model.partition('_')[0]
  return lambda rng, counts: _OF[family](rng, counts, mechanism)


def noisy(rng: np.random.Generator, counts: np.ndarray, scale: float,
          pure: bool) -> np.ndarray:
  """Returns counts with discrete Laplace or Gaussian noise."""
  if not pure:
    return counts + scale * rng.standard_normal(counts.shape)
  up, down = rng.geometric(-math.expm1(-1 / scale), (2, *counts.shape))
  return counts + up - down


def _noisy_heights(rng, counts, mechanism):
  noised = noisy(rng, counts, mechanism.scale, mechanism.pure)
  shares = noised / mechanism.num_records
  return counts.shape[1] * shares


def _histogram(rng, counts, mechanism):
  heights = _noisy_heights(rng, counts, mechanism)
  if mechanism.fix_mass:
    heights += 1 - heights.mean(1, keepdims=True)
  return heights


def _polygon(rng, counts, mechanism):
  """Projects on densities: subtracts a level found from sorted heights."""
  heights = _histogram(rng, counts, mechanism)
  falling = -np.sort(-heights, 1)
  places = np.arange(1, heights.shape[1] + 1)
  levels = (np.cumsum(falling, 1) - heights.shape[1]) / places
  last = np.sum(falling > levels, 1) - 1
  return np.maximum(heights - levels[np.arange(last.size), last][:, None], 0)


def coefficients(shares: np.ndarray, basis: str, count: int) -> np.ndarray:
  """Returns coefficients on a circle or an interval (items DEN-B2, B7)."""
  size, k = shares.shape[1], np.arange(1, count + 1)
  if basis == 'fourier':
    turned = np.exp(-1j * np.pi * k / size) / np.sinc(k / size)
    return fft.rfft(shares)[:, 1:count + 1] * turned
  return fft.dct(shares)[:, 1:count + 1] / (
      math.sqrt(2) * np.sinc(k / (2 * size)))


def _spectral(rng, counts, mechanism):
  weights = np.array(mechanism.weights)
  noised = noisy(rng, counts, mechanism.scale, mechanism.pure)
  shares = noised / mechanism.num_records
  return weights * coefficients(shares, mechanism.basis, weights.size)


def _projection(rng, counts, mechanism, *, weigh=True):
  """Returns noisy coefficients of waves; theta_0 first unless it is known."""
  size, count = counts.shape[1], mechanism.num_frequencies
  k, first = np.arange(count + 1), int(mechanism.fix_mass)
  waves = math.sqrt(2) * fft.rfft(counts)[:, :count + 1] * np.exp(
      -1j * np.pi * k / size)
  noise = rng.laplace if mechanism.pure else rng.normal
  parts = noise(scale=mechanism.scales[:, None, None],
                size=(k.size, 2, len(counts)))
  # The constant is 1, and has no sine.
  waves[:, 0] = counts.sum(1)
  parts[0, 1] = 0
  waves += parts[:, 0].T + 1j * parts[:, 1].T
  scaled = waves / (math.sqrt(2) * mechanism.num_records)
  scaled[:, 0] *= math.sqrt(2)
  if weigh:
    scaled[:, 1:] *= mechanism.weights
  return scaled[:, first:]


def _shrunk(estimates, spread):
  """Shrinks by a decreasing sequence, with doubled noise penalty (DEN-B5)."""
  def factors(values, variances):
    released = np.isfinite(variances)
    squares = np.abs(values[released])**2
    kept = optimize.isotonic_regression(
        1 - _PENALTY * variances[released] / squares, weights=squares,
        increasing=False).x
    return np.pad(np.clip(kept, 0, 1), (0, released.size - kept.size))
  spread = np.broadcast_to(spread, estimates.shape)
  return estimates * np.stack([factors(*row) for row in zip(estimates, spread)])


def _sums(rng, counts, mechanism):
  spread = mechanism.parameters.variances
  return _shrunk(_projection(rng, counts, mechanism, weigh=False), spread)


def _of_circle(rng, counts, scale, variance, records):
  """Returns coefficients of a noisy histogram, and their variances."""
  size = counts.shape[1]
  k = np.arange(1, (size - 1) // 2 + 1)
  estimates = coefficients(noisy(rng, counts, scale, True) / records, 'fourier',
                           k.size)
  return estimates, size * variance / (np.sinc(k / size) * records)**2


def _together(first, second):
  """Averages two estimates by precision; one may have more frequencies."""
  size = max(part[0].shape[1] for part in (first, second))
  wide = [np.pad(part[0], ((0, 0), (0, size - part[0].shape[1])))
          for part in (first, second)]
  weights = [np.pad(1 / part[1], (0, size - part[1].size))
             for part in (first, second)]
  whole = weights[0] + weights[1]
  return (weights[0] * wide[0] + weights[1] * wide[1]) / whole, 1 / whole


def _resolutions(rng, counts, mechanism):
  """Combines fine bins with bins of five, the latter at low frequencies.

  This is variant A2' of item DEN-B6 of the catalogue.
  """
  parts = mechanism.parameters
  coarse = counts.reshape(len(counts), -1, 5).sum(2)
  num_kept = max(1, int(0.34 * coarse.shape[1]))
  fine, estimates = (_of_circle(rng, each, scale, variance,
                                mechanism.num_records)
                     for each, scale, variance in zip(
                         (counts, coarse), parts.scales, parts.variances))
  estimates, spread = _together(fine, (estimates[0][:, :num_kept],
                                       estimates[1][:num_kept]))
  return _shrunk(estimates, spread + 1 / mechanism.num_records)


def _stages(rng, counts, mechanism):
  """Chooses the bins of a second histogram by a first one.

  This is variant A3 of item DEN-B6 of the catalogue.
  """
  size, records = counts.shape[1], mechanism.num_records
  divisors = np.array([m for m in range(5, size) if size % m == 0])
  asked = [bases.adaptive_bins(records, variance) for variance in (
      mechanism.parameters.variances[0],
      draws.discrete_laplace_variance(2 / mechanism.epsilon))]
  begin, most = divisors[np.minimum(np.searchsorted(divisors, asked),
                                    divisors.size - 1)]
  choices = divisors[divisors <= most]
  scales = mechanism.parameters.scales
  variances = mechanism.parameters.variances
  cut = lambda rows, bins: rows.reshape(len(rows), bins, -1).sum(2)
  first, noise = _of_circle(rng, cut(counts, begin), scales[0], variances[0],
                            records)
  gains = np.cumsum(np.abs(first)**2 - _PENALTY * (noise + 1 / records), 1)
  needed = np.where(gains.max(1) > 0, gains.argmax(1) + 1, 0)
  bins = choices[np.minimum(np.searchsorted(choices, 4 * needed + 2),
                            choices.size - 1)]
  width = max(first.shape[1], most // 2)
  estimates = np.zeros((len(counts), width), complex)
  for chosen in np.unique(bins):
    rows = bins == chosen
    second = _of_circle(rng, cut(counts[rows], chosen), scales[1],
                        variances[1], records)
    both, spread = _together((first[rows], noise), second)
    estimates[rows, :spread.size] = _shrunk(both, spread + 1 / records)
  return estimates


def _adaptive(rng, counts, mechanism):
  """Shrinks the coefficients of one noisy histogram (DEN-B6, B7)."""
  noised = noisy(rng, counts, mechanism.scale, mechanism.pure)
  shares = noised / mechanism.num_records
  size = shares.shape[1]
  if mechanism.basis == 'spline':
    # Eigenvectors by curvature; the first two are a constant and a line.
    second = np.diff(np.eye(size), 2, axis=0)
    vectors = math.sqrt(size) * np.linalg.eigh(second.T @ second)[1]
    smooth = np.linalg.qr(np.vander(np.arange(size) - (size - 1) / 2, 2, True))
    vectors[:, :2] = math.sqrt(size) * smooth.Q
    estimates, gains = shares @ vectors[:, 1:], size
  else:
    k = np.arange(1, (size - 1) // 2 + 1)
    estimates = coefficients(shares, mechanism.basis, k.size)
    gains = size / np.sinc(k / size)**2
  spread = (gains * mechanism.noise_variance / mechanism.num_records
            + 1) / mechanism.num_records
  estimates = _shrunk(estimates, spread)
  if mechanism.basis == 'spline':
    return 1 + estimates @ vectors[:, 1:].T
  return estimates


def _tree(rng, counts, mechanism):
  """Returns least squares heights on a binary tree whose root is known."""
  exact = [counts]
  while exact[0].shape[1] > 2:
    exact.insert(0, exact[0].reshape(counts.shape[0], -1, 2).sum(2))
  levels = [noisy(rng, level, scale, mechanism.pure)
            for level, scale in zip(exact, mechanism.scales, strict=True)]
  spread, variances = mechanism.noise_variances[-1], mechanism.noise_variances
  for j in range(len(levels) - 2, -1, -1):
    below = levels[j + 1].reshape(counts.shape[0], -1, 2).sum(2)
    share = 2 * spread / (variances[j] + 2 * spread)
    levels[j] = share * levels[j] + (1 - share) * below
    spread = share * variances[j]
  estimates = np.full((counts.shape[0], 1), mechanism.num_records)
  for level in levels:
    pairs = level.reshape(counts.shape[0], -1, 2)
    lack = (estimates - pairs.sum(2)) / 2
    estimates = (pairs + lack[:, :, None]).reshape(counts.shape[0], -1)
  return estimates * counts.shape[1] / mechanism.num_records


def _haar(rng, counts, mechanism):
  """Returns heights from noisy Haar differences, thresholded."""
  differences, sums = [], counts
  while sums.shape[1] > 1:
    halves = sums.reshape(counts.shape[0], -1, 2)
    differences.insert(0, halves[:, :, 0] - halves[:, :, 1])
    sums = halves.sum(2)
  estimates = np.full((counts.shape[0], 1), mechanism.num_records)
  for exact, scale, variance in zip(differences, mechanism.scales,
                                    mechanism.noise_variances, strict=True):
    level = noisy(rng, exact, scale, mechanism.pure)
    least = mechanism.threshold * np.sqrt(variance + mechanism.num_records
                                          / exact.shape[1])
    level = np.where(np.abs(level) > least, level, 0)
    estimates = np.stack([estimates + level, estimates - level], 2).reshape(
        counts.shape[0], -1) / 2
  return estimates * counts.shape[1] / mechanism.num_records


def _merged(rng, counts, mechanism):
  """Merges bins optimally, by dynamic programming over prefixes."""
  size, records = counts.shape[1], mechanism.num_records
  values = noisy(rng, counts, mechanism.scale, mechanism.pure)
  values -= values.mean(1, keepdims=True)
  price = mechanism.penalty * (mechanism.noise_variance + records / size)
  sums, squares = (np.pad(np.cumsum(part, 1), ((0, 0), (1, 0)))
                   for part in (values, values**2))
  best, starts = np.zeros_like(sums), np.zeros(sums.shape, int)
  rows = np.arange(len(counts))
  for end in range(1, size + 1):
    square, total = (part[:, end:end + 1] - part[:, :end]
                     for part in (squares, sums))
    cost = (best[:, :end] + price + square
            - total**2 / (end - np.arange(end)))
    starts[:, end] = np.argmin(cost, 1)
    best[:, end] = cost[rows, starts[:, end]]
  estimates, ends = np.zeros_like(values), np.full(rows.size, size)
  for place in range(size - 1, -1, -1):
    ends = np.where(starts[rows, ends] > place, starts[rows, ends], ends)
    begins = starts[rows, ends]
    estimates[:, place] = (sums[rows, ends] - sums[rows, begins]) / (
        ends - begins)
  return 1 + estimates * size / records


def _sparse(rng, counts, mechanism):
  """Chooses the worst wave by Gumbel noise and measures it, in rounds."""
  size, count = counts.shape[1], mechanism.num_frequencies
  waves = fft.rfft(counts)[:, 1:count + 1] * np.exp(
      -1j * np.pi * np.arange(1, count + 1) / size)
  # Scores and sums change by 2; exponential mechanisms cost epsilon^2 / 8.
  spent = mechanism.rho / mechanism.num_rounds
  rate = math.sqrt(8 * spent * mechanism.selection_share) / (2 * 2)
  stddev = 2 / math.sqrt(2 * spent * (1 - mechanism.selection_share))
  estimates, times = np.zeros_like(waves), np.zeros(waves.shape)
  rows = np.arange(len(counts))
  for _ in range(mechanism.num_rounds):
    place = np.argmax(rate * np.abs(waves - estimates)
                      + rng.gumbel(size=waves.shape), 1)
    parts = rng.normal(scale=stddev, size=(2, rows.size))
    times[rows, place] += 1
    estimates[rows, place] += (waves[rows, place] + parts[0] + 1j * parts[1]
                               - estimates[rows, place]) / times[rows, place]
  return estimates / mechanism.num_records


_OF = {'heights': _histogram, 'polygon': _polygon, 'spectral': _spectral,
       'projection': _projection, 'weighted': _projection, 'sums': _sums,
       'resolutions': _resolutions, 'stages': _stages,
       'adaptive': _adaptive, 'default': _adaptive, 'tree': _tree,
       'haar': _haar, 'merged': _merged, 'sparse': _sparse}


def _opendp(given: work.Work) -> Sampler:
  """Returns OpenDP's histogram, with exact discrete Laplace noise."""
  import opendp.prelude as dp
  dp.enable_features('contrib')
  mechanism = given.estimator
  space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
  release = space >> dp.m.then_laplace(scale=mechanism.scale)

  def draw(rng: np.random.Generator, counts: np.ndarray) -> np.ndarray:
    del rng
    rows = np.array([release(row) for row in counts.astype(int).tolist()])
    return rows * mechanism.num_bins / mechanism.num_records
  return draw
