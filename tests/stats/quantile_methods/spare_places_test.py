"""Tests that spare places hold no records, and outer mechanisms' costs."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.privacy import keys
from dpjax.stats.ecdf_methods import streams
from dpjax.stats.quantile_methods import curves
from dpjax.stats.quantile_methods import independent
from dpjax.stats.quantile_methods import knots
from dpjax.stats.quantile_methods import records
from dpjax.stats.quantile_methods import smoothing
from dpjax.stats.quantile_methods import unbounded
from experiments.methods.statistics import grid_quantiles as grid
from experiments.methods.statistics import sliced_quantiles as slicing
from experiments.methods.statistics import window_quantiles as window
from tests.stats.quantile_methods import pairs

DATA = np.array([0.0, 0.1, 0.1, 0.35, 0.6, 0.95, 1.0])
LOWER, UPPER = -0.5, 1.5


SCANS = [unbounded.UnboundedQuantiles(
    probs=(0.3,), epsilon=2.0, adjacency=pairs.ADD, bound=0.5, base=1.1,
    num_candidates=60, downwards=downwards) for downwards in (False, True)]
NOISE = np.linspace(-3, 3, 40)[::-1]


def _seen(data):
  """Returns what mechanisms see of records, by name."""
  inner, prob, rate = np.linspace(-0.45, 1.45, 77), 0.3, jnp.float64(2)
  ends, *ranks = window.intervals(data, jnp.float64(0.2))
  place = jnp.searchsorted(ends, inner) - 1
  near = records.of(data.ordered[:DATA.size], SCANS[0].lower, SCANS[0].upper,
                    data.ordered.size)
  far = records.of(data.ordered[:DATA.size], SCANS[1].lower, SCANS[1].upper,
                   data.ordered.size)
  separated = records.separated(data, NOISE[:data.ordered.size],
                                jnp.float64(0.25))
  return {
      'window': [rank[place] for rank in ranks],
      'grid': grid.log_weights(data, prob, rate, jnp.append(inner, UPPER)),
      'curve': curves.ranks(data, np.linspace(0, 1, 6)),
      'slices': slicing.slices(data, jnp.array([-1.0, 2, 6, 9]),
                               jnp.float64(2), 5),
      'empirical': records.empirical(data, np.array([0.01, 0.5, 0.99])),
      'masses': independent.log_masses(data, prob, rate, 'interpolated')[:8],
      'up': jnp.sort(unbounded.entries(near, SCANS[0].parameters, False)),
      'down': jnp.sort(unbounded.entries(far, SCANS[1].parameters, True)),
      'noise': separated.ordered, 'bounds': (separated.lower, separated.upper)}


@pytest.mark.every(2)
@functools.cache
def seen():
  """Returns what mechanisms see with 33 spare places, and without."""
  with jax.enable_x64(True):
    return [jax.tree.map(np.asarray, jax.jit(_seen)(records.of(
        DATA, LOWER, UPPER, length))) for length in (40, DATA.size)]


def test_costs_and_ranks_are_of_records_alone():
  spare, none = seen()
  for name in ('window', 'grid', 'curve', 'slices', 'empirical', 'masses'):
    np.testing.assert_array_equal(spare[name], none[name], err_msg=name)


def test_noise_moves_records_alone():
  spare, none = (part['noise'] for part in seen())
  np.testing.assert_array_equal(spare[:7], none)
  np.testing.assert_array_equal(
      none, np.sort(np.clip(DATA + NOISE[:7], -0.75, 1.75)))
  assert np.all(spare[7:] == 1.75)
  assert seen()[0]['bounds'] == (-0.75, 1.75)


def test_scans_meet_records_alone():
  """Each candidate of a scan counts the records before it,
  and no spare places."""
  bounds = 1.1**np.arange(60) - 1
  for name, away in (('up', DATA - 0.5), ('down', 0.5 - DATA)):
    spare, none = (part[name] for part in seen())
    np.testing.assert_array_equal(spare[:7], none)
    assert np.all(spare[7:] == 59)
    # Candidates precede the records at the same place.
    np.testing.assert_array_equal(
        np.sum(none[:, None] <= np.arange(59), 0),
        np.sum(np.maximum(away, 0)[:, None] < bounds[:59], 0))


@pytest.mark.every(2)
def test_slices_are_answered_from_twice_their_half_apart_on():
  """Slices answer if ranks are twice their half apart, and not if nearer."""
  mechanism = slicing.SlicedQuantiles(
      probs=(0.25, 0.75), epsilon=8.0, num_examples=100, delta=1e-12,
      resolution=1e-4, failure_prob=0.5, rank_share=0.5, lower=0.0, upper=1.0,
      adjacency=pairs.REPLACE)
  data = records.padded((np.arange(100) + 0.5) / 100, 0.0, 1.0)
  draw = jax.jit(jax.vmap(mechanism.draw, (0, None, None)))
  off = []
  for less in (0, 1, mechanism.half // 2):
    ranks = np.array([30.0, 30 + 2 * mechanism.half - less])
    parameters = mechanism.parameters._replace(
        ranks=ranks, scale=np.float64(1e-9), rate=np.float64(40.0))
    with jax.enable_x64(True):
      answers = np.asarray(draw(jax.random.split(jax.random.key(0), 50), data,
                                parameters))
    off.append(np.abs(answers - ranks / 100).max(0))
  assert np.all(off[0] < 0.02) and np.all(np.array(off[1:]) > 0.2)


def test_overlaps_are_as_likely_as_the_best_chernoff_bound_says():
  """The overlap's chance is the best Chernoff bound over many slopes."""
  slopes = np.linspace(0, 1, 20_002)[1:-1]
  for num_orders, step, half, scale in ((2, 90.0, 20, 4.0), (7, 150.0, 30, 9.0),
                                        (12, 400.0, 11, 30.0)):
    ranks = step * np.arange(1, num_orders + 1)
    sums, _ = slicing.tree(num_orders)
    wanted = 0.0
    for one, other in zip(sums, sums[1:]):
      terms = int(np.sum(one != other))
      # They are whole numbers at most 2 h apart, each rounded by half a rank.
      gap = (step - 2 * half - 1) / scale
      wanted += np.exp(np.min(-slopes * gap - terms * np.log1p(-slopes**2)))
    assert slicing.overlap_prob(ranks, half=half, scale=scale
                                ) == pytest.approx(wanted, rel=1e-4)


def test_outer_mechanisms_cost_what_inner_ones_do():
  for budget in (dict(epsilon=0.7), dict(epsilon=None, rho=0.2)):
    inner = independent.IndependentQuantiles(
        probs=(0.2, 0.5, 0.8), lower=0.0, upper=1.0, adjacency=pairs.ADD,
        **budget)
    assert smoothing.Smoothed(inner=inner).event == inner.event
    make = functools.partial(
        lambda mechanism, **kwargs: dataclasses.replace(
            mechanism, probs=kwargs['probs']), inner)
    outer = knots.KnotQuantiles(
        make=make, knots=2, probs=inner.probs, epsilon=0.7, lower=0.0,
        upper=1.0, adjacency=pairs.ADD)
    assert outer.event == outer.inner.event == make(probs=(0.2, 0.8)).event


@pytest.mark.every(2)
def test_streams_are_as_secret_as_their_keys_and_on_public_grids():
  mechanism = streams.PrefixStream(horizon=6, rho=0.5)
  secret = keys.from_words(np.full((1, 8), 7, np.uint32))[0]
  with jax.enable_x64(True):
    sizes = [jax.eval_shape(mechanism.init, key).words.shape
             for key in (jax.random.key(0), secret)]
  assert sizes == [(2,), (8,)]
  # The items are tenths, whose sums are no multiples of the spacing.
  sums = np.asarray(mechanism.release(jax.random.key(1), np.full(6, 0.1)))
  spacing = 2.0**(np.floor(np.log2(mechanism.scale)) - 8)
  np.testing.assert_array_equal(sums % spacing, 0)
  assert np.unique(sums).size == 6
