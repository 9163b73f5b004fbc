"""Tests dpjax.stats.intervals: exact tails, and intervals of SciPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate
from scipy import stats

from dpjax.stats import intervals


def upper_tail(t, stddev, scale):
  """Returns P(normal + Laplace > t), integrated over the Laplace part."""
  tail, _ = integrate.quad(
    lambda y: stats.laplace.pdf(y) * stats.norm.sf((t - scale * y) / stddev),
    -40, 40, points=[0.0, t / scale], limit=400)
  return tail


@pytest.mark.slow
@pytest.mark.parametrize('confidence', [0.95, 0.999])
def test_half_widths_are_quantiles(confidence):
  """Half-widths are exact quantiles in float32, for all
  ratios of both parts."""
  stddev = np.array([1e-3, 0.1, 0.5, 1.0, 3.0, 10.0, 19.0, 21.0], np.float32)
  units = np.array([1.0, 0.01], np.float32)[:, None]
  half_widths, other = jax.jit(functools.partial(
    intervals.half_width, confidence=confidence))(
      units * stddev, np.broadcast_to(units, (2, 8)))
  for t, s in zip(np.float64(half_widths), np.float64(stddev), strict=True):
    wanted = (1 - confidence) / 2
    assert upper_tail(t, s, 1.0) == pytest.approx(wanted, rel=4e-3)
  # Other units give the same widths.
  np.testing.assert_allclose(other, half_widths * 0.01, rtol=1e-5)


@pytest.mark.parametrize('count', [0, 1, 7, 50])
def test_wilson_is_that_of_scipy(count):
  low, high = stats.binomtest(count, 50).proportion_ci(0.9, 'wilson')
  interval = intervals.binomial(jnp.float32(count / 50), 50, confidence=0.9)
  np.testing.assert_allclose([interval.low, interval.high], [low, high],
                             atol=1e-6)
  plain = intervals.binomial(jnp.float32(count / 50), 50, confidence=0.9,
                             method='wald')
  half = stats.norm.isf(0.05) * np.sqrt(count / 50 * (1 - count / 50) / 50)
  assert float(plain.high - plain.low) == pytest.approx(2 * half, abs=1e-6)


@pytest.mark.parametrize('call, message', [
  (lambda: intervals.normal_quantile(95), 'confidence must lie'),
  (lambda: intervals.half_width(jnp.ones(()), jnp.ones(()), confidence=1.0),
   'confidence must lie'),
  (lambda: intervals.binomial(jnp.zeros(()), 0, confidence=0.5),
   'num_examples must be'),
  (lambda: intervals.binomial(jnp.zeros(()), 1, confidence=0.5, method='bayes'),
   'method must be one of')])
def test_refusals(call, message):
  with pytest.raises(ValueError, match=message):
    call()
