"""These tests check quantile peers' distributions and the limits of FFTs."""

import jax
import numpy as np
import pytest
from scipy import special
from scipy import stats

from dpjax.stats.quantile_methods import columns
from dpjax.stats.quantile_methods import joint
from dpjax.stats.quantile_methods import paths
from dpjax.stats.quantile_methods import records as quantile_records
from experiments.benchmarks import findings
from experiments.benchmarks import program
from experiments.benchmarks import quantile_checks
from experiments.benchmarks import quantile_peers as peers
from experiments.benchmarks import quantiles
from experiments.benchmarks import sweep
from experiments.benchmarks import targets
from experiments.benchmarks import values

_EDGES = np.array([0.0, 0.2, 0.5, 0.9, 1.0])
_THIRDS = np.array([1 / 3, 2 / 3])


def _log_normaliser(tables, costs):
  return special.logsumexp(tables[-1] + costs[-1, ::-1, None])


@pytest.mark.parametrize('costs, golden', [
    (peers.joint_costs, -1.388979160), (peers.inverse_costs, -2.821097498)])
@pytest.mark.parametrize('tight', [False, True])
def test_tables_have_the_normaliser_of_enumeration(costs, golden, tight):
  """Tables have the normalising constant found by enumeration (QF-06, QF-10).

  Costs for epsilon 1 are doubled to epsilon 2.
  """
  doubled = 2 * costs(_THIRDS, 3)
  tables = peers.joint_tables(peers.log_widths(_EDGES), doubled, tight=tight)
  assert _log_normaliser(tables, doubled) == pytest.approx(golden, abs=1e-8)


@pytest.mark.every(3)
@pytest.mark.parametrize('tight', [False, True])
def test_paths_have_the_enumerated_distribution(tight):
  """Drawn paths have enumerated probabilities, by chi-square over ten paths.

  A correct sampler fails in 1e-5 of cases.
  """
  path_probs = {(0, 0): .010856, (0, 1): .088528, (0, 2): .118038,
                (0, 3): .010856, (1, 1): .066396, (1, 2): .481290,
                (1, 3): .044264, (2, 2): .118038,
                (2, 3): .059019, (3, 3): .002714}
  costs = 2 * peers.joint_costs(_THIRDS, 3)
  tables = peers.joint_tables(peers.log_widths(_EDGES), costs)
  rng = np.random.default_rng(0)
  drawn = [tuple(peers.joint_path(rng, tables, costs, tight=tight))
           for _ in range(6000)]
  counts = [drawn.count(path) for path in path_probs]
  assert sum(counts) == len(drawn)  # none of probability 0
  wanted = np.array(list(path_probs.values()))
  assert stats.chisquare(counts, len(drawn) * wanted
                         / wanted.sum()).pvalue > 1e-5


def _direct(log_kernel, logs):
  """Returns `peers.convolved`, computed from its definition in logarithms."""
  places = np.arange(len(logs))
  ahead = places[:, None] - places
  return special.logsumexp(np.where(
      ahead >= 1, log_kernel[ahead] + logs, -np.inf), 1)


def _steps(path):
  """Yields (quantiles not yet placed, interval of the next) along a path."""
  left, last = len(path), None
  while left:
    yield left, last
    last = path[left - 1]
    left = np.searchsorted(path, last)


def _conditionals(tables, costs, path):
  """Yields the distribution [n + 1] of the interval that each step draws."""
  size = tables.shape[1]
  for left, last in _steps(path):
    num_earlier, end = (size, size - 1) if last is None else (last, last)
    logs = np.full([size], -np.inf)
    logs[:num_earlier] = special.logsumexp(
        tables[left - 1, :num_earlier], 1) + costs[
            left, end - np.arange(num_earlier)]
    yield special.softmax(logs)


def _kernel_conditionals(records, path):
  """Yields the same distributions, computed by the kernel of dpjax."""
  orders, size = peers.probs(len(path)), len(records)
  with jax.enable_x64(True):
    data = quantile_records.padded(records, peers.LOWER, peers.UPPER)
    bins = joint.joint_bins(jax.numpy.asarray(orders), data.count,
                            jax.numpy.float64(peers.EPSILON / 4))
    table = jax.jit(paths.table)(data, bins)
    place = np.asarray(columns.places(columns.Shape(
        *table.ends.mantissa.shape[1:]))).reshape(-1)
    for left, last in _steps(path):
      logs = paths._log_paths(
          table, bins, np.int32(left), np.int32(size if last is None else last),
          np.bool_(last is None))
      probs = np.zeros([place.size])
      probs[place] = special.softmax(np.asarray(logs).reshape(-1))
      yield probs[:size + 1]


def _atom(size, amplitude):
  """Returns sorted records, half within `amplitude` of 1/2, half uniform."""
  rng = np.random.default_rng(0)
  there = 0.5 + amplitude * rng.uniform(-1, 1, size // 2)
  return np.sort(np.concatenate([there, rng.random(size - size // 2)]))


def _worst_distance(distributions, others):
  return sum(np.abs(p - q).sum() / 2
             for p, q in zip(distributions, others, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize('records, is_exact', [
    (_atom(400, 0.5), True), (_atom(400, 1e-12), False)])
def test_ffts_lose_the_tail_and_running_sums_do_not(records, is_exact,
                                                    monkeypatch):
  """FFTs lose the tail of distributions that running sums keep.

  The test compares conditional distributions along ten paths.
  """
  costs = peers.joint_costs(peers.probs(8), len(records))
  widths = peers.log_widths(peers._edges(records))
  by_fft = peers.joint_tables(widths, costs)
  monkeypatch.setattr(peers, 'convolved', _direct)
  exact = peers.joint_tables(widths, costs)
  rng = np.random.default_rng(1)
  drawn = [peers.joint_path(rng, exact, costs) for _ in range(10)]
  conditionals = lambda tables, path: _conditionals(tables, costs, path)
  lost = max(_worst_distance(conditionals(by_fft, path),
                             conditionals(exact, path)) for path in drawn)
  assert (lost < 1e-10) if is_exact else (lost > 0.5)
  path = drawn[0]
  assert _worst_distance(_kernel_conditionals(records, path),
                         conditionals(exact, path)) < 1e-10


def test_ffts_are_refused_where_they_lose_the_tail():
  release = peers.published('joint_8', 400)
  rng = np.random.default_rng(0)
  with pytest.raises(ValueError, match='widths of intervals span 1[2-9]'):
    release(rng, _atom(400, 1e-12))
  assert release(rng, np.full([400], 0.25)).shape == (8,)  # ties are no range


@pytest.mark.slow
@pytest.mark.parametrize('model, factor, passed', [
    ('independent_1', 1.0, True), ('independent_1', 0.5, False),
    ('recursive_7', 1.0, True), ('joint_2', 0.5, False)])
def test_a_law_of_another_rate_is_seen(model, factor, passed, monkeypatch):
  spec = quantile_checks.make_spec(model, 'published', size=60)
  monkeypatch.setattr(peers, 'EPSILON', factor * peers.EPSILON)
  draws = peers.make(spec).audit()
  monkeypatch.undo()
  assert quantile_checks.judge(spec, draws).passed == passed


def test_draws_that_are_far_or_in_disorder_are_seen():
  spec = quantile_checks.make_spec('tree_30', 'ours', size=60)
  near = np.tile(peers.probs(30), (50, 1))
  finding = quantile_checks.judge(spec, {'draws': near})
  assert finding.passed and finding.cells[1] == '-'
  for wrong in (near[:, ::-1], near[:, :-1], np.zeros_like(near)):
    assert not quantile_checks.judge(spec, {'draws': wrong}).passed


def test_times_are_of_one_of_what_is_repeated():
  make = lambda repeats: program.Program(
      step=lambda: None, info={}, repeats=repeats,
      times=lambda seconds: [(3.0, 2.0)])
  assert program.sample(make(1), 0)[:2] == (3.0, 2.0)
  assert program.sample(make(50), 0)[:2] == (3 / 50, 2 / 50)


def test_verdicts_and_targets():
  lines = lambda **times: {values.Line(method, 1): {10**4: {
      'cpu_ms': time, 'wall_ms': time} | (
          {'compile_seconds': 4 + time} if method == 'ours' else {})}
      for method, time in times.items()}
  text = '\n'.join(findings.of_suite('quantiles', {
      'joint_8': lines(ours=20.0, published=10.0, published_tight=40.0),
      'joint_30': lines(ours=1.0, published=2.0),
      'recursive_127': lines(ours=2.0)}))
  cells = [[cell.strip() for cell in line.split('|')[1:-1]]
           for line in text.splitlines() if line.startswith('|')]
  assert ['joint_8', '10,000', '2', '0.5', 'NO'] in cells
  assert ['joint_30', '10,000', '0.5', '-', 'yes'] in cells
  assert ['joint_8', '10,000', 'wall_ms', '20 ms', '16 ms', 'NO'] in cells
  assert ['recursive_127', '10,000', 'wall_ms', '2 ms', '3 ms', 'yes'] in cells
  assert ['joint_8', '10,000', 'longest compile_seconds: ours', '24 s',
          '5 s', 'NO'] in cells
  assert not findings.of_suite('quantiles', {})


def test_targets_and_units_are_measured_by_default():
  for suite, wanted in targets.TARGETS.items():
    measured = {(setting.model, setting.size, setting.method)
                for setting in sweep.settings(suite)}
    for target in wanted:
      # Rows of accelerators name programs that are not run here.
      assert target.accelerator or (
          target.model, target.size, 'ours') in measured
  settings = sweep.settings('quantiles')
  repeated = [setting for setting in settings
              if setting.method == 'ours_repeated']
  assert len(repeated) == len(sweep._REPEATED)
  assert sweep.settings('quantiles', names=('ours_repeated',), sizes=(10**3,),
                        models=('inverse_8',))


@pytest.mark.every(4)
@pytest.mark.parametrize('model, method', [
    ('recursive_7', 'ours_repeated'), ('inverse_8', 'ours')])
def test_ours_and_the_published_algorithms_have_one_law(model, method):
  """dpjax and the published algorithms have one distribution.

  They are written separately; a correct one fails in 1e-4 of cases.
  """
  spec = quantile_checks.make_spec(model, method, size=60)
  built = quantiles.make(spec)
  built.step()
  assert built.info['temp_kib'] > 0 and built.info['compile_seconds'] > 0
  finding = quantile_checks.judge(spec, built.audit())
  assert finding.passed and finding.least_p_value > 1e-4
