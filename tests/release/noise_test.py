"""Tests widths from the exact noise distribution, calibrations and costs."""

import decimal
import fractions
import math

import numpy as np
import pytest

from dpjax.privacy import accounting
from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import costs
from dpjax.release import lattice
from dpjax.release import noise
from dpjax.release.costs import Cost

pytestmark = pytest.mark.every(1)

Decimal, Fraction = decimal.Decimal, fractions.Fraction
_AR = Adjacency.ADD_OR_REMOVE_ONE
_NOISES = [noise.LaplaceNoise(scale=Fraction(1, 5)),
           noise.LaplaceNoise(scale=Fraction(7, 3)),
           noise.LaplaceNoise(scale=Fraction(400)),
           noise.GaussianNoise(variance=Fraction(1, 20)),
           noise.GaussianNoise(variance=Fraction(3)),
           noise.GaussianNoise(variance=Fraction(90_000))]


def _weights(distribution):
  z = np.arange(20_000.0)
  if isinstance(distribution, noise.LaplaceNoise):
    one = np.exp(-z / float(distribution.scale))
  else:
    one = np.exp(-z * z / (2 * float(distribution.variance)))
  both = np.where(z > 0, 2, 1) * one
  return both / both.sum()


@pytest.mark.parametrize('distribution', _NOISES)
@pytest.mark.parametrize('miss', [.5, .05, 1e-4])
def test_widths_are_the_least_by_the_law(distribution, miss):
  tails = np.append(np.cumsum(_weights(distribution)[::-1])[::-1], 0)
  width = distribution.half_width(miss)
  assert tails[width + 1] <= miss * (1 + 1e-9)
  assert width == 0 or tails[width] > miss * (1 - 1e-9)


@pytest.mark.parametrize('distribution', [
    *_NOISES, noise.LaplaceNoise(scale=Fraction(1500)),
    noise.GaussianNoise(variance=Fraction(1001)**2)])
def test_deviations_are_those_of_the_law(distribution):
  weights = _weights(distribution)
  assert distribution.deviation == pytest.approx(
      math.sqrt(weights @ np.arange(20_000.0)**2), rel=1e-4)


def test_a_cost_names_its_notion():
  assert Cost(epsilon=Fraction(1)).notion == 'epsilon-DP'
  assert Cost(rho=Fraction(1)).notion == 'rho-zCDP'


def test_wide_gaussians_are_bounded_by_continuous_ones():
  distribution = noise.GaussianNoise(variance=Fraction(1001)**2)
  z = np.arange(1, 40_000.0)
  weights = np.exp(-z * z / (2 * 1001**2))
  tails = 2 * np.cumsum(weights[::-1])[::-1] / (1 + 2 * weights.sum())
  least = int(np.argmax(tails <= .05))
  assert 0 <= distribution.half_width(.05) - least <= 1


@pytest.mark.parametrize('cost', [Cost(epsilon=Fraction(1, 3)),
                                  Cost(rho=Fraction(2, 7))])
def test_noise_costs_what_it_was_calibrated_to(cost):
  sizes = {'l1_sensitivity': 6, 'l2_sensitivity_squared': 20}
  assert noise.calibrated(cost, **sizes).cost(**sizes) == cost
  assert Cost.from_json(cost.to_json()) == cost
  assert cost.divided(4) == Cost(**{
      name: value / 4 for name, value in vars(cost).items() if value})


def test_closed_forms_of_the_noise():
  sizes = {'l1_sensitivity': 6, 'l2_sensitivity_squared': 20}
  assert noise.calibrated(Cost(epsilon=Fraction(1, 2)), **sizes).scale == 12
  assert noise.calibrated(Cost(rho=Fraction(1, 2)), **sizes).variance == 20


@pytest.mark.parametrize('epsilon', [Fraction(1, 1000), Fraction(1), Fraction(9)])
def test_concentrated_budget_is_met_and_used(epsilon):
  delta = Fraction(1, 10**6)
  rho = costs.concentrated(epsilon=epsilon, delta=delta, adjacency=_AR).rho
  spent = costs.epsilon([Cost(rho=rho)], delta=delta, adjacency=_AR)
  assert .999 * epsilon < spent <= epsilon
  assert rho > notions.zcdp_from_approx_target(notions.ApproxDP(
      epsilon=float(epsilon), delta=1e-6)).rho * .99


def test_spending_adds_up():
  tenth = Cost(epsilon=Fraction(1, 10))
  assert costs.epsilon([], delta=Fraction(0), adjacency=_AR) == 0
  assert costs.epsilon([tenth] * 10, delta=Fraction(0), adjacency=_AR) == 1
  delta = Fraction(1, 10**5)
  # Two pure releases add up; many compose better, and never worse.
  assert .1999 < costs.epsilon([tenth] * 2, delta=delta,
                               adjacency=_AR) <= Fraction(1, 5)
  many = costs.epsilon([tenth] * 400, delta=delta, adjacency=_AR)
  events = accounting.repeated_event(tenth.event(_AR), 400)
  assert accounting.epsilon(events, delta=1e-5, adjacency=_AR) < many < 20
  gaussian = Cost(rho=Fraction(1, 8))
  assert costs.epsilon([gaussian], delta=Fraction(0), adjacency=_AR) == math.inf
  pair = costs.epsilon([gaussian, gaussian], delta=delta, adjacency=_AR)
  assert pair == costs.epsilon([Cost(rho=Fraction(1, 4))], delta=delta,
                               adjacency=_AR)
  # Two Gaussian releases of deviation 2 cost no less than the exact epsilon.
  assert pair >= accounting.epsilon(accounting.repeated_event(
      accounting.gaussian_event(noise_multiplier=2.0), 2), delta=1e-5,
      adjacency=_AR)


@pytest.mark.parametrize('bad', [{}, {'epsilon': Fraction(0)},
                                 {'rho': Fraction(-1)},
                                 {'choices': (Fraction(1), Fraction(0))}])
def test_costs_are_checked(bad):
  with pytest.raises(ValueError, match='cost'):
    Cost(**bad)


def _lattice(lower, upper, granularity):
  return lattice.Lattice(lower=Decimal(lower), upper=Decimal(upper),
                         granularity=Decimal(granularity))


@pytest.mark.parametrize('text, index', [
  ('0.24', 0), ('0.25', 1), ('-0.25', 0), ('-0.26', -1), ('1e400', 7),
  ('-1e999999', -5), ('inf', 7), ('-inf', -5), ('1e-999999999', 0),
  ('-1e-999999999', 0), ('0e999999', 0), (' 10.0e-1 ', 2), (3.25, 7),
  (True, 2), (2**70, 7), (0.1 + 0.2, 1), ('0.74999999999999999999999', 1),
  ('1e99999999999999999999', 7), ('-1E+99999999999999999999', -5),
  ('1e-99999999999999999999', 0), ('0e99999999999999999999', 0),
  ('9' * 100_000, 7), ('-' + '9' * 100_000, -5), ('0.' + '9' * 100_000, 2),
  ('0.7' + '4' * 100_000, 1), ('1' + '0' * 100_000 + 'e-100000', 2),
  ('.5', 1), ('5.', 7), ('+1', 2), ('0' * 100_000 + '1', 2),
])
def test_numbers_on_the_lattice(text, index):
  points = _lattice('-2.5', '3.5', '0.5')
  assert points.index(lattice.number(text)) == index


@pytest.mark.parametrize('text', ['', 'NA', 'nan', 'sNaN', float('nan'), None,
                                  b'1', '1,5', '1_0', '0x1', '\u0661', '.',
                                  '1e', 'e5', '1 2', '1' * 99_999 + 'x'])
def test_what_is_no_number(text):
  assert lattice.number(text) is None


def test_nearest_multiples_are_those_of_fractions():
  points = _lattice('-7', '11', '0.3')
  generator = np.random.default_rng(0)
  for value in generator.uniform(-9, 13, 300):
    exact = min(max(Fraction(value), -7), 11) / Fraction(3, 10)
    index = points.index(lattice.number(float(value)))
    assert abs(exact - index) <= Fraction(1, 2)
    assert points.low <= index <= points.high


@pytest.mark.parametrize('lower, upper, power', [
  ('0', '1', -6), ('0', '100', -4), ('-1', '0.5', -6), ('0', '0.999', -7),
  ('0', '3e9', 3)])
def test_default_granularity(lower, upper, power):
  granularity = lattice.default_granularity(Decimal(lower), Decimal(upper))
  assert granularity == Decimal((0, (1,), power))


@pytest.mark.parametrize('bad', [('1', '1', '1'), ('2', '1', '1'),
                                 ('0', '1', '0'), ('0', '1', '2')])
def test_lattices_are_checked(bad):
  with pytest.raises(ValueError, match='must be'):
    _lattice(*bad)


@pytest.mark.parametrize('text', ['x', 'nan', 'inf', '1e61', '1e-999999999',
                                  '1' * 70])
def test_public_numbers_are_checked(text):
  with pytest.raises(ValueError, match='^upper must'):
    lattice.public_number('upper', text)
