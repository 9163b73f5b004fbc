"""What no private estimator of a density can go below.

Of n records, REPLACE_ONE, against the worst density of a class (a release under
ADD_OR_REMOVE_ONE has 2 epsilon or 4 rho here):
  pointwise  squared error at one point, Lipschitz densities (Theorem 2); of the
             largest error too (Corollary 1)
  fano       integrated squared error by many hypotheses (Theorems 3 and 5)
  assouad    the same by a cube of bumps
  cells      the same by bumps of mean 0, whose bits do not interact (DEN-L11)
The budget is epsilon, rho, or neither: then the bound holds for any estimator.
A private one obeys both. `sharp` bounds squared errors at two points by
`testing.squared_share` in place of a test of the two. Each is the largest over
what its packing leaves free; every value is a proved bound, at any n. Numbers
of the host. Source: paper 001, section 3.3 and Theorem 5; thesis 000, Theorems
5.1.3, 5.1.6 and 5.2.4 (item DEN-L8..L11, errata E5, E5b).
"""

from collections.abc import Sequence
import math
from typing import NamedTuple

import numpy as np
from scipy import interpolate

from dpjax import errors
from dpjax.stats.density import laws
from dpjax.stats.density import packings
from dpjax.stats.minimax import testing

_MOST_CELLS = 1e7
# Of a kernel, between which its integral is a cubic.
_PLACES = 1024
_COUNTS = np.unique(np.round(np.geomspace(1, _MOST_CELLS, 4000)))
_FEWER = np.unique(np.round(np.geomspace(1, _MOST_CELLS, 800)))
# Of the room between two centres that a bump takes.
_SHARES = np.geomspace(1e-3, 1, 200)
_WIDTHS = np.geomspace(1e-7, 1, 10001)


class Best(NamedTuple):
  """A lower bound.

  Attributes:
    value: of the risk.
    size: h, or the number of bumps, that gives it.
  """
  value: float
  size: float


def pointwise(lipschitz: float, *, num_records: int,
              epsilon: float | None = None, rho: float | None = None,
              centre: float = 0.5, sharp: bool = False) -> Best:
  """Theorem 2: the error at x_0, between 1 and a spike on it.

  At an end half a spike is as high and weighs half, so that the bound is twice
  that of the middle. By `sharp` = False, e^(-n epsilon t), and t exact.

  Args:
    lipschitz: L.
    num_records: n.
    epsilon: of the release, or
    rho: of the release, or neither.
    centre: x_0.
    sharp: see above.
  """
  errors.check_positive('lipschitz', lipschitz)
  if not 0 <= centre <= 1:
    raise ValueError(f'centre must lie in [0, 1], got {centre}')
  inside = np.minimum(np.array([centre, 1 - centre])[:, None], _WIDTHS)
  # Half a spike that is cut off by an end weighs less.
  mass = lipschitz * np.sum(inside * (_WIDTHS - inside / 2), 0)
  height = lipschitz * _WIDTHS - mass
  reach = np.minimum(inside, height / lipschitz)
  variation = np.sum(reach * (height - lipschitz * reach / 2), 0)
  known = mass < 1
  share = np.zeros_like(mass)
  if epsilon is None and rho is None:
    energy = lipschitz**2 * np.sum(_WIDTHS**3 - (_WIDTHS - inside)**3, 0) / 3
    share = _unlimited(energy - mass**2, np.minimum(mass, 0.9), num_records,
                       sharp)
    known &= mass < 0.9
  else:
    share = _share(variation, num_records, epsilon, rho, sharp)
  values = np.where(known, np.square(height) / 4 * np.maximum(share, 0), 0.0)
  return _best(values, _WIDTHS)


def _unlimited(energy: np.ndarray, mass: np.ndarray, num_records: int,
               sharp: bool) -> np.ndarray:
  """Of D^2 / 4 for any estimator: 1 against f, never below 1 - mass.

  Series of the logarithm and of the root, in f - 1: for what lies above 1 the
  squares are more than all, and for what lies below the rest is geometric.
  """
  rest = mass**3 / (1 - mass)
  if sharp:
    return np.exp(2 * num_records * np.log1p(-energy / 8 - rest / 16))
  return testing.le_cam(testing.pinsker(num_records * (energy / 2 + rest / 3)))


def printed_pointwise(lipschitz: float, *, num_records: int,
                      epsilon: float | None = None, rho: float | None = None,
                      derived: bool = False) -> float:
  """Theorem 2 with the constants of its proof, for n and n alpha large enough.

  Args:
    lipschitz: L.
    num_records: n.
    epsilon: of the release, or
    rho: of the release, or neither.
    derived: what 1 - h >= 1/2 gives under rho, sqrt 2 less (erratum E5).
  """
  if epsilon is not None:
    return lipschitz**2 * math.exp(-lipschitz) / (32 * num_records * epsilon)
  if rho is not None:
    return lipschitz / (64 * (math.sqrt(2) if derived else 1)
                        * num_records * math.sqrt(rho))
  return lipschitz**2 / 64 * (4 * lipschitz**2 * num_records)**(-2 / 3)


def fano(kernel: packings.Kernel, *, radius: float, num_records: int,
         epsilon: float | None = None, rho: float | None = None,
         printed: bool = False) -> Best:
  """Theorems 3 and 5 by Fano's lemma: 2^(m/8) words, m/8 bits apart.

  Under rho it falls at (n sqrt rho)^(-2 beta / (beta + 1/2)), not the rate of
  the class.

  Args:
    kernel: `triangle` or `smooth`.
    radius: L.
    num_records: n.
    epsilon: of the release, or
    rho: of the release, or neither.
    printed: with the separation of (24) and (31).
  """
  counts, mass, energy, known = _bumps(kernel, radius)
  if epsilon is not None:
    information = 2 * num_records * epsilon * counts * mass
  elif rho is not None:
    moved = num_records * counts * mass
    information = 4 * rho * moved * (1 + moved)
  else:
    information = num_records * counts * (energy - counts * mass**2)
  tau = packings.separation(energy, mass, counts, printed=printed)
  # Increasing in the number of bits that are on, up to m.
  known &= (counts >= 8) & (energy > 2 * counts * mass**2)
  error = 1 - (1 + information) / (counts * math.log(2) / 8)
  return _best(np.where(known, counts * tau / 16 * error, 0.0), counts)


def assouad(kernel: packings.Kernel, *, radius: float, num_records: int,
            epsilon: float | None = None, rho: float | None = None,
            statement: str = 'corrected') -> Best:
  """Theorems 3 and 5 by Assouad's lemma.

  Args:
    kernel: `triangle` or `smooth`.
    radius: L.
    num_records: n.
    epsilon: of the release, or
    rho: of the release, or neither.
    statement: of `testing.assouad`; where printed, the separation is too.
  """
  counts, mass, energy, known = _bumps(kernel, radius)
  tau = packings.separation(energy, mass, counts,
                            printed=statement != 'corrected')
  if epsilon is None and rho is None:
    # Divergences are at most those of squares, over the lowest density.
    known &= counts * mass < 0.9
    divergence = (energy - mass**2) / np.where(known, 1 - counts * mass, 1)
    error = testing.le_cam(testing.pinsker(num_records * divergence))
  else:
    # One bump more and a lower level: no farther apart than by its mass.
    error = _share(mass, num_records, epsilon, rho, False)
  values = testing.assouad(tau, counts, error, statement=statement)
  return _best(np.where(known & (error > 0), values, 0.0), counts)


def _bumps(kernel: packings.Kernel, radius: float) -> tuple[np.ndarray, ...]:
  """Numbers, masses and energies of bumps, and where densities are positive."""
  errors.check_positive('radius', radius)
  if kernel.balanced:
    raise ValueError(f'{kernel.name} is for `cells`')
  counts = _FEWER[:, None]
  widths = _SHARES / (counts + 1)
  unit = radius * widths**kernel.smoothness
  mass = kernel.mass * unit * widths
  return (np.broadcast_to(counts, mass.shape), mass,
          kernel.energy * unit**2 * widths, counts * mass <= 1)


def cells(kernel: packings.Kernel, *, radius: float, num_records: int,
          epsilon: float | None = None, rho: float | None = None,
          sharp: bool = False) -> Best:
  """Integrated squared error by 1 / w cells, a bump up or down in each.

  Not `sharp`: Assouad's lemma. Sharp: errors of cells add up, and each is that
  of two points, 2 sqrt(energy) apart.

  Args:
    kernel: `wave` (periodic Sobolev) or `sawtooth` (Lipschitz).
    radius: L.
    num_records: n.
    epsilon: of the release, or
    rho: of the release, or neither.
    sharp: see above.
  """
  errors.check_positive('radius', radius)
  if not kernel.balanced:
    raise ValueError(f'{kernel.name} is not of mean 0')
  unit = radius * _COUNTS**-float(kernel.smoothness)
  energy = kernel.energy * unit**2 / _COUNTS
  top = np.minimum(unit * kernel.top, 1)
  if epsilon is None and rho is None:
    # 1 - sqrt(1 - s^2) is s^2 / (1 + sqrt(1 - s^2)), for s up to the top.
    apart = np.minimum(energy / (1 + np.sqrt(1 - top**2)), 0.999)
    logs = 2 * num_records * np.log1p(-apart)
    share = np.exp(logs) if sharp else testing.le_cam(np.sqrt(-np.expm1(logs)))
  else:
    share = _share(np.minimum(kernel.absolute * unit / _COUNTS, 1), num_records,
                   epsilon, rho, sharp)
  known = (unit * kernel.top <= 1) & (share > 0)
  return _best(np.where(known, _COUNTS * energy * share, 0.0), _COUNTS)


def cell_constant(kernel: packings.Kernel, *, pure: bool, sharp: bool = False
                  ) -> float:
  """What `cells` tends to: C of C L^(2 / (beta + 1)) (n alpha)^(-q).

  q = 2 beta / (beta + 1), alpha is epsilon or sqrt rho and small.
  """
  q = 2 * kernel.smoothness / (kernel.smoothness + 1)
  scale = kernel.energy * kernel.absolute**-q
  if sharp and pure:
    return scale * max((2 * q / math.e)**q, (2 * q / math.e)**(q / 2))
  if sharp:
    return scale * (q / (2 * math.e))**(q / 2)
  if pure:
    return scale / 2 * (q / math.e)**q
  return scale / 2 * (math.sqrt(2) * q / (1 + q))**q / (1 + q)


def least_favourable(packing: packings.Packing, word: Sequence[int]
                     ) -> laws.Density:
  """f_w as a density that estimators can be tried on (item DEN-C3).

  Args:
    packing: of the bounds.
    word: [m] bits, 0 and 1, or -1 and 1 of bumps of mean 0.
  """
  bits = np.asarray(word)[None]
  if bits.shape != (1, len(packing.centres)):
    raise ValueError(f'word must have {len(packing.centres)} bits, got '
                     f'{len(word)}')
  edges = np.linspace(-0.5, 0.5, _PLACES + 1)
  nodes, weights = packings.rule(edges)
  parts = (packing.kernel.value(nodes) * weights).reshape(_PLACES, -1)
  below = interpolate.CubicHermiteSpline(edges, np.concatenate([
      [0], np.cumsum(parts.sum(1))]), packing.kernel.value(edges))

  def cdf(x):
    places = np.subtract.outer(x, packing.centres) / packing.width
    moved = packing.bump_of(below(np.clip(places, -0.5, 0.5))) * packing.width
    return x * (1 - packing.mass * bits.sum()) + moved @ bits[0]
  return laws.Density(
      name=f'{packing.kernel.name}{packing.kernel.smoothness}', cdf=cdf,
      pdf=lambda x: packing.densities(bits, np.ravel(x)).reshape(np.shape(x)),
      square=1 + float(packing.divergence_bound(bits)[0]),
      lipschitz=packing.radius if packing.kernel.lipschitz else math.inf)


def _share(variation: np.ndarray, num_records: int, epsilon: float | None,
           rho: float | None, sharp: bool) -> np.ndarray:
  """Of D^2 / 4: errors at two points, or of a test of the two."""
  if (epsilon is None) == (rho is None):
    raise ValueError(f'give epsilon or rho, got {epsilon} and {rho}')
  if sharp:
    return testing.squared_share(variation, num_records=num_records,
                                 epsilon=epsilon, rho=rho)
  if epsilon is not None:
    return testing.le_cam_pure(variation, num_records=num_records,
                               epsilon=epsilon, exponential=True)
  return testing.le_cam_zcdp(variation, num_records=num_records, rho=rho)


def _best(values: np.ndarray, sizes: np.ndarray) -> Best:
  place = int(np.argmax(values))
  return Best(float(values.ravel()[place]), float(sizes.ravel()[place]))
