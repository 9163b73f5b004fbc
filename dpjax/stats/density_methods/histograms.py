"""Histograms: noisy counts of equal bins as heights, and lines between them.

  f(x) = m (c_b + Z_b) / n  for x in bin b,

The sensitivity of the counts, 2 in l1 and sqrt 2 in l2 if a record is replaced,
does not depend on m. So errors fall with (n epsilon)^-1 or (n sqrt rho)^-1 for
Lipschitz densities, the best possible rate. Source: Lalanne, Garivier and
Gribonval (2023, section 3); Lalanne (2023, section 5.1; items DEN-H1 to DEN-H6,
DEN-B8).
"""

import dataclasses
import functools
from typing import Any, NamedTuple, Self

import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.stats.density_methods import bandwidths
from dpjax.stats.density_methods import mechanism
from dpjax.stats.density_methods import noisy_counts
from dpjax.stats.density_methods import polygons
from dpjax.stats.density_methods import post_processing
from dpjax.stats.density_methods.densities import Density
from dpjax.stats.density_methods.estimate import errors_of
from dpjax.typing import Array, PRNGKey


class Sensitivity(NamedTuple):
  """Sensitivities of a vector of counts to one record.

  Attributes:
    l1: largest sum of absolute changes.
    l2: largest Euclidean norm of the change.
    largest: largest change of one coordinate.
  """
  l1: float
  l2: float
  largest: float


def sensitivity(num_bins: int, adjacency: Adjacency) -> Sensitivity:
  """Returns the exact sensitivity of the counts of m bins (item DEN-H3).

  (2, sqrt 2, 1) under REPLACE_ONE, where a record moves from one bin to another
  (0 for a single bin); (1, 1, 1) under ADD_OR_REMOVE_ONE.
  """
  errors.check_at_least('num_bins', num_bins, 1)
  check_adjacency(adjacency)
  if adjacency is Adjacency.ADD_OR_REMOVE_ONE:
    return Sensitivity(1.0, 1.0, 1.0)
  if num_bins == 1:
    return Sensitivity(0.0, 0.0, 0.0)
  return Sensitivity(2.0, 2**0.5, 1.0)


@functools.cache
def _sampler(noise: str | None, knows_total: bool, fix_mass: bool, post: str
         ) -> mechanism.Draw:
  """Returns the sampler (key, counts, parameters) -> heights."""
  def heights(key: PRNGKey, counts: Array,
              parameters: noisy_counts.CountParameters) -> Array:
    size = counts.shape[0]
    noisy = noisy_counts.noisy(key, counts, parameters.scale, noise)
    total = noisy_counts.total(noisy, parameters.num_records, knows_total)
    raw_heights = size * noisy / total
    if fix_mass:
      raw_heights = post_processing.fix_mass(raw_heights)
    # The last argument bounds the variance of a height: sampling and noise.
    return post_processing.processed(
        raw_heights, post,
        size / total + size**2 * parameters.variance / total**2)
  return heights


@dataclasses.dataclass(frozen=True, kw_only=True)
class Histogram(noisy_counts.CountsMechanism):
  """The histogram estimator: heights [m] of equal bins.

  Guarantee: that of the counts, see `noisy_counts`. Under ADD_OR_REMOVE_ONE
  counts are divided by their noisy sum, of relative variance m V / n^2.

  Attributes:
    fix_mass: whether heights are shifted to a mean of 1; if n is public, this
      multiplies the noise variance by 1 - 1/m.
    post: one of `post_processing.POSTS`.
  """
  fix_mass: bool = True
  post: str = 'none'

  dimension = 1

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_choice('post', self.post, post_processing.POSTS)

  @classmethod
  def printed(cls, *, num_records: int, **public: Any) -> Self:
    """Returns the histogram of Theorem 1, as published.

    It has continuous noise, `bandwidths.printed_bins` and no post-processing.
    Source: Lalanne, Garivier and Gribonval (2023, Theorem 1).

    Args:
      num_records: n.
      **public: the budget, and other attributes.
    """
    as_published: dict[str, Any] = dict(noise='laplace', fix_mass=False)
    plain = cls(num_records=num_records, num_bins=1, **as_published | public)
    return dataclasses.replace(plain, num_bins=bandwidths.printed_bins(
        num_records=num_records, budget=plain.budget,
        dimension=plain.dimension))

  @classmethod
  def tuned(cls, *, num_records: int, lipschitz: float, **public: Any
            ) -> Self:
    """Returns the histogram with the bins of the least proved error.

    The number of bins is `bandwidths.tuned_bins`. If noise is most of the
    error, it is at most 1.633 L / (n epsilon) or 0.577 L / (n sqrt rho).

    Args:
      num_records: n.
      lipschitz: L of the class of densities; public.
      **public: the budget, and other attributes.
    """
    plain = cls(num_records=num_records, num_bins=1, **public)
    return dataclasses.replace(plain, num_bins=bandwidths.tuned_bins(
        num_records=num_records, variance=plain.noise_variance,
        lipschitz=lipschitz, fix_mass=plain.fix_mass,
        dimension=plain.dimension))

  @classmethod
  def oracle_tuned(cls, density: Density, *, num_records: int, **public: Any
                   ) -> Self:
    """Returns the histogram with the best bins for a known density, to compare.

    Args:
      density: the true density.
      num_records: n.
      **public: the budget, and other attributes.
    """
    def risk(num_bins: int) -> mechanism.Risk:
      return dataclasses.replace(plain, num_bins=num_bins).expected(density)
    plain = cls(num_records=num_records, num_bins=1, **public)
    # A lower bound of noise and sampling error that increases with m, because
    # m sum p^2 is at most the integral of f^2; the factor 2/3 covers polygons.
    return dataclasses.replace(plain, num_bins=bandwidths.oracle_bins(
        lambda num_bins: risk(num_bins).total,
        lambda num_bins: risk(num_bins).privacy + max(
            0.0, 2 * num_bins / 3 - density.square) / num_records))

  @property
  def draw(self) -> mechanism.Draw:
    """Jittable sampler (key, counts, parameters) -> heights."""
    return _sampler(self.noise_distribution, self.knows_total, self.fix_mass,
                    self.post)

  @property
  def height_variance(self) -> float:
    """Variance that the noise adds to a height, before `post`."""
    size = self.num_bins
    noise = size**2 * self.noise_variance / self.num_records**2
    return noise * (1 - 1 / size) if self.fix_mass else noise

  def expected(self, density: Density) -> mechanism.Risk:
    """Returns the exact risk (item DEN-H2), for a public n and without `post`.
    """
    self._check_linear()
    masses, size = density.masses(self.num_bins), self.num_bins
    return mechanism.Risk(
        size * float(1 - np.sum(masses**2)) / self.num_records,
        self.height_variance,
        float(errors_of('histogram', size * masses, density)))

  def expected_at(self, density: Density, x: float) -> mechanism.Risk:
    """Returns the exact mean squared error at a point x, as `expected`."""
    self._check_linear()
    if not 0 <= x <= 1:
      raise ValueError(f'x must lie in [0, 1], got {x}')
    place = min(int(x * self.num_bins), self.num_bins - 1)  # 1: last bin.
    mass = float(density.masses(self.num_bins)[place])
    truth = float(density.pdf(np.asarray(x)))
    return mechanism.Risk(
        self.num_bins**2 * mass * (1 - mass) / self.num_records,
        self.height_variance, (self.num_bins * mass - truth)**2)

  def printed_bound(self, lipschitz: float) -> mechanism.Risk:
    """Returns the bound at any point over the class, with Lemma 1's constants.

    L^2 h^2 / 4 + (L + 1) / (n h) + V / (n h)^2 (Lalanne, Garivier and Gribonval
    2023, proof of Lemma 1).
    """
    errors.check_non_negative('lipschitz', lipschitz)
    return mechanism.Risk(
        (lipschitz + 1) * self.num_bins / self.num_records,
        self.num_bins**2 * self.noise_variance / self.num_records**2,
        (lipschitz / self.num_bins)**2 / 4)

  def _check_linear(self) -> None:
    """Raises if there is no closed form, which needs a linear estimate."""
    if self.post != 'none' or not self.knows_total:
      raise NotImplementedError(
          "the error has a closed form for post='none' and a public n only: "
          'other estimates are not linear')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Polygon(Histogram):
  """Lines between the heights at the middles of bins, constant at the ends.

  Two thirds of a histogram's noise variance, and no steps; the integral is the
  mean of the heights. Post-processing (item DEN-B8). Guarantee: as `Histogram`.
  """
  post: str = 'simplex'

  kind = 'polygon'

  def expected(self, density: Density) -> mechanism.Risk:
    """Returns the risk, exact up to quadrature, for a public n, without `post`.
    """
    self._check_linear()
    masses, size = density.masses(self.num_bins), self.num_bins
    # Integrals of the squared polygons of unit heights, times m: 2/3 inside,
    # and 1/6 more for the constant half bin at either end.
    squares = np.full(size, 2 / 3)
    squares[0] += 1 / 6
    squares[-1] += 1 / 6
    squares /= size
    heights = size * masses
    noise = size**2 * self.noise_variance / self.num_records**2
    return mechanism.Risk(
        float(size**2 * squares @ masses - polygons.product(heights, heights))
        / self.num_records,
        noise * (float(squares.sum()) - (1 / size if self.fix_mass else 0)),
        float(errors_of('polygon', heights, density)))


def sup_errors(heights: np.ndarray, density: Density) -> np.ndarray:
  """Returns largest errors [...] of histograms [..., m], at 33 points per bin.

  The points include both ends and the middle of each bin (item DEN-C4).
  """
  size = heights.shape[-1]
  x = (np.arange(size)[:, None] + np.linspace(0, 1, 33)) / size
  values = density.pdf(np.clip(x, 0, 1))
  return np.max(np.maximum(heights - values.min(1), values.max(1) - heights),
                -1)
