"""Tests private maximum likelihood by one noisy number per coordinate."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special
from scipy import stats

from dpjax.privacy import accounting
from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.theory.parametric import exponential_families as families
from dpjax.theory.parametric import least_favourable
from dpjax.theory.parametric import likelihood

MODEL = families.Model(dimension=5, radius=1.)
KEY = jax.random.key(3)


def make(kind, num_examples=500, model=MODEL, **changes):
  return kind(num_examples=num_examples, model=model, **changes)


@pytest.mark.every(2)
@pytest.mark.parametrize('size, radius', [(1, 1.), (2, 2.), (3, 1.), (6, .5)])
def test_a_record_moves_the_maximum_by_what_is_charged(size, radius):
  """A record moves the maximum by what is charged (item EXT-OUTPERT).

  By enumeration the sensitivity is attained, and is at most 2 L / (n lambda).
  Coordinates move separately, and those of a record all at once.
  """
  model = families.Model(dimension=2, radius=radius)
  mechanism = make(likelihood.OutputPerturbation, size, model, rho=1.)
  printed = make(likelihood.OutputPerturbation, size, model, rho=1.,
                 printed=True)
  counts = np.arange(size + 1)
  best = model.fit(counts / size)
  steps = [abs(best[k] - best[j]) for k, j in itertools.product(counts, counts)
           if abs(k - j) <= 1]
  largest = max(math.hypot(*pair) for pair in itertools.product(steps, steps))
  assert largest <= mechanism.l2_sensitivity * (1 + 1e-12)
  # Fractions may be anywhere, zeros and ones give multiples of 1/n.
  assert mechanism.l2_sensitivity <= printed.l2_sensitivity
  ends = model.fit(np.array([model.mean(radius) - 1 / size,
                             model.mean(radius)]))
  assert mechanism.l2_sensitivity == pytest.approx(
      math.sqrt(2) * (ends[1] - ends[0]))


def test_noise_costs_what_is_promised():
  """Noise costs what its guarantee states, for shifts 1/n per coordinate."""
  shift = 1 / 500
  pure = make(likelihood.SufficientStatistics,
              guarantee=notions.PureDP(epsilon=.7))
  # For density exp(-||x||_inf / scale) the log-ratio is the shift's norm.
  assert shift / pure.noise == pytest.approx(.7)
  zcdp = make(likelihood.SufficientStatistics, guarantee=notions.ZCDP(rho=.3))
  assert 5 * shift**2 / (2 * zcdp.noise**2) == pytest.approx(.3)
  approx = make(likelihood.SufficientStatistics,
                guarantee=notions.ApproxDP(epsilon=1., delta=1e-5))
  mu = math.sqrt(5) * shift / approx.noise
  assert stats.norm.cdf(mu / 2 - 1 / mu) - math.e * stats.norm.cdf(
      -mu / 2 - 1 / mu) == pytest.approx(1e-5, rel=1e-3)
  output = make(likelihood.OutputPerturbation, rho=.3)
  assert output.l2_sensitivity**2 / (2 * output.noise**2) == pytest.approx(.3)
  one = accounting.epsilon(output.event, delta=1e-5,
                           adjacency=Adjacency.REPLACE_ONE)
  assert one == pytest.approx(accounting.gaussian_epsilon(
      shift=math.sqrt(.6), delta=1e-5), abs=1e-3)
  for estimator in (zcdp, make(likelihood.MinimaxStatistics,
                               guarantee=notions.ZCDP(rho=.3))):
    assert accounting.epsilon(
        estimator.event, delta=1e-5,
        adjacency=estimator.adjacency) == pytest.approx(one)
  assert accounting.epsilon(pure.event, delta=1e-9,
                            adjacency=pure.adjacency) == pytest.approx(
                                .7, abs=1e-3)
  none = make(likelihood.MaximumLikelihood)
  assert accounting.epsilon(none.event, delta=1e-5,
                            adjacency=none.adjacency) == math.inf


@pytest.mark.every(3)
@pytest.mark.parametrize('guarantee', [
    notions.ZCDP(rho=.05), notions.PureDP(epsilon=.4)], ids=['zcdp', 'pure'])
def test_noisy_means_have_the_law(guarantee):
  """Noisy means have the exact distribution; alarms below 1e-5 in all."""
  estimator = make(likelihood.SufficientStatistics, guarantee=guarantee,
                   model=families.Model(dimension=5, radius=30.))
  estimates = estimator.estimates(KEY, np.full((40_000, 5), .5))
  noise = special.expit(np.asarray(estimates)) - .5
  nodes, weights = least_favourable.noise_nodes(guarantee, 5)
  square = estimator.noise**2 * weights @ nodes**2
  exact = 1 if isinstance(guarantee, notions.ZCDP) else 6 * 7 / 3
  assert square == pytest.approx(estimator.noise**2 * exact, rel=1e-3)
  squares = (noise**2).sum(1)
  assert squares.mean() == pytest.approx(
      5 * square, abs=4.5 * squares.std() / 200)
  at = np.array([-1.5, .3, 1.]) * math.sqrt(square)
  below = [weights[nodes * estimator.noise < x].sum() for x in at]
  np.testing.assert_allclose((noise[:, 0, None] < at).mean(0), below, atol=.015)
  across = np.corrcoef(noise[:, 0], noise[:, 1])[0, 1]
  assert abs(across) < 5 / math.sqrt(40_000)


def test_output_perturbation_has_the_law():
  estimator = make(likelihood.OutputPerturbation, rho=4e-4)
  estimates = np.asarray(estimator.estimates(KEY, np.full((20_000, 5), .5)))
  top = stats.norm.sf(1 / estimator.noise)
  assert np.abs(estimates).max() == 1
  assert (estimates == 1).mean() == pytest.approx(
      top, abs=5 * math.sqrt(top / 1e5) + .01 * top)
  inside = np.abs(estimates) < .5 * estimator.noise
  assert inside.mean() == pytest.approx(math.erf(.5 / math.sqrt(2)), abs=.008)


def test_releases_cut_what_they_see():
  estimator = make(likelihood.SufficientStatistics, 4, guarantee=notions.ZCDP(
      rho=1e9))
  data = jnp.array([[9., -4., jnp.nan, 1., 0.], [0., 1., 0., 1., 0.]]
                   + [[0., 1., 1., .5, 0.]] * 2)
  with jax.enable_x64(True):
    estimate = jax.jit(estimator.release)(KEY, data)
  np.testing.assert_allclose(estimate, [-1, 1, 0, 1, -1], atol=1e-4)
  for shape, message in (((3, 5), 'there must be 4 records'), (
      (4, 2), 'records must have 5 coordinates')):
    with pytest.raises(ValueError, match=f'^{message}[^\n]*$'):
      estimator.release(KEY, jnp.zeros(shape))


def test_erratum_25_a_bound_at_every_n():
  """E ||theta_ML - theta||^2 <= d A'' / (n lambda^2), at n = 1 too."""
  for size, theta in itertools.product((1, 5, 60), (0., .6, 1.)):
    counts = np.arange(size + 1)
    prob = special.expit(theta)
    risk = 5 * stats.binom.pmf(counts, size, prob) @ np.square(
        MODEL.fit(counts / size) - theta)
    estimator = make(likelihood.MaximumLikelihood, size)
    assert risk <= estimator.bound(prob * (1 - prob)) * (1 + 1e-9)
  # The limit in distribution is no bound: some risks at its rate are larger.
  wide = families.Model(dimension=1, radius=4.)
  counts = np.arange(41)
  risk = stats.binom.pmf(counts, 40, special.expit(2.)) @ np.square(
      wide.fit(counts / 40) - 2)
  assert risk > 1.2 / (40 * float(wide.variance(2.)))


@pytest.mark.parametrize('kind, changes, message', [
    (likelihood.SufficientStatistics,
     {'guarantee': None}, 'None needs no noise'),
    (likelihood.SufficientStatistics, {'guarantee': notions.ZCDP(rho=0.)},
     'shift of Gaussian noise must be a positive'),
    (likelihood.OutputPerturbation, {'rho': -1.}, 'rho must be a positive'),
    (likelihood.MaximumLikelihood, {'num_examples': 0},
     'num_examples must be an integer'),
    (likelihood.MinimaxStatistics, {'guarantee': notions.ZCDP(rho=1.),
                                    'num_examples': 10**6},
     'num_examples = 1000000 is too large')])
def test_refusals(kind, changes, message):
  with pytest.raises(ValueError, match=f'^{message}[^\n]*$'):
    make(kind, **changes)
