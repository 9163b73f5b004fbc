"""Tests strategies of correlated noise against matrices and enumeration."""

import itertools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.privacy import accounting
from dpjax.privacy import correlated
from dpjax.privacy import strategies
from dpjax.privacy import tree_strategy
from dpjax.privacy.adjacency import Adjacency

STEPS = 11
STRATEGIES = {
  'none': correlated.square_root(1),
  'square_root': correlated.square_root(4),
  'full_square_root': correlated.square_root(STEPS),
  'inverse': correlated.inverse_square_root(3, STEPS),
  'buffered': strategies.BufferedStrategy((0.9, 0.5), (0.3, 0.2), STEPS),
  'tree': tree_strategy.TreeStrategy(STEPS)}
NAMES = pytest.mark.parametrize('name', STRATEGIES)


def inverse_matrix(strategy, steps=STEPS):
  """Returns C^-1 [T, T], by correlating the T unit vectors as draws."""
  draws = jnp.eye(steps)

  def body(history, inputs):
    draw, step = inputs
    noise, history = strategy.correlate({'a': draw}, history, step)
    return history, noise['a']

  return np.asarray(jax.lax.scan(
      body, strategy.init({'a': draws[0]}),
      (draws, jnp.arange(steps, dtype=jnp.int32)))[1], np.float64)


def patterns(steps, separation):
  """Returns all sets of steps with at least this distance."""
  return [chosen for size in range(1, steps + 1)
          for chosen in itertools.combinations(range(steps), size)
          if all(b - a >= separation for a, b in itertools.pairwise(chosen))]


@NAMES
def test_noise_depends_on_no_later_draw_and_c_is_of_unit_columns(name):
  strategy = STRATEGIES[name]
  inverse = inverse_matrix(strategy)
  assert np.all(np.triu(inverse, 1) == 0)
  matrix = np.linalg.inv(inverse)
  assert np.all(matrix > -1e-6)
  lengths = np.linalg.norm(matrix, axis=0)
  # Lengths are below 1 by the margin, but for float32 errors.
  assert 1 - 3e-6 < lengths.max() < 1 + 3e-7
  if strategy.bands is not None:
    assert np.all(np.abs(np.tril(matrix, -strategy.bands)) < 1e-6)


@pytest.mark.sound
@NAMES
@pytest.mark.parametrize('separation', [1, 2, 3, 4, STEPS])
def test_sensitivities_by_enumeration_of_all_steps(name, separation):
  """No steps and no signs of a record's contributions move C g further."""
  strategy = STRATEGIES[name]
  matrix = np.linalg.inv(inverse_matrix(strategy))
  worst = max(np.linalg.norm(matrix[:, list(chosen)].sum(1))
              for chosen in patterns(STEPS, separation))
  bound = strategy.sensitivity(num_steps=STEPS, separation=separation)
  assert worst <= bound * (1 + 1e-6)
  if name != 'tree' or separation == STEPS:
    assert bound <= worst * (1 + 1e-5)
  else:
    assert bound <= 1.6 * worst
  if separation == STEPS:
    assert bound == pytest.approx(1, abs=1e-5)
  # Contributions of other directions move it less, since C is not negative.
  rng = np.random.default_rng(0)
  for chosen in itertools.islice(patterns(STEPS, separation), 0, None, 7):
    vectors = rng.normal(size=(len(chosen), 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    moved = np.linalg.norm(matrix[:, list(chosen)] @ vectors)
    assert moved <= bound * (1 + 1e-6)


@NAMES
def test_fewer_steps_are_the_first_steps(name):
  strategy = STRATEGIES[name]
  matrix = np.linalg.inv(inverse_matrix(strategy))[:7, :7]
  worst = max(np.linalg.norm(matrix[:, list(chosen)].sum(1))
              for chosen in patterns(7, 3))
  bound = strategy.sensitivity(num_steps=7, separation=3)
  assert worst <= bound * (1 + 1e-6)
  assert bound <= strategy.sensitivity(num_steps=STEPS, separation=3)


@NAMES
def test_deviations_of_steps_and_prefix_sums(name):
  strategy = STRATEGIES[name]
  sums = np.cumsum(inverse_matrix(strategy), 0)
  np.testing.assert_allclose(strategy.prefix_deviations(STEPS),
                             np.linalg.norm(sums, axis=1), rtol=1e-5)
  np.testing.assert_allclose(
      strategy.deviations(STEPS),
      np.linalg.norm(inverse_matrix(strategy), axis=1), rtol=1e-5)


def test_correlated_noise_of_prefix_sums_is_smaller():
  steps = 512
  rms = {name: float(np.sqrt(np.mean(np.square(
      strategy.prefix_deviations(steps))))) for name, strategy in {
          'none': correlated.square_root(1),
          'banded': correlated.square_root(32),
          'full': correlated.square_root(steps),
          'tree': tree_strategy.TreeStrategy(steps),
          'inverse': correlated.inverse_square_root(32, steps)}.items()}
  assert rms['full'] < rms['inverse'] < rms['tree'] < rms['none']
  assert rms['full'] < rms['banded'] < rms['none']
  # Fichtenberger, Henzinger and Upadhyay (2023): about 1 + ln(T) / pi.
  assert rms['full'] == pytest.approx(1 + np.log(steps) / np.pi, rel=0.05)


@pytest.mark.sound
def test_events():
  gaussian = accounting.gaussian_event
  banded, tree = STRATEGIES['square_root'], STRATEGIES['tree']
  whole = dict(noise_multiplier=2.0, num_steps=STEPS, prob=1.0)
  for strategy, separation in ((banded, 2), (banded, 5), (tree, 3)):
    assert correlated.event(strategy, separation=separation, **whole) == (
        gaussian(noise_multiplier=2.0 / strategy.sensitivity(
            num_steps=STEPS, separation=separation)))
  assert correlated.event(banded, noise_multiplier=2.0, num_steps=STEPS,
                          separation=4, prob=0.3) == (
      accounting.poisson_gaussian_event(
          sampling_prob=0.3, noise_multiplier=2.0, num_steps=3))
  # With disjoint columns, three whole steps are a composition of three.
  spent = [accounting.epsilon(event, delta=1e-5,
                              adjacency=Adjacency.ADD_OR_REMOVE_ONE)
           for event in (correlated.event(banded, separation=4, **whole),
                         accounting.repeated_event(
                             gaussian(noise_multiplier=2.0), 3))]
  assert spent[0] <= spent[1] * (1 + 1e-4)
  assert spent[0] >= 0.9 * spent[1]  # The last column is cut off.
  assert correlated.event(banded, noise_multiplier=1.0, num_steps=0,
                          separation=4, prob=1.0) == (
      accounting.composed_event([]))


@pytest.mark.every(6)
@pytest.mark.sound
@pytest.mark.parametrize('prob, separation', [(0.3, 4), (0.5, 5), (1.0, 2)])
def test_events_agree_with_draws_of_the_loss(prob, separation):
  """The record's contributions are equal, in its most frequent steps.

  False alarms: 3 comparisons at 6 standard errors, 6e-9 each.
  """
  strategy, noise, count = STRATEGIES['square_root'], 1.2, 60_000
  matrix = np.linalg.inv(inverse_matrix(strategy))
  steps = np.arange(0, STEPS, separation)
  rng = np.random.default_rng(2)
  # All sets of steps that a record may take part in, and their probabilities.
  taken = np.array(list(itertools.product((0, 1), repeat=len(steps))))
  probs = np.prod(np.where(taken == 1, prob, 1 - prob), 1)
  shifts = taken @ matrix[:, steps].T
  drawn = shifts[rng.choice(len(taken), count, p=probs)]
  outputs = drawn + noise * rng.normal(size=drawn.shape)
  ratios = sum(chance * np.exp((outputs @ shift - shift @ shift / 2) / noise**2)
               for chance, shift in zip(probs, shifts, strict=True))
  event = correlated.event(strategy, noise_multiplier=noise, num_steps=STEPS,
                           separation=separation, prob=prob)
  for epsilon in (0.1, 0.5, 1.0):
    losses = np.maximum(1 - np.exp(epsilon) / ratios, 0)
    error = 6 * np.std(losses) / count**0.5
    bound = accounting.delta_for(event, target_epsilon=epsilon,
                                 adjacency=Adjacency.ADD_OR_REMOVE_ONE)
    assert np.mean(losses) <= bound + error
    # The last columns are cut off; the event of samples does not use this.
    assert bound <= (1.35 if prob < 1 else 1.01) * np.mean(losses) + error


@pytest.mark.parametrize('make, message', [
  (lambda: correlated.event(STRATEGIES['square_root'], noise_multiplier=1.0,
                            num_steps=9, separation=3, prob=0.5),
   'the columns of the strategy reach 4 steps, more than the 3 between'),
  (lambda: correlated.event(STRATEGIES['tree'], noise_multiplier=1.0,
                            num_steps=9, separation=3, prob=0.5),
   'the columns of the strategy reach all steps, more than the 3 between'),
  (lambda: correlated.event(STRATEGIES['tree'], noise_multiplier=1.0,
                            num_steps=STEPS + 1, separation=3, prob=1.0),
   f'the strategy must serve {STEPS + 1} steps, it is made for {STEPS}'),
  (lambda: strategies.BandedStrategy((1.0, 0.5, 0.6)),
   'the first column of a strategy must be positive, and must not increase'),
  (lambda: strategies.BandedStrategy((1.0, -0.5)), 'the first column'),
  (lambda: strategies.BandedStrategy((0.0,)), 'the first column'),
  (lambda: strategies.BandedStrategy((1.0, float('nan'))),
   'coefficients must be finite numbers'),
  (lambda: strategies.InverseBandedStrategy((1.0, 0.5), 5), 'the first column'),
  (lambda: strategies.BufferedStrategy((0.5, 1.0), (0.1, 0.1), 5),
   r'decays must lie in \[0, 1\)'),
  (lambda: strategies.BufferedStrategy((0.5,), (0.1, 0.1), 5),
   'decays and scales must have equal lengths, got 1 and 2'),
  (lambda: strategies.BufferedStrategy((0.5,), (1.5,), 5),
   'the first column')])
def test_refusals(make, message):
  with pytest.raises(ValueError, match=f'^{message}'):
    make()


def test_optimised_strategies_need_an_extra(monkeypatch):
  monkeypatch.setitem(sys.modules, 'jax_privacy', None)
  for make in (lambda: correlated.optimal_banded(2, 8),
               lambda: correlated.optimal_buffered(8, 4)):
    with pytest.raises(ImportError, match=r"pip install 'dpjax\[matrix\]'"):
      make()


@pytest.mark.slow
def test_optimised_strategies():
  pytest.importorskip('jax_privacy')
  steps = 64
  error = lambda strategy, separation: strategy.sensitivity(
      num_steps=steps, separation=separation) * np.sqrt(np.mean(np.square(
          strategy.prefix_deviations(steps))))
  optimal = correlated.optimal_banded(8, steps)
  assert error(optimal, 8) <= error(correlated.square_root(8), 8)
  buffered = correlated.optimal_buffered(steps, steps)
  assert error(buffered, steps) <= 1.05 * error(
      correlated.square_root(steps), steps)
