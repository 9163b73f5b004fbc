"""Guarantees under composition, for groups and on subsamples.

Closed forms from the literature that map a guarantee to a guarantee. They do
not use the mechanism itself; for a mechanism of dpjax, `accounting` of its
event gives smaller costs. They serve for planning by hand and for testing the
accountant.
"""

from collections.abc import Sequence
import math
from typing import NamedTuple

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.privacy.notions import ApproxDP


def basic(guarantees: Sequence[ApproxDP]) -> ApproxDP:
  """Returns the sum of all epsilons and deltas, for releases on the same data.

  Also holds for adaptively chosen releases. Source: Barczewski (2025, Theorem
  3.1.2; item DP-03).
  """
  return ApproxDP(epsilon=math.fsum(g.epsilon for g in guarantees),
                  delta=math.fsum(g.delta for g in guarantees))


def advanced(guarantee: ApproxDP, *, num_uses: int,
             slack: float) -> ApproxDP:
  """Returns the guarantee of `num_uses` releases by advanced composition.

  Epsilon grows more slowly than in `basic`, for a small additional delta:
  epsilon' = sqrt(2 K ln(1/slack)) epsilon + K epsilon (e^epsilon - 1), delta' =
  K delta + slack. Source: Dwork, Rothblum and Vadhan (2010); Barczewski (2025,
  Theorem 3.1.3; item DP-04).

  Args:
    guarantee: guarantee of each release.
    num_uses: K, the number of releases.
    slack: additional delta, in (0, 1).
  """
  errors.check_at_least('num_uses', num_uses, 1)
  errors.check_open_unit('slack', slack)
  one = guarantee.epsilon
  return ApproxDP(
      epsilon=(math.sqrt(2 * num_uses * math.log(1 / slack)) * one +
               num_uses * one * math.expm1(one)),
      delta=num_uses * guarantee.delta + slack)


def group(guarantee: ApproxDP, *, size: int) -> ApproxDP:
  """Returns the guarantee for data sets that differ in `size` records.

  (K epsilon, delta (e^(K epsilon) - 1) / (e^epsilon - 1)), the geometric sum
  over the K steps from one data set to the other (item DP-08).

  Args:
    guarantee: guarantee for data sets that differ in one record.
    size: K, at least 1.
  """
  errors.check_at_least('size', size, 1)
  one = guarantee.epsilon
  # At epsilon 0 all terms of the geometric sum are 1.
  growth = math.expm1(size * one) / math.expm1(one) if one else size
  return ApproxDP(epsilon=size * one, delta=growth * guarantee.delta)


class HeterogeneousForms(NamedTuple):
  """Three values of epsilon at one delta, each of them valid.

  Attributes:
    basic: A, the sum of the epsilons.
    with_constant: B, the smaller of the root forms for small epsilons.
    without_constant: C, the smaller of the root forms for larger epsilons.
    delta: 1 - (1 - slack) prod (1 - delta_i).
  """
  basic: float
  with_constant: float
  without_constant: float
  delta: float


def heterogeneous_forms(guarantees: Sequence[ApproxDP], *,
                        slack: float) -> HeterogeneousForms:
  """Returns the three closed forms; `heterogeneous` takes the smallest."""
  errors.check_open_unit('slack', slack)
  each = [g.epsilon for g in guarantees]
  mean = math.fsum(e * math.tanh(e / 2) for e in each)
  squares = math.fsum(e * e for e in each)
  logs = (math.log(math.e + math.sqrt(squares) / slack), math.log(1 / slack))
  with_constant, without_constant = (
      mean + math.sqrt(2 * squares * log) for log in logs)
  return HeterogeneousForms(
      math.fsum(each), with_constant, without_constant,
      delta=1 - (1 - slack) * math.prod(1 - g.delta for g in guarantees))


def heterogeneous(guarantees: Sequence[ApproxDP], *,
                  slack: float) -> ApproxDP:
  """Returns a guarantee of the composition of different guarantees.

  The smallest of three closed forms, at delta' = 1 - (1 - slack) prod (1 -
  delta_i). Valid for adaptively chosen releases; an upper bound on
  `accounting.optimal_composition`. Source: Kairouz, Oh and Viswanath (2015,
  Theorem 3.5); Lalanne (2023, Fact 2.2.4; item ALG-09), which prints min(A, B,
  B) and calls it sharp (erratum T-E09).

  Args:
    guarantees: one for each release.
    slack: additional delta, in (0, 1).

  Examples:
    >>> from experiments.methods.theory import composition, notions
    >>> many = [notions.ApproxDP(epsilon=0.1, delta=0.0)] * 100
    >>> bound = composition.heterogeneous(many, slack=1e-5)
    >>> round(composition.basic(many).epsilon, 2), round(bound.epsilon, 2)
    (10.0, 5.3)
  """
  *epsilons, delta = heterogeneous_forms(guarantees, slack=slack)
  return ApproxDP(epsilon=min(epsilons), delta=delta)


def parallel(guarantees: Sequence[ApproxDP], *, adjacency: Adjacency,
             alike: bool = False) -> ApproxDP:
  """Returns the guarantee of releases on disjoint parts of the records.

  Each record is in one part, determined by the record alone. Under
  add-or-remove-one only that part changes: the guarantee has the largest
  epsilon and the largest delta. Under replace-one there are two cases. The
  record moves to another part, which composes the two worst guarantees; or it
  changes within a part, which is a group of two. Source: lecture notes (chapter
  7, Exercise 7.9; item ALG-13, erratum L-E07).

  Args:
    guarantees: one for each part, under ADD_OR_REMOVE_ONE.
    adjacency: neighbouring relation of the returned guarantee.
    alike: True if all records of a part are equal, as in a cell of a table.
      Then nothing can change within a part.
  """
  worst = lambda values: sorted(values, reverse=True)
  epsilons = worst(g.epsilon for g in guarantees)
  deltas = worst(g.delta for g in guarantees)
  count = 1 if check_adjacency(adjacency) is Adjacency.ADD_OR_REMOVE_ONE else 2
  between = ApproxDP(epsilon=math.fsum(epsilons[:count]),
                   delta=math.fsum(deltas[:count]))
  if adjacency is Adjacency.ADD_OR_REMOVE_ONE or alike:
    return between
  within = [replace_one_from_add_or_remove(g) for g in guarantees]
  return ApproxDP(
      epsilon=max((g.epsilon for g in within), default=0.0),
      # Covers moves between parts too: 2 epsilon and (1 + e^epsilon) delta are
      # at least the sums of two epsilons and of two deltas.
      delta=max((g.delta for g in within), default=0.0))


def replace_one_from_add_or_remove(guarantee: ApproxDP) -> ApproxDP:
  """Returns a guarantee under replace-one from one under add-or-remove-one.

  (2 epsilon, (1 + e^epsilon) delta): a group of two, and attained. Lalanne
  (2023, Remark 2.2.5) prints (2 epsilon, 2 delta), which is false (item ALG-12,
  erratum T-E08). Where the mechanism is known, account for it directly instead.
  """
  return group(guarantee, size=2)


def sampled_without_replacement(guarantee: ApproxDP, *, sample_size: int,
                                num_examples: int) -> ApproxDP:
  """Returns the guarantee on a uniform subset of fixed size.

  For REPLACE_ONE on both sides: (ln(1 + (m/n) (e^epsilon - 1)), (m/n) delta).
  Source: Barczewski (2025, Theorem 3.2.2). The algorithms printed there apply
  it to Poisson batches under add-or-remove-one, which the theorem does not
  cover (item DP-17, erratum E25).

  Args:
    guarantee: guarantee of the release from the subset, under replace-one.
    sample_size: m, fixed and public.
    num_examples: n >= m, public.
  """
  errors.check_at_least('sample_size', sample_size, 1)
  errors.check_at_least('num_examples', num_examples, sample_size)
  return _amplified(guarantee, sample_size / num_examples)


def sampled_poisson(guarantee: ApproxDP, *,
                    sampling_prob: float) -> ApproxDP:
  """Returns the guarantee on a Poisson subsample.

  For ADD_OR_REMOVE_ONE on both sides: (ln(1 + q (e^epsilon - 1)), q delta),
  with a public q that is not computed from the private number of records (item
  DP-17, erratum E25). Source: Balle, Barthe and Gaboardi (2018, Theorem 8).

  Args:
    guarantee: guarantee from the subsample, under add-or-remove-one.
    sampling_prob: q, of every record, independently.
  """
  errors.check_probability('sampling_prob', sampling_prob)
  return _amplified(guarantee, sampling_prob)


def _amplified(guarantee: ApproxDP, prob: float) -> ApproxDP:
  """Returns the guarantee amplified by sampling with probability `prob`."""
  # ln(1 + q (e^epsilon - 1)), precise for small q and epsilon.
  return ApproxDP(epsilon=math.log1p(prob * math.expm1(guarantee.epsilon)),
                  delta=prob * guarantee.delta)
