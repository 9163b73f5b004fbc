"""Accuracies on the validation part, and once on the test set."""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.train import evaluate
from dpjax.typing import Array, Batch
from experiments.accuracy_records import data
from experiments.accuracy_records import fitting
from experiments.accuracy_records.entries import Entry
from experiments.accuracy_records.entries import Recipe
from experiments.accuracy_records.fitting import Fit


def on_rows(recipe: Recipe, fit: Fit, records: Batch, rows: Array
            ) -> np.ndarray:
  """Returns the accuracies [L] of runs on records, by their numbers [m]."""
  records = records._replace(x=fitting.inputs(recipe, records.x))
  return np.asarray(evaluate.accuracies(
      fit.model.apply, fit.params, records,
      jnp.tile(rows, (len(jax.tree.leaves(fit.params)[0]), 1))))


def evaluate_on_test(entry: Entry, recipe: Recipe, fit: Fit,
                     sources: data.Sources) -> np.ndarray:
  """Returns the accuracies [L] of the final runs on the test set.

  Nothing else opens the test set, and `run` calls this in the part `final`
  alone, after the recipe is fixed.
  """
  records = data.test_set(entry, recipe, sources)
  return on_rows(recipe, fit, records,
                 jnp.arange(len(records.y), dtype=jnp.int32))

