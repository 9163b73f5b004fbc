"""Faulty versions of DP-SGD, each with the checks that must catch it (AUD-14).

Each fault replaces one part of the reference trainer. Where there is a closed
form, `true_epsilon` is the accountant's epsilon of the faulty trainer at delta
1e-5.
"""

import dataclasses
import math
from typing import NamedTuple

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


def _event(**changes) -> accounting.DpEvent:
  return accounting.poisson_gaussian_event(**dict(
      sampling_prob=reference.PROB, noise_multiplier=reference.SIGMA,
      num_steps=reference.STEPS) | changes)


def _scaled_noise(factor: float):
  return lambda rng, steps, width: factor * reference.fresh_noise(
      rng, steps, width)


def _twice_the_rate(rng, steps, size):
  return rng.random((steps, size)) < 2 * reference.PROB


def _everybody(rng, steps, size):
  del rng
  return np.ones((steps, size), bool)


def _partition(rng, steps, size):
  # Deterministic: record i takes part in every hundredth step.
  del rng
  period = round(1 / reference.PROB)
  return (np.arange(steps)[:, None] - np.arange(size)[None]) % period == 0


def _shuffled(rng, steps, size):
  # Batches of equal size, each record once in each epoch.
  period = round(1 / reference.PROB)
  epochs = [rng.permuted(np.tile(np.arange(size) % period, (1, 1)), axis=1)[0]
            for _ in range(steps // period)]
  return np.concatenate([np.arange(period)[:, None] == epoch[None]
                         for epoch in epochs])


def _truncated(rng, steps, size):
  # Batches are cut at 1.2 times their expected size.
  joined = reference.poisson(rng, steps, size)
  return joined & (np.cumsum(joined, 1) <= 1.2 * reference.PROB * size)


def _one_key(rng, steps, width):
  del rng
  return np.tile(np.random.default_rng(1).normal(
      0, reference.SIGMA, (1, width)), (steps, 1))


def _noise_of_each_device(rng, steps, width):
  # Four devices share one key, so their noise adds up coherently.
  return 4 * reference.fresh_noise(rng, steps, width)


def _clip_the_mean(gradients):
  mean = gradients.mean(0)
  return len(gradients) * mean / max(1.0, np.linalg.norm(mean))


def _divide_by_the_batch(gradients):
  return 5 * reference.add_up(gradients) / max(len(gradients), 1)


def _normalised_by_the_batch(gradients):
  return reference.clip_each(gradients - gradients.mean(0, keepdims=True))


def _skip_batch_if_not_finite(gradients):
  if not np.isfinite(gradients).all():
    return np.zeros(gradients.shape[1])
  return reference.add_up(gradients)


def _mutant(caught_by: str, true_epsilon: float | None = None,
            **parts) -> Mutant:
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
    'count of randomised response ignored': _mutant(
        'claim', epsilon=1.0, adjacency=Adjacency.REPLACE_ONE,
        event=accounting.repeated_event(
            accounting.randomized_response_event(
                uniform_prob=2 / (1 + math.e), num_categories=2), 8)),
}
