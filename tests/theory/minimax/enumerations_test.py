"""Tests bounds in second ways: all events, all channels, limits at 0."""

import itertools
import math

import numpy as np
import pytest
from scipy import special

from dpjax.privacy import notions
from dpjax.theory.minimax import concentrated
from dpjax.theory.minimax import disclosure
from dpjax.theory.minimax import sign_vectors
from dpjax.theory.minimax import two_points
from experiments.methods.theory import conversions
from experiments.methods.theory import definitions
from experiments.methods.theory import groups
from experiments.methods.theory import packing_bounds
from experiments.methods.theory import proportion_tests
from experiments.methods.theory import similarities
from experiments.methods.theory import testing

_PURE, _APPROX = notions.PureDP, notions.ApproxDP


@pytest.mark.every(1)
@pytest.mark.parametrize('mass', [0.0, 0.2, 0.5])
def test_events_count_if_both_laws_give_them_the_mass(mass):
  """The conditional distance is the largest over all events of enough mass."""
  rng = np.random.default_rng(0)
  subsets = [list(s) for size in range(1, 6)
             for s in itertools.combinations(range(5), size)]
  for _ in range(5):
    p, q = rng.dirichlet(np.full(5, 0.4), 2)
    largest = 0.0
    for given in subsets:
      if min(p[given].sum(), q[given].sum()) >= mass:
        gaps = p[given] / p[given].sum() - q[given] / q[given].sum()
        largest = max(largest, gaps[gaps > 0].sum())
    assert definitions.conditional_of_events(p, q, mass=mass) == pytest.approx(
        largest)


def _largest_correlation(probs, channel):
  """Returns the largest correlation of functions of record and release."""
  joint = probs[:, None] * channel
  joint = joint[:, joint.sum(0) > 0]
  return np.linalg.svd(joint / np.sqrt(np.outer(joint.sum(1), joint.sum(0))),
                       compute_uv=False)[1]


def _response(size, epsilon):
  weights = np.where(np.eye(size), math.exp(epsilon), 1.0)
  return weights / weights.sum(1, keepdims=True)


@pytest.mark.every(1)
@pytest.mark.parametrize('size', [2, 3, 12])
@pytest.mark.every(1)
@pytest.mark.parametrize('epsilon, delta', [(0.01, 0.1), (0.5, 1e-3), (3, 0.3)])
def test_no_release_correlates_more_with_a_record(size, epsilon, delta):
  """Randomised response and revealing draws stay within
  the correlation bound."""
  response = _response(size, epsilon)
  leaking = np.hstack([delta * np.eye(size), (1 - delta) * response])
  telling = np.hstack([delta * np.eye(size), np.full((size, 1), 1 - delta)])
  shift = math.log(response[0, 0] / response[0, 1])
  rho = shift * math.tanh(shift / 2)
  kept = [(_PURE(epsilon=epsilon), response), (notions.ZCDP(rho=rho), response),
          (_APPROX(epsilon=epsilon, delta=0.0), response),
          (_APPROX(epsilon=epsilon, delta=delta), leaking),
          (notions.TotalVariationPrivacy(level=delta), telling),
          (None, np.eye(size))]
  for probs in (np.full(size, 1 / size), np.arange(1, size + 1) / (
      size * (size + 1) / 2)):
    for guarantee, channel in kept:
      most = _largest_correlation(probs, channel)
      assert most <= disclosure.correlation(guarantee) + 1e-9
      assert most**2 <= disclosure.pull(guarantee) + 1e-9
      if size == 2:
        apart = np.sum(np.square(channel[0] - channel[1])
                       / np.maximum(channel.sum(0), 1e-300)) / 2
        assert apart <= disclosure.discrimination(guarantee) + 1e-9


def test_weaker_packing_bounds_stay_below_the_mixture():
  """Weaker packing bounds stay below the mixture bound for random numbers."""
  rng = np.random.default_rng(1)
  for _ in range(150):
    n, weight = int(rng.integers(1, 30)), float(rng.uniform(0.02, 1))
    size = math.log(rng.choice([2, 5, 1000]))
    guarantee = _APPROX(epsilon=float(rng.choice([0, 0.1, 0.7, 3, 20])),
                        delta=float(rng.choice([0, 1e-4, 0.02])))
    known = dict(num_examples=n, guarantee=guarantee)
    most = packing_bounds.mixture(size, weight, **known) + 1e-9
    assert packing_bounds.packing(size, weight, **known) <= most
    assert packing_bounds.packing_lemma(size, weight, **known) <= most
    # It is at most the chance that no record of the mixture is present.
    if guarantee.epsilon == 20:
      assert packing_bounds.packing(size, weight, **known) <= (
          1 - weight)**n + 1e-6


@pytest.mark.every(1)
@pytest.mark.parametrize('delta', [0.0, 0.003])
def test_bounds_of_no_epsilon_are_limits(delta):
  """Bounds at epsilon = 0 are the limits, though their formulas differ."""
  apart = 0.3 * (1 - np.eye(4))
  distances = 5 * (1 - np.eye(4))

  def values(epsilon):
    guarantee = _APPROX(epsilon=epsilon, delta=delta)
    known = dict(num_examples=40, guarantee=guarantee)
    return [packing_bounds.packing(2.0, 0.3, **known),
            packing_bounds.packing_lemma(2.0, 0.3, **known),
            packing_bounds.around(2.0, 0.3, **known),
            packing_bounds.mixture(2.0, 0.3, **known),
            packing_bounds.pairs(apart, **known),
            packing_bounds.pairwise(apart, **known),
            similarities.pairs(distances, guarantee),
            similarities.star(distances[0], guarantee),
            similarities.projection_anchor(distances, guarantee)]
  assert values(0.0) == pytest.approx(values(1e-8), abs=1e-6)


def test_the_best_centre_decodes_and_distances_cost():
  """Decoding uses the hub near all others, and distances cost as stated."""
  hub = 6 - 6 * np.eye(5)
  hub[0, 1:] = hub[1:, 0] = 2
  for guarantee in (_PURE(epsilon=0.1), notions.ZCDP(rho=0.01)):
    nats = groups.divergence(2, guarantee) * 4 / 5
    assert similarities.decoding(hub, guarantee) == pytest.approx(
        testing.decoding(nats, math.log(5)))
  for delta in (0.0, 1e-3):
    guarantee = _APPROX(epsilon=0.2, delta=delta)
    assert similarities.global_anchor(hub[1], guarantee) == pytest.approx(
        0.8 * math.exp(-1.2) - 6 * delta * math.exp(-0.2))


@pytest.mark.every(1)
@pytest.mark.parametrize('n, level', [(1, 0.01), (50, 1e-3), (1000, 1e-6)])
def test_what_total_variation_takes_off_vectors_of_signs(n, level):
  """Total variation lowers the bound by 2 delta sup |f| for each record."""
  widths = np.linspace(0.01, 0.99, 99)
  kept = []
  for width in widths:
    corners = itertools.product((-1, 1), (-width, width), (-width, width),
                                np.linspace(-width, width, 21))
    most = max(abs((m - c) * (x - theta) / (1 - theta**2))
               for x, m, c, theta in corners)
    kept.append(max(0.0, 1 - n * 2 * level * most))
  wanted = np.max(np.square(widths / math.pi * kept))
  guarantee = notions.TotalVariationPrivacy(level=level)
  bound = sign_vectors.vectors(dimension=1, num_examples=n, guarantee=guarantee)
  free = sign_vectors.vectors(dimension=1, num_examples=n, guarantee=None)
  assert bound == pytest.approx(max(wanted, free), rel=1e-6)


def test_data_sets_are_equal_or_differ_in_all_records():
  """At total variation t, the two-point error is linear in t."""
  t = np.array([0.0, 0.25, 1.0])
  for guarantee in (_PURE(epsilon=0.2), _APPROX(epsilon=0.2, delta=0.01),
                    notions.ZCDP(rho=0.01), None,
                    notions.TotalVariationPrivacy(level=0.05)):
    for n in (1, 2, 7):
      apart = float(two_points.path_error(n, guarantee))
      assert two_points.error(t, num_examples=n, guarantee=guarantee
                              ) == pytest.approx(0.5 + t * (apart - 0.5))


def test_events_of_no_mass_are_the_limit_of_rare_ones():
  for delta, level in ((0.0, math.tanh(0.35)), (0.01, 1.0)):
    guarantee = _APPROX(epsilon=0.7, delta=delta)
    for mass in (0.0, 1e-9):
      conditioned = conversions.conditional(guarantee, mass=mass)
      assert conditioned.level == pytest.approx(level)
      assert conditioned.mass == mass


def test_paths_of_any_length_are_cut_into_whole_records():
  """Paths have 2 or 8 steps, each rounded up to whole records."""
  rho, d = 0.02, np.array([2, 3, 7, 9])
  wanted = [special.expit(-concentrated.logit(
      rho * np.square(steps * np.ceil(d / steps)), steps)) for steps in (2, 8)]
  assert concentrated.path_error(d, rho) == pytest.approx(
      np.max(wanted, 0), rel=3e-3)


def test_counts_of_nothing_and_of_all_are_the_ends_of_a_path():
  n = 6
  for size in (0.1, 0.7):
    assert proportion_tests.best_error(n, (0.0, 1.0), epsilon=size) == (
        pytest.approx(two_points.path_error(n, _PURE(epsilon=size))))
    root = n * math.sqrt(size)
    assert proportion_tests.gaussian_error(n, (0.0, 1.0), rho=size) == (
        pytest.approx(special.ndtr(-root / math.sqrt(2)), rel=1e-5))
    assert proportion_tests.ramp_error(n, (0.0, 1.0), rho=size) == (
        pytest.approx(special.expit(-concentrated.limit_logit(root / 2)),
                      rel=1e-5))
