"""These tests check the table of conversions on known mechanisms."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import divergences
from dpjax.privacy import notions
from dpjax.privacy import renyi
from experiments.methods.theory import compared_notions
from experiments.methods.theory import conversions
from experiments.methods.theory import definitions
from experiments.methods.theory import tradeoffs

pytestmark = pytest.mark.every(1)

_AT = {'delta': 0.02, 'order': 2.5, 'mass': 0.3, '': 0.0}


def _response(epsilon, size=2):
  row = np.exp(epsilon * np.eye(size))
  return tuple((row / row.sum(1, keepdims=True))[:2])


def _quantised(distribution, shift, edges):
  """Returns cell probabilities of a distribution and of its shift."""
  cells = [np.append(edges, np.inf), np.append(-np.inf, edges)]
  p, q = (distribution.cdf(cells[0] - at) - distribution.cdf(cells[1] - at)
          for at in (0.0, shift))
  return p / p.sum(), q / q.sum()


def _ranged(width, top):
  """Returns a pair on two outcomes with log-ratios `top` and `top` - width."""
  high, low = math.exp(top), math.exp(top - width)
  q = (1 - low) / (high - low)
  return np.array([high * q, 1 - high * q]), np.array([q, 1 - q])


_SHIFT = 0.8
_GAUSSIAN = _quantised(stats.norm, _SHIFT, np.linspace(-5, 5.8, 1081))
_MORE = 1.3
PAIRS = {
    'response': _response(0.9),
    'far response': _response(4.0),
    'three answers': _response(0.9, 3),
    'five answers': _response(2.0, 5),
    'laplace': _quantised(stats.laplace(scale=1.25), 1.0,
                          np.linspace(-12, 13, 401)),
    'geometric': _quantised(stats.dlaplace(0.7), 1, np.arange(-30.0, 32)),
    'gaussian': _GAUSSIAN,
    'told': definitions.extremal(notions.ApproxDP(epsilon=0.5, delta=0.05)),
    'one-sided': _ranged(_MORE, _MORE - 1e-6),
    'middle': _ranged(_MORE, math.log((math.exp(_MORE) + 1) / 2)),
    'nats': _ranged(_MORE, max(
        np.linspace(0.01, _MORE - 0.01, 2001), key=lambda top: (
            divergences.f_divergence(*_ranged(_MORE, top),
                                     divergences.KULLBACK_LEIBLER)))),
}
# This maps a notion, or a cell, to the pair that attains it.
_EQUAL = {
    notions.PureDP: 'response', notions.ApproxDP: 'told',
    notions.ZCDP: 'gaussian', notions.GaussianPrivacy: 'gaussian',
    notions.KullbackLeiblerPrivacy: 'response',
    notions.TotalVariationPrivacy: 'gaussian',
    compared_notions.ConditionalTesting: 'response',
    (notions.ZCDP, notions.TotalVariationPrivacy): 'response',
    (compared_notions.ConditionalTesting, notions.ApproxDP): 'one-sided',
    (notions.BoundedRange, notions.PureDP): 'one-sided',
    (notions.BoundedRange, compared_notions.ChiSquarePrivacy): 'middle',
    (notions.BoundedRange, notions.TotalVariationPrivacy): 'response',
    (notions.BoundedRange, compared_notions.ConditionalTesting): 'response',
    (notions.BoundedRange, notions.KullbackLeiblerPrivacy): 'nats',
    (notions.BoundedRange, notions.ZCDP): 'nats'}


def _known(pair, given):
  """Returns the guarantee of this notion that a pair attains, or None."""
  p, q = PAIRS[pair]
  if given is notions.GaussianPrivacy:
    return given(shift=_SHIFT) if pair == 'gaussian' else None
  if given is notions.ApproxDP:
    return given(epsilon=0.5, delta=definitions.level(p, q, given, at=0.5))
  if given is renyi.RenyiDP:
    level = definitions.level(p, q, given, at=4.0)
    return None if math.isinf(level) else given(order=4.0, divergence=level)
  level = definitions.level(p, q, given)
  if math.isinf(level) or (
      given is compared_notions.ConditionalTesting and level >= 1):
    return None
  name, = itertools.islice(given.__dataclass_fields__, 1)
  return given(**{name: level})


def _sides(pair, given, wanted):
  """Returns (the level that a pair has, the level that the table states)."""
  known, cell = _known(pair, given), conversions.TABLE[given, wanted]
  if known is None:
    return None
  at = {cell.needs: _AT[cell.needs]} if cell.needs else {}
  bound = conversions.convert(known, wanted, **at)
  if wanted is notions.ApproxDP:
    return (definitions.level(*PAIRS[pair], wanted, at=bound.epsilon),
            bound.delta)
  measured = definitions.level(
      *PAIRS[pair], wanted, at=getattr(bound, 'order', getattr(
          bound, 'mass', 0.0)))
  most = next(value for name, value in vars(bound).items()
              if name not in ('order', 'mass'))
  return measured, most


def test_rows_of_the_table_say_what_they_are():
  """Each row of the table converts to its notion at the place asked for."""
  for (given, wanted), cell in conversions.TABLE.items():
    known = _known('gaussian' if given is notions.GaussianPrivacy
                   else 'response', given)
    at = {cell.needs: _AT[cell.needs]} if cell.needs else {}
    converted = conversions.convert(known, wanted, **at)
    assert type(converted) is wanted
    for name, value in at.items():
      assert getattr(converted, name) == value
    assert isinstance(cell.sharp, bool) and len(cell.source) > 5
    assert cell.needs in _AT and (cell.printed is None
                                  or callable(cell.printed))


_SMALL = ('response', 'three answers', 'told', 'one-sided', 'middle', 'nats')


def test_no_small_pair_has_more_than_the_table_says():
  """No small pair exceeds a row of the table, and sharp rows are attained."""
  for (given, wanted), cell in conversions.TABLE.items():
    for pair in _SMALL:
      sides = _sides(pair, given, wanted)
      if sides is None:
        continue
      assert sides[0] <= sides[1] * (1 + 1e-6) + 1e-9, (given, wanted, pair)
      if cell.sharp and pair == _EQUAL.get((given, wanted), _EQUAL.get(given)):
        assert sides[0] == pytest.approx(sides[1], rel=2e-3), (given, wanted)


@pytest.mark.slow
@pytest.mark.parametrize('given, wanted', conversions.TABLE, ids=lambda notion:
                         notion.__name__)
def test_no_pair_has_more_than_the_table_says(given, wanted):
  cell, seen = conversions.TABLE[given, wanted], 0
  for pair in PAIRS:
    # Each ratio takes a linear program, so only small pairs are tried.
    if cell.needs == 'mass' and len(PAIRS[pair][0]) > 5:
      continue
    sides = _sides(pair, given, wanted)
    if sides is not None:
      seen += 1
      assert sides[0] <= sides[1] * (1 + 1e-6) + 1e-9, pair
  assert seen
  if cell.sharp:
    pair = _EQUAL.get((given, wanted), _EQUAL.get(given))
    measured, most = _sides(pair, given, wanted)
    assert measured == pytest.approx(most, rel=2e-3)


@pytest.mark.parametrize('given, wanted', [
    notions_ for notions_, cell in conversions.TABLE.items() if cell.printed],
                         ids=lambda notion: notion.__name__)
def test_printed_forms_are_true_and_looser(given, wanted):
  cell = conversions.TABLE[given, wanted]
  at = {cell.needs: _AT[cell.needs]} if cell.needs else {}
  for number in (1e-3, 0.3, 2.0):
    known = (given(order=4.0, divergence=number) if given is renyi.RenyiDP
             else given(**{next(iter(given.__dataclass_fields__)): number}))
    ours, theirs = (next(value for name, value in vars(converted).items()
                         if name != 'order')
                    for converted in (cell.function(known, **at),
                                      cell.printed(known, **at)))
    assert ours <= theirs * (1 + 1e-12)
    if number == 2:
      assert ours < theirs * 0.99


def test_the_exact_curve_of_gaussian_noise():
  for shift, delta in itertools.product((0.1, 1.0, 5.0), (1e-9, 1e-3, 0.2)):
    converted = conversions.convert(notions.GaussianPrivacy(shift=shift),
                                    notions.ApproxDP, delta=delta)
    exact = tradeoffs.gaussian_delta(converted.epsilon, shift=shift)
    assert exact <= delta * (1 + 1e-6)
    if converted.epsilon > 1e-9:
      assert exact == pytest.approx(delta, rel=1e-5)


def test_two_values_of_concentrated_privacy():
  """At rho = .1 zCDP gives the error .389, and Pinsker's bound .388 (LB-13)."""
  converted = conversions.convert(notions.ZCDP(rho=0.1),
                                  notions.TotalVariationPrivacy)
  assert (1 - converted.level) / 2 == pytest.approx(0.38913, abs=1e-5)
  printed = conversions.TABLE[
      notions.ZCDP, notions.TotalVariationPrivacy].printed
  assert (1 - printed(notions.ZCDP(rho=0.1)).level) / 2 == pytest.approx(
      0.3882, abs=1e-4)


def _walk(epsilon, delta, size):
  """Returns distributions [size + 1, m] along a path of neighbours."""
  places = np.arange(size + 1)
  noise = np.exp(-epsilon * np.abs(places[:, None] - places))
  ends = np.array([0, size])
  noise[:, ends] /= 1 - math.exp(-epsilon)
  noise *= math.tanh(epsilon / 2)
  assert np.allclose(noise.sum(1), 1)
  return np.hstack([(1 - delta) * noise, delta * np.eye(size + 1)])


@pytest.mark.parametrize('size', [1, 2, 5])
def test_groups(size):
  """Group guarantees hold at the ends of a
  path; pure and range ones are attained."""
  chain = _walk(0.4, 0.01, size)
  one = notions.ApproxDP(epsilon=0.4, delta=definitions.level(
      chain[0], chain[1], notions.ApproxDP, at=0.4))
  many = conversions.group(one, size=size)
  assert definitions.holds(chain[0], chain[-1], many)
  assert many.delta <= conversions.printed_group(one, size=size).delta
  if size > 1:
    assert many.delta < conversions.printed_group(one, size=size).delta
  chain = _walk(0.4, 0.0, size)[:, :size + 1]
  for given, known in ((notions.PureDP, dict(epsilon=0.4)),
                       (notions.BoundedRange, dict(width=0.8)),
                       (notions.ZCDP, dict(rho=notions.zcdp_from_pure(
                           notions.PureDP(epsilon=0.4)).rho))):
    many = conversions.group(given(**known), size=size)
    assert definitions.holds(chain[0], chain[-1], many)
    if given is not notions.ZCDP:
      assert definitions.level(chain[0], chain[-1], given) == pytest.approx(
          *vars(many).values())
  # The nats of a group are below size epsilon (Lalanne 2023, Fact 3.3.11).
  nats = conversions.convert(conversions.group(
      notions.PureDP(epsilon=0.4), size=size), notions.KullbackLeiblerPrivacy)
  assert nats.level == pytest.approx(0.4 * size * math.tanh(0.2 * size))
  assert definitions.holds(chain[0], chain[-1], nats)
  assert nats.level < 0.4 * size


def test_divergences_of_neighbours_say_nothing_of_groups():
  """Divergences of neighbours do not bound those of groups.

  Over two steps the divergence can exceed 4 times the larger one.
  """
  step = lambda x, y: definitions.level(np.array([x, 1 - x]),
                                        np.array([y, 1 - y]),
                                        notions.KullbackLeiblerPrivacy)
  assert step(0.5, 1e-6) > 4 * max(step(0.5, 0.02), step(0.02, 1e-6))
  with pytest.raises(ValueError, match='has no property of groups'):
    conversions.group(notions.KullbackLeiblerPrivacy(level=0.1), size=2)
  assert conversions.group(notions.TotalVariationPrivacy(level=0.4), size=3) == (
      notions.TotalVariationPrivacy(level=1.0))
  assert conversions.group(notions.GaussianPrivacy(shift=0.4), size=3).shift == (
      pytest.approx(1.2))


@pytest.mark.parametrize('guarantee, wanted, at, message', [
    (notions.TotalVariationPrivacy(level=0.1), notions.PureDP, {},
     'TotalVariationPrivacy says nothing in terms of PureDP'),
    (notions.PureDP(epsilon=1.0), notions.ApproxDP, {},
     r'PureDP as ApproxDP needs delta, got \[\]'),
    (compared_notions.ConditionalTesting(level=1.0), notions.BoundedRange, {},
     'nothing follows from a conditional variation of 1'),
    (compared_notions.ConditionalTesting(level=0.5, mass=0.1),
     notions.BoundedRange, {},
     'a bounded range follows only from mass 0, got 0.1'),
    (notions.ApproxDP(epsilon=1.0, delta=0.1),
     compared_notions.ConditionalTesting,
     dict(mass=2.0), r'mass must lie in \[0, 1\], got 2')])
def test_refusals(guarantee, wanted, at, message):
  with pytest.raises(ValueError, match=message):
    conversions.convert(guarantee, wanted, **at)
