"""These tests check the parts of an audit on exactly known cases."""

import math

import jax
import numpy as np
import pytest
from scipy import special
from scipy import stats

from dpjax.audit import attacks
from dpjax.audit import auditor
from dpjax.audit import claims
from dpjax.audit import curves
from dpjax.audit import exact
from dpjax.audit import noise
from dpjax.audit import partitions
from dpjax.audit import steps
from dpjax.audit import wrapping
from dpjax.audit.target import Noise
from dpjax.audit.target import Pair
from dpjax.audit.target import Query
from dpjax.privacy import accounting
from dpjax.privacy import laplace
from dpjax.privacy import selection
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.notions import ApproxDP

pytestmark = pytest.mark.every(1)

_AR, _RO = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE


def test_no_test_of_a_gaussian_breaks_its_curve_and_the_best_ones_meet_it():
  curve = curves.of_event(accounting.gaussian_event(noise_multiplier=1.0),
                          adjacency=_AR)
  alarms = special.ndtr(np.linspace(-4, 4, 81))
  hits = special.ndtr(special.ndtri(alarms) + 1)
  excesses = curves.excesses(curve, hits, alarms)
  assert (excesses <= 1e-9).all() and (excesses > -0.02).all()
  assert (curves.excesses(curve, special.ndtr(special.ndtri(alarms) + 1.2),
                          alarms)[20:60] > 0.01).all()
  # A test that is wrong breaks nothing.
  assert (curves.excesses(curve, alarms, hits) < 0).all()


def test_one_point_of_a_curve_is_two_lines():
  curve = curves.of_guarantee(ApproxDP(epsilon=math.log(2), delta=0.1))
  hits, alarms = np.array([0.5, 0.95, 0.3]), np.array([0.2, 0.7, 0.1])
  np.testing.assert_allclose(
      curves.excesses(curve, hits, alarms),
      np.maximum(hits - 2 * alarms, 1 - alarms - 2 * (1 - hits)) - 0.1)
  assert curves.excesses(curves.NOTHING, hits, alarms).max() == -np.inf


def test_events_that_only_renyi_orders_cover_have_a_curve():
  event = accounting.repeat_and_select_event(
      accounting.gaussian_event(noise_multiplier=2.0), mean=4.0, shape=1.0)
  curve = curves.of_event(event, adjacency=_AR)
  assert curve.epsilons.size > 10 and (np.diff(curve.deltas) <= 0).all()


def _outcome_probs(epsilon):
  # This is the exponential mechanism on the counts of ones and zeros.
  def probs(dataset):
    ones = sum(dataset)
    return special.softmax(epsilon / 2 * np.array(
        [ones, len(dataset) - ones], float))
  return probs


def test_all_neighbours_of_a_small_domain():
  curve = curves.of_event(accounting.pure_event(epsilon=1.0, adjacency=_RO),
                          adjacency=_RO)
  kwargs = dict(domain=(0, 1), sizes=(1, 2, 3), adjacency=_RO)
  assert exact.enumerated(curve, _outcome_probs(1.0), **kwargs).amount <= 0
  worst = exact.enumerated(curve, _outcome_probs(2.0), **kwargs)
  assert worst.amount > 0.1 and 'and' in worst.what


def test_a_probability_of_zero_is_seen_and_what_is_no_law_refused():
  curve = curves.of_guarantee(ApproxDP(epsilon=5.0, delta=1e-3))
  pairs = [Pair(0.0, 1e-2, 'x')]
  with np.errstate(divide='ignore'):
    worst = exact.finite_distributions(curve, pairs,
                             lambda p: np.log(np.array([p, 1 - p])))
  assert worst.amount == pytest.approx(9e-3, abs=1e-5)
  with pytest.raises(ValueError, match='sum to 1, got 0.5'):
    exact.finite_distributions(curve, pairs, lambda p: np.log(np.array([0.5])))


def test_outcomes_of_another_law_are_told():
  rng, probs = np.random.default_rng(0), np.array([0.5, 0.3, 0.199, 0.001])
  draws = rng.choice(4, 5000, p=probs)
  assert exact.outcome_p_value(draws, np.log(probs)) > 1e-4
  assert exact.outcome_p_value(draws, np.log([0.45, 0.35, 0.199, 0.001])) < 1e-6
  for odd in (4, -1, 0.5, np.nan):
    assert exact.outcome_p_value(np.append(draws, odd), np.log(probs)) == 0
  with np.errstate(divide='ignore'):
    assert exact.outcome_p_value(draws, np.log([0.5, 0.5, 0, 0])) == 0


def test_isolation_is_bit_by_bit():
  records = np.random.default_rng(0).normal(size=(4, 2))
  alone = lambda x: np.tanh(x)
  assert exact.isolated(alone, records, 9 * np.ones(2))
  assert not exact.isolated(lambda x: alone(x) + 1e-15 * x.sum(), records,
                            9 * np.ones(2))


@pytest.mark.parametrize('order, expected', [(1, 3.0), (2, 5**0.5),
                                             (np.inf, 2.0)])
def test_largest_change_in_a_norm(order, expected):
  pair = Pair(np.array([1.0, -2.0]), np.zeros(2))
  query = lambda bound: Query(lambda data: data, bound, order)
  assert exact.largest_change(query(expected), [pair]).amount <= 0
  assert exact.largest_change(query(0.99 * expected), [pair]).amount == (
      pytest.approx(0.01 * expected, rel=1e-2))
  for odd in (np.nan, np.inf):
    there = Pair(np.array([odd, 0.0]), np.zeros(2))
    assert exact.largest_change(query(1e9), [there]).amount == math.inf
    assert exact.largest_change(query(1.0), [Pair(there.data, there.data)]
                                ).amount <= 0


@pytest.mark.parametrize('distribution, draw, spacing', [
    (stats.norm(scale=2), lambda rng, n: rng.normal(0, 2, n), 0.0),
    (stats.norm(scale=2), lambda rng, n: rng.normal(0, 2, n), 0.5),
    (stats.laplace(), lambda rng, n: rng.laplace(size=n), 0.25),
    (stats.dlaplace(0.7), lambda rng, n: rng.geometric(-np.expm1(-0.7), n) -
     rng.geometric(-np.expm1(-0.7), n), 0.0)])
def test_noise_of_any_law_becomes_normal(distribution, draw, spacing):
  rng = np.random.default_rng(1)
  draws = draw(rng, (4000, 3)).astype(float)
  if spacing:
    draws = np.round(draws / spacing) * spacing
  declared = Noise(distribution, spacing=spacing)
  scores = noise.normal_scores(rng, declared, draws)
  p_values = dict(noise.p_values(scores[:2000], scores[2000:]))
  assert len(p_values) == 6 and min(p_values.values()) > 1e-4
  other = noise.normal_scores(rng, declared, 1.1 * draws)
  assert dict(noise.p_values(other[:2000], other[2000:]))['variance'] < 1e-4


_NOISE_FAULTS = [
    ('mean', lambda z: z + 0.15), ('variance', lambda z: 0.93 * z),
    ('distribution', lambda z: np.sign(z) * np.abs(z)**0.8),
    ('independence of coordinates', lambda z: z[:, [0, 0, 2]]),
    ('independence of calls', lambda z: (z + np.roll(z, 1, 0)) / 2**0.5),
    ('variance', np.zeros_like)]


@pytest.mark.parametrize('name, fault', _NOISE_FAULTS)
def test_what_is_wrong_with_noise_is_named(name, fault):
  scores = np.random.default_rng(2).normal(size=(2, 3000, 3))
  assert dict(noise.p_values(fault(scores[0]), scores[1]))[name] < 1e-6
  # Two runs of one key give the same.
  same = dict(noise.p_values(scores[0], scores[0]))
  assert same['independence of keys'] < 1e-6 < min(
      value for key, value in same.items() if key != 'independence of keys')
  assert same.keys() == {'independence of keys', *dict(_NOISE_FAULTS)}


def test_p_values_of_sampling_are_uniform_or_smaller_seldom():
  rng, rejected = np.random.default_rng(3), 0
  for _ in range(200):
    joined = rng.random((200, 300)) < 0.05
    p_values = [value for _, value in steps.sampling_p_values(
        joined, sampling_prob=0.05)]
    rejected += min(p_values) * len(p_values) <= 0.05
  assert rejected <= 26  # Of 200 at 5 %: more has probability 1e-5.
  assert stats.binom.sf(26, 200, 0.05) < 1e-5


_SAMPLING_FAULTS = [
    ('rate', lambda rng, q: rng.random((200, 300)) < 1.2 * q),
    ('batch sizes', lambda rng, q: rng.permuted(
        np.tile(np.arange(300) < 15, (200, 1)), axis=1)),
    ('uses of records', lambda rng, q: np.roll(rng.permuted(
        np.tile(np.arange(200) < 10, (300, 1)), axis=1).T, 3, 0)),
    ('consecutive steps', lambda rng, q: np.repeat(
        rng.random((100, 300)) < q, 2, axis=0)),
    ('consecutive records', lambda rng, q: np.repeat(
        rng.random((200, 150)) < q, 2, axis=1))]


@pytest.mark.parametrize('name, fault', _SAMPLING_FAULTS)
def test_what_is_wrong_with_sampling_is_named(name, fault):
  joined = fault(np.random.default_rng(4), 0.05)
  p_values = dict(steps.sampling_p_values(joined, sampling_prob=0.05))
  assert p_values[name] < 1e-6
  assert p_values.keys() == dict(_SAMPLING_FAULTS).keys()


def test_cells_take_every_value():
  outputs = np.array([[0.0], [1.0], [1.0], [np.nan], [np.inf], [-np.inf]])
  cut, = partitions.cut(outputs, outputs, [('x', lambda y: y[:, 0])])
  cells = cut.cells(outputs)
  assert np.unique(cells).size == 5 and cells[1] == cells[2]
  assert cut.counts(outputs).sum() == 6
  assert cut.cells(np.array([[-3.0]]))[0] not in cells
  assert cut.counts(np.array([[0.5], [7.0], [-3.0]])).sum() == 3


def test_lowest_bits():
  (_, score), = partitions.lowest_bits(1)
  values = np.array([[1.0], [3.0], [0.75], [2.0**-30], [6.0], [0.0], [-0.5]])
  assert score(values)[:5].tolist() == [0, 0, -2, -30, 1]
  assert score(values)[5] > 1000 and score(values)[6] == -1


def test_supports_are_of_values_seen_twice_and_on_one_side():
  one = np.array([[1.0], [1], [3], [5], [5], [np.inf]])
  other = np.array([[2.0], [2], [2], [3], [5], [np.nan]])
  (name, score), = partitions._supports(one, other)
  assert name == 'support of coordinate 0'
  values = np.array([[1.0], [2], [3], [5], [9], [np.inf], [np.nan], [-0.0]])
  assert score(values).tolist() == [1, -1, 0, 0, 0, 0, 0, 0]
  assert not list(partitions._supports(one, one))


@pytest.mark.parametrize('value, low_bits, looked_at', [
    (1.0, False, True), (0.5, False, False), (0.5, True, True),
    (np.nan, False, False), (np.inf, False, False), (2.0**22, False, False)])
def test_supports_count_for_integers_or_where_floats_are_claimed(
    value, low_bits, looked_at):
  one = np.repeat([[1.0, 1], [3, 1], [1, 3], [3, 3]], 2, axis=0)
  other = one - 1
  one[0, 1] = value
  names = {cut.name for cut in partitions.learn(one, other, low_bits=low_bits)}
  supports = {'support of coordinate 0', 'support of coordinate 1',
              'support of whole output'}
  assert names & supports == (supports if looked_at else set())


def test_neighbours_that_a_mechanism_can_have():
  gaussian = lambda adjacency: wrapping.space_of(
      type('M', (), dict(record_norm=2.0, stddev=1.0)), adjacency).pairs()
  for adjacency, distance in ((_AR, 2.0), (_RO, 4.0)):
    for pair in gaussian(adjacency):
      assert np.linalg.norm(pair.data - pair.neighbour) == (
          pytest.approx(distance, rel=1e-5))
  scores = wrapping.space_of(selection.ExponentialMechanism(
      sensitivity=0.5, epsilon=1.0, adjacency=_RO), _RO).pairs()
  assert max(np.abs(p.data - p.neighbour).max() for p in scores) == 0.5
  with pytest.raises(ValueError, match='does not define neighbours'):
    wrapping.space_of(object(), _AR)


def test_p_values_do_not_depend_on_the_data_of_a_density():
  # A declared distribution on the integers is held exactly, also far from zero.
  rng = np.random.default_rng(5)
  draws = rng.poisson(4.0, (3000, 1)).astype(float)
  scores = noise.normal_scores(rng, Noise(stats.poisson(4.0)), draws)
  assert stats.kstest(scores[:, 0], 'norm').pvalue > 1e-4
  assert jax.tree.all(np.isfinite(scores).all())


@pytest.mark.parametrize('width', [1, 2, 24, 30])
@pytest.mark.parametrize('finite', [True, False])
def test_what_is_looked_at_in_outputs(width, finite):
  """Audits look at the coordinates, low bits and statistics that they document.

  They always include the last coordinate and what is not finite.
  """
  outputs = np.random.default_rng(6).normal(size=(2, 200, width))
  if not finite:
    outputs[1, 7, 0] = np.inf
  cuts = partitions.learn(*outputs, low_bits=True)
  kept = {*range(min(width, 24)), width - 1}
  wanted = {f'coordinate {place}' for place in kept} | {
      f'lowest bit of coordinate {place}' for place in range(min(width, 4))}
  if width > 1:
    wanted |= {'whole output', 'sum', 'size', 'means', 'likelihood'}
  if width == 2:
    wanted |= {'difference of coordinates 0 and 1',
               'product of coordinates 0 and 1'}
  assert {cut.name for cut in cuts} - {'not finite'} == wanted
  assert len(cuts) == len(wanted) + (not finite)
  for cut in cuts:
    assert cut.counts(outputs[0]).sum() == 200
    if cut.name == f'coordinate {width - 1}':
      np.testing.assert_array_equal(cut.score(outputs[0]), outputs[0, :, -1])
    if cut.name == 'not finite':
      assert cut.score(outputs[1]).sum() == 1


def test_probabilities_and_their_complements_add_up_to_one():
  """Converted hit and miss probabilities still add up to one.

  Converting to members and back keeps small misses exact.
  """
  hit = np.array([0.2, 0.7, 1.0], np.float32)
  miss = np.array([0.8, 0.3, 1e-12], np.float32)
  given = attacks._Probability(hit, miss)
  for a in (0.3, 0.8):
    members = attacks._members(given, a)
    np.testing.assert_allclose(members.hit, a * hit + 1 - a, rtol=1e-6)
    np.testing.assert_allclose(members.miss, a * miss, rtol=1e-6)
    np.testing.assert_allclose(members.hit + members.miss, 1, rtol=1e-6)
    others = attacks._non_members(members, a)
    np.testing.assert_allclose(others.miss, miss, rtol=1e-6)


def test_a_report_says_nothing_that_was_not_found():
  claim = claims.Claim(epsilon=1.0, delta=0.0,
                       adjacency=Adjacency.REPLACE_ONE)
  report = auditor.Report(target='x', claim=claim, checks=(),
                          significance=0.05)
  assert (report.epsilon_lower, report.cap, report.detectable) == (
      0.0, 0.0, math.inf)
  assert report.verdict == auditor.UNDERPOWERED and not report.failed


def test_noise_is_declared_by_mechanisms_that_add_it():
  """A mechanism that adds noise declares its distribution and scale."""
  mechanism = laplace.LaplaceMechanism(record_norm=2.0, epsilon=0.5,
                                       adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  declared = wrapping.declared_noise(mechanism)
  assert declared.distribution.std() == pytest.approx(math.sqrt(2) * mechanism.scale)
  assert float(declared.distribution.stats('k')) == pytest.approx(3.0)
  assert wrapping.declared_noise(object()) is None
