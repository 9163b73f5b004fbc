"""Repetitions of estimators of parameters, from sufficient statistics.

A step draws the statistics of `REPETITIONS` data sets in NumPy and releases an
estimate from each: by dpjax, or in NumPy for all data sets at once, written
from descriptions. Noise scales are those of dpjax.
"""

from collections.abc import Callable, Mapping
import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.privacy import notions
from dpjax.stats import mechanisms
from dpjax.theory.parametric import estimator
from dpjax.theory.parametric import exponential_families
from dpjax.theory.parametric import likelihood
from dpjax.theory.parametric import noisy_shares
from dpjax.theory.parametric import supports
from dpjax.theory.parametric import truncated_means
from experiments.benchmarks import methods
from experiments.benchmarks import program as programs
from experiments.benchmarks import quantile_checks
from experiments.benchmarks.program import Program
from experiments.benchmarks.program import Spec

REPETITIONS = 10**5
"""Number of repetitions in a step."""

_PURE, _RHO = notions.PureDP(epsilon=0.1), notions.ZCDP(rho=0.005)
_PROB, _DIMENSION = 0.3, 4
_MODEL = exponential_families.Model(dimension=_DIMENSION, radius=1.0)

Release = Callable[[np.random.Generator, estimator.Estimator, np.ndarray],
                   np.ndarray]
"""(generator, estimator, statistics [R, s]) -> estimates [R, d]."""


class Work(NamedTuple):
  """An estimator, and the same in NumPy.

  Attributes:
    mechanism: the private estimator.
    statistics: function (generator, R) that draws statistics [R, s].
    release: release of the estimator in NumPy.
  """
  mechanism: estimator.Estimator
  statistics: Callable[[np.random.Generator, int], np.ndarray]
  release: Release


def _share(rng, mechanism, counts, noise):
  share = (counts + noise) / mechanism.num_examples
  return 0.5 + mechanism.weight * (share - 0.5)


def _laplace_share(rng, mechanism, counts):
  return _share(rng, mechanism, counts,
                rng.laplace(0, mechanism.scale, counts.shape))


def _geometric_share(rng, mechanism, counts):
  up, down = rng.geometric(-np.expm1(-mechanism.epsilon), (2, *counts.shape))
  return _share(rng, mechanism, counts, up - down)


def _gaussian_share(rng, mechanism, counts):
  return _share(rng, mechanism, counts,
                rng.normal(0, mechanism.scale, counts.shape))


def _doubled(rng, mechanism, totals):
  noise = rng.laplace(0, mechanism.scale, totals.shape)
  return np.clip(2 * (totals + noise) / mechanism.num_examples, 0, 1)


def _truncated(rng, mechanism, means):
  if mechanism.noise == 'gaussian':
    noise = rng.normal(0, mechanism.scale, means.shape)
  elif mechanism.noise == 'laplace':
    noise = rng.laplace(0, mechanism.scale, means.shape)
  else:
    ways = rng.normal(size=means.shape)
    ways /= np.linalg.norm(ways, axis=1, keepdims=True)
    noise = mechanism.scale * ways * rng.gamma(means.shape[1],
                                               size=(len(means), 1))
  return mechanism.shrinkage * (means + noise)


def _likelihood(rng, mechanism, means):
  noisy = means + rng.normal(0, mechanism.noise, means.shape)
  top = 1 / (1 + np.exp(-mechanism.model.radius))
  inside = np.clip(noisy, 1 - top, top)
  return np.log(inside / (1 - inside))


def _counts(size):
  return lambda rng, runs: rng.binomial(size, _PROB, (runs, 1)).astype(float)


def _normals(size):
  """Returns a sampler of means, which are close to normal for many records."""
  return lambda rng, runs: 0.1 + rng.normal(
      0, size**-0.5 / 2, (runs, _DIMENSION))


def _totals(size):
  return lambda rng, runs: rng.normal(
      size * _PROB, (size / 12)**0.5, (runs, 1))


@functools.cache
def of_model(model: str, size: int) -> Work:
  """Returns the work of a model, for data sets of `size` records."""
  n = dict(num_examples=size)
  family, _, noise = model.partition('_')
  if family == 'share':
    mechanism, release = {
        '': (noisy_shares.LaplaceShare(epsilon=0.1, **n), _laplace_share),
        'geometric': (noisy_shares.GeometricShare(epsilon=0.1, **n),
                      _geometric_share),
        'gaussian': (noisy_shares.GaussianShare(rho=0.005, **n),
                     _gaussian_share)}[noise]
    return Work(mechanism.shrunk(), _counts(size), release)
  if family == 'doubled':
    return Work(supports.MeanSupport(guarantee=_PURE, **n), _totals(size),
                _doubled)
  if family == 'truncated':
    mechanism = truncated_means.TruncatedMean(
        dimension=_DIMENSION, threshold=1.0, noise=noise, shrinkage=0.9,
        guarantee=_RHO if noise == 'gaussian' else _PURE, **n)
    return Work(mechanism, _normals(size), _truncated)
  mechanism = likelihood.SufficientStatistics(model=_MODEL, guarantee=_RHO, **n)
  return Work(mechanism, lambda rng, runs: rng.binomial(
      size, _PROB, (runs, _DIMENSION)) / size, _likelihood)


def make(spec: Spec) -> Program:
  """Returns a program of repetitions of an estimator."""
  given, rng = of_model(spec.model, spec.size), np.random.default_rng(0)
  checked = np.repeat(given.statistics(np.random.default_rng(1), 1),
                      methods.CHECKED_DRAWS, 0)
  if methods.split(spec.method)[0] == 'numpy':
    release, info = functools.partial(given.release, rng, given.mechanism), {}
  else:
    turn = itertools.cycle(list(jax.random.split(jax.random.key(0), 64)))
    release = lambda statistics: np.asarray(given.mechanism.estimates(
        next(turn), statistics))
    with jax.enable_x64(True):
      _, info = programs.compiled(
          mechanisms.repeated(given.mechanism.draw, 0),
          jax.random.split(jax.random.key(0), REPETITIONS),
          jnp.asarray(given.statistics(rng, REPETITIONS)),
          given.mechanism.parameters)
  return Program(step=lambda: release(given.statistics(rng, REPETITIONS)),
                 info=info, repeats=REPETITIONS,
                 audit=lambda: {'draws': release(checked)})


class Finding(NamedTuple):
  """Result of a check.

  Attributes:
    least_p_value: `quantile_checks.least_p_value` of the draws.
    passed: whether the distributions are the same.
  """
  least_p_value: float
  passed: bool

  @property
  def cells(self) -> tuple[str, ...]:
    """Returns the cells of this finding in the printed table."""
    return (f'{self.least_p_value:.1e}',)


def make_spec(model: str, method: str, *, size: int) -> Spec:
  """Returns the program to check."""
  return Spec(suite='parametric', model=model, size=size, method=method)


def judge(spec: Spec, audit: Mapping[str, Any]) -> Finding:
  """Compares draws from one data set with draws in NumPy."""
  given, draws = of_model(spec.model, spec.size), audit['draws']
  once = given.statistics(np.random.default_rng(1), 1)
  wanted = given.release(np.random.default_rng(4), given.mechanism,
                         np.repeat(once, len(draws), 0))
  middle = wanted.mean(0)
  squares = [np.sum((each - middle)**2, 1) for each in (draws, wanted)]
  # Integers over n must tie although the programs round differently.
  least = quantile_checks.least_p_value(np.round(draws, 9),
                                        np.round(wanted, 9), *squares)
  return Finding(least, least >= quantile_checks.ERROR_RATE)
