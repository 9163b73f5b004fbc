"""Audits one run of the final recipe by canaries.

As many records as there are canaries are taken out of the training set. Each
canary is such a record with a wrong label, and with noise of the same norm
added to its features. Records hardly use most directions of so many features,
so what a linear model knows in the direction of a canary is mostly from it. A
fair coin decides whether it is in the training set, in the place of its record.
If not, the place has a record of NaN features, which counts as zero in every
sum. So the run has the number of records, the sampling rate and the event of
the final runs, and it never opens the test set. The auditor guesses coins from
the final parameters (`dpjax.audit.suite.runs`); proofs are in
docs/theory/one_run.md.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import one_run
from dpjax.audit.suite import runs
from dpjax.runs import canaries as canaries_lib
from dpjax.runs.canaries import Canaries
from dpjax.typing import Array, Batch, PRNGKey
from experiments.accuracy_records.entries import Entry
from experiments.accuracy_records.fitting import Fit

SIGNIFICANCE = 0.05
"""Probability with which the lower bound may exceed the true epsilon."""


class Audited(NamedTuple):
  """What an audit found.

  Attributes:
    epsilon_lower: lower bound on epsilon at the delta of the entry, at
      confidence 95 %.
    largest: the bound that perfect guesses would have given.
    num_guesses: number of guesses of the best bound.
    num_correct: number of correct ones among them.
  """
  epsilon_lower: float
  largest: float
  num_guesses: int
  num_correct: int


def with_canaries(key: PRNGKey, records: Batch, size: int, num_classes: int
                  ) -> tuple[Batch, Array, Canaries]:
  """Returns records with canaries, rows [n] to train on, and the canaries.

  Args:
    key: key of the coins, the labels, the noise and the records that are taken
      out.
    records: the n training records.
    size: number m of canaries, below n.
    num_classes: public number of classes.

  Raises:
    ValueError: there are not enough records.
  """
  num_records = len(records.y)
  if not 0 < size < num_records:
    raise ValueError('the number of canaries must be positive and below the '
                     f'{num_records} training records, got {size}')
  order_key, coin_key, label_key, noise_key = jax.random.split(key, 4)
  order = jax.random.permutation(
      order_key, jnp.arange(num_records, dtype=jnp.int32))
  chosen = jax.tree.map(lambda leaf: leaf[order[:size]], records)
  # A shift of 1 to classes - 1 never leads back to the true label.
  shift = jax.random.randint(label_key, (size,), 1, num_classes, jnp.int32)
  canaries = Canaries(
      Batch(chosen.x + _noise(noise_key, chosen.x),
            (chosen.y + shift) % num_classes),
      jax.random.bernoulli(coin_key, 0.5, (size,)))
  joined, slots = canaries_lib.join(records, [canaries])
  return joined, jnp.concatenate([order[size:], slots[0]]), canaries


def _noise(key: PRNGKey, x: Array) -> Array:
  """Returns Gaussian noise, scaled to the norm of each record [m, h, w, c]."""
  noise = jax.random.normal(key, x.shape, x.dtype)
  norm = lambda rows: jnp.sqrt(jnp.square(rows).sum((1, 2, 3), keepdims=True))
  return noise * (norm(x) / norm(noise))


def judge(entry: Entry, fit: Fit, canaries: Canaries
          ) -> Audited:
  """Guesses the coins of a run with a single key, and returns the bound."""
  records = canaries.records._replace(x=fit.prepared[0](canaries.records.x))
  first = lambda params: jax.tree.map(lambda leaf: leaf[0], params)
  final, initial = (np.asarray(runs.log_odds(
      fit.model.apply, first(params), records))
                    for params in (fit.params, fit.initial))
  scores = (final, np.logaddexp(0, -initial) - np.logaddexp(0, -final))
  included = np.asarray(canaries.included)
  # Both scores were fixed beforehand, and share the significance.
  level = SIGNIFICANCE / len(scores)
  bound = max(one_run.grid_bound(each, included, delta=entry.delta,
                                 significance=level) for each in scores)
  return Audited(
      bound.epsilon_lower, one_run.grid_largest_bound(
          num_canaries=len(included), delta=entry.delta, significance=level),
      bound.num_guesses, bound.num_correct)
