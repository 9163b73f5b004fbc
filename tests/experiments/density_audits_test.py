"""These tests audit densities: distributions, sound targets, planted faults."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.audit import auditor
from dpjax.audit import claims
from dpjax.audit import exact
from dpjax.audit.suite import density
from dpjax.audit.suite import ecdf
from dpjax.audit.suite import loading
from dpjax.audit.suite import targets
from dpjax.audit.target import Target
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import histograms
from dpjax.stats.density_methods import projections
from dpjax.stats.density_methods import sparse
from dpjax.stats.density_methods import stages

_AR, _RO = Adjacency


def _change(target: Target) -> float:
  return exact.largest_change(target.query, target.pairs).amount


@pytest.mark.parametrize('name', targets.DENSITIES)
def test_shifts_are_the_whole_budget(name):
  """The worst neighbours on a grid use the whole budget and no more."""
  assert -2e-4 < _change(loading.load(name)) <= 0
  assert targets.expected(name) == auditor.CONSISTENT


@pytest.mark.slow
def test_the_distribution_is_that_of_releases():
  """Frequencies in 20000 releases match the stated probabilities.

  The commonest outcomes are compared within five deviations each.
  """
  mechanism = histograms.Histogram(num_records=4, num_bins=2, epsilon=2.0,
                                   fix_mass=False, adjacency=_RO)
  target, runs = density.counts(mechanism), 20_000
  data = target.pairs[0].data
  outputs, counts = np.unique(target.draw(jax.random.key(1), data, runs),
                              axis=0, return_counts=True)
  often = counts > 60
  chances = np.exp(target.log_density(data, outputs[often]))
  error = np.sqrt(chances * (1 - chances) / runs)
  assert np.sum(often) > 20
  assert np.all(np.abs(counts[often] / runs - chances) < 5 * error)


@pytest.mark.slow
@pytest.mark.parametrize('name', [
    'density_histogram_laplace_replace', 'density_projection_gaussian'])
def test_honest_ones_are_not_refuted(name):
  report = auditor.audit(jax.random.key(0), loading.load(name), num_runs=1024)
  assert report.verdict == auditor.CONSISTENT
  assert any(check.name == 'sensitivity' for check in report.checks)


@pytest.mark.parametrize('name', [
    name for name in targets.DENSITIES if name + '_replace'
    in targets.DENSITIES])
def test_noise_for_additions_is_not_enough_for_replacements(name):
  """Noise for additions is too little for
  replacements, which the shift shows."""
  target = loading.load(name)
  replaced = loading.load(name + '_replace')
  assert _change(dataclasses.replace(target, pairs=replaced.pairs)) > .15


def test_two_stages_with_the_whole_budget_each_are_refuted():
  class Twice(stages.TwoResolutions):
    epsilons = (1.0, 1.0)

  target = density.stages(
      Twice(num_records=6, epsilon=1.0, adjacency=_RO), claim=claims.Claim(
          epsilon=1.0, delta=0.0, adjacency=_RO))
  assert _change(target) == pytest.approx(1, abs=1e-3)


def test_rounds_that_are_counted_once_are_refuted():
  """Rounds whose cost is counted once are refuted by their event.

  A wave that is too large is refuted by its shift.
  """
  mechanism = sparse.SparseFourier(num_records=6, num_rounds=4,
                                   num_frequencies=3,
                                   rho=.5, adjacency=_RO)
  of = lambda target: auditor._claim_check(target.claim).failed
  once = claims.Claim(epsilon=2.0, delta=1e-5, adjacency=_RO,
                      event=mechanism.event)
  assert of(density.waves(mechanism, claim=once))
  honest = density.waves(mechanism)
  assert not of(honest)
  pairs = tuple(pair._replace(data=np.sqrt(2) * pair.data,
                              neighbour=np.sqrt(2) * pair.neighbour)
                for pair in honest.pairs)
  assert _change(dataclasses.replace(honest, pairs=pairs)) > .8


def test_laplace_noise_for_the_shift_in_l2_is_refuted():
  class Short(projections.Projection):
    sensitivity = projections.Projection(
        num_records=6, num_functions=5, rho=1.0, adjacency=_RO).sensitivity

  assert _change(density.sums(Short(
      num_records=6, num_functions=5, epsilon=1.0, adjacency=_RO))) > .5


@pytest.mark.every(2)
def test_a_total_without_noise_is_refuted():
  """Heights over the true n without noise
  reveal a private n and are refuted."""
  mechanism = histograms.Histogram(num_records=6, num_bins=2, epsilon=1.0,
                                   adjacency=_AR)

  def release(key, data):
    return mechanism.release(key, data) * jnp.sum(data)
  honest = density.counts(mechanism)
  target = dataclasses.replace(honest, release=release, pairs=ecdf.neighbours(
      2, _AR)[:1])
  report = auditor.audit(jax.random.key(0), target, num_runs=1024)
  assert report.verdict == auditor.VIOLATED
  assert [check.name for check in report.failed] == ['distinguishing event']
