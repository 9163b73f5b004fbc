"""These tests compare attacks with float64 loops and with optimal tests.

Pools of K networks and N records whose log-odds are Gaussian: mu_n + d_n for
members, mu_n for others, standard deviation 1.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special
from scipy import stats

from dpjax.audit import attacks
from dpjax.audit import membership

K, N = 60, 1200


def _pool(seed, *, gaps, spread=3., share=.5, num_networks=K, num_records=N):
  """Returns (log-odds [K, N], inclusion [K, N], means [N])."""
  rng = np.random.default_rng(seed)
  means = spread * rng.normal(size=num_records)
  inclusion = rng.random((num_networks, num_records)) < share
  noise = rng.normal(size=(num_networks, num_records))
  return np.float32(means + gaps * inclusion + noise), inclusion, means


def _areas(attack, log_odds, inclusion):
  """Returns the area under the curve of each network, [K]."""
  scores = attacks.each_as_target(attack, log_odds, inclusion).scores
  return np.array([membership.area(membership.roc(*each)) for each in
                   zip(np.asarray(scores), inclusion, strict=True)])


def _close(actual, expected, *, allow=0.):
  """Checks that a mean over networks is within five standard errors."""
  assert np.mean(actual) == pytest.approx(
      expected, abs=allow + 5 * .0167 / math.sqrt(K))


# Attacks are compiled once each, because these functions keep one identity.
LIRA = attacks.lira
OWN = functools.partial(attacks.lira, pooling=0.)
OFFLINE = attacks.lira_offline
RMIA = functools.partial(attacks.rmia, a=.3)


def _small(seed=0, queries=None):
  """Returns 7 networks and 6 records: in all, none, one, or all but one."""
  rng = np.random.default_rng(seed)
  inclusion = rng.random((7, 6)) < .5
  inclusion[:, 0], inclusion[:, 1] = True, False
  inclusion[:, 2] = np.arange(7) == 3
  inclusion[:, 3] = np.arange(7) != 3
  shape = (7, 6) if queries is None else (7, 6, queries)
  log_odds = 2 * rng.normal(size=shape) + inclusion.reshape(
      7, 6, *[1] * (len(shape) - 2))
  return np.float32(log_odds), inclusion


def _one_query(attack):
  """Returns an attack whose score is the mean of its scores on the queries."""
  def over_queries(target, shadows, inclusion, **options):
    if target.ndim == 1:
      return attack(target, shadows, inclusion, **options)
    return np.mean([attack(target[:, a], shadows[..., a], inclusion, **options)
                    for a in range(target.shape[1])], axis=0)
  return over_queries


def _split(shadows, inclusion, record):
  return (shadows[inclusion[:, record], record],
          shadows[~inclusion[:, record], record])


def _pooled_variance(shadows, inclusion, side):
  parts = [_split(shadows, inclusion, n)[side] for n in range(shadows.shape[1])]
  freedom = sum(max(part.size - 1, 0) for part in parts)
  return sum(part.size * part.var() for part in parts if part.size) / freedom


def _loop_variance(part, pooled, pooling):
  if math.isinf(pooling):
    return pooled
  freedom = max(part.size - 1, 0)
  if pooling + freedom == 0:
    return pooled
  squares = part.size * part.var() if part.size else 0.
  return max((pooling * pooled + squares) / (pooling + freedom), 1e-4 * pooled)


@_one_query
def _loop_lira(target, shadows, inclusion, *, pooling):
  parts = [_split(shadows, inclusion, n) for n in range(target.size)]
  gap = np.mean([in_.mean() - out.mean() for in_, out in parts
                 if in_.size and out.size])
  pooled = [_pooled_variance(shadows, inclusion, side) for side in (0, 1)]
  scores = []
  for phi, (in_, out) in zip(target, parts, strict=True):
    mean_in = in_.mean() if in_.size else out.mean() + gap
    mean_out = out.mean() if out.size else in_.mean() - gap
    sds = [math.sqrt(_loop_variance(part, each, pooling))
           for part, each in zip((in_, out), pooled, strict=True)]
    scores.append(stats.norm.logpdf(phi, mean_in, sds[0])
                  - stats.norm.logpdf(phi, mean_out, sds[1]))
  return np.array(scores)


@_one_query
def _loop_offline(target, shadows, inclusion, *, pooling):
  outs = [_split(shadows, inclusion, n)[1] for n in range(target.size)]
  typical = np.mean([out.mean() for out in outs if out.size])
  pooled = _pooled_variance(shadows, inclusion, 1)
  return np.array([
      (phi - (out.mean() if out.size else typical))
      / math.sqrt(_loop_variance(out, pooled, pooling))
      for phi, out in zip(target, outs, strict=True)])


@_one_query
def _loop_rmia(target, shadows, inclusion, *, a, gamma=1., population=None,
               offline=False):
  p = special.expit(shadows)
  outs = [_split(p, inclusion, n)[1] for n in range(target.size)]
  typical = np.mean([out.mean() for out in outs if out.size])
  ratios = []
  for n, phi in enumerate(target):
    in_, out = _split(p, inclusion, n)
    if offline:
      p_out = out.mean() if out.size else typical
      evidence = ((1 + a) * p_out + 1 - a) / 2
    else:
      p_in = in_.mean() if in_.size else a * out.mean() + 1 - a
      p_out = out.mean() if out.size else max((p_in + a - 1) / a, 0.)
      evidence = (p_in + p_out) / 2
    ratios.append(special.expit(phi) / evidence)
  others = ratios if population is None else [ratios[z] for z in population]
  return np.array([np.mean([ratio / other >= gamma for other in others])
                   for ratio in ratios])


def _compare(attack, loop, pool, **options):
  log_odds, inclusion = pool
  scores = jax.jit(functools.partial(attack, **options))(
      log_odds[0], log_odds[1:], inclusion[1:])
  expected = loop(np.float64(log_odds[0]), np.float64(log_odds[1:]),
                  inclusion[1:], **options)
  np.testing.assert_allclose(scores, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.every(3)
@pytest.mark.parametrize('pooling', [0., 2.5, math.inf])
def test_lira_is_the_loop(pooling):
  _compare(attacks.lira, _loop_lira, _small(), pooling=pooling)
  _compare(attacks.lira_offline, _loop_offline, _small(), pooling=pooling)


@pytest.mark.slow
def test_several_queries_are_averaged():
  pool = _small(1, queries=3)
  _compare(attacks.lira, _loop_lira, pool, pooling=1.)
  _compare(attacks.lira_offline, _loop_offline, pool, pooling=1.)
  _compare(attacks.rmia, _loop_rmia, pool, a=.5)
  scores = jax.jit(attacks.loss_threshold)(pool[0][0], pool[0][1:], pool[1][1:])
  np.testing.assert_allclose(
      scores, np.mean(np.log(special.expit(pool[0][0])), axis=-1), rtol=1e-5)


@pytest.mark.every(2)
def test_rmia_is_the_loop():
  population = np.array([1, 2, 4])
  for options in (dict(a=1., gamma=1.3),
                  dict(a=.6, gamma=.8, population=population)):
    _compare(attacks.rmia, _loop_rmia, _small(2), **options)
    _compare(attacks.rmia_offline,
             functools.partial(_loop_rmia, offline=True), _small(2), **options)
  # Many records make ranks show ratios; a fourth were in all networks.
  _compare(attacks.rmia, _loop_rmia, _pool(
      8, gaps=1., share=.75, num_networks=6, num_records=300)[:2], a=.4)


@pytest.mark.every(2)
def test_rmia_tells_ratios_that_probabilities_round_away():
  # Here 1 - p and p are 1e-9 and less, so float32 knows only logarithms. The
  # first record is surer than its shadows, the second less sure.
  target = jnp.array([20., 22., -45., -48.])
  shadows = jnp.tile(jnp.array([[19., 24., -46., -46.]]), (4, 1))
  inclusion = jnp.tile(jnp.array([True, False, True, False])[:, None], (1, 4))
  scores = jax.jit(RMIA)(target, shadows, inclusion)
  np.testing.assert_allclose(scores, [.75, .5, 1., .25])


def test_log_odds_are_the_logit_of_the_true_class():
  rng = np.random.default_rng(0)
  logits = np.float32(rng.normal(size=(3, 8, 5)) * 4)
  labels = rng.integers(0, 5, size=(3, 8))
  log_odds = jax.jit(attacks.log_odds)(logits, labels)
  probs = np.take_along_axis(special.softmax(np.float64(logits), axis=-1),
                             labels[..., None], axis=-1)[..., 0]
  np.testing.assert_allclose(log_odds, special.logit(probs), rtol=2e-5,
                             atol=2e-5)
  sure = jax.jit(attacks.log_odds)(jnp.array([200., -100., 0.]), jnp.array(0))
  np.testing.assert_allclose(sure, 200.)  # where the softmax is 1
  with pytest.raises(ValueError, match='classes must be an integer >= 2'):
    attacks.log_odds(logits[..., :1], labels)


@pytest.mark.slow
@pytest.mark.parametrize('share', [.5, .2])
def test_lira_attains_the_best_area_of_gaussian_scores(share):
  """LiRA reaches the area Phi(d / sqrt 2), up to .01 that few shadows cost."""
  gap = 1.5
  log_odds, inclusion, means = _pool(1, gaps=gap, share=share)
  best = stats.norm.cdf(gap / math.sqrt(2))
  online = _areas(LIRA, log_odds, inclusion)
  assert best - .02 < np.mean(online) < best + .003
  _close(_areas(OFFLINE, log_odds, inclusion), best, allow=.01)
  exact = [membership.area(membership.roc(row - means, kept))
           for row, kept in zip(log_odds, inclusion, strict=True)]
  _close(exact, best)
  # The score is the likelihood ratio itself, not only its order.
  scores = attacks.each_as_target(LIRA, log_odds, inclusion).scores
  truth = gap * (log_odds - means - gap / 2)
  error = np.asarray(scores) - truth
  assert np.median(np.abs(error)) < .5 and abs(np.mean(error)) < .06


@pytest.mark.every(2)
def test_online_beats_offline_beats_one_threshold():
  """Online LiRA beats offline LiRA, and both beat one threshold.

  Half of the records move by 3, half not at all, so the areas have closed
  forms. Online, a still record scores about 0, between members and others
  that move. Offline, it scores as a non-member of any record would.
  """
  gaps = np.where(np.arange(N) % 2 == 0, 3., 0.)
  log_odds, inclusion, _ = _pool(2, gaps=gaps)
  offline_gain, half = stats.norm.cdf(3 / math.sqrt(2)), stats.norm.cdf(1.5)
  _close(_areas(LIRA, log_odds, inclusion), (.5 + offline_gain + 2 * half) / 4,
         allow=.02)
  _close(_areas(OFFLINE, log_odds, inclusion), (.5 + offline_gain) / 2,
         allow=.005)
  _close(_areas(attacks.loss_threshold, log_odds, inclusion),
         (.5 + stats.norm.cdf(3 / math.sqrt(2 * (1 + 9)))) / 2, allow=.01)
  assert (.5 + offline_gain + 2 * half) / 4 > (.5 + offline_gain) / 2 + .05


@pytest.mark.every(2)
def test_variances_of_records_count_where_they_differ():
  """Per-record variances help if half of the records are noisier."""
  rng = np.random.default_rng(3)
  inclusion = rng.random((K, N)) < .5
  sds = np.where(np.arange(N) % 2 == 0, .5, 2.)
  log_odds = np.float32(1. * inclusion + sds * rng.normal(size=(K, N)))
  exact = (log_odds - .5) / sds**2
  best = np.mean([membership.area(membership.roc(*each)) for each in
                  zip(exact, inclusion, strict=True)])
  own = np.mean(_areas(OWN, log_odds, inclusion))
  pooled = np.mean(_areas(LIRA, log_odds, inclusion))
  assert pooled + .02 < own < best + .003 and own > best - .03


@pytest.mark.every(2)
def test_rmia_orders_a_network_by_its_ratios_and_finds_members():
  log_odds, inclusion, _ = _pool(4, gaps=2., spread=1.5)
  best = stats.norm.cdf(2 / math.sqrt(2))
  online = np.mean(_areas(RMIA, log_odds, inclusion))
  offline = np.mean(_areas(functools.partial(attacks.rmia_offline, a=.3),
                           log_odds, inclusion))
  loss = np.mean(_areas(attacks.loss_threshold, log_odds, inclusion))
  assert loss + .02 < min(online, offline) and online < best + .003


@pytest.mark.every(2)
@pytest.mark.parametrize('attack', [LIRA, OWN, OFFLINE, RMIA,
                                    attacks.loss_threshold])
def test_noise_tells_nothing(attack):
  """Without signal every attack has area 1/2 and equal true and false rates.

  This holds where few networks (1 in 5) have a record. Using the target's own
  row would break it: the mean of its side moves towards it.
  """
  log_odds, inclusion, _ = _pool(5, gaps=0., share=.2)
  scores, num_in, num_out = attacks.each_as_target(attack, log_odds, inclusion)
  areas = [membership.area(membership.roc(*each)) for each in
           zip(np.asarray(scores), inclusion, strict=True)]
  # One area has standard deviation sqrt(1201 / (12 * 240 * 960)) = .0208.
  assert abs(np.mean(areas) - .5) < 4.5 * .0208 / math.sqrt(K)
  flagged = np.asarray(scores) > np.quantile(scores, .9)
  tpr, fpr = np.mean(flagged[inclusion]), np.mean(flagged[~inclusion])
  assert abs(tpr - fpr) < 4.5 * math.sqrt(.09 / (.16 * K * N))
  others = inclusion.sum(0)[None] - inclusion
  np.testing.assert_array_equal(num_in, others)
  np.testing.assert_array_equal(num_out, K - 1 - others)


@pytest.mark.every(2)
def test_the_target_knows_nothing_of_its_own_row():
  log_odds, inclusion = _small(3)
  for attack in (OWN, OFFLINE, RMIA):
    jitted = jax.jit(attack)
    scores = np.asarray(
        attacks.each_as_target(attack, log_odds, inclusion).scores)
    for target in range(7):
      flipped = inclusion.copy()
      flipped[target] = ~flipped[target]
      again = attacks.each_as_target(attack, log_odds, flipped).scores
      np.testing.assert_array_equal(again[target], scores[target])
      alone = jitted(log_odds[target], np.delete(log_odds, target, 0),
                     np.delete(inclusion, target, 0))
      np.testing.assert_allclose(alone, scores[target], rtol=1e-5, atol=1e-5)


@pytest.mark.every(2)
def test_queries_that_are_independent_add_up():
  """LiRA on A independent queries of gap d equals one query of gap d sqrt A."""
  rng = np.random.default_rng(6)
  inclusion = rng.random((K, N)) < .5
  log_odds = np.float32(.6 * inclusion[..., None]
                        + rng.normal(size=(K, N, 4)))
  _close(_areas(LIRA, log_odds, inclusion), stats.norm.cdf(1.2 / math.sqrt(2)),
         allow=.02)


def test_without_a_degree_of_freedom_variances_are_one():
  # Two shadows that share no record have neither a variance nor a mean gap.
  shadows = jnp.array([[1., 2., 5.], [0., 3., 1.]])
  inclusion = jnp.array([[True, False, True], [False, True, False]])
  target = np.array([1., 2., 4.], np.float32)
  mean_in, mean_out = np.array([1., 3., 5.]), np.array([0., 2., 1.])
  np.testing.assert_allclose(
      jax.jit(LIRA)(target, shadows, inclusion),
      (np.square(target - mean_out) - np.square(target - mean_in)) / 2,
      atol=1e-6)
  np.testing.assert_allclose(
      jax.jit(OFFLINE)(target, shadows, inclusion), target - mean_out,
      atol=1e-6)


def test_equal_values_are_no_certainty():
  # The first record's shadows agree on each side: its variance is a share of
  # the pooled one, and its score is finite.
  shadows = jnp.array([[1., 3.], [1., 5.], [0., 1.], [0., -1.]])
  inclusion = jnp.tile(jnp.array([True, True, False, False])[:, None], (1, 2))
  scores = jax.jit(OWN)(jnp.array([1., 0.]), shadows, inclusion)
  np.testing.assert_allclose(scores[0], 1 / (2 * 1e-4), rtol=1e-4)


@pytest.mark.slow
def test_many_targets_by_vmap():
  log_odds, inclusion = _small(4)
  targets = jnp.asarray(log_odds[:3])
  shadows, inside = jnp.asarray(log_odds[3:]), jnp.asarray(inclusion[3:])
  for attack in (LIRA, RMIA):
    scores = jax.jit(jax.vmap(attack, (0, None, None)))(targets, shadows,
                                                        inside)
    alone = jax.jit(attack)(targets[1], shadows, inside)
    np.testing.assert_allclose(scores[1], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.every(2)
@pytest.mark.parametrize('change, message', [
    (dict(inclusion=jnp.zeros((2, 4))), 'inclusion must be bool'),
    (dict(inclusion=jnp.zeros((3, 4), bool)), r'got \(4,\), \(2, 4\) and'),
    (dict(target=jnp.zeros(5)), 'target, shadows and inclusion must be'),
    (dict(shadows=jnp.zeros((1, 4)), inclusion=jnp.zeros((1, 4), bool)),
     'shadows must be an integer >= 2'),
    (dict(pooling=-1.), 'pooling must be >= 0'),
])
def test_lira_refuses(change, message):
  good = dict(target=jnp.zeros(4), shadows=jnp.zeros((2, 4)),
              inclusion=jnp.zeros((2, 4), bool))
  with pytest.raises(ValueError, match=message):
    attacks.lira(**{**good, **change})


@pytest.mark.parametrize('change, message', [
    (dict(a=0.), r'a must lie in \(0, 1\]'),
    (dict(gamma=0.), 'gamma must be a positive number'),
])
def test_rmia_refuses(change, message):
  for attack in (attacks.rmia, attacks.rmia_offline):
    with pytest.raises(ValueError, match=message):
      attack(jnp.zeros(4), jnp.zeros((2, 4)), jnp.zeros((2, 4), bool),
             **{**dict(a=.3), **change})


def test_one_network_has_no_shadows():
  with pytest.raises(ValueError, match='networks must be an integer >= 2'):
    attacks.each_as_target(LIRA, jnp.zeros((1, 4)), jnp.zeros((1, 4), bool))
