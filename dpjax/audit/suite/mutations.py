"""Faulty versions of DP-SGD, each with the checks that must catch it (AUD-14).

Each fault replaces one part of the reference trainer. Where there is a closed
form, `true_epsilon` is the accountant's epsilon of the faulty trainer at delta
1e-5.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from dpjax.audit.suite import reference
from dpjax.audit.suite.reference import Trainer
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency


class Mutant(NamedTuple):
  """A faulty trainer.

  Attributes:
    trainer: the trainer with the fault.
    caught_by: names of checks in `reference.CHECKS` that must all refute it.
    true_epsilon: epsilon of the faulty trainer; None without a closed form.
  """
  trainer: Trainer
  caught_by: tuple[str, ...]
  true_epsilon: float | None = None


def _event(*, sampling_prob: float = reference.PROB,
           num_steps: int = reference.STEPS) -> accounting.DpEvent:
  """Returns the event of the reference trainer, with one part changed."""
  return accounting.poisson_gaussian_event(
      sampling_prob=sampling_prob, noise_multiplier=reference.SIGMA,
      num_steps=num_steps)


def _scaled_noise(factor: float) -> reference.Sampler:
  """Returns the sampler of noise that is scaled by a factor."""
  return lambda rng, steps, width: factor * reference.fresh_noise(
      rng, steps, width)


def _twice_the_rate(rng: np.random.Generator, steps: int,
                    size: int) -> np.ndarray:
  """Draws Poisson batches at twice the claimed rate."""
  return rng.random((steps, size)) < 2 * reference.PROB


def _everybody(rng: np.random.Generator, steps: int, size: int) -> np.ndarray:
  """Returns batches of all records."""
  del rng
  return np.ones((steps, size), bool)


def _partition(rng: np.random.Generator, steps: int, size: int) -> np.ndarray:
  """Returns batches in which record i takes part in every hundredth step."""
  del rng
  period = round(1 / reference.PROB)
  return (np.arange(steps)[:, None] - np.arange(size)[None]) % period == 0


def _shuffled(rng: np.random.Generator, steps: int, size: int) -> np.ndarray:
  """Draws batches of equal size, with each record once in each epoch."""
  period = round(1 / reference.PROB)
  epochs = [rng.permuted(np.tile(np.arange(size) % period, (1, 1)), axis=1)[0]
            for _ in range(steps // period)]
  return np.concatenate([np.arange(period)[:, None] == epoch[None]
                         for epoch in epochs])


def _truncated(rng: np.random.Generator, steps: int, size: int) -> np.ndarray:
  """Draws Poisson batches, and cuts them at 1.2 times their expected size."""
  joined = reference.poisson(rng, steps, size)
  return joined & (np.cumsum(joined, 1) <= 1.2 * reference.PROB * size)


def _one_key(rng: np.random.Generator, steps: int, width: int) -> np.ndarray:
  """Returns the same noise in all steps and runs."""
  del rng
  return np.tile(np.random.default_rng(1).normal(
      0, reference.SIGMA, (1, width)), (steps, 1))


def _noise_of_each_device(rng: np.random.Generator, steps: int,
                          width: int) -> np.ndarray:
  """Draws the noise of four devices with one key, so all four are equal."""
  # Four equal draws add up to 4 sigma, independent ones to 2 sigma.
  return 4 * reference.fresh_noise(rng, steps, width)


def _clip_the_mean(gradients: np.ndarray) -> np.ndarray:
  """Clips the mean gradient of a batch instead of each gradient."""
  mean = gradients.mean(0)
  return len(gradients) * mean / max(1.0, np.linalg.norm(mean))


def _divide_by_the_batch(gradients: np.ndarray) -> np.ndarray:
  """Divides the sum by the realised batch size, which is private."""
  # `reference` compares batches of 5 records with batches of 6.
  return 5 * reference.add_up(gradients) / max(len(gradients), 1)


def _normalised_by_the_batch(gradients: np.ndarray) -> np.ndarray:
  """Subtracts the mean of the batch from each gradient before clipping."""
  return reference.clip_each(gradients - gradients.mean(0, keepdims=True))


def _skip_batch_if_not_finite(gradients: np.ndarray) -> np.ndarray:
  """Returns 0 for a batch with a gradient that is not finite."""
  if not np.isfinite(gradients).all():
    return np.zeros(gradients.shape[1])
  return reference.add_up(gradients)


def _mutant(caught_by: str, true_epsilon: float | None = None,
            **parts: Any) -> Mutant:
  """Returns the trainer with faulty parts, and the names of its checks."""
  return Mutant(dataclasses.replace(Trainer(), **parts),
                tuple(caught_by.split()), true_epsilon)


MUTANTS = {
    'noise std x 0.9': _mutant('variance', 2.317, noise=_scaled_noise(0.9)),
    'noise halved': _mutant('variance event', 13.36,
                            noise=_scaled_noise(0.5)),
    'sensitivity 2C': _mutant(
        'sensitivity event', 13.36,
        total=lambda gradients: 2 * reference.add_up(gradients)),
    'rate doubled, unaccounted': _mutant('sampling', 3.899,
                                         draw=_twice_the_rate),
    'rate doubled, event tells': _mutant(
        'claim sampling', 3.899, draw=_twice_the_rate,
        event=_event(sampling_prob=2 * reference.PROB)),
    'steps doubled, event tells': _mutant(
        'claim', 2.585, event=_event(num_steps=2 * reference.STEPS)),
    'add/remove figure for replacement': _mutant(
        'claim', 2.844, adjacency=Adjacency.REPLACE_ONE),
    'no subsampling': _mutant('sampling event', 634.0, draw=_everybody),
    'fixed partition': _mutant('sampling', 17.86, draw=_partition),
    'shuffling called Poisson': _mutant('sampling', draw=_shuffled),
    'batches truncated': _mutant('sampling', draw=_truncated),
    'same noise key every step': _mutant('variance independence',
                                         math.inf, noise=_one_key),
    'noise of each device with one key': _mutant(
        'variance', noise=_noise_of_each_device),
    'batch mean clipped': _mutant('sensitivity', total=_clip_the_mean),
    'divided by the realised batch': _mutant('sensitivity',
                                             total=_divide_by_the_batch),
    'statistics of the batch': _mutant(
        'isolation', contributions=_normalised_by_the_batch),
    'not finite, batch skipped': _mutant('sensitivity',
                                         total=_skip_batch_if_not_finite),
    # Eight responses of epsilon 1 each, claimed as one.
    'count of randomised response ignored': _mutant(
        'claim', epsilon=1.0, adjacency=Adjacency.REPLACE_ONE,
        event=accounting.repeated_event(
            accounting.randomized_response_event(
                uniform_prob=2 / (1 + math.e), num_categories=2), 8)),
}
