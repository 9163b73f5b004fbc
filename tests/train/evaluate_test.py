"""These tests compare the accuracy with a count by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.train import evaluate
from dpjax.typing import Batch

RECORDS = Batch(jnp.asarray([[1.], [-2.], [3.], [-4.]]),
                jnp.asarray([1, 0, 0, 0], jnp.int32))


def _apply(params, x):
  """Returns logits that predict class 1 where w x > 0."""
  return jnp.concatenate([jnp.zeros_like(x), params['w'] * x], 1)


@pytest.mark.slow
def test_accuracy_by_hand():
  accuracy = lambda w, rows: float(evaluate.accuracy(
    _apply, {'w': jnp.float32(w)}, RECORDS, jnp.asarray(rows, jnp.int32)))
  # The model says 1, 0, 1, 0 against 1, 0, 0, 0; reversed it says 0, 1, 0, 1.
  assert accuracy(1, [0, 1, 2, 3]) == 0.75
  assert accuracy(-1, [0, 1, 2, 3]) == 0.25
  assert accuracy(1, [0, 1, 3]) == 1.
  assert accuracy(1, [2]) == 0.
  # A tie gives the first class, and a row counts as often as it is named.
  assert accuracy(0, [0, 1, 2, 3]) == 0.75
  assert accuracy(1, [2, 2, 2, 0]) == 0.25


def test_nan_logits_are_the_first_class():
  accuracy = evaluate.accuracy(_apply, {'w': jnp.float32(jnp.nan)}, RECORDS,
                               jnp.arange(4))
  assert 0 <= float(accuracy) <= 1


@pytest.mark.every(2)
def test_many_models_are_each_on_its_own_rows():
  params = {'w': jnp.asarray([1., -1., 1.])}
  rows = jnp.asarray([[0, 1], [0, 2], [2, 3]], jnp.int32)
  accuracies = evaluate.accuracies(_apply, params, RECORDS, rows)
  np.testing.assert_array_equal(accuracies, [1., 0.5, 0.5])
  one_by_one = [evaluate.accuracy(
    _apply, jax.tree.map(lambda leaf, i=i: leaf[i], params), RECORDS, rows[i])
    for i in range(3)]
  np.testing.assert_array_equal(accuracies, one_by_one)


@pytest.mark.parametrize('sizes', [[1], [500], [500, 1], [3, 500, 7], [501]])
def test_parts_count_as_the_whole(sizes):
  """Padding is of class 0, which the model also gives to zeros."""
  rng = np.random.default_rng(0)
  num_records = sum(sizes)
  x = rng.normal(size=(num_records, 1)).astype(np.float32)
  y = rng.integers(0, 2, num_records).astype(np.int32)
  params = {'w': jnp.float32(1)}
  ends = np.cumsum(sizes)[:-1]
  parts = map(Batch, np.split(x, ends), np.split(y, ends))
  expected = evaluate.accuracy(
    _apply, params, Batch(jnp.asarray(x), jnp.asarray(y)),
    jnp.arange(num_records))
  assert evaluate.accuracy_of_parts(_apply, params, parts) == pytest.approx(
    float(expected), abs=1e-6)


def test_the_program_holds_no_records(recwarn):
  """As constants of a program, records would be in memory twice."""
  x = jnp.ones((1000, 8))
  before = jax.config.jax_captured_constants_warn_bytes
  jax.config.update('jax_captured_constants_warn_bytes', 1000)
  try:
    evaluate.accuracies(
        lambda params, x: x @ params, jnp.ones((1, 8, 2)),
        Batch(x, jnp.zeros(1000, jnp.int32)), jnp.arange(1000)[None])
  finally:
    jax.config.update('jax_captured_constants_warn_bytes', before)
  assert not [each for each in recwarn if 'captured' in str(each.message)]
