"""DP-SGD in NumPy, in parts that can be exchanged for wrong ones (AUD-14).

At learning rate zero a record is its own gradient. What is audited is the
claim of the catalogue: q = 0.01, sigma = 1, 1000 steps, delta = 1e-5 under
add-or-remove-one, epsilon 1.829.
"""

from collections.abc import Callable
import dataclasses

import jax
import numpy as np

from dpjax.audit import claims
from dpjax.audit import blackbox
from dpjax.audit import exact
from dpjax.audit import noise
from dpjax.audit import steps
from dpjax.audit import whitebox
from dpjax.audit.target import Pair, Query, Target, toggles
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency

PROB, SIGMA, STEPS, DELTA, EPSILON = 0.01, 1.0, 1000, 1e-5, 1.829
_RECORDS, _WIDTH, _RUNS = 1000, 4, 1024
_EVENT = accounting.poisson_gaussian_event(
    sampling_prob=PROB, noise_multiplier=SIGMA, num_steps=STEPS)


def poisson(rng: np.random.Generator, steps_: int, size: int) -> np.ndarray:
  """Which records join which step: [steps, size] bool."""
  return rng.random((steps_, size)) < PROB


def clip_each(gradients: np.ndarray) -> np.ndarray:
  """What each record contributes: clipped to norm 1, 0 if it is no number."""
  kept = np.isfinite(gradients).all(-1, keepdims=True)
  gradients = np.where(kept, gradients, 0.0)
  norms = np.linalg.norm(gradients, axis=-1, keepdims=True)
  return gradients / np.maximum(norms, 1.0)


def add_up(gradients: np.ndarray) -> np.ndarray:
  """What a step releases of a batch [b, d], before the noise: [d]."""
  return clip_each(gradients).sum(0)


def fresh_noise(rng: np.random.Generator, steps_: int,
                width: int) -> np.ndarray:
  """Of all steps: [steps, width]."""
  return rng.normal(0, SIGMA, (steps_, width))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trainer:
  """The parts of DP-SGD, and what is claimed of it.

  Attributes:
    draw: (rng, steps, size) -> [steps, size] batches.
    contributions: gradients [b, d] -> [b, d].
    total: gradients [b, d] -> [d], what is released of them.
    noise: (rng, steps, width) -> [steps, width].
    event: what runs.
    epsilon: claimed.
    adjacency: of the claim.
  """
  draw: Callable = poisson
  contributions: Callable = clip_each
  total: Callable = add_up
  noise: Callable = fresh_noise
  event: accounting.DpEvent = _EVENT
  epsilon: float = EPSILON
  adjacency: Adjacency = Adjacency.ADD_OR_REMOVE_ONE

  @property
  def claim(self) -> claims.Claim:
    """Of the whole run."""
    return claims.Claim(epsilon=self.epsilon, delta=DELTA, event=self.event,
                        adjacency=self.adjacency)


def findings(trainer: Trainer, *, seed: int,
             significance: float = 1e-3) -> set[str]:
  """Which checks refute a trainer: names of `CHECKS`."""
  return {name for name, check in CHECKS.items()
          if check(trainer, np.random.default_rng(seed),
                   significance / len(CHECKS))}


def _claim(trainer, rng, level) -> bool:
  del rng, level
  try:
    claims.check(trainer.claim)
  except ValueError:
    return True
  return False


def _pairs() -> tuple[Pair, ...]:
  rng = np.random.default_rng(0)
  rows = np.stack([np.eye(_WIDTH)[0], -5 * np.eye(_WIDTH)[0],
                   np.full(_WIDTH, np.inf), np.full(_WIDTH, np.nan)])
  bases = (np.tile(3 * np.eye(_WIDTH)[0], (5, 1)), rng.normal(size=(5, _WIDTH)))
  return tuple(pair for base in bases
               for pair in toggles(base, rows, replace=False))


def _sensitivity(trainer, rng, level) -> bool:
  del rng, level
  with np.errstate(invalid='ignore'):
    return exact.largest_change(Query(trainer.total, 1.0), _pairs()).amount > 0


def _isolation(trainer, rng, level) -> bool:
  del level
  records = rng.normal(size=(6, _WIDTH))
  return not exact.isolated(trainer.contributions, records,
                            5 * np.ones(_WIDTH))


def _sampling(trainer, rng, level) -> bool:
  found = [value for _, value in steps.sampling_p_values(
      trainer.draw(rng, STEPS, _RECORDS), sampling_prob=PROB)]
  return min(found) * len(found) <= level


def _noise(trainer, rng, level) -> dict[str, float]:
  del level
  draws = [trainer.noise(rng, STEPS, _WIDTH) for _ in range(2)]
  return dict(noise.p_values(*(draw / SIGMA for draw in draws)))


def _variance(trainer, rng, level) -> bool:
  return _noise(trainer, rng, level)['variance'] <= level


def _independence(trainer, rng, level) -> bool:
  found = [value for name, value in _noise(trainer, rng, level).items()
           if name.startswith('independence')]
  return min(found) * len(found) <= level


def losses(trainer: Trainer, rng: np.random.Generator, num_runs: int, *,
           present: bool) -> np.ndarray:
  """Privacy losses [num_runs] of runs with a canary of norm 1, or without.

  Exact where the trainer is what it says (AUD-09).
  """
  found = trainer.noise(rng, STEPS, num_runs)
  if present:
    canary = np.eye(_WIDTH)[:1]
    found = found + trainer.draw(rng, STEPS, num_runs) * (
        trainer.total(canary)[0])
  return whitebox.privacy_losses(found.T, sampling_prob=PROB,
                                 noise_multiplier=SIGMA)


def _event(trainer, rng, level) -> bool:
  """Counted on fresh runs (AUD-04), against the claim's whole curve."""
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
