"""Gaussian-process search over hyperparameters (item HPO-01).

Bayesian optimisation in its usual form. The first points come from a Sobol
design. Then a Gaussian process is fitted, with Matern-5/2 covariance, a length
scale for each coordinate and a noise term, and the point of largest expected
improvement is tried. The next point is a pure function of the trials so far,
so that a search can be replayed, and resumed from its history.

Privacy: this module gives no privacy guarantee. A search post-processes the
scores that it is given; the caller must account for the cost of these scores.

References: Barczewski (2025, section 5.3.1), who uses BoTorch; Jones, Schonlau
and Welch (1998) for expected improvement; Ginsbourger et al. (2010) for the
kriging believer.
"""

from collections.abc import Sequence
import math
from typing import Any, NamedTuple
import warnings

import numpy as np
from scipy import stats
from scipy.stats import qmc

from dpjax import errors
from experiments import search_space
from experiments.search_space import Point
from experiments.search_space import Space

_NUM_GLOBAL = 1024
_NUM_LOCAL = 512
_NUM_PARENTS = 3
# Size of local moves relative to a coordinate's range; one for each round.
_STEPS = (0.2, 0.05, 0.01)


class Trial(NamedTuple):
  """A point and its score, to be maximised; NaN for one that failed."""
  point: Point
  score: float


def suggest(space: Space, history: Sequence[Trial], *, seed: int,
            count: int = 1, num_initial: int = 8) -> list[Point]:
  """Returns the next points to try: a pure function of the arguments.

  Args:
    space: the dimensions, with different names.
    history: all trials so far, in order.
    seed: seed of the design and of the maximisation of expected improvement.
    count: number of points; each after the first is chosen as if the points
      before it had scored their posterior means.
    num_initial: number of trials of the Sobol design, counting those in
      `history`.

  Returns:
    Points of the space that are not in `history`; fewer than `count`, or none,
    when all points of a finite space have been tried.

  Raises:
    ValueError: one line, for an empty space or a trial outside of it.
  """
  search_space.check(space)
  errors.check_at_least('count', count, 1)
  errors.check_at_least('num_initial', num_initial, 1)
  for trial in history:
    search_space.check_point(space, trial.point)
  units = search_space.units(space, [trial.point for trial in history])
  process = None
  for index in range(len(history), len(history) + count):
    if index < num_initial or not history:
      place = _from_design(space, index, seed, units)
    else:
      process = process or _fit(space, units[:len(history)], history, seed)
      place = _most_promising(space, process, units,
                              np.random.default_rng([seed, index]))
    if place is None:
      break
    units = np.concatenate([units, place[None]])
  return [search_space.point_at(space, place)
          for place in units[len(history):]]


def best(space: Space, history: Sequence[Trial], *, seed: int) -> int:
  """Returns the index of the trial with the largest posterior mean.

  The trial with the largest score would be biased towards lucky noise.
  """
  units = search_space.units(space, [trial.point for trial in history])
  process = _fit(space, units, history, seed)
  means, _ = process.posterior(search_space.features(space, units))
  return int(np.argmax(means))


def _new(units: np.ndarray, tried: np.ndarray) -> np.ndarray:
  """Returns the places at which no trial was made."""
  gaps = np.abs(units[:, None] - tried[None]).max(-1)
  return units[(gaps > 1e-9).all(1)]


def _sobol(dimensions: int, number: int, seed) -> np.ndarray:
  """Returns at least `number` scrambled Sobol points, [2^m, dimensions]."""
  sampler = qmc.Sobol(dimensions, scramble=True, seed=seed)
  return sampler.random_base2(math.ceil(math.log2(number)))


def _from_design(space, index: int, seed: int, tried) -> np.ndarray | None:
  """Returns the first untried place of the design, from `index` on, or None."""
  design = _sobol(len(space), index + _NUM_GLOBAL, seed)[index:]
  places = _new(search_space.snap(space, design), tried)
  return places[0] if len(places) else None


class _Process(NamedTuple):
  """A Gaussian process fitted to standardised scores.

  Attributes:
    kernel: covariance of the scores without noise.
    noise: variance of the noise.
    x: [n, features], the points with a known or assumed score.
    y: [n], their scores.
  """
  kernel: Any
  noise: float
  x: np.ndarray
  y: np.ndarray

  def posterior(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns posterior means and standard deviations at x, without noise."""
    from sklearn import gaussian_process
    model = gaussian_process.GaussianProcessRegressor(
        self.kernel, alpha=self.noise, optimizer=None).fit(self.x, self.y)
    with warnings.catch_warnings():
      # Rounding may leave a variance of -1e-16 where a point was tried.
      warnings.filterwarnings('ignore', 'Predicted variances smaller than 0')
      return model.predict(x, return_std=True)

  def believing(self, x: np.ndarray) -> '_Process':
    """Returns the process as if the scores at x were their posterior means."""
    expected, _ = self.posterior(x)
    return self._replace(x=np.concatenate([self.x, x]),
                         y=np.concatenate([self.y, expected]))


def _standardised(history: Sequence[Trial]) -> np.ndarray:
  """Returns scores of mean 0 and variance 1; a failure gets the worst score."""
  scores = np.array([trial.score for trial in history], dtype=np.float64)
  finite = np.isfinite(scores)
  scores = np.where(finite, scores,
                    scores[finite].min() if finite.any() else 0.0)
  return (scores - scores.mean()) / (scores.std() or 1.0)


def _fit(space, units: np.ndarray, history: Sequence[Trial],
         seed: int) -> _Process:
  """Fits covariance and noise by maximum marginal likelihood."""
  from sklearn import exceptions
  from sklearn import gaussian_process
  from sklearn.gaussian_process import kernels
  x, y = search_space.features(space, units), _standardised(history)
  kernel = kernels.ConstantKernel(1.0, (1e-2, 1e2)) * kernels.Matern(
      np.ones(x.shape[1]), (0.2, 20.0), nu=2.5) + kernels.WhiteKernel(
          1e-2, (1e-6, 1.0))
  model = gaussian_process.GaussianProcessRegressor(kernel, random_state=seed)
  with warnings.catch_warnings():
    # A length scale at its upper bound only means that the coordinate has no
    # effect on the score.
    warnings.simplefilter('ignore', exceptions.ConvergenceWarning)
    model.fit(x, y)
  return _Process(model.kernel_.k1, model.kernel_.k2.noise_level, x, y)


def _most_promising(space, process: _Process, tried: np.ndarray,
                    rng) -> np.ndarray | None:
  """Returns the untried place of largest expected improvement, or None.

  Args:
    space: the dimensions.
    process: process fitted to the first rows of `tried`.
    tried: [n, dimensions]; the last rows have no scores yet.
    rng: generator of the candidates.
  """
  pending = tried[len(process.y):]
  if len(pending):
    process = process.believing(search_space.features(space, pending))
  means, _ = process.posterior(search_space.features(space, tried))
  parents = tried[np.argsort(-means)[:_NUM_PARENTS]]
  pool, winner = _sobol(len(space), _NUM_GLOBAL, rng), None
  for step in _STEPS:
    pool = np.concatenate([pool, _moves(space, parents, step, rng)])
    pool = _new(search_space.snap(space, pool), tried)
    if not len(pool):
      return None
    gains = _expected_improvement(
        *process.posterior(search_space.features(space, pool)), means.max())
    winner = pool[int(np.argmax(gains))]
    parents = pool = winner[None]
  return winner


def _moves(space, parents: np.ndarray, step: float, rng) -> np.ndarray:
  """Returns places near the parents: some numbers moved, choices redrawn."""
  shape = (_NUM_LOCAL, len(space))
  units = parents[rng.integers(len(parents), size=_NUM_LOCAL)]
  # Reflecting at 0 and 1, instead of clipping, avoids a pile-up at the ends.
  shifted = 1 - np.abs(1 - np.abs(units + step * rng.normal(size=shape)))
  changed = np.where([isinstance(each, search_space.Choice) for each in space],
                   rng.random(shape), np.clip(shifted, 0, 1))
  is_moved = rng.random(shape) < max(0.3, 1 / len(space))
  return np.where(is_moved, changed, units)


def _expected_improvement(means, deviations, incumbent: float) -> np.ndarray:
  """Returns E max(f - incumbent, 0) for Gaussian f."""
  deviations = np.maximum(deviations, 1e-9)
  z = (means - incumbent) / deviations
  return deviations * (z * stats.norm.cdf(z) + stats.norm.pdf(z))
