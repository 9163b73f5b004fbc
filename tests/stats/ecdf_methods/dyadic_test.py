"""Tests curves with dyadic noise: enumeration, costs, errors, layouts."""

import itertools
import math

import jax
import numpy as np
import pytest
from scipy import optimize

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import mechanisms
from dpjax.stats.ecdf_methods import dyadic

_ADD, _REPLACE = Adjacency
_BOUND = 90


def _mechanism(num_thresholds, adjacency, **fields):
  budget = {} if 'rho' in fields else {'epsilon': 1.0}
  return dyadic.DyadicEcdf(**{**dict(
      num_thresholds=num_thresholds, adjacency=adjacency, monotone=False),
      **budget, **fields})


def _noise_matrix(layout):
  """Returns the sampler's own Z [rows, nodes], one node's noise at a time."""
  with jax.enable_x64(True):
    return np.asarray(jax.jit(jax.vmap(layout.rows))(np.eye(
        sum(layout.level_sizes)))).T


def _changes(mechanism):
  """Returns all changes of the noisy rows between neighbours."""
  size, rows = mechanism.num_thresholds, mechanism.layout.num_rows
  ends = [(start, size) for start in range(size)]
  if mechanism.adjacency is _REPLACE:
    ends = list(itertools.combinations(range(size), 2))
  row = np.arange(rows)
  return np.array([(row >= start) & (row < end) for start, end in ends], float)


_CURVES = {
    'added': _mechanism(13, _ADD), 'replaced': _mechanism(13, _REPLACE),
    'left out': _mechanism(5, _REPLACE), 'regressed': _mechanism(4, _REPLACE),
    'with root': _mechanism(4, _REPLACE, root=True),
    'one row': _mechanism(2, _REPLACE),
    'printed': _mechanism(8, _REPLACE, accounting='paper'),
    'Gaussian': _mechanism(12, _ADD, rho=.5),
    'Gaussian regressed': _mechanism(16, _REPLACE, rho=.5),
    'Gaussian left out': _mechanism(17, _REPLACE, rho=.5),
    'tuned': _mechanism(12, _ADD, rho=.5, accounting='tuned'),
    'tuned regressed': _mechanism(16, _REPLACE, rho=.5, accounting='tuned'),
    'tuned left out': _mechanism(33, _REPLACE, rho=.5, accounting='tuned'),
    'Gaussian printed': _mechanism(16, _ADD, rho=2.0, accounting='paper')}


@pytest.mark.parametrize('name', _CURVES)
def test_what_neighbours_shift_is_hidden_by_noise_worth_the_budget(name):
  """The worst neighbours cost exactly the budget, by linear programs."""
  mechanism = _CURVES[name]
  z, scale = _noise_matrix(mechanism.layout), mechanism.scale
  if mechanism.pure:
    shifts = [optimize.linprog(
        np.ones(2 * z.shape[1]), A_eq=np.hstack([z, -z]), b_eq=change).fun
        for change in _changes(mechanism)]
    spent = max(shifts) / scale
  else:
    precision = np.linalg.pinv(z @ z.T) / scale**2
    spent = max(
        change @ precision @ change for change in _changes(mechanism)) / 2
  assert mechanism.achieved == pytest.approx(spent, rel=1e-9)
  assert bool(mechanism.layout.profile) == (mechanism.accounting == 'tuned')
  budget = mechanism.epsilon if mechanism.pure else mechanism.rho
  if mechanism.accounting != 'paper':
    assert spent == pytest.approx(budget)
  else:
    assert spent <= .76 * budget


@pytest.mark.slow
@pytest.mark.parametrize('name', [
    'added', 'left out', 'regressed', 'one row', 'printed', 'Gaussian',
    'Gaussian regressed', 'tuned regressed'])
def test_errors(name):
  """Ranks have the stated mean and variance, in 20000
  runs to five deviations."""
  mechanism = _CURVES[name]
  runs, counts = 20_000, np.arange(mechanism.num_thresholds) % 5.0
  with jax.enable_x64(True):
    ranks = np.asarray(
        mechanisms.repeated(mechanism.draw)(jax.random.split(
            jax.random.key(0), runs), counts, mechanism.parameters))
  error, variances = ranks - np.cumsum(counts), mechanism.variances()
  known = variances < 1e-9
  if mechanism.adjacency is _REPLACE and mechanism.accounting != 'paper':
    assert known.tolist() == [False] * (mechanism.num_thresholds - 1) + [True]
  np.testing.assert_allclose(error[:, known], 0, atol=1e-9)
  error, variances = error[:, ~known], variances[~known]
  assert np.all(np.abs(error.mean(0)) < 5 * np.sqrt(variances / runs))
  fourth = np.mean(error**4, 0) / variances**2
  assert np.all(np.abs(np.mean(error**2, 0) / variances - 1)
                < 5 * np.sqrt((fourth - 1) / runs))
  assert mechanism.risk(3) == pytest.approx(3 * np.mean(mechanism.variances()))


def _log_probs(mechanism, outputs):
  """Returns log-probabilities [n] of noise on three or four rows.

  Rows without noise are summed out; a missing root counts as zero.
  """
  grid = np.arange(-_BOUND, _BOUND + 1)
  weights = np.exp(-np.abs(grid) / mechanism.scale)
  weights /= weights.sum()
  mass = lambda value: np.where(np.abs(value) <= _BOUND, weights[np.clip(
      value + _BOUND, 0, 2 * _BOUND)], 0.0)
  root = grid if mechanism.layout.root else np.zeros(1, int)
  of_root = mass(root) if mechanism.layout.root else np.ones(1)
  logs = []
  for output in outputs:
    total = of_root
    for pair in np.split(output, [2]):
      rest = root[:, None] + grid
      leaves = math.prod(mass(value - rest) for value in pair)
      total = total * (leaves @ weights)
    logs.append(np.log(total.sum()))
  return np.array(logs)


@pytest.mark.every(2)
@pytest.mark.parametrize('mechanism', [
    _mechanism(4, _REPLACE, epsilon=.8),
    _mechanism(4, _REPLACE, epsilon=.8, root=True),
    _mechanism(4, _ADD, epsilon=.8),
    _mechanism(4, _REPLACE, epsilon=.8, accounting='paper')
], ids=['tight', 'with root', 'added', 'printed'])
def test_losses_of_four_thresholds_stay_below_epsilon_and_reach_it(mechanism):
  """Losses reach epsilon by enumeration; the printed
  noise spends two thirds."""
  rows = mechanism.layout.num_rows
  rng = np.random.default_rng(0)
  anywhere = rng.integers(-20, 21, (40, rows))
  changes, worst = _changes(mechanism).astype(int), 0.0
  for change in changes:
    along = np.arange(-30, 31, 6)[:, None] * change
    outputs = np.concatenate([anywhere, along])
    losses = _log_probs(mechanism, outputs) - _log_probs(
        mechanism, outputs - change)
    worst = max(worst, np.abs(losses).max())
  assert worst <= mechanism.achieved * (1 + 1e-6)
  assert worst > .98 * mechanism.achieved
  printed = mechanism.accounting == 'paper'
  assert mechanism.achieved == pytest.approx(.8 * (2 / 3 if printed else 1))


def test_draws_have_the_enumerated_law():
  """Draws have the enumerated probabilities, in 40000
  runs to five deviations."""
  mechanism, runs = _mechanism(4, _ADD, epsilon=6.0), 40_000
  with jax.enable_x64(True):
    ranks = np.asarray(mechanisms.repeated(mechanism.draw)(
        jax.random.split(jax.random.key(3), runs), np.zeros(4),
        mechanism.parameters)).astype(int)
  outcomes, counts = np.unique(ranks, axis=0, return_counts=True)
  often = counts > 300
  expected = np.exp(_log_probs(mechanism, outcomes[often]))
  error = np.sqrt(expected * (1 - expected) / runs)
  assert np.sum(often) > 8
  assert np.all(np.abs(counts[often] / runs - expected) < 5 * error)


@pytest.mark.parametrize('depth, fields, expected', [
    (10, dict(accounting='paper'), (792, 2662)), (10, {}, (720, 1940.4)),
    (15, dict(accounting='paper'), (2048, 8192)), (15, {}, (2048, 7031.3)),
    (10, dict(root=True), (792, 2091.4)),
    (10, dict(rho=.5), (19.70, 31.93)), (15, dict(rho=.5), (37.54, 65.08)),
    (10, dict(rho=.5, accounting='tuned'), (17.13, 26.15)),
    (15, dict(rho=.5, accounting='tuned'), (33.71, 56.19)),
    (10, dict(rho=.5, accounting='paper'), (66, 121)),
    (15, dict(rho=.5, accounting='paper'), (128, 256))], ids=str)
def test_mean_squared_errors(depth, fields, expected):
  """Mean squared errors match, from the printed 2 (L+1)^3 / epsilon^2 down."""
  for adjacency, error in zip(Adjacency, expected, strict=True):
    mechanism = _mechanism(2**depth, adjacency, **{'epsilon': 1e-3, **fields}
                           if 'rho' not in fields else fields)
    unit = 1e-6 if mechanism.pure else 1.0
    assert mechanism.risk(1) * unit == pytest.approx(error, rel=2e-4)


def test_layouts_are_chosen_by_their_errors():
  """The layout of least error is chosen; with 2^k + 1,
  the last row is exact."""
  assert _mechanism(16, _REPLACE).layout[:2] == (16, False)
  assert _mechanism(17, _REPLACE).layout[:2] == (16, False)
  assert _mechanism(17, _REPLACE).scale == 4 == _mechanism(16, _REPLACE).scale
  for mechanism in (_mechanism(2**10 + 1, _REPLACE),
                    _mechanism(2**10, _REPLACE, rho=1.0)):
    assert mechanism.risk(1) <= dyadic.DyadicEcdf(
        num_thresholds=mechanism.num_thresholds, epsilon=mechanism.epsilon,
        rho=mechanism.rho, adjacency=_REPLACE, monotone=False,
        root=True).risk(1)


def test_noise_belongs_to_nodes_and_keys():
  """Equal keys give equal noise for all data, so asking again adds nothing."""
  key, one = jax.random.key(5), np.arange(12.0)
  mechanism = _mechanism(12, _REPLACE)
  first = mechanism.estimate(key, one)
  np.testing.assert_array_equal(first, mechanism.estimate(key, one))
  changed = mechanism.estimate(key, one + np.eye(12)[3])
  np.testing.assert_allclose(changed - first, np.arange(12) >= 3, atol=1e-9)


@pytest.mark.every(3)
@pytest.mark.parametrize('fields, end', [
    (dict(num_thresholds=6, adjacency=_ADD, rho=.02), 'free'),
    (dict(num_thresholds=6, adjacency=_REPLACE, accounting='paper',
          epsilon=.3), 'equal'),
    (dict(num_thresholds=5, adjacency=_REPLACE, epsilon=.3), 'at_most'),
    (dict(num_thresholds=9, adjacency=_REPLACE, rho=.02, accounting='tuned'),
     'equal')],
                         ids=str)
def test_monotone_ranks_are_projected_in_the_metric_of_the_noise(fields, end):
  """Monotone ranks are nonnegative least squares in the noise's metric."""
  counts = np.array([4., 0., 3., 0., 2., 1., 0., 0., 1.])
  counts = counts[:fields['num_thresholds']]
  mechanism, raw = dyadic.DyadicEcdf(**fields), _mechanism(**fields)
  z = _noise_matrix(raw.layout)
  root = np.linalg.cholesky(np.linalg.inv(z @ z.T)).T
  below = np.tril(np.ones((len(z), len(z) + (end == 'at_most'))))
  matrix = np.vstack([root @ below, np.full(
      below.shape[1], 1e6 * (end != 'free'))])
  for key in jax.random.split(jax.random.key(1), 8):
    ranks = mechanism.estimate(key, counts)
    noisy = raw.estimate(key, counts)[:len(z)]
    assert np.diff(ranks, prepend=0).min() >= 0
    if end != 'free':
      assert ranks[-1] == counts.sum()
    expected = below @ optimize.nnls(matrix, np.append(
        root @ noisy, 1e6 * counts.sum() * (end != 'free')))[0]
    np.testing.assert_allclose(ranks[:len(z)], expected, atol=1e-4)


def test_compiled_laws_are_shared():
  curves = [_mechanism(size, _REPLACE, epsilon=epsilon)
            for size in (16, 64) for epsilon in (.5, 2.0)]
  assert len({id(each.draw) for each in curves}) == 1
  assert _mechanism(16, _ADD).draw is not curves[0].draw


@pytest.mark.parametrize('change', [
    dict(accounting='loose'), dict(accounting='tuned'), dict(accounting='paper', root=False),
    dict(epsilon=0.0), dict(rho=1.0), dict(num_thresholds=1)], ids=str)
def test_bad_settings_are_refused(change):
  with pytest.raises(ValueError):
    dyadic.DyadicEcdf(**{**dict(num_thresholds=4, adjacency=_ADD, epsilon=1.0,
                                monotone=False), **change})


def test_counts_of_another_grid_are_refused():
  with pytest.raises(ValueError, match='4 bins'):
    _mechanism(4, _ADD).estimate(jax.random.key(0), np.zeros(5))
