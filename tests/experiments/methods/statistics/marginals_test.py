"""These tests check tables along a tree: sensitivity and consistency."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from experiments.methods.statistics import marginals

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
KEY = jax.random.key(7)
STAR = ((0, 2), (1, 2), (2, 3))


def make(**options):
  return marginals.TreeMarginals(**(dict(
      num_records=5000, num_attributes=4, num_bins=3, epsilon=2.0,
      adjacency=REPLACE) | options))


def star():
  """Returns probabilities [3, 3, 3, 3] in which all depend on attribute 2."""
  rows = np.random.default_rng(3).dirichlet(np.full(3, 0.5), (3, 3))
  return np.einsum('ac,bc,dc->abcd', *rows.swapaxes(1, 2)) / 3


@pytest.mark.parametrize('adjacency', Adjacency)
def test_one_record_moves_tables_and_scores_by_what_noise_hides(adjacency):
  """One record moves tables and scores by at most what the noise assumes."""
  asked = make(num_attributes=3, num_bins=2, adjacency=adjacency)
  tables = asked.statistic_of_cells(np.eye(8)).reshape(8, 3, 2, 2)
  others = tables[None] if adjacency is REPLACE else np.zeros((1, 8, 3, 2, 2))
  moved = np.abs(tables[:, None] - others).sum((3, 4))
  assert moved.max() == asked.selection.sensitivity
  # Two tables of pairs are released, then three of single attributes.
  assert np.sort(moved, 2)[..., 1:].sum(2).max() / asked.parameters.pair == (
      pytest.approx(0.7 * asked.epsilon))
  single = np.stack([tables[:, 0].sum(2), tables[:, 0].sum(1),
                     tables[:, 1].sum(1)], 1)
  others = single[None] if adjacency is REPLACE else np.zeros((1, 8, 3, 2))
  assert (np.abs(single[:, None] - others).sum((2, 3)).max()
          / asked.parameters.single == pytest.approx(0.1 * asked.epsilon))
  # Scores compare any fit with tables of some more records.
  fit = np.random.default_rng(0).random((30, 1, 3, 2, 2)) * 6
  base = np.random.default_rng(1).integers(0, 4, (3, 2, 2))
  scores = np.abs(base + tables - fit).sum((3, 4))
  before = np.abs(base - fit).sum((3, 4))
  changes = (np.ptp(scores, axis=1) if adjacency is REPLACE
             else np.abs(scores - before))
  assert changes.max() == pytest.approx(asked.selection.sensitivity)
  assert asked.selection.epsilon == pytest.approx(0.1 * asked.epsilon)


def test_the_ledger_sums_to_epsilon():
  asked = make(epsilon=0.8)
  single, choices, pairs = asked.event.events
  assert choices.count == 3
  assert single.epsilon + 3 * choices.event.epsilon + pairs.epsilon == (
      pytest.approx(0.8))
  assert accounting.epsilon(asked.event, delta=1e-9, adjacency=REPLACE
                            ) == pytest.approx(0.8, rel=1e-3)
  assert make(structure=STAR).event.epsilon == 2.0
  assert make(structure='independent').event.epsilon == 2.0


@pytest.mark.slow
@pytest.mark.parametrize('structure', ['private', 'independent', STAR])
def test_tables_are_consistent_densities(structure):
  cells = star()
  asked = make(structure=structure, epsilon=0.3, num_records=500)
  counts = np.random.default_rng(0).multinomial(500, cells.ravel(), 20)
  fitted = asked.coefficients(KEY, asked.statistic_of_cells(counts))
  np.testing.assert_allclose(fitted.marginals.sum(2), 1)
  for run in range(20):
    seen = set()
    for (parent, child), joint in zip(fitted.edges[run], fitted.joints[run],
                                      strict=True):
      assert child not in seen and (parent in seen or not seen)
      seen |= {int(parent), int(child)}
      np.testing.assert_allclose(joint.sum(1), fitted.marginals[run, parent],
                                 atol=1e-12)
      np.testing.assert_allclose(joint.sum(0), fitted.marginals[run, child],
                                 atol=1e-12)
    assert len(seen) == (0 if structure == 'independent' else 4)
  densities = marginals.cells_of(fitted)
  assert densities.min() >= 0
  np.testing.assert_allclose(densities.mean(1), 1)
  shaped = densities.reshape(20, 3, 3, 3, 3) / 81
  np.testing.assert_allclose(shaped.sum((1, 2, 4)), fitted.marginals[:, 2],
                             atol=1e-12)


@pytest.mark.every(2)
def test_with_much_budget_the_tree_and_its_density_are_found():
  cells = star()
  counts = cells.ravel() * 10**7
  for structure in ('private', STAR):
    asked = make(structure=structure, num_records=10**7, epsilon=50.0)
    fitted = asked.coefficients(KEY, np.tile(
        asked.statistic_of_cells(counts), (20, 1)))
    assert {frozenset(edge) for edge in fitted.edges[0].tolist()} == {
        frozenset(edge) for edge in STAR}
    np.testing.assert_allclose(marginals.cells_of(fitted)[0],
                               81 * cells.ravel(), rtol=1e-3, atol=1e-3)
  asked = make(structure='independent', num_records=10**7, epsilon=50.0)
  fitted = asked.coefficients(KEY, np.tile(
      asked.statistic_of_cells(counts), (20, 1)))
  apart = np.einsum('a,b,c,d->abcd', *(
      cells.sum(tuple(set(range(4)) - {axis})) for axis in range(4)))
  np.testing.assert_allclose(marginals.cells_of(fitted)[0], 81 * apart.ravel(),
                             rtol=1e-3)


@pytest.mark.slow
def test_records_and_cells_give_the_same_tables_and_values():
  x = np.random.default_rng(1).random((400, 4))
  x[0] = 1.0  # In the last bins.
  asked = make(num_records=400, structure=STAR)
  bins = np.minimum((x * 3).astype(int), 2)
  counts = np.bincount(np.ravel_multi_index(bins.T, (3,) * 4), minlength=81)
  np.testing.assert_array_equal(asked.statistic(x),
                                asked.statistic_of_cells(counts))
  fitted = asked.estimate(KEY, x)
  densities = marginals.cells_of(jax.tree.map(lambda leaf: leaf[None], fitted))
  np.testing.assert_allclose(fitted(x), densities[0].reshape((3,) * 4)[
      tuple(bins.T)])
  with pytest.raises(ValueError, match='records'):
    asked.estimate(KEY, x[:, :3])
  with pytest.raises(ValueError, match='400 records'):
    asked.estimate(KEY, x[:9])


@pytest.mark.slow
def test_an_unknown_total_is_that_of_noisy_tables():
  asked = make(num_records=100, epsilon=30.0, adjacency=ADD)
  counts = star().ravel() * 10**6
  fitted = asked.coefficients(KEY, asked.statistic_of_cells(counts)[None])
  np.testing.assert_allclose(fitted.marginals[0, 2], 1 / 3, atol=1e-3)
  alone = dataclasses.replace(asked, structure='independent').coefficients(
      KEY, asked.statistic_of_cells(counts)[None])
  np.testing.assert_allclose(alone.marginals, fitted.marginals, atol=1e-3)
  assert accounting.epsilon(asked.event, delta=1e-9, adjacency=ADD
                            ) == pytest.approx(30.0, rel=1e-3)


def test_trees_are_rooted_and_others_refused():
  assert marginals.rooted(((3, 2), (0, 1), (1, 2)), 4) == [
      (3, 2), (2, 1), (1, 0)]
  for pairs, size in itertools.product(
      [((0, 1), (2, 3)), ((0, 1), (1, 2), (0, 2)), (), ((0, 0), (0, 1)),
       ((0, 1),)], (3,)):
    with pytest.raises(ValueError, match='not a tree'):
      marginals.rooted(pairs, size)
  for options, match in [
      (dict(structure='chain'), 'structure'), (dict(num_bins=1), 'num_bins'),
      (dict(epsilon=None, rho=0.1), 'epsilon'), (dict(shares=(1, 1, 1)), 'sum'),
      (dict(shares=(float('nan'), .5, .5)), 'sum'),
      (dict(structure=((0, 1),)), 'not a tree')]:
    with pytest.raises(ValueError, match=match):
      make(**options)
  wide = marginals.Tables(np.zeros((0, 2)), np.zeros((0, 8, 8)),
                          np.ones((9, 8)) / 8)
  with pytest.raises(ValueError, match='too many'):
    wide.cells()
