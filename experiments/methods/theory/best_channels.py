"""The best private channels of small problems, by linear programmes.

Privacy constraints between neighbouring data sets are linear in the
probabilities of a channel. So the least expected cost over all private
mechanisms is a linear programme, with no assumption on the mechanism. Lower
bounds are compared with these values, which are exact to the tolerance of the
solver (HiGHS, about 1e-7). Source: Ghosh, Roughgarden and Sundararajan (2009),
who optimise mechanisms so; catalogue items ORC-1, ORC-3 and ORC-5.

Records are exchangeable under product distributions, so the best channels use
counts only: averaging a channel over the orders of records keeps it private.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
from scipy import optimize
from scipy import sparse
from scipy import special
from scipy import stats

from dpjax import errors
from dpjax.privacy import notions
from dpjax.theory.minimax.bounds import Guarantee

# Largest number of coefficients of a programme, for costs or for privacy.
_LARGEST = 2_000_000


class Channel(NamedTuple):
  """A channel of least cost, and that cost.

  Attributes:
    value: least possible value of the largest expected cost.
    probs: [S, J] output probabilities, a row for each state of the data; for
      `coupling` the joint distribution.
  """
  value: float
  probs: np.ndarray


def least(costs: np.ndarray, neighbours: np.ndarray, guarantee: Guarantee
          ) -> Channel:
  """Returns the private channel whose largest of C expected costs is least.

  Args:
    costs: [C, S, J]; a cost is the sum of costs[c] Q over states and outputs,
      so it includes the probabilities of states. One cost gives a Bayes risk.
    neighbours: [P, 2], pairs of states that differ in one record, in one order
      or both.
    guarantee: pure, approximate, of total variation, or None.
  """
  costs = np.asarray(costs, np.float64)
  num_costs, states, outputs = costs.shape
  size = states * outputs
  if size * num_costs > _LARGEST or outputs * len(neighbours) > _LARGEST:
    raise ValueError(f'{states} states and {outputs} outputs are too many for '
                     f'a linear programme: use fewer')
  # Constraints: rows @ variables <= sides, and every state's outputs sum to 1.
  rows, sides = private_rows(neighbours, states, outputs, guarantee)
  slack = rows.shape[1] - size
  # Variables: the channel, slacks of its privacy constraints, largest cost.
  rows = sparse.hstack([rows, sparse.csr_array((rows.shape[0], 1))])
  worst = sparse.hstack([
      sparse.csr_array(costs.reshape(num_costs, size)),
      sparse.csr_array((num_costs, slack)),
      sparse.csr_array(-np.ones((num_costs, 1)))])
  whole = sparse.hstack([
      sparse.kron(sparse.eye_array(states), np.ones((1, outputs))),
      sparse.csr_array((states, slack + 1))])
  solution = optimize.linprog(
      np.append(np.zeros(size + slack), 1.0),
      sparse.vstack([rows, worst]).tocsr(),
      np.concatenate([sides, np.zeros(num_costs)]), whole.tocsr(),
      np.ones(states), [(0, None)] * (size + slack) + [(None, None)],
      method='highs')
  if not solution.success:
    raise ValueError(f'no solution: {solution.message.splitlines()[0]}')
  return Channel(float(solution.fun),
                 solution.x[:size].reshape(states, outputs))


def private_rows(neighbours: np.ndarray, num_states: int, num_outputs: int,
                 guarantee: Guarantee) -> tuple[sparse.csr_array, np.ndarray]:
  """Returns inequalities A q <= b for a private channel q, [S, J] flattened.

  If more than two outputs share delta there are slack variables after q: for
  each pair and output the excess over e^epsilon times the other's probability.

  Args:
    neighbours: [P, 2] pairs of states.
    num_states: S, the number of states.
    num_outputs: J, the number of outputs.
    guarantee: pure, approximate, of total variation, or None.

  Returns:
    A [., S J + slacks] and b.
  """
  epsilon, delta = _levels(guarantee)
  pairs = np.asarray(neighbours, np.int64).reshape(-1, 2)
  size = num_states * num_outputs
  if epsilon == math.inf or not len(pairs):
    return sparse.csr_array((0, size)), np.zeros(0)
  # The inequality must hold in both directions.
  pairs = np.concatenate([pairs, pairs[:, ::-1]])
  here, there = (np.ravel(side[:, None] * num_outputs + np.arange(num_outputs))
                 for side in pairs.T)
  lines = np.arange(here.size)
  rows = sparse.csr_array(
      (np.repeat([1.0, -math.exp(epsilon)], here.size),
       (np.tile(lines, 2), np.concatenate([here, there]))),
      shape=(here.size, size))
  if not delta or num_outputs == 2:
    return rows, np.full(here.size, delta)
  total = sparse.hstack([
      sparse.csr_array((len(pairs), size)),
      sparse.kron(sparse.eye_array(len(pairs)), np.ones((1, num_outputs)))])
  rows = sparse.hstack([rows, -sparse.eye_array(here.size)])
  return (sparse.vstack([rows, total]).tocsr(),
          np.concatenate([np.zeros(here.size), np.full(len(pairs), delta)]))


def _levels(guarantee: Guarantee) -> tuple[float, float]:
  """Returns epsilon and delta of a guarantee."""
  match guarantee:
    case None:
      return math.inf, 0.0
    case notions.PureDP(epsilon=epsilon):
      return epsilon, 0.0
    case notions.ApproxDP(epsilon=epsilon, delta=delta):
      return epsilon, delta
    case notions.TotalVariationPrivacy(level=level):
      return 0.0, level
    case _:
      raise ValueError(f'no linear programme for {type(guarantee).__name__}')


def chain(num_states: int) -> np.ndarray:
  """Returns neighbours [S - 1, 2] of counts: those that differ by 1."""
  return np.stack([np.arange(num_states - 1), np.arange(1, num_states)], 1)


def data_sets(num_examples: int, num_symbols: int) -> np.ndarray:
  """Returns all data sets [m^n, n] over m symbols, in order."""
  return np.array(list(itertools.product(range(num_symbols),
                                         repeat=num_examples)))


def replaced(states: np.ndarray, *, counts: bool = False) -> np.ndarray:
  """Returns the pairs [P, 2] of states that differ in one record.

  Args:
    states: [S, n] data sets, or [S, m] counts of symbols.
    counts: whether `states` are counts.
  """
  states = np.asarray(states)
  apart = np.sum(states[:, None] != states[None], -1)
  if counts:
    apart = np.sum(np.abs(states[:, None] - states[None]), -1) // 2
  return np.argwhere(np.triu(apart == 1))


def histograms(num_examples: int, num_symbols: int) -> np.ndarray:
  """Returns all counts [S, m] of n records over m symbols."""
  # Stars and bars: m - 1 bars among n records give the counts between them.
  bars = itertools.combinations(range(num_examples + num_symbols - 1),
                                num_symbols - 1)
  edges = np.array([(-1, *bar, num_examples + num_symbols - 1)
                    for bar in bars])
  return np.diff(edges, axis=1) - 1


def multinomial(counts: np.ndarray, row: np.ndarray) -> np.ndarray:
  """Returns probabilities [S] of counts [S, m] for records drawn from [m]."""
  counts, row = np.asarray(counts, np.float64), np.asarray(row, np.float64)
  logs = (special.gammaln(counts.sum(1) + 1)
          - np.sum(special.gammaln(counts + 1), 1)
          + np.sum(special.xlogy(counts, row), 1))
  return np.exp(logs)


def testing_error(probs: np.ndarray, *, num_examples: int,
                  guarantee: Guarantee) -> Channel:
  """Returns the mean error of the best private test of K distributions (ORC-1).

  Args:
    probs: [K, m] distributions of one record. With two symbols n may be several
      hundred, with more symbols about 6.
    num_examples: n, the number of records.
    guarantee: pure, approximate, of total variation, or None.

  Returns:
    The least mean of K errors, and P(k | counts) [S, K]; counts as of
    `histograms`, and for two symbols counts of the second one, 0 to n.
  """
  probs = np.asarray(probs, np.float64)
  errors.check_at_least('num_examples', num_examples, 1)
  if (probs < 0).any() or not np.allclose(probs.sum(1), 1):
    raise ValueError('probs must be probabilities that sum to 1')
  if probs.shape[1] == 2:
    masses = stats.binom.pmf(np.arange(num_examples + 1), num_examples,
                             probs[:, 1:])
    return _mean_error(masses, chain(num_examples + 1), guarantee)
  states = histograms(num_examples, probs.shape[1])
  masses = np.stack([multinomial(states, row) for row in probs])
  return _mean_error(masses, replaced(states, counts=True), guarantee)


def data_sets_error(chosen: np.ndarray, *, num_symbols: int,
                    guarantee: Guarantee) -> Channel:
  """Returns the mean error of the best private test of K given data sets.

  Args:
    chosen: [K, n], of symbols 0 to m - 1; m^n of a few hundred at most.
    num_symbols: m; more symbols give more paths between data sets.
    guarantee: pure, approximate, of total variation, or None.
  """
  chosen = np.asarray(chosen)
  states = data_sets(chosen.shape[1], num_symbols)
  masses = np.all(chosen[:, None] == states[None], -1).astype(np.float64)
  return _mean_error(masses, replaced(states), guarantee)


def _mean_error(masses: np.ndarray, neighbours: np.ndarray,
                guarantee: Guarantee) -> Channel:
  """Solves for states with masses [K, S] under K equally likely hypotheses."""
  # A guess k costs the mass of all other hypotheses, averaged over K.
  costs = (masses.sum(0)[:, None] - masses.T) / len(masses)
  return least(costs[None], neighbours, guarantee)


def bayes_risk(thetas: np.ndarray, prior: np.ndarray, *, num_examples: int,
               guarantee: Guarantee, num_actions: int = 41) -> Channel:
  """Returns the least mean squared error of a private proportion (ORC-3).

  Args:
    thetas: [T] proportions.
    prior: [T] their probabilities.
    num_examples: n, the number of records.
    guarantee: pure or approximate DP, total variation privacy, or None.
    num_actions: size of the grid of estimates on [0, 1]; with step h the value
      is at most h^2 / 4 above the risk of unrestricted estimates.
  """
  thetas, prior = (np.asarray(x, np.float64) for x in (thetas, prior))
  if (prior < 0).any() or not math.isclose(prior.sum(), 1, abs_tol=1e-9):
    raise ValueError('prior must be probabilities that sum to 1')
  errors.check_at_least('num_examples', num_examples, 1)
  actions = np.linspace(0, 1, errors.check_at_least(
      'num_actions', num_actions, 2))
  masses = stats.binom.pmf(np.arange(num_examples + 1), num_examples,
                           thetas[:, None])
  costs = np.einsum('t,ts,ta->sa', prior, masses, np.square(
      actions - thetas[:, None]))
  return least(costs[None], chain(num_examples + 1), guarantee)


def coupling(probs: np.ndarray, costs: np.ndarray,
             offsets: np.ndarray | float = 0.0) -> Channel:
  """Returns the coupling of K distributions with the least worst cost (ORC-5).

  It minimises the largest of C expected costs plus offsets. With one cost,
  minus a similarity, this is the transport problem (3.12) of Lalanne (2023). If
  the costs are the disagreements of all pairs, and the offsets minus their
  limits, the value is at most 0 if one coupling keeps all limits.

  Args:
    probs: [K, m], the distributions; m^K may be some thousands.
    costs: [C, m, .., m], costs of the K values, one for each distribution.
    offsets: [C], added to the expected costs.

  Returns:
    The least value, and in `probs` the joint distribution [m, .., m].
  """
  probs, costs = (np.asarray(x, np.float64) for x in (probs, costs))
  shape = costs.shape[1:]
  if shape != (probs.shape[1],) * len(probs):
    raise ValueError('costs must be over '
                     f'{probs.shape[1]}^{len(probs)} values, '
                     f'got shape {shape}')
  values = np.indices(shape).reshape(len(probs), -1)
  # One row for each distribution and value: the joint mass with that value.
  marginals = np.concatenate([line == np.arange(probs.shape[1])[:, None]
                              for line in values]).astype(np.float64)
  rows = np.pad(costs.reshape(len(costs), -1), ((0, 0), (0, 1)),
                constant_values=-1)
  solution = optimize.linprog(
      np.append(np.zeros(values.shape[1]), 1.0), rows,
      np.broadcast_to(-np.asarray(offsets, np.float64), len(costs)),
      np.pad(marginals, ((0, 0), (0, 1))), probs.ravel(),
      [(0, None)] * values.shape[1] + [(None, None)], method='highs')
  if not solution.success:
    raise ValueError(f'no solution: {solution.message.splitlines()[0]}')
  return Channel(float(solution.fun), solution.x[:-1].reshape(shape))
