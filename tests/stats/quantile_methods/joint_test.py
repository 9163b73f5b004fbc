"""Tests the joint mechanisms by enumeration, privacy by brute force."""

import collections
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import mechanisms
from dpjax.stats.quantile_methods import choice
from dpjax.stats.quantile_methods import columns
from dpjax.stats.quantile_methods import joint
from dpjax.stats.quantile_methods import paths
from dpjax.stats.quantile_methods import rates
from dpjax.stats.quantile_methods import records
from dpjax.stats.quantile_methods import wide
from tests.stats.quantile_methods import brute

_ADD, _REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
_BINS = {'joint': joint.joint_bins, 'inverse': joint.inverse_bins}


@pytest.fixture(autouse=True)
def _double():
  with jax.enable_x64(True):
    yield


def _counts(blocks, size):
  """Returns the bins' record counts [..., m + 1] for
  points in these intervals."""
  ends = np.concatenate([np.zeros_like(blocks[..., :1]), blocks,
                         np.full_like(blocks[..., :1], size)], -1)
  return np.diff(ends)


def _cost(kind, probs, rate, *, printed=False):
  """Returns the cost times its rate, written apart from the package."""
  probs = np.asarray(probs)

  def cost(blocks, size):
    counts = _counts(blocks, size)
    if kind == 'joint':
      wanted = size * np.diff(probs, prepend=0.0, append=1.0)
      return rate * np.abs(counts - wanted).sum(-1)
    ranks = np.ceil(size * probs - 1e-9)
    excess = counts - np.diff(ranks, prepend=0, append=size)
    reached = (excess[..., :-1] >= 0).sum(-1)
    if printed:
      return rate * np.abs(excess).sum(-1) / 2 - reached
    return rate * (np.abs(excess).sum(-1) / 2 + reached)

  return cost


@jax.jit
def _log_total(data, bins):
  return paths.log_total(data, bins)


@jax.jit
def _log_probs(data, bins, blocks):
  """Returns log-probabilities of blocks from conditional distributions."""
  table = paths.table(data, bins)
  log_widths = records.log_widths(data)
  size = blocks.shape[1]

  def one(block):
    used, last, total = jnp.int32(size), data.count, jnp.float64(0)
    for _ in range(size):
      going = used > 0
      index = jnp.maximum(used, 1)
      place = block[index - 1]
      shared = jnp.sum(block == place, dtype=jnp.int32)
      logs = paths._log_paths(table, bins, index, last, index == size)
      part = (columns.at(logs, place) - choice.log_sums(logs.reshape(1, -1))[0])
      many = paths._log_shares(table, bins, log_widths[place], index, place)
      part += many[shared - 1] - choice.log_sums(many[None])[0]
      total = jnp.where(going, total + part, total)
      used, last = used - shared, jnp.where(going, place, last)
    return total

  return jax.vmap(one)(blocks)


@pytest.mark.every(5)
@pytest.mark.parametrize('kind, adjacency, total, some', [
    ('joint', _REPLACE, -1.388979160, {
        (0, 0): .010856, (0, 1): .088528, (0, 2): .118038, (1, 2): .481290,
        (3, 3): .002714}),
    ('joint', _ADD, -1.624607279, {(1, 2): .609171}),
    ('inverse', _REPLACE, -2.821097498, {
        (0, 0): .045460, (1, 2): .272759, (2, 3): .033447, (3, 3): .004181})])
def test_goldens(kind, adjacency, total, some):
  # Items QF-06 and QF-10: records .2, .5, .9, levels 1/3 and 2/3, epsilon 2.
  kinds = dict(joint=joint.JointQuantiles, inverse=joint.InverseQuantiles)
  mechanism = kinds[kind](probs=(1 / 3, 2 / 3), epsilon=2.0, lower=0.0,
                          upper=1.0, adjacency=adjacency)
  data = records.padded(np.array([.2, .5, .9]), 0, 1)
  bins = _BINS[kind](*map(jnp.asarray, (
      mechanism.parameters.probs, jnp.int32(3), mechanism.parameters.rate)))
  assert abs(float(_log_total(data, bins)) - total) < 1e-8
  blocks = jnp.array(list(some), jnp.int32)
  np.testing.assert_allclose(np.exp(_log_probs(data, bins, blocks)),
                             list(some.values()), atol=1e-6)


@pytest.mark.every(4)
@pytest.mark.parametrize('kind', _BINS)
@pytest.mark.parametrize('ties', [False, True])
def test_laws_are_those_of_enumeration(kind, ties):
  rng = np.random.default_rng(5 + ties)
  for size, num_orders in ((7, 3), (4, 3), (3, 3)):
    probs = (np.arange(num_orders) + rng.random()) / num_orders
    values = np.sort(rng.random(size))
    if ties:
      values = np.sort(np.round(values, 1))
      values[:2] = values[0]
    rate = rng.exponential()
    expected, total = brute.block_log_probs(values, _cost(kind, probs, rate),
                                            num_orders)
    data = records.padded(values, 0, 1)
    bins = _BINS[kind](*map(jnp.asarray, (probs, jnp.int32(size), rate)))
    assert abs(float(_log_total(data, bins)) - total) < 1e-12
    blocks = brute.tuples(size, num_orders)
    drawable = np.isfinite(expected)
    logs = _log_probs(data, bins, jnp.asarray(blocks, jnp.int32))
    np.testing.assert_allclose(np.asarray(logs)[drawable],
                               expected[drawable], atol=1e-11)
    assert not np.any(np.isfinite(logs) & ~drawable)


_DRAWN = jax.jit(jax.vmap(paths.intervals, (0, None, None)))


@pytest.mark.every(4)
@pytest.mark.parametrize('kind', _BINS)
def test_draws_have_the_law(kind):
  values = np.array([.1, .25, .25, .4, .41, .9])
  probs, rate = np.array([.3, .5, .8]), .4
  data = jax.tree.map(jnp.asarray, records.padded(values, 0, 1))
  bins = _BINS[kind](*map(jnp.asarray, (probs, jnp.int32(6), rate)))
  keys = jax.random.split(jax.random.key(3), 40_000)
  drawn = np.asarray(_DRAWN(keys, data, bins))
  blocks = brute.tuples(6, 3)
  probs_at = np.exp(
      brute.block_log_probs(values, _cost(kind, probs, rate), 3)[0])
  seen = np.array([(drawn == block).all(-1).sum() for block in blocks])
  assert seen.sum() == 40_000 and not seen[probs_at == 0].any()
  often = probs_at * 40_000 >= 5
  assert stats.chisquare(
      np.append(seen[often], seen[~often].sum()),
      np.append(probs_at[often], probs_at[~often].sum()) * 40_000).pvalue > 1e-4


def _worst(kind, adjacency, probs, rate, *, count=400, **kwargs):
  rng = np.random.default_rng(7)
  cost = _cost(kind, probs, rate, **kwargs)
  return max(brute.worst_loss(
      brute.pairs(rng, count, size, spread, adjacency), cost, len(probs))
             for size in (3, 6) for spread in (.5, 3.0, 8.0))


@pytest.mark.sound
@pytest.mark.parametrize('probs', [(.5,), (.25, .5), (.25, .5, .75)])
def test_epsilon_is_kept_and_attained(probs):
  for adjacency in (_ADD, _REPLACE):
    rate = rates.joint(probs, epsilon=1.0, adjacency=adjacency)
    assert .95 <= _worst('joint', adjacency, probs, rate) <= 1 + 1e-9
  rate = rates.inverse_sensitivity(epsilon=1.0, adjacency=_REPLACE)
  assert .95 <= _worst('inverse', _REPLACE, probs, rate) <= 1 + 1e-9


def test_the_printed_claims_are_not_private():
  # QE-02 claims sensitivity 1/2 for adding, so a rate of epsilon / 2.
  assert _worst('joint', _ADD, (1 / 3, 2 / 3), .5) > 1.3
  assert _worst('joint', _ADD, (.25, .5, .75), .5) > 1.45
  # QE-03 is the printed phi of the sampler.
  assert _worst('inverse', _REPLACE, (.5,), .5, printed=True) > 1.9
  assert _worst('inverse', _REPLACE, (1 / 3, 2 / 3), .5, printed=True) > 2.5


def test_inverse_sensitivity_counts_replaced_records():
  # QT-05 compares with a search over all data sets on these points.
  rng = np.random.default_rng(11)
  for _ in range(12):
    size, num_orders = int(rng.integers(3, 5)), int(rng.integers(1, 3))
    values = np.sort(rng.integers(1, 6, size)) / 6 + 1 / 60
    points = np.sort(rng.choice(np.arange(1, 7), num_orders, False)) / 6
    probs = (np.arange(num_orders) + .5) / num_orders
    ranks = np.ceil(size * probs - 1e-9).astype(int) - 1
    domain = np.unique(np.concatenate([values, points, [0.0, 1.0]]))
    fewest = min(
        size - _common(values, other)
        for other in _multisets(domain, size)
        if np.array_equal(np.array(other)[ranks], points))
    blocks = np.searchsorted(values, points)
    assert _cost('inverse', probs, 1.0)(blocks, size) == fewest


def _multisets(domain, size):
  return itertools.combinations_with_replacement(domain, size)


def _common(one, other):
  return (collections.Counter(one) & collections.Counter(other)).total()


@pytest.mark.slow
def test_running_sums_are_those_of_the_definition():
  # QT-07 has log-weights over a range of 10^5, and widths down to 1e-300.
  rng = np.random.default_rng(13)
  size = 300
  layout = columns.shape(size)
  logs = rng.normal(size=size) * 30 - 300 * np.abs(np.arange(size) - 150)
  logs[rng.random(size) < .1] = -np.inf
  before = jax.tree.map(lambda x: columns.laid_out(x, layout),
                        wide.exp(jnp.asarray(logs)))
  for wanted in (0.4, 1.0, 6.5, 70.0, 299.0, 500.0):
    bins = paths.Bins(*map(jnp.asarray, (
        3.0, np.array([-3 * wanted]), np.array([3 * wanted]),
        np.array([math.floor(wanted)], np.int32))))
    running = wide.log(_PRODUCT(before, bins))
    running = np.asarray(running).T.reshape(-1)[:size]
    gap = np.subtract.outer(np.arange(size), np.arange(size))
    terms = np.where(gap > 0, logs[None] - 3 * np.abs(gap - wanted), -np.inf)
    expected = np.logaddexp.reduce(terms, -1)
    np.testing.assert_allclose(running[np.isfinite(expected)],
                               expected[np.isfinite(expected)], rtol=1e-13,
                               atol=1e-11)
    assert not np.isfinite(running[~np.isfinite(expected)]).any()


_PRODUCT = jax.jit(lambda before, bins: paths._product(before, bins, 0))


def _mechanism(num_orders=8, adjacency=_REPLACE, cls=joint.JointQuantiles,
               **kwargs):
  probs = tuple((np.arange(num_orders) + 1) / (num_orders + 1))
  return cls(**(dict(probs=probs, epsilon=1.0, lower=0.0, upper=1.0,
                     adjacency=adjacency) | kwargs))


@pytest.mark.slow
def test_answers_follow_affine_maps():
  values = np.random.default_rng(2).random(200)
  values[:3] = 1e-300, 1e-200, 1e-100
  mechanism, mapped = _mechanism(), _mechanism(lower=-3.0, upper=5.0)
  one = mechanism.estimate(jax.random.key(1), values)
  other = mapped.estimate(jax.random.key(1), values * 8 - 3)
  np.testing.assert_allclose(other, one * 8 - 3, atol=1e-10)
  assert np.all(np.diff(one) >= 0) and 0 <= one[0] and one[-1] <= 1


@pytest.mark.slow
@pytest.mark.every(2)
@pytest.mark.parametrize('values', [
    [.5], [.3] * 50, [np.nan, .5, 2.0, -np.inf, np.inf], [0.0] * 10 + [1.0] * 9])
def test_any_records_have_answers(values):
  answers = _mechanism().estimate(jax.random.key(0), np.array(values))
  assert np.all(np.isfinite(answers)) and np.all(np.diff(answers) >= 0)
  assert 0 <= answers[0] and answers[-1] <= 1


@pytest.mark.every(2)
def test_large_rates_give_the_quantiles():
  values = np.sort(np.random.default_rng(4).random(200))
  mechanism = _mechanism(epsilon=1e4)
  answers = mechanism.estimate(jax.random.key(0), values)
  below = np.searchsorted(values, answers)
  assert np.all(np.abs(below - 200 * np.array(mechanism.probs)) <= 1)


@pytest.mark.slow
def test_a_sweep_compiles_once():
  draw = _mechanism().draw
  before = mechanisms.compiled(draw)._cache_size()
  for size, epsilon, upper in ((33, 1.0, 1.0), (38, 2.0, 2.0), (40, .1, 9.0)):
    mechanism = _mechanism(epsilon=epsilon, upper=upper)
    assert mechanism.draw is draw
    mechanism.estimate(jax.random.key(0), np.linspace(0, 1, size))
  assert mechanisms.compiled(draw)._cache_size() <= before + 1


def test_refusals():
  with pytest.raises(ValueError, match='1 / n apart'):
    _mechanism(5, cls=joint.InverseQuantiles).release(jax.random.key(0),
                                                      jnp.array([.1, .2, .3]))
  with pytest.raises(ValueError, match='REPLACE_ONE'):
    _mechanism(cls=joint.InverseQuantiles, adjacency=_ADD)
  for bad in (dict(probs=(.5, .2)), dict(probs=(.5, .5)), dict(probs=(0.0,)),
              dict(probs=()), dict(epsilon=0.0), dict(upper=math.inf)):
    with pytest.raises(ValueError):
      _mechanism(**bad)


def test_budgets():
  mechanism = _mechanism(epsilon=None, rho=.5)
  # It is one exponential mechanism: sqrt(8 rho), or slightly more.
  assert 1 <= mechanism.parameters.rate / (math.sqrt(8 * .5) / 4) < 1.1
  assert math.isclose(accounting.epsilon(
      mechanism.event, delta=1e-6, adjacency=_REPLACE, accountant='rdp'),
      .5 + 2 * math.sqrt(.5 * math.log(1e6)), rel_tol=.15)
