"""These tests audit curves and streams: distributions and planted faults."""

import dataclasses

import jax
import numpy as np
import pytest

from dpjax.audit import auditor
from dpjax.audit import claims
from dpjax.audit import exact
from dpjax.audit.suite import ecdf
from dpjax.audit.suite import loading
from dpjax.audit.suite import targets
from dpjax.audit.target import Target
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.ecdf_methods import dyadic
from dpjax.stats.ecdf_methods import streams

_AR, _RO = Adjacency
_WITH_DENSITY = ('ecdf_dyadic', 'ecdf_dyadic_replace', 'stream_dyadic')


def _worst(target: Target) -> float:
  """Returns the largest privacy loss of the pairs less the claimed epsilon."""
  rng, ratios = np.random.default_rng(0), []
  for pair in target.pairs:
    first, second = np.cumsum(pair.data), np.cumsum(pair.neighbour)
    # The loss is largest far out in the direction of the change.
    far = rng.integers(-4, 5, (40, first.size)) + np.where(
        np.arange(40) % 2, 12, -12)[:, None] * (first - second)
    outputs = first + far.astype(float)
    if target.claim.adjacency is _RO:
      outputs[:, -1] = first[-1]
    ratios.append(exact.density_ratio(target, pair, outputs,
                                      target.claim.epsilon).amount)
  return max(ratios)


def _change(target: Target) -> float:
  return exact.largest_change(target.query, target.pairs).amount


@pytest.mark.slow
@pytest.mark.parametrize('name', _WITH_DENSITY)
def test_distributions_are_those_of_releases(name):
  """Frequencies in 20000 releases match the stated probabilities.

  The commonest outcomes are compared within five deviations each.
  """
  target, runs = loading.load(name), 20_000
  data = target.pairs[1].data
  outputs, counts = np.unique(target.draw(jax.random.key(1), data, runs),
                              axis=0, return_counts=True)
  often = counts > 60
  chances = np.exp(target.log_density(data, outputs[often]))
  error = np.sqrt(chances * (1 - chances) / runs)
  assert np.sum(often) > 8
  assert np.all(np.abs(counts[often] / runs - chances) < 5 * error)


@pytest.mark.parametrize('name', _WITH_DENSITY)
def test_worst_losses_come_near_the_claim(name):
  assert -.02 < _worst(loading.load(name)) <= 0


@pytest.mark.parametrize('name', sorted(
    name for name in targets.CURVES if loading.load(name).query is not None))
def test_shifts_are_the_whole_budget(name):
  """The worst neighbours use the whole budget and no more."""
  assert -1e-4 < _change(loading.load(name)) <= 0


@pytest.mark.slow
@pytest.mark.every(3)
@pytest.mark.parametrize('name', ['ecdf_dyadic', 'stream_signed'])
def test_honest_ones_are_not_refuted(name):
  report = auditor.audit(jax.random.key(0), loading.load(name), num_runs=1024)
  assert report.verdict == targets.expected(name) == auditor.CONSISTENT


def _replaced(target: Target, size: int) -> Target:
  """Returns the target with replaced records in place of added ones."""
  return dataclasses.replace(
      target, pairs=ecdf.neighbours(size, _RO),
      claim=dataclasses.replace(target.claim, adjacency=_RO, event=None))


@pytest.mark.parametrize('budget', [dict(epsilon=1.0), dict(rho=.5)], ids=str)
def test_noise_for_additions_is_not_enough_for_replacements(budget):
  size = 8
  target = _replaced(ecdf.curve(dyadic.DyadicEcdf(
      num_thresholds=size, adjacency=_AR, monotone=False, **budget)), size)
  assert (_worst(target) if target.query is None else _change(target)) > .15


def test_a_stream_that_draws_anew_when_it_resumes_is_refuted():
  """A stream that draws new noise when it resumes is refuted.

  It releases the same sums twice.
  """
  honest = ecdf.stream(streams.PrefixStream(
      horizon=4, kind='dyadic', epsilon=1.0, item_bits=0))
  twice = dataclasses.replace(
      honest, log_density=lambda data, outputs: 2 * honest.log_density(data, outputs))
  assert _worst(honest) <= 0 < .9 < _worst(twice)


def test_a_stream_of_items_above_one_is_refuted():
  """A stream that does not clip items above one is refuted (correction C26)."""
  target = ecdf.stream(streams.PrefixStream(horizon=4, kind='dyadic', rho=.5))
  pairs = tuple(pair._replace(data=2 * pair.data - pair.neighbour)
                for pair in target.pairs)
  assert _change(target) <= 0 < .9 < _change(
      dataclasses.replace(target, pairs=pairs))


@pytest.mark.slow
def test_scales_of_half_the_levels_are_refuted():
  """Noise for half the number of nodes is refuted by its density."""
  mechanism = dyadic.DyadicEcdf(num_thresholds=4, adjacency=_AR, epsilon=2.0,
                                monotone=False)
  target = ecdf.curve(mechanism, claim=claims.Claim(epsilon=1.0, delta=0.0,
                                                    adjacency=_AR))
  report = auditor.audit(jax.random.key(0), target, num_runs=512)
  assert report.verdict == auditor.VIOLATED
  assert {check.name for check in report.failed} >= {'density ratio'}
