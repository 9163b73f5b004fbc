"""These tests check the curves of Figure 5.3.3
and the claims on them (BIAS-04)."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import per_example
from dpjax.lipschitz import bounder as lipschitz_bounder
from dpjax.lipschitz import losses
from dpjax.models import mlp
from dpjax.runs import environment
from dpjax.typing import Batch
from experiments import records
from experiments import verdicts
from experiments.clipping_bias import curves
from experiments.clipping_bias import descent
from experiments.clipping_bias import lookup
from experiments.clipping_bias import report
from experiments.clipping_bias import run
from experiments.clipping_bias import sweep

_LOSS = losses.cross_entropy()


@pytest.fixture(scope='module')
def network():
  """Returns a plain perceptron, its parameters and a probe."""
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


@pytest.mark.slow
def test_bias_04_measures_are_what_they_say(network):
  """Measures equal a loop over records at the median norm (BIAS-04)."""
  grads = _flat_gradients(network)
  norms = np.linalg.norm(grads, axis=1)
  clip_norm = float(np.median(norms))
  clipped = (grads * np.minimum(1, clip_norm / norms)[:, None]).mean(0)
  mean = grads.mean(0)
  measures = _measure(network, per_example.clipped(
      network[0].apply, _LOSS.values, clip_norm=clip_norm))
  assert measures['gradient_norm'] == pytest.approx(np.linalg.norm(mean))
  assert measures['clipped_norm'] == pytest.approx(np.linalg.norm(clipped),
                                                   rel=1e-4)
  assert measures['error_norm'] == pytest.approx(np.linalg.norm(mean - clipped),
                                                 rel=1e-3)
  assert measures['cosine'] == pytest.approx(
      mean @ clipped / np.linalg.norm(mean) / np.linalg.norm(clipped),
      rel=1e-4)
  assert measures['fraction_changed'] == 0.5


def test_bias_04_no_clipping_no_error(network):
  """At an infinite clip norm the clipping error is zero (BIAS-04)."""
  measures = _measure(network, per_example.clipped(
      network[0].apply, _LOSS.values, clip_norm=1e12))
  assert measures['error_norm'] < 1e-7 < measures['gradient_norm']
  assert measures['fraction_changed'] == 0


@pytest.mark.every(2)
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


@pytest.mark.slow
def test_e20_algorithm_8_takes_another_step(network):
  """Dividing each layer by X_k gives another
  step than the mean gradient (E20)."""
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
  measures = _measure(network, per_example.summed(model.apply, _LOSS.values))
  assert measures['printed_error'] > 0.2 * measures['gradient_norm']
  assert measures['printed_cosine'] < 0.9999


def test_each_point_of_a_curve_gets_its_own_measures(monkeypatch):
  """A resumed sweep gives each requested point its own means over runs."""
  plan = descent.make_plan('sgd', num_examples=1000, num_steps=20,
                           epsilon=1.0, delta=1e-4)
  path = np.array([[1.0, 2.0, 4.0], [3.0, 4.0, 8.0]])  # [runs, points]
  measures = curves.Measures(*[path] * len(curves.Measures._fields))
  measures = measures._replace(printed_norm=path * math.nan)
  monkeypatch.setattr(curves, 'trace', lambda *_, **__: curves.Curves(
      measures, np.array([0.5, 0.7]), plan, 0.1, math.inf))
  asked = [s for s in sweep.SMOKE if s.kind == 'short' and
           s.method == 'dp_sgd'][1:]
  values = {(s.at, row.metric): row.value
            for s, rows in run.run(asked, None, lambda *_: None)
            for row in rows}
  assert values[(10,), 'error_norm'] == 3 and values[(20,), 'cosine'] == 6
  assert values[(20,), 'error_norm_se'] == pytest.approx(2)
  assert values[(20,), 'test_accuracy'] == pytest.approx(0.6)
  assert ((10,), 'test_accuracy') not in values
  assert not any(metric == 'printed_norm' for _, metric in values)


def test_committed_curves_start_before_training():
  """Committed noisy and noiseless curves agree at their common start."""
  path = environment.ROOT / 'experiments/clipping_bias/results/rows.csv'
  values = lookup.collect(records.read(path))
  for dataset in ('dropout', 'adult'):
    noisy, plain = (lookup.curve(values, dataset, method, 1.0, 'error_norm')
                    for method in ('dp_sgd', 'clipped_sgd'))
    assert noisy[0] == plain[0] == list(range(0, 601, 30))
    assert noisy[1][0] == pytest.approx(plain[1][0], rel=1e-5)
    assert noisy[1][1] != pytest.approx(plain[1][1], rel=1e-5)


def _curve_rows(error, clipped):
  """Returns rows of a dp_sgd curve on the data set dropout at clip norm 1."""
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
  by_claim = {v.claim: v for v in verdicts.check(
      report.verdict(_curve_rows(error, clipped)))}
  claim = ('Figure 5.3.3, dropout, clip norm 1: the error grows while '
           '||clip(g)|| falls')
  assert by_claim[claim].verdict == outcome
  assert f'{error[0]:.3f} -> {error[-1]:.3f}' in by_claim[claim].ours
