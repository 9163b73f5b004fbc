"""Densities on a cube: what histograms risk, and what bounds it.

Source: paper 004, section 3.2.2 and Proposition 5 (item MOD-DENS, EST-HIST).
"""

from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density import bandwidths
from dpjax.stats.density import cube_bounds
from dpjax.stats.density import cubes
from dpjax.stats.minimax.bounds import Bound, Guarantee
from dpjax.stats.parametric import gaussian_noise
from dpjax.stats.parametric import study
from dpjax.stats.parametric import subsampling
from dpjax.stats.parametric.study import Upper

LIPSCHITZ = 1.0
"""Of the class of densities."""


def histograms(*, num_examples: int, guarantee: Guarantee, dimension: float
               ) -> tuple[cubes.CubeHistogram, ...]:
  """Histograms that keep a guarantee, of the cells of the least proved risk.

  Of pure guarantees also with the noise of paper 004; none where nothing may be
  told. Gaussian noise is calibrated exactly.

  Args:
    num_examples: n.
    guarantee: one of `bounds.Guarantee`.
    dimension: d.
  """
  public = dict(num_records=num_examples, lipschitz=LIPSCHITZ,
                dimension=int(dimension), adjacency=Adjacency.REPLACE_ONE)
  return tuple(cubes.CubeHistogram.tuned(**public, **budget)
               for budget in _budgets(guarantee))


def _budgets(guarantee: Guarantee) -> tuple[dict[str, object], ...]:
  """Noises that keep a guarantee, as a counts mechanism is told of them."""
  match guarantee:
    case None:
      return ({},)
    case notions.PureDP(epsilon=epsilon) if epsilon > 0:
      return (dict(epsilon=epsilon),
              dict(epsilon=epsilon, noise='laplace', fix_mass=False))
    case notions.ApproxDP(epsilon=0, delta=delta):
      return _budgets(notions.TotalVariationPrivacy(level=delta))
    case notions.ApproxDP(epsilon=epsilon, delta=delta):
      pure = _budgets(notions.PureDP(epsilon=epsilon))
      return (*pure, _gaussian(guarantee)) if delta else pure
    case notions.ZCDP(rho=level) | notions.KullbackLeiblerPrivacy(
        level=level) | notions.TotalVariationPrivacy(level=level) if level:
      return (_gaussian(guarantee),)
  return ()


def _gaussian(guarantee: Guarantee) -> dict[str, float]:
  if getattr(guarantee, 'level', 0) >= 1 and isinstance(
      guarantee, notions.TotalVariationPrivacy):
    return {}
  return dict(rho=gaussian_noise.rho(guarantee))


def _lower(*, num_examples: int, guarantee: Guarantee, dimension: float
           ) -> tuple[Bound, ...]:
  return cube_bounds.bounds(dimension=int(dimension), num_examples=num_examples,
                            guarantee=guarantee)


def _upper(*, num_examples: int, guarantee: Guarantee, dimension: float
           ) -> tuple[Upper, ...]:
  known, found = dict(guarantee=guarantee, dimension=dimension), []
  for made in histograms(num_examples=num_examples, **known):
    value = bandwidths.histogram_bound(
        made.num_bins, num_records=num_examples,
        variance=made.noise_variance, lipschitz=LIPSCHITZ,
        fix_mass=made.fix_mass, dimension=made.dimension)
    printed = '' if made.fix_mass else ' of paper 004'
    found.append(Upper(value, f'histogram{printed}, {made.law or "no noise"}',
                       made.dimension == 1))
  if (isinstance(guarantee, notions.TotalVariationPrivacy)
      and num_examples * guarantee.level >= 1):
    found.append(Upper(_non_private(
        num_examples=subsampling.subset_size(num_examples, guarantee.level),
        dimension=dimension), 'histogram of a subset', dimension == 1))
  return tuple(found)


def _non_private(*, num_examples: int, dimension: float,
                 guarantee: Guarantee = None) -> float:
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
