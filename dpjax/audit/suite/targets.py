"""All audit targets by name.

A target is built when it is requested. A mechanism that declares its event,
adjacency and bounds needs nothing else (`wrapping.of_mechanism`).
"""

from collections.abc import Callable, Mapping
import functools
import math
from typing import Any

import numpy as np
from scipy import stats

from dpjax.audit import auditor
from dpjax.audit import canary
from dpjax.audit import spaces
from dpjax.audit import wrapping
from dpjax.audit.suite import adaptive
from dpjax.audit.suite import density
from dpjax.audit.suite import ecdf
from dpjax.audit.suite import estimators
from dpjax.audit.suite import features
from dpjax.audit.suite import methods
from dpjax.audit.suite import quantiles
from dpjax.audit.suite import showcases
from dpjax.audit.target import Noise
from dpjax.audit.target import Target
from dpjax.features.normalisation import PrivateNormalisation
from dpjax.features.whitening import PrivateWhitening
from dpjax.privacy import additive
from dpjax.privacy import discrete
from dpjax.privacy import inverse
from dpjax.privacy import k_norm
from dpjax.privacy import laplace
from dpjax.privacy import local
from dpjax.privacy import selection
from dpjax.privacy import smooth
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import ZCDP
from dpjax.stats.density_methods import adaptive as adaptive_densities
from dpjax.stats.density_methods import cubes
from dpjax.stats.density_methods import hierarchies
from dpjax.stats.density_methods import histograms
from dpjax.stats.density_methods import merging
from dpjax.stats.density_methods import projections
from dpjax.stats.density_methods import sparse
from dpjax.stats.density_methods import spectral
from dpjax.stats.density_methods import stages
from dpjax.stats.density_methods import weighted
from dpjax.stats.ecdf_methods import dyadic
from dpjax.stats.ecdf_methods import streams
from dpjax.stats.ecdf_methods import toeplitz
from dpjax.stats.ecdf_methods import trees
from dpjax.stats.quantile_methods import histogram
from dpjax.stats.quantile_methods import independent
from dpjax.stats.quantile_methods import joint
from dpjax.stats.quantile_methods import recursive
from dpjax.stats.quantile_methods import smoothing
from dpjax.theory.parametric import coinpress
from dpjax.theory.parametric import exponential_families
from dpjax.theory.parametric import likelihood
from dpjax.theory.parametric import noisy_shares
from dpjax.theory.parametric import normal_intervals
from dpjax.theory.parametric import normal_means
from dpjax.theory.parametric import sgml
from dpjax.theory.parametric import support_ranks
from dpjax.theory.parametric import supports
from dpjax.theory.parametric import truncated_means

Auditable = Target | canary.Game | canary.LossGame
Maker = Callable[..., Any]

Fields = dict[str, Any]
"""Fields of a mechanism by name, which are joined to build it."""

_AR: Fields = dict(adjacency=Adjacency.ADD_OR_REMOVE_ONE)
_RO: Fields = dict(adjacency=Adjacency.REPLACE_ONE)
_RECORDS = 5
_RANGE: Fields = dict(lower=0.0, upper=1.0)
_UNIT: Fields = dict(record_norm=1.0, epsilon=1.0)


def _pure(mechanism: Any) -> Target:
  """Returns the target of a mechanism with pure differential privacy."""
  return wrapping.of_mechanism(mechanism, delta=0.0)


def _of_records(mechanism: Any) -> Target:
  """Returns the target of a mechanism on `_RECORDS` numbers in [0, 1]."""
  return wrapping.of_mechanism(
      mechanism, delta=0.0, log_probs=None, space=spaces.Records(
          adjacency=mechanism.adjacency, bounds=(0.0, 1.0), sizes=(_RECORDS,)))


def _approximate(mechanism: Any) -> Target:
  """Returns the target of a mechanism at the default delta."""
  return wrapping.of_mechanism(mechanism)


def _calibrated(adjacency: Fields) -> additive.GaussianMechanism:
  """Returns the Gaussian mechanism with epsilon 1 at the default delta."""
  return additive.calibrated_gaussian(delta=wrapping.DELTA, **_UNIT,
                                      **adjacency)


def _audited(audit: Maker, make: Maker, fields: Fields) -> Target:
  """Returns the target `audit(make(**fields))`."""
  return audit(make(**fields))


_BOTH: Mapping[str, Fields] = {'': _AR, '_replace': _RO}

MECHANISMS: Mapping[str, Callable[[], Auditable]] = {
    'gaussian': lambda: _approximate(_calibrated(_AR)),
    'gaussian_replace': lambda: _approximate(_calibrated(_RO)),
    'laplace': lambda: _pure(laplace.LaplaceMechanism(**_UNIT, **_AR)),
    'laplace_replace': lambda: _pure(laplace.LaplaceMechanism(**_UNIT, **_RO)),
    'k_norm_1': lambda: _pure(k_norm.KNormMechanism(order=1, **_UNIT, **_AR)),
    'k_norm_2': lambda: _pure(k_norm.KNormMechanism(order=2, **_UNIT, **_RO)),
    'k_norm_inf': lambda: _pure(
        k_norm.KNormMechanism(order=math.inf, **_UNIT, **_AR)),
    'geometric': lambda: wrapping.of_mechanism(
        discrete.GeometricMechanism(record_norm=1, epsilon=1.0, **_AR),
        # The parameter of dlaplace is epsilon over the sensitivity.
        delta=0.0, noise=Noise(stats.dlaplace(1.0)),
        space=spaces.Sums(sensitivity=1, dtype=np.int32, **_AR)),
    'discrete_gaussian': lambda: wrapping.of_mechanism(
        discrete.DiscreteGaussianMechanism(
            record_norm=1.0, noise_multiplier=4.0, **_RO),
        space=spaces.Sums(sensitivity=2, dtype=np.int32, **_RO)),
    'exponential': lambda: _pure(
        selection.ExponentialMechanism(sensitivity=1.0, epsilon=1.0, **_RO)),
    'exponential_monotone': lambda: _pure(selection.ExponentialMechanism(
        sensitivity=1.0, epsilon=1.0, monotone=True, **_AR)),
    'permute_and_flip': lambda: _pure(
        selection.PermuteAndFlip(sensitivity=1.0, epsilon=1.0, **_RO)),
    'inverse_sensitivity': lambda: _of_records(
        inverse.InverseSensitivityQuantile(num_examples=_RECORDS, num_cells=16,
                                           **_RANGE, epsilon=1.0)),
    'smooth_sensitivity': lambda: _of_records(
        smooth.SmoothSensitivityQuantile(num_examples=_RECORDS, epsilon=1.0,
                                         **_RANGE, smoothing=0.1)),
    'randomized_response': lambda: _pure(
        local.RandomizedResponse(num_categories=3, epsilon=1.0)),
    'unary_encoding': lambda: _pure(
        local.UnaryEncoding(num_categories=3, epsilon=1.0)),
    'unary_encoding_symmetric': lambda: _pure(
        local.UnaryEncoding(num_categories=3, epsilon=1.0, symmetric=True)),
}

_MEDIAN: Fields = dict(probs=(0.5,), epsilon=1.0, **_RANGE)
_THREE: Fields = dict(probs=(0.25, 0.5, 0.75), epsilon=1.0, **_RANGE)


def _smoothed(**fields: Any) -> smoothing.Smoothed:
  """Returns the smoothed quantile of these fields."""
  return smoothing.Smoothed(
      inner=independent.IndependentQuantiles(**fields), sigma=0.1)


_OF_QUANTILES: Mapping[str, tuple[Maker, Fields]] = {
    'quantile_rounded': (independent.IndependentQuantiles,
                         dict(cost='rounded', **_MEDIAN)),
    'quantile': (independent.IndependentQuantiles, _MEDIAN),
    'quantile_interpolated': (independent.IndependentQuantiles,
                              dict(cost='interpolated', **_MEDIAN)),
    'quantiles_recursive': (recursive.RecursiveQuantiles, _THREE),
    'quantiles_joint': (joint.JointQuantiles, _THREE),
    'quantiles_histogram': (histogram.HistogramQuantiles,
                            dict(num_bins=4, **_THREE)),
    'quantile_smoothed': (_smoothed, _MEDIAN),
}

QUANTILES: Mapping[str, Callable[[], Auditable]] = {
    **{name + suffix: functools.partial(_audited, quantiles.target, make,
                                        fields | adjacency)
       for name, (make, fields) in _OF_QUANTILES.items()
       for suffix, adjacency in _BOTH.items()},
    'quantiles_inverse_replace': lambda: quantiles.target(
        joint.InverseQuantiles(**_THREE, **_RO)),
}

_RAW: Fields = dict(monotone=False)
_PURE: Fields = dict(epsilon=2.0)
_RHO: Fields = dict(rho=0.5)
# One more threshold under REPLACE_ONE, where the last rank has no noise.
_OF_CURVES: Mapping[str, tuple[Maker, int, Fields]] = {
    'ecdf_dyadic': (dyadic.DyadicEcdf, 4, _PURE | _RAW),
    'ecdf_dyadic_monotone': (dyadic.DyadicEcdf, 3, _PURE),
    'ecdf_dyadic_gaussian': (dyadic.DyadicEcdf, 4, _RHO | _RAW),
    'ecdf_dyadic_tuned': (dyadic.DyadicEcdf, 9,
                          dict(accounting='tuned') | _RHO | _RAW),
    'ecdf_tree': (trees.TreeEcdf, 4, _PURE | _RAW),
    'ecdf_tree_gaussian': (trees.TreeEcdf, 4, _RHO | _RAW),
    'ecdf_square_root': (toeplitz.SquareRootEcdf, 4, _RHO | _RAW),
}
_STREAM: Fields = dict(horizon=4, item_bits=0)
_STREAMS: Mapping[str, Fields] = {
    'dyadic': dict(kind='dyadic', **_PURE),
    'signed': dict(kind='signed', base=3, **_PURE),
    'bottom_up': dict(kind='bottom_up', **_PURE),
    'gaussian': dict(kind='dyadic', **_RHO),
    'square_root': dict(kind='square_root', **_RHO)}

CURVES: Mapping[str, Callable[[], Auditable]] = {
    **{name + suffix: functools.partial(
        _audited, ecdf.curve, make, fields | adjacency | dict(
            num_thresholds=size + (adjacency is _RO)))
       for name, (make, size, fields) in _OF_CURVES.items()
       for suffix, adjacency in _BOTH.items()},
    **{f'stream_{name}': functools.partial(
        _audited, ecdf.stream, streams.PrefixStream, _STREAM | fields)
       for name, fields in _STREAMS.items()},
}

_REPLACED: Mapping[str, Fields] = {'_replace': _RO}
_ONE: Fields = dict(epsilon=1.0)
_HALF: Fields = dict(rho=0.5)
_BINS: Fields = dict(num_bins=5)
_WAVES: Fields = dict(num_functions=5)
_OF_DENSITIES: Mapping[str, tuple[
    Maker, Maker, Fields, Mapping[str, Fields]]] = {
    'histogram': (density.counts, histograms.Histogram, _BINS | _ONE, _BOTH),
    'histogram_laplace': (
        density.counts, histograms.Histogram,
        dict(noise='laplace', fix_mass=False) | _BINS | _ONE, _BOTH),
    'histogram_gaussian': (density.counts, histograms.Histogram,
                           _BINS | _HALF, _BOTH),
    'polygon': (density.counts, histograms.Polygon, _BINS | _ONE, _BOTH),
    'projection': (density.sums, projections.Projection, _WAVES | _ONE, _BOTH),
    'projection_gaussian': (density.sums, projections.Projection,
                            _WAVES | _HALF, _BOTH),
    'weighted': (density.sums, projections.WeightedProjection, dict(
        coefficient_weights=(1.0, 0.5)) | _HALF, _BOTH),
    'weighted_cosine': (density.sums, projections.WeightedProjection, dict(
        coefficient_weights=(1.0, 0.5), basis='cosine') | _HALF, _BOTH),
    'weighted_adaptive': (density.sums, weighted.adaptive, _HALF, _BOTH),
    'spectral': (density.counts, spectral.SpectralHistogram, _BINS | _ONE,
                 _BOTH),
    'adaptive': (density.counts, adaptive_densities.AdaptiveHistogram,
                 _BINS | _ONE, _BOTH),
    'adaptive_gaussian': (density.counts, adaptive_densities.AdaptiveHistogram,
                          _BINS | _HALF, _BOTH),
    'two_resolutions': (density.stages, stages.TwoResolutions, _ONE, _REPLACED),
    'two_stages': (density.stages, stages.TwoStages, _ONE, _REPLACED),
    'tree': (density.levels, hierarchies.TreeDensity, dict(height=2) | _ONE,
             _BOTH),
    'haar': (density.levels, hierarchies.HaarDensity, dict(height=2) | _HALF,
             _REPLACED),
    'cube': (density.counts, cubes.CubeHistogram, dict(
        num_bins=4, dimension=2) | _ONE, _REPLACED),
    'merged': (density.counts, merging.MergedHistogram, _BINS | _ONE, _BOTH),
    'sparse': (density.waves, sparse.SparseFourier, dict(
        num_rounds=2, num_frequencies=3) | _HALF, _REPLACED),
}

DENSITIES: Mapping[str, Callable[[], Auditable]] = {
    f'density_{name}{suffix}': functools.partial(
        _audited, audit, make, fields | adjacency | dict(num_records=6))
    for name, (audit, make, fields, adjacencies) in _OF_DENSITIES.items()
    for suffix, adjacency in adjacencies.items()}

_FEW: Fields = dict(num_examples=5)
_DP: Fields = dict(guarantee=PureDP(epsilon=1.0))
_CDP: Fields = dict(guarantee=ZCDP(rho=0.5))
_BALL: Fields = dict(dimension=2, threshold=1.0)
_NORMAL: Fields = dict(dimension=2, radius=2.0, sigma=1.0)
_LINE: Fields = dict(radius=4.0, sigma=1.0)
_COINS: Fields = dict(model=exponential_families.Model(dimension=2, radius=1.0))
_OF_ESTIMATORS: Mapping[str, tuple[Maker, Maker, Fields]] = {
    'proportion_laplace': (estimators.share, noisy_shares.LaplaceShare, _ONE),
    'proportion_geometric': (estimators.share, noisy_shares.GeometricShare,
                             dict(weight=0.7) | _ONE),
    'proportion_gaussian': (estimators.share, noisy_shares.GaussianShare,
                            _HALF),
    'proportion_minimax': (estimators.looked_up, noisy_shares.MinimaxShare,
                           _ONE),
    'support_ranked': (estimators.ranked, support_ranks.RankedSupport, _ONE),
    'support_mean': (estimators.scaled, supports.MeanSupport, _DP),
    'support_mean_gaussian': (estimators.scaled, supports.MeanSupport, _CDP),
    **{f'mean_{noise}': (estimators.truncated, truncated_means.TruncatedMean,
                         dict(noise=noise) | _BALL | guarantee)
       for noise, guarantee in (('l2', _DP), ('laplace', _DP),
                                ('gaussian', _CDP))},
    'normal_mean': (estimators.normal, normal_means.clipped_once,
                    dict(clip=3.0) | _NORMAL | _DP),
    'coinpress': (estimators.normal, coinpress.printed, _NORMAL | _CDP),
    'normal_interval': (estimators.interval, normal_intervals.karwa_vadhan,
                        _LINE | _DP),
    'normal_interval_median': (
        estimators.interval, normal_intervals.NormalInterval, dict(
            finder='median', share=0.3, step=0.5, clip=3.0, half=1.0)
        | _LINE | _DP),
    'likelihood_statistics': (
        estimators.statistics, likelihood.SufficientStatistics, _COINS | _DP),
    'likelihood_statistics_gaussian': (
        estimators.statistics, likelihood.SufficientStatistics, _COINS | _CDP),
    'likelihood_output': (estimators.output, likelihood.OutputPerturbation,
                          _COINS | _HALF),
    'likelihood_descent': (estimators.descent, sgml.Descent, _COINS | _HALF),
}

ESTIMATORS: Mapping[str, Callable[[], Auditable]] = {
    f'estimate_{name}': functools.partial(_audited, audit, make, _FEW | fields)
    for name, (audit, make, fields) in _OF_ESTIMATORS.items()}

_MOMENTS: Fields = dict(noise_multiplier=4.0, num_examples=3)
_OF_FEATURES: Mapping[str, tuple[Maker, Maker, Fields]] = {
    'normalisation': (features.normalisation, PrivateNormalisation,
                      dict(mean_norm=1.0, square_norm=2.0)),
    'whitening': (features.whitening, PrivateWhitening, {}),
}
FEATURES: Mapping[str, Callable[[], Auditable]] = {
    f'features_{name}{suffix}': functools.partial(
        _audited, audit, make, _MOMENTS | fields | adjacency)
    for name, (audit, make, fields) in _OF_FEATURES.items()
    for suffix, adjacency in _BOTH.items()}

METHODS: Mapping[str, Callable[[], Auditable]] = {
    **{name: functools.partial(methods.game, name)
       for name in methods.METHODS},
    **{name: functools.partial(adaptive.game, name)
       for name in ('dp_sgd_adaptive', 'lip_adaptive')},
}

TARGETS = {**MECHANISMS, **QUANTILES, **CURVES, **DENSITIES,
           **ESTIMATORS, **FEATURES, **METHODS,
           **showcases.SHOWCASES}


def expected(name: str) -> str:
  """Returns the verdict that the auditor must reach on this target."""
  if name in showcases.SHOWCASES:
    return auditor.VIOLATED
  return auditor.CONSISTENT
