"""These tests check the networks of today, their sums and their targets."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import bookkeeping
from dpjax.grads import explain
from dpjax.grads import weighted
from experiments.benchmarks import findings
from experiments.benchmarks import methods
from experiments.benchmarks import network_checks
from experiments.benchmarks import network_names
from experiments.benchmarks import network_steps
from experiments.benchmarks import network_work
from experiments.benchmarks import networks
from experiments.benchmarks import program
from experiments.benchmarks import report
from experiments.benchmarks import sweep
from experiments.benchmarks import values
from experiments.benchmarks import worker

_TINY = [network_names.TINY + name for name in network_names.NETWORKS
         if name not in network_names.LARGE]
_SIZE = 3


@functools.cache
def _built(model):
  with jax.numpy_rank_promotion('allow'):
    parts = networks.build(model)
    return parts, parts.records(_SIZE, jax.random.key(1))


def _judged(model, sums, method='ours'):
  """Returns the finding of a function that computes sums."""
  spec = network_checks.make_spec(model, method, size=_SIZE)
  audit = network_steps._audit(spec, sums(spec.clip_norm), *_built(model))
  return network_checks.judge(spec, audit)


@pytest.mark.every(9)
@pytest.mark.parametrize('model', _TINY)
def test_clipped_sums_are_those_of_a_loop_over_records(model):
  assert _judged(model, network_steps.ours).passed


@pytest.mark.slow
@pytest.mark.parametrize('model', _TINY)
def test_clipping_by_vmap_is_right_too(model):
  assert _judged(model, network_steps.vmapped).passed


def test_sums_that_are_not_clipped_and_norms_that_are_short_are_seen(
    monkeypatch):
  assert _judged('tiny_mlp', network_steps.ours).passed
  assert not _judged('tiny_mlp', lambda bound: network_steps.plain).passed
  assert not _judged(
      'tiny_mlp', lambda bound: network_steps.ours(1.001 * bound)).passed
  honest = bookkeeping.of_record_loss

  def without_biases(*arguments, **options):
    gradients = honest(*arguments, **options)
    squares = {name: {**leaves, 'bias': 0 * leaves['bias']}
               for name, leaves in gradients.squares.items()}
    return gradients._replace(squares=squares)

  monkeypatch.setitem(weighted._RECORD_KERNELS, 'bookkeeping', without_biases)
  assert not _judged('tiny_mlp', network_steps.ours).passed


def test_every_network_has_a_description_and_a_builder():
  assert set(networks.BUILDERS) == set(network_names.NETWORKS)
  sizes = {each.size for name, each in network_names.NETWORKS.items()
           if name not in network_names.LARGE}
  assert sizes <= {16, 32, 64}


@pytest.mark.slow
def test_gpt_2_has_its_number_of_parameters():
  """GPT-2's smallest model: 124,439,808, and here no bias of the logits."""
  for model in network_names.LARGE:
    shapes = jax.eval_shape(lambda model=model: networks.build(model).params)
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == 124_439_808


@pytest.mark.every(3)
def test_a_program_is_timed_in_turns_with_the_plain_step():
  spec = program.Spec(suite='models', model='tiny_mlp', size=_SIZE,
                      method='ours')
  built = worker.make(spec)
  info = worker.warm_up(built)
  assert {'compile_ratio', 'flops_ratio', 'leaves'} <= info.keys()
  assert info['leaves'] == 4 and info['leaves_formed'] == 0
  sample = program.sample(built, 0.0)
  assert sample.steps == 1 and sample.unit_wall > 0


def test_units_are_run_as_often_as_steps():
  ran = []
  times = program.time_steps(lambda: ran.append('step'), 0.01,
                             lambda: ran.append('unit'))
  assert ran == ['step', 'unit'] * len(times)
  assert {len(each) for each in times} == {4}
  assert {len(each) for each in program.time_steps(lambda: None, 0.0)} == {2}


def test_operations_count_each_pass_of_a_loop():
  x, kernels = jnp.ones([3, 4]), jnp.ones([5, 4, 4])
  scanned = lambda x, kernels: jax.lax.scan(
      lambda x, kernel: (x @ kernel, None), x, kernels)[0]
  assert network_work.of_products(scanned, x, kernels) == 5 * 2 * 3 * 4 * 4
  assert network_work.of_products(jax.jit(scanned), x, kernels) == 480
  assert network_work.of_products(
      jax.grad(lambda x: jnp.sum(scanned(x, kernels))), x) == 480
  image, filters = jnp.ones([1, 6, 6, 2]), jnp.ones([3, 3, 2, 7])
  convolved = lambda image: jax.lax.conv_general_dilated(
      image, filters, (1, 1), 'VALID', dimension_numbers=('NHWC', 'HWIO',
                                                          'NHWC'))
  assert network_work.of_products(convolved, image) == 2 * 16 * 7 * 9 * 2

  def partly(x):
    unused = x @ kernels[0]
    del unused
    return jax.lax.cond(x[0, 0] > 0, lambda x: x @ kernels[1],
                        lambda x: x, x)

  assert network_work.of_products(partly, x) == 2 * 3 * 4 * 4


def _lines(size, ours, vmap):
  return {values.Line('ours', 1): {size: ours},
          values.Line('vmap', 1): {size: vmap}}


def test_verdicts_follow_from_the_limits():
  ours = {'ratio': 1.3, 'temp_ratio': 1.51, 'flops_ratio': 1.2,
          'compile_ratio': 1.7}
  text = '\n'.join(findings.of_suite('models', {
      'gpt_scan_remat_12': _lines(16, ours, {'ratio': 1.3}),
      'gru': _lines(32, {'ratio': 9.0}, {'ratio': 8.0})}))
  cells = [[cell.strip() for cell in line.split('|')[1:-1]]
           for line in text.splitlines() if line.startswith('|')][2:]
  assert cells == [
      ['gpt_scan_remat_12', '16', 'time', '1.3', '1.3', 'met'],
      ['gpt_scan_remat_12', '16', 'memory by XLA', '1.51', '1.5', 'missed'],
      ['gpt_scan_remat_12', '16', 'operations', '1.2', '1.2', 'met'],
      ['gpt_scan_remat_12', '16', 'compiling', '1.7', '1.6', 'missed'],
      ['gpt_scan_remat_12', '16', 'time over vmap', '1', '1.05', 'met'],
      ['gru', '32', 'time over vmap', '1.12', '1.05', 'missed']]
  assert '3 of 6 targets are met.' in text


def test_limits_of_accelerators_are_not_judged_on_a_cpu():
  lines = _lines(8, {'ratio': 1.0, 'temp_ratio': 1.0}, {'ratio': 1.0})
  assert findings.of_suite('models', {'gpt2_124m': lines}) == []
  lines = _lines(8, {'ratio': 1.0, 'accelerator': 1.0}, {'ratio': 1.0})
  assert '| gpt2_124m ' in '\n'.join(
      findings.of_suite('models', {'gpt2_124m': lines}))


def test_settings_are_small_networks_on_cpu_and_gpt_2_on_accelerators():
  of = lambda **options: {each.model for each in sweep.settings(
      'models', **options)}
  assert of(cpu=False) == set(network_names.LARGE)
  assert of() == set(network_names.NETWORKS) - set(network_names.LARGE)
  assert of(models=['tiny_gpt'], sizes=[2]) == {'tiny_gpt'}
  with pytest.raises(ValueError, match='must be among mlp'):
    of(models=['gpt_3'])
  opacus = {each.model for each in sweep.settings('models')
            if each.method == 'opacus_ghost'}
  assert opacus == set(methods.OPACUS_NETWORKS['opacus_ghost'])


def test_the_table_shows_ratios_and_how_many_parameters_are_slow():
  row = {'ratio': 1.25, 'ratio_low': 1.2, 'ratio_high': 1.5,
         'temp_ratio': 1.1, 'compile_ratio': 1.5, 'cpu_ms': 12.0,
         'leaves': 18.0, 'leaves_formed': 12.0}
  assert report._cell('models', row, 16) == (
      '1.25 [1.2, 1.5]; 1.1; -; 1.5; 12 ms; 12 of 18')


def test_reasons_are_told():
  """Each leaf is named with the way of its norms and a reason."""

  def loss(params, record):
    x = record @ params['dense'] + params['bias']
    x = jnp.stack([x, jnp.sin(x)] * 2) @ params['sequence']
    x = x @ (2 * params['scaled'])
    return jnp.sum(jnp.sin(x + x @ params['twice'] @ params['twice']))

  params = {'dense': jnp.ones([3, 3]), 'bias': jnp.ones(3),
            'sequence': jnp.ones([3, 3]), 'scaled': jnp.ones([3, 3]),
            'twice': jnp.ones([3, 3]), 'unread': jnp.ones(2)}
  with jax.numpy_rank_promotion('allow'):
    told = {leaf.path: leaf for leaf in explain.explain(
        loss, params, jnp.ones(3))}
  ways = {path[2:-2]: leaf.way for path, leaf in told.items()}
  assert ways['dense'] == explain.PRODUCT and ways['bias'] == explain.SMALL
  assert ways['sequence'] in (explain.GRAM, explain.KEPT)
  assert ways['unread'] == explain.UNREAD
  slow = {path for path, leaf in told.items() if not leaf.is_fast}
  assert slow <= {"['scaled']", "['twice']"}
  np.testing.assert_array_equal([bool(leaf.reason) for leaf in told.values()],
                                True)


@pytest.mark.every(4)
@pytest.mark.parametrize('method, model', [
    ('jax_privacy', 'gpt_lora'),
    *((method, model) for method, models in methods.OPACUS_NETWORKS.items()
      for model in models)])
def test_sums_of_peers_are_right(method, model):
  if methods.missing('models', method):
    pytest.skip(methods.missing('models', method))
  spec = network_checks.make_spec(network_names.TINY + model, method,
                                  size=_SIZE)
  built = worker.make(spec)
  assert network_checks.judge(spec, built.audit()).passed
  assert built.unit is not None
