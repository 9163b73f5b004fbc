"""Tests clipped normal records: exact moments, risks, privacy, rounds."""

import math

import jax
import numpy as np
import pytest
from scipy import integrate
from scipy import stats

from dpjax.privacy import accounting
from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.theory.parametric import clipped_normals
from dpjax.theory.parametric import coinpress
from dpjax.theory.parametric import gaussian_noise
from dpjax.theory.parametric import normal_means

_PURE, _ZCDP = notions.PureDP(epsilon=0.7), notions.ZCDP(rho=0.05)
_APPROX = notions.ApproxDP(epsilon=0.8, delta=1e-4)


def _plane(distance, clip, dimension, sigma):
  """Returns moments by integrals along and across the mean."""
  u, step = np.linspace(distance - 9 * sigma, distance + 9 * sigma, 1501,
                        retstep=True)
  q = np.linspace(0, (math.sqrt(dimension - 1) + 9) * sigma, 1501)
  rest = stats.chi.pdf(q / sigma, dimension - 1) / sigma * (q[1] - q[0])
  probs = stats.norm.pdf(u, distance, sigma)[:, None] * step * rest
  norms = np.hypot(u[:, None], q)
  factors = np.minimum(1, clip / np.maximum(norms, 1e-300))
  mean = np.sum(probs * factors * u[:, None])
  return distance - mean, np.sum(probs * np.square(factors * norms)) - mean**2


@pytest.mark.parametrize('case', [(2.0, 3.0, 3, 1.0), (5.0, 4.0, 4, 2.0),
                                  (0.0, 1.0, 6, 0.5), (1.0, 0.2, 3, 1.0)])
def test_moments_are_those_of_integrals_in_the_plane(case):
  distance, clip, dimension, sigma = case
  moments = clipped_normals.moments(distance, clip, dimension=dimension,
                                    sigma=sigma)
  assert moments == pytest.approx(_plane(*case), rel=3e-4, abs=3e-5)


def test_moments_of_one_coordinate():
  grid = lambda power: integrate.quad(
      lambda x: np.clip(x, -1.5, 1.5)**power * stats.norm.pdf(x, 1.0), -8, 10,
      points=[-1.5, 1.5])[0]
  bias, variance = clipped_normals.moments(1.0, 1.5, dimension=1, sigma=1.0)
  assert bias == pytest.approx(1 - grid(1), rel=1e-9)
  assert variance == pytest.approx(grid(2) - grid(1)**2, rel=1e-9)
  mean, square = clipped_normals.excess(0.6, dimension=1, sigma=2.0)
  for power, value in ((1, mean), (2, square)):
    assert value == pytest.approx(2 * integrate.quad(
        lambda x, p=power: (x - 0.6)**p * stats.norm.pdf(x, 0, 2), 0.6, 20)[0])


def test_the_bias_grows_with_the_distance_and_nothing_is_lost_far_in():
  bias, _ = clipped_normals.moments(np.linspace(0, 30, 61), 10.0,
                                    dimension=20, sigma=1.0)
  assert (np.diff(bias) > 0).all()
  assert clipped_normals.moments(1e3, 1100.0, dimension=512, sigma=1.0
                                 ) == pytest.approx((0, 512), abs=1e-9)


def _once(guarantee, clip=3.0, n=30):
  return normal_means.clipped_once(
      num_examples=n, dimension=3, radius=2.0, sigma=1.0, guarantee=guarantee,
      clip=clip)


@pytest.mark.slow
@pytest.mark.parametrize('guarantee', [_PURE, _ZCDP])
def test_simulated_risks_are_the_exact_ones(guarantee):
  estimator, mean = _once(guarantee), np.array([2.0, 0, 0])
  estimates = np.asarray(estimator.simulated(jax.random.key(3), mean,
                                             num_repetitions=4000))
  squares = np.sum(np.square(estimates - mean), -1)
  assert squares.mean() == pytest.approx(
      float(estimator.risk_at(2.0)), abs=4 * squares.std() / 4000**0.5)


def test_what_a_release_costs_is_the_guarantee():
  rounds = (normal_means.Round(9.0, 0.3), normal_means.Round(2.0, 0.7))
  by_budget = {of: normal_means.NormalMean(
      num_examples=30, dimension=3, radius=2.0, sigma=1.0, guarantee=of,
      rounds=rounds) for of in (_PURE, _ZCDP, _APPROX)}
  replace = Adjacency.REPLACE_ONE
  assert accounting.epsilon(by_budget[_PURE].event, delta=1e-12,
                            adjacency=replace) == pytest.approx(0.7, rel=1e-3)
  assert accounting.epsilon(by_budget[_APPROX].event, delta=1e-4,
                            adjacency=replace) == pytest.approx(0.8, rel=2e-3)
  # These are shifts by a record that crosses the ball.
  shifts = [2 * turn.clip / 30 / scale
            for turn, scale in zip(rounds, by_budget[_ZCDP].scales)]
  assert np.sum(np.square(shifts)) / 2 == pytest.approx(0.05)
  level = notions.TotalVariationPrivacy(level=0.3)
  shift = math.sqrt(2 * gaussian_noise.rho(level))
  assert 2 * stats.norm.cdf(shift / 2) - 1 == pytest.approx(0.3)


@pytest.mark.every(2)
def test_a_record_moves_a_round_by_twice_the_clip_at_most():
  silent = normal_means.clipped_once(
      num_examples=4, dimension=2, radius=2.0, sigma=1.0,
      guarantee=notions.ZCDP(rho=1e24), clip=1.5)
  records = np.random.default_rng(0).normal(0, 3, (4, 2))
  several = np.stack([records] * 5)
  several[:, 2] = [[9.0, 0], [-50, 0], [0, 0], [np.nan, 1], [0, np.inf]]
  with jax.enable_x64(True):
    kept = jax.vmap(silent.statistic)(several)
  centres = np.asarray(silent.estimates(jax.random.key(0), kept))
  gaps = np.linalg.norm(np.array(centres)[:, None] - np.array(centres), axis=-1)
  assert gaps.max() == pytest.approx(2 * 1.5 / 4)
  np.testing.assert_allclose(centres[3], centres[2])
  with pytest.raises(ValueError, match='shape'):
    silent.release(jax.random.key(0), records[:3])


def test_the_tuned_clip_and_factor_have_the_least_worst_risk():
  known = dict(num_examples=400, dimension=5, radius=3.0, sigma=1.0,
               guarantee=_PURE)
  best = normal_means.clipped_once(**known)
  others = [normal_means.clipped_once(**known, clip=clip).worst_risk()
            for clip in (1.0, 2.0, 3.0, 4.0, 6.0)]
  assert best.worst_risk() < min(*others, 9.0)
  fine = np.max(best.risk_at(np.linspace(0, 3, 301)))
  assert fine == pytest.approx(best.worst_risk(), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize('case', [
    (1000, 10, 10.0, 0.5, 1.6, 0.15), (1000, 10, 100.0, 0.5, 38, 0.15)])
def test_coinpress_beats_one_round_and_ours_beats_coinpress(case):
  n, d, radius, rho, wanted, within = case
  known = dict(num_examples=n, dimension=d, radius=radius, sigma=1.0,
               guarantee=notions.ZCDP(rho=rho))
  once = normal_means.clipped_once(
      **known, clip=radius + coinpress.tail(d, failure_prob=0.01)).worst_risk()
  mean = np.eye(d)[0] * radius
  risk, error = zip(*(_measured(estimator(**known), mean)
                      for estimator in (coinpress.printed, coinpress.tuned)))
  assert once / risk[0] == pytest.approx(wanted, rel=within)
  bound = coinpress.risk_bound(**known)
  assert risk[1] - 4 * error[1] < bound < 1.05 * risk[0]
  assert risk[1] == pytest.approx(bound, rel=0.25)


def _measured(estimator, mean, repetitions=150):
  estimates = np.asarray(estimator.simulated(jax.random.key(7), mean,
                                             num_repetitions=repetitions))
  squares = np.sum(np.square(estimates - mean), -1)
  return squares.mean(), squares.std() / repetitions**0.5


def test_rounds_start_as_far_from_the_mean_as_the_laws_allow():
  prob = 0.01
  noise = dict(n=50, d=4, sigma=2.0, prob=prob)
  distance = coinpress._error_bound(0.3, guarantee=_ZCDP, **noise)
  assert stats.chi2.sf(distance**2 / (4 / 50 + 0.09), 4) == pytest.approx(prob)
  generator = np.random.default_rng(0)
  sampled = generator.normal(0, 2 / 50**0.5, (40_000, 4))
  far = generator.normal(0, 1, (40_000, 4))
  far *= (0.3 * generator.gamma(4, 1, 40_000)
          / np.linalg.norm(far, axis=-1))[:, None]
  norms = np.linalg.norm(sampled + far, axis=-1)
  distance = coinpress._error_bound(0.3, guarantee=_PURE, **noise)
  assert np.mean(norms > distance) < prob
  assert np.mean(norms > 0.7 * distance) > prob
  # There are so many records that noise causes half of the failures.
  distance = coinpress._error_bound(0.3, guarantee=_PURE,
                                    **dict(noise, n=10**14))
  assert stats.gamma.sf(distance / 0.3, 4) == pytest.approx(prob / 2, rel=1e-4)
  distance = coinpress._error_bound(0.0, guarantee=_PURE, **noise)
  assert stats.chi2.sf(distance**2 / (4 / 50), 4) == pytest.approx(prob / 2)


def test_no_record_is_clipped_before_the_last_round():
  known = dict(num_examples=1000, dimension=10, radius=100.0, sigma=2.0,
               guarantee=_ZCDP)
  estimator, distance = coinpress.tuned(**known), 100.0
  assert len(estimator.rounds) > 2 and estimator.projected
  for turn, scale in zip(estimator.rounds[:-1], estimator.scales[:-1]):
    assert 1000 * stats.chi.sf((turn.clip - distance) / 2, 10) < 1e-7
    stddev = math.hypot(2 / 1000**0.5, scale)
    # The next round starts within this distance, except for rare failures.
    distance = stddev * stats.chi.isf(1e-7, 10)
  far = stats.norm.isf(1e-7)
  assert estimator.rounds[-1].clip > distance + 2 * math.sqrt(10)
  assert estimator.rounds[-1].clip < distance + 2 * (math.sqrt(10) + far)


def test_printed_rounds_are_those_of_the_algorithm():
  estimator = coinpress.printed(num_examples=1000, dimension=10, radius=20.0,
                                sigma=2.0, guarantee=_ZCDP)
  far = coinpress.tail(10, failure_prob=0.01)
  log = math.log(100)
  assert far**2 == pytest.approx(10 + 2 * math.sqrt(10 * log) + 2 * log)
  assert estimator.rounds[0] == (20 + 2 * far, 1 / 8)
  noise = 2 * estimator.rounds[0].clip / 1000 / math.sqrt(2 * 0.05 / 8)
  assert estimator.rounds[1].clip == pytest.approx(
      far * math.hypot(2 / 1000**0.5, noise) + 2 * far)
  assert stats.chi.sf(far, 10) < 0.01


@pytest.mark.parametrize('wrong', [
    dict(radius=0.0), dict(sigma=-1.0), dict(dimension=0),
    dict(guarantee=None), dict(guarantee=notions.PureDP(epsilon=0.0))])
def test_bad_input_is_refused(wrong):
  with pytest.raises(ValueError):
    normal_means.clipped_once(**dict(dict(
        num_examples=10, dimension=2, radius=1.0, sigma=1.0, guarantee=_PURE),
                                     **wrong))


@pytest.mark.parametrize('wrong', [
    dict(rounds=((2.0, -0.5), (1.0, 1.5))), dict(rounds=((2.0, 0.0), (1.0, 1.0))),
    dict(rounds=((-1.0, 1.0),)), dict(rounds=((math.nan, 1.0),)),
    dict(rounds=((math.inf, 1.0),)), dict(rounds=((1.0, 0.7), (1.0, 0.7))),
    dict(shrinkage=math.nan), dict(shrinkage=math.inf)])
def test_rounds_that_spend_what_is_not_there_are_refused(wrong):
  given = dict(num_examples=10, dimension=2, radius=1.0, sigma=1.0,
               guarantee=_PURE, rounds=((1.0, 1.0),)) | wrong
  given['rounds'] = tuple(normal_means.Round(*turn) for turn in given['rounds'])
  with pytest.raises(ValueError, match='rounds must|shrinkage must'):
    normal_means.NormalMean(**given)


@pytest.mark.parametrize('guarantee', [_PURE, _ZCDP], ids=str)
def test_the_bound_of_rounds_counts_all_their_failures(guarantee):
  """Failures count once for all records and once per round but the last."""
  n, d, radius, sigma = 1000, 10, 100.0, 2.0
  known = dict(num_examples=n, dimension=d, radius=radius, sigma=sigma,
               guarantee=guarantee)
  estimator, sampling = coinpress.tuned(**known), d * sigma**2 / n
  many = len(estimator.rounds)
  assert many > 1
  prob = 1e-3 * sampling / (4 * radius**2 * many)
  distance = coinpress._error_bound(estimator.scales[-2], n, d, sigma,
                                    guarantee, prob)
  mean, square = clipped_normals.excess(estimator.rounds[-1].clip - distance,
                                        dimension=d, sigma=sigma)
  squared_bias = square / n + mean**2 * (1 - 1 / n)
  noise = normal_means.noise_risk(estimator.scales[-1], dimension=d,
                                  guarantee=guarantee)
  sure = (math.sqrt(sampling) + math.sqrt(squared_bias))**2 + noise
  assert coinpress.risk_bound(**known) - sure == pytest.approx(
      4 * radius**2 * prob * many, rel=1e-3)
