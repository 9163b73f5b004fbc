"""Densities on a cube: proved risks of private histograms, and lower bounds.

Source: Barber and Duchi (2014, section 3.2.2 and Proposition 5) (item MOD-DENS,
EST-HIST).
"""

from typing import Any

from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import bandwidths
from dpjax.stats.density_methods import cubes
from dpjax.theory.minimax import cube_bounds
from dpjax.theory.minimax.bounds import Bound
from dpjax.theory.minimax.bounds import Guarantee
from dpjax.theory.parametric import gaussian_noise
from dpjax.theory.parametric import study
from dpjax.theory.parametric import subsampling
from dpjax.theory.parametric.study import Upper

LIPSCHITZ = 1.0
"""Lipschitz constant of the class of densities."""


def histograms(*, num_examples: int, guarantee: Guarantee, dimension: float
               ) -> tuple[cubes.CubeHistogram, ...]:
  """Returns histograms that keep a guarantee, with cells of least proved risk.

  Pure guarantees also get one with the noise of Barber and Duchi (2014). The
  result is empty if the guarantee allows no release. Gaussian noise is
  calibrated exactly.
  """
  return tuple(cubes.CubeHistogram.tuned(
      num_records=num_examples, lipschitz=LIPSCHITZ, dimension=int(dimension),
      adjacency=Adjacency.REPLACE_ONE, **budget)
               for budget in _budgets(guarantee))


def _budgets(guarantee: Guarantee) -> tuple[dict[str, Any], ...]:
  """Returns keyword arguments of the counts mechanism that keep a guarantee."""
  match guarantee:
    case None:
      return ({},)
    case notions.PureDP(epsilon=epsilon) if epsilon > 0:
      return (dict(epsilon=epsilon),
              dict(epsilon=epsilon, noise='laplace', fix_mass=False))
    # (0, delta)-DP is total variation privacy of level delta.
    case notions.ApproxDP(epsilon=0, delta=delta):
      return _budgets(notions.TotalVariationPrivacy(level=delta))
    case notions.ApproxDP(epsilon=epsilon, delta=delta):
      pure = _budgets(notions.PureDP(epsilon=epsilon))
      return (*pure, _gaussian(guarantee)) if delta else pure
    case notions.ZCDP(rho=level) | notions.KullbackLeiblerPrivacy(
        level=level) | notions.TotalVariationPrivacy(level=level) if level:
      return (_gaussian(guarantee),)
  return ()


def _gaussian(guarantee: Guarantee) -> dict[str, Any]:
  """Returns the zCDP budget of Gaussian noise, or {} if no noise is needed."""
  if isinstance(guarantee, notions.TotalVariationPrivacy) and (
      guarantee.level >= 1):
    return {}
  return dict(rho=gaussian_noise.rho(guarantee))


def _lower(*, num_examples: int, guarantee: Guarantee, dimension: float
           ) -> tuple[Bound, ...]:
  """Returns all lower bounds that hold for the guarantee."""
  return cube_bounds.bounds(dimension=int(dimension), num_examples=num_examples,
                            guarantee=guarantee)


def _upper(*, num_examples: int, guarantee: Guarantee, dimension: float
           ) -> tuple[Upper, ...]:
  """Returns the proved risks of the histograms."""
  uppers = []
  # Bounds of the risk, attained for d = 1 (`Upper.exact`).
  for histogram in histograms(num_examples=num_examples, guarantee=guarantee,
                              dimension=dimension):
    value = bandwidths.histogram_bound(
        histogram.num_bins, num_records=num_examples,
        variance=histogram.noise_variance, lipschitz=LIPSCHITZ,
        fix_mass=histogram.fix_mass, dimension=histogram.dimension)
    printed = '' if histogram.fix_mass else ' of Barber and Duchi'
    uppers.append(Upper(value, f'histogram{printed}, '
                        f'{histogram.noise_distribution or "no noise"}',
                        histogram.dimension == 1))
  if (isinstance(guarantee, notions.TotalVariationPrivacy)
      and num_examples * guarantee.level >= 1):
    uppers.append(Upper(_non_private(
        num_examples=subsampling.subset_size(num_examples, guarantee.level),
        dimension=dimension), 'histogram of a subset', dimension == 1))
  return tuple(uppers)


def _non_private(*, num_examples: int, dimension: float,
                 guarantee: Guarantee = None) -> float:
  """Returns the least proved risk without noise."""
  del guarantee
  return min(upper.value for upper in _upper(
      num_examples=num_examples, guarantee=None, dimension=dimension))


def _trivial(*, dimension: float) -> float:
  return bandwidths.roughness(LIPSCHITZ, dimension=int(dimension))


STUDY = study.Study(
    name='density',
    help='a density on [0, 1]^d, 1-Lipschitz',
    loss='integrated squared error',
    parameters={'dimension': study.Parameter(1, 'd, coordinates of a record')},
    lower=_lower, upper=_upper, non_private=_non_private, trivial=_trivial,
    notions=(notions.PureDP, notions.ApproxDP, notions.ZCDP,
             notions.TotalVariationPrivacy, notions.KullbackLeiblerPrivacy))
