"""Lists every mechanism with neighbours and its exact distribution.

`CASES` has one line for each; `battery_test` goes through all of them.
Distributions come from the definition: nothing here reads a scale or a
probability from the mechanism, so that false claims are detected.
"""

from collections.abc import Callable, Sequence
import itertools
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy import stats

from dpjax.features import normalisation
from dpjax.privacy import additive
from dpjax.privacy import discrete
from dpjax.privacy import inverse
from dpjax.privacy import k_norm
from dpjax.privacy import laplace
from dpjax.privacy import local
from dpjax.privacy import mechanism
from dpjax.privacy import selection
from dpjax.privacy import smooth
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import frequencies
from dpjax.stats import means as mean
from dpjax.theory.parametric import proportions
from dpjax.theory.parametric import supports
from experiments.methods.statistics import doubled_means

ADD = Adjacency.ADD_OR_REMOVE_ONE
REPLACE = Adjacency.REPLACE_ONE


class Case(NamedTuple):
  """A mechanism with neighbours and its exact distribution.

  Attributes:
    name: name of the test.
    mechanism: the mechanism under test.
    pairs: neighbours, as arguments of `release`, including worst ones.
    probs: maps such an argument to float64 probabilities of cells.
    cells: maps many releases to the numbers of their cells.
    attained: least share of the claim that the worst pair attains.
    accountant: the accountant that covers its event.
  """
  name: str
  mechanism: mechanism.Mechanism
  pairs: Sequence[tuple[Any, Any]]
  probs: Callable[[Any], np.ndarray]
  cells: Callable[[Any], np.ndarray]
  attained: float = 0.95
  accountant: str = 'pld'


def on_line(name, mechanism, pairs, cdf, *, low, high, value=lambda out: out):
  """Returns a case of one number with the distribution function `cdf(data)`."""
  edges = np.linspace(low, high, 801) + 1e-4 * (high - low)

  def probs(data):
    levels = cdf(data)(edges)
    return np.diff(np.concatenate([[0.0], levels, [1.0]]))

  return Case(name, mechanism, pairs, probs, lambda out: np.searchsorted(
    edges, np.asarray(value(out), np.float64)))


def in_plane(name, mechanism, pairs, cdfs, *, low, high, value=lambda out: out):
  """Returns a case of two independent numbers, in coarser cells."""
  edges = np.linspace(low, high, 61) + 1e-4 * (high - low)

  def probs(data):
    one, two = (np.diff(np.concatenate([[0.0], cdf(edges), [1.0]]))
                for cdf in cdfs(data))
    return np.outer(one, two).ravel()

  def cells(out):
    places = np.searchsorted(edges, np.asarray(value(out), np.float64))
    return places[:, 0] * (edges.size + 1) + places[:, 1]

  return Case(name, mechanism, pairs, probs, cells)


def arrays(*pairs, dtype=np.float32):
  return [tuple(np.asarray(each, dtype) for each in pair) for pair in pairs]


def laplace_at(scale):
  return lambda data: stats.laplace(float(np.sum(data)), scale).cdf


def exponential_probs(rate):
  def probs(scores):
    weights = np.exp(rate * np.float64(scores))
    return weights / weights.sum()
  return probs


def permute_and_flip_probs(rate):
  """Returns probabilities by all orders in which candidates can be asked."""
  def probs(scores):
    accept = np.exp(rate * (np.float64(scores) - np.max(scores)))
    masses = np.zeros(len(accept))
    orders = list(itertools.permutations(range(len(accept))))
    for order in orders:
      left = 1.0
      for one in order:
        masses[one] += left * accept[one] / len(orders)
        left *= 1 - accept[one]
    return masses
  return probs


SCORES = arrays(([3, 2.5, 1, 0], [2, 3.5, 2, 1]), ([0, 1, 1, 1], [1, 0, 0, 0]))
COUNTS = arrays(([3, 2, 1, 0], [4, 2, 1, 0]), ([0, 0, 0, 0], [1, 0, 0, 0]))
ENDS = arrays(([0.0, 0.4, 1.0], [1.0, 0.4, 1.0]), ([0.0, 0.0, 0.1],
                                                   [0.0, 1.0, 0.1]))


def selecting(name, probs_at, kind, pairs, **fields):
  mechanism = kind(sensitivity=1.0, epsilon=1.5, **fields)
  rate = 1.5 if mechanism.monotone else 0.75
  return Case(name, mechanism, pairs, probs_at(rate), np.asarray)


def inverse_case():
  """Returns the case of four cells, scored by enumerated replacements."""
  mechanism = inverse.InverseSensitivityQuantile(
    lower=0.0, upper=1.0, num_examples=3, epsilon=2.0, prob=0.6, num_cells=4)
  middles = [0.125, 0.375, 0.625, 0.875]

  def probs(data):
    ends = [round(4 * float(each)) / 4 for each in data]
    scores = [max(-sum(a != b for a, b in zip(ends, other, strict=True))
                  for other in itertools.product([*middles, *ends, 0.0, 1.0],
                                                 repeat=3)
                  if sorted(other)[1] == middle) for middle in middles]
    return exponential_probs(1.0)(scores)

  return Case('inverse_sensitivity', mechanism, ENDS, probs,
              lambda out: np.round(4 * np.asarray(out) - 0.5).astype(int))


def smooth_noise(data):
  """Returns the noise by the definition: a maximum over all data sets."""
  grid, rank = np.arange(5) / 4, 2
  best, data = 0.0, np.round(4 * np.float64(data)) / 4
  for other in itertools.product(grid, repeat=3):
    changed = sum(a != b for a, b in zip(data, other, strict=True))
    line = [0.0, *sorted(other), 1.0]
    local = max(line[rank] - line[rank - 1], line[rank + 1] - line[rank])
    best = max(best, local * math.exp(-changed))
  return stats.cauchy(np.sort(data)[rank - 1], best / 1.5)


def smooth_case():
  """Returns the case of five values, clipped and rounded to the grid."""
  mechanism = smooth.SmoothSensitivityQuantile(
    lower=0.0, upper=1.0, num_examples=3, epsilon=2.5, smoothing=1.0,
    num_cells=4)
  edges = (np.arange(4) + 0.5) / 4
  return Case(
    'smooth_sensitivity', mechanism, ENDS, lambda data: np.diff(np.concatenate(
      [[0.0], smooth_noise(data).cdf(edges), [1.0]])),
    lambda out: np.round(4 * np.asarray(out)).astype(int))


def private_size_cdfs(data):
  """Returns the distribution function of a noisy sum over a noisy count.

  It is clipped to [0, 2] and integrated numerically.
  """
  known = data[~np.isnan(data)]
  points = np.linspace(-40, 40, 40001) + known.size
  weights = stats.laplace(known.size, 1 / 0.75).pdf(points)
  weights /= weights.sum()
  total = stats.laplace(float(np.sum(known - 1)), 1 / 0.75)

  def cdf(levels):
    # Values are clipped, so those beyond the ends are at the ends.
    values = np.array([np.sum(weights * total.cdf(
      (level - 1) * np.maximum(points, 1))) for level in levels[::40]])
    values = np.interp(levels, levels[::40], values)
    return np.where(levels < 0, 0.0, np.where(levels >= 2, 1.0, values))
  return cdf


def response_probs(matrix):
  """Returns a function for the answer probabilities of two people."""
  def probs(data):
    one, two = matrix[np.asarray(data, int)]
    return np.outer(one, two).ravel()
  return probs


def k_response(size, epsilon):
  matrix = np.ones((size, size)) + np.diag([math.expm1(epsilon)] * size)
  return matrix / matrix.sum(1, keepdims=True)


def unary_probs(epsilon):
  """Returns a function for one person's three bits, numbered as one number."""
  def probs(data):
    ones = np.full(3, 1 / (math.exp(epsilon) + 1))
    ones[int(data[0])] = 0.5
    return np.array([np.prod(np.where(bits, ones, 1 - ones))
                     for bits in itertools.product([0, 1], repeat=3)])
  return probs


TWO_COUNTS = ([0, 0, 1], [0, 1, 1])
SUM_PAIRS = {ADD: arrays([0.0, 0.5], [-0.5, 0.0]),
             REPLACE: arrays([-0.5, 0.5], [0.5, -0.5])}
SQUARES = {ADD: arrays([0.0, 0.5]), REPLACE: arrays([-0.5, 0.5])}
_SCALE = {ADD: 0.5 / 1.2, REPLACE: 1 / 1.2}


def additive_cases(adjacency):
  """Yields cases of sums of records in [-1/2, 1/2] under this adjacency."""
  shared = dict(record_norm=0.5, adjacency=adjacency)
  pairs, name = SUM_PAIRS[adjacency], adjacency.value
  span = dict(low=-6.0, high=6.0)
  yield on_line(f'laplace_{name}', laplace.LaplaceMechanism(
    epsilon=1.2, **shared), pairs, laplace_at(_SCALE[adjacency]), **span)
  yield on_line(f'gaussian_{name}', additive.GaussianMechanism(
    noise_multiplier=1.6, **shared), pairs, lambda data: stats.norm(
      float(data), 0.8).cdf, **span)
  yield on_line(f'k_norm_{name}', k_norm.KNormMechanism(
    order=math.inf, epsilon=1.2, **shared), pairs,
    laplace_at(_SCALE[adjacency]), **span)
  yield on_line(f'noisy_maximum_{name}', supports.NoisyMaximum(
    epsilon=1.2, adjacency=adjacency), arrays(
      ([0.0, 0.0], [0.0, 1.0]) if adjacency is REPLACE else ([0.0], [0.0, 1.0])
    ), lambda data: stats.laplace(max(data), 1 / 1.2).cdf, **span)


def normalisation_case(adjacency):
  """Returns the case of one channel, whose sums are divided by 2."""
  def cdfs(data):
    # Each half of a contribution is at most 1 / sqrt(2), for A = 1 and B = 2.
    halves = (np.clip(data, -1, 1), np.clip(np.square(data), 0, 2) / 2)
    return [stats.norm(scale * np.sum(each) / 2, scale * 1.6 * math.sqrt(2) / 2
                       ).cdf for scale, each in zip((1, 2), halves)]

  pairs = [([2.0], []), ([0.3, -2.0], [0.3])]
  if adjacency is REPLACE:
    # Squares cannot be opposite, so the worst pair is not the bound.
    pairs = [([2.0, 0.3], [-2.0, 0.3]), ([2.0, 0.3], [0.0, 0.3])]
  return in_plane(
    f'normalisation_{adjacency.value}', normalisation.PrivateNormalisation(
      mean_norm=1.0, square_norm=2.0, noise_multiplier=1.6, num_examples=2,
      adjacency=adjacency), [tuple(np.reshape(np.float32(each), (-1, 1))
                                   for each in pair) for pair in pairs],
    cdfs, low=-12.0, high=14.0, value=lambda out: np.concatenate(
      [out.mean, out.second_moment], axis=-1))


def counts_of(data):
  return [np.sum(np.asarray(data) == k) for k in range(2)]


CASES = [
  *additive_cases(ADD), *additive_cases(REPLACE),
  selecting('exponential', exponential_probs, selection.ExponentialMechanism,
            SCORES, adjacency=REPLACE),
  selecting('exponential_monotone', exponential_probs,
            selection.ExponentialMechanism, COUNTS, adjacency=ADD,
            monotone=True),
  selecting('permute_and_flip', permute_and_flip_probs,
            selection.PermuteAndFlip,
            SCORES, adjacency=REPLACE),
  selecting('permute_and_flip_monotone', permute_and_flip_probs,
            selection.PermuteAndFlip, COUNTS, adjacency=ADD, monotone=True),
  inverse_case(),
  smooth_case(),
  Case('randomized_response', local.RandomizedResponse(
    num_categories=3, epsilon=1.1), arrays(([0, 1], [2, 1]), dtype=np.int32),
    response_probs(k_response(3, 1.1)),
    lambda out: np.asarray(out) @ np.array([3, 1])),
  Case('unary_encoding', local.UnaryEncoding(num_categories=3, epsilon=1.1),
       arrays(([0], [2]), dtype=np.int32), unary_probs(1.1),
       lambda out: np.asarray(out)[:, 0] @ np.array([4, 2, 1])),
  on_line('bounded_mean', mean.BoundedMean(
    num_examples=3, lower=-1.0, upper=2.0, epsilon=1.5), arrays(
      ([-1, 0, 1], [2, 0, 1]), ([-9, 0, 1], [np.nan, 0, 50])),
    lambda data: stats.laplace(np.clip(np.nan_to_num(data, nan=-1), -1,
                                       2).mean(), 1 / 1.5).cdf,
    low=-9.0, high=9.0, value=lambda out: out.value),
  on_line('proportion', proportions.proportion(
    num_examples=3, epsilon=1.5, interval='wald'), arrays(
      ([0, 0, 1], [1, 0, 1])), lambda data: stats.laplace(
        data.mean(), 1 / 4.5).cdf, low=-3.0, high=4.0,
    value=lambda out: out.value),
  on_line('private_size_mean', mean.PrivateSizeMean(
    lower=0.0, upper=2.0, epsilon=1.5), arrays(
      ([2, 1, 0.5, np.nan], [2, 1, 0.5, 2]), ([0, 0], [0])),
    private_size_cdfs, low=-0.1, high=2.1, value=lambda out: out.value),
  on_line('doubled_mean', doubled_means.DoubledMean(num_examples=3, epsilon=1.5),
          arrays(([0, 0.5, 1], [1, 0.5, 1])), lambda data: stats.laplace(
            2 * data.mean(), 2 / 4.5).cdf, low=-6.0, high=8.0,
          value=lambda out: out.value),
  in_plane('histogram_laplace_replace', frequencies.laplace(
    num_categories=2, num_examples=3, epsilon=1.5, adjacency=REPLACE),
    arrays(TWO_COUNTS, dtype=np.int32), lambda data: [
      stats.laplace(each / 3, 2 / 4.5).cdf for each in counts_of(data)],
    low=-4.0, high=5.0, value=lambda out: out.value),
  in_plane('histogram_gaussian_replace', frequencies.gaussian(
    num_categories=2, num_examples=3, rho=0.5, adjacency=REPLACE),
    arrays(TWO_COUNTS, dtype=np.int32), lambda data: [
      stats.norm(each / 3, math.sqrt(2) / 3).cdf for each in counts_of(data)],
    low=-2.0, high=3.0, value=lambda out: out.value),
]


def add_histogram(name, mechanism, probs_of):
  """Returns a case on counts alone, which also give the divisor."""
  class Counts:
    """A frequency mechanism's counts before they are divided."""
    adjacency, event = mechanism.adjacency, mechanism.event
    risk = mechanism.counts.risk

    def release(self, key, data):
      return mechanism.counts.release(key, frequencies.count(
        jnp.asarray(data), mechanism.num_categories))

  return in_plane(name, Counts(), arrays(([0, 0, 1], [0, 0]), dtype=np.int32),
                  lambda data: [probs_of(each) for each in counts_of(data)],
                  low=-8.0, high=10.0)


CASES += [
  add_histogram('histogram_laplace_add', frequencies.laplace(
    num_categories=2, epsilon=1.5, adjacency=ADD),
    lambda count: stats.laplace(count, 1 / 1.5).cdf),
  add_histogram('histogram_gaussian_add', frequencies.gaussian(
    num_categories=2, rho=0.5, adjacency=ADD),
    lambda count: stats.norm(count, 1.0).cdf),
]


def on_integers(name, mechanism, pairs, logs, **fields):
  """Returns the case of an integer in [-60, 60] with
  these noise log-weights."""
  points = np.arange(-60, 61)

  def probs(data):
    weights = np.exp(logs(points - float(data)))
    return weights / weights.sum()

  return Case(name, mechanism, arrays(*pairs, dtype=np.int32), probs,
              lambda out: np.asarray(out) + 60, **fields)


def integer_cases(adjacency):
  """Yields cases of integer sums to which each record adds up to 1."""
  change = 2 if adjacency is REPLACE else 1
  shared, name = dict(record_norm=1, adjacency=adjacency), adjacency.value
  yield on_integers(f'geometric_{name}', discrete.GeometricMechanism(
    epsilon=1.2, **shared), [(0, change)],
    lambda z: -np.abs(z) * 1.2 / change)
  yield on_integers(
    f'discrete_gaussian_{name}', discrete.DiscreteGaussianMechanism(
      noise_multiplier=3.0, **shared), [(0, change)], lambda z: -z * z / 18,
    accountant='rdp')


CASES += [*integer_cases(ADD), *integer_cases(REPLACE),
          normalisation_case(ADD), normalisation_case(REPLACE)]

# These are known by epsilon alone, or the pairs are not the worst.
_ATTAINED = {
  'k_norm_add_or_remove_one': 0.8, 'k_norm_replace_one': 0.8,
  'exponential': 0.45, 'exponential_monotone': 0.45, 'permute_and_flip': 0.65,
  'permute_and_flip_monotone': 0.65, 'inverse_sensitivity': 0.2,
  'smooth_sensitivity': 0.35, 'unary_encoding': 0.49,
  'discrete_gaussian_add_or_remove_one': 0.55,
  'discrete_gaussian_replace_one': 0.55, 'private_size_mean': 0.5,
  'histogram_laplace_replace': 0.6, 'normalisation_replace_one': 0.6,
  'normalisation_add_or_remove_one': 0.9}
CASES = [case._replace(attained=_ATTAINED.get(case.name, case.attained))
         for case in CASES]
