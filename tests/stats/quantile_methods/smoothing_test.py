"""Tests dpjax.stats.quantile_methods.smoothing: what noise repairs."""

import functools
import itertools
import math

import jax
import numpy as np
import pytest
from scipy import special
from scipy import stats

from dpjax.stats.quantile_methods import independent
from dpjax.stats.quantile_methods import joint
from dpjax.stats.quantile_methods import records
from dpjax.stats.quantile_methods import smoothing
from tests.stats.quantile_methods import pairs

NINTHS = tuple(j / 9 for j in range(1, 9))
ATOM, GAP = 0.5, 0.25
SIDE = (1 - ATOM) / 2


def median(*, epsilon=0.5, lower=-1.0, upper=1.0, adjacency=pairs.REPLACE,
           probs=(0.5,), cost='real'):
  return independent.IndependentQuantiles(
      probs=probs, epsilon=epsilon, lower=lower, upper=upper,
      adjacency=adjacency, cost=cost)


def mixed_quantiles(probs):
  """Returns quantiles with an atom at 1/2 and none else within GAP of it."""
  upper_part = 0.5 + GAP + (probs - SIDE - ATOM) / SIDE * (0.5 - GAP)
  return np.where(probs <= SIDE, probs / SIDE * (0.5 - GAP),
                  np.where(probs <= SIDE + ATOM, 0.5, upper_part))


def noisy_cdf(places, half_width):
  """Returns these quantiles' cdf after noise on [-half_width, half_width]."""
  def integral(x):
    covered = lambda low: np.clip(x - low, 0.0, 0.5 - GAP)
    uniform = lambda low: np.square(covered(low)) / 2 + (0.5 - GAP) * np.maximum(
        x - low - (0.5 - GAP), 0.0)
    return (SIDE / (0.5 - GAP) * (uniform(0.0) + uniform(0.5 + GAP))
            + ATOM * np.maximum(x - 0.5, 0.0))
  return (integral(places + half_width) - integral(places - half_width)) / (
      2 * half_width)


@pytest.mark.every(2)
def test_records_all_alike_leave_the_answer_to_chance():
  answers = pairs.answers(median(), np.zeros(30), 2000)[:, 0]
  assert stats.kstest(answers, stats.uniform(-1, 2).cdf).pvalue > 1e-4
  # For an odd number, rounding the rank down favours one half of the range.
  with jax.enable_x64(True):
    left, right = independent.log_masses(
        records.padded(np.zeros(31), -1.0, 1.0), np.float64(0.5),
        np.float64(0.25), 'rounded')[np.array([0, 31])]
  assert left - right == pytest.approx(0.5 / 2)


@functools.cache
def _compiled():
  def edges_and_masses(noise, data, margin, rate):
    separated = records.separated(data, noise, margin)
    return records.edges(separated), independent.log_masses(
        separated, np.float64(0.9), rate, 'real')
  return jax.jit(jax.vmap(edges_and_masses, (0, None, None, None)))


def densities(noises, data, margin, asked, points):
  """Returns log-densities [permutations, points], given the noise."""
  with jax.enable_x64(True):
    ends, masses = map(np.asarray, _compiled()(
        np.pad(noises, ((0, 0), (0, 32 - noises.shape[1]))),
        records.padded(data, asked.lower, asked.upper), np.float64(margin),
        asked.parameters.rates[0]))
  widths = np.diff(ends)
  rates = np.where(widths > 0, masses - np.log(np.where(
      widths > 0, widths, 1.0)), -np.inf)
  return np.stack([pairs.log_density(*of, points)
                   for of in zip(ends, rates, strict=True)])


@pytest.mark.sound
@pytest.mark.parametrize('adjacency', [pairs.REPLACE, pairs.ADD])
def test_noise_in_any_order_keeps_the_guarantee(adjacency):
  rng = np.random.default_rng(8)
  asked = median(epsilon=1.0, lower=0.0, adjacency=adjacency, probs=(0.9,))
  together, apart = [], []
  for _ in range(25):
    first = np.sort(rng.choice([0.0, 0.25, 0.5, 0.75, 1.0], 5))
    second = first[1:]
    if adjacency is pairs.REPLACE:
      second = np.append(second, rng.choice([0.0, 1.0]))
    noises = np.array(list(itertools.permutations(
        rng.uniform(-1, 1, 5) * rng.choice([0.3, 1.0, 3.0]))))
    points = np.sort(rng.uniform(-3, 4, 60))
    one, other = (densities(noises, data, 3.0, asked, points)
                  for data in (first, second))
    apart.append(np.max(np.abs(one - other)))
    losses = special.logsumexp(one, 0) - special.logsumexp(other, 0)
    together.append(np.max(np.abs(losses)))
  assert max(together) <= 1 + 1e-9
  # A fixed noise does not keep epsilon: sorting gives it to other records.
  assert max(apart) > 1.1


@pytest.mark.parametrize('kind, distribution', [
    ('uniform', stats.uniform(-math.sqrt(3), 2 * math.sqrt(3))),
    ('gaussian', stats.norm()), ('laplace', stats.laplace(0, math.sqrt(0.5)))])
def test_noise_has_its_law_and_separates_all(kind, distribution):
  for lower, upper, atoms in ((0.0, 1e6, (0.0, 0.5, 1e6)),
                              (-1.0, 1.0, (0.0, 0.5, 1.0)),
                              (1e6 - 1, 1e6, (1e6 - 0.5, 1e6))):
    asked = smoothing.Smoothed(kind=kind, inner=median(
        lower=lower, upper=upper, adjacency=pairs.ADD))
    with jax.enable_x64(True):
      data = records.padded(np.resize(atoms, 10_240), lower, upper)
      sigma = asked.parameters.sigma
      noisy, ends = separate(kind)(jax.random.key(9), data, sigma)
    # Gaussian and Laplace tails are clipped to the bounds on both sides.
    inside = noisy[(noisy > ends[0]) & (noisy < ends[1])]
    assert np.unique(inside).size == inside.size > 0.99 * noisy.size
    assert sigma == pytest.approx(1e-6 * (upper - lower) / math.sqrt(3))
  from_atom = noisy[noisy > 0.75] - 1.0  # This is relative to the lower bound.
  noise = from_atom[np.abs(from_atom) < 4.9 * sigma] / sigma
  assert stats.kstest(noise, distribution.cdf).pvalue > 1e-4


@functools.cache
def separate(kind):
  def separated_records(key, data, sigma):
    smoothed = smoothing.smoothed(key, data, sigma, kind)
    return smoothed.ordered, jax.numpy.stack([smoothed.lower, smoothed.upper])
  compiled = jax.jit(separated_records)
  return lambda *args: map(np.asarray, compiled(*args))


@pytest.mark.parametrize('half_width', [0.01, 0.2])
def test_quantiles_move_by_no_more_than_the_noise(half_width):
  probs = np.linspace(0.001, 0.999, 997)
  for share in (1.0, 0.6, 0.05):
    # Noise exceeds t with probability f, symmetric around 1/2.
    t, f = share * half_width, 1 - share
    # F^-1(p) <= u where p <= F(u), and F^-1(p) >= l where F(l) <= p.
    high = probs < 0.999 * (1 - f)
    above = mixed_quantiles(probs[high] / (1 - f)) + t
    assert np.all(noisy_cdf(above, half_width) >= probs[high] - 1e-12)
    low = (1 - probs) < 0.999 * (1 - f)
    below = 1 - mixed_quantiles((1 - probs[low] + 1e-9) / (1 - f)) - t
    assert np.all(noisy_cdf(below, half_width) <= probs[low] + 1e-12)
  # The module's records have that distribution function.
  data = mixed_quantiles(np.random.default_rng(10).uniform(size=10_240))
  with jax.enable_x64(True):
    noisy, _ = separate('uniform')(
        jax.random.key(11), records.padded(data, 0.0, 1.0),
        np.float64(half_width / math.sqrt(3)))
  assert stats.kstest(noisy, noisy_cdf, args=(half_width,)).pvalue > 1e-4


@pytest.mark.slow
def test_atoms_are_answered():
  data = mixed_quantiles(np.random.default_rng(12).uniform(size=(4, 10_000)))
  asked = median(probs=NINTHS, epsilon=1.0, lower=0.0)
  truth = mixed_quantiles(np.array(NINTHS))
  sup = lambda of: np.max(np.abs(pairs.answers(of, data, 4) - truth), 1)
  assert np.max(sup(smoothing.Smoothed(inner=asked))) < 0.02
  assert np.mean(sup(asked)) > 0.1


@pytest.mark.slow
def test_the_joint_mechanism_is_repaired_as_measured():
  data = mixed_quantiles(np.random.default_rng(13).uniform(size=(12, 10_000)))
  truth = mixed_quantiles(np.array(NINTHS))
  asked = joint.JointQuantiles(probs=NINTHS, epsilon=1.0, lower=0.0, upper=1.0,
                               adjacency=pairs.REPLACE)
  sup = lambda of: np.mean(np.max(np.abs(
      pairs.answers(of, data, 12) - truth), 1))
  assert sup(asked) > 0.2  # It is .333 in item QF-26, and .0045 with the floor.
  for kind in smoothing.KINDS:
    assert sup(smoothing.Smoothed(inner=asked, kind=kind)) < 0.008


# Mean squares of item QF-23, with its printed and corrected bounds.
@pytest.mark.slow
@pytest.mark.parametrize('count, measured, slack', [
    (100, 2.8e-3, 5e-5), (200, 1.3e-4, 5e-6)])
def test_medians_of_zeros_are_as_good_as_said(count, measured, slack):
  asked = smoothing.Smoothed(inner=median(epsilon=0.5), floor=1e-12)
  squares = np.square(pairs.answers(asked, np.zeros(count), 3000)[:, 0])
  error = np.std(squares) / math.sqrt(squares.size)
  assert abs(np.mean(squares) - measured) < 4 * error + slack
  printed = 5 * math.exp(-count / 48) + math.exp(-count / 32)
  half_width = math.exp(-count / 96)
  corrected = (2 * math.exp(-count / 32) + 4 * math.exp(-count / 16)
               / half_width + half_width**2)
  assert np.mean(squares) < min(corrected, printed)


def test_noise_as_recommended_is_lost_and_with_a_floor_it_is_not():
  """The recommended noise vanishes in float64, and the floored one does not."""
  with jax.enable_x64(True):
    data = records.padded(np.full(10_000, 0.5), 0.0, 1.0)
    printed = np.float64(math.exp(-10_000 / 48) / math.sqrt(3))
    floored = smoothing.Smoothed(inner=median(
        epsilon=1.0, lower=0.0)).parameters
    sigma = np.maximum(floored.sigma, floored.first * np.exp(
        -floored.decay * 10_000))
    for noise, distinct in ((printed, 1), (sigma, 10_000)):
      noisy, _ = separate('uniform')(jax.random.key(14), data, noise)
      assert np.unique(noisy[:10_000]).size == distinct
  assert 0 < printed < 1e-90 < 1e-7 < sigma < 1e-6


def test_noise_decays_with_a_public_number_of_records_alone():
  public = smoothing.Smoothed(inner=median())
  private = smoothing.Smoothed(inner=median(adjacency=pairs.ADD))
  # Half the width is exp(-n epsilon / 48) on [-1, 1].
  assert public.parameters.first == pytest.approx(1 / math.sqrt(3))
  assert public.parameters.decay == pytest.approx(0.5 / 48)
  assert private.parameters.first == 0.0
  fixed = smoothing.Smoothed(inner=median(), sigma=0.1)
  assert fixed.parameters[:2] == (0.1, 0.0)


def test_it_is_a_mechanism_like_that_inside():
  inner = median(probs=(0.2, 0.7), lower=-2.0, epsilon=0.3)
  asked = smoothing.Smoothed(inner=inner)
  assert asked.event == inner.event and asked.probs == (0.2, 0.7)
  assert (asked.lower, asked.upper, asked.epsilon) == (-2.0, 1.0, 0.3)
  assert asked.draw is smoothing.Smoothed(
      inner=median(epsilon=2.0), sigma=0.1).draw
  assert asked.draw is not smoothing.Smoothed(
      inner=inner, kind='laplace').draw


def test_noise_that_rounding_loses_is_refused():
  for lower, upper in ((0.0, 1.0), (0.0, 7000.0), (1e6, 1e6 + 1)):
    least = np.spacing(upper - lower) / 2
    asked = functools.partial(smoothing.Smoothed, inner=median(
        lower=lower, upper=upper))
    assert asked(sigma=least).sigma == least
    with pytest.raises(ValueError, match='rounds the noise away'):
      asked(sigma=least * 0.99)
  for bad, said in ((dict(sigma=-1.0), 'sigma must be'),
                    (dict(floor=0.0), 'floor must be'),
                    (dict(floor=math.nan), 'floor must be'),
                    (dict(kind='normal'), 'kind must be one of')):
    with pytest.raises(ValueError, match=said):
      smoothing.Smoothed(inner=median(), **bad)
