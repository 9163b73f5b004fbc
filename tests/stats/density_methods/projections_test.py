"""Tests projections: closed forms against releases, and guarantees."""

import dataclasses
import functools
import math

import jax
import numpy as np
import pytest
from scipy import stats

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import densities
from dpjax.stats.density_methods import estimate
from dpjax.stats.density_methods import mechanism as mechanisms
from dpjax.stats.density_methods import projections
from dpjax.stats.density_methods import sensitivities
from experiments.methods.statistics import compared_densities
from experiments.methods.statistics import projection_tunings

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
projection = functools.partial(projections.Projection, adjacency=REPLACE)
weighted = functools.partial(projections.WeightedProjection, adjacency=REPLACE)

SHAPES = [projection_tunings.pinsker_weights(9.5, smoothness=beta)
          for beta in (1, 2, 3)] + [(1.0,) * 8, (0.3, 0.0, 1.0, 0.4)]


@pytest.mark.parametrize('weights', SHAPES)
def test_noise_of_frequencies(weights):
  """Allocation 'least' has the least noise, not kappa / weight as in DEN-B4."""
  mechanism = weighted(num_records=10, rho=0.5, coefficient_weights=weights)
  measured = np.array(weights) > 0

  def privacy(shape):
    # Both parts of a frequency have variances 1 / shape, scaled to the budget.
    squared = np.array(weights)[measured]**2 / shape[measured]
    return 2 * squared.sum() * sensitivities.weighted_circle(
        shape, adjacency=REPLACE) / 100
  proportional = mechanism.expected(densities.uniform()).privacy
  assert proportional == pytest.approx(privacy(np.array(weights)))
  mechanism = dataclasses.replace(mechanism, allocation='least')
  least = mechanism.expected(densities.uniform()).privacy
  shape = mechanism.noise_weights
  assert least == pytest.approx(privacy(shape))
  # By Jensen's inequality the largest value over d is at least the mean.
  assert 8 * sum(weights)**2 / 100 < least < 1.001 * proportional
  rng = np.random.default_rng(0)
  others = shape * np.exp(rng.normal(size=(100, shape.size)) * rng.uniform(
      0.02, 1, (100, 1)))
  assert min(map(privacy, others)) > 0.998 * least
  assert mechanism.noise_variances[1:][measured] == pytest.approx(
      mechanism.kappa / shape[measured])


def test_what_the_least_noise_gains():
  gains = []
  for weights in SHAPES[:4]:
    risks = [weighted(num_records=10, rho=0.5, coefficient_weights=weights,
                      allocation=allocation).expected(densities.uniform()).privacy
             for allocation in projections.ALLOCATIONS]
    gains.append(risks[0] / risks[1])
  assert gains == pytest.approx([1.001, 1.046, 1.063, 1.069], abs=3e-3)


SIMULATED = {
    'pure': (projection(num_records=200, epsilon=1.0, num_functions=7),
             compared_densities.alternating(1)),
    'printed': (projection(num_records=200, rho=0.05, num_functions=7,
                           tuning='printed', fix_mass=False),
                compared_densities.wrapped_mixture()),
    'weighted': (weighted(num_records=200, rho=0.1,
                          coefficient_weights=(1.0, 0.7, 0.0)),
                 compared_densities.tent(4)),
    'cosine': (weighted(num_records=200, rho=5.0, basis='cosine',
                        coefficient_weights=(1.0, 0.5, 0.3)),
               compared_densities.beta(2, 5))}


@pytest.mark.slow
@pytest.mark.parametrize('name', SIMULATED)
def test_closed_forms_are_what_is_released(name):
  """Released errors and means match closed forms, to four standard errors."""
  mechanism, density = SIMULATED[name]
  counts = density.counts(np.random.default_rng(1), num_records=200,
                          num_bins=1024, repetitions=4000)
  released = mechanism.coefficients(jax.random.key(2),
                                    mechanism.of_counts(counts))
  errors = estimate.errors_of(mechanism.kind, released, density)
  assert abs(errors.mean() - mechanism.expected(density).total) < (
      4 * errors.std() / math.sqrt(errors.size))
  truth = mechanism.weights * getattr(density, {
      'spectrum': 'fourier'}.get(mechanism.kind, mechanism.kind))(3)
  if mechanism.kind == 'spectrum':
    truth = np.concatenate([[1], truth])
  wrong = np.abs(released.mean(0) - truth)
  assert np.all(wrong < 4.5 * released.std(0) / math.sqrt(4000) + 1e-12)


def basis(x, mechanism):
  """Returns functions [..., s] in the order of sums, by their definition."""
  waves = np.multiply.outer(x, np.arange(1, mechanism.num_frequencies + 1))
  if mechanism.basis == 'cosine':
    parts = [np.cos(np.pi * waves)]
  else:
    parts = [np.cos(2 * np.pi * waves), np.sin(2 * np.pi * waves)]
  return np.concatenate([np.ones((*x.shape, 1)), *(
      math.sqrt(2) * part for part in parts)], -1)


@pytest.mark.parametrize('name', ['pure', 'cosine'])
def test_sums_directly_and_by_cells(name):
  mechanism = SIMULATED[name][0]
  x = np.random.default_rng(3).uniform(size=200)
  wanted = basis(x, mechanism).sum(0)
  assert mechanism.statistic(x) == pytest.approx(wanted, abs=1e-10)
  by_cells = dataclasses.replace(mechanism, num_cells=8192)
  assert by_cells.statistic(x) == pytest.approx(wanted, abs=200 * 1e-3)
  # Records lie in the middle of cells, so that only rounding is left.
  middles = (np.floor(x * 8192) + 0.5) / 8192
  assert by_cells.statistic(x) == pytest.approx(mechanism.statistic(middles),
                                                abs=1e-9)
  # A smooth density's mean sums are off by only (pi k / cells)^2 / 6.
  density = compared_densities.wrapped_mixture() if name == 'pure' else compared_densities.beta(2, 2)
  sums = mechanism.of_counts(density.masses(8192))
  theta = (density.fourier(3) if name == 'pure' else density.cosine(3))
  if name == 'pure':
    theta = math.sqrt(2) * np.concatenate([theta.real, -theta.imag])
  assert sums[1:] == pytest.approx(theta, abs=1e-5)
  grid = (np.arange(64) + 0.5) / 64
  functions = basis(grid, mechanism)
  assert functions.T @ functions / 64 == pytest.approx(
      np.eye(functions.shape[1]), abs=1e-12)


def released_parameters(mechanism):
  """Returns which sums are released; others are multiplied by 0."""
  parts = 2 if mechanism.basis == 'fourier' else 1
  return np.append(1.0, np.tile(mechanism.weights, parts)) > 0


@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('budget', [{'epsilon': 0.8}, {'rho': 0.3}])
@pytest.mark.parametrize('build', [
    functools.partial(projections.Projection, num_functions=7),
    functools.partial(projections.Projection, num_functions=7,
                      tuning='printed'),
    functools.partial(projections.WeightedProjection,
                      coefficient_weights=(1.0, 0.6, 0.1)),
    functools.partial(projections.WeightedProjection, allocation='least',
                      coefficient_weights=(1.0, 0.6, 0.0, 0.1)),
    functools.partial(projections.WeightedProjection, basis='cosine',
                      coefficient_weights=(1.0, 0.6, 0.1))])
def test_log_ratios_of_neighbours(build, budget, adjacency):
  """Released sums cost at most the budget between neighbours, and attain it."""
  if 'epsilon' in budget and build.func is projections.WeightedProjection:
    with pytest.raises(ValueError, match='rho'):
      build(num_records=5, adjacency=adjacency, **budget)
    return
  mechanism = build(num_records=5, adjacency=adjacency, **budget)
  places = np.random.default_rng(0).uniform(size=(40_000, 2))
  places[0] = 0, 1
  change = basis(places[:, 0], mechanism)
  if adjacency is REPLACE:
    change = (change - basis(places[:, 1], mechanism))[:, 1:]
  scales = mechanism.parameters.scales[-change.shape[1]:]
  released = released_parameters(mechanism)[-change.shape[1]:]
  shifts = np.abs(change[:, released]) / scales[released]
  losses = shifts.sum(1) if mechanism.pure else (shifts**2).sum(1) / 2
  spent = losses.max() / (mechanism.epsilon or mechanism.rho)
  assert spent <= 1 + 1e-12
  if getattr(mechanism, 'tuning', 'exact') == 'exact':
    assert spent > 0.97
  else:
    assert spent < 0.75


@pytest.mark.every(3)
@pytest.mark.parametrize('budget, distribution', [
    ({'epsilon': 0.5}, stats.laplace), ({'rho': 0.5}, stats.norm)])
@pytest.mark.parametrize('adjacency', Adjacency)
def test_noise_has_the_law_it_is_said_to_have(budget, distribution, adjacency):
  """Noise has the stated distribution by Kolmogorov-Smirnov, at level 1e-4."""
  mechanism = projections.Projection(num_records=100, num_functions=3,
                                     adjacency=adjacency, **budget)
  # There are so many records that their noisy number is almost exact.
  total = 100.0 if adjacency is REPLACE else 1e9
  sums = np.tile([total, 0.0, 0.0], (3000, 1))
  released = mechanism.coefficients(jax.random.key(5), sums)
  noise = math.sqrt(2) * total * np.concatenate([released.real,
                                                 released.imag]).ravel()
  assert stats.kstest(noise / mechanism.scales[1],
                      distribution.cdf).pvalue > 1e-4


@pytest.mark.slow
def test_what_is_not_known_is_divided_by():
  """A private n is a noised sum of ones, which divides all other sums."""
  mechanism = projections.Projection(num_records=50, num_functions=3,
                                     adjacency=ADD)
  # Records are so close that |theta| is nearly 1, and so is its share.
  x = np.random.default_rng(1).uniform(0.3, 0.4, size=80)
  curve = mechanism.estimate(jax.random.key(0), x)
  assert curve.coefficients[0] == pytest.approx(np.exp(-2j * np.pi * x).mean())
  private = dataclasses.replace(mechanism, rho=8.0)
  sums = np.tile(mechanism.statistic(x), (2000, 1))
  shares = private.coefficients(jax.random.key(1), sums)[:, 0]
  scale = np.abs(curve.coefficients[0]) / 80 * private.scales[0]
  direction = curve.coefficients[0] / np.abs(curve.coefficients[0])
  stddev = np.std((shares / direction).real)
  expected = math.hypot(scale, private.scales[1] / 80 / math.sqrt(2))
  assert stddev == pytest.approx(expected, rel=0.1)
  with pytest.raises(NotImplementedError):
    private.expected(densities.uniform())


def test_events():
  event = projection(num_records=9, num_functions=5, rho=0.5).event
  assert event.noise_multiplier == pytest.approx(2.0)
  # Without a budget, sums are released without noise.
  plain = projection(num_records=9, num_functions=5)
  assert plain.expected(densities.uniform()).privacy == 0 and not any(plain.scales)


@pytest.mark.slow
def test_an_estimate_of_any_mass():
  mechanism = projection(num_records=300, rho=0.005, num_functions=5,
                         fix_mass=False)
  x = np.asarray(compared_densities.tent(2).sample(jax.random.key(0), 300))
  curve = mechanism.estimate(jax.random.key(1), x)
  grid = (np.arange(512) + 0.5) / 512
  assert curve.kind == 'spectrum' and curve.coefficients.shape == (3,)
  assert curve(grid).mean() == pytest.approx(curve.coefficients[0].real)
  assert np.mean(
      (curve(grid) - compared_densities.tent(2).pdf(grid))**2) == pytest.approx(
          curve.ise(compared_densities.tent(2)), rel=1e-4)
  off = curve.coefficients[0].real - 1
  assert off**2 > 0.005 * curve.ise(compared_densities.tent(2))
  with jax.enable_x64(True):
    bins = estimate.on_bins(curve.kind, curve.coefficients, 512)
  assert np.asarray(bins) == pytest.approx(curve(grid), abs=1e-4)
  assert curve.proper().coefficients.mean() == pytest.approx(1)


@pytest.mark.parametrize('build', [
    lambda: projection(num_records=5, num_functions=4),
    lambda: projection(num_records=5, num_functions=5, tuning='loose'),
    lambda: projection(num_records=5, num_functions=5, epsilon=1.0, rho=1.0),
    lambda: projection(num_records=5, num_functions=5, num_cells=4),
    lambda: projections.Projection(num_records=5, num_functions=5,
                                   adjacency=ADD, fix_mass=False),
    lambda: weighted(num_records=5, coefficient_weights=()),
    lambda: weighted(num_records=5, coefficient_weights=(1.0,), basis='spline'),
    lambda: projection_tunings.pinsker_weights(1.0, smoothness=1),
    lambda: projection_tunings.pinsker_weights(9.0, smoothness=0),
    lambda: projection_tunings.printed_num_functions(
        9.0, num_records=9, smoothness=1.5, pure=True),
    lambda: projection_tunings.printed_projection(num_records=5, smoothness=1,
                                           adjacency=REPLACE),
    lambda: projection(num_records=5, num_functions=5).worst_case(1, 0.0)])
def test_refusals(build):
  with pytest.raises(ValueError) as error:
    build()
  assert '\n' not in str(error.value)


def test_one_law_for_all_numbers():
  one = projection(num_records=5, num_functions=5, epsilon=1.0)
  other = projection(num_records=9, num_functions=9, epsilon=3.0)
  assert one.draw is other.draw
  assert isinstance(one.parameters.scales, np.ndarray)
  assert isinstance(one, mechanisms.DensityMechanism)
