"""These tests check medians of constant records and effective privacy."""

import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from experiments import points
from experiments import records
from experiments import registry
from experiments import verdicts
from experiments.constant_records import run as constant_run
from experiments.effective_privacy import run as effective_run

_ROOT = pathlib.Path(__file__).resolve().parents[2] / 'experiments'
OUTCOMES = {'constant_records': 'a a a a a a d a',
            'effective_privacy': 'a a a a d a'}


def _rows(name):
  return records.read(_ROOT / name / 'results' / 'rows.csv')


@pytest.mark.parametrize('name', OUTCOMES)
def test_kept_rows_are_the_sweep_and_give_these_verdicts(name):
  experiment, lines = registry.load(name), _rows(name)
  assert len(records.ids(lines)) == len(experiment.settings)
  all_verdicts = verdicts.check(experiment.report.verdict(lines))
  assert ' '.join(v.verdict[0] for v in all_verdicts) == OUTCOMES[name]
  assert {v.verdict for v in experiment.report.verdict([])} == {
      verdicts.NOT_RUN}
  pytest.importorskip('matplotlib')
  assert all(ax.has_data() for ax in experiment.report.figure(lines).axes)


def test_part_of_the_rows_gives_the_verdicts_that_it_can():
  report = registry.load('constant_records').report
  all_verdicts = report.verdict([row for row in _rows('constant_records')
                                 if row.method != 'printed'])
  assert ' '.join(v.verdict[0] for v in all_verdicts) == 'a a a a a a n n'


@pytest.mark.parametrize('n, risk, printed, corrected', [
    (100, 2.8e-3, .67, .165), (200, 1.3e-4, .079, 5.1e-3),
    (400, 8.1e-7, 1.2e-3, 7.7e-6)])
def test_risks_and_bounds_of_constant_records(n, risk, printed, corrected):
  """Risks and bounds of constant records are known at epsilon 1/2 (QF-23)."""
  all_points = points.collect(_rows('constant_records'))
  one, other = (points.select(all_points, method=method, num_examples=float(n),
                              epsilon=.5)[0] for method in ('printed', 'half'))
  assert one['risk'] == pytest.approx(risk, rel=.06)
  assert one['bound_printed'] == pytest.approx(printed, rel=.01)
  assert other['bound'] == pytest.approx(corrected, rel=.01)
  # The corrected bound is least there, up to a constant.
  assert other['bound'] == pytest.approx(
      5 * math.exp(-n / 24) + 2 * math.exp(-n / 32))


def test_squares_are_integrals():
  rng = np.random.default_rng(0)
  ordered = np.sort(rng.uniform(-.3, .6, (3, 5)))
  grid = (np.arange(100_000) + .5) / 50_000 - 1
  for known, square in zip(ordered, constant_run.squares(ordered, .4),
                           strict=True):
    density = np.exp(-.4 * np.abs(np.searchsorted(known, grid) - 2.5))
    assert square == pytest.approx(np.average(grid**2, weights=density),
                                   rel=1e-4)


def test_a_smoke_sweep_of_constant_records(smoke_rows):
  all_points = points.collect(smoke_rows('constant_records'))
  for point in points.select(all_points, method=('printed', 'half')):
    n, epsilon = point['num_examples'], point['epsilon']
    assert 0 < point['risk'] < point['bound']
    # Each amplitude is compared with the bound for which it is best.
    name, event, decay = {'printed': ('bound_printed', 1, 24),
                          'half': ('bound', 2, 12)}[point['method']]
    assert point[name] == pytest.approx(
        event * math.exp(-n / 32) + 5 * math.exp(-n * epsilon / decay))
  for point in points.select(all_points, method='cost', place=(-.6, .6)):
    assert point['cost'] == 50
  for point in points.select(all_points, method='raw'):
    assert point['risk'] == pytest.approx(1 / 3)


_DATA, _VALUES = np.array([.1, .4, .9]), np.array([0.0, .5, 1.0])


def _density(known, points_, margin, rate):
  """Returns the density of the smoothed median, by integration over a grid."""
  known = np.sort(np.clip(known, -margin, 1 + margin))
  grid = np.linspace(-margin, 1 + margin, 200_001)
  cost = lambda at: np.exp(-rate * np.abs(np.searchsorted(known, at)
                                          - len(known) / 2))
  return cost(points_) / (cost(grid).mean() * (1 + 2 * margin))


def test_densities_of_neighbours():
  noise, where = np.array([.2, -.05, .3]), np.array([-.3, .15, .33, .7, 1.3])
  with jax.enable_x64(True):
    own, near = jax.jit(effective_run.densities)(
        noise, _DATA, _VALUES, where, np.float64(.1), np.float64(.5))
  np.testing.assert_allclose(own, _density(_DATA + noise, where, .5, .5),
                             rtol=1e-4)
  for record in range(3):
    for place, value in enumerate(_VALUES):
      other = np.where(np.arange(3) == record, value, _DATA) + noise
      np.testing.assert_allclose(near[record, place], _density(
          other, where, .5, .5), rtol=1e-4)


@pytest.mark.every(2)
def test_without_noise_privacy_is_that_of_the_data_set():
  """Without noise the effective privacy is the data set's largest ratio.

  With noise it is less.
  """
  def ratio(other):
    ends = np.unique(np.concatenate([_DATA, other, [0, 1]]))
    middles = (ends[1:] + ends[:-1]) / 2
    return np.log(np.max(_density(_DATA, middles, 0, .5)
                         / _density(np.array(other), middles, 0, .5)))

  exact = max(ratio([*np.delete(_DATA, record), value])
              for record in range(3) for value in _VALUES)

  def effective_at(sigma):
    with jax.enable_x64(True):
      return jax.tree.map(float, _effective(
          jax.random.key(0), jnp.asarray(_DATA), np.float64(sigma)))

  still = effective_at(1e-9)
  assert still.largest == pytest.approx(exact, rel=1e-4)
  assert still.fresh == pytest.approx(exact, rel=1e-4) and still.error < 1e-6
  assert exact <= 1
  noisy = effective_at(1.0)
  assert noisy.fresh < .6 * exact
  assert abs(noisy.fresh - noisy.largest) < 5 * noisy.error + .1


@jax.jit
def _effective(key, data, sigma):
  return effective_run.effective(key, data, sigma, .5, num_values=3,
                                 noise_draws=400)


def test_effective_privacy_of_half_an_atom():
  """Committed rows have the known effective privacy of half an atom (QF-28)."""
  all_points = points.collect(_rows('effective_privacy'))
  for sigma, known in ((1e-4, .96), (.1, .62), (.3, .42), (1., .19),
                       (3., .064)):
    point, = points.select(all_points, dataset='mixed_0.5_0.25', sigma=sigma)
    # Different data sets give values that spread this much.
    spread = 2 * point['largest_se'] + 3 * point['fresh_se'] + .01
    assert abs(point['largest'] - known) < 2 * spread
    assert point['most_of_sets'] <= 1
  assert stats.norm.sf(max(p['excess_se'] for p in all_points)) > .5
