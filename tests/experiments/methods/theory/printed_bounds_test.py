"""These tests contradict printed bounds by examples."""

import math

import numpy as np
import pytest
from scipy import special

from dpjax.privacy.notions import PureDP
from dpjax.theory.minimax import two_points
from experiments.methods.theory import best_channels as oracles
from experiments.methods.theory import packing_bounds
from experiments.methods.theory import printed_bounds as printed
from experiments.methods.theory import testing


def test_pairwise_anchors_bound_no_mechanism():
  """Randomised response errs less than the printed anchor says (E-05)."""
  for many, epsilon, claimed in ((2, 3.0, .2624), (4, 5.0, .1275)):
    error = printed.printed_pairwise_anchor(1 - np.eye(many),
                                            PureDP(epsilon=epsilon))
    assert error == pytest.approx(claimed, abs=6e-5)
    assert error > (many - 1) / (many - 1 + math.exp(epsilon))


def test_the_middle_is_never_as_far_as_a_whole_separation():
  """The middle of two points is half a separation from each (E-07).

  A constant estimate keeps every guarantee, so the printed bound fails.
  """
  known = dict(num_examples=4, guarantee=PureDP(epsilon=0.5))
  chance = packing_bounds.packing(math.log(2), 0.5, **known)
  points, middle = np.array([0.0, 0.3]), 0.15
  far = np.abs(points - middle)
  # The chance of an error of .3 is 0, and of .15 it is 1.
  assert 0 == np.mean(far >= 0.3) < chance <= np.mean(far >= 0.15)
  # The corners of a cube in the largest norm have a risk of .15^2.
  corners = 0.3 * oracles.data_sets(4, 2)
  apart = np.abs(corners[:, None] - corners[None]).max(-1)
  risk = np.mean(np.abs(corners - 0.15).max(-1)**2)
  chance = packing_bounds.packing(math.log(16), 0.01, num_examples=100,
                              guarantee=PureDP(epsilon=0.01))
  assert risk < printed.printed_packing_risk(0.3, chance)
  assert testing.packing(apart, chance) <= risk


def test_fano_with_a_logarithm_in_place_of_a_variation():
  """The printed Fano bound with a logarithm exceeds a true error (E-23).

  The example is response among a thousand hypotheses.
  """
  error = printed.printed_fano(1 - np.eye(1000), num_examples=1, epsilon=8.0)
  assert error > 0.5 > 999 / (999 + math.exp(8))
  assert testing.fano_pure(1 - np.eye(1000), num_records=1, epsilon=8.0) < (
      999 / (999 + math.exp(8)))


def test_many_hypotheses_as_quoted_exceed_guessing():
  """The quoted bound for many hypotheses exceeds guessing (LB-ACH, 3.13)."""
  assert printed.printed_many(2, 0.0, epsilon=1.0) > 1 - 1 / 2
  assert printed.printed_many(9, 0.0, epsilon=1.0) > 1 - 1 / 9
  assert printed.printed_many(9, 3.0, epsilon=0.5) == pytest.approx(
      0.9 * 9 * math.exp(-15))


def test_two_hypotheses_as_quoted_are_loose():
  for n, t, epsilon in ((10, .4, .5), (50, .1, .1)):
    quoted = printed.printed_two(t, num_examples=n, epsilon=epsilon)
    assert quoted == pytest.approx(.45 * math.exp(-10 * epsilon * n * t))
    assert quoted < testing.le_cam_pure(t, num_records=n, epsilon=epsilon)


def test_response_is_the_edge_of_true_bounds():
  """Randomised response attains the true bounds at the counterexamples."""
  for epsilon in (1.0, 3.0, 5.0):
    error = two_points.path_error(1, PureDP(epsilon=epsilon))
    assert error == pytest.approx(special.expit(-epsilon))
