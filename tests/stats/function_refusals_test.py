"""Tests that functions refuse senseless numbers, naming the argument."""

import math

import numpy as np
import pytest

from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import adaptive
from dpjax.stats.density_methods import bandwidths
from dpjax.stats.density_methods import bases
from dpjax.stats.density_methods import histospline
from dpjax.stats.density_methods import weighted
from dpjax.theory.minimax import cube_bounds
from dpjax.theory.minimax import scores
from dpjax.theory.minimax import sign_vectors
from dpjax.theory.minimax import spheres
from dpjax.theory.minimax import two_points
from dpjax.theory.parametric import clipped_normals
from dpjax.theory.parametric import moment_bounds
from dpjax.theory.parametric import moment_risks
from dpjax.theory.parametric import normal_intervals
from dpjax.theory.parametric import normal_means
from dpjax.theory.parametric import proportion_bounds
from dpjax.theory.parametric import sample_sizes
from dpjax.theory.parametric import studies
from dpjax.theory.parametric import subsampling
from dpjax.theory.parametric import support_bounds
from dpjax.theory.parametric import support_ranks
from dpjax.theory.parametric import truncated_means
from experiments.methods.statistics import compared_densities
from experiments.methods.statistics import density_relaxation as relaxation
from experiments.methods.statistics import doubled_means
from experiments.methods.statistics import projection_tunings
from experiments.methods.statistics import spectral_risks
from experiments.methods.theory import best_channels as oracles
from experiments.methods.theory import conversions
from experiments.methods.theory import couplings
from experiments.methods.theory import density_lower_bounds as lower_bounds
from experiments.methods.theory import density_packings as packings
from experiments.methods.theory import langevin_oracle
from experiments.methods.theory import printed_moments
from experiments.methods.theory import risk_oracles
from experiments.methods.theory import testing
from experiments.methods.theory import thesis_proportions
from experiments.methods.theory import thesis_supports

_PURE, _ZCDP = notions.PureDP(epsilon=0.5), notions.ZCDP(rho=0.1)
_ADD, _ = Adjacency
_N = dict(num_examples=9)
_KNOWN = dict(_N, guarantee=_PURE)
_BALL = dict(_KNOWN, radius=1.0, sigma=1.0)
_CLASS = dict(_N, moment=3.0, radius=1.0)
_WRONG = {'+': (0.0, -1.0, math.nan, math.inf), '-': (-1.0, math.nan, math.inf),
          'u': (0.0, 1.0, math.nan), 'c': ('unknown',)}

# A function, its arguments, and which it checks: integers from a number on, +
# for positive, - for not negative, u for (0, 1), c for names.
DENSITY = [
    (adaptive.adaptive, dict(num_records=9, epsilon=1.0, adjacency=_ADD),
     'c:boundary'),
    (bandwidths.tuned_bins, dict(
        num_records=9, variance=1.0, lipschitz=1.0),
     '1:num_records -:variance -:lipschitz 1:dimension'),
    (bandwidths.printed_bins, dict(num_records=9, budget=1.0),
     '1:num_records 1:dimension'),
    (bases.basis, dict(kind='spline', num_bins=5), '3:num_bins'),
    (bases.adaptive_bins, dict(num_records=9, noise_variance=1.0),
     '1:num_records -:noise_variance'),
    (cube_bounds.bounds, dict(_KNOWN, dimension=1),
     '1:dimension 1:num_examples'),
    (histospline.cumulative, dict(num_bins=5), '3:num_bins'),
    (compared_densities.tent(1.0).masses, dict(num_bins=5), '1:num_bins'),
    (compared_densities.alternating(1).masses, dict(num_bins=5), '1:num_bins'),
    (compared_densities.zigzag, dict(num_bins=5), '1:num_bins'),
    (lower_bounds.pointwise, dict(
        lipschitz=1.0, num_records=9, epsilon=1.0), '+:lipschitz'),
    (lower_bounds.assouad, dict(
        kernel=packings.triangle(), radius=1.0, num_records=9, epsilon=1.0),
     '+:radius'),
    (lower_bounds.cells, dict(
        kernel=packings.sawtooth(), radius=1.0, num_records=9, epsilon=1.0),
     '+:radius'),
    (packings.wave, dict(smoothness=1), '1:smoothness'),
    (packings.smooth, dict(smoothness=1), '1:smoothness'),
    (packings.spike, dict(lipschitz=1.0, centre=0.5, half_width=0.1),
     '+:lipschitz'),
    (packings.bumps, dict(kernel=packings.triangle(), radius=1.0, num_bumps=3,
                          width=0.1), '+:radius 1:num_bumps'),
    (packings.cells, dict(kernel=packings.sawtooth(), radius=1.0, num_cells=3),
     '+:radius 1:num_cells'),
    (packings.lipschitz_maximum, dict(lipschitz=1.0), '-:lipschitz'),
    (projection_tunings.printed_num_functions, dict(
        signal=9.0, num_records=9, smoothness=1, pure=True),
     '+:signal 1:num_records 1:smoothness'),
    (projection_tunings.pinsker_weights, dict(width=3.0, smoothness=1),
     '1:smoothness'),
    (relaxation.rho_of, dict(rule='exact', epsilon=0.5, delta=0.1),
     'c:rule +:epsilon u:delta'),
    (relaxation.noise_multiplier, dict(rho=1.0), '+:rho'),
    (relaxation.printed_relaxation, dict(
        num_records=9, epsilon=0.5, smoothness=1, delta=0.1, adjacency=_ADD),
     'c:rule u:delta'),
    (relaxation.break_even, dict(delta=0.1), 'u:delta'),
    (spectral_risks.constants, dict(smoothness=1.0), '+:smoothness c:taper'),
    (spectral_risks.tuned, dict(num_records=9, smoothness=1.0, lipschitz=1.0,
                          epsilon=1.0, adjacency=_ADD), '+:lipschitz'),
    (weighted.adaptive, dict(num_records=9, rho=1.0, adjacency=_ADD),
     '+:rho 1:num_records')]

MINIMAX = [
    (conversions.group, dict(guarantee=_PURE, size=2), '1:size'),
    (conversions.printed_group, dict(
        guarantee=notions.ApproxDP(epsilon=1.0, delta=0.1), size=2), '1:size'),
    (couplings.product_moments, dict(
        disagreement=0.5, num_examples=9, epsilon=1.0),
     '1:num_examples -:epsilon'),
    (couplings.joint_moments, dict(
        disagreement=0.5, num_examples=9, epsilon=1.0),
     '1:num_examples -:epsilon'),
    (oracles.testing_error, dict(_KNOWN, probs=np.eye(2)), '1:num_examples'),
    (oracles.bayes_risk, dict(_KNOWN, thetas=np.ones(1), prior=np.ones(1)),
     '1:num_examples 2:num_actions'),
    (risk_oracles.proportion, _KNOWN,
     '1:num_examples 2:num_estimates 2:num_proportions'),
    (scores.private, dict(_KNOWN, dimension=1, information=1.0,
                          prior_information=1.0), '1:num_examples'),
    (scores.bound, dict(_KNOWN, dimension=1, information=1.0,
                        prior_information=1.0), '1:num_examples 1:dimension'),
    (scores.proportion, _KNOWN, '1:num_examples'),
    (scores.cosine_information, dict(dimension=1, radius=1.0), '+:radius'),
    (sign_vectors.vectors, dict(_KNOWN, dimension=1),
     '1:num_examples 1:dimension +:radius'),
    (spheres.relative_risk, dict(distance=1, guarantee=_PURE, dimension=2),
     '1:dimension'),
    (testing.le_cam_pure, dict(variation=0.5, num_records=9, epsilon=1.0),
     '-:epsilon'),
    (testing.pair_pure, dict(variation=0.5, num_records=9, epsilon=1.0),
     '-:epsilon'),
    (testing.le_cam_zcdp, dict(variation=0.5, num_records=9, rho=1.0), '-:rho'),
    (testing.fano_pure, dict(variations=np.ones((3, 3)), num_records=9,
                             epsilon=1.0), '-:epsilon'),
    (testing.fano_zcdp, dict(variations=np.ones((3, 3)), num_records=9,
                             rho=1.0), '-:rho'),
    (testing.assouad, dict(separation=1.0, num_bits=2, error=0.1),
     'c:statement'),
    (testing.varshamov_gilbert, dict(num_bits=8, seed=0), '8:num_bits'),
    (two_points.product_error, dict(_KNOWN, variation=0.5), '1:num_examples')]

_STUDY = dict(study=studies.STUDIES['proportion'], target_risk=0.1,
              guarantee=_PURE)
PARAMETRIC = [
    (clipped_normals.moments, dict(distance=1.0, clip=1.0, dimension=1,
                                   sigma=1.0), '1:dimension +:sigma'),
    (langevin_oracle.last_iterate, dict(
        num_examples=9, batch_size=9, replacement=False, strong_convexity=1.0,
        learning_rate=0.1, step_stddev=1.0, start_stddev=1.0, num_steps=1,
        distance=1.0), '1:num_steps +:distance'),
    (moment_bounds.pair, dict(_KNOWN, moment=3.0, radius=1.0),
     '1:num_examples +:radius'),
    (moment_bounds.non_private, dict(_N, radius=1.0), '1:num_examples'),
    (moment_risks.largest_bias, dict(threshold=1.0, moment=3.0, radius=1.0),
     '+:threshold +:radius'),
    (moment_risks.bound, dict(_CLASS, threshold=1.0, noise_factor=0.1),
     '1:num_examples +:radius +:threshold'),
    (moment_risks.best_threshold, dict(noise_factor=0.1, moment=3.0,
                                       radius=1.0), '+:noise_factor +:radius'),
    (moment_risks.worst, dict(_CLASS, threshold=1.0, noise_factor=0.1),
     '1:num_examples +:radius'),
    (moment_risks.tuned, dict(_CLASS, noise_factor=0.1),
     '1:num_examples +:radius'),
    (normal_intervals.tuned, _BALL,
     '1:num_examples +:radius +:sigma u:confidence'),
    (normal_intervals.karwa_vadhan, _BALL,
     '1:num_examples +:radius +:sigma u:confidence'),
    (normal_means.clipped_once, dict(_BALL, dimension=1),
     '1:num_examples 1:dimension +:radius +:sigma'),
    (printed_moments.printed_proposition_2, dict(_CLASS, level=0.1),
     '1:num_examples +:radius +:level'),
    (printed_moments.printed_proposition_4, dict(_CLASS, epsilon=0.1,
                                                 dimension=2),
     '1:num_examples +:radius +:epsilon 2:dimension'),
    (printed_moments.records_needed, dict(epsilon=0.1, dimension=2,
                                          moment=3.0), '+:epsilon'),
    (proportion_bounds.non_private, _N, '1:num_examples'),
    (thesis_proportions.thesis, _KNOWN, '1:num_examples'),
    (thesis_proportions.lower_bound, dict(_N, epsilon=1.0),
     '1:num_examples +:epsilon'),
    (sample_sizes.enough, _STUDY, '+:target_risk'),
    (sample_sizes.too_few, _STUDY, '+:target_risk'),
    (subsampling.subset_size, dict(_N, level=0.5), '1:num_examples -:level'),
    *((function, _N, '1:num_examples') for function in (
        support_bounds.non_private, support_bounds.absolute_non_private,
        support_bounds.bayes)),
    (thesis_supports.thesis, _KNOWN, '1:num_examples'),
    (thesis_supports.two_supports, _N, '2:num_examples'),
    (support_ranks.of_zcdp, dict(_N, rho=1.0), '1:num_examples +:rho'),
    (doubled_means.top_quantile, dict(_N, epsilon=1.0), '1:num_examples +:epsilon'),
    (doubled_means.largest_risk, dict(_N, theta=1.0), '1:num_examples'),
    (doubled_means.largest_absolute_risk, dict(_N, theta=1.0), '1:num_examples'),
    (truncated_means.noise_factor, dict(_KNOWN, noise='l2', dimension=1),
     '1:num_examples 1:dimension')]


@pytest.mark.parametrize('table', [DENSITY, MINIMAX, PARAMETRIC],
                         ids=['density', 'minimax', 'parametric'])
def test_numbers_without_sense_are_refused_by_name(table):
  for function, known, checked in table:
    for word in checked.split():
      kind, name = word.split(':')
      for wrong in _WRONG.get(kind) or (int(kind) - 1, int(kind) + 0.5):
        try:
          with pytest.raises(ValueError, match=f'^{name} must'):
            function(**dict(known, **{name: wrong}))
        except BaseException as error:
          raise AssertionError(
              f'{function.__module__}.{function.__qualname__}: '
              f'{name} = {wrong}') from error
