"""Tests what a plan contains, and what an estimate reads of the records."""

import itertools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import mechanisms
from dpjax.stats.density_methods import adaptive
from dpjax.stats.density_methods import api
from dpjax.stats.density_methods import estimate
from dpjax.stats.density_methods import histograms
from dpjax.stats.density_methods import noisy_counts
from dpjax.stats.density_methods import projections
from dpjax.stats.density_methods import sensitivities
from dpjax.stats.density_methods import shrinkage
from dpjax.stats.density_methods import sparse
from dpjax.stats.density_methods import stages
from dpjax.stats.density_methods import weighted
from experiments.methods.statistics import marginals
from tests import coupling
from tests.stats.density_methods import post_processing_reads_test

ADD, REPLACE = Adjacency
KEY = jax.random.key(0)


def test_methods_are_those_of_the_text():
  for adjacency, boundary, budget in itertools.product(
      Adjacency, api.BOUNDARIES, (dict(epsilon=0.3), dict(rho=0.05))):
    public = dict(adjacency=adjacency, **budget)
    one = adaptive.adaptive(700, boundary=boundary, **public)
    plan = lambda method='auto': api.plan(
        700, boundary=boundary, method=method, **public)
    assert plan('histogram') == one
    if boundary == 'circle' and 'rho' in budget:
      sums = weighted.adaptive(num_records=700, **public)
      assert plan() == plan('sums') == sums
    else:
      assert plan() == one
    if boundary == 'circle' and 'epsilon' in budget and adjacency is REPLACE:
      assert plan('two_stages') == stages.TwoStages(num_records=700, **public)


def _unseen(draw):
  """Returns the statistic as coefficients, so that nothing is drawn."""
  del draw
  return lambda key, statistic, parameters: statistic


@pytest.mark.parametrize('num', [3, 50])
def test_a_guess_stands_for_a_private_number_of_records(num):
  values = np.linspace(2, 8, num)
  public = dict(lower=2.0, upper=8.0, epsilon=0.5)
  with mock.patch.object(mechanisms, 'compiled', _unseen):
    guessed = api.density(KEY, values, expected_records=900,
                          adjacency='add_or_remove_one', **public)
    known = api.density(KEY, values, adjacency=REPLACE, **public)
  assert guessed.mechanism == api.plan(900, epsilon=0.5, adjacency=ADD)
  assert known.mechanism == api.plan(num, epsilon=0.5, adjacency=REPLACE)
  for curve in (guessed, known):
    np.testing.assert_array_equal(curve.coefficients, curve.mechanism.statistic(
        (values - 2) / 6))


@pytest.mark.sound
@pytest.mark.parametrize('name', post_processing_reads_test.MECHANISMS)
def test_records_beyond_the_bounds_are_at_them(name):
  """Records are clipped to the bounds; NaN and wrong numbers are refused."""
  mechanism = post_processing_reads_test.MECHANISMS[name]
  axes = getattr(mechanism, 'num_attributes',
                 getattr(mechanism, 'dimension', 1))
  flat = axes == 1 or isinstance(mechanism, histograms.Polygon)
  unit = np.linspace(0, 1, 50)
  far = np.where(unit == 1, 7.5, np.where(unit == 0, -np.inf, unit))
  if not flat:
    unit, far = (np.stack([each] * axes, 1) for each in (unit, far))
  with mock.patch.object(mechanisms, 'compiled', _unseen):
    seen = [
        np.asarray(getattr(released, 'coefficients', released))
        for released in (mechanism.estimate(KEY, each) for each in (unit, far))
    ]
    np.testing.assert_array_equal(*seen)
    assert np.size(seen[0]) == np.size(mechanism.statistic(unit))
    with pytest.raises(ValueError, match='NaN'):
      mechanism.estimate(KEY, np.where(unit == unit.flat[9], np.nan, unit))
    if mechanism.knows_total:
      with pytest.raises(ValueError, match='50'):
        mechanism.estimate(KEY, unit[:49])
    else:
      mechanism.estimate(KEY, unit[:49])


def test_samples_are_of_the_proper_estimate():
  heights = np.array([0.0, 3.0, 0.0, 1.0])
  samples = estimate.DensityEstimate(kind='histogram', coefficients=heights,
                                     lower=-2.0, upper=6.0).sample(KEY, 4000)
  counts = np.histogram(samples, np.linspace(-2, 6, 5))[0]
  assert counts[0] == counts[2] == 0
  # Five standard deviations have false alarms below 1e-6.
  assert abs(counts[1] - 3000) < 5 * 750**0.5


class _ChosenError(Exception):
  """Ends a draw at its first choice."""


@pytest.mark.sound
@pytest.mark.parametrize('adjacency', Adjacency)
def test_scores_of_pairs_move_by_what_choices_are_made_for(adjacency):
  """Scores move by the stated sensitivity, for any noisy single tables."""
  mechanism = marginals.TreeMarginals(num_attributes=3, num_bins=2, epsilon=0.4,
                                      num_records=40, adjacency=adjacency)
  rng = np.random.default_rng(0)
  # Attributes are almost independent, so a record moves scores far from it.
  unit = rng.uniform(size=(40, 3))
  data = [unit] + [np.concatenate([[record], unit[1:]]) for record in
                   itertools.product((0.1, 0.9), repeat=3)]
  if adjacency is ADD:
    data.append(unit[1:])
  fake_counts, scores = rng.uniform(1, 9, (3, 2)), []

  def noisy(key, counts, *numbers):
    del key, numbers
    return jnp.asarray(
        fake_counts[:len(counts)]) if counts.ndim == 2 else counts

  def chosen(key, values, rate):
    del key, rate
    scores.append(np.asarray(values))
    raise _ChosenError
  with jax.enable_x64(True), mock.patch.object(
      noisy_counts, 'noisy', noisy), mock.patch.object(
          sparse, 'chosen', chosen), mock.patch.object(
              jax.lax, 'scan', coupling._in_turn):
    for each in data:
      with pytest.raises(_ChosenError):
        mechanism.draw(KEY, jnp.asarray(mechanism.statistic(each)),
                       mechanism.parameters)
  first = np.array(scores)
  first = first[:, np.isfinite(first[0])]
  changes = np.abs(first[:, None] - first)[-1 if adjacency is ADD else 0]
  assert changes.max() == pytest.approx(mechanism.selection.sensitivity)


def _of_curve(kind, num_bins):
  return adaptive.AdaptiveHistogram(num_records=60, num_bins=num_bins, basis=kind,
                                    epsilon=0.7, adjacency=REPLACE)


@pytest.mark.every(3)
@pytest.mark.parametrize('kind', ['spline', 'cosine', 'fourier', 'sums'])
def test_factors_are_those_of_noise_and_sampling(kind):
  """Coefficients are scaled by `shrinkage.factors` of V g / n^2 + 1/n."""
  mechanism = _of_curve(kind, 15) if kind != 'sums' else (
      weighted.AdaptiveProjection(
          num_records=60, rho=0.7, adjacency=REPLACE,
          coefficient_weights=(1.0, 0.5, 0.25, 0.2)))
  statistic = mechanism.statistic(np.random.default_rng(1).beta(1, 5, 60))
  with jax.enable_x64(True), mock.patch.object(
      noisy_counts, 'noisy', lambda key, counts, *numbers: counts):
    shrunk = np.asarray(
        mechanism.draw(KEY, jnp.asarray(statistic), mechanism.parameters))
  if kind == 'sums':
    cosines, sines = np.split(statistic[1:] / 60 / np.sqrt(2), 2)
    theta, noise = cosines - 1j * sines, mechanism.scales[1:]**2
  else:
    theta = statistic / 60 @ mechanism.parameters.analysis
    noise = mechanism.noise_variance * mechanism.parameters.gains
  variances = noise / 60**2 + 1 / 60
  factors = shrinkage.factors(theta, variances)
  assert 0 < np.min(factors) < np.max(factors) < 1 or 0 in factors
  wanted = theta * factors
  if kind == 'spline':
    wanted = 1 + wanted @ mechanism.parameters.synthesis
  np.testing.assert_allclose(shrunk, wanted, atol=1e-9)


def test_tables_agree_on_the_attributes_that_they_share():
  """Joint tables sum to shared marginals and to 1, under any noise."""
  mechanism = marginals.TreeMarginals(
      num_attributes=3, num_bins=3, epsilon=0.4, num_records=40,
      adjacency=REPLACE)
  rng = np.random.default_rng(0)

  def noisy(key, counts, *numbers):
    del key, numbers
    return counts + rng.normal(0, 3, counts.shape)
  places = iter((1, 5))

  def drawn(key, data):
    tables = mechanism.draw(key, data, mechanism.parameters)
    return tables, tables.cells()
  with jax.enable_x64(True), mock.patch.object(
      noisy_counts, 'noisy', noisy), mock.patch.object(
          sparse, 'chosen', lambda *_: jnp.int32(next(places))), (
              mock.patch.object(jax.lax, 'scan', coupling._in_turn)):
    tables, cells = jax.tree.map(np.asarray, jax.jit(drawn)(
        KEY, mechanism.statistic(rng.uniform(size=(40, 3)))))
  assert tables.edges.tolist() == [[0, 1], [1, 2]]
  for (parent, child), joint in zip(tables.edges, tables.joints, strict=True):
    for axis, attribute in ((1, parent), (0, child)):
      np.testing.assert_allclose(joint.sum(axis), tables.marginals[attribute],
                                 atol=1e-12)
  assert np.mean(cells) == pytest.approx(1) and (cells >= 0).all()


def test_noise_for_given_weights_is_never_worse_than_in_proportion():
  def error(weights, noise):
    used = np.flatnonzero(weights)
    return np.sum(np.square(weights)[used] / np.array(noise)[used]) * (
        sensitivities.weighted_circle(noise, adjacency=REPLACE))
  gains = []
  for weights in ((1.0, 0.5), (1.0, 0.1), (0.3, 0.0, 0.9)):
    best = projections.least_noise_weights(weights)
    gains.append(error(weights, best) / error(weights, weights))
  assert max(gains) <= 1 and min(gains) < 0.95
