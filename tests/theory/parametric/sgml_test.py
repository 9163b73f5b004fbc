"""Tests DP-SGML: its noise, guarantee, utility and refusals."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from dpjax.privacy import accounting
from dpjax.theory.parametric import exponential_families as families
from dpjax.theory.parametric import sgml
from experiments.methods.statistics import batch_descents

MODEL = families.Model(dimension=5, radius=1.)
KEY = jax.random.key(8)
# Normal records are no family of the package, but give quadratic losses.
QUADRATIC = families.Family('normal', lambda theta: theta, jnp.ones_like)


def make(kind=sgml.Descent, num_examples=500, rho=.5, model=MODEL, **changes):
  return kind(num_examples=num_examples, rho=rho, model=model, **changes)


@functools.cache
def terms(size, dimension, rho, radius):
  """Returns ||theta_K - theta_ML||^2 of 800 runs, printed and exact noise."""
  rng = np.random.default_rng(1)
  model = families.Model(dimension=dimension, radius=radius)
  truth = rng.uniform(-.6 * radius, .6 * radius, (800, dimension))
  means = rng.binomial(size, special.expit(truth)) / size
  by_kind = {}
  for printed in (True, False):
    estimator = make(num_examples=size, rho=rho, model=model, printed=printed)
    errors = np.square(np.asarray(estimator.estimates(KEY, means))
                       - model.fit(means)).sum(1)
    by_kind[printed] = estimator, errors.mean(), errors.std() / math.sqrt(800)
  return by_kind


# (n, d, rho, b) -> (K, privacy term of 150 to 200 runs, 9 d L^2 /
# (rho lambda^2 n^2)).
GOLDEN = {(500, 5, .5, 1.): (26, 1.22e-2, 2.49e-2),
          (2000, 5, .1, 1.): (29, 3.87e-3, 7.78e-3),
          (5000, 20, .5, 1.): (34, 1.93e-3, 3.98e-3),
          (20_000, 20, .05, 1.): (36, 1.21e-3, 2.49e-3),
          (2000, 5, .1, 2.): (54, 1.10e-2, 3.96e-2)}


@pytest.mark.every(2)
@pytest.mark.parametrize('point', GOLDEN)
def test_golden(point):
  """Printed noise has G-12's errors; exact noise is
  smaller, and bounds hold."""
  steps, term, bound = GOLDEN[point]
  estimator, mean, error = terms(*point)[True]
  assert estimator.steps == steps
  assert estimator.printed_utility == pytest.approx(bound, rel=3e-3)
  # A run's deviation is .6 to .3 of the mean in 5 and 20 coordinates.
  spread = .65 * math.sqrt(5 / estimator.model.dimension) / math.sqrt(150)
  assert mean == pytest.approx(term, rel=4 * spread + 4 * error / mean)
  assert mean - 4 * error <= estimator.utility <= estimator.printed_utility
  exact, less, small = terms(*point)[False]
  assert less - 4 * small <= exact.utility
  assert mean > 4 * less


@pytest.mark.parametrize('point', GOLDEN)
def test_the_guarantee_is_exact_and_less_than_printed(point):
  """The last iterate's rho is exact, and 3/8 to 1/2 of the printed one."""
  printed, exact = (terms(*point)[kind][0] for kind in (True, False))
  assert exact.actual_rho == pytest.approx(point[2])
  shorter = (printed.model.diameter / (2 * printed.model.lipschitz))**2
  assert 3 / 8 < printed.actual_rho / point[2] / shorter <= 1 / 2
  saved = (printed.descent.stddev / exact.descent.stddev)**2
  assert saved == pytest.approx(point[2] / printed.actual_rho)
  assert saved > 5
  # Plain composition gives (rho / 4) ln(rho n^2 / d), up to rounding K.
  size, dimension, rho, _ = point
  plain = rho / 4 * math.log(rho * size**2 / dimension)
  assert printed.trajectory_rho / shorter == pytest.approx(plain, rel=.05)
  assert printed.trajectory_rho > 2 * printed.actual_rho


def test_utility_is_that_of_output_perturbation():
  """Utility is (1 - c^K)^2 d^2 / (2 rho lambda^2 n^2) plus the start's rest."""
  for radius, steps in ((1., 3), (1., 40), (3., 100)):
    model = families.Model(dimension=4, radius=radius)
    estimator = make(model=model, num_steps=steps, rho=.07)
    lambd = model.strong_convexity
    kept = 1 - 2 * lambd
    wanted = (4 * kept**(2 * steps) * radius**2 + (1 - kept**steps)**2 * 16
              / (2 * .07 * (lambd * 500)**2))
    assert estimator.utility == pytest.approx(wanted)


@pytest.mark.sound
def test_quadratic_law():
  """Quadratic iterates have the exact normal moments (EST-DPSGML).

  For d = 1 and no projection the variance is s^2 (2 eta / (1 - g^2)) (1 -
  g^(2K)) + 2 s^2 g^(2K) / lambda, the mean (1 - g^K) xbar. Alarms are below
  1e-5.
  """
  model = families.Model(dimension=1, radius=1e6, family=QUADRATIC)
  draw = make(model=model).draw
  steps = sgml.Steps(*map(jnp.float32, (1e6, .4, .4 * 1.3, .9)), jnp.int32(3),
                     jnp.uint32(0), jnp.float32(1))
  iterates = np.asarray(jax.jit(jax.vmap(draw, (0, None, None)))(
      jax.random.split(KEY, 40_000), jnp.full(1, .7), steps))[:, 0]
  mean = .7 * (1 - .6**3)
  variance = (.4 * 1.3)**2 * (1 - .6**6) / (1 - .36) + .81 * .6**6
  assert iterates.mean() == pytest.approx(mean, abs=4.5 * math.sqrt(
      variance / 40_000))
  assert iterates.var() == pytest.approx(variance,
                                         rel=4.5 * math.sqrt(2 / 40_000))


@pytest.mark.sound
@pytest.mark.parametrize('steps', [1, 4, 30])
def test_last_iterates_of_neighbours_differ_by_what_is_claimed(steps):
  """Last iterates on quadratics are normal and spend exactly rho."""
  model = families.Model(dimension=2, radius=1e6, family=QUADRATIC)
  estimator = make(model=model, num_steps=steps)
  with jax.enable_x64(True):
    numbers = jax.tree.map(np.asarray, estimator.parameters)
  assert int(numbers.num_steps) == steps
  kept = 1 - float(numbers.rate)
  iterates = kept**np.arange(steps)
  shift = float(numbers.rate) * iterates.sum() * math.sqrt(2) / 500
  deviation = float(numbers.noise) * math.sqrt(np.square(iterates).sum())
  assert (shift / deviation)**2 / 2 == pytest.approx(estimator.rho)
  assert estimator.event.noise_multiplier == pytest.approx(
      2 * deviation / shift)
  # The start reveals nothing, and there are no batches.
  assert numbers.start == 0 and numbers.threshold == 0


@pytest.mark.sound
def test_a_batch_moves_by_one_record_with_the_chance_that_is_claimed():
  """A record changes one step with the stated chance,
  over all batches of six."""
  estimator = make(batch_descents.BatchDescent, 6, model=families.Model(
      dimension=1, radius=9.), batch_size=2, num_steps=1, rho=.3)
  with jax.enable_x64(True):
    numbers = jax.tree.map(np.asarray, estimator.parameters)
  assert float(numbers.batch_size) == 2
  assert int(numbers.threshold) / 2**32 == pytest.approx(2 / 6)
  data = np.array([0., 1, 1, 0, 1, 1])
  means = lambda data: np.array([
      sum(data[i] - .5 for i in range(6) if batch >> i & 1) / 2
      for batch in range(64)])
  other = np.append(1 - data[0], data[1:])
  changes = float(numbers.rate) * np.abs(means(data) - means(other))
  # Only batches with the record depend on it.
  assert (changes > 0).sum() == 32
  event = estimator.event.event
  assert event.sampling_probability == int(numbers.threshold) / 2**32
  # A replaced record moves the mean by twice one norm, L / m.
  assert event.event.noise_multiplier <= 2 * float(
      numbers.noise) / changes.max()


def test_printed_numbers():
  """Printed numbers are eta = 1 / (2 beta), s^2 = 4 L^2 / (rho lambda n^2)."""
  estimator = make(printed=True)
  share = special.expit(1.)
  lambd = share * (1 - share)
  variance = 4 * 5 * share**2 / (.5 * lambd * 500**2)
  assert estimator.learning_rate == 2
  assert estimator.descent.step_stddev**2 == pytest.approx(4 * variance)
  assert estimator.start_stddev**2 == pytest.approx(2 * variance / lambd)
  batches = make(batch_descents.BatchDescent, printed=True, batch_size=50)
  assert batches.noise_multiplier == pytest.approx(
      2 * 50 * math.sqrt(.25 / lambd) / (500 * math.sqrt(.5)))


def test_small_batches_are_refused_what_is_false_of_them():
  """Batches m < n get no rho-zCDP, and with replacement no event (E-15)."""
  assert make().event.noise_multiplier == pytest.approx(
      2 / math.sqrt(2 * .5))
  small = make(batch_descents.BatchDescent, batch_size=50)
  drawn = make(batch_descents.BatchDescent, batch_size=500, replacement=True)
  for estimator in (small, drawn):
    with pytest.raises(ValueError, match='^rho-zCDP holds for the full batch'):
      _ = estimator.actual_rho
  with pytest.raises(ValueError, match='^batches drawn with replacement have'):
    _ = drawn.event
  assert small.event == accounting.poisson_gaussian_event(
      sampling_prob=round(.1 * 2**32) / 2**32, num_steps=26,
      noise_multiplier=2 * small.noise_multiplier)


@pytest.mark.sound
@pytest.mark.parametrize('replacement', [False, True])
def test_batches_are_of_records(replacement):
  """One noiseless step has the mean and variance of a batch's gradient."""
  model = families.Model(dimension=2, radius=9.)
  estimator = make(batch_descents.BatchDescent, 40, model=model, batch_size=8,
                   num_steps=1, rho=1e12, replacement=replacement)
  data = np.zeros((40, 2))
  data[:5] = 1  # Both coordinates of a record are equal.
  estimates = np.asarray(estimator.estimates(KEY, np.broadcast_to(
      data, (4000, 40, 2)))) / estimator.learning_rate
  np.testing.assert_allclose(estimates[:, 0], estimates[:, 1], atol=1e-5)
  # From theta = 0 it is shares of ones less half the batch size, over 8.
  variance = ((.125 * .875) / 8 if replacement
              else .2 * .8 * 40 * .25 / 8**2)
  assert estimates[:, 0].mean() == pytest.approx(-.375, abs=4.5 * math.sqrt(
      variance / 4000))
  assert estimates[:, 0].var() == pytest.approx(variance, rel=.12)


@pytest.mark.parametrize('changes, message', [
    ({'rho': 0.}, 'rho must be a positive number'),
    ({'rho': 1e-5}, 'rho num_examples.2 must exceed the dimension = 5'),
    ({'num_steps': 0}, 'num_steps must be an integer >= 1'),
    ({'kind': batch_descents.BatchDescent, 'batch_size': 500},
     'batch_size must be below num_examples = 500'),
    ({'kind': batch_descents.BatchDescent, 'batch_size': 0},
     'batch_size must be an integer >= 1')])
def test_refusals(changes, message):
  with pytest.raises(ValueError, match=f'^{message}[^\n]*$'):
    make(**changes)
