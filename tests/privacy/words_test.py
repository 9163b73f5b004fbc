"""Tests that numbers of random words are rounded towards privacy.

A randomiser that compares words of 32 bits has probabilities k 2^-32, and k
must be rounded so that no ratio exceeds e^epsilon. Floats come out wrong where
the exact number is next to an integer. Here epsilon is such that it is, a few
units of the last place to either side, and ratios are compared in exact
arithmetic with 60 digits of e^epsilon.
"""

from fractions import Fraction
import math

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from dpjax.privacy import inverse
from dpjax.privacy import local
from experiments.methods.mechanisms import forced_response
from experiments.methods.statistics import local_queries as queries

WORDS = 2**32


def _response(size):
  """Returns the ratio of truth to the rarest other category, and inverses."""
  least = WORDS // size

  def ratio(epsilon, forced=None):
    forced = forced or local.RandomizedResponse(
      num_categories=size, epsilon=epsilon).forced_words
    return 1 + Fraction(forced * WORDS, (WORDS - forced) * least)

  def epsilon(forced):
    return mpmath.log(1 + mpmath.mpf(forced) * WORDS / (
      (WORDS - forced) * least))

  return ratio, epsilon, 1


def _unary(symmetric):
  """Returns the ratio for two unary bits that both flip, and inverses."""
  def ratio(epsilon, own=None):
    words = local.UnaryEncoding(num_categories=2, epsilon=epsilon,
                                symmetric=symmetric).threshold_words
    if own is not None:
      words = (own, WORDS - own) if symmetric else (WORDS // 2, own)
    return Fraction(words[0], WORDS - words[0]) * Fraction(
      WORDS - words[1], words[1])

  def epsilon(own):
    odds = mpmath.log(mpmath.mpf(WORDS - own) / own)
    return -2 * odds if symmetric else odds

  return ratio, epsilon, 1 if symmetric else -1


def _oracle():
  """Returns the ratio of both answers to extreme queries, and inverses."""
  def ratio(epsilon, least=None):
    least = least or queries.LocalOracle(
      num_queries=1, tolerance=1.0, failure_prob=0.5,
      epsilon=epsilon).least_words
    return Fraction(WORDS - least, least)

  return ratio, lambda least: mpmath.log(mpmath.mpf(WORDS - least) / least), -1


RANDOMIZERS = {
  'binary response': (_response(2), (0.2, 0.99)),
  'response of 7': (_response(7), (0.02, 0.9)),
  'symmetric bits': (_unary(True), (0.51, 0.97)),
  'optimised bits': (_unary(False), (0.01, 0.49)),
  'oracle': (_oracle(), (0.01, 0.49))}


def _near(number, epsilon_of):
  """Yields floats around the epsilon at which this word count is exact."""
  value = float(epsilon_of(number))
  for _ in range(3):
    value = math.nextafter(value, 0)
  for _ in range(7):
    yield value
    value = math.nextafter(value, math.inf)


@pytest.mark.sound
@pytest.mark.parametrize('name', RANDOMIZERS)
def test_no_ratio_exceeds_what_is_claimed(name):
  (ratio, epsilon_of, _), (low, high) = RANDOMIZERS[name]
  rng = np.random.default_rng(0)
  with mpmath.workdps(60):
    for number in rng.uniform(low * WORDS, high * WORDS, 25).astype(int):
      for epsilon in _near(int(number), epsilon_of):
        claimed = mpmath.exp(mpmath.mpf(epsilon))
        realised = ratio(epsilon)
        assert realised.numerator <= claimed * realised.denominator


@pytest.mark.sound
@pytest.mark.parametrize('name', RANDOMIZERS)
def test_no_word_more_is_given_away(name):
  """A tenth of the way to the next jump, the number of
  words is the best one."""
  (ratio, epsilon_of, sign), (low, high) = RANDOMIZERS[name]
  rng = np.random.default_rng(1)
  with mpmath.workdps(60):
    for number in rng.uniform(low * WORDS, high * WORDS, 10).astype(int):
      number = int(number)
      start, end = (epsilon_of(number + sign * step)
                    for step in (0, 1))
      inside = float(start + (end - start) / 10)
      assert ratio(inside) == ratio(inside, number)


def test_forced_answers_are_rounded_up():
  """Forced words round up, also where the float product is too small."""
  for prob in np.random.default_rng(2).uniform(0.01, 0.99, 200):
    for value in (prob, math.nextafter(round(prob * WORDS) / WORDS, 1.0)):
      forced = forced_response.ForcedYes(yes_prob=float(value)).forced_words
      exact = Fraction(float(value)) * WORDS
      assert exact <= forced < exact + 1


def test_points_of_the_lattice():
  """Values go to the nearest cell end, ties to even,
  outside ones to a bound."""
  data = np.array([-np.inf, -9., 2., 2.25, 2.5, 2.75, 3.49, 3.51, 3.99, 4., 7.,
                   np.inf, np.nan], np.float32)
  places = inverse.on_lattice(jnp.asarray(data), lower=2.0, upper=4.0,
                              num_cells=4)
  wanted = np.round((np.clip(data, 2, 4) - 2) * 2)
  wanted[-1] = 0
  np.testing.assert_array_equal(places, wanted)
  assert places.dtype == jnp.int32
