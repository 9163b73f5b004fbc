"""Peers of smoothing: solvers of the program that Barczewski (2025) writes.

Equation 6.3.6: least noise nu of nodes such that increments w = g + B nu of
ranks are nonnegative and sum up to n. Rows are differences of those of the
text, and have some four entries in place of L + 1 (item C13). Matrices are
built once; a call sets the solver up, solves and cumulates.
"""

from collections.abc import Callable

import numpy as np
from scipy import optimize
from scipy import sparse

from experiments.benchmarks import curve_work as work
from experiments.benchmarks import methods
from experiments.benchmarks.program import Program
from experiments.benchmarks.program import Spec

_TOLERANCE = 1e-4
"""Of OSQP, which is then a record or two off; the others keep their own."""

_QUIET = {'show_progress': False}

Noise = Callable[[np.ndarray], np.ndarray]
"""Increments g [N + 1] -> noise nu of all nodes that is taken off."""


def make(spec: Spec) -> Program:
  """Noisy ranks smoothed by a solver."""
  name, _ = methods.split(spec.method)
  ranks, total = work.noisy_ranks(spec.size)
  matrix = incidence(spec.size)
  solve = SOLVERS[name, spec.model](matrix)

  def step():
    g = np.diff(ranks, prepend=0.0, append=total)
    return np.cumsum((g + matrix @ solve(g))[:-1])

  return Program(step=step, info={}, audit=lambda: {'found': step()})


def incidence(size: int) -> sparse.csc_array:
  """B [N + 1, nodes]: 1 where a node of rows starts, -1 where it ends."""
  starts, ends = map(np.concatenate, zip(*work.nodes(size), strict=True))
  place, ones = np.arange(starts.size), np.ones(starts.size)
  return sparse.csc_array(
      (np.concatenate([ones, -ones]),
       (np.concatenate([starts, ends]), np.concatenate([place, place]))),
      (size + 1, starts.size))


def _cvxopt_matrix(matrix):
  import cvxopt
  found = sparse.coo_array(matrix)
  return cvxopt.spmatrix(found.data, found.row.astype(int).tolist(),
                         found.col.astype(int).tolist(), found.shape)


def _cvxopt(matrix: sparse.csc_array) -> Noise:
  """p = 2 as a quadratic program."""
  import cvxopt
  from cvxopt import solvers
  count = matrix.shape[1]
  metric = cvxopt.spmatrix(1.0, range(count), range(count))
  upper, last = _cvxopt_matrix(-matrix[:-1]), _cvxopt_matrix(matrix[-1:])
  nothing = cvxopt.matrix(0.0, (count, 1))

  def solve(g):
    found = solvers.qp(metric, nothing, upper, cvxopt.matrix(g[:-1]), last,
                       cvxopt.matrix(-g[-1:]), options=_QUIET)
    _check_solved(found['status'], 'optimal')
    return np.array(found['x'])[:, 0]
  return solve


def _check_solved(status: str | int, wanted: str | int) -> None:
  if status != wanted:
    raise RuntimeError(f'not solved: {status}')


def _split(matrix: sparse.csc_array) -> sparse.csc_array:
  """For noise in two parts, each nonnegative; p = 1 adds them up."""
  return sparse.hstack([matrix, -matrix], format='csc')


def _together(parts: np.ndarray) -> np.ndarray:
  return np.subtract(*np.split(parts, 2))


def _cvxopt_linear(matrix: sparse.csc_array) -> Noise:
  """p = 1 as a linear program."""
  import cvxopt
  from cvxopt import solvers
  both = _split(matrix)
  count = both.shape[1]
  upper = _cvxopt_matrix(-sparse.vstack([both[:-1],
                                         sparse.eye_array(count)]))
  last = _cvxopt_matrix(both[-1:])

  def solve(g):
    found = solvers.lp(
        cvxopt.matrix(1.0, (count, 1)), upper,
        cvxopt.matrix(np.concatenate([g[:-1], np.zeros(count)])), last,
        cvxopt.matrix(-g[-1:]), options=_QUIET)
    _check_solved(found['status'], 'optimal')
    return _together(np.array(found['x'])[:, 0])
  return solve


def _osqp(matrix: sparse.csc_array) -> Noise:
  import osqp
  metric, nothing = _quadratic(matrix)

  def solve(g):
    above = np.full(g.size, np.inf)
    above[-1] = -g[-1]
    solver = osqp.OSQP()
    solver.setup(metric, nothing, sparse.csc_matrix(matrix), -g, above,
                 verbose=False, eps_abs=_TOLERANCE, eps_rel=_TOLERANCE)
    found = solver.solve(raise_error=False)
    _check_solved(found.info.status, 'solved')
    return found.x
  return solve


def _quadratic(matrix: sparse.csc_array
               ) -> tuple[sparse.csc_matrix, np.ndarray]:
  """Metric and linear part of p = 2."""
  count = matrix.shape[1]
  return sparse.csc_matrix(sparse.eye_array(count)), np.zeros(count)


def _clarabel(matrix: sparse.csc_array) -> Noise:
  import clarabel
  metric, nothing = _quadratic(matrix)
  rows = sparse.csc_matrix(-matrix)
  cones = [clarabel.NonnegativeConeT(rows.shape[0] - 1), clarabel.ZeroConeT(1)]
  settings = clarabel.DefaultSettings()
  settings.verbose = False

  def solve(g):
    found = clarabel.DefaultSolver(metric, nothing, rows, g, cones,
                                   settings).solve()
    _check_solved(str(found.status), 'Solved')
    return np.array(found.x)
  return solve


def _highs(matrix: sparse.csc_array) -> Noise:
  both = _split(matrix)
  cost, upper, last = np.ones(both.shape[1]), -both[:-1], both[-1:]

  def solve(g):
    found = optimize.linprog(cost, upper, g[:-1], last, -g[-1:],
                             method='highs')
    _check_solved(found.status, 0)
    return _together(found.x)
  return solve


SOLVERS = {
    ('cvxopt', 'squares'): _cvxopt, ('cvxopt', 'absolute'): _cvxopt_linear,
    ('osqp', 'squares'): _osqp, ('clarabel', 'squares'): _clarabel,
    ('highs', 'absolute'): _highs,
}
"""Incidence matrix -> a solver for increments, by method and model."""
