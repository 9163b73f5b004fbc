"""Smoothing by general solvers, as Barczewski (2025, equation 6.3.6) states it.

The problem is to find the least noise nu of nodes such that the increments
w = g + B nu of ranks are nonnegative and sum to n. Rows are differences of
those of the text, and have about four entries instead of L + 1 (item C13).
Matrices are built once; a call sets up the solver, solves, and adds up.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import optimize
from scipy import sparse

from experiments.benchmarks import curve_work as work
from experiments.benchmarks import methods
from experiments.benchmarks.program import Program
from experiments.benchmarks.program import Spec

_TOLERANCE = 1e-4
"""Tolerance of OSQP, an error of a record or two; others use their default."""

_QUIET = {'show_progress': False}

Noise = Callable[[np.ndarray], np.ndarray]
"""Increments g [N + 1] -> noise nu of all nodes that is removed."""


def make(spec: Spec) -> Program:
  """Returns a program that smooths noisy ranks by a solver."""
  name, _ = methods.split(spec.method)
  ranks, total = work.noisy_ranks(spec.size)
  matrix = incidence(spec.size)
  solve = SOLVERS[name, spec.model](matrix)

  def step():
    g = np.diff(ranks, prepend=0.0, append=total)
    return np.cumsum((g + matrix @ solve(g))[:-1])

  return Program(step=step, info={}, audit=lambda: {'results': step()})


def incidence(size: int) -> sparse.csc_array:
  """Returns B [N + 1, nodes]: 1 where a node starts, -1 where it ends."""
  starts, ends = map(np.concatenate, zip(*work.nodes(size), strict=True))
  place, ones = np.arange(starts.size), np.ones(starts.size)
  return sparse.csc_array(
      (np.concatenate([ones, -ones]),
       (np.concatenate([starts, ends]), np.concatenate([place, place]))),
      (size + 1, starts.size))


def _cvxopt_matrix(matrix: sparse.sparray) -> Any:
  """Converts a sparse matrix to CVXOPT's type."""
  import cvxopt
  entries = sparse.coo_array(matrix)
  return cvxopt.spmatrix(entries.data, entries.row.astype(int).tolist(),
                         entries.col.astype(int).tolist(), entries.shape)


def _cvxopt(matrix: sparse.csc_array) -> Noise:
  """Solves p = 2 as a quadratic program by CVXOPT."""
  import cvxopt
  from cvxopt import solvers
  count = matrix.shape[1]
  metric = cvxopt.spmatrix(1.0, range(count), range(count))
  upper, last = _cvxopt_matrix(-matrix[:-1]), _cvxopt_matrix(matrix[-1:])
  nothing = cvxopt.matrix(0.0, (count, 1))

  def solve(g: np.ndarray) -> np.ndarray:
    solution = solvers.qp(metric, nothing, upper, cvxopt.matrix(g[:-1]), last,
                          cvxopt.matrix(-g[-1:]), options=_QUIET)
    _check_solved(solution['status'], 'optimal')
    return np.array(solution['x'])[:, 0]
  return solve


def _check_solved(status: str | int, wanted: str | int) -> None:
  """Raises a RuntimeError unless a solver has succeeded."""
  if status != wanted:
    raise RuntimeError(f'not solved: {status}')


def _split(matrix: sparse.csc_array) -> sparse.csc_array:
  """Returns the matrix for noise as a difference of nonnegative parts."""
  return sparse.hstack([matrix, -matrix], format='csc')


def _together(parts: np.ndarray) -> np.ndarray:
  """Returns the difference of the two nonnegative parts."""
  return np.subtract(*np.split(parts, 2))


def _cvxopt_linear(matrix: sparse.csc_array) -> Noise:
  """Solves p = 1 as a linear program by CVXOPT."""
  import cvxopt
  from cvxopt import solvers
  both = _split(matrix)
  count = both.shape[1]
  upper = _cvxopt_matrix(-sparse.vstack([both[:-1],
                                         sparse.eye_array(count)]))
  last = _cvxopt_matrix(both[-1:])

  def solve(g: np.ndarray) -> np.ndarray:
    solution = solvers.lp(
        cvxopt.matrix(1.0, (count, 1)), upper,
        cvxopt.matrix(np.concatenate([g[:-1], np.zeros(count)])), last,
        cvxopt.matrix(-g[-1:]), options=_QUIET)
    _check_solved(solution['status'], 'optimal')
    return _together(np.array(solution['x'])[:, 0])
  return solve


def _osqp(matrix: sparse.csc_array) -> Noise:
  """Solves p = 2 by OSQP."""
  import osqp
  metric, nothing = _quadratic(matrix)

  def solve(g: np.ndarray) -> np.ndarray:
    above = np.full(g.size, np.inf)
    above[-1] = -g[-1]
    solver = osqp.OSQP()
    solver.setup(metric, nothing, sparse.csc_matrix(matrix), -g, above,
                 verbose=False, eps_abs=_TOLERANCE, eps_rel=_TOLERANCE)
    solution = solver.solve(raise_error=False)
    _check_solved(solution.info.status, 'solved')
    return solution.x
  return solve


def _quadratic(matrix: sparse.csc_array
               ) -> tuple[sparse.csc_matrix, np.ndarray]:
  """Returns the quadratic and the linear part of the objective for p = 2."""
  count = matrix.shape[1]
  return sparse.csc_matrix(sparse.eye_array(count)), np.zeros(count)


def _clarabel(matrix: sparse.csc_array) -> Noise:
  """Solves p = 2 by Clarabel."""
  import clarabel
  metric, nothing = _quadratic(matrix)
  rows = sparse.csc_matrix(-matrix)
  cones = [clarabel.NonnegativeConeT(rows.shape[0] - 1), clarabel.ZeroConeT(1)]
  settings = clarabel.DefaultSettings()
  settings.verbose = False

  def solve(g: np.ndarray) -> np.ndarray:
    solution = clarabel.DefaultSolver(metric, nothing, rows, g, cones,
                                      settings).solve()
    _check_solved(str(solution.status), 'Solved')
    return np.array(solution.x)
  return solve


def _highs(matrix: sparse.csc_array) -> Noise:
  """Solves p = 1 by HiGHS."""
  both = _split(matrix)
  cost, upper, last = np.ones(both.shape[1]), -both[:-1], both[-1:]

  def solve(g: np.ndarray) -> np.ndarray:
    solution = optimize.linprog(cost, upper, g[:-1], last, -g[-1:],
                                method='highs')
    _check_solved(solution.status, 0)
    return _together(solution.x)
  return solve


SOLVERS = {
    ('cvxopt', 'squares'): _cvxopt, ('cvxopt', 'absolute'): _cvxopt_linear,
    ('osqp', 'squares'): _osqp, ('clarabel', 'squares'): _clarabel,
    ('highs', 'absolute'): _highs,
}
"""Maps (method, model) to a function from incidence matrix to solver."""
