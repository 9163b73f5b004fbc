"""Projections: printed tables, closed forms against releases, guarantees."""

import dataclasses
import functools
import math

import jax
import numpy as np
import pytest
from scipy import stats

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density import estimate
from dpjax.stats.density import laws
from dpjax.stats.density import mechanism as mechanisms
from dpjax.stats.density import projections
from dpjax.stats.density import sensitivities
from tests.stats.density import projection_tables as tables

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
projection = functools.partial(projections.Projection, adjacency=REPLACE)
weighted = functools.partial(projections.WeightedProjection, adjacency=REPLACE)
DENSITIES = {'tent2': laws.tent(2), 'wrapmix': laws.wrapped_mixture(), **{
    f'sobrand{beta}': laws.random_phases(beta) for beta in (1, 2, 3)}}


def of(mechanism, size):
  return dataclasses.replace(mechanism, num_functions=size)


def oracle(mechanism, density):
  size = projections.oracle_num_functions(mechanism, density)
  return size, of(mechanism, size).expected(density).total


@pytest.mark.parametrize('budget, smoothness, wanted', [
    ({'rho': 0.01}, 1, 5.070329e-3), ({'rho': 0.01}, 2, 2.990674e-3),
    ({'epsilon': 0.5}, 1, 5.640569e-3), ({'epsilon': 0.5}, 2, 3.560914e-3)])
def test_anchors_of_printed_noise(budget, smoothness, wanted):
  """Spec DEN-P2."""
  mechanism = projection(num_records=5000, num_functions=9, tuning='printed',
                         fix_mass=False, **budget)
  risk = mechanism.expected(laws.alternating(smoothness))
  assert risk.total == pytest.approx(wanted, rel=1e-6)
  fixed = dataclasses.replace(mechanism, fix_mass=True).expected(
      laws.alternating(smoothness))
  assert fixed.privacy == pytest.approx(risk.privacy * 8 / 9)


@pytest.mark.parametrize('smoothness, wanted', [(1, 5.934836e-3),
                                                (2, 1.966651e-3)])
def test_anchors_of_weights(smoothness, wanted):
  """Spec DEN-B4; its kappa is of four digits."""
  mechanism = weighted(
      num_records=5000, rho=0.01, coefficient_weights=(
          projections.pinsker_weights(7.5, smoothness=smoothness)))
  assert mechanism.expected(laws.alternating(smoothness)).total == (
      pytest.approx(wanted, rel=1e-5))


@pytest.mark.parametrize('line', tables.lines(tables.ALTERNATING_PURE))
def test_pure_errors_of_the_specification(line):
  """Spec DEN-P4, 8.2, to 1 %; it has 1.3876 N for the exact l1 norm."""
  smoothness, size, epsilon, *wanted = line
  density, size = laws.alternating(int(smoothness)), int(size)
  printed = projections.printed_projection(
      num_records=size, epsilon=epsilon, smoothness=int(smoothness),
      adjacency=REPLACE)
  assert printed.num_functions == wanted[0]
  assert printed.expected(density).total == pytest.approx(wanted[1], rel=0.01)
  assert oracle(printed, density) == (wanted[2], pytest.approx(wanted[3],
                                                               rel=0.01))

  def rounded(functions):
    risk = projection(num_records=size, num_functions=functions).expected(
        density)
    scale = 1.3876 * functions / (size * epsilon)
    return risk.total + 2 * (functions - 1) * scale**2
  assert rounded(int(wanted[4])) == pytest.approx(wanted[5], rel=0.01)
  assert min(map(rounded, range(3, 41, 2))) == rounded(int(wanted[4]))
  exact = oracle(projection(num_records=size, epsilon=epsilon,
                            num_functions=3), density)[1]
  assert 0.95 * wanted[5] < exact < wanted[5] * 1.001
  relaxed = projection(num_records=size, rho=epsilon**2 / 32 / math.log(size),
                       num_functions=3, tuning='printed', fix_mass=False)
  assert oracle(relaxed, density) == (wanted[6], pytest.approx(wanted[7],
                                                               rel=0.01))


@pytest.mark.parametrize('line', tables.lines(tables.ALTERNATING_ZCDP))
def test_concentrated_errors_of_the_specification(line):
  """Spec DEN-P5, 8.2, to 1 %."""
  smoothness, size, epsilon, *wanted = line
  density, size = laws.alternating(int(smoothness)), int(size)
  printed = projections.printed_projection(
      num_records=size, rho=epsilon**2 / 2, smoothness=int(smoothness),
      adjacency=REPLACE)
  assert printed.num_functions == wanted[0]
  assert printed.expected(density).total == pytest.approx(wanted[1], rel=0.01)
  assert oracle(printed, density) == (wanted[2], pytest.approx(wanted[3],
                                                               rel=0.01))
  exact = projection(num_records=size, rho=epsilon**2 / 2, num_functions=3)
  assert oracle(exact, density) == (wanted[4], pytest.approx(wanted[5],
                                                             rel=0.01))


@pytest.mark.parametrize('line', tables.lines(tables.LADDER))
def test_errors_where_privacy_dominates(line):
  """Spec 8.3."""
  smoothness, signal, *wanted = line
  density, size = laws.random_phases(int(smoothness)), 10**13
  found = []
  for budget in ({'epsilon': signal / size}, {'rho': (signal / size)**2}):
    # The least of both orders is that of privacy.
    printed = projections.printed_projection(
        num_records=size, smoothness=int(smoothness), adjacency=REPLACE,
        **budget)
    exact = projection(num_records=size, num_functions=3, **budget)
    found += [printed.expected(density).total, oracle(printed, density)[1],
              oracle(exact, density)[1]]
  del found[4]
  assert found == pytest.approx(wanted, rel=0.03)
  assert found[0] == pytest.approx(wanted[0], rel=0.01)
  assert found[3:] == pytest.approx(wanted[3:], rel=0.01)


@pytest.mark.parametrize('line', tables.lines(tables.WIENER))
def test_best_weights_of_a_density(line):
  """Spec 8.4, the linear oracle; never above the best cut-off."""
  name, size, epsilon, wanted = line
  density, size, rho = DENSITIES[name], int(size), epsilon**2 / 2
  weights = projections.oracle_weights(density, num_records=size, rho=rho)
  found = weighted(num_records=size, rho=rho, coefficient_weights=weights)
  least = found.expected(density).total
  assert least == pytest.approx(wanted, rel=0.01)
  cut = projection(num_records=size, rho=rho, num_functions=3)
  assert least < oracle(cut, density)[1]
  # Stationary: other weights nearby are no better.
  rng = np.random.default_rng(0)
  for _ in range(20):
    moved = np.array(weights) * np.exp(0.1 * rng.normal(size=len(weights)))
    other = dataclasses.replace(found, coefficient_weights=tuple(moved))
    assert other.expected(density).total > least


def test_best_weights_without_privacy():
  density = laws.wrapped_mixture()
  energies = density.energies(2048)
  assert projections.oracle_weights(density, num_records=100, rho=None) == (
      pytest.approx(np.trim_zeros(energies / (energies + (2 - energies) / 100),
                                  'b')))


# Constants of the error over a class where privacy dominates (spec DEN-B3).
CONSTANTS = {1: (1.273, 0.702, 0.318), 2: (1.035, 0.468, 0.253),
             3: (0.891, 0.365, 0.224)}


@pytest.mark.parametrize('smoothness', CONSTANTS)
def test_constants_over_a_class(smoothness):
  """C L^(2/(beta+1)) (n sqrt(rho))^(-2 beta/(beta+1)), and gains of 4."""
  # At fewer functions N and N + 1 are not the same.
  radius, signal = 1.7, min(
      100 * smoothness, 200)**(smoothness + 1)
  public = dict(num_records=10**18, rho=(signal / 10**18)**2)
  unit = radius**(2 / (smoothness + 1)) * signal**(
      -2 * smoothness / (smoothness + 1))
  found = []
  for tuning in ('printed', 'exact'):
    mechanism = projection(num_functions=3, tuning=tuning,
                           fix_mass=tuning == 'exact', **public)
    mechanism = of(mechanism, projections.tuned_num_functions(
        mechanism, smoothness=smoothness, radius=radius))
    found.append(mechanism.worst_case(smoothness, radius).total / unit)
  best = projections.pinsker_projection(smoothness=smoothness, radius=radius,
                                        adjacency=REPLACE, **public)
  found.append(best.worst_case(smoothness, radius).total / unit)
  assert found == pytest.approx(CONSTANTS[smoothness], rel=0.03)
  assert found[0] / found[2] == pytest.approx(4, abs=0.2)


def test_constant_of_an_interval():
  """0.450 L / (n sqrt(rho)) over all Lipschitz densities (spec DEN-B4)."""
  signal = 1e4
  best = projections.pinsker_projection(
      num_records=10**12, rho=(signal / 10**12)**2, smoothness=1, radius=2.0,
      basis='cosine', adjacency=REPLACE)
  found = best.worst_case(1, 2.0).total * signal / 2
  assert found == pytest.approx(0.450, rel=0.02)


@pytest.mark.parametrize('mechanism, density', [
    (projection(num_records=500, epsilon=0.7, num_functions=7),
     laws.alternating(1)),
    (weighted(num_records=500, rho=0.02, coefficient_weights=(1, 0.5, 0.2)),
     laws.tent(2)),
    (weighted(num_records=500, rho=0.02, coefficient_weights=(0.9, 0.5),
              basis='cosine'), laws.beta(2, 2))])
def test_an_error_over_a_class_is_no_less(mechanism, density):
  if mechanism.kind == 'fourier':
    radius = density.sobolev(1)
  else:
    radius = math.sqrt(12)
  risk, worst = mechanism.expected(density), mechanism.worst_case(1, radius)
  assert risk.sampling <= worst.sampling and risk.bias <= worst.bias
  assert risk.privacy == worst.privacy


@pytest.mark.parametrize('smoothness', [1, 2])
def test_the_printed_bound_holds(smoothness):
  """Lemma 2 with the constants of its proof: 2 N / n is twice too much."""
  radius, size = 9.0, 500
  for functions in (3, 9, 33):
    mechanism = projection(num_records=size, num_functions=functions,
                           epsilon=0.7, tuning='printed', fix_mass=False)
    worst = mechanism.worst_case(smoothness, radius)
    noise = functions * 16 * (functions / 0.7 / size)**2
    bias = (radius / np.pi**smoothness)**2
    assert worst.privacy == pytest.approx(noise)
    assert worst.bias == pytest.approx(
        bias * (functions + 1.0)**(-2 * smoothness))
    assert worst.sampling == pytest.approx((functions - 1) / size)
    assert mechanism.expected(laws.uniform()).sampling == pytest.approx(
        worst.sampling)
    assert worst.total < max(2, bias) * (
        functions**(-2.0 * smoothness) + functions / size + noise)


def test_bias_over_a_class_is_attained():
  mechanism = weighted(num_records=9, coefficient_weights=(1.0, 0.2))
  for frequency in (2, 3):
    density = laws.cosine_wave(frequency, 0.4)
    risk = mechanism.expected(density)
    biases = [mechanism.worst_case(1, density.sobolev(1)).bias]
    if frequency == 2:
      # Beyond 2 it is 1 - 0 at 3: a rate of 1 / 3 against .8 / 2.
      assert risk.bias == pytest.approx(biases[0])
    else:
      assert risk.bias < biases[0]


def test_least_numbers_of_functions():
  mechanism = projection(num_records=2000, epsilon=0.5, num_functions=3)
  sizes = range(3, 61, 2)
  for density in (laws.alternating(1), laws.cosine_wave(20)):
    risks = [of(mechanism, size).expected(density).total for size in sizes]
    assert projections.oracle_num_functions(mechanism, density) == (
        sizes[int(np.argmin(risks))])
  risks = [of(mechanism, size).worst_case(2, 30.0).total for size in sizes]
  assert projections.tuned_num_functions(
      mechanism, smoothness=2, radius=30.0) == sizes[int(np.argmin(risks))]


SHAPES = [projections.pinsker_weights(9.5, smoothness=beta)
          for beta in (1, 2, 3)] + [(1.0,) * 8, (0.3, 0.0, 1.0, 0.4)]


@pytest.mark.parametrize('weights', SHAPES)
def test_noise_of_frequencies(weights):
  """Spec DEN-B4: it says that kappa / weight is least, which it is not."""
  mechanism = weighted(num_records=10, rho=0.5, coefficient_weights=weights)
  told = np.array(weights) > 0

  def privacy(shape):
    # Variances 1 / shape, scaled to the budget, of both parts of a frequency.
    squared = np.array(weights)[told]**2 / shape[told]
    return 2 * squared.sum() * sensitivities.weighted_circle(
        shape, adjacency=REPLACE) / 100
  proportional = mechanism.expected(laws.uniform()).privacy
  assert proportional == pytest.approx(privacy(np.array(weights)))
  mechanism = dataclasses.replace(mechanism, allocation='least')
  least = mechanism.expected(laws.uniform()).privacy
  shape = mechanism.noise_weights
  assert least == pytest.approx(privacy(shape))
  # By Jensen: the largest over d is no less than the mean.
  assert 8 * sum(weights)**2 / 100 < least < 1.001 * proportional
  rng = np.random.default_rng(0)
  others = shape * np.exp(rng.normal(size=(100, shape.size)) * rng.uniform(
      0.02, 1, (100, 1)))
  assert min(map(privacy, others)) > 0.998 * least
  assert mechanism.noise_variances[1:][told] == pytest.approx(
      (mechanism.kappa / shape[told]))


def test_what_the_least_noise_gains():
  gains = []
  for weights in SHAPES[:4]:
    risks = [weighted(num_records=10, rho=0.5, coefficient_weights=weights,
                      allocation=allocation).expected(laws.uniform()).privacy
             for allocation in projections.ALLOCATIONS]
    gains.append(risks[0] / risks[1])
  assert gains == pytest.approx([1.001, 1.046, 1.063, 1.069], abs=3e-3)


SIMULATED = {
    'pure': (projection(num_records=200, epsilon=1.0, num_functions=7),
             laws.alternating(1)),
    'printed': (projection(num_records=200, rho=0.05, num_functions=7,
                           tuning='printed', fix_mass=False),
                laws.wrapped_mixture()),
    'weighted': (weighted(num_records=200, rho=0.1,
                          coefficient_weights=(1.0, 0.7, 0.0)),
                 laws.tent(4)),
    'cosine': (weighted(num_records=200, rho=5.0, basis='cosine',
                        coefficient_weights=(1.0, 0.5, 0.3)),
               laws.beta(2, 5))}


@pytest.mark.parametrize('name', SIMULATED)
def test_closed_forms_are_what_is_released(name):
  """Four standard errors; means of coefficients too: an error rate of 1e-3."""
  mechanism, density = SIMULATED[name]
  counts = density.counts(np.random.default_rng(1), num_records=200,
                          num_bins=1024, repetitions=4000)
  released = mechanism.coefficients(jax.random.key(2),
                                    mechanism.of_counts(counts))
  found = estimate.errors_of(mechanism.kind, released, density)
  assert abs(found.mean() - mechanism.expected(density).total) < (
      4 * found.std() / math.sqrt(found.size))
  truth = mechanism.weights * getattr(density, {
      'spectrum': 'fourier'}.get(mechanism.kind, mechanism.kind))(3)
  if mechanism.kind == 'spectrum':
    truth = np.concatenate([[1], truth])
  wrong = np.abs(released.mean(0) - truth)
  assert np.all(wrong < 4.5 * released.std(0) / math.sqrt(4000) + 1e-12)


def basis(x, mechanism):
  """Functions [..., s] in the order of sums, by their definition."""
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
  # Records in the middle of cells: nothing but rounding is left.
  middles = (np.floor(x * 8192) + 0.5) / 8192
  assert by_cells.statistic(x) == pytest.approx(mechanism.statistic(middles),
                                                abs=1e-9)
  # A smooth density's mean sums are off by (pi k / cells)^2 / 6 alone.
  density = laws.wrapped_mixture() if name == 'pure' else laws.beta(2, 2)
  sums = mechanism.of_counts(density.masses(8192))
  theta = (density.fourier(3) if name == 'pure' else density.cosine(3))
  if name == 'pure':
    theta = math.sqrt(2) * np.concatenate([theta.real, -theta.imag])
  assert sums[1:] == pytest.approx(theta, abs=1e-5)
  grid = (np.arange(64) + 0.5) / 64
  functions = basis(grid, mechanism)
  assert functions.T @ functions / 64 == pytest.approx(
      np.eye(functions.shape[1]), abs=1e-12)


def parameters_told(mechanism):
  """Which sums are; others are multiplied by 0."""
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
  """What is told moves by the budget at most, and all of it is used."""
  if 'epsilon' in budget and build.func is projections.WeightedProjection:
    with pytest.raises(ValueError, match='rho'):
      build(num_records=5, adjacency=adjacency, **budget)
    return
  mechanism = build(num_records=5, adjacency=adjacency, **budget)
  places = np.random.default_rng(0).uniform(size=(40_000, 2))
  places[0] = 0, 1
  moved = basis(places[:, 0], mechanism)
  if adjacency is REPLACE:
    moved = (moved - basis(places[:, 1], mechanism))[:, 1:]
  scales = mechanism.parameters.scales[-moved.shape[1]:]
  told = parameters_told(mechanism)[-moved.shape[1]:]
  shifts = np.abs(moved[:, told]) / scales[told]
  losses = shifts.sum(1) if mechanism.pure else (shifts**2).sum(1) / 2
  spent = losses.max() / (mechanism.epsilon or mechanism.rho)
  assert spent <= 1 + 1e-12
  if getattr(mechanism, 'tuning', 'exact') == 'exact':
    assert spent > 0.97
  else:
    assert spent < 0.75


@pytest.mark.parametrize('budget, law', [
    ({'epsilon': 0.5}, stats.laplace), ({'rho': 0.5}, stats.norm)])
@pytest.mark.parametrize('adjacency', Adjacency)
def test_noise_has_the_law_it_is_said_to_have(budget, law, adjacency):
  """Kolmogorov-Smirnov, refused with probability 1e-4."""
  mechanism = projections.Projection(num_records=100, num_functions=3,
                                     adjacency=adjacency, **budget)
  # So many records that their noisy number is as good as known.
  total = 100.0 if adjacency is REPLACE else 1e9
  sums = np.tile([total, 0.0, 0.0], (3000, 1))
  released = mechanism.coefficients(jax.random.key(5), sums)
  noise = math.sqrt(2) * total * np.concatenate([released.real,
                                                 released.imag]).ravel()
  assert stats.kstest(noise / mechanism.scales[1], law.cdf).pvalue > 1e-4


def test_what_is_not_known_is_divided_by():
  """The sum of ones is noised, and every other sum is divided by it."""
  mechanism = projections.Projection(num_records=50, num_functions=3,
                                     adjacency=ADD)
  # So near to one another that |theta| is nearly 1, and so is its share.
  x = np.random.default_rng(1).uniform(0.3, 0.4, size=80)
  found = mechanism.estimate(jax.random.key(0), x)
  assert found.coefficients[0] == pytest.approx(np.exp(-2j * np.pi * x).mean())
  private = dataclasses.replace(mechanism, rho=8.0)
  sums = np.tile(mechanism.statistic(x), (2000, 1))
  shares = private.coefficients(jax.random.key(1), sums)[:, 0]
  scale = np.abs(found.coefficients[0]) / 80 * private.scales[0]
  direction = found.coefficients[0] / np.abs(found.coefficients[0])
  spread = np.std((shares / direction).real)
  expected = math.hypot(scale, private.scales[1] / 80 / math.sqrt(2))
  assert spread == pytest.approx(expected, rel=0.1)
  with pytest.raises(NotImplementedError):
    private.expected(laws.uniform())


def test_events():
  found = projection(num_records=9, num_functions=5, rho=0.5).event
  assert found.noise_multiplier == pytest.approx(2.0)
  # Without a budget sums are told as they are.
  plain = projection(num_records=9, num_functions=5)
  assert plain.expected(laws.uniform()).privacy == 0 and not any(plain.scales)


def test_an_estimate_of_any_mass():
  mechanism = projection(num_records=300, rho=0.005, num_functions=5,
                         fix_mass=False)
  x = np.asarray(laws.tent(2).sample(jax.random.key(0), 300))
  found = mechanism.estimate(jax.random.key(1), x)
  grid = (np.arange(512) + 0.5) / 512
  assert found.kind == 'spectrum' and found.coefficients.shape == (3,)
  assert found(grid).mean() == pytest.approx(found.coefficients[0].real)
  assert np.mean((found(grid) - laws.tent(2).pdf(grid))**2) == pytest.approx(
      found.ise(laws.tent(2)), rel=1e-4)
  off = found.coefficients[0].real - 1
  assert off**2 > 0.005 * found.ise(laws.tent(2))
  with jax.enable_x64(True):
    bins = estimate.on_bins(found.kind, found.coefficients, 512)
  assert np.asarray(bins) == pytest.approx(found(grid), abs=1e-4)
  assert found.proper().coefficients.mean() == pytest.approx(1)


@pytest.mark.parametrize('build', [
    lambda: projection(num_records=5, num_functions=4),
    lambda: projection(num_records=5, num_functions=5, tuning='loose'),
    lambda: projection(num_records=5, num_functions=5, epsilon=1.0, rho=1.0),
    lambda: projection(num_records=5, num_functions=5, num_cells=4),
    lambda: projections.Projection(num_records=5, num_functions=5,
                                   adjacency=ADD, fix_mass=False),
    lambda: weighted(num_records=5, coefficient_weights=()),
    lambda: weighted(num_records=5, coefficient_weights=(1.0,), basis='spline'),
    lambda: projections.pinsker_weights(1.0, smoothness=1),
    lambda: projections.pinsker_weights(9.0, smoothness=0),
    lambda: projections.printed_num_functions(
        9.0, num_records=9, smoothness=1.5, pure=True),
    lambda: projections.printed_projection(num_records=5, smoothness=1,
                                           adjacency=REPLACE),
    lambda: projection(num_records=5, num_functions=5).worst_case(1, 0.0)])
def test_refusals(build):
  with pytest.raises(ValueError) as found:
    build()
  assert '\n' not in str(found.value)


def test_one_law_for_all_numbers():
  one = projection(num_records=5, num_functions=5, epsilon=1.0)
  other = projection(num_records=9, num_functions=9, epsilon=3.0)
  assert one.draw is other.draw
  assert isinstance(one.parameters.scales, np.ndarray)
  assert isinstance(one, mechanisms.DensityMechanism)
