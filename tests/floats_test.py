"""Tests powers of two of float32 numbers, for every exponent."""

import jax
import numpy as np

from dpjax import floats


def _numbers():
  """Returns floats of all exponents: ends of each binade and some between."""
  exponents = np.arange(255, dtype=np.uint32)[:, np.newaxis] << np.uint32(23)
  mantissas = np.uint32([0, 1, 0x2AAAAA, 0x400000, 0x7FFFFF])
  return (exponents | mantissas).ravel().view(np.float32)


def test_the_largest_power_of_two_below():
  numbers = _numbers()
  _, exponents = np.frexp(numbers.astype(np.float64))
  wanted = np.ldexp(1.0, np.minimum(exponents - 1, 126))
  wanted[numbers < 2.0**-126] = 0
  for function in (floats.power_of_two_below,
                   jax.jit(floats.power_of_two_below)):
    powers = function(numbers)
    assert powers.dtype == np.float32 and powers.shape == numbers.shape
    np.testing.assert_array_equal(np.asarray(powers, np.float64), wanted)


def test_numbers_without_an_exponent():
  np.testing.assert_array_equal(
      floats.power_of_two_below(np.float32([np.inf, np.nan, 0.0, 1e-45])),
      [2.0**126, 2.0**126, 0, 0])
  assert floats.power_of_two_below(0.75) == 0.5


def test_inverses_are_exact():
  powers = np.append(np.ldexp(1.0, np.arange(-126, 127)), 0)
  inverses = floats.inverse_power_of_two(powers.astype(np.float32))
  np.testing.assert_array_equal(np.asarray(inverses, np.float64)[:-1],
                                1 / powers[:-1])
  assert inverses[-1] == 2.0**127


def test_what_is_smaller_may_be_taken_for_zero():
  assert floats.SMALLEST_NORMAL == np.finfo(np.float32).tiny
