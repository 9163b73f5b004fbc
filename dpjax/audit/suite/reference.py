"""A reference DP-SGD in NumPy whose parts can be replaced by faults (AUD-14).

The learning rate is zero, and each record is its own gradient. The audited
claim is epsilon = 1.829 at delta = 1e-5 under add-or-remove-one, for q = 0.01,
sigma = 1 and 1000 steps.
"""

from collections.abc import Callable
import dataclasses

import jax
import numpy as np

from dpjax.audit import blackbox
from dpjax.audit import claims
from dpjax.audit import exact
from dpjax.audit import noise
from dpjax.audit import steps
from dpjax.audit import whitebox
from dpjax.audit.target import Pair
from dpjax.audit.target import Query
from dpjax.audit.target import Target
from dpjax.audit.target import toggles
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency

PROB, SIGMA, STEPS, DELTA, EPSILON = 0.01, 1.0, 1000, 1e-5, 1.829
_RECORDS, _WIDTH, _RUNS = 1000, 4, 1024
_EVENT = accounting.poisson_gaussian_event(
    sampling_prob=PROB, noise_multiplier=SIGMA, num_steps=STEPS)


Sampler = Callable[[np.random.Generator, int, int], np.ndarray]
"""(rng, steps, size) -> batches [steps, size] bool, or noise [steps, size]."""


def poisson(rng: np.random.Generator, steps_: int, size: int) -> np.ndarray:
  """Draws Poisson batches [steps, size] bool, True where a record joins."""
  return rng.random((steps_, size)) < PROB


def clip_each(gradients: np.ndarray) -> np.ndarray:
  """Clips each gradient to norm 1; one that is not finite becomes 0."""
  finite = np.isfinite(gradients).all(-1, keepdims=True)
  gradients = np.where(finite, gradients, 0.0)
  norms = np.linalg.norm(gradients, axis=-1, keepdims=True)
  return gradients / np.maximum(norms, 1.0)


def add_up(gradients: np.ndarray) -> np.ndarray:
  """Returns the clipped sum [d] of a batch's gradients [b, d]."""
  return clip_each(gradients).sum(0)


def fresh_noise(rng: np.random.Generator, steps_: int,
                width: int) -> np.ndarray:
  """Draws the noise of all steps, [steps, width]."""
  return rng.normal(0, SIGMA, (steps_, width))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trainer:
  """The parts of DP-SGD, and its privacy claim.

  Attributes:
    draw: function (rng, steps, size) that draws batches [steps, size] bool.
    contributions: function from gradients [b, d] to contributions [b, d].
    total: function from gradients [b, d] to their sum [d] before noise.
    noise: function (rng, steps, width) that draws noise [steps, width].
    event: declared accounting event.
    epsilon: claimed epsilon at delta 1e-5.
    adjacency: adjacency of the claim.
  """
  draw: Sampler = poisson
  contributions: Callable[[np.ndarray], np.ndarray] = clip_each
  total: Callable[[np.ndarray], np.ndarray] = add_up
  noise: Sampler = fresh_noise
  event: accounting.DpEvent = _EVENT
  epsilon: float = EPSILON
  adjacency: Adjacency = Adjacency.ADD_OR_REMOVE_ONE

  @property
  def claim(self) -> claims.Claim:
    """The claim of the whole run."""
    return claims.Claim(epsilon=self.epsilon, delta=DELTA, event=self.event,
                        adjacency=self.adjacency)


def findings(trainer: Trainer, *, seed: int,
             significance: float = 1e-3) -> set[str]:
  """Returns the names in `CHECKS` of the checks that refute a trainer."""
  # The checks share the significance equally (Bonferroni).
  return {name for name, check in CHECKS.items()
          if check(trainer, np.random.default_rng(seed),
                   significance / len(CHECKS))}


def _claim(trainer: Trainer, rng: np.random.Generator, level: float) -> bool:
  """Checks that the claimed epsilon is not below that of the event."""
  del rng, level
  try:
    claims.check(trainer.claim)
  except ValueError:
    return True
  return False


def _pairs() -> tuple[Pair, ...]:
  """Returns batches with and without an extreme record."""
  rng = np.random.default_rng(0)
  rows = np.stack([np.eye(_WIDTH)[0], -5 * np.eye(_WIDTH)[0],
                   np.full(_WIDTH, np.inf), np.full(_WIDTH, np.nan)])
  bases = (np.tile(3 * np.eye(_WIDTH)[0], (5, 1)), rng.normal(size=(5, _WIDTH)))
  return tuple(pair for base in bases
               for pair in toggles(base, rows, replace=False))


def _sensitivity(trainer: Trainer, rng: np.random.Generator,
                 level: float) -> bool:
  """Compares changes of the sum with the sensitivity 1."""
  del rng, level
  with np.errstate(invalid='ignore'):
    return exact.largest_change(Query(trainer.total, 1.0), _pairs()).amount > 0


def _isolation(trainer: Trainer, rng: np.random.Generator,
               level: float) -> bool:
  """Checks that contributions do not depend on other records."""
  del level
  records = rng.normal(size=(6, _WIDTH))
  return not exact.isolated(trainer.contributions, records,
                            5 * np.ones(_WIDTH))


def _sampling(trainer: Trainer, rng: np.random.Generator,
              level: float) -> bool:
  """Tests whether batches are Poisson samples."""
  p_values = [value for _, value in steps.sampling_p_values(
      trainer.draw(rng, STEPS, _RECORDS), sampling_prob=PROB)]
  # Bonferroni over the tests.
  return min(p_values) * len(p_values) <= level


def _noise(trainer: Trainer, rng: np.random.Generator) -> dict[str, float]:
  """Returns the p-values of all tests of the noise."""
  draws = [trainer.noise(rng, STEPS, _WIDTH) for _ in range(2)]
  return dict(noise.p_values(*(draw / SIGMA for draw in draws)))


def _variance(trainer: Trainer, rng: np.random.Generator,
              level: float) -> bool:
  """Tests the variance of the noise."""
  return _noise(trainer, rng)['variance'] <= level


def _independence(trainer: Trainer, rng: np.random.Generator,
                  level: float) -> bool:
  """Tests the independence of the noise, by all tests together."""
  p_values = [value for name, value in _noise(trainer, rng).items()
              if name.startswith('independence')]
  return min(p_values) * len(p_values) <= level


def losses(trainer: Trainer, rng: np.random.Generator, num_runs: int, *,
           present: bool) -> np.ndarray:
  """Returns privacy losses [num_runs] of runs with or without a canary.

  The canary has norm 1. The losses are exact if the trainer has no fault
  (AUD-09).
  """
  # Column r has the canary's coordinate of the noisy sums of run r. Poisson
  # records are independent, so `draw` may sample runs in their place.
  outputs = trainer.noise(rng, STEPS, num_runs)
  if present:
    canary = np.eye(_WIDTH)[:1]
    outputs = outputs + trainer.draw(rng, STEPS, num_runs) * (
        trainer.total(canary)[0])
  return whitebox.privacy_losses(outputs.T, sampling_prob=PROB,
                                 noise_multiplier=SIGMA)


def _event(trainer: Trainer, rng: np.random.Generator, level: float) -> bool:
  """Tests the privacy curve of the default claim on fresh runs (AUD-04)."""
  # A data set is a bool here: whether the canary is in it.
  target = Target(
      name='reference', release=None, pairs=(Pair(True, False),),
      claim=Trainer().claim, sample=lambda key, data, size: losses(
          trainer, rng, size, present=data)[:, None])
  return blackbox.audit(jax.random.key(0), target, num_runs=_RUNS,
                        significance=level).excess > 0


CHECKS = {
    'claim': _claim,
    'sensitivity': _sensitivity,
    'isolation': _isolation,
    'sampling': _sampling,
    'variance': _variance,
    'independence': _independence,
    'event': _event,
}
"""Maps a name to a check: (trainer, rng, level) -> True if it finds a fault."""
