"""Lower bounds for private estimators of a density on [0, 1].

For n records under REPLACE_ONE, against the worst density of a class. A release
under ADD_OR_REMOVE_ONE counts as 2 epsilon or 4 rho here. Bounds:
  pointwise  squared error at one point, Lipschitz densities (Theorem 2); also
             of the largest error (Corollary 1)
  fano       integrated squared error by many hypotheses (Theorems 3 and 5)
  assouad    integrated squared error by a cube of bumps
  cells      integrated squared error by bumps of mean 0, whose bits do not
             interact (DEN-L11)

The budget is epsilon or rho; with neither, the bound holds for any estimator,
so a private one obeys both. `sharp` bounds squared errors at two points by
`testing.squared_share` instead of a test of the two. Each bound is the largest
over the free parameters of its packing; every value is a proved bound at any n.
Computed on the host. Source: Lalanne, Garivier and Gribonval (2023, section 3.3
and Theorem 5); Lalanne (2023, Theorems 5.1.3, 5.1.6 and 5.2.4; items
DEN-L8..L11, errata DEN-E5, DEN-E5b).
"""

from collections.abc import Sequence
import math
from typing import NamedTuple

import numpy as np
from scipy import interpolate

from dpjax import errors
from dpjax.stats.density_methods import densities
from experiments.methods.theory import density_packings as packings
from experiments.methods.theory import testing

_MOST_CELLS = 1e7
# Number of intervals on which the integral of a kernel is a cubic.
_PLACES = 1024
_COUNTS = np.unique(np.round(np.geomspace(1, _MOST_CELLS, 4000)))
_FEWER = np.unique(np.round(np.geomspace(1, _MOST_CELLS, 800)))
# Widths of bumps, relative to the distance of two centres.
_SHARES = np.geomspace(1e-3, 1, 200)
_WIDTHS = np.geomspace(1e-7, 1, 10001)


class Best(NamedTuple):
  """The largest lower bound found, and where.

  Attributes:
    value: lower bound of the risk.
    size: h, or the number of bumps, that gives it.
  """
  value: float
  size: float


def pointwise(lipschitz: float, *, num_records: int,
              epsilon: float | None = None, rho: float | None = None,
              centre: float = 0.5, sharp: bool = False) -> Best:
  """Returns the bound of Theorem 2: error at x_0, between 1 and a spike there.

  At an end, half a spike has the same height and half the mass, so the bound is
  twice that of the middle. With `sharp` = False it uses e^(-n epsilon t), with
  the exact total variation t.

  Args:
    lipschitz: L, the largest slope of a density.
    num_records: n, the number of records.
    epsilon: budget of the release; give this or rho, or neither.
    rho: budget of the release in zCDP.
    centre: x_0, the point of the spike.
    sharp: see the module.
  """
  errors.check_positive('lipschitz', lipschitz)
  if not 0 <= centre <= 1:
    raise ValueError(f'centre must lie in [0, 1], got {centre}')
  inside = np.minimum(np.array([centre, 1 - centre])[:, None], _WIDTHS)
  # The part of a spike that lies outside [0, 1] is missing from its mass.
  mass = lipschitz * np.sum(inside * (_WIDTHS - inside / 2), 0)
  # Renormalising f = 1 + spike lowers it everywhere by the spike's mass.
  height = lipschitz * _WIDTHS - mass
  half_width = np.minimum(inside, height / lipschitz)
  variation = np.sum(half_width * (height - lipschitz * half_width / 2), 0)
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
  """Returns the fraction of D^2 / 4 for any estimator: 1 against a spike.

  The density f is never below 1 - mass. Logarithm and root are bounded by their
  series in f - 1: where f > 1 the squares dominate, and where f < 1 the
  remainder is geometric.
  """
  rest = mass**3 / (1 - mass)
  if sharp:
    return np.exp(2 * num_records * np.log1p(-energy / 8 - rest / 16))
  return testing.le_cam(testing.pinsker(num_records * (energy / 2 + rest / 3)))


def printed_pointwise(lipschitz: float, *, num_records: int,
                      epsilon: float | None = None, rho: float | None = None,
                      derived: bool = False) -> float:
  """Returns Theorem 2 with its proof's constants, for n and n alpha large.

  Args:
    lipschitz: L, the largest slope of a density.
    num_records: n, the number of records.
    epsilon: budget of the release; give this or rho, or neither.
    rho: budget of the release in zCDP.
    derived: whether to use what 1 - h >= 1/2 gives for rho, smaller by sqrt 2
      (erratum DEN-E5).
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
  """Returns Theorems 3 and 5 by Fano: 2^(m/8) words, m/8 bits apart.

  For rho it falls at (n sqrt rho)^(-2 beta / (beta + 1/2)), which is not the
  rate of the class.

  Args:
    kernel: `triangle` or `smooth`.
    radius: L, the norm that bounds the class.
    num_records: n, the number of records.
    epsilon: budget of the release; give this or rho, or neither.
    rho: budget of the release in zCDP.
    printed: whether to use the published separation, (24) and (31).
  """
  counts, mass, energy, known = _bumps(kernel, radius)
  if epsilon is not None:
    information = 2 * num_records * epsilon * counts * mass
  elif rho is not None:
    num_changed = num_records * counts * mass
    information = 4 * rho * num_changed * (1 + num_changed)
  else:
    information = num_records * counts * (energy - counts * mass**2)
  tau = packings.separation(energy, mass, counts, printed=printed)
  # Valid only if the distance increases with the number of set bits, up to m.
  known &= (counts >= 8) & (energy > 2 * counts * mass**2)
  error = 1 - (1 + information) / (counts * math.log(2) / 8)
  return _best(np.where(known, counts * tau / 16 * error, 0.0), counts)


def assouad(kernel: packings.Kernel, *, radius: float, num_records: int,
            epsilon: float | None = None, rho: float | None = None,
            statement: str = 'corrected') -> Best:
  """Returns the bound of Theorems 3 and 5 by Assouad's lemma.

  Args:
    kernel: `triangle` or `smooth`.
    radius: L, the norm that bounds the class.
    num_records: n, the number of records.
    epsilon: budget of the release; give this or rho, or neither.
    rho: budget of the release in zCDP.
    statement: of `testing.assouad`; the published ones use the published
      separation too.
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
    # One more bump and a lower level: the total variation is at most the mass.
    error = _share(mass, num_records, epsilon, rho, False)
  values = testing.assouad(tau, counts, error, statement=statement)
  return _best(np.where(known & (error > 0), values, 0.0), counts)


def _bumps(kernel: packings.Kernel, radius: float) -> tuple[np.ndarray, ...]:
  """Returns counts, masses and energies of bumps, and a mask of validity.

  A choice is valid if the densities are positive.
  """
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
  """Returns the bound from 1 / w cells, with a bump up or down in each.

  Without `sharp` it uses Assouad's lemma. With `sharp`, errors of cells add up,
  and each is that of two points at distance 2 sqrt(energy).

  Args:
    kernel: `wave` (periodic Sobolev) or `sawtooth` (Lipschitz).
    radius: L, the norm that bounds the class.
    num_records: n, the number of records.
    epsilon: budget of the release; give this or rho, or neither.
    rho: budget of the release in zCDP.
    sharp: True for errors of two points instead of Assouad's lemma.
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
  """Returns the limit C of `cells`: C L^(2 / (beta + 1)) (n alpha)^(-q).

  q = 2 beta / (beta + 1); alpha is epsilon or sqrt rho, and small.
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
                     ) -> densities.Density:
  """Returns f_w as a density, to try estimators on (item DEN-C3).

  Args:
    packing: packing of a bound.
    word: [m] bits, 0 and 1, or -1 and 1 for bumps of mean 0.
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
    integrals = packing.bump_of(
        below(np.clip(places, -0.5, 0.5))) * packing.width
    return x * (1 - packing.mass * bits.sum()) + integrals @ bits[0]
  return densities.Density(
      name=f'{packing.kernel.name}{packing.kernel.smoothness}', cdf=cdf,
      pdf=lambda x: packing.densities(bits, np.ravel(x)).reshape(np.shape(x)),
      square=1 + float(packing.divergence_bound(bits)[0]),
      lipschitz=packing.radius if packing.kernel.lipschitz else math.inf)


def _share(variation: np.ndarray, num_records: int, epsilon: float | None,
           rho: float | None, sharp: bool) -> np.ndarray:
  """Returns the error at two points, or of a test, as a fraction of D^2 / 4."""
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
  """Returns the largest value and its size."""
  place = int(np.argmax(values))
  return Best(float(values.ravel()[place]), float(sizes.ravel()[place]))
