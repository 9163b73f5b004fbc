"""These tests check that curve peers release what dpjax releases.

The checks must find a peer that does not.
"""

import numpy as np
import pytest

from dpjax.stats.ecdf_methods import hierarchy
from experiments.benchmarks import curve_checks
from experiments.benchmarks import curve_peers as peers
from experiments.benchmarks import curve_solvers as solvers
from experiments.benchmarks import curve_work as work
from experiments.benchmarks import curves
from experiments.benchmarks import findings
from experiments.benchmarks import methods
from experiments.benchmarks import sweep
from experiments.benchmarks import values
from experiments.benchmarks import worker

_SIZE = 11  # noise has ranks end below n, so that they must rise


def _audited(model, method, size=_SIZE):
  """Returns (spec, program, its audit); skips the test if a peer is missing."""
  spec = curve_checks.make_spec(model, method, size=size)
  if methods.missing('curves', method):
    pytest.skip(methods.missing('curves', method))
  program = worker.make(spec)
  return spec, program, program.audit()


@pytest.mark.every(3)
@pytest.mark.parametrize('method, model', [
    *solvers.SOLVERS, ('ours', 'squares'), ('ours', 'absolute')])
def test_whoever_smooths_finds_the_least_noise(method, model):
  spec, program, audit = _audited(model, method)
  finding = curve_checks.judge(spec, audit)
  assert finding.passed and finding.error < 1e-4 and finding.cells[1] == '-'
  np.testing.assert_allclose(program.step(), audit['results'])
  assert (method == 'ours') == ('compile_seconds' in program.info)


def test_the_least_noise_is_that_of_the_program_and_no_other():
  spec, _, audit = _audited('absolute', 'highs')
  ranks, total = work.noisy_ranks(_SIZE)
  curve = audit['results']
  judge = lambda model, ranks: curve_checks.judge(
      curve_checks.make_spec(model, 'ours', size=_SIZE), {'results': ranks})
  assert judge('absolute', curve).passed
  assert not judge('squares', curve).passed  # another objective
  even = np.linspace(0, total, _SIZE)
  for wrong in (0.98 * curve + 0.02 * even, curve[::-1], 1.01 * curve, ranks):
    for model in ('squares', 'absolute'):
      assert not judge(model, wrong).passed
  assert judge('squares', curve[::-1]).error == np.inf


def test_rows_are_differences_and_sparse():
  # The effect of nodes on ranks is what their incidence sums up to.
  matrix = solvers.incidence(_SIZE)
  np.testing.assert_array_equal(np.cumsum(matrix.toarray(), 0)[:-1],
                                curve_checks._effects(_SIZE))
  assert matrix.nnz == 2 * matrix.shape[1]
  assert solvers.incidence(16).shape == (17, 31)


@pytest.mark.parametrize('method, model', solvers.SOLVERS)
def test_what_is_not_solved_is_no_answer(method, model):
  if methods.missing('curves', method):
    pytest.skip(methods.missing('curves', method))
  solve = solvers.SOLVERS[method, model](solvers.incidence(4))
  with pytest.raises(RuntimeError, match='not solved'):
    solve(-np.ones(5))  # counts >= 0 have no such sum


def test_trees_are_made_consistent_as_by_dpjax():
  shape, rng = (2, 3, 4), np.random.default_rng(0)
  noisy = [rng.normal(5, 3, size) for size in np.cumprod(shape)]
  alive = np.ones(24)
  alive[[3, 8, 9, 10, 11, 20]] = 0  # all leaves of a node among them
  for total in (0.0, 40.0):
    np.testing.assert_allclose(
        peers._consistent(noisy, shape, alive, total),
        hierarchy.least_squares(noisy, shape, (1.0,) * 3, alive, total),
        atol=1e-12)


@pytest.mark.slow
@pytest.mark.every(2)
@pytest.mark.parametrize('model, size, draws, passed', [
    ('release_tree', 64, 1000, True), ('release_square_root', 16, 300, True),
    ('release_tree', 64, 300, False)])
def test_releases_have_the_distribution_of_dpjax(model, size, draws, passed,
                                                 monkeypatch):
  """Releases have dpjax's distribution; half of the noise is detected.

  A correct program fails in 1e-4 of cases.
  """
  monkeypatch.setattr(methods, 'CHECKED_DRAWS', draws)
  if passed:
    program = curves.make(curve_checks.make_spec(model, 'ours', size=size))
    assert program.info['temp_kib'] > 0 and program.step().shape == (size,)
  else:
    monkeypatch.setattr(work, 'EPSILON', 2 * work.EPSILON)
    program = peers.make(curve_checks.make_spec(model, 'numpy', size=size))
  audit = program.audit()
  monkeypatch.undo()
  finding = curve_checks.judge(curve_checks.make_spec(
      model, 'ours', size=size), audit)
  assert finding.passed == passed and finding.cells[0] == '-'


@pytest.mark.parametrize('method', ['ours', 'numpy'])
@pytest.mark.parametrize('model', ['comparison', 'comparison_everywhere'])
def test_comparisons_open_to_those_in_the_clear(model, method):
  spec, program, audit = _audited(model, method)
  assert curve_checks.judge(spec, audit) == (0.0, pytest.approx(
      np.nan, nan_ok=True), True)
  # The shares of one server alone do not look like the answer.
  assert not curve_checks.judge(spec, {'results': program.step()}).passed
  audit['results'].flat[5] += np.uint64(1)
  finding = curve_checks.judge(spec, audit)
  assert finding.error == 1 / audit['results'].size and not finding.passed


def test_slow_peers_are_left_out_and_missing_ones_are_no_units(monkeypatch):
  of = lambda model, size: {
      setting.method for setting in sweep.settings(
          'curves', models=(model,), sizes=(size,))}
  assert of('absolute', 2**10) == {'ours', 'cvxopt', 'highs'}
  assert of('absolute', 2**18) == {'ours'}
  assert of('comparison_everywhere', 45_211) == {'ours'}
  setting = sweep.settings('curves', models=('squares',), sizes=(8,),
                           names=('ours',))[0]
  monkeypatch.setattr(methods.importlib.util, 'find_spec',
                      lambda name: None if name == 'osqp' else name)
  assert [unit.method for unit in sweep.units(setting)] == [
      'cvxopt', 'clarabel']


def test_targets_are_of_walls_and_some_have_no_limit():
  lines = lambda size, **metrics: {values.Line('ours', 1): {size: metrics}}
  text = '\n'.join(findings.of_suite('curves', {
      'squares': lines(2**15, wall_ms=20.0, compile_seconds=3.0),
      'comparison': lines(10**4, wall_ms=80.0),
      'comparison_everywhere': lines(45_211, wall_ms=2500.0)}))
  cells = [[cell.strip() for cell in line.split('|')[1:-1]]
           for line in text.splitlines() if line.startswith('|')]
  assert cells[2:] == [
      ['squares', '32,768', 'wall_ms', '20 ms', '15 ms', 'NO'],
      ['comparison', '10,000', 'wall_ms', '0.5 us a comparison',
       '1 us a comparison', 'yes'],
      ['comparison_everywhere', '45,211', 'wall_ms', '2.5 s', '-', '-'],
      ['squares', '32,768', 'longest compile_seconds: ours', '3 s', '5 s',
       'yes']]
