"""Projections under (epsilon, delta): what the noise has to be, by five rules.

Gaussian noise moves from the l1 to the l2 sensitivity at the price of a delta
(paper 001, section 4.4, lines 660-741; thesis 000, Corollary 5.2.5; item
DEN-P6, P7, B15). Every rule is a rho of the same Gaussian release, so that the
event of what is built here says what it really costs. Against the printed pure
estimator the printed relaxation wins from N = 4 ln(1 / delta) on alone; pure
spectral estimates have less noise than either.
"""

import math

from scipy import optimize

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import notions
from dpjax.privacy import renyi
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density import projections

RULES = ('classical', 'corollary', 'zcdp', 'renyi', 'exact')


def rho_of(rule: str, *, epsilon: float, delta: float,
           allow_unsound: bool = False) -> float:
  """The rho of a Gaussian release that a rule takes for (epsilon, delta)-DP.

    classical   epsilon^2 / (4 ln(1.25 / delta)): sqrt(2 ln(1.25 / delta)) /
                epsilon sensitivities of noise (001, line 668)
    corollary   epsilon^2 / (16 ln(1 / delta)), for epsilon <= 8 ln(1 / delta);
                Corollary 2, with delta = n^-gamma
    zcdp        the largest with rho + 2 sqrt(rho ln(1 / delta)) <= epsilon
    renyi       the largest by the tight conversion at the best order
    exact       by the exact curve of Gaussian noise: the largest there is

  Args:
    rule: one of `RULES`.
    epsilon: wanted.
    delta: wanted.
    allow_unsound: takes the classical rule for epsilon >= 1, where it is not
      proved, and false further on: at delta = 1e-5 and epsilon = 16 it has a
      delta of 3.4e-4 (erratum E8).

  Raises:
    ValueError: where the rule does not hold.
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
  """Standard deviation of the noise over the l2 sensitivity."""
  return 1 / math.sqrt(2 * errors.check_positive('rho', rho))


def relaxed_projection(*, num_records: int, epsilon: float, delta: float,
                       num_functions: int, adjacency: Adjacency,
                       rule: str = 'exact', tuning: str = 'exact',
                       allow_unsound: bool = False) -> projections.Projection:
  """A projection with Gaussian noise for (epsilon, delta), by a rule.

  Guarantee: (epsilon, delta)-DP under `adjacency`; its event holds whatever
  the rule. Printed are rule 'classical' or 'corollary' and tuning 'printed',
  which noise the constant as well.

  Args:
    num_records: n.
    epsilon: of the release.
    delta: of the release.
    num_functions: N, odd.
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
  """Section 4.4 (rule 'classical') or Corollary 2 of the paper, with their N.

  N of the order of (n epsilon / sqrt(ln(1.25 / delta)))^(1 / (beta + 1)), or
  with ln(1 / delta) in the corollary. The thesis has n sqrt(rho) there, less
  by 4^(1 / (beta + 1)): `projections.printed_projection` of that rho.
  """
  errors.check_choice('rule', rule, ('classical', 'corollary'))
  errors.check_open_unit('delta', delta)
  depth = math.log((1.25 if rule == 'classical' else 1) / delta)
  size = projections.printed_num_functions(
      num_records * epsilon / math.sqrt(depth), num_records=num_records,
      smoothness=smoothness, pure=False)
  return relaxed_projection(
      num_records=num_records, epsilon=epsilon, delta=delta,
      num_functions=size, adjacency=adjacency, rule=rule, tuning='printed',
      allow_unsound=allow_unsound)


def break_even(delta: float) -> float:
  """The N from which Corollary 2 has less noise than printed pure noise.

  16 N^3 / (n epsilon)^2 of Theorem 4 against 64 ln(1 / delta) N^2 / (n
  epsilon)^2: N = 4 ln(1 / delta), whatever n and epsilon.
  """
  return 4 * math.log(1 / errors.check_open_unit('delta', delta))


def _renyi_rho(epsilon: float, delta: float) -> float:
  def spent(log_rho):
    guarantee = notions.ZCDP(rho=math.exp(log_rho))
    # The best order of the looser conversion is 1 + sqrt(ln(1/delta) / rho).
    near = math.log(-math.log(delta) / guarantee.rho) / 2
    found = optimize.minimize_scalar(
        lambda place: renyi.approx_from_renyi(
            renyi.renyi_from_zcdp(guarantee, order=1 + math.exp(place)),
            delta=delta).epsilon,
        bounds=(near - 3, near + 6), method='bounded',
        options={'xatol': 1e-9})
    return found.fun - epsilon
  floor, most = (math.log(rho_of(rule, epsilon=epsilon, delta=delta))
                 for rule in ('zcdp', 'exact'))
  found = optimize.brentq(spent, floor - 1e-9, most + 1e-9, xtol=1e-12)
  # Root finding may end on either side of the root.
  return math.exp(found - 1e-9)
