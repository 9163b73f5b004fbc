"""Accuracies on the validation part, and once on the test set."""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.train import evaluate
from dpjax.typing import Array, Batch
from experiments.accuracy_records import data
from experiments.accuracy_records.entries import Entry
from experiments.accuracy_records.entries import Recipe
from experiments.accuracy_records.fitting import Fit


def on_rows(fit: Fit, records: Batch, rows: Array
            ) -> np.ndarray:
  """Returns the accuracies [L] of runs on records, by their numbers [m]."""
  part = jax.tree.map(lambda leaf: leaf[rows], records)
  every = jnp.arange(len(part.y), dtype=jnp.int32)[None]
  found = []
  for run, prepare in enumerate(fit.prepared):
    own = jax.tree.map(lambda leaf, run=run: leaf[run:run + 1], fit.params)
    found.append(np.asarray(evaluate.accuracies(
        fit.model.apply, own, part._replace(x=prepare(part.x)), every)))
  return np.concatenate(found)


def evaluate_on_test(entry: Entry, recipe: Recipe, fit: Fit,
                     sources: data.Sources) -> np.ndarray:
  """Returns the accuracies [L] of the final runs on the test set.

  Nothing else opens the test set, and `run` calls this in the part `final`
  alone, after the recipe is fixed.
  """
  records = data.test_set(entry, recipe, sources)
  return on_rows(fit, records,
                 jnp.arange(len(records.y), dtype=jnp.int32))

