"""Projections under (epsilon, delta): the noise required by five rules.

With Gaussian noise the l2 sensitivity replaces the l1 sensitivity, at the cost
of a delta (Lalanne, Garivier and Gribonval 2023, section 4.4; Lalanne 2023,
Corollary 5.2.5; items DEN-P6, P7, B15). Every rule is a rho of the same
Gaussian release, so `event` states the true privacy cost. Compared with the
published pure estimator, the published relaxation is better only from N = 4
ln(1 / delta) on; pure spectral estimates have less noise than either.
"""

import math

from scipy import optimize

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import projections
from experiments.methods.mechanisms import renyi_steps
from experiments.methods.statistics import projection_tunings

RULES = ('classical', 'corollary', 'zcdp', 'renyi', 'exact')


def rho_of(rule: str, *, epsilon: float, delta: float,
           allow_unsound: bool = False) -> float:
  """Returns the rho of a Gaussian release, by a rule for (epsilon, delta)-DP.

    classical   epsilon^2 / (4 ln(1.25 / delta)): noise of
                sqrt(2 ln(1.25 / delta)) / epsilon sensitivities (Lalanne,
                Garivier and Gribonval 2023, section 4.4)
    corollary   epsilon^2 / (16 ln(1 / delta)), for epsilon <= 8 ln(1 / delta);
                Corollary 2, with delta = n^-gamma
    zcdp        the largest with rho + 2 sqrt(rho ln(1 / delta)) <= epsilon
    renyi       the largest by the tight conversion at the best order
    exact       by the exact curve of Gaussian noise: the largest possible

  Args:
    rule: one of `RULES`.
    epsilon: target epsilon.
    delta: target delta.
    allow_unsound: permits the classical rule for epsilon >= 1, where it is not
      proved, and fails for large epsilon: at delta = 1e-5 and epsilon = 16 its
      true delta is 3.4e-4 (erratum DEN-E8).

  Raises:
    ValueError: if the rule does not hold for epsilon and delta.
  """
  errors.check_choice('rule', rule, RULES)
  errors.check_positive('epsilon', epsilon)
  errors.check_open_unit('delta', delta)
  if rule == 'classical':
    if epsilon >= 1 and not allow_unsound:
      raise ValueError('the classical rule is proved for epsilon < 1 only, got '
                       f'{epsilon}: use rule=\'exact\'')
    return epsilon**2 / (4 * math.log(1.25 / delta))
  if rule == 'corollary':
    most = 8 * math.log(1 / delta)
    if epsilon > most:
      raise ValueError('Corollary 2 needs epsilon <= 8 ln(1 / delta) = '
                       f'{most:.4g}, got {epsilon}')
    return epsilon**2 / (2 * most)
  if rule == 'zcdp':
    return notions.zcdp_from_approx_target(
        notions.ApproxDP(epsilon=epsilon, delta=delta)).rho
  if rule == 'renyi':
    return _renyi_rho(epsilon, delta)
  return accounting.gaussian_shift(epsilon=epsilon, delta=delta)**2 / 2


def noise_multiplier(rho: float) -> float:
  """Returns the noise standard deviation divided by the l2 sensitivity."""
  return 1 / math.sqrt(2 * errors.check_positive('rho', rho))


def relaxed_projection(*, num_records: int, epsilon: float, delta: float,
                       num_functions: int, adjacency: Adjacency,
                       rule: str = 'exact', tuning: str = 'exact',
                       allow_unsound: bool = False) -> projections.Projection:
  """Returns a projection with Gaussian noise for (epsilon, delta), by a rule.

  Guarantee: (epsilon, delta)-DP under `adjacency`; its event is exact for every
  rule. The published versions are rule 'classical' or 'corollary' with tuning
  'printed', which add noise to the constant too.

  Args:
    num_records: n, the number of records.
    epsilon: target epsilon of the release.
    delta: target delta of the release.
    num_functions: N, the odd number of functions.
    adjacency: which data sets are neighbours.
    rule: see `rho_of`.
    tuning: see `projections.Projection`.
    allow_unsound: see `rho_of`.
  """
  return projections.Projection(
      num_records=num_records, num_functions=num_functions, tuning=tuning,
      fix_mass=tuning != 'printed', adjacency=adjacency, rho=rho_of(
          rule, epsilon=epsilon, delta=delta, allow_unsound=allow_unsound))


def printed_relaxation(*, num_records: int, epsilon: float, smoothness: int,
                       delta: float, rule: str = 'corollary',
                       adjacency: Adjacency,
                       allow_unsound: bool = False) -> projections.Projection:
  """Returns the published relaxed estimators, with their N.

  Rule 'classical' is section 4.4 and rule 'corollary' Corollary 2 of Lalanne,
  Garivier and Gribonval (2023). N is of the order of (n epsilon / sqrt(ln(1.25
  / delta)))^(1 / (beta + 1)), with ln(1 / delta) in the corollary. Lalanne
  (2023) has n sqrt(rho) instead, smaller by 4^(1 / (beta + 1)):
  `projection_tunings.printed_projection` of that rho.
  """
  errors.check_choice('rule', rule, ('classical', 'corollary'))
  errors.check_open_unit('delta', delta)
  depth = math.log((1.25 if rule == 'classical' else 1) / delta)
  size = projection_tunings.printed_num_functions(
      num_records * epsilon / math.sqrt(depth), num_records=num_records,
      smoothness=smoothness, pure=False)
  return relaxed_projection(
      num_records=num_records, epsilon=epsilon, delta=delta,
      num_functions=size, adjacency=adjacency, rule=rule, tuning='printed',
      allow_unsound=allow_unsound)


def break_even(delta: float) -> float:
  """Returns the N from which Corollary 2 has less noise than Theorem 4.

  16 N^3 / (n epsilon)^2 of Theorem 4 equals 64 ln(1 / delta) N^2 / (n
  epsilon)^2 at N = 4 ln(1 / delta), for all n and epsilon.
  """
  return 4 * math.log(1 / errors.check_open_unit('delta', delta))


def _renyi_rho(epsilon: float, delta: float) -> float:
  """Returns the largest rho by the conversion at the best Renyi order."""
  def spent(log_rho: float) -> float:
    guarantee = notions.ZCDP(rho=math.exp(log_rho))
    # The best order of the looser conversion is 1 + sqrt(ln(1/delta) / rho).
    near = math.log(-math.log(delta) / guarantee.rho) / 2
    optimum = optimize.minimize_scalar(
        lambda place: renyi_steps.approx_from_renyi(
            renyi_steps.renyi_from_zcdp(guarantee, order=1 + math.exp(place)),
            delta=delta).epsilon,
        bounds=(near - 3, near + 6), method='bounded',
        options={'xatol': 1e-9})
    return optimum.fun - epsilon
  # The rho lies between those of the looser and the exact conversion.
  floor, most = (math.log(rho_of(rule, epsilon=epsilon, delta=delta))
                 for rule in ('zcdp', 'exact'))
  optimum = optimize.brentq(spent, floor - 1e-9, most + 1e-9, xtol=1e-12)
  # Root finding may end on either side of the root.
  return math.exp(optimum - 1e-9)
