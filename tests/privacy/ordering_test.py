"""Tests that rows sorted side by side are sorted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.privacy import ordering


@pytest.mark.every(5)
@pytest.mark.parametrize('size', [1, 2, 3, 8, 21])
def test_rows_and_single_ones_are_sorted(size):
  rows = np.random.default_rng(size).integers(-9, 9, (50, size), np.int32)
  rows[0, -1], rows[1, 0] = 2**31 - 1, -2**31
  ordered = jax.vmap(ordering.sort)(jnp.asarray(rows))
  np.testing.assert_array_equal(ordered, np.sort(rows, 1))
  np.testing.assert_array_equal(ordering.sort(jnp.asarray(rows[0])),
                                np.sort(rows[0]))


def _is_network(rows):
  """Returns whether rows are sorted by minima and maxima, not library sort."""
  names = str(jax.make_jaxpr(jax.vmap(ordering.sort))(rows))
  assert (' min ' in names) == (' sort[' not in names)
  return ' min ' in names


def test_accelerators_sort_rows_by_themselves(monkeypatch):
  assert _is_network(jnp.zeros((4, 7), jnp.int32))
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  assert not _is_network(jnp.zeros((4, 7), jnp.int32))
  rows = np.random.default_rng(0).integers(-9, 9, (4, 7), np.int32)
  np.testing.assert_array_equal(jax.vmap(ordering.sort)(jnp.asarray(rows)),
                                np.sort(rows, 1))


@pytest.mark.slow
def test_rows_of_rows_and_mapped_rows():
  rows = np.random.default_rng(0).integers(0, 5, (2, 3, 6), np.int32)
  double = jax.vmap(jax.vmap(ordering.sort))
  np.testing.assert_array_equal(double(jnp.asarray(rows)), np.sort(rows, 2))
  # Every row is sorted, whatever else the function takes.
  ordered = jax.vmap(lambda row, shift: ordering.sort(row + shift),
                     (None, 0))(jnp.asarray(rows[0, 0]), jnp.arange(3))
  np.testing.assert_array_equal(
    ordered, np.sort(rows[0, 0])[None] + np.arange(3)[:, None])
