"""Tests dpjax.stats.hosmer_lemeshow and hosmer_lemeshow_cells."""

import functools

import jax
import numpy as np
import pytest
from scipy import special
from scipy import stats

from dpjax.privacy import accounting
from dpjax.privacy import neighbours
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import hosmer_lemeshow
from dpjax.stats import roc_bands
from dpjax.stats import roc_curves as roc
from dpjax.stats.ecdf_methods.grids import Grid
from experiments.methods.statistics import hosmer_lemeshow_cells

GRID = Grid(lower=0.0, upper=1.0, num_thresholds=32)
PREDICTIONS = hosmer_lemeshow.chances(GRID)
ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
Cellwise = functools.partial(hosmer_lemeshow_cells.CellwiseHosmerLemeshow,
                             adjacency=REPLACE)
make = functools.partial(roc.make, adjacency=REPLACE)


@functools.cache
def _weights():
  """Returns the probabilities of bins of predictions sigmoid(-.8 + z)."""
  z = np.linspace(-4, 4, 20_001)
  weights = np.bincount(GRID.bins(special.expit(z - 0.8)),
                        np.exp(-z**2 / 2), 32)
  return weights / weights.sum()


def _records(size, *, seed=0, shift=0.0):
  """Returns bin centres as predictions, and labels off by `shift` in logits."""
  generator = np.random.default_rng(seed)
  predictions = generator.choice(PREDICTIONS, size, p=_weights())
  true = special.expit(special.logit(predictions) + shift)
  return predictions, (generator.uniform(size=size) < true).astype(int)


@pytest.mark.parametrize('size, num_groups', [(1000, 10), (77, 11)])
def test_exact_statistic_is_that_of_a_loop_over_groups(size, num_groups):
  generator = np.random.default_rng(1)
  predictions = generator.beta(2, 3, size)
  labels = (generator.uniform(size=size) < predictions).astype(int)
  ordered, statistic = np.argsort(predictions), 0.0
  for rows in np.split(ordered, num_groups):  # Groups have one size, no ties.
    for label, chance in ((1, predictions), (0, 1 - predictions)):
      expected = chance[rows].sum()
      statistic += (np.sum(labels[rows] == label) - expected)**2 / expected
  actual = hosmer_lemeshow.exact(predictions, labels, num_groups=num_groups)
  assert actual == pytest.approx(statistic, rel=1e-12)
  for fitted, degrees in ((False, num_groups), (True, num_groups - 2)):
    assert hosmer_lemeshow.chi_squared_tail(
        actual, num_groups=num_groups, fitted=fitted) == pytest.approx(
            stats.chi2.sf(actual, degrees))


@pytest.mark.every(4)
def test_with_little_noise_all_are_the_exact_statistic():
  predictions, labels = _records(3000, shift=0.2)
  exact = hosmer_lemeshow.exact(predictions, labels, min_expected=5.0)
  release = make(GRID, epsilon=1e9)
  ranks = release.estimate(jax.random.key(0),
                           roc.counts(GRID, predictions, labels))
  assert float(hosmer_lemeshow.statistic(hosmer_lemeshow.table(
      ranks, PREDICTIONS))) == pytest.approx(exact, rel=1e-6)
  data = hosmer_lemeshow_cells.bins(GRID, predictions, labels)
  for options in (dict(accounting='paper'), dict(), dict(adjacency=ADD)):
    cells = Cellwise(grid=GRID, epsilon=1e9, **options).estimate(
        jax.random.key(0), data)
    assert float(hosmer_lemeshow_cells.statistic(cells)) == pytest.approx(
        exact, rel=1e-6)


@pytest.mark.slow
def test_records_on_thresholds_count_once_and_groups_may_be_empty():
  """Records on a threshold count once, and groups may be empty (C9)."""
  predictions = np.append(np.full(90, 0.5), np.linspace(0.6, 0.9, 10))
  labels = np.arange(100) % 2
  ranks = np.cumsum(roc.counts(GRID, predictions, labels), 1).astype(float)
  with jax.enable_x64(True):
    groups = jax.tree.map(np.asarray, hosmer_lemeshow.table(ranks, PREDICTIONS))
    # All bins except two are empty, and then all of them.
    nobody = hosmer_lemeshow.table(0 * ranks, PREDICTIONS)
    assert float(hosmer_lemeshow.statistic(nobody)) == 0.0
  np.testing.assert_array_equal(groups.records, [90] + 8 * [0] + [10])
  np.testing.assert_array_equal(groups.observed, [45] + 8 * [0] + [5])
  # With both ends closed, as printed, all ten groups contain the 90.
  ends = np.append(0.0, GRID.thresholds[np.asarray(groups.ends)[1:] - 1])
  closed = [np.sum((low <= predictions) & (predictions <= high))
            for low, high in zip(ends[:-1], ends[1:], strict=True)]
  assert closed == 9 * [90] + [100]
  cells = Cellwise(grid=GRID, epsilon=1e9).estimate(
      jax.random.key(0), hosmer_lemeshow_cells.bins(GRID, predictions, labels))
  assert np.sum(cells.observed) == pytest.approx(100, abs=1e-5)
  # Noise dominates the counts at this budget, but everything is finite.
  release = make(GRID, epsilon=0.01)
  noisy = release.estimate(jax.random.key(1), roc.counts(GRID, predictions,
                                                         labels))
  for ranks in (noisy, 0 * noisy):
    test = hosmer_lemeshow.test(release, jax.random.key(2), ranks, fitted=True,
                                num_draws=49)
    assert np.isfinite(test.draws).all() and 0.02 <= test.p_value <= 1
  curve = hosmer_lemeshow.calibration(release, jax.random.key(2), noisy,
                                      num_draws=50)
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(curve))


@pytest.mark.every(2)
@pytest.mark.parametrize('fitted', [False, True])
def test_null_law_without_noise_is_chi_squared(fitted):
  """Without noise the statistic is chi-squared with Q, or
  fitted Q - 2, degrees."""
  release = make(GRID, epsilon=1e6)
  counts = np.stack([1 - PREDICTIONS, PREDICTIONS]) * 50_000 * _weights()
  test = hosmer_lemeshow.test(
      release, jax.random.key(3), np.cumsum(counts, 1), fitted=fitted,
      num_draws=999)
  assert stats.kstest(test.draws, stats.chi2(8 if fitted else 10).cdf
                      ).pvalue > 1e-3
  assert stats.kstest(test.draws, stats.chi2(10 if fitted else 8).cdf
                      ).pvalue < 1e-6
  # Counts equal their expectations, so no statistic is smaller.
  assert float(test.statistic) < 1e-3 and float(test.p_value) == 1.0


def _p_values(shift, runs):
  release, tests = make(GRID, epsilon=1.0), []
  for seed in range(runs):
    counts = roc.counts(GRID, *_records(4000, seed=seed, shift=shift))
    key, other = jax.random.split(jax.random.key(seed))
    test = hosmer_lemeshow.test(release, other, release.estimate(key, counts),
                                num_draws=59)
    tests.append((float(test.p_value), float(test.statistic)))
  return np.array(tests).T


@pytest.mark.slow
def test_level_and_power_with_noise():
  """At level .05, 2 to 16 of 150 tests reject, with probability .992.

  The statistic compared with chi-squared rejects far more, and labels off by
  1/2 in logits are detected.
  """
  p_values, statistics = _p_values(0.0, 150)
  assert 2 <= np.sum(p_values <= 0.05) <= 16
  assert np.mean(statistics > stats.chi2.isf(0.05, 10)) > 0.15
  assert np.mean(_p_values(0.5, 20)[0] <= 0.05) > 0.8


@pytest.mark.every(4)
def test_calibration_of_exact_ranks_has_intervals_of_sampling_alone():
  """Exact ranks give exact values, with half-widths of Poisson counts."""
  release = make(GRID, epsilon=1e9)
  counts = np.stack([1 - PREDICTIONS, PREDICTIONS]) * 40_000 * _weights()
  counts[1] = counts[1]**0.9
  ranks = np.cumsum(counts, 1)
  curves = {of: hosmer_lemeshow.calibration(
      release, jax.random.key(3), ranks, num_groups=4, num_draws=400, of=of,
      confidence=0.9) for of in roc_bands.OF}
  ends = np.asarray(hosmer_lemeshow.table(ranks, PREDICTIONS,
                                          num_groups=4).ends)
  for low, high, *group in zip(ends, ends[1:], *jax.tree.leaves(
      curves['records'])):
    mine = counts[:, low:high]
    total = mine.sum()
    predicted, share, below, above, size = group
    assert size == pytest.approx(total)
    assert predicted == pytest.approx(
        mine.sum(0) @ PREDICTIONS[low:high] / total)
    assert share == pytest.approx(mine[1].sum() / total)
    assert below == pytest.approx(share, abs=1e-5) and above >= share - 1e-9
    assert above == pytest.approx(share, abs=1e-5)
  observed = curves['population'].observed
  half = (np.asarray(observed.high) - observed.low) / 2
  shares = np.asarray(observed.value)
  sampling = np.sqrt(shares * (1 - shares) / curves['population'].records)
  # A ratio of two Poisson counts has the variance of a binomial share.
  np.testing.assert_allclose(half / sampling, stats.norm.ppf(0.95), rtol=0.2)
  np.testing.assert_allclose(shares, curves['records'].observed.value)
  with pytest.raises(ValueError, match='of must be one of'):
    hosmer_lemeshow.calibration(release, jax.random.key(0), ranks, of='all')


def test_a_step_of_a_fit_is_newtons():
  """A fit's step is Newton's for logistic regression on the logit."""
  rng = np.random.default_rng(2)
  counts = rng.integers(1, 30, (2, 32)) * 1.0
  logit = special.logit(PREDICTIONS)
  design = np.stack([np.ones(32), logit])
  with jax.enable_x64(True):
    once = np.asarray(hosmer_lemeshow.recalibrated(counts, PREDICTIONS))
  total = counts.sum(0)
  information = design * (total * PREDICTIONS * (1 - PREDICTIONS)) @ design.T
  step = np.linalg.solve(information, design @ (
      counts[1] - total * PREDICTIONS))
  np.testing.assert_allclose(special.logit(once), logit + step @ design,
                             atol=1e-6)
  # Counts that fit, or no records at all, give no step.
  fitting = np.stack([1 - PREDICTIONS, PREDICTIONS]) * total
  for data in (fitting, 0 * counts):
    with jax.enable_x64(True):
      same = np.asarray(hosmer_lemeshow.recalibrated(data, PREDICTIONS))
    np.testing.assert_allclose(same, PREDICTIONS, atol=1e-6)


@pytest.mark.slow
def test_calibration_intervals_cover_the_population():
  """Calibration intervals cover at least 330 of 400 groups."""
  release, covered = make(GRID, epsilon=1.0), 0
  for seed in range(40):
    counts = roc.counts(GRID, *_records(4000, seed=seed))
    key, other = jax.random.split(jax.random.key(seed))
    ranks = release.estimate(key, counts)
    curve = hosmer_lemeshow.calibration(release, other, ranks, num_draws=100)
    ends = np.asarray(hosmer_lemeshow.table(ranks, PREDICTIONS).ends)
    before = np.append(0, np.cumsum(_weights()))
    share = np.append(0, np.cumsum(_weights() * PREDICTIONS))
    wide = np.diff(before[ends])
    true = np.divide(np.diff(share[ends]), wide, where=wide > 0,
                     out=np.zeros(10))
    covered += np.sum(((curve.observed.low <= true)
                       & (true <= curve.observed.high)) | (wide == 0))
  assert 330 <= covered < 400


def test_shared_noise_releases_a_difference_as_it_is():
  """Shared noise releases O - E exactly and reveals a flipped label (C8)."""
  predictions, labels = _records(500)
  printed = Cellwise(grid=GRID, epsilon=1e-3, accounting='paper',
                     shared_noise=True, allow_unsound=True)
  flipped = labels.copy()
  flipped[0] = 1 - labels[0]
  differences = []
  for seed, named in ((0, labels), (1, flipped)):
    data = hosmer_lemeshow_cells.bins(GRID, predictions, named)
    cells = printed.estimate(jax.random.key(seed), data)
    differences.append(float(np.sum(cells.observed[1] - cells.expected[1])))
    # The noise has scale 15000, but the difference is exact up to rounding
    # to the noise's grid.
    assert np.abs(cells.observed).max() > 1000
    step = printed.scale / 256
    assert differences[-1] == pytest.approx(np.sum(named) - np.sum(predictions),
                                            abs=10 * step)
  assert accounting.epsilon(printed.event, delta=0.1, adjacency=REPLACE
                            ) == np.inf
  own = Cellwise(grid=GRID, epsilon=1e-3, accounting='paper').estimate(
      jax.random.key(0), hosmer_lemeshow_cells.bins(GRID, predictions, labels))
  assert np.abs(own.observed - own.expected).max() > 1000


def test_what_one_label_moves_has_no_bound():
  """One label moves H without bound where few are expected;
  a floor helps (C11)."""
  labels = np.append(np.zeros(10, int), np.arange(90) % 2)
  flipped = np.append(1, labels[1:])

  def change(chance, **options):
    predictions = np.append(np.full(10, chance), np.full(90, 0.5))
    first, second = (hosmer_lemeshow.exact(predictions, each, **options)
                     for each in (labels, flipped))
    return second - first
  for chance in (1e-3, 1e-6, 1e-9):
    assert change(chance) == pytest.approx(0.1 / chance, rel=0.1)
    assert change(chance, min_expected=5.0) < 0.5


def test_sensitivity_of_cells_by_enumeration():
  """Three numbers of each of two fixed groups have the stated sensitivity."""
  domain = [(chance, label) for chance in (0.01, 0.98, 0.99, 1.0)
            for label in (0, 1)]

  def cells(records):
    numbers = np.zeros((3, 2))
    for chance, label in records:
      group = int(chance > 0.99)
      numbers[label, group] += 1
      numbers[2, group] += chance
    return numbers
  for adjacency in (ADD, REPLACE):
    largest = neighbours.sensitivity(cells, domain, (0, 1, 2), adjacency)
    mechanism = Cellwise(grid=GRID, epsilon=1.0, adjacency=adjacency)
    cells_epsilon = 1.0 - mechanism.curve.epsilon
    assert mechanism.scale * cells_epsilon == pytest.approx(
        2 if adjacency is ADD else 4)
    assert largest <= mechanism.scale * cells_epsilon
    assert largest == (2 if adjacency is ADD else 3.99)
  printed = Cellwise(grid=GRID, epsilon=1.0, accounting='paper')
  # L = 5, so L + 1 of L + 9 parts are the curve's, with the same noise.
  assert printed.scale == pytest.approx(14) == printed.curve.scale


BAD = {
    'uniform and within': lambda: hosmer_lemeshow.chances(
        Grid(lower=0.0, upper=2.0, num_thresholds=4)),
    'shared_noise=True releases': lambda: Cellwise(
        grid=GRID, epsilon=1.0, accounting='paper', shared_noise=True),
    "'paper' needs adjacency REPLACE_ONE": lambda: Cellwise(
        grid=GRID, epsilon=1.0, accounting='paper', adjacency=ADD),
    'num_groups must be an integer >= 2': lambda: hosmer_lemeshow.test(
        make(GRID, epsilon=1.0), jax.random.key(0), np.zeros((2, 32)),
        num_groups=1),
    'counts and sums of 32 bins': lambda: Cellwise(
        grid=GRID, epsilon=1.0).release(
            jax.random.key(0), hosmer_lemeshow_cells.Bins(
                np.zeros((2, 3)), np.zeros(3)))}


@pytest.mark.every(1)
@pytest.mark.parametrize('words', BAD)
def test_bad_input_is_one_line(words):
  with pytest.raises(ValueError, match=words) as caught:
    BAD[words]()
  assert '\n' not in str(caught.value)
