"""Projections on the trigonometric basis, as printed and done right.

The paper releases N sums with one scale of noise (001, Equation (8), Theorem 4,
lines 482-615; thesis 000, Theorem 5.2.3; item DEN-P1 to P5). The printed scale
is twice what is needed, and a constant that everybody knows is noised (item
DEN-B1). Under zCDP frequencies need not be treated alike: `WeightedProjection`
has the least noise for a given smoothing, and on a class of smooth densities
a quarter of the error of the paper (item DEN-B4).
"""

import dataclasses
import functools
import math

import numpy as np
from scipy import optimize

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density import sensitivities
from dpjax.stats.density import trigonometric
from dpjax.stats.density.laws import Density

ALLOCATIONS = ('proportional', 'least')
TUNINGS = ('exact', 'printed')
_MOST = 2048
_STEPS = 500


@dataclasses.dataclass(frozen=True, kw_only=True)
class Projection(trigonometric.SumsMechanism):
  """N sums with noise of one scale: Laplace for epsilon, Gaussian for rho.

  Guarantee: epsilon-DP or rho-zCDP under `adjacency`, on the circle.

  Attributes:
    num_functions: N = 2 K + 1, odd, with the constant.
    tuning: 'exact' sensitivities, or 'printed': safe, 3.3 times (rho) and 4.2
      times (epsilon) the variance.
    fix_mass: keeps the mean at 1, where n is public; the paper noises it.
  """
  num_functions: int
  tuning: str = 'exact'
  fix_mass: bool = True

  def __post_init__(self):
    errors.check_choice('tuning', self.tuning, TUNINGS)
    sensitivities.frequencies_of(self.num_functions)
    super().__post_init__()

  basis = 'fourier'

  @property
  def num_frequencies(self) -> int:
    """K."""
    return sensitivities.frequencies_of(self.num_functions)

  @property
  def weights(self) -> np.ndarray:
    """1, of frequencies up to K."""
    return np.ones(self.num_frequencies)

  @property
  def sensitivity(self) -> float:
    """Of the sums that are noised: in l1 for epsilon, in l2 for rho."""
    order, printed = 1 if self.pure else 2, self.tuning == 'printed'
    found = sensitivities.trigonometric(
        self.num_functions, order=order, adjacency=self.adjacency,
        printed=printed)
    if self.knows_total or printed:
      return found
    # The constant moves by 1, and its sum is told as well.
    return found + 1 if self.pure else math.hypot(found, 1)

  @property
  def scales(self) -> np.ndarray:
    """Of the noise, the same for all frequencies."""
    if self.law is None:
      return np.zeros(self.num_frequencies + 1)
    budget = self.epsilon if self.pure else math.sqrt(2 * self.rho)
    return np.full(self.num_frequencies + 1, self.sensitivity / budget)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WeightedProjection(trigonometric.SumsMechanism):
  """Coefficients times weights, with the least Gaussian noise for these.

  The variance of a sum is kappa / weight; in other words, to a kernel estimate
  is added a Gaussian process whose covariance is its kernel (Hall, Rinaldo and
  Wasserman 2013 for the form). That is least under ADD_OR_REMOVE_ONE; under
  REPLACE_ONE, against what the specification says, up to 11 % less is possible,
  by `least_noise_weights`. Guarantee: rho-zCDP under `adjacency`; kappa is
  certified.

  Attributes:
    coefficient_weights: of frequencies 1..K; 0 leaves one out.
    basis: 'fourier' for a circle, 'cosine' for ends that do not meet.
    allocation: of the noise: 'proportional', or 'least' on a circle.
  """
  coefficient_weights: tuple[float, ...]
  basis: str = 'fourier'
  allocation: str = 'proportional'

  def __post_init__(self):
    errors.check_choice('basis', self.basis, trigonometric.BASES)
    errors.check_choice('allocation', self.allocation, ALLOCATIONS)
    if self.allocation == 'least' and self.basis == 'cosine':
      raise ValueError("allocation='least' is known on a circle alone")
    object.__setattr__(self, 'coefficient_weights', sensitivities.as_weights(
        self.coefficient_weights))
    if self.pure:
      raise ValueError('weighted sums have Gaussian noise: give rho, not '
                       f'epsilon={self.epsilon}')
    super().__post_init__()

  @property
  def num_frequencies(self) -> int:
    """K."""
    return len(self.coefficient_weights)

  @property
  def weights(self) -> np.ndarray:
    """`coefficient_weights`, [K]."""
    return np.array(self.coefficient_weights)

  @property
  def noise_weights(self) -> np.ndarray:
    """What variances are inverse to, [K]."""
    if self.allocation == 'least' and self.knows_total:
      return np.array(least_noise_weights(self.coefficient_weights))
    return self.weights

  @property
  def kappa(self) -> float:
    """What variances are multiples of: 0 without privacy."""
    if self.rho is None:
      return 0.0
    weighted = (sensitivities.weighted_circle if self.basis == 'fourier'
                else sensitivities.weighted_cosine)
    squared = weighted(self.noise_weights, adjacency=self.adjacency)
    # Where n is told, the constant has weight 1, and moves by 1.
    return (squared if self.knows_total else squared + 1) / (2 * self.rho)

  @property
  def scales(self) -> np.ndarray:
    """Of the noise: sqrt(kappa / weight); any where nothing is told."""
    weights = np.concatenate([[1.0], self.noise_weights])
    return np.sqrt(self.kappa / np.where(weights > 0, weights, 1))


@functools.cache
def least_noise_weights(weights: tuple[float, ...]) -> tuple[float, ...]:
  """Inverse variances of least error for weights lambda [K], REPLACE_ONE.

  The minimum of sum lambda_k^2 / a_k where sum a_k g_k(d) <= 1 for all d, g_k =
  4 - 4 cos 2 pi k d, is the maximum over measures mu of (sum lambda_k sqrt(mu
  g_k))^2, with a_k = lambda_k / sqrt(mu g_k): concave, climbed by multiplying
  mu by its gradient. Between kappa / lambda and the uniform measure, 4 (sum
  lambda)^2, there is at most a factor of 1.22. Public; any weights are safe.

  Args:
    weights: lambda, of frequencies 1..K.
  """
  found = np.array(sensitivities.as_weights(weights))
  told = np.flatnonzero(found)
  places = np.arange(1, 8 * found.size + 1) / (16 * found.size)
  moved = 8 * np.sin(np.pi * np.multiply.outer(places, told + 1))**2
  measure = np.full(places.size, 1 / places.size)
  for _ in range(_STEPS):
    inverse = found[told] / np.sqrt(measure @ moved)
    measure *= moved @ inverse
    measure /= measure.sum()
  inverse = np.zeros(found.size)
  inverse[told] = found[told] / np.sqrt(measure @ moved)

  def error(shape):
    return np.sum(found[told]**2 / shape[told]) * sensitivities.weighted_circle(
        shape, adjacency=Adjacency.REPLACE_ONE)
  # Where nothing is to be gained, steps end a little above what was given.
  best = min(inverse, found, key=error)
  return tuple(best.tolist())


def printed_num_functions(signal: float, *, num_records: int, smoothness: int,
                          pure: bool) -> int:
  """N of Theorem 4, "of the order of", read as the nearest, raised to odd.

  min(n^(1 / (2 beta + 1)), (n alpha)^(1 / (beta + 3/2))) under pure privacy,
  with beta + 1 under zCDP and (epsilon, delta); at least 3. Neither constants
  nor L are in it. beta is an integer (erratum E23).

  Args:
    signal: n alpha.
    num_records: n.
    smoothness: beta.
    pure: whether noise is that of Laplace.
  """
  errors.check_positive('signal', signal)
  errors.check_at_least('num_records', num_records, 1)
  errors.check_at_least('smoothness', smoothness, 1)
  power = smoothness + (1.5 if pure else 1)
  least = min(num_records**(1 / (2 * smoothness + 1)), signal**(1 / power))
  return max(3, round(least) // 2 * 2 + 1)


def printed_projection(*, num_records: int, smoothness: int,
                       epsilon: float | None = None, rho: float | None = None,
                       adjacency: Adjacency) -> Projection:
  """The estimator of Theorem 4, as printed."""
  mechanism = Projection(num_records=num_records, epsilon=epsilon, rho=rho,
                         adjacency=adjacency, num_functions=3,
                         tuning='printed', fix_mass=False)
  if mechanism.law is None:
    raise ValueError('Theorem 4 needs a budget, epsilon or rho')
  return dataclasses.replace(mechanism, num_functions=printed_num_functions(
      num_records * mechanism.budget, num_records=num_records,
      smoothness=smoothness, pure=mechanism.pure))


def tuned_num_functions(mechanism: Projection, *, smoothness: int,
                        radius: float) -> int:
  """The N of least error over a class, `worst_case`; nothing of the data."""
  return _least(mechanism, lambda found: found.worst_case(smoothness, radius))


def oracle_num_functions(mechanism: Projection, density: Density) -> int:
  """The N of least expected error for a density: it sees the truth."""
  return _least(mechanism, lambda found: found.expected(density))


def _least(mechanism: Projection, risk) -> int:
  best, found, size = math.inf, 3, 3
  while True:
    now = risk(dataclasses.replace(mechanism, num_functions=size))
    # Bias falls with N; both others grow.
    if now.sampling + now.privacy >= best:
      return found
    if now.total < best:
      best, found = now.total, size
    size += 2


def pinsker_weights(width: float, *, smoothness: int) -> tuple[float, ...]:
  """1 - (k / W)^beta for k below W: the minimax linear estimator's weights.

  Args:
    width: W > 1.
    smoothness: beta.
  """
  if not (math.isfinite(width) and width > 1):
    raise ValueError(f'width must be a number > 1, got {width}')
  errors.check_at_least('smoothness', smoothness, 1)
  k = np.arange(1, math.ceil(width))
  return sensitivities.as_weights(1 - (k / width)**smoothness)


def pinsker_projection(*, num_records: int, rho: float, smoothness: int,
                       radius: float, basis: str = 'fourier',
                       adjacency: Adjacency) -> WeightedProjection:
  """Pinsker's weights whose width has the least error over a class.

  Args:
    num_records: n.
    rho: of the release.
    smoothness: beta.
    radius: L, see `SumsMechanism.worst_case`.
    basis: 'fourier' or 'cosine'.
    adjacency: which data sets are neighbours.
  """
  def mechanism(log_width):
    return WeightedProjection(
        num_records=num_records, rho=rho, basis=basis, adjacency=adjacency,
        coefficient_weights=pinsker_weights(math.exp(log_width),
                                            smoothness=smoothness))

  def risk(log_width):
    return mechanism(log_width).worst_case(smoothness, radius)
  # The first width at which variance is above bias, in steps of sqrt 2.
  log_width, step = math.log(1.5), math.log(2) / 2
  while (now := risk(log_width)).total < 2 * now.bias:
    log_width += step
  found = optimize.minimize_scalar(
      lambda place: risk(place).total, method='bounded',
      bounds=(max(log_width - 3 * step, 1e-3), log_width + 2 * step),
      options={'xatol': 1e-4})
  return mechanism(found.x)


def oracle_weights(density: Density, *, num_records: int,
                   rho: float | None) -> tuple[float, ...]:
  """Weights of the best `WeightedProjection` for a density; sees the truth.

  With kappa given, (e - 2 kappa / n^2)+ / (e + (2 - e) / n) is the best weight
  of a frequency of energy e (Wiener's, with the noise that it causes), and
  kappa falls as weights do: one number is solved for.

  Args:
    density: the truth.
    num_records: n, public.
    rho: of the release; None without privacy.
  """
  energies = density.energies(_MOST)
  best = energies + (2 - energies) / num_records

  def weights(kappa):
    return np.maximum(energies - 2 * kappa / num_records**2, 0) / best

  def excess(kappa):
    return kappa - sensitivities.weighted_circle(
        np.trim_zeros(weights(kappa), 'b'),
        adjacency=Adjacency.REPLACE_ONE) / (2 * rho)
  kappa = 0.0
  if rho is not None:
    high = energies.max() * num_records**2 / 2 * (1 - 1e-9)
    low = high / 2
    while excess(low) > 0:
      low /= 2
    kappa = optimize.brentq(excess, low, high, rtol=1e-10)
  return sensitivities.as_weights(np.trim_zeros(weights(kappa), 'b'))
