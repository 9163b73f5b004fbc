"""Tests releases with given noise: values and intervals by formulas."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special
from scipy import stats

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import frequencies
from dpjax.stats import intervals
from dpjax.stats import means as mean
from experiments.methods.statistics import polls
from tests import coupling

ADD, REPLACE = Adjacency
KEY = jax.random.key(0)
Z = stats.norm.isf(0.05)


def released(mechanism, data, noise):
  """Returns what a mechanism releases with this standard noise, as float64."""
  with coupling.Tape(jnp.asarray(noise, jnp.float32)).as_noise():
    return [np.float64(part) for part in mechanism.release(KEY, data)]


def half_width(stddev, scale, confidence=0.9):
  """Returns the 90 % half-width of a normal plus a Laplace part, by halving."""
  assert confidence == 0.9

  def tail(t):
    place, ratio = t / stddev, stddev / scale
    logs = np.array([ratio**2 / 2 - t / scale + special.log_ndtr(place - ratio),
                     ratio**2 / 2 + t / scale
                     + special.log_ndtr(-place - ratio)])
    return special.ndtr(-place) + (np.exp(logs[0]) - np.exp(logs[1])) / 2
  low, high = 0.0, 50 * (stddev + scale)
  for _ in range(60):
    middle = (low + high) / 2
    low, high = (middle, high) if tail(middle) > 0.05 else (low, middle)
  return low


@pytest.fixture
def widths(monkeypatch):
  """Replaces the library's half-widths by those written here."""
  monkeypatch.setattr(intervals, 'half_width', lambda *args, **kwargs: (
      np.vectorize(half_width)(*map(np.float64, args), **kwargs)))


def test_widths_are_those_of_exact_tails():
  """Widths match exact tails near the switch to the normal, and far away."""
  stddev = np.array([0.01, 0.3, 1.0, 4.0, 19.0, 20.5, 30.0])
  half_widths = intervals.half_width(jnp.asarray(stddev, jnp.float32),
                                     jnp.ones(7), confidence=0.9)
  grid = np.linspace(-60, 60, 240_001)
  weights = np.exp(-np.abs(grid)) * (grid[1] - grid[0]) / 2
  for t, s in zip(np.float64(half_widths), stddev, strict=True):
    tail = np.sum(weights * special.ndtr((grid - t) / s))
    assert tail == pytest.approx(0.05, rel=1e-3)
    assert half_width(s, 1.0) == pytest.approx(t, rel=5e-4)


# Records, those that count, and their values clipped to [-1, 3].
RECORDS = [([9.0, -7.0, math.nan, 0.5, 2.0], [3, -1, 0.5, 2]),
           ([0.25], [0.25]), ([math.nan, math.nan], []),
           ([3.0] * 40, [3.0] * 40)]


def spread(value, size):
  """Returns the largest variance of records in [-1, 3] with this mean.

  The mean is first moved off the ends of the range.
  """
  margin = min(4 / size, 2)
  inside = np.clip(value, -1 + margin, 3 - margin)
  return (inside + 1) * (3 - inside)


@pytest.mark.every(2)
@pytest.mark.usefixtures('widths')
@pytest.mark.parametrize('interval', mean.INTERVALS)
def test_means_of_a_public_number(interval):
  for data, kept in RECORDS:
    size = len(data)
    mechanism = mean.BoundedMean(num_examples=size, lower=-1.0, upper=3.0,
                                 epsilon=0.8, confidence=0.9, interval=interval)
    # Missing records count as the lower bound, -1.
    exact = (sum(kept) - (size - len(kept))) / size
    for noise in (0.7, -3.0):
      value, low, high = released(mechanism, jnp.asarray(data), [noise])
      scale = 4 / (size * 0.8)
      assert value == pytest.approx(exact + scale * noise, rel=1e-5, abs=1e-5)
      variance = spread(value, size) / size
      half = (half_width(math.sqrt(variance), scale) if interval == 'exact'
              else Z * math.sqrt(variance + 2 * scale**2))
      np.testing.assert_allclose(
          [low, high], np.clip([value - half, value + half], -1, 3), rtol=1e-3,
          atol=1e-4)


def test_means_of_a_private_number():
  mechanism = mean.PrivateSizeMean(lower=-1.0, upper=3.0, epsilon=0.8,
                                   count_share=0.25, confidence=0.9)
  first, second = 2 / 0.6, 1 / 0.2
  for data, kept in RECORDS:
    for noise in ((0.7, 0.4), (-0.2, 1.5), (4.0, -9.0), (-4.0, -0.1)):
      value, low, high = released(mechanism, jnp.asarray(data), noise)
      total = sum(np.array(kept) - 1) + first * noise[0]
      count = max(1.0, len(kept) + second * noise[1])
      offset = np.clip(total / count, -2, 2)
      assert value == pytest.approx(offset + 1, rel=1e-5, abs=1e-5)
      # This is a quotient's variance, by its slopes in sum and count.
      variance = spread(value, count) / count + (
          2 * first**2 + offset**2 * 2 * second**2) / count**2
      half = Z * math.sqrt(variance)
      np.testing.assert_allclose(
          [low, high], np.clip([value - half, value + half], -1, 3), rtol=1e-4,
          atol=1e-4)


@pytest.mark.every(1)
@pytest.mark.usefixtures('widths')
@pytest.mark.parametrize('kind', ['laplace', 'gaussian'])
@pytest.mark.parametrize('adjacency', [ADD, REPLACE])
def test_frequencies(kind, adjacency):
  data = np.array([0] * 30 + [2] * 9 + [-1, 3], np.int32)
  known = data.size if adjacency is REPLACE else None
  mechanism = getattr(frequencies, kind)(
      num_categories=3, adjacency=adjacency, num_examples=known,
      confidence=0.9, **{'epsilon' if kind == 'laplace' else 'rho': 0.5})
  sensitivity = 1 if adjacency is ADD else 2
  # Two counts move by 1, so by 2 in l1 and sqrt(2) in l2.
  scale = sensitivity / 0.5 if kind == 'laplace' else math.sqrt(sensitivity)
  noise_variance = 2 * scale**2 if kind == 'laplace' else scale**2
  for noise in ([0.5, 1.5, -0.3], [-2.0, -1.0, 1.0], [-16.0, -9.0, -9.0]):
    value, low, high = released(mechanism, jnp.asarray(data), noise)
    noisy = np.array([30, 0, 9]) + scale * np.array(noise)
    total = known or max(noisy.sum(), 1.0)
    share = noisy / total
    np.testing.assert_allclose(value, share, rtol=1e-5, atol=1e-5)
    inner = np.clip(share, 1 / (total + 1), 1 - 1 / (total + 1))
    sampling = inner * (1 - inner) / total
    if known is None:
      # Slopes of a share of the sum in its own noise and in all others.
      slopes = (np.eye(3) - share[:, None]) / total
      half = Z * np.sqrt(sampling + noise_variance * np.square(slopes).sum(1))
    elif kind == 'gaussian':
      half = Z * np.sqrt(sampling + noise_variance / total**2)
    else:
      half = np.vectorize(half_width)(np.sqrt(sampling), scale / total)
    np.testing.assert_allclose(low, np.clip(share - half, 0, 1), rtol=1e-3,
                               atol=1e-4)
    np.testing.assert_allclose(high, np.clip(share + half, 0, 1), rtol=1e-3,
                               atol=1e-4)


def test_variances_of_polls_are_those_of_their_slopes():
  """Poll variances are the delta method's, by numerical slopes."""
  step, people, others = 1e-4, 700, 300
  drowned = lambda either, other: (either - other) / (1 - other)
  for prob, other in ((0.1, 0.5), (0.6, 0.2)):
    either = prob + other - prob * other
    slopes = [(drowned(either + step * (place == 0), other + step * place)
               - drowned(either - step * (place == 0), other - step * place))
              / (2 * step) for place in (0, 1)]
    wanted = sum(slope**2 * share * (1 - share) / size for slope, share, size in
                 zip(slopes, (either, other), (people, others), strict=True))
    assert polls.variance_drowned(prob, other, people, others) == pytest.approx(
        wanted, rel=1e-6)
    # The interval is computed on the scale of ln(1 - p).
    counts = np.array([round(people * either), people])
    estimates = polls.proportion_drowned(
        counts, people, num_other_yes=round(others * other),
        num_other_examples=others, confidence=0.9)
    # If nobody says no, half a person is counted.
    no = np.maximum(1 - counts / people, 0.5 / people)
    spread_ = np.sqrt((1 - no) / (people * no)
                      + other / (others * (1 - other)))
    np.testing.assert_allclose(estimates.value, drowned(counts / people, other),
                               atol=1e-5)
    for end, sign in ((estimates.low, 1), (estimates.high, -1)):
      np.testing.assert_allclose(end, np.clip(1 - no / (1 - other) * np.exp(
          sign * Z * spread_), 0, 1), atol=1e-5)
