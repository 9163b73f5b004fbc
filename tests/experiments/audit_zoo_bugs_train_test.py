"""These tests show the faults of training and synthetic data in the audit zoo.

Each bug has an event that refutes its claim on the worst pair, and that does
not refute it for the fixed twin. Where the true epsilon follows from the change
of a sum, both are measured on the releases themselves.
"""

import jax
import numpy as np
import pytest
from scipy import stats

from experiments.audit_zoo import registry
from experiments.audit_zoo import training

_NUM_RUNS = 2**16
# A true claim exceeds this at one point of its curve with probability 1e-9, at
# any of the at most a few hundred points with probability below 1e-6.
_LOUD = 6.0

# For each bug an event of the outputs [n, d].
_EVENTS = dict(
    accumulated_batches=lambda y: y[:, 0] > 0.8,
    batch_norm=lambda y: y[:, 0] > 3.6,
    best_of_runs=lambda y: y[:, 0] > 0,
    budget_spent_twice=lambda y: (y > 1).all(axis=1),
    central_limit_accountant=lambda y: y[:, 0] > 2,
    clipped_by_layer=lambda y: y.sum(axis=1) > 8,
    clipped_mean=lambda y: y[:, 0] > 0,
    clipped_microbatches=lambda y: y[:, 0] > 0,
    configured_batch_size=lambda y: y[:, 0] > 0.5,
    counts_as_probabilities=lambda y: y[:, 0] > 7.5,
    domain_of_data=lambda y: y[:, -1] == 0,
    drawn_batch_size=lambda y: y[:, 0] > 0.5,
    entries_without_noise=lambda y: y[:, 0] == 1,
    floor_batch_size=lambda y: np.square(y).sum(axis=1) > 11,
    ignored_clip_norm=lambda y: y[:, 0] > 0.5,
    l2_for_l1_scores=lambda y: y[:, 0] == 0,
    lipschitz_batch_maximum=lambda y: y[:, 0] > 3.5,
    mean_gradient_left_in=lambda y: y[:, 0] > 1e3,
    median_clip_norm=lambda y: y[:, 0] == 0,
    nan_gradient=lambda y: np.isnan(y).any(axis=1),
    noise_scale_of_zero=lambda y: y[:, 0] == 1,
    range_of_data=lambda y: y[:, 0] == 0,
    reused_key=lambda y: np.abs(y[:, 1] - y[:, 0]) < 0.5,
    # Below 1/2, numbers that are no multiples of 2^-24.
    secure_mode_normal=lambda y: (np.abs(y[:, 0]) < 0.5) & (
        y[:, 0] * 2**24 % 1 != 0),
    shuffled_batches=lambda y: (y > 0.5).any(axis=1),
    skipped_empty_batch=lambda y: y[:, 0] == 0,
    unused_clipped_copy=lambda y: y[:, 0] > 1e3,
    weighted_sampler=lambda y: y[:, 0] > 0.5,
)
# Bugs that no epsilon holds for and whose event never happens on one side.
_IMPOSSIBLE = ('domain_of_data', 'entries_without_noise', 'median_clip_norm',
               'mean_gradient_left_in', 'nan_gradient', 'noise_scale_of_zero',
               'range_of_data', 'reused_key', 'secure_mode_normal',
               'unused_clipped_copy')
# Bugs that add Gaussian noise to a sum, with the claimed noise multiplier.
_SUMS = dict(batch_norm=3.0, clipped_by_layer=2.0, clipped_mean=8.0,
             clipped_microbatches=2.0, ignored_clip_norm=2.0,
             lipschitz_batch_maximum=3.0)


def _rates(bug, fixed, event):
  """Returns the rates of an event on both sides of the worst pair."""
  target = bug.given_pair(fixed)
  keys = jax.random.split(jax.random.key(17))
  return [event(target.draw(key, data, _NUM_RUNS)).mean()
          for key, data in zip(keys, bug.worst[:2], strict=True)]


def _standard_errors(curve, rates):
  """Returns the largest excess over the claim in standard errors.

  The event and its complement are tried, on both sides.
  """
  worst = -np.inf
  for likely, other in (rates, rates[::-1]):
    for p, q in ((likely, other), (1 - likely, 1 - other)):
      growth = np.exp(np.minimum(curve.epsilons, 30.0))
      # Half a count keeps the variance positive where nothing was counted.
      variance = [max(rate * (1 - rate), 0.5 / _NUM_RUNS) for rate in (p, q)]
      error = np.sqrt((variance[0] + growth**2 * variance[1]) / _NUM_RUNS)
      excess = p - growth * q - curve.deltas
      worst = max(worst, float(np.max(excess / error)))
  return worst


@pytest.mark.every(9)
@pytest.mark.parametrize('name', sorted(_EVENTS))
def test_event_refutes_the_bug_and_not_its_fixed_twin(name):
  bug, event = registry.load(name), _EVENTS[name]
  curve = bug.given_pair(False).curve
  faulty = _rates(bug, False, event)
  assert _standard_errors(curve, faulty) > _LOUD
  assert _standard_errors(curve, _rates(bug, True, event)) < _LOUD
  if name in _IMPOSSIBLE:
    assert bug.true_epsilon == np.inf
    assert min(faulty) == 0 and max(faulty) > 0.1


def _noise_and_changes(release, pairs):
  """Returns the noise's deviation, and the changes [pairs] of a sum.

  The same key draws the same noise, so that differences have none.
  """
  release = jax.jit(release)
  keys = jax.random.split(jax.random.key(3), 2**13)
  data = pairs[0].neighbour
  noisy = np.asarray(jax.vmap(release, (0, None))(keys, data))
  changes = [np.linalg.norm(np.ravel(
      np.float64(release(keys[0], pair.data)) -
      np.float64(release(keys[0], pair.neighbour)))) for pair in pairs]
  return float(noisy.std(axis=0).mean()), np.asarray(changes)


@pytest.mark.parametrize('name', sorted(_SUMS))
def test_true_epsilon_is_that_of_the_measured_change(name):
  bug = registry.load(name)
  noise, change = _noise_and_changes(bug.faulty, [bug.worst])
  # The estimated deviation has a relative standard error below 0.8 %.
  assert training.shift_epsilon(change[0] / noise) == pytest.approx(
      bug.true_epsilon, rel=0.1)


@pytest.mark.every(3)
@pytest.mark.parametrize('name', sorted(_SUMS))
def test_no_legal_record_changes_a_fixed_sum_by_more_than_claimed(name):
  bug = registry.load(name)
  pairs = [bug.worst, *bug.space.pairs()[:40]]
  noise, changes = _noise_and_changes(bug.fixed, pairs)
  assert max(changes) / noise < 1.05 / _SUMS[name]
  # The search has power: it finds a change near the claimed one.
  assert max(changes) / noise > 0.9 / _SUMS[name]


def test_epsilon_of_normals_of_different_widths():
  # One coordinate, by densities on a grid.
  step = 1e-3
  points = np.arange(-40, 40, step)
  expected = training.densities_epsilon(
      stats.norm.pdf(points), stats.norm.pdf(points, scale=1.5), step)
  assert training.widths_epsilon(1.5, 1) == pytest.approx(expected, rel=1e-3)


def test_epsilon_of_densities_is_that_of_a_gaussian():
  step = 1e-3
  points = np.arange(-12, 12, step)
  assert training.densities_epsilon(
      stats.norm.pdf(points), stats.norm.pdf(points, loc=0.5),
      step) == pytest.approx(training.shift_epsilon(0.5), rel=1e-3)


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf, 3e38, 2.0])
def test_safe_clipping_bounds_every_gradient(value):
  gradients = np.float32([[value, 0.0], [value, value]])
  norms = np.linalg.norm(training.safely_clipped(gradients, 1.0), axis=1)
  assert (norms <= 1 + 1e-6).all()
