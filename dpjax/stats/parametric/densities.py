"""Densities on a cube: what histograms risk, and what bounds it.

Source: paper 004, section 3.2.2 and Proposition 5 (spec MOD-DENS, EST-HIST).
"""

from scipy import stats

from dpjax.privacy import accounting
from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density import bandwidths
from dpjax.stats.density import cube_bounds
from dpjax.stats.density import cubes
from dpjax.stats.minimax.bounds import Bound, Guarantee
from dpjax.stats.parametric import study
from dpjax.stats.parametric.study import Upper

LIPSCHITZ = 1.0
"""Of the class of densities."""


def histograms(*, num_examples: int, guarantee: Guarantee, d: float
               ) -> tuple[cubes.CubeHistogram, ...]:
  """Histograms that keep a guarantee, of the cells of the least proved risk.

  The last has the noise of paper 004 where the guarantee is pure. None where
  the guarantee allows nothing to be told.

  Args:
    num_examples: n.
    guarantee: one of `bounds.Guarantee`.
    d: dimension.
  """
  public = dict(num_records=num_examples, lipschitz=LIPSCHITZ, dimension=int(d),
                adjacency=Adjacency.REPLACE_ONE)
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
    case notions.ApproxDP(epsilon=epsilon, delta=0) if epsilon > 0:
      return _budgets(notions.PureDP(epsilon=epsilon))
    case notions.ApproxDP(epsilon=epsilon, delta=delta) if epsilon > 0:
      shift = accounting.gaussian_shift(epsilon=epsilon, delta=delta)
      return dict(rho=shift**2 / 2), *_budgets(notions.PureDP(epsilon=epsilon))
    case notions.ZCDP(rho=level) | notions.KullbackLeiblerPrivacy(level=level):
      return (dict(rho=level),) if level else ()
    case notions.TotalVariationPrivacy(level=level) if 0 < level < 1:
      return (dict(rho=2 * stats.norm.ppf((1 + level) / 2)**2),)
    case notions.TotalVariationPrivacy(level=level) if level >= 1:
      return ({},)
  return ()


def _lower(*, num_examples: int, guarantee: Guarantee, d: float
           ) -> tuple[Bound, ...]:
  return cube_bounds.bounds(dimension=int(d), num_examples=num_examples,
                            guarantee=guarantee)


def _upper(*, num_examples: int, guarantee: Guarantee, d: float
           ) -> tuple[Upper, ...]:
  found = []
  for made in histograms(num_examples=num_examples, guarantee=guarantee, d=d):
    value = bandwidths.histogram_bound(
        made.num_bins, num_records=num_examples,
        variance=made.noise_variance, lipschitz=LIPSCHITZ,
        fix_mass=made.fix_mass, dimension=made.dimension)
    printed = '' if made.fix_mass else ' of paper 004'
    found.append(Upper(value, f'histogram{printed}, {made.law or "no noise"}',
                       made.dimension == 1))
  return tuple(found)


def _non_private(*, num_examples: int, d: float) -> float:
  return min(upper.value for upper in _upper(
      num_examples=num_examples, guarantee=None, d=d))


def _trivial(*, d: float) -> float:
  return bandwidths.roughness(LIPSCHITZ, dimension=int(d))


STUDY = study.Study(
    name='density',
    help='a density on [0, 1]^d, 1-Lipschitz',
    loss='integrated squared error',
    parameters={'d': study.Parameter(1, 'dimension')},
    lower=_lower, upper=_upper, non_private=_non_private, trivial=_trivial,
    notions=(notions.PureDP, notions.ApproxDP, notions.ZCDP,
             notions.TotalVariationPrivacy, notions.KullbackLeiblerPrivacy))
