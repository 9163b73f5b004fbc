"""These tests audit quantile mechanisms: honest ones and planted faults."""

import math

import jax
import numpy as np
import pytest

from dpjax.audit import auditor
from dpjax.audit import exact
from dpjax.audit import wrapping
from dpjax.audit.suite import loading
from dpjax.audit.suite import quantiles
from dpjax.audit.suite import targets
from dpjax.audit.target import Pair
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.quantile_methods import independent
from dpjax.stats.quantile_methods import joint
from dpjax.stats.quantile_methods import recursive

_AR, _RO = Adjacency
_DATA = np.array([.1, .45, .5, .9])
_UNIT = dict(lower=0.0, upper=1.0, epsilon=2.0)


@pytest.mark.slow
@pytest.mark.parametrize('cost', independent.COSTS)
def test_densities_of_one_order_integrate_to_one(cost):
  mechanism = independent.IndependentQuantiles(probs=(.3,), cost=cost,
                                               adjacency=_AR, **_UNIT)
  points = (np.arange(40_000) + .5) / 40_000
  density = np.exp(quantiles.target(mechanism).log_density(_DATA,
                                                           points[:, None]))
  assert density.mean() == pytest.approx(1, abs=1e-4)
  assert points[density.argmax()] == pytest.approx(.275, abs=.18)


@pytest.mark.slow
@pytest.mark.parametrize('kind, adjacency', [
    (recursive.RecursiveQuantiles, _AR), (joint.JointQuantiles, _AR),
    (joint.InverseQuantiles, _RO)])
def test_densities_are_those_of_releases(kind, adjacency):
  """The density is that of releases.

  The mean of 1 / f over draws of f is the volume on which f lives.
  """
  mechanism = kind(probs=(.3, .6), adjacency=adjacency, **_UNIT)
  target = quantiles.target(mechanism)
  outputs = target.draw(jax.random.key(1), _DATA, 4000)
  inverse = np.exp(-target.log_density(_DATA, outputs))
  error = inverse.std() / math.sqrt(4000)
  assert abs(inverse.mean() - .5) < 5 * error < .1


@pytest.mark.slow
def test_a_quantile_is_not_refuted():
  name = 'quantile'
  target = loading.load(name)
  assert target.traced and target.double_precision
  report = auditor.audit(jax.random.key(0), target, num_runs=1024)
  assert report.verdict == targets.expected(name) == auditor.CONSISTENT
  assert sum(check.name == 'density ratio' for check in report.checks) == 12


@pytest.mark.parametrize('name', [
    'joint_quantiles_printed', 'quantile_without_half',
    'recursive_quantiles_unhalved'])
def test_faults_are_refuted_by_densities(name):
  target = loading.load(name)
  rng = np.random.default_rng(0)
  outputs = np.sort(rng.random((2000, len(target.release.__self__.probs))))
  worst = max(exact.density_ratio(target, pair, _everywhere(
      rng, pair, outputs), 1.0).amount for pair in target.pairs)
  assert worst > .1
  assert targets.expected(name) == auditor.VIOLATED


@pytest.mark.slow
@pytest.mark.parametrize('name', ['quantile_rounded', 'quantile_replace',
                                  'quantile', 'quantile_interpolated',
                                  'quantiles_recursive', 'quantiles_joint',
                                  'quantiles_recursive_replace',
                                  'quantiles_joint_replace',
                                  'quantiles_inverse_replace'])
def test_neighbours_come_near_the_claim(name):
  """Neighbours come near the claim and never exceed it."""
  target, rng = loading.load(name), np.random.default_rng(0)
  outputs = np.sort(rng.random((2000, len(target.release.__self__.probs))))
  worst = max(exact.density_ratio(target, pair, _everywhere(
      rng, pair, outputs), 1.0).amount for pair in target.pairs)
  assert -.16 < worst <= 0


def _everywhere(rng, pair: Pair, outputs: np.ndarray) -> np.ndarray:
  """Returns points spread evenly over intervals of the first data set."""
  edges = np.concatenate([[0.0], pair.data, [1.0]])
  places = rng.integers(len(edges) - 1, size=outputs.shape)
  low, high = edges[places], edges[places + 1]
  return np.sort(low + (high - low) * outputs, -1)


@pytest.mark.slow
def test_a_quantile_says_of_itself_what_an_audit_needs():
  mechanism = independent.IndependentQuantiles(probs=(.5,), adjacency=_RO,
                                               **_UNIT)
  target = wrapping.of_mechanism(mechanism, delta=0.0)
  assert target.traced
  # Pairs include records that are not numbers.
  assert any(np.isnan(np.append(*pair[:2])).any() for pair in target.pairs)
  outputs = target.draw(jax.random.key(0), target.pairs[-1].data, 50)
  assert outputs.dtype == np.float64 and np.isfinite(outputs).all()
