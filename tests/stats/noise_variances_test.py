"""Tests errors of linear releases by their slopes in the drawn noise.

Noise is Gaussian of variance 1 wherever a sampler is asked for it. No variance
is read from a mechanism except the tested one.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import cubes
from dpjax.stats.density_methods import hierarchies
from dpjax.stats.density_methods import histograms
from dpjax.stats.density_methods import projections
from dpjax.stats.density_methods import spectral
from dpjax.stats.ecdf_methods import dyadic
from dpjax.stats.ecdf_methods import toeplitz
from dpjax.stats.ecdf_methods import trees
from dpjax.stats.quantile_methods import records
from dpjax.theory.parametric import noisy_shares
from dpjax.theory.parametric import normal_means
from dpjax.theory.parametric import truncated_means
from experiments.methods.statistics import compared_densities
from experiments.methods.statistics import factorised_quantiles as factorised
from experiments.methods.statistics import smooth_binary_ecdf as smooth_binary
from tests import coupling

ADD, REPLACE = Adjacency


def outputs(release, data):
  """Returns the noiseless release, and its slopes in standard noise."""
  with jax.enable_x64(True):
    coupled = coupling.Coupling(release, data)
    assert {block.kind for block in coupled.blocks} == {'normal'}
    return coupled.outputs(np.zeros(coupled.size), data)


def _drawn(mechanism):
  return lambda key, data: mechanism.draw(key, data, mechanism.parameters)


CURVES = {
    **{estimator: lambda estimator=estimator, **public: trees.TreeEcdf(
        shape=(2, 3, 2), shares=(0.5, 0.2, 0.3), estimator=estimator, **public)
       for estimator in trees.ESTIMATORS},
    'dyadic': dyadic.DyadicEcdf,
    'dyadic, tuned': lambda **public: dyadic.DyadicEcdf(
        accounting='tuned', **public),
    'square root': toeplitz.SquareRootEcdf,
    'smooth binary': lambda monotone, **public: (
        smooth_binary.SmoothBinaryEcdf(**public))}


@pytest.mark.every(1)
@pytest.mark.parametrize('name', CURVES)
def test_ranks_are_unbiased_and_vary_as_told(name):
  counts = np.random.default_rng(0).integers(0, 9, 11) * 1.0
  for adjacency in (ADD, REPLACE):
    mechanism = CURVES[name](num_thresholds=11, adjacency=adjacency, rho=0.3,
                             monotone=False)
    exact, slopes = outputs(_drawn(mechanism), counts)
    np.testing.assert_allclose(exact, np.cumsum(counts), atol=1e-9)
    np.testing.assert_allclose(np.square(slopes).sum(1), mechanism.variances(),
                               rtol=1e-6, atol=1e-9)
    assert mechanism.risk(3) == pytest.approx(
        3 * np.mean(mechanism.variances()))


@pytest.mark.every(1)
@pytest.mark.parametrize('make', [
    lambda **public: histograms.Histogram(num_bins=6, **public),
    lambda **public: histograms.Histogram(
        num_bins=6, fix_mass=False, **public),
    lambda **public: histograms.Polygon(
        num_bins=6, post='none', **public),
    lambda **public: cubes.CubeHistogram(num_bins=9, dimension=2, **public),
    lambda **public: spectral.SpectralHistogram(num_bins=7, **public),
    lambda **public: spectral.SpectralHistogram(
        num_bins=7, basis='cosine', weights=(1.0, 0.6, 0.1), **public),
    lambda **public: hierarchies.TreeDensity(height=3, level=2, **public),
    lambda **public: hierarchies.TreeDensity(
        height=3, shares=(0.2, 0.5, 0.3), **public),
    lambda **public: hierarchies.HaarDensity(
        height=3, threshold=0.0, **public),
    lambda **public: projections.Projection(num_functions=5, **public),
    lambda **public: projections.Projection(
        num_functions=5, fix_mass=False, **public),
    lambda **public: projections.WeightedProjection(
        coefficient_weights=(1.0, 0.4), **public),
    lambda **public: projections.WeightedProjection(
        coefficient_weights=(1.0, 0.4), basis='cosine', **public)])
def test_what_noise_adds_to_the_error_of_a_density(make):
  """Noise adds the stated error, by Parseval's identity or integration."""
  mechanism = make(num_records=50, rho=0.4, adjacency=REPLACE)
  density = compared_densities.random_phases(3)
  data = np.linspace(0.1, 0.99, 50)**2
  if isinstance(mechanism, cubes.CubeHistogram):
    data = np.stack([data, data], -1)
  statistic = mechanism.statistic(data)
  _, slopes = outputs(_drawn(mechanism), statistic)
  total = np.square(slopes).sum()
  if isinstance(mechanism, cubes.CubeHistogram):
    # The density is on a line, so each cell has the same noise variance.
    assert total / 9 == pytest.approx((1 - 1 / 9) * (
        9 * mechanism.scale / 50)**2)
    return
  if isinstance(mechanism, histograms.Polygon):
    # Lines between heights have mean squares of neighbours and their product.
    rows = np.concatenate([slopes[:1], slopes, slopes[-1:]])
    parts = np.full(7, 1 / 6)
    parts[[0, -1]] = 1 / 12
    wanted = np.sum(parts[:, None] / 3 * (
        rows[1:]**2 + rows[:-1]**2 + rows[1:] * rows[:-1]))
  elif mechanism.kind == 'histogram':
    wanted = total / slopes.shape[0]
  else:
    wanted = total if mechanism.kind == 'cosine' else 2 * total
    if mechanism.kind == 'spectrum':
      # The constant occurs once, without a complex conjugate.
      wanted -= np.square(slopes[0]).sum()
  assert wanted == pytest.approx(mechanism.expected(density).privacy, rel=1e-6)


@pytest.mark.every(4)
@pytest.mark.parametrize('adjacency', [ADD, REPLACE])
def test_curves_that_quantiles_are_read_off_vary_as_told(adjacency):
  mechanism = factorised.FactorisedQuantiles(
      probs=(0.5,), rho=0.3, lower=0.0, upper=1.0, num_bins=6,
      adjacency=adjacency)
  data = (np.arange(600) + 0.5) / 600

  def release(key, data):
    return factorised.noisy_ranks(
        key, records.of(data, 0.0, 1.0), mechanism.parameters)
  exact, slopes = outputs(release, data)
  np.testing.assert_allclose(exact, 100 * np.arange(1, 7))
  # Given that the last rank is n, errors have their conditional variance.
  last = slopes[-1]
  left = slopes - np.outer(slopes @ last, last) / (last @ last)
  np.testing.assert_allclose(np.sqrt(np.square(left).sum(1)),
                             mechanism.stddevs()[1:], atol=1e-6)
  np.testing.assert_allclose(slopes @ last / (last @ last),
                             mechanism.parameters.regression)
  assert mechanism.stddevs()[0] == 0
  with jax.enable_x64(True):
    edges, curve = map(np.asarray, mechanism.release_curve(
        jax.random.key(0), jnp.asarray(data)))
  np.testing.assert_allclose(edges, np.arange(7) / 6)
  assert curve[0] == 0 and curve[-1] == 1 and np.all(np.diff(curve) >= 0)


DATA = np.tile([[0.3, 0.1], [-0.2, 0.4], [0.1, 2.0], [-4.0, 3.0]], (25, 1))
PURE, ZCDP = notions.PureDP(epsilon=0.7), notions.ZCDP(rho=0.3)
# Vectors are projected on the disc of radius 1.5.
KEPT = DATA * np.minimum(1, 1.5 / np.maximum(
    np.linalg.norm(DATA, axis=1, keepdims=True), 1e-9))
ESTIMATORS = {
    **{noise: (truncated_means.TruncatedMean(
        num_examples=100, dimension=2, threshold=1.5, guarantee=guarantee,
        noise=noise, shrinkage=0.8), DATA, 0.8 * KEPT.mean(0))
       for noise, guarantee in (('gaussian', ZCDP), ('l2', PURE),
                                ('laplace', PURE))},
    **{kind.__name__: (kind(num_examples=100, weight=0.9, **budget),
                       np.arange(100) % 4 == 1.0, [0.5 - 0.25 * 0.9])
       for kind, budget in (
           (noisy_shares.LaplaceShare, dict(epsilon=0.7)),
           (noisy_shares.GaussianShare, dict(rho=0.3)))},
    'normal mean': (normal_means.NormalMean(
        num_examples=100, dimension=2, radius=9.0, sigma=1.0, guarantee=ZCDP,
        rounds=(normal_means.Round(1.5, 1.0),), shrinkage=0.8, projected=True),
                    DATA, 0.8 * KEPT.mean(0))}


@pytest.mark.every(1)
@pytest.mark.parametrize('name', ESTIMATORS)
def test_means_are_of_what_is_kept_and_err_by_their_noise(name):
  mechanism, data, wanted = ESTIMATORS[name]
  with jax.enable_x64(True):
    statistic = np.asarray(mechanism.statistic(jnp.asarray(data, float)))
    coupled = coupling.Coupling(_drawn(mechanism), statistic)
    exact, slopes = coupled.outputs(np.zeros(coupled.size), statistic)
  np.testing.assert_allclose(exact, wanted, atol=1e-6)
  (kind, size), = coupled.blocks
  # Mean squares of a number with density e^-|z|, of a normal one, and of a
  # vector with density e^-norm.
  square = {'laplace': 2.0, 'normal': 1.0, 1.0: 2.0, 2.0: size + 1.0}[kind]
  error = square * np.square(slopes).sum()
  if name == 'normal mean':
    assert error == pytest.approx(0.64 * 2 * mechanism.scales[0]**2, rel=1e-5)
  else:
    assert error == pytest.approx(mechanism.risk(1), rel=1e-5)


@pytest.mark.every(1)
@pytest.mark.parametrize('epsilon', [0.05, 0.9, 8.0])
def test_variances_of_whole_noise_are_those_of_its_law(epsilon):
  """Discrete noise has the distribution's variance at each level."""
  pure = dict(epsilon=epsilon, adjacency=REPLACE)
  for mechanism in (
      hierarchies.TreeDensity(num_records=50, height=3,
                              shares=(0.2, 0.5, 0.3), **pure),
      hierarchies.HaarDensity(num_records=50, height=3, **pure),
      trees.TreeEcdf(num_thresholds=6, shape=(3, 2), **pure)):
    wanted = [stats.dlaplace(1 / scale).var() for scale in mechanism.scales]
    np.testing.assert_allclose(mechanism.noise_variances, wanted, rtol=1e-6)
    assert len(wanted) in (2, 3) and min(mechanism.scales) > 0
  mechanism = histograms.Histogram(num_records=50, num_bins=4, **pure)
  assert mechanism.noise_variance == pytest.approx(
      stats.dlaplace(1 / mechanism.scale).var())
  assert histograms.Histogram(
      num_records=50, num_bins=4, noise='laplace', **pure
  ).noise_variance == pytest.approx(stats.laplace(scale=mechanism.scale).var())
