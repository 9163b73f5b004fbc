"""Tests dpjax.stats.roc_curves."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import metrics

from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import mechanisms
from dpjax.stats import roc_bands
from dpjax.stats import roc_curves as roc
from dpjax.stats.ecdf_methods import dyadic
from dpjax.stats.ecdf_methods import hierarchy
from dpjax.stats.ecdf_methods import trees
from dpjax.stats.ecdf_methods.grids import Grid

GRID = Grid(lower=0.0, upper=1.0, num_thresholds=16)
GENERATOR = np.random.default_rng(5)
SCORES = np.append(GENERATOR.beta(2, 3, 200), [0.0, 0.25, 0.25, 1.0, 1.5])
LABELS = (GENERATOR.uniform(size=205) < SCORES).astype(int)
ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
make = functools.partial(roc.make, adjacency=REPLACE)


@pytest.mark.every(2)
@pytest.mark.parametrize('positive', roc.POSITIVE)
def test_without_noise_it_is_the_curve_of_scikit_learn(positive):
  counts = roc.counts(GRID, SCORES, LABELS)
  curve = jax.tree.map(np.asarray, roc.of_ranks(
      np.cumsum(counts, 1), GRID.thresholds, positive=positive))
  binned = GRID.bins(SCORES) * (1 if positive == 'high' else -1)
  fpr, tpr, _ = metrics.roc_curve(LABELS, binned, drop_intermediate=False)
  # An empty bin's thresholds have no point of their own.
  kept = np.append(True, np.diff(curve.fpr) + np.diff(curve.tpr) > 0)
  np.testing.assert_allclose(curve.fpr[kept], fpr, atol=1e-12)
  np.testing.assert_allclose(curve.tpr[kept], tpr, atol=1e-12)
  assert float(curve.auc) == pytest.approx(
      metrics.roc_auc_score(LABELS, binned), abs=1e-12)
  assert (curve.positives, curve.negatives) == (LABELS.sum(),
                                                (1 - LABELS).sum())
  # Thresholds are right for records on them, too.
  for k in (0, 4, 8, 16):
    cut = curve.thresholds[k]
    chosen = SCORES > cut if positive == 'high' else SCORES <= cut
    assert float(curve.tpr[k]) == pytest.approx(chosen[LABELS == 1].mean())


RELEASES = {
    'joint': dict(epsilon=1e9),
    'joint, rho': dict(rho=1e15),
    'raw': dict(epsilon=1e9, monotone=False),
    'public labels': dict(epsilon=1e9, public_labels=True),
    'parallel': dict(epsilon=1e9, adjacency=ADD),
    'paper': dict(epsilon=1e9, accounting='paper', monotone=False)}


@pytest.mark.every(3)
@pytest.mark.parametrize('name', RELEASES)
def test_with_little_noise_it_is_the_curve_of_the_records(name):
  release = make(GRID, **RELEASES[name])
  counts = roc.counts(GRID, SCORES, LABELS)
  ranks = release.estimate(jax.random.key(0), counts)
  np.testing.assert_allclose(ranks, np.cumsum(counts, 1), atol=1e-4)
  curve = release.of_ranks(ranks)
  assert float(curve.auc) == pytest.approx(
      metrics.roc_auc_score(LABELS, GRID.bins(SCORES)), abs=1e-5)


@pytest.mark.slow
@pytest.mark.every(2)
@pytest.mark.parametrize('name', ['joint', 'parallel', 'two trees'])
def test_noisy_curves_rise_from_0_to_1(name):
  release = _two_trees(0.05) if name == 'two trees' else make(
      GRID, epsilon=0.05, adjacency=ADD if name == 'parallel' else REPLACE)
  # There are few positives, so some draws have floored denominators.
  counts = np.stack([np.full(16, 4), np.eye(16, dtype=int)[3]])
  with jax.enable_x64(True):
    ranks = mechanisms.repeated(release.draw)(
        jax.random.split(jax.random.key(1), 50), counts.astype(float),
        release.parameters)
    curve = jax.tree.map(np.asarray, release.of_ranks(ranks))
  for rates in (curve.fpr, curve.tpr):
    assert (np.diff(rates, axis=1) >= -1e-12).all()
    assert (rates[:, 0] == 0).all() and (rates[:, -1] == 1).all()
  assert curve.positives.min() == 1 and np.isfinite(curve.auc).all()
  if release.adjacency is REPLACE:  # n is public, its parts are not.
    np.testing.assert_allclose(np.asarray(ranks)[:, :, -1].sum(1), 65)
    assert np.ptp(curve.negatives) > 1


@pytest.mark.every(3)
@pytest.mark.parametrize('monotone', [False, True])
def test_ranks_of_both_classes_add_up_to_n(monotone):
  """Both classes' last ranks move equally to sum to n; other ranks follow."""
  ranks = np.array([[1.0, 4.0, 10.0], [2.0, 2.0, 5.0]])
  with jax.enable_x64(True):
    completed = np.asarray(roc.with_total(ranks, jnp.asarray(11.0),
                                          monotone=monotone))
    none = np.asarray(roc.with_total(0 * ranks, jnp.asarray(11.0),
                                     monotone=monotone))
  np.testing.assert_allclose(completed[:, -1], [8, 3])
  wanted = (ranks * [[0.8], [0.6]] if monotone
            else ranks - 2 * np.array([1, 2, 3]) / 3)
  np.testing.assert_allclose(completed, wanted)
  np.testing.assert_allclose(none[:, -1], [5.5, 5.5])
  if monotone:
    # Ranks stay between 0 and n.
    with jax.enable_x64(True):
      far = np.asarray(roc.with_total(np.array([[1.0, 20.0], [0.0, 1.0]]),
                                      jnp.asarray(5.0), monotone=True))
    np.testing.assert_allclose(far, [[0.25, 5], [0, 0]])


@pytest.mark.every(3)
@pytest.mark.parametrize('adjacency', [ADD, REPLACE])
def test_classes_have_noise_of_their_own_and_the_announced_variance(adjacency):
  """Classes have uncorrelated noise of the stated variance, in 400 draws."""
  release = make(GRID, epsilon=1.0, adjacency=adjacency, monotone=False)
  with jax.enable_x64(True):
    noise = np.asarray(mechanisms.repeated(release.draw)(
        jax.random.split(jax.random.key(7), 400), np.zeros((2, 16)),
        release.parameters))
  # The middle is used, since ends of the joint one add up to a known n.
  middle = noise[:, :, 7] - noise[:, :, 15] / 2
  assert abs(np.corrcoef(middle.T)[0, 1]) < 0.2
  if adjacency is ADD:
    np.testing.assert_allclose(noise[:, :, 7].var(0),
                               release.curve.variances()[7], rtol=0.4)
  else:
    np.testing.assert_allclose(-noise[:, 0, 15], noise[:, 1, 15], atol=1e-9)


def _two_trees(epsilon):
  return roc.ParallelRoc(grid=GRID, adjacency=REPLACE, curve=trees.TreeEcdf(
      num_thresholds=16, epsilon=epsilon / 2, adjacency=ADD))


def _change(release, one, other):
  """Returns the l1 distance of all counts that get noise in trees."""
  def levels(counts):
    shape = release.curve.branching
    return np.concatenate(hierarchy.levels(
        np.pad(counts, (0, np.prod(shape) - counts.size)), shape))
  if isinstance(release, roc.JointRoc):
    return np.abs(levels(one.ravel()) - levels(other.ravel())).sum()
  return sum(np.abs(levels(a) - levels(b)).sum() for a, b in zip(one, other))


@pytest.mark.every(3)
@pytest.mark.parametrize('name, change, most', [
    ('joint', 'any', 2), ('two trees', 'any', 2), ('public labels', 'score', 2),
    ('parallel', 'removed', 1)])
def test_no_record_moves_counts_by_more_than_noise_is_for(name, change, most):
  """No record moves counts by more than the noise is
  for, and some attain it."""
  release = _two_trees(1.0) if name == 'two trees' else make(
      GRID, epsilon=1.0, adjacency=ADD if name == 'parallel' else REPLACE,
      public_labels=name == 'public labels')
  generator, changes = np.random.default_rng(3), []
  for _ in range(300):
    scores, labels = generator.uniform(size=6), generator.integers(0, 2, 6)
    others, flipped = scores.copy(), labels.copy()
    others[0] = generator.choice([0.0, 0.5, 1.0, 7.0, generator.uniform()])
    flipped[0] = labels[0] if change == 'score' else generator.integers(2)
    kept = slice(1, None) if change == 'removed' else slice(None)
    changes.append(_change(release, roc.counts(GRID, scores, labels),
                           roc.counts(GRID, others[kept], flipped[kept])))
  levels = len(release.curve.branching)
  assert max(changes) == most * levels
  # The noise is for this change, whose cost the event states.
  assert release.curve.scale * release.event.epsilon == pytest.approx(
      max(changes))


def test_printed_accounting_of_two_curves_is_wrong():
  """The printed accounting of two curves overstates the cost fourfold."""
  grid = Grid(lower=0.0, upper=1.0, num_thresholds=32)
  release = make(grid, epsilon=1.0, accounting='paper', monotone=False)
  assert release.curve.scale == pytest.approx(6 / 0.5)  # The depth L is 5.

  def nodes(first, last):
    return len(dyadic.signed_nodes(first, last, 32))
  within = max(nodes(first + 1, last) for last in range(2, 33)
               for first in range(last))
  prefix = max(nodes(first, 32) for first in range(1, 33))
  least = max(within, 2 * prefix) / release.curve.scale
  assert release.event.epsilon == pytest.approx(least) == 0.5
  # Basic composition of two curves of epsilon / 2 would give 1, and
  # Barczewski (2025) says 2: four times the truth, with 3.4 to 4 times the
  # necessary variance.
  tight = roc.ParallelRoc(grid=grid, adjacency=REPLACE, curve=dyadic.DyadicEcdf(
      num_thresholds=32, epsilon=0.5, adjacency=ADD, monotone=False, root=True))
  assert tight.event.epsilon == 1.0
  assert np.mean(release.curve.variances()) == pytest.approx(
      4 * np.mean(tight.curve.variances()), rel=0.01)


@pytest.mark.every(2)
def test_what_a_release_costs():
  def epsilon(adjacency, delta=1e-6, **options):
    release = make(GRID, adjacency=adjacency, **options)
    assert release.adjacency is adjacency
    return accounting.epsilon(release.event, delta=delta, adjacency=adjacency)
  for adjacency, options in ((REPLACE, {}), (ADD, {}),
                             (REPLACE, dict(public_labels=True))):
    assert epsilon(adjacency, epsilon=0.7, **options) == pytest.approx(0.7,
                                                                       abs=1e-3)
    # One Gaussian of mu = sqrt(2 rho) = 1.
    assert epsilon(adjacency, rho=0.5, **options) == pytest.approx(4.89, abs=.1)
  # A replacement moves two ADD_OR_REMOVE_ONE Gaussian curves, so 4 rho.
  release = roc.ParallelRoc(grid=GRID, adjacency=REPLACE, curve=trees.TreeEcdf(
      num_thresholds=16, rho=0.125, adjacency=ADD))
  assert accounting.epsilon(release.event, delta=1e-6, adjacency=REPLACE
                            ) == pytest.approx(4.89, abs=.1)


def test_no_node_of_the_tree_is_in_both_classes():
  for size in (16, 60, 1024):
    shape = hierarchy.split_shape(size, pure=True)
    assert size % np.prod(shape[1:], dtype=int) == 0
    assert np.prod(shape, dtype=int) == 2 * size
  assert hierarchy.split_shape(1024, pure=True) == (16, 8, 16)
  # 1021 is prime, so a tree over both classes beats a histogram.
  assert len(hierarchy.split_shape(1021, pure=True)) == 3


BAD = {
    'labels must be 0 or 1': lambda: roc.counts(GRID, SCORES, LABELS + 1),
    'one label for each score': lambda: roc.counts(GRID, SCORES, LABELS[1:]),
    'values must be numbers': lambda: roc.counts(GRID, SCORES * np.nan, LABELS),
    'use adjacency REPLACE_ONE': lambda: make(
        GRID, epsilon=1.0, adjacency=ADD, public_labels=True),
    "'paper' needs epsilon": lambda: make(
        GRID, rho=1.0, accounting='paper'),
    'positive must be one of high, low': lambda: make(
        GRID, epsilon=1.0, positive='up'),
    'must have 32 thresholds, got 16': lambda: roc.JointRoc(
        grid=GRID, curve=_two_trees(1.0).curve),
    'ADD_OR_REMOVE_ONE otherwise': lambda: roc.ParallelRoc(
        grid=GRID, adjacency=REPLACE, curve=trees.TreeEcdf(
            num_thresholds=16, epsilon=1.0, adjacency=REPLACE)),
    r'shape \(2, 15\)': lambda: make(GRID, epsilon=1.0).release(
        jax.random.key(0), np.zeros((2, 15))),
    'of must be one of': lambda: roc_bands.bands(
        make(GRID, epsilon=1.0), jax.random.key(0), np.zeros((2, 16)),
        of='curve'),
    'fprs must lie strictly': lambda: roc_bands.bands(
        make(GRID, epsilon=1.0), jax.random.key(0), np.zeros((2, 16)),
        fprs=[0.0, 0.5])}


@pytest.mark.every(1)
@pytest.mark.parametrize('words', BAD)
def test_bad_input_is_one_line(words):
  with pytest.raises(ValueError, match=words) as caught:
    BAD[words]()
  assert '\n' not in str(caught.value)
