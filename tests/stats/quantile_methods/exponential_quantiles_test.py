"""Tests numbers, programs and budgets of two kinds of quantiles.

The two are independent and recursive quantiles. Their distributions and privacy
under epsilon are tested in their own files.
"""

import math

import jax
import numpy as np
import pytest
from scipy import special

from dpjax.privacy import accounting
from dpjax.privacy import mechanism as mechanisms
from dpjax.privacy import notions
from dpjax.stats.quantile_methods import independent
from dpjax.stats.quantile_methods import mechanism
from dpjax.stats.quantile_methods import rates
from dpjax.stats.quantile_methods import records
from dpjax.stats.quantile_methods import recursive
from tests.stats.quantile_methods import brute

ADD, REPLACE = brute.ADD, brute.REPLACE
KEY = jax.random.key(62)
TIED = np.array([0., .1, .1, .1, .4, .4, 1.])
KINDS = (independent.IndependentQuantiles, recursive.RecursiveQuantiles)
every_kind = pytest.mark.parametrize('kind', KINDS)


def make(kind, probs=(.25, .5, .9), epsilon=1., adjacency=REPLACE, **more):
  return kind(**{'probs': probs, 'epsilon': epsilon, 'adjacency': adjacency,
                 'lower': 0., 'upper': 1., **more})


@pytest.mark.slow
@pytest.mark.every(2)
@every_kind
@pytest.mark.parametrize('cost', ['real', 'interpolated'])
def test_any_records_are_answered(cost, kind):
  """Answers are finite, ordered and within bounds for any records (QT-07)."""
  tiny = np.arange(6) * 1e-300
  cases = [[math.nan], [math.nan, -math.inf, math.inf], [1e300, -1e300],
           np.full([20], .3), [0.], [1.] * 5, [0.] * 5, TIED, tiny, tiny[:2]]
  for data in cases:
    for epsilon in (1e-6, 1., 1e5):
      answers = make(kind, epsilon=epsilon,
                     cost=cost).estimate(KEY, np.array(data))
      assert answers.dtype == np.float64 and answers.shape == (3,)
      assert np.all((0 <= answers) & (answers <= 1) & np.isfinite(answers))
      assert np.all(np.diff(answers) >= 0)
  # Intervals have positive width, which a large epsilon needs to see.
  answers = make(kind, probs=(.3, .5, .6), epsilon=1e5, cost=cost).estimate(
      KEY, tiny)
  assert 0 < answers[0] and answers[2] < 1e-299


@pytest.mark.slow
@every_kind
def test_maps_of_the_line_move_answers_alike(kind):
  """Linear maps of the data map the answers alike, to 1e-10 (QT-07)."""
  data = np.random.default_rng(0).beta(2, 5, 25)
  plain = make(kind, cost='interpolated').estimate(KEY, data)
  mapped = make(kind, cost='interpolated', lower=-300., upper=-100.).estimate(
      KEY, 200 * data - 300)
  np.testing.assert_allclose(mapped, 200 * plain - 300, rtol=1e-10)


@pytest.mark.slow
@every_kind
def test_one_program_serves_a_sweep(kind):
  """One program serves all n of a capacity and all parameters (QT-12)."""
  traces = []

  def counted(*args):
    traces.append(args)
    return make(kind).draw(*args)

  program = jax.jit(counted)
  rng = np.random.default_rng(2)
  with jax.enable_x64(True):
    for size in (1, 9, 31, 32):
      for epsilon, upper, adjacency in ((.1, 1., REPLACE), (7, 30., ADD)):
        one = make(kind, epsilon=epsilon, upper=upper, adjacency=adjacency,
                   probs=(.1, .2, .3 + epsilon / 100))
        assert one.draw is make(kind).draw
        data = rng.random(size)
        answers = program(KEY, records.padded(data, 0., upper), one.parameters)
        np.testing.assert_array_equal(answers, one.estimate(KEY, data))
  assert len(traces) == 1


@pytest.mark.slow
@every_kind
def test_side_by_side_is_one_by_one(kind):
  """Batched draws equal single ones, and `release` is `estimate` (QT-11)."""
  rng = np.random.default_rng(4)
  keys, data = jax.random.split(KEY, 4), rng.random((4, 20))
  one = make(kind)
  with jax.enable_x64(True):
    rows = [records.padded(row, 0., 1.) for row in data]
    many = rows[0]._replace(ordered=np.stack([row.ordered for row in rows]))
    answers = np.asarray(
        mechanism.repeated(one.draw)(keys, many, one.parameters))
  for key, row, expected in zip(keys, data, answers, strict=True):
    np.testing.assert_allclose(one.estimate(key, row), expected, rtol=1e-14)


@pytest.mark.parametrize('wrong, message', [
  ({'cost': 'free'}, 'cost must be one of'), ({'probs': ()}, 'one level'),
  ({'probs': (.5, .5)}, 'must increase'), ({'probs': (0., .5)}, 'strictly'),
  ({'upper': 0.}, 'lower must be below'), ({'epsilon': 0.}, 'epsilon'),
  ({'epsilon': None}, 'epsilon or rho'), ({'rho': 1.}, 'epsilon or rho'),
  ({'epsilon': None, 'rho': -1.}, 'rho must be'),
  ({'adjacency': 'replace_one'}, 'write Adjacency')])
@every_kind
def test_bad_input_is_one_line(wrong, message, kind):
  with pytest.raises(ValueError, match=message) as error:
    make(kind, **wrong)
  assert '\n' not in str(error.value)


@pytest.mark.parametrize('rho', [1e-8, 1e-3, .2, 5., 80., 400.])
def test_epsilons_of_rho(rho):
  """Epsilons of rho spend at most rho, and are at least sqrt(8 rho) (QB-11)."""
  epsilon = rates.from_rho(rho)
  assert epsilon >= math.sqrt(8 * rho) * (1 - 1e-12)
  if rho < 300:
    spent = notions.zcdp_from_mechanism(notions.PureDP(epsilon=epsilon),
                                        'exponential').rho
    assert spent == pytest.approx(rho, rel=1e-7) and spent <= rho * (1 + 1e-9)


@every_kind
def test_events_say_the_budget(kind):
  rho = notions.zcdp_from_approx_target(
      notions.ApproxDP(epsilon=1., delta=1e-6)).rho
  one = make(kind, epsilon=None, rho=rho, adjacency=ADD)
  assert one.event == accounting.concentrated_event(rho=rho, adjacency=ADD)
  spent = mechanisms.epsilon(one, delta=1e-6, accountant='rdp')
  assert .8 < spent <= 1 + 1e-9
  pure = make(kind, adjacency=ADD)
  assert mechanisms.epsilon(pure, delta=1e-12) == pytest.approx(1, rel=1e-3)
  assert isinstance(one, mechanisms.Mechanism) and one.risk(3) is None
  # Many small releases of pure mechanisms cost far less than their sum.
  tiny = make(kind, epsilon=.01, adjacency=ADD)
  composed = accounting.repeated_event(tiny.zcdp_event, 100)
  assert accounting.epsilon(composed, delta=1e-6, adjacency=ADD,
                            accountant='rdp') < .2
  # An epsilon made from rho costs that rho again.
  spent = make(kind, epsilon=one.steps * one.share(one.steps),
               adjacency=ADD).zcdp_event
  assert spent.rho == pytest.approx(rho, rel=1e-6)
  # Shares of rho are of squares, so sqrt(k) times as large for many.
  assert one.share(100) == pytest.approx(one.share(1) / 10, rel=1e-2)
  assert pure.share(100) == pytest.approx(pure.share(1) / 100)


def divergence(prob, rate, adjacency):
  """Returns a node's largest Renyi divergence over its order."""
  rng, worst = np.random.default_rng(5), 0.
  for size, spread in ((4, 3), (10, 3), (4, 8), (10, .5)):
    both = brute.pairs(rng, 1500, size, spread, adjacency)
    middle, widths = both.midpoints, both.widths
    with np.errstate(divide='ignore'):
      logs = np.log(widths)
    p, q = (logs + brute.node_log_density(
        np.broadcast_to(side[:, None], (*middle.shape, side.shape[-1])),
        np.zeros(middle.shape), np.ones(middle.shape), middle, prob, rate,
        'real') for side in both.sides)
    losses = np.subtract(p, q, where=widths > 0, out=np.zeros(p.shape))
    for logs, sign in ((p, 1), (q, -1)):
      for order in (1.01, 2, 8, 32):
        log_moments = special.logsumexp(logs + (order - 1) * sign * losses,
                                        axis=-1)
        worst = max(worst, log_moments.max() / (order * (order - 1)))
  return worst


@pytest.mark.parametrize('adjacency', [ADD, REPLACE])
def test_a_mechanism_of_rho_diverges_by_it(adjacency):
  rho, prob = .3, .3
  rate, = make(KINDS[0], probs=(prob,), epsilon=None, rho=rho,
               adjacency=adjacency).parameters.rates
  assert .95 * rho < divergence(prob, rate, adjacency) <= rho * (1 + 1e-6)


@pytest.mark.every(3)
@pytest.mark.parametrize('probs', [(.25, .5, .75), (.1, .5, .9)])
def test_a_level_of_rho_diverges_by_its_part(probs):
  """A replacement costs one node with both records, or two with one each."""
  make_one = lambda adjacency: make(
      KINDS[1], probs=probs, epsilon=None, rho=.6,
      adjacency=adjacency).parameters
  low, root, high = (divergence(prob, rate, ADD) for prob, rate in zip(
      *make_one(ADD), strict=True))
  assert .28 < min(low, root, high) <= max(low, root, high) < .3 * (1 + 1e-6)
  nodes = list(zip(*make_one(REPLACE), strict=True))
  apart = sum(divergence(*nodes[i], ADD) for i in (0, 2))
  together = max(divergence(*node, REPLACE) for node in nodes)
  assert .28 < max(apart, together) <= .3 * (1 + 1e-6)
  assert divergence(*nodes[1], REPLACE) > .28
  # Levels far from the middle of their nodes move as much as ranks do.
  assert (apart > together) == (probs[0] < .2)
