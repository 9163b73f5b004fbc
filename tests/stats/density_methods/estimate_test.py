"""Tests estimates as functions: values, bin means, densities and samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import densities
from dpjax.stats.density_methods import estimate
from dpjax.stats.density_methods import stages
from dpjax.stats.density_methods import weighted
from dpjax.theory.minimax import cube_bounds
from dpjax.theory.minimax import hypotheses
from dpjax.theory.parametric import densities as density_study
from experiments.methods.statistics import compared_densities
from experiments.methods.statistics import marginals

_REPLACE = Adjacency.REPLACE_ONE
_COEFFICIENTS = {
    'histogram': np.array([0.4, 2.2, -0.3, 1.7]),
    'polygon': np.array([0.4, 2.2, -0.3, 1.7]),
    'spline': np.array([0.4, 2.2, -0.3, 1.7]),
    'fourier': np.array([0.3 - 0.2j, 0.1 + 0.15j]),
    'spectrum': np.array([0.9 + 0j, 0.3 - 0.2j, 0.1 + 0.15j]),
    'cosine': np.array([0.5, -0.3, 0.2])}


def test_every_kind_is_here():
  assert set(estimate.KINDS) == _COEFFICIENTS.keys()


@pytest.mark.every(1)
@pytest.mark.parametrize('kind', _COEFFICIENTS)
def test_means_over_bins_are_those_of_values(kind):
  curve = estimate.DensityEstimate(kind=kind, coefficients=_COEFFICIENTS[kind])
  x = (np.arange(64_000) + 0.5) / 64_000
  values = curve(x)
  with jax.enable_x64(True):
    means = np.asarray(estimate.on_bins(kind, jnp.asarray(
        curve.coefficients), 16))
  np.testing.assert_allclose(means, values.reshape(16, -1).mean(1), atol=1e-5)
  # Squared errors are integrals; those of a constant are known by hand.
  assert curve.ise(densities.uniform()) == pytest.approx(
      np.mean((values - 1)**2), abs=1e-4)
  # As a density it is nonnegative, has mass 1, and is otherwise unchanged.
  proper = curve.proper(16)
  assert proper.kind == 'histogram' and proper.coefficients.size == 16
  assert (proper.coefficients >= 0).all()
  assert proper.coefficients.mean() == pytest.approx(1)
  positive = proper.coefficients > 0
  shift = (means - proper.coefficients)[positive]
  assert np.ptp(shift) < 1e-9 and (means[~positive] <= shift[0] + 1e-9).all()


@pytest.mark.every(1)
@pytest.mark.parametrize('kind', _COEFFICIENTS)
def test_bounds_stretch_values_and_samples(kind):
  curve = estimate.DensityEstimate(kind=kind, coefficients=_COEFFICIENTS[kind])
  wide = estimate.DensityEstimate(kind=kind, lower=-3.0, upper=7.0,
                                  coefficients=_COEFFICIENTS[kind])
  x = np.array([0.0, 0.11, 0.5, 0.83, 1.0])
  np.testing.assert_allclose(wide(10 * x - 3), curve(x) / 10, atol=1e-12)
  assert wide(np.array([-3.01, 7.01])).tolist() == [0, 0]
  drawn = wide.sample(jax.random.key(0), 4000)
  assert drawn.shape == (4000,) and -3 <= drawn.min() and drawn.max() <= 7
  proper = wide.proper()
  tops = np.concatenate([[0.0], np.cumsum(proper.coefficients)])
  ends = np.linspace(-3, 7, tops.size)
  # The level is 1e-6.
  assert stats.kstest(drawn, lambda x: np.interp(
      x, ends, tops / tops[-1])).pvalue > 1e-6


def test_bins_that_do_not_fit_are_refused():
  with pytest.raises(ValueError, match='do not cut 4 bins evenly'):
    estimate.on_bins('histogram', _COEFFICIENTS['histogram'], 6)
  for kind, bins in (('fourier', 4), ('cosine', 3)):
    with pytest.raises(ValueError, match='frequencies need more bins'):
      estimate.on_bins(kind, _COEFFICIENTS[kind], bins)


def test_steps_have_their_distribution():
  density, x = compared_densities.blocks(), np.linspace(0, 1, 20_001)
  middle = (x[1:] + x[:-1]) / 2
  np.testing.assert_allclose(np.cumsum(density.pdf(middle)) / 20_000,
                             density.cdf(x[1:]), atol=2e-4)
  assert density.cdf(np.array([0.0, 1.0])) == pytest.approx([0, 1])
  assert density.square == pytest.approx(np.mean(density.pdf(middle)**2),
                                         abs=1e-3)


@pytest.mark.every(2)
def test_tables_of_records_are_their_density():
  """Almost noiseless tables of two attributes are the counts of their cells."""
  rng = np.random.default_rng(1)
  data = rng.random((200, 2))**[1, 2]
  data[:3] = [[0, 1], [1, 1], [-2, 5]]
  mechanism = marginals.TreeMarginals(
      num_records=200, num_attributes=2, num_bins=3, epsilon=1e6,
      adjacency=_REPLACE, structure=((1, 0),))
  curve = mechanism.estimate(jax.random.key(0), data)
  cells = np.minimum((np.clip(data, 0, 1) * 3).astype(int), 2)
  counts = np.zeros((3, 3))
  np.add.at(counts, tuple(cells.T), 1)
  at = np.array([[0.1, 0.9], [0.5, 0.5], [1.0, 0.0]])
  places = np.minimum((at * 3).astype(int), 2)
  np.testing.assert_allclose(curve(at), counts[tuple(places.T)] * 9 / 200,
                             rtol=1e-3)
  np.testing.assert_array_equal(mechanism.statistic(np.clip(data, 0, 1)),
                                counts.ravel())
  np.testing.assert_array_equal(
      mechanism.statistic_of_cells(counts.ravel()), counts.ravel())
  for wrong, match in ((data[:, :1], r'records must be \[n, 2\]'),
                       (data * np.nan, 'got NaN'),
                       (data[1:], 'there must be 200 records')):
    with pytest.raises(ValueError, match=match):
      mechanism.estimate(jax.random.key(0), wrong)


def test_statistics_of_two_histograms_are_counts():
  data = np.random.default_rng(0).random(300)
  for kind in (stages.TwoResolutions, stages.TwoStages):
    mechanism = kind(num_records=300, epsilon=0.7, adjacency=_REPLACE)
    np.testing.assert_array_equal(mechanism.statistic(data), np.histogram(
        data, mechanism.num_bins, (0, 1))[0])
  assert mechanism.num_bins == 3465
  with pytest.raises(NotImplementedError, match='no closed form'):
    weighted.adaptive(num_records=300, rho=0.1, adjacency=_REPLACE
                      ).worst_case(1, 1.0)


@pytest.mark.parametrize('dimension', [1, 2, 3])
def test_bounds_of_the_cube_are_the_best_of_their_parts(dimension):
  """Cube bounds are the best over used coordinates and over codes."""
  known = dict(num_examples=400, guarantee=notions.PureDP(epsilon=0.05))
  bounds = {bound.name: bound.value for bound in cube_bounds.bounds(
      dimension=dimension, **known)}
  free = dict(known, guarantee=None)
  for name, function in (('slopes', cube_bounds.slopes),
                         ('pairs of cells', cube_bounds.cells)):
    for text, given in (('', free), (', private', known)):
      assert bounds[name + text] == max(
          function(dimension=used, **given)
          for used in range(1, dimension + 1))
  best = 0.0
  for side in np.unique(np.geomspace(2, 60, 30).astype(int)):
    bits, half = side**dimension // 2, 1 / side
    energy = half**(dimension + 2) / ((dimension + 1) * (dimension + 2))
    mass = half**(dimension + 1) / (dimension + 1)
    for apart in np.linspace(0.05, 0.45, 9) * (bits >= 8):
      if not apart:
        continue
      words = bits * (np.log(2) - stats.entropy([apart, 1 - apart]))
      error = hypotheses.packing_lemma_around(
          words, bits * mass / 2, **known) if words >= 1 else 0.0
      best = max(best, bits * energy * apart * error)
  code = bounds['code of cells, private']
  assert 0.8 * best <= code <= 1.25 * best and best > 0
  # No estimator has a smaller risk.
  for upper in density_study.STUDY.upper(dimension=dimension, **known):
    assert max(bounds.values()) <= upper.value
