"""Tests that every release of noisy numbers costs what its event says.

Each case couples the releases of a few neighbours, worst ones among them, by a
move of the noise (`tests.coupling`). No scale and no sensitivity is read from
the mechanism, so that its own claim is tested. Where a release reveals less
than its noisy numbers, less than the claim is attained.
"""

from collections.abc import Callable, Sequence
import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import frequencies
from dpjax.stats import means as mean
from dpjax.stats import roc_curves as roc
from dpjax.stats.density_methods import adaptive
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
from dpjax.stats.ecdf_methods import grids
from dpjax.stats.ecdf_methods import toeplitz
from dpjax.stats.ecdf_methods import trees
from dpjax.stats.quantile_methods import histogram
from dpjax.stats.quantile_methods import records
from dpjax.stats.quantile_methods import trees as quantile_trees
from dpjax.theory.parametric import exponential_families as families
from dpjax.theory.parametric import likelihood
from dpjax.theory.parametric import noisy_shares
from dpjax.theory.parametric import normal_intervals
from dpjax.theory.parametric import normal_means
from dpjax.theory.parametric import supports
from dpjax.theory.parametric import truncated_means
from experiments.methods.statistics import doubled_means
from experiments.methods.statistics import factorised_quantiles as factorised
from experiments.methods.statistics import hosmer_lemeshow_cells
from experiments.methods.statistics import marginals
from experiments.methods.statistics import smooth_binary_ecdf as smooth_binary
from tests import coupling

ADD, REPLACE = Adjacency
PURE, ZCDP = notions.PureDP(epsilon=0.7), notions.ZCDP(rho=0.3)
SIZE = 400


class Case(NamedTuple):
  """A mechanism, and neighbouring data sets to test it on.

  Attributes:
    mechanism: the mechanism under test.
    release: (key, data) -> released numbers.
    pairs: pairs of neighbouring data sets, as `release` takes them.
    attained: share of the claimed cost that the worst pair must attain.
    places: indices that the private choices return, in order of the choices.
  """
  mechanism: Any
  release: Callable[[Any, Any], Any]
  pairs: Sequence[tuple[Any, Any]]
  attained: float = 0.999
  places: Sequence[int] = ()


def _neighbours(data, others, adjacency):
  """Yields neighbours: records [n, ...], the first one replaced or left out."""
  for value in others:
    other = np.concatenate([np.asarray(value)[None], data[1:]])
    yield ((data, other) if adjacency is REPLACE
           else (other, data[1:]))


def _unit(seed=0, *shape):
  """Returns SIZE evenly spaced records in [0, 1], in random order."""
  places = (np.arange(SIZE) + 0.5) / SIZE
  rng = np.random.default_rng(seed)
  return np.stack([rng.permutation(places) for _ in range(math.prod(shape))],
                  -1).reshape(SIZE, *shape)


def density(mechanism, attained=0.999, others=(0.0, 0.06, 0.31, 0.55, 1.0)):
  """Returns a case of a density estimator, of records in [0, 1] or a cube."""
  axes = getattr(mechanism, 'num_attributes',
                 getattr(mechanism, 'dimension', 1))
  if axes == 1 or isinstance(mechanism, histograms.Histogram) and (
      mechanism.dimension == 1):
    data = np.sort(_unit())**1.5
  else:
    data, others = _unit(1, axes), [np.full(axes, value) for value in others]
  pairs = [tuple(map(mechanism.statistic, pair)) for pair in _neighbours(
      data, others, mechanism.adjacency)]
  return Case(mechanism,
              lambda key, data: mechanism.draw(key, data, mechanism.parameters),
              pairs, attained)


def counts(mechanism, attained=0.999, *, shape=None):
  """Returns a case on bin counts, so large that noisy counts stay positive."""
  size = shape or (mechanism.num_thresholds,)
  full = np.full(math.prod(size), 20.0)
  bins = np.reshape(full + np.eye(full.size), (-1, *size))
  pairs = [(one, full.reshape(size)) for one in bins]
  if mechanism.adjacency is REPLACE:
    # With public labels a record stays in its class.
    pairs = [pair for pair in itertools.combinations(bins, 2)
             if not getattr(mechanism, 'public_labels', False)
             or (pair[0].sum(-1) == pair[1].sum(-1)).all()]
  return Case(mechanism,
              lambda key, data: mechanism.draw(key, data, mechanism.parameters),
              pairs, attained)


def estimator(mechanism, data, others, attained=0.999):
  """Returns a case of an estimator that adds noise to its `statistic`."""
  with jax.enable_x64(True):
    pairs = [tuple(np.asarray(mechanism.statistic(jnp.asarray(each)))
                   for each in pair)
             for pair in _neighbours(data, others, REPLACE)]
  return Case(mechanism,
              lambda key, data: mechanism.draw(key, data, mechanism.parameters),
              pairs, attained)


def whole(mechanism, data, others, attained=0.999, read=lambda out: out.value):
  """Returns a case of a mechanism whose `release` takes records."""
  return Case(
      mechanism, lambda key, data: read(mechanism.release(key, data)),
      list(
          _neighbours(data, np.asarray(others, data.dtype),
                      mechanism.adjacency)), attained)


def curve(mechanism, attained=0.999):
  """Returns a case of a noisy distribution function, read for quantiles."""
  data = np.sort(_unit())

  def release(key, data):
    return mechanism.curve(key,
                           records.of(data, mechanism.lower, mechanism.upper),
                           mechanism.parameters)
  return Case(mechanism, release, list(_neighbours(
      data, (0.0, 0.3, 0.6, 1.0), mechanism.adjacency)), attained)


def _density(kind, attained=0.999, *, adjacency=REPLACE, budget='epsilon',
             **fields):
  return density(kind(num_records=SIZE, adjacency=adjacency, **{budget: 0.8},
                      **fields), attained)


def _curve(kind, adjacency, attained=0.999, **fields):
  return curve(kind(probs=(0.5,), lower=0.0, upper=1.0, adjacency=adjacency,
                    **fields), attained)


def _bins(mechanism, predictions, labels):
  return jax.tree.map(np.float64, hosmer_lemeshow_cells.bins(
      mechanism.grid, predictions, labels))


def _cells(adjacency, accounting):
  """Returns a case on class counts and sums of predictions of three bins."""
  mechanism = hosmer_lemeshow_cells.CellwiseHosmerLemeshow(
      grid=grids.Grid(lower=0.0, upper=1.0, num_thresholds=6), epsilon=0.9, adjacency=adjacency,
      num_groups=2, accounting=accounting)
  predictions = np.repeat((np.arange(6) + 0.5) / 6, 20)
  labels = np.arange(120) % 2
  wholes = []
  for value, label in ((0.01, 0), (0.01, 1), (0.99, 0), (0.99, 1)):
    wholes.append(_bins(mechanism, np.append(predictions, value),
                        np.append(labels, label)))
  pairs = [(one, other) for one in wholes for other in wholes
           if one is not other][:4]
  if adjacency is ADD:
    none = _bins(mechanism, predictions, labels)
    pairs = [(one, none) for one in wholes]
  return Case(mechanism,
              lambda key, data: mechanism.draw(key, data, mechanism.parameters),
              pairs, 0.45)


def _coins(top):
  """Returns records of two coordinates, of a mean at which maxima move most."""
  data = np.full((SIZE, 2), (SIZE * top - 1) / (SIZE - 1))
  data[0] = 1.0
  return data


MODEL = families.Model(dimension=2, radius=1.0)
TOP = float(1 / (1 + math.exp(-1.0)))
COUNT = SIZE // 2
BITS = np.arange(SIZE) % 2.0
PLANE = np.tile([[0.3, 0.1], [-0.2, 0.4]], (SIZE // 2, 1))
PLANE[0] = -9.0
LINE = PLANE[:, 0].astype(np.float32)
AROUND = [[9.0, 9.0], [9.0, 0.0], [0.1, 0.0]]
_share = lambda mechanism: estimator(mechanism, 1 - BITS, [0.0])
_statistics = lambda kind, guarantee: estimator(kind(
    model=MODEL, num_examples=SIZE, guarantee=guarantee),
    _coins(0.5), [[0.0, 0.0], [0.0, 1.0]])
_truncated = lambda noise, guarantee: estimator(truncated_means.TruncatedMean(
    num_examples=SIZE, dimension=2, threshold=1.5, guarantee=guarantee,
    noise=noise, shrinkage=0.8), PLANE, AROUND)
_normal = lambda guarantee: estimator(normal_means.NormalMean(
    num_examples=SIZE, dimension=2, radius=1.0, sigma=1.0, guarantee=guarantee,
    rounds=(normal_means.Round(2.0, 1.0),), shrinkage=0.9, projected=True),
    PLANE, AROUND)
_interval = lambda guarantee, finder='none': whole(
    normal_intervals.NormalInterval(
        num_examples=SIZE, radius=1.0, sigma=1.0, guarantee=guarantee,
        finder=finder, share=0.5, step=0.1, clip=0.6, half=0.2),
    LINE, [9.0, 0.0, 0.3])
_roc = lambda **public: counts(roc.make(
    grids.Grid(lower=0.0, upper=1.0, num_thresholds=3), monotone=False, **public), shape=(2, 3))

CASES = {
    'histogram': _density(histograms.Histogram, num_bins=7),
    'histogram, Laplace': _density(
        histograms.Histogram, num_bins=7, noise='laplace'),
    'histogram, rho': _density(
        histograms.Histogram, num_bins=7, budget='rho'),
    'histogram, added': _density(
        histograms.Histogram, num_bins=7, adjacency=ADD, attained=0.9),
    'polygon': _density(histograms.Polygon, num_bins=7),
    'cube': _density(cubes.CubeHistogram, num_bins=9, dimension=2),
    'adaptive': _density(
        adaptive.AdaptiveHistogram, num_bins=9, penalty=1e-6),
    'merged': _density(merging.MergedHistogram, num_bins=7, penalty=0.0),
    'spectral': _density(spectral.SpectralHistogram, num_bins=7),
    'tree density': _density(hierarchies.TreeDensity, height=3),
    'tree density, rho': _density(
        hierarchies.TreeDensity, height=3, budget='rho'),
    'Haar': _density(hierarchies.HaarDensity, height=3, threshold=0.0),
    'Haar, rho': _density(
        hierarchies.HaarDensity, height=3, threshold=0.0, budget='rho'),
    'projection': _density(
        projections.Projection, num_functions=5, attained=0.97),
    'projection, rho': _density(
        projections.Projection, num_functions=5, budget='rho', attained=0.98),
    'projection, added': _density(
        projections.Projection, num_functions=5, budget='rho', adjacency=ADD,
        attained=0.75),
    'weighted': _density(
        projections.WeightedProjection, coefficient_weights=(1.0, 0.5),
        budget='rho', attained=0.98),
    'adaptive projection': _density(
        weighted.AdaptiveProjection, coefficient_weights=(1.0, 0.5),
        budget='rho', penalty=1e-6, attained=0.98),
    'two resolutions': _density(stages.TwoResolutions, penalty=1e-6),
    'independent tables': _density(
        marginals.TreeMarginals, num_attributes=2, num_bins=2,
        structure='independent'),
    'known tables': _density(
        marginals.TreeMarginals, num_attributes=3, num_bins=2,
        structure=((0, 1), (1, 2)), attained=0.9),
    **{f'{name}, {adjacency.value}': counts(make(
        num_thresholds=6, adjacency=adjacency),
        0.25 if name == 'smooth binary' else 0.999)
       for adjacency in (ADD, REPLACE) for name, make in {
           'dyadic': lambda **public: dyadic.DyadicEcdf(
               epsilon=0.7, monotone=False, **public),
           'dyadic, rho': lambda **public: dyadic.DyadicEcdf(
               rho=0.3, monotone=False, **public),
           'smooth binary': lambda **public: smooth_binary.SmoothBinaryEcdf(
               rho=0.3, **public),
           'square root': lambda **public: toeplitz.SquareRootEcdf(
               rho=0.3, monotone=False, **public),
           'tree': lambda **public: trees.TreeEcdf(epsilon=0.7, **public),
           'tree, rho': lambda **public: trees.TreeEcdf(
               rho=0.3, shape=(3, 3), monotone=False, **public),
       }.items()},
    'joint ROC': _roc(epsilon=0.7, adjacency=REPLACE),
    'joint ROC, rho': _roc(rho=0.3, adjacency=REPLACE),
    'parallel ROC': _roc(epsilon=0.7, adjacency=ADD),
    'parallel ROC, labels': _roc(epsilon=0.7, adjacency=REPLACE,
                                 public_labels=True),
    'parallel ROC, replaced': counts(roc.ParallelRoc(
        grid=grids.Grid(lower=0.0, upper=1.0, num_thresholds=3),
        adjacency=REPLACE, curve=dyadic.DyadicEcdf(
            num_thresholds=3, epsilon=0.35, adjacency=ADD, monotone=False)),
                                     shape=(2, 3), attained=0.5),
    'cells': _cells(REPLACE, 'tight'),
    'cells, added': _cells(ADD, 'tight'),
    'cells, printed': _cells(REPLACE, 'paper'),
    'histogram quantiles': _curve(
        histogram.HistogramQuantiles, REPLACE, epsilon=0.7, num_bins=6),
    'histogram quantiles, added': _curve(
        histogram.HistogramQuantiles, ADD, 0.99, epsilon=0.7, num_bins=6),
    'tree quantiles': _curve(
        quantile_trees.TreeQuantiles, REPLACE, epsilon=0.7, shape=(2, 3)),
    'factorised quantiles': _curve(
        factorised.FactorisedQuantiles, REPLACE, rho=0.3, num_bins=6),
    'factorised quantiles, added': _curve(
        factorised.FactorisedQuantiles, ADD, 0.5, rho=0.3, num_bins=6),
    'frequencies': whole(frequencies.laplace(
        num_categories=3, epsilon=0.7, adjacency=REPLACE, num_examples=SIZE),
        np.arange(SIZE, dtype=np.int32) % 3, [1, 2]),
    'frequencies, rho': whole(frequencies.gaussian(
        num_categories=3, rho=0.3, adjacency=REPLACE, num_examples=SIZE),
        np.arange(SIZE, dtype=np.int32) % 3, [1, 2]),
    'bounded mean': whole(mean.BoundedMean(
        num_examples=SIZE, lower=-1.0, upper=2.0, epsilon=0.7),
        LINE, [9.0, 0.0]),
    'mean of a private size': whole(mean.PrivateSizeMean(
        lower=-1.0, upper=2.0, epsilon=0.7), PLANE[:, 0], [9.0, 0.0],
        read=lambda out: (out.value, out.high)),
    'noisy maximum': whole(supports.NoisyMaximum(
        epsilon=0.7, adjacency=REPLACE), 0 * LINE, [0.5, 2.0],
        read=lambda out: out),
    'noisy maximum, added': whole(supports.NoisyMaximum(
        epsilon=0.7, adjacency=ADD), 0 * LINE, [0.5, 2.0],
        read=lambda out: out),
    'doubled mean': whole(doubled_means.DoubledMean(
        num_examples=SIZE, epsilon=0.7), LINE, [2.0]),
    'mean support': estimator(supports.MeanSupport(
        num_examples=SIZE, guarantee=PURE), BITS / 2, [2.0]),
    'mean support, rho': estimator(supports.MeanSupport(
        num_examples=SIZE, guarantee=ZCDP), BITS / 2, [2.0]),
    'Laplace share': _share(noisy_shares.LaplaceShare(
        num_examples=SIZE, epsilon=0.7)),
    'geometric share': _share(noisy_shares.GeometricShare(
        num_examples=SIZE, epsilon=0.7, weight=0.9)),
    'Gaussian share': _share(noisy_shares.GaussianShare(
        num_examples=SIZE, rho=0.3)),
    'Gaussian share, printed': _share(noisy_shares.GaussianShare(
        num_examples=SIZE, rho=0.3, printed=True)),
    'noisy means': _statistics(likelihood.SufficientStatistics, PURE),
    'noisy means, rho': _statistics(likelihood.SufficientStatistics, ZCDP),
    'minimax means': _statistics(likelihood.MinimaxStatistics, PURE),
    'output perturbation': estimator(likelihood.OutputPerturbation(
        model=MODEL, num_examples=SIZE, rho=0.3), _coins(TOP), [[0.0, 0.0]], 0.99),
    'truncated mean, Gaussian': _truncated('gaussian', ZCDP),
    'truncated mean, l2': _truncated('l2', PURE),
    'truncated mean, Laplace': _truncated('laplace', PURE),
    'normal mean': _normal(PURE), 'normal mean, rho': _normal(ZCDP),
    'interval': _interval(PURE), 'interval, rho': _interval(ZCDP),
    'interval, median': _interval(PURE, 'median')._replace(
        places=[10], attained=0.9),
    'interval, median, rho': _interval(ZCDP, 'median')._replace(
        places=[10], attained=0.8),
    'interval, histogram': _interval(PURE, 'histogram')._replace(
        places=[10], attained=0.6),
    'sparse': _density(sparse.SparseFourier, num_rounds=2, num_frequencies=4,
                       budget='rho')._replace(places=[2, 0], attained=0.6),
    'private tables': _density(
        marginals.TreeMarginals, num_attributes=3, num_bins=2)._replace(
            places=[1, 5], attained=0.6)}


@pytest.mark.sound
@pytest.mark.parametrize('name', CASES)
def test_releases_of_neighbours_differ_by_what_is_claimed(name):
  """Couplings near one release cost the claim at most, and attain it."""
  case = CASES[name]
  claimed = np.array(coupling.claim(case.mechanism.event,
                                    case.mechanism.adjacency))
  losses = coupling.losses(case.release, case.pairs, case.places,
                           concentrated=not claimed[0]).max(0)
  assert (losses <= claimed * (1 + 1e-3) + 1e-9).all()
  assert (losses >= case.attained * claimed).all()
