"""Solves `problem` by programs of others, which are imported on use."""

from collections.abc import Callable

import numpy as np
from scipy import optimize
from scipy import sparse

from experiments.smoothing_time.problem import Problem

Solver = Callable[[Problem], np.ndarray]
"""A problem with M noise variables first -> values of all its variables."""

# The first variables of a problem are noise. Further ones, such as ranks, have
# no cost.


def _cvxopt_matrix(cells: sparse.csc_matrix):
  import cvxopt
  coordinates = cells.tocoo()
  return cvxopt.spmatrix(coordinates.data.tolist(), coordinates.row.tolist(),
                         coordinates.col.tolist(), cells.shape)


def _costs(problem: Problem) -> np.ndarray:
  """Returns costs: 1 for the 2N - 1 noise variables, 0 for all others."""
  costs = np.zeros(problem.lower.shape[1])
  costs[:2 * problem.lower.shape[0] - 1] = 1
  return costs


def _split(problem: Problem) -> tuple[Problem, np.ndarray]:
  """Splits noise into nonnegative parts; returns the problem and its costs."""
  costs = _costs(problem)
  count = int(costs.sum())
  twice = lambda matrix: sparse.hstack(
      [matrix[:, :count], -matrix[:, :count], matrix[:, count:]]).tocsc()
  parts = sparse.eye(2 * count, 2 * count + len(costs) - count)
  wide = Problem(
      sparse.vstack([twice(problem.lower), -parts]).tocsc(),
      np.append(problem.below, np.zeros(2 * count)), twice(problem.last),
      problem.at)
  return wide, np.concatenate([np.ones(2 * count), costs[count:]])


def _joined(cells: np.ndarray, problem: Problem) -> np.ndarray:
  count = int(_costs(problem).sum())
  return np.append(cells[:count] - cells[count:2 * count], cells[2 * count:])


def cvxopt_qp(problem: Problem) -> np.ndarray:
  """Solves p = 2 by CVXOPT."""
  import cvxopt
  import cvxopt.solvers
  costs = _costs(problem)
  result = cvxopt.solvers.qp(
      _cvxopt_matrix(sparse.diags(costs).tocsc()),
      cvxopt.matrix(np.zeros(len(costs))), _cvxopt_matrix(problem.lower),
      cvxopt.matrix(problem.below), _cvxopt_matrix(problem.last),
      cvxopt.matrix(problem.at), options=dict(show_progress=False))
  return np.asarray(result['x'])[:, 0]


def cvxopt_lp(problem: Problem) -> np.ndarray:
  """Solves p = 1 by CVXOPT."""
  import cvxopt
  import cvxopt.solvers
  wide, costs = _split(problem)
  result = cvxopt.solvers.lp(
      cvxopt.matrix(costs), _cvxopt_matrix(wide.lower),
      cvxopt.matrix(wide.below), _cvxopt_matrix(wide.last),
      cvxopt.matrix(wide.at), options=dict(show_progress=False))
  return _joined(np.asarray(result['x'])[:, 0], problem)


def highs_lp(problem: Problem) -> np.ndarray:
  """Solves p = 1 by HiGHS."""
  wide, costs = _split(problem)
  rows = len(problem.below)
  result = optimize.linprog(
      costs, A_ub=wide.lower[:rows], b_ub=wide.below[:rows], A_eq=wide.last,
      b_eq=wide.at, bounds=(0, None), method='highs')
  return _joined(result.x, problem)


def osqp_qp(problem: Problem) -> np.ndarray:
  """Solves p = 2 by OSQP, to 1e-4."""
  import osqp
  solver = osqp.OSQP()
  solver.setup(
      sparse.diags(_costs(problem)).tocsc(),
      np.zeros(problem.lower.shape[1]),
      sparse.vstack([problem.lower, problem.last]).tocsc(),
      np.append(np.full(len(problem.below), -np.inf), problem.at),
      np.append(problem.below, problem.at), verbose=False, eps_abs=1e-4,
      eps_rel=1e-4, max_iter=100_000)
  return solver.solve().x


def clarabel_qp(problem: Problem) -> np.ndarray:
  """Solves p = 2 by Clarabel."""
  import clarabel
  settings = clarabel.DefaultSettings()
  settings.verbose = False
  cones = [clarabel.ZeroConeT(len(problem.at)),
           clarabel.NonnegativeConeT(len(problem.below))]
  solver = clarabel.DefaultSolver(
      sparse.diags(_costs(problem)).tocsc(),
      np.zeros(problem.lower.shape[1]),
      sparse.vstack([problem.last, problem.lower]).tocsc(),
      np.append(problem.at, problem.below), cones, settings)
  return np.asarray(solver.solve().x)


SOLVERS: dict[str, Solver] = {
    'cvxopt_qp': cvxopt_qp, 'cvxopt_lp': cvxopt_lp, 'qp_rows': cvxopt_qp,
    'lp_rows': cvxopt_lp, 'highs_lp': highs_lp, 'osqp_qp': osqp_qp,
    'clarabel_qp': clarabel_qp}
