"""Estimators of parameters: repetitions from sufficient statistics.

A step draws the statistics of `REPETITIONS` data sets from their own law, in
NumPy, and releases an estimate from each: by dpjax, or in NumPy, all at once,
written from descriptions. Scales are read off ours.
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
"""In a step."""

_PURE, _RHO = notions.PureDP(epsilon=0.1), notions.ZCDP(rho=0.005)
_PROB, _DIMENSION = 0.3, 4
_MODEL = exponential_families.Model(dimension=_DIMENSION, radius=1.0)

Law = Callable[[np.random.Generator, estimator.Estimator, np.ndarray],
               np.ndarray]
"""(generator, estimator, statistics [R, s]) -> estimates [R, d]."""


class Work(NamedTuple):
  """An estimator and its peer.

  Attributes:
    made: the estimator.
    statistics: (generator, R) -> [R, s].
    law: the same in NumPy.
  """
  made: estimator.Estimator
  statistics: Callable[[np.random.Generator, int], np.ndarray]
  law: Law


def _share(rng, made, counts, noise):
  return 0.5 + made.share * ((counts + noise) / made.num_examples - 0.5)


def _laplace_share(rng, made, counts):
  return _share(rng, made, counts, rng.laplace(0, made.scale, counts.shape))


def _geometric_share(rng, made, counts):
  up, down = rng.geometric(-np.expm1(-made.epsilon), (2, *counts.shape))
  return _share(rng, made, counts, up - down)


def _gaussian_share(rng, made, counts):
  return _share(rng, made, counts, rng.normal(0, made.scale, counts.shape))


def _doubled(rng, made, totals):
  noise = rng.laplace(0, made.scale, totals.shape)
  return np.clip(2 * (totals + noise) / made.num_examples, 0, 1)


def _truncated(rng, made, means):
  if made.noise == 'gaussian':
    noise = rng.normal(0, made.scale, means.shape)
  elif made.noise == 'laplace':
    noise = rng.laplace(0, made.scale, means.shape)
  else:
    ways = rng.normal(size=means.shape)
    ways /= np.linalg.norm(ways, axis=1, keepdims=True)
    noise = made.scale * ways * rng.gamma(means.shape[1], size=(len(means), 1))
  return made.shrinkage * (means + noise)


def _likelihood(rng, made, means):
  noisy = means + rng.normal(0, made.noise, means.shape)
  top = 1 / (1 + np.exp(-made.model.radius))
  inside = np.clip(noisy, 1 - top, top)
  return np.log(inside / (1 - inside))


def _counts(size):
  return lambda rng, runs: rng.binomial(size, _PROB, (runs, 1)).astype(float)


def _normals(size):
  """Means of many records are close to normal."""
  return lambda rng, runs: 0.1 + rng.normal(
      0, size**-0.5 / 2, (runs, _DIMENSION))


def _totals(size):
  return lambda rng, runs: rng.normal(
      size * _PROB, (size / 12)**0.5, (runs, 1))


@functools.cache
def of_model(model: str, size: int) -> Work:
  """By the name of a model, for data sets of `size` records."""
  n = dict(num_examples=size)
  family, _, noise = model.partition('_')
  if family == 'share':
    made, law = {
        '': (noisy_shares.LaplaceShare(epsilon=0.1, **n), _laplace_share),
        'geometric': (noisy_shares.GeometricShare(epsilon=0.1, **n),
                      _geometric_share),
        'gaussian': (noisy_shares.GaussianShare(rho=0.005, **n),
                     _gaussian_share)}[noise]
    return Work(made.shrunk(), _counts(size), law)
  if family == 'doubled':
    return Work(supports.MeanSupport(guarantee=_PURE, **n), _totals(size),
                _doubled)
  if family == 'truncated':
    made = truncated_means.TruncatedMean(
        dimension=_DIMENSION, threshold=1.0, noise=noise, shrinkage=0.9,
        guarantee=_RHO if noise == 'gaussian' else _PURE, **n)
    return Work(made, _normals(size), _truncated)
  made = likelihood.SufficientStatistics(model=_MODEL, guarantee=_RHO, **n)
  return Work(made, lambda rng, runs: rng.binomial(
      size, _PROB, (runs, _DIMENSION)) / size, _likelihood)


def make(spec: Spec) -> Program:
  """A step of an estimator, or of its peer."""
  given, rng = of_model(spec.model, spec.size), np.random.default_rng(0)
  checked = np.repeat(given.statistics(np.random.default_rng(1), 1),
                      methods.CHECKED_DRAWS, 0)
  if methods.split(spec.method)[0] == 'numpy':
    release, info = functools.partial(given.law, rng, given.made), {}
  else:
    turn = itertools.cycle(list(jax.random.split(jax.random.key(0), 64)))
    release = lambda found: np.asarray(given.made.estimates(next(turn), found))
    with jax.enable_x64(True):
      _, info = programs.compiled(
          mechanisms.repeated(given.made.draw, 0),
          jax.random.split(jax.random.key(0), REPETITIONS),
          jnp.asarray(given.statistics(rng, REPETITIONS)),
          given.made.parameters)
  return Program(step=lambda: release(given.statistics(rng, REPETITIONS)),
                 info=info, repeats=REPETITIONS,
                 audit=lambda: {'draws': release(checked)})


class Finding(NamedTuple):
  """What a check saw.

  Attributes:
    least_p_value: of `quantile_checks.least_p_value`.
    passed: whether the laws are the same.
  """
  least_p_value: float
  passed: bool

  @property
  def cells(self) -> tuple[str, ...]:
    """As it is printed."""
    return (f'{self.least_p_value:.1e}',)


def make_spec(model: str, method: str, *, size: int) -> Spec:
  """What is checked."""
  return Spec(suite='parametric', model=model, size=size, method=method)


def judge(spec: Spec, audit: Mapping[str, Any]) -> Finding:
  """Compares draws from one data set with those in NumPy."""
  given, draws = of_model(spec.model, spec.size), audit['draws']
  once = given.statistics(np.random.default_rng(1), 1)
  wanted = given.law(np.random.default_rng(4), given.made,
                     np.repeat(once, len(draws), 0))
  middle = wanted.mean(0)
  squares = [np.sum((found - middle)**2, 1) for found in (draws, wanted)]
  # Integers over n tie, whatever the last digit of either program.
  least = quantile_checks.least_p_value(np.round(draws, 9),
                                        np.round(wanted, 9), *squares)
  return Finding(least, least >= quantile_checks.ERROR_RATE)
