"""Tests integers from a secret: uniform, repeatable, separate streams."""

import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import exact
from dpjax.release import streams

pytestmark = pytest.mark.every(1)


def _stream(secret=bytes(range(32)), context=b'a'):
  return streams.SecretStream(secret, context)


def test_a_stream_is_repeated_and_no_other_is_like_it():
  draws = [[below(2**64) for _ in range(3000)] for below in (
      _stream(), _stream(), _stream(bytes(32)), _stream(context=b'b'))]
  assert draws[0] == draws[1]
  rest = draws[1:]
  assert len({value for each in rest for value in each}) == 9000


def test_blocks_do_not_matter():
  """Draws read one string of bytes in order, whatever their sizes."""
  one, other = _stream(), _stream()
  together = one(2**(8 * 20_000)).to_bytes(20_000)
  assert together == b''.join(other(2**80).to_bytes(10) for _ in range(2000))


@pytest.mark.parametrize('n', [2, 3, 10, 97, 128, 129, 257])
def test_integers_are_uniform(n):
  """Integers and pairs are uniform by chi-square; the
  test fails once in 10^6."""
  counts = np.bincount([value for value in map(_stream(), [n] * 40_000)],
                       minlength=n)
  assert len(counts) == n
  assert stats.chisquare(counts).pvalue > 1e-6
  # Pairs are uniform, too, so draws do not depend on earlier ones.
  below = _stream(context=b'pairs')
  if n < 20:
    pairs = np.bincount([below(n) * n + below(n) for _ in range(40_000)],
                        minlength=n * n)
    assert stats.chisquare(pairs).pvalue > 1e-6


def test_one_value_takes_nothing_and_none_is_refused():
  below, same = _stream(), _stream()
  assert [below(1) for _ in range(5)] == [0] * 5
  assert below(2**32) == same(2**32)
  for bad in (0, -1):
    with pytest.raises(ValueError, match='n must be at least 1'):
      below(bad)
  with pytest.raises(ValueError, match='a secret has 32 bytes, got 31'):
    _stream(bytes(31))


def test_noise_from_a_secret_has_its_law():
  """Noise is discrete Laplace of scale 2; the test fails once in 10^6."""
  below = _stream(context=b'noise')
  draws = np.array([exact.discrete_laplace(exact.Fraction(2), below)
                    for _ in range(8000)])
  z = np.arange(-8, 9)
  masses = np.exp(-np.abs(z) / 2)
  masses *= np.tanh(1 / 4)
  counts = np.array([np.sum(draws == each) for each in z])
  counts = np.append(counts, len(draws) - counts.sum())
  masses = np.append(masses, 1 - masses.sum())
  assert stats.chisquare(counts, masses * len(draws)).pvalue > 1e-6
