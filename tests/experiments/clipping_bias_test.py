"""BIAS-01..04, EXP-F5.3.3: golden values, exact oracles, rows, verdicts."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

from dpjax.grads import per_example
from dpjax.lipschitz import bounder as lipschitz_bounder
from dpjax.lipschitz import losses
from dpjax.models import mlp
from dpjax.report import records
from dpjax.report import verdicts
from dpjax.typing import Batch
from experiments import environment
from experiments import papers
from experiments import registry
from experiments import selection
from experiments.clipping_bias import batch_maximum
from experiments.clipping_bias import constraint
from experiments.clipping_bias import curves
from experiments.clipping_bias import descent
from experiments.clipping_bias import lookup
from experiments.clipping_bias import regression
from experiments.clipping_bias import report
from experiments.clipping_bias import run
from experiments.clipping_bias import sweep

_PRINTED = papers.CLIPPING_EXAMPLE


def _quadrature(offset, weight):
  """Mean of weight(norm) times the gradient, by adaptive quadrature."""
  total = np.zeros(2)
  for error, probability in regression.ERRORS:
    residual = lambda x, e=error: offset[0] * x + offset[1] - e
    # Corners by bisection of a fine grid, unlike the quartic of the code.
    grid = np.linspace(0, 1, 4001)
    norms = lambda x, r=residual: 2 * np.abs(r(x)) * np.hypot(1, x)
    kinks = np.flatnonzero(np.diff(np.sign(norms(grid) - weight.corner)))
    signs = np.flatnonzero(np.diff(np.sign(residual(grid))))
    points = [0, *sorted({*grid[kinks], *grid[kinks + 1], *grid[signs],
                          *grid[signs + 1]}), 1]
    for axis in range(2):
      def value(x, r=residual, n=norms, axis=axis):
        return weight(n(x)) * 2 * r(x) * (x, 1)[axis]
      total[axis] += probability * sum(
          integrate.quad(value, low, high, epsabs=1e-13, limit=200)[0]
          for low, high in zip(points, points[1:]) if high > low)
  return total


class _Clip:
  """min(1, C / norm), or 1 / norm."""

  def __init__(self, clip_norm, *, normalise=False):
    self.corner = 0.0 if normalise else clip_norm
    self._clip_norm, self._normalise = clip_norm, normalise

  def __call__(self, norm):
    if self._normalise:
      return 1 / norm if norm else 0.0
    return min(1.0, self._clip_norm / norm) if norm else 1.0


@pytest.fixture(scope='module')
def offsets():
  return np.random.default_rng(0).normal(scale=3, size=(12, 2))


def test_mean_clipped_gradient_is_the_quadrature(offsets):
  cases = [*zip(offsets, np.geomspace(0.2, 40, len(offsets))),
           (np.zeros(2), 2.2), (np.zeros(2), 20.0)]
  for offset, clip_norm in cases:
    np.testing.assert_allclose(
        regression.mean_clipped_gradient(offset, clip_norm=clip_norm),
        _quadrature(offset, _Clip(clip_norm)), atol=1e-10)
    np.testing.assert_allclose(
        regression.mean_normalised_gradient(offset),
        _quadrature(offset, _Clip(1.0, normalise=True)), atol=1e-10)


def test_without_clipping_it_is_the_mean_gradient(offsets):
  for offset in offsets:
    np.testing.assert_allclose(
        regression.mean_clipped_gradient(offset, clip_norm=1e3),
        regression.mean_gradient(offset), atol=1e-11)
  assert np.all(regression.mean_gradient(np.zeros(2)) == 0)


def test_bias_01_golden_values():
  """BIAS-01, the numbers of the spec."""
  at_optimum = regression.mean_clipped_gradient(np.zeros(2), clip_norm=1.0)
  np.testing.assert_allclose(
      at_optimum, 0.8 * np.array([math.sqrt(2) - 1, math.asinh(1)]),
      atol=1e-14)
  np.testing.assert_allclose(at_optimum, [0.3313708, 0.7050989], atol=1e-7)
  assert np.linalg.norm(at_optimum) == pytest.approx(0.7790835, abs=1e-7)
  zero = regression.clipped_zero(clip_norm=1.0)
  np.testing.assert_allclose(zero, [-0.01764882, -0.94221039], atol=1e-8)
  assert regression.excess_risk(zero) == pytest.approx(0.9045, abs=5e-5)
  assert regression.LARGEST_LINEAR == pytest.approx(17.93, abs=0.005)
  assert regression.UNBIASED_FROM == pytest.approx(25.46, abs=0.005)


@pytest.mark.parametrize('clip_norm,zero,digits', [
    (5, (-0.08824, -0.71105), 5), (10, (-0.17649, -0.42210), 5),
    (15, (-0.26473, -0.13316), 5), (20, (-0.2159, 0.0525), 4)])
def test_zeros_for_other_clip_norms(clip_norm, zero, digits):
  found = regression.clipped_zero(clip_norm=float(clip_norm))
  np.testing.assert_allclose(found, zero, atol=0.51 * 10**-digits)
  assert np.linalg.norm(_quadrature(found, _Clip(clip_norm))) < 1e-9


def test_the_closed_form_ends_where_it_says_and_the_bias_vanishes():
  edge = regression.LARGEST_LINEAR
  for clip_norm in (0.01, edge * (1 - 1e-9), edge * (1 + 1e-9), 22.0, 25.4):
    zero = regression.clipped_zero(clip_norm=clip_norm)
    assert np.linalg.norm(zero) > 1e-6
    norm = np.linalg.norm(
        regression.mean_clipped_gradient(zero, clip_norm=clip_norm))
    assert norm < 1e-10
  linear = np.array([-0.01764882, 0.05778961]) * 20 + [0, -1]
  assert np.linalg.norm(
      regression.mean_clipped_gradient(linear, clip_norm=20.0)) > 0.01
  edge = regression.UNBIASED_FROM
  assert not regression.clipped_zero(clip_norm=edge).any()
  origin = lambda c: np.linalg.norm(
      regression.mean_clipped_gradient(np.zeros(2), clip_norm=c))
  assert origin(edge) < 1e-12 < 1e-6 < origin(edge - 0.1)


def test_e21_the_printed_root_is_none():
  """E21: at the printed sign the mean clipped gradient is far from zero."""
  there = regression.mean_clipped_gradient(np.array(_PRINTED.zero),
                                           clip_norm=_PRINTED.clip_norm)
  assert np.linalg.norm(there) > 0.7
  turned = regression.mean_clipped_gradient(-np.array(_PRINTED.zero),
                                            clip_norm=_PRINTED.clip_norm)
  assert np.linalg.norm(turned) < 2e-5


def test_the_clipped_field_is_monotone(offsets):
  """The gradient of a convex function, so that its zero is the only one."""
  for clip_norm in (0.5, 4.0, 20.0):
    fields = [regression.mean_clipped_gradient(u, clip_norm=clip_norm)
              for u in offsets]
    for i, j in itertools.combinations(range(len(offsets)), 2):
      assert (offsets[i] - offsets[j]) @ (fields[i] - fields[j]) > -1e-12
    zero = regression.clipped_zero(clip_norm=clip_norm)
    assert all((u - zero) @ field > 0.01
               for u, field in zip(offsets, fields))


def test_sampling_agrees_with_the_integral():
  """Through dpjax's clipping; false alarm below 1e-6 (4.9 SE, an upper SE)."""
  norm, error = descent.sampled_norm(jax.random.key(3), 100_000,
                                     clip_norm=1.0)
  assert abs(norm - 0.7790835) < 4.9 * error < 0.016


@pytest.fixture(scope='module')
def rows(smoke_rows):
  # optax.adam is not strict.
  return smoke_rows('clipping_bias', promotion='standard')


@pytest.fixture(scope='module')
def rests(rows):
  """Where descents of 300 steps end, each record in every noiseless step."""
  return {key.method: np.array([found['rest_1'][0], found['rest_2'][0]])
          for key, found in lookup.of_kind(lookup.collect(rows),
                                           'descent').items()}


def test_noiseless_dp_sgd_reaches_the_zero(rests):
  zero = regression.clipped_zero(clip_norm=1.0)
  assert np.linalg.norm(rests['clipped_sgd'] - zero) < 1e-3
  assert np.linalg.norm(rests['clipped_sgd'] - _PRINTED.zero) > 1.8


def test_e21_algorithm_7_as_printed_goes_elsewhere(rests):
  """E21: normalised, it is least absolute deviations: (a, b - 1)."""
  median = np.array([0.0, -1.0])
  assert np.linalg.norm(rests['normalised_sgd'] - median) < 1e-3
  assert np.linalg.norm(rests['clipped_sgd'] - median) > 0.05
  # Its field points away from (0, -1) everywhere, and does not vanish near.
  for angle in np.linspace(0, 2 * np.pi, 9):
    away = 0.01 * np.array([np.cos(angle), np.sin(angle)])
    assert regression.mean_normalised_gradient(median + away) @ away > 1e-4


def test_normalised_contributions_are_bounded():
  bounder = descent.normalised(descent.predict, descent.squared_loss)
  batch = Batch(jnp.array([[0.5], [0.5], [jnp.nan], [0.1]]),
                jnp.array([7.0, 0.0, 1.0, jnp.inf]))
  theta = jnp.zeros([2], jnp.float32)
  alone = [bounder.sums(theta, batch, jnp.arange(4) == i) for i in range(4)]
  norms = [float(jnp.linalg.norm(found.total)) for found in alone]
  np.testing.assert_allclose(norms, [1, 0, 0, 0], atol=1e-6)
  assert [int(found.num_nonfinite) for found in alone] == [0, 0, 1, 1]
  together = bounder.sums(theta, batch, jnp.ones([4], jnp.bool_))
  np.testing.assert_allclose(together.total, alone[0].total, rtol=1e-6)
  assert bounder.l2_sensitivity(()) == 1


def test_grid_records_have_the_exact_shares():
  batch = descent.grid_records(200)
  noise = np.asarray(batch.y - descent.SLOPE * batch.x[:, 0] -
                     descent.INTERCEPT)
  for error, share in regression.ERRORS:
    assert np.mean(np.abs(noise - error) < 1e-5) == pytest.approx(share)
  assert abs(noise.mean()) < 1e-6
  assert abs(np.corrcoef(noise, batch.x[:, 0])[0, 1]) < 1e-6


@pytest.fixture(scope='module')
def field_rows():
  """Rows of the whole field of the sweep."""
  settings = [s for s in sweep.SETTINGS if s.kind == 'field']
  return [row
          for setting, lines in run.run(settings, None, lambda *_: None)
          for row in selection.named('clipping_bias', setting, lines)]


def test_bias_02_zero_crossings_of_the_field(field_rows):
  """BIAS-02: both zeros, read off the rows of the figure."""
  grid = lookup.grid(lookup.collect(field_rows))
  plain = lookup.crossings(grid.first, grid.second, grid.plain)
  clipped = lookup.crossings(grid.first, grid.second, grid.clipped)
  np.testing.assert_allclose(plain, [[0, 0]], atol=1e-12)
  # Around its zero the clipped field is linear, hence interpolated exactly.
  np.testing.assert_allclose(clipped, [[-0.01764882, -0.94221039]],
                             atol=1e-8)


def test_crossings_finds_all_zeros_once():
  axis = np.linspace(-1, 1, 5)
  x, y = np.meshgrid(axis, axis, indexing='ij')
  found = lookup.crossings(axis, axis, np.stack([x, y - 0.3], -1))
  np.testing.assert_allclose(found, [[0, 0.3]], atol=1e-12)
  assert not lookup.crossings(axis, axis, np.stack([x, y - 3], -1)).size


_STARTS = jnp.array([[[1.0, 0.0], [0.0, 1.0]], [[0.3, -0.2], [0.5, 0.9]]])


@pytest.mark.parametrize('method,diagonal,objective', [
    ('clip_weights', (1.0, 0.5), 0.625),
    ('spectral_projection', (1.0, 1.0), 0.5),
    ('frobenius_rescaling', (2 / 5**0.5, 1 / 5**0.5), 0.763932),
    ('frobenius_adam', (0.5**0.5, 0.5**0.5), 0.878680)])
def test_e18_where_descent_ends_in_a_ball(method, diagonal, objective):
  """BIAS-03, E18: rescaling ends above the optimum that projection reaches."""
  ball = constraint.BALLS[method]
  with jax.numpy_dtype_promotion('standard'):  # optax.adam is not strict
    ends = jax.vmap(lambda start: constraint.rest(ball, start))(_STARTS)
  # Adam's memory of a start that is not diagonal fades slowly.
  loose = 3e-3 if method == 'frobenius_adam' else 1e-5
  for weights, atol in zip(ends, (1e-5, loose)):
    np.testing.assert_allclose(weights, np.diag(diagonal), atol=atol)
    assert float(constraint.objective(weights)) == pytest.approx(
        objective, abs=2 * atol)
  best = float(constraint.objective(jnp.diag(jnp.array(ball.optimum))))
  exact = method in ('spectral_projection', 'frobenius_rescaling')
  assert (objective - best < 1e-5) == exact


def test_e18_rescaling_rests_where_the_gradient_is_parallel():
  """E18: not where the optimum is; there it is in the leading pairs' span."""
  weights = constraint.rest(constraint.BALLS['clip_weights'], _STARTS[1])
  gradient = jax.grad(constraint.objective)(weights)
  cosine = jnp.sum(weights * gradient) / (
      jnp.linalg.norm(weights) * jnp.linalg.norm(gradient))
  assert float(cosine) == pytest.approx(-1, abs=1e-5)
  # Moving the second singular value alone stays in the ball and is better.
  better = weights + jnp.diag(jnp.array([0.0, 0.1]))
  assert np.linalg.norm(better, 2) <= 1 + 1e-6
  assert constraint.objective(better) < constraint.objective(weights) - 0.01


@pytest.mark.parametrize('project,order', [
    (constraint.project_spectral, 2), (constraint.project_frobenius, 'fro')])
def test_projections_are_projections(project, order):
  """<W - P, X - P> <= 0 for all X of the ball characterises P."""
  rng = np.random.default_rng(1)
  for _ in range(20):
    weights = rng.normal(size=(2, 2)).astype(np.float32)
    nearest = np.asarray(project(jnp.asarray(weights)))
    assert np.linalg.norm(nearest, order) <= 1 + 1e-6
    others = rng.normal(size=(200, 2, 2))
    others /= [[[max(1, np.linalg.norm(x, order))]] for x in others]
    products = ((weights - nearest) * (others - nearest)).sum((1, 2))
    assert products.max() <= 1e-6


def test_e19_golden_values():
  """E19: the fixed points of Algorithm 8 on batches of one size."""

  def points(sizes, share):
    return [batch_maximum.fixed_point(
        batch_maximum.with_replacement(size, share)) for size in sizes]

  np.testing.assert_allclose(points((1, 2, 4, 8), 0.5),
                             [0.9091, 0.9479, 0.9792, 0.9894], atol=5e-5)
  np.testing.assert_allclose(
      points((1, 8, 64, 256, 512, 4096), 0.01),
      [0.0917, 0.0971, 0.1488, 0.3736, 0.4896, 0.5025], atol=5e-5)
  assert batch_maximum.least_squares(0.5) == pytest.approx(0.9901, abs=5e-5)
  assert batch_maximum.least_squares(0.01) == pytest.approx(0.5025, abs=5e-5)


def _mean_update(batches, theta):
  """Mean over (probability, xs) of Algorithm 8's update, record by record."""
  total = 0.0
  for probability, xs in batches:
    grads = [(theta * x - (10.0 if x == 10 else 0.0)) * x for x in xs]
    total += probability * sum(grads) / max(xs) / len(xs)
  return total


def test_e19_all_batches_one_by_one():
  ordered = [(0.3**xs.count(10) * 0.7**xs.count(1), xs)
             for xs in itertools.product((1, 10), repeat=5)]
  theta = batch_maximum.fixed_point(batch_maximum.with_replacement(5, 0.3))
  assert abs(_mean_update(ordered, theta)) < 1e-12
  best = batch_maximum.least_squares(0.3)
  assert abs(_mean_update(ordered, best)) > 1e-3
  data, q = (1, 1, 1, 1, 10, 10), 0.4
  subsets = [(q**len(xs) * (1 - q)**(6 - len(xs)), xs)
             for size in range(1, 7)
             for xs in itertools.combinations(data, size)]
  theta = batch_maximum.fixed_point(batch_maximum.poisson(4, 2, q))
  assert abs(_mean_update(subsets, theta)) < 1e-12


def test_e19_simulation_agrees():
  """64 runs; false alarm below 1e-6 (6 SE, t with 63 degrees)."""
  means = batch_maximum.simulate(jax.random.key(5), batch_size=8, share=0.5,
                                 num_steps=4000, num_runs=64)
  error = means.std(ddof=1) / 8
  assert abs(means.mean() - 0.98941) < 6 * error
  assert abs(means.mean() - batch_maximum.least_squares(0.5)) > 6 * error


def test_a_divisor_that_reads_inputs_alone_spares_the_regression():
  """E e = 0 for each x: at (a, b) all batches of two cancel out."""
  kinds = [(x, e, p / 3) for x in (0.1, 0.5, 0.9)
           for e, p in regression.ERRORS]
  mean = sum(p * q * (-2 * e * np.array([x, 1]) - 2 * f * np.array([z, 1])) /
             max(math.hypot(1, x), math.hypot(1, z))
             for (x, e, p), (z, f, q) in itertools.product(kinds, repeat=2))
  np.testing.assert_allclose(mean, 0, atol=1e-12)


_LOSS = losses.cross_entropy()


@pytest.fixture(scope='module')
def network():
  """A plain perceptron, parameters and a probe."""
  model = mlp.mlp(num_features=5, num_classes=3, depth=1, width=4)
  params = jax.tree.map(lambda leaf: 1.5 * leaf + 0.1,
                        model.init(jax.random.key(0)))
  rng = np.random.default_rng(2)
  probe = Batch(jnp.asarray(rng.normal(size=(40, 5)), jnp.float32),
                jnp.asarray(rng.integers(3, size=40), jnp.int32))
  return model, params, probe


def _measure(network, bounder, *, printed=True, model=None):
  plain, params, probe = network
  measure = jax.jit(lambda params, probe: curves.measure_probe(
      params, probe, model=model or plain, loss=_LOSS, bounder=bounder,
      printed=printed))
  return {name: float(x) for name, x in measure(params, probe).items()}


def _flat_gradients(network):
  model, params, probe = network

  def one(x, y):
    grads = jax.grad(lambda p: _LOSS.values(model.apply(p, x[None]),
                                            y[None])[0])(params)
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(grads)])

  gradient = jax.jit(one)
  return np.array([gradient(x, y) for x, y in zip(*probe)], np.float64)


def test_bias_04_measures_are_what_they_say(network):
  """BIAS-04 against a loop over records; the median norm as clip norm."""
  grads = _flat_gradients(network)
  norms = np.linalg.norm(grads, axis=1)
  clip_norm = float(np.median(norms))
  clipped = (grads * np.minimum(1, clip_norm / norms)[:, None]).mean(0)
  mean = grads.mean(0)
  found = _measure(network, per_example.clipped(
      network[0].apply, _LOSS.values, clip_norm=clip_norm))
  assert found['gradient_norm'] == pytest.approx(np.linalg.norm(mean))
  assert found['clipped_norm'] == pytest.approx(np.linalg.norm(clipped),
                                                rel=1e-4)
  assert found['error_norm'] == pytest.approx(np.linalg.norm(mean - clipped),
                                              rel=1e-3)
  assert found['cosine'] == pytest.approx(
      mean @ clipped / np.linalg.norm(mean) / np.linalg.norm(clipped),
      rel=1e-4)
  assert found['fraction_changed'] == 0.5


def test_bias_04_no_clipping_no_error(network):
  """BIAS-04: at an infinite clip norm the error is zero."""
  found = _measure(network, per_example.clipped(
      network[0].apply, _LOSS.values, clip_norm=1e30))
  assert found['error_norm'] < 1e-7 < found['gradient_norm']
  assert found['fraction_changed'] == 0


def test_lip_dp_sgd_has_no_error_unless_cotangents_are_clipped(network):
  model = mlp.mlp(num_features=5, num_classes=3, depth=1, width=4,
                  input_radius=2.0, hidden_radius=2.0)

  def error(loss):
    bounder = lipschitz_bounder.certified(model.network, loss,
                                          weight_norm=1e3)
    return _measure(network, bounder, printed=False,
                    model=model)['error_norm']

  assert error(_LOSS) < 1e-7
  assert error(losses.cross_entropy(logit_clip=0.35)) > 0.05


def test_e20_algorithm_8_takes_another_step(network):
  """E20: dividing each layer by X_k is not the mean gradient."""
  model, params, probe = network
  first, last = params['dense_00'], params['dense_01']
  hidden = np.tanh(probe.x @ first['kernel'] + first['bias'][None])
  np.testing.assert_allclose(
      model.apply(params, probe.x),
      hidden @ last['kernel'] + last['bias'][None], rtol=1e-4, atol=1e-5)
  largest = [np.linalg.norm(x, axis=1).max() for x in (probe.x, hidden)]
  mean = jax.tree.map(jnp.ones_like, params)
  update = curves.algorithm_8_update(params, probe.x, mean)
  for name, size in zip(('dense_00', 'dense_01'), largest):
    for leaf in update[name].values():
      np.testing.assert_allclose(leaf, 1 / size, rtol=1e-5)
  found = _measure(network, per_example.summed(model.apply, _LOSS.values))
  assert found['printed_error'] > 0.2 * found['gradient_norm']
  assert found['printed_cosine'] < 0.9999


def test_rows_tell_what_they_cost(rows):
  assert records.ids(rows) == {selection.setting_id('clipping_bias', s)
                               for s in sweep.SMOKE}
  diagnostics = [row for row in rows if row.dataset == 'breast_cancer' and
                 row.metric != 'test_accuracy']
  assert diagnostics and all(math.isinf(row.epsilon) for row in diagnostics)
  released = [row for row in rows if row.metric == 'test_accuracy']
  assert len(released) == 2
  assert all(1.6 < row.epsilon <= row.epsilon_requested == 1.672
             for row in released)
  exact = [row for row in rows if row.n == 0]
  assert exact and all(row.epsilon == 0 for row in exact)
  assert all(row.epsilon_valid for row in rows)
  noisy = [row for row in rows if row.dataset == 'regression_small' and
           row.method == 'dp_sgd']
  assert len(noisy) == 4 and all(0.99 < row.epsilon <= 1 for row in noisy)


def test_each_point_of_a_curve_gets_its_own_measures(monkeypatch):
  """A resumed sweep asks for some points only; means are over runs."""
  plan = descent.make_plan('sgd', num_examples=1000, num_steps=20,
                           epsilon=1.0, delta=1e-4)
  path = np.array([[1.0, 2.0, 4.0], [3.0, 4.0, 8.0]])  # [runs, points]
  measures = curves.Measures(*[path] * len(curves.Measures._fields))
  measures = measures._replace(printed_norm=path * math.nan)
  monkeypatch.setattr(curves, 'trace', lambda *_, **__: curves.Curves(
      measures, np.array([0.5, 0.7]), plan, 0.1, math.inf))
  asked = [s for s in sweep.SMOKE if s.kind == 'short' and
           s.method == 'dp_sgd'][1:]
  found = {(s.at, row.metric): row.value
           for s, rows in run.run(asked, None, lambda *_: None)
           for row in rows}
  assert found[(10,), 'error_norm'] == 3 and found[(20,), 'cosine'] == 6
  assert found[(20,), 'error_norm_se'] == pytest.approx(2)
  assert found[(20,), 'test_accuracy'] == pytest.approx(0.6)
  assert ((10,), 'test_accuracy') not in found
  assert not any(metric == 'printed_norm' for _, metric in found)


def test_committed_curves_start_before_training():
  """Runs that share their start measure the same there, noise or none."""
  path = environment.ROOT / 'experiments/clipping_bias/results/rows.csv'
  values = lookup.collect(records.read(path))
  for dataset in ('dropout', 'adult'):
    noisy, plain = (lookup.curve(values, dataset, method, 1.0, 'error_norm')
                    for method in ('dp_sgd', 'clipped_sgd'))
    assert noisy[0] == plain[0] == list(range(0, 601, 30))
    assert noisy[1][0] == pytest.approx(plain[1][0], rel=1e-5)
    assert noisy[1][1] != pytest.approx(plain[1][1], rel=1e-5)


def test_verdicts_of_the_smoke_sweep(rows):
  found = {verdict.claim: verdict
           for verdict in verdicts.check(report.verdict(rows))}
  zero = found['the mean clipped gradient is zero at (a, b) plus']
  assert (zero.printed, zero.ours, zero.verdict) == (
      '(0.01765, 0.94221)', '(-0.01765, -0.94221)', verdicts.DIFFERS)
  assert 'E21' in zero.reason and '0.7791' in zero.reason
  outcome = {claim.split(':')[0]: v.verdict for claim, v in found.items()}
  assert outcome['norm of the mean clipped gradient at (a, b)'] == 'agrees'
  assert outcome['Figure 5.2.1'] == 'agrees'
  rest = [v for claim, v in found.items() if 'comes to rest' in claim or
          'come to rest' in claim]
  assert [v.verdict for v in rest] == ['agrees', 'agrees', 'differs']
  theorem = {claim: v.verdict for claim, v in found.items()
             if 'Theorem 5.2.3' in claim}
  assert sorted(theorem.values()) == ['agrees', 'agrees', 'differs',
                                      'differs']
  assert [v.verdict for claim, v in found.items() if 'batches' in claim] == [
      'differs']
  assert {v.verdict for claim, v in found.items()
          if claim.startswith(('dropout', 'adult'))} == {'not run'}


def _curve_rows(error, clipped):
  """Rows of a dp_sgd curve on dropout at clip norm 1."""
  return [
      records.Row(
          experiment='clipping_bias',
          id='clipping_bias/kind=curve,dataset=dropout,method=dp_sgd,'
             f'clip_norm=1,at={step},seed=0',
          seed=0, metric=metric, value=value, n=3539,
          epsilon_requested=1.326, epsilon=math.inf, epsilon_valid=True,
          delta=1e-4, adjacency='add_or_remove_one', accountant='pld',
          method='dp_sgd', dataset='dropout')
      for metric, values in (('error_norm', error), ('clipped_norm', clipped))
      for step, value in enumerate(values)]


@pytest.mark.parametrize('error,clipped,outcome', [
    ((0.6, 0.7, 0.8, 0.9), (0.3, 0.1, 0.05, 0.04), verdicts.AGREES),
    ((0.6, 0.7, 0.5, 0.3), (0.3, 0.1, 0.05, 0.04), verdicts.DIFFERS),
    ((0.6, 0.7, 0.8, 0.9), (0.3, 0.1, 0.3, 0.4), verdicts.DIFFERS)])
def test_trends_of_figure_5_3_3(error, clipped, outcome):
  found = {v.claim: v for v in verdicts.check(
      report.verdict(_curve_rows(error, clipped)))}
  claim = ('Figure 5.3.3, dropout, clip norm 1: the error grows while '
           '||clip(g)|| falls')
  assert found[claim].verdict == outcome
  assert f'{error[0]:.3f} -> {error[-1]:.3f}' in found[claim].ours


def test_nothing_is_claimed_without_rows():
  found = verdicts.check(report.verdict([]))
  assert {v.verdict for v in found} == {verdicts.NOT_RUN,
                                        verdicts.NOT_COMPARABLE}


def test_the_sweep_covers_figures_and_theorem():
  experiment = registry.load('clipping_bias')
  kinds = {setting.kind for setting in experiment.settings}
  assert kinds == {'zero', 'field', 'descent', 'ball', 'batches', 'curve'}
  for setting in experiment.settings:
    key = lookup.parse(selection.setting_id('clipping_bias', setting))
    assert key == (setting.kind, setting.dataset, setting.method,
                   setting.clip_norm, setting.at)
  groups = selection.groups(experiment.settings, experiment.batched)
  assert len([g for g in groups if g[0].kind == 'curve']) == 16


def test_table_and_figure(rows, field_rows):
  pytest.importorskip('matplotlib')
  text = report.table(rows)
  assert '-0.94221' in text and 'frobenius_adam' in text
  kept = [row for row in rows if '/kind=field' not in row.id]
  axes = report.figure(kept + field_rows).axes
  assert 'clipped' in axes[1].get_title()
  points = [tuple(np.round([line.get_xdata()[0], line.get_ydata()[0]], 5))
            for line in axes[1].get_lines()]
  assert points == [(0, 0), (-0.01765, -0.94221)]
  assert axes[3].get_title() == 'breast_cancer: along training'
  report.figure([])
