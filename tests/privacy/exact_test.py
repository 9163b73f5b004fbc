"""Tests exact samplers by enumerating decisions and by chi-square."""

import decimal
import fractions
import heapq
import math
import random

import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import exact

Fraction = fractions.Fraction


def _below(seed):
  return random.Random(seed).randrange


def _fits(draws, weights):
  """Returns the p-value of integers under weights by
  value; tails are joined."""
  masses = {z: w for z, w in weights.items()}
  total = math.fsum(masses.values())
  kept = [z for z, w in masses.items() if len(draws) * w / total >= 8]
  counts = np.array([np.sum(draws == z) for z in kept])
  wanted = len(draws) * np.array([masses[z] for z in kept]) / total
  rest = len(draws) - counts.sum(), len(draws) - wanted.sum()
  if rest[1] > 1:
    counts, wanted = np.append(counts, rest[0]), np.append(wanted, rest[1])
  return stats.chisquare(counts, wanted * counts.sum() / wanted.sum()).pvalue


class _Undecided(Exception):
  """Another decision is needed, with these probabilities."""


def _enumerate(monkeypatch, coin, prob_of, draw, *, rest=1e-3):
  """Returns probabilities of the values of `draw(below)`, except `rest` in all.

  Every uniform integer and every coin of the sampler of this name is tried with
  every value, likely branches first.
  """
  masses, queue, mass, left = {}, [(-1.0, ())], 1.0, None

  def decide(probs):
    try:
      return next(left)
    except StopIteration:
      raise _Undecided([float(prob) for prob in probs]) from None

  monkeypatch.setattr(exact, coin, lambda x, below: bool(
      decide([1 - prob_of(x), prob_of(x)])))
  for _ in range(20_000):
    if mass < rest:
      return masses
    weight, given = heapq.heappop(queue)
    left = iter(given)
    try:
      value = draw(lambda n: decide([1 / n] * n))
    except _Undecided as error:
      for k, prob in enumerate(error.args[0]):
        if prob:
          heapq.heappush(queue, (weight * prob, (*given, k)))
      continue
    masses[value] = masses.get(value, 0) - weight
    mass += weight
  raise AssertionError(f'{mass} is left')


@pytest.mark.parametrize('rate', [Fraction(0), Fraction(1, 3), Fraction(2)])
def test_law_of_coins_by_enumeration(monkeypatch, rate):
  probs = _enumerate(monkeypatch, 'bernoulli', float,
                     lambda below: exact.bernoulli_exp(rate, below))
  assert probs.get(True, 0) == pytest.approx(math.exp(-rate), abs=2e-3)


@pytest.mark.parametrize('draw, weight', [
  (lambda below: exact.discrete_laplace(Fraction(1, 2), below),
   lambda z: math.exp(-2 * abs(z))),
  (lambda below: exact.discrete_laplace(Fraction(3, 2), below),
   lambda z: math.exp(-abs(z) / 1.5)),
])
def test_law_of_noise_by_enumeration(monkeypatch, draw, weight):
  rest = 4e-2
  probs = _enumerate(monkeypatch, 'bernoulli_exp', lambda x: math.exp(-x), draw,
                     rest=rest)
  total = sum(weight(z) for z in range(-50, 51))
  for z in range(-50, 51):
    wanted = weight(z) / total
    assert wanted - rest <= probs.get(z, 0) <= wanted + 1e-12


@pytest.mark.parametrize('rate', [Fraction(0), Fraction(1, 7), Fraction(1),
                                  Fraction(5, 2), Fraction(31, 10)])
def test_coins_of_exponentials(rate):
  below = _below(1)
  heads = sum(exact.bernoulli_exp(rate, below) for _ in range(8_000))
  assert stats.binomtest(heads, 8_000, math.exp(-rate)).pvalue > 1e-5


@pytest.mark.every(3)
@pytest.mark.parametrize('scale', [Fraction(1, 3), Fraction(1), Fraction(7, 2),
                                   Fraction(1_000_003, 250_000)])
def test_discrete_laplace(scale):
  below = _below(2)
  draws = np.array([exact.discrete_laplace(scale, below)
                    for _ in range(8_000)])
  weights = {z: math.exp(-abs(z) / scale) for z in range(-200, 201)}
  assert _fits(draws, weights) > 1e-5
  a = math.exp(-1 / scale)
  assert draws.var() == pytest.approx(2 * a / (1 - a)**2, rel=0.1)


@pytest.mark.every(3)
@pytest.mark.parametrize('variance', [Fraction(1, 4), Fraction(1),
                                      Fraction(50, 7), Fraction(400)])
def test_discrete_gaussian(variance):
  below = _below(3)
  draws = np.array([exact.discrete_gaussian(variance, below)
                    for _ in range(8_000)])
  weights = {z: math.exp(-z * z / (2 * float(variance)))
             for z in range(-400, 401)}
  assert _fits(draws, weights) > 1e-5


def test_a_wrong_law_is_found():
  below = _below(4)
  draws = np.array([exact.discrete_laplace(Fraction(2), below)
                    for _ in range(8_000)])
  assert _fits(draws, {z: math.exp(-abs(z) / 2.3)
                       for z in range(-200, 201)}) < 1e-3


def test_the_system_is_asked_by_default():
  assert isinstance(exact.discrete_gaussian(Fraction(3)), int)
  assert len({exact.discrete_laplace(Fraction(10**30)) for _ in range(5)}) == 5


@pytest.mark.parametrize('call', [
  lambda: exact.discrete_laplace(Fraction(0)),
  lambda: exact.discrete_gaussian(Fraction(-1)),
  lambda: exact.bernoulli_exp(Fraction(-1)),
  lambda: exact.choice([1], [0], Fraction(0)),
  lambda: exact.choice([0, 0], [0, 0], Fraction(1)),
  lambda: exact.choice([-1, 2], [0, 0], Fraction(1)),
  lambda: exact.choice([], [], Fraction(1))])
def test_bad_input_is_refused(call):
  with pytest.raises(ValueError, match='must be|at least 0'):
    call()


@pytest.mark.every(5)
@pytest.mark.parametrize('rate', [Fraction(0), Fraction(1, 10**9),
                                  Fraction(2, 3), Fraction(1), Fraction(77, 2)])
@pytest.mark.parametrize('bits', [8, 128, 200])
def test_exponentials_between_integers(rate, bits):
  low, high = exact.exp_between(rate, bits)
  with decimal.localcontext(prec=120):
    value = (-decimal.Decimal(rate.numerator) / rate.denominator).exp()
    assert low <= value * 2**bits <= high <= low + 3


@pytest.mark.every(2)
def test_choice_is_proportional():
  weights, scores = [3, 0, 1, 1000, 5], [0, 0, 2, 9, -1]
  rate = Fraction(4, 5)
  below = _below(5)
  draws = np.array([exact.choice(weights, scores, rate, below)
                    for _ in range(2_000)])
  pairs = enumerate(zip(weights, scores, strict=True))
  expected = {i: w * math.exp(-rate * s) for i, (w, s) in pairs if w}
  assert set(draws) <= set(expected)
  assert _fits(draws, expected) > 1e-5


@pytest.mark.parametrize('above, index', [(0, 0), (1, 1)])
def test_choice_asks_for_more_bits_where_the_answer_is_open(above, index):
  with decimal.localcontext(prec=200):
    boundary = int(2**512 / (1 + decimal.Decimal(-1).exp())) + above
  bits = iter([boundary >> 128 * k & 2**128 - 1 for k in (3, 2, 1, 0)])
  asked = []

  def below(n):
    asked.append(n)
    return next(bits, 0)

  assert exact.choice([1, 1], [0, 1], Fraction(1), below) == index
  assert len(asked) >= 4
