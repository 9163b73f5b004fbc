"""These tests check that timed benchmark programs compute the right thing."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import contractions
from dpjax.lipschitz import normalisation
from dpjax.models import convnet
from dpjax.models import wide_resnet
from experiments.benchmarks import architectures
from experiments.benchmarks import checks
from experiments.benchmarks import clients
from experiments.benchmarks import estimators
from experiments.benchmarks import jax_nets
from experiments.benchmarks import jax_steps
from experiments.benchmarks import methods
from experiments.benchmarks import norms
from experiments.benchmarks import program
from experiments.benchmarks import worker

_OURS = ('nonprivate', 'limit', 'limit_normal', 'limit_microbatch', 'ours',
         'ours_release', 'ours_per_layer', 'ours_microbatch', 'ours_norms',
         'lip_rarely',
         'vmap', 'vmap_scaled_sum')


@pytest.mark.slow
@pytest.mark.parametrize('model, method', [
    *(pytest.param('tiny_resnet', method, marks=pytest.mark.slow)
      for method in _OURS),
    ('tiny_cnn', 'lip'), ('tiny_cnn', 'ours_views'),
    pytest.param('tiny_stack', 'ours', marks=pytest.mark.slow),
    *(('tiny_mlp', method) for method in _OURS)])
def test_steps_are_right(model, method):
  # The six images are two views each of three records.
  size = 6 if method == 'ours_views' else 5
  spec = checks.make_spec(model, method, size=size)
  finding = checks.judge(spec, worker.make(spec).audit())
  assert finding.passed, finding
  private = method not in ('nonprivate', 'ours_norms')
  assert (finding.noise_multiplier > 0) == private


@pytest.mark.slow
@pytest.mark.parametrize('fault', [
    lambda audit: {**audit, 'noise_multiplier': 0.0},
    lambda audit: {**audit, 'moved': jax.tree.map(
        lambda new, old: old + 0.99 * (new - old), audit['moved'],
        audit['params'])},
    lambda audit: {**audit, 'sums': jax.tree.map(
        lambda leaf: 1.01 * leaf, audit['sums'])},
    lambda audit: {**audit, 'sums': {
        **audit['sums'], 'dense_0': {
            **audit['sums']['dense_0'],
            'bias': 0 * audit['sums']['dense_0']['bias']}}},
])
def test_wrong_steps_are_found(fault):
  spec = checks.make_spec('tiny_mlp', 'limit', size=4)
  audit = worker.make(spec).audit()
  assert checks.judge(spec, audit).passed
  assert not checks.judge(spec, fault(audit)).passed


@pytest.mark.slow
def test_a_clip_norm_that_is_not_kept_is_found():
  spec = checks.make_spec('tiny_mlp', 'ours', size=4)
  loose = dataclasses.replace(spec, clip_norm=1.2 * spec.clip_norm)
  audit = worker.make(loose).audit()
  assert checks.judge(loose, audit).passed
  assert not checks.judge(spec, audit).passed


def test_peers_are_right():
  pytest.importorskip('torch')
  for method, package in (('torch', 'torch'), ('opacus_hooks', 'opacus'),
                          ('opacus_ghost', 'opacus'),
                          ('jax_privacy', 'jax_privacy')):
    pytest.importorskip(package)
    spec = checks.make_spec('tiny_resnet', method, size=5)
    finding = checks.judge(spec, worker.make(spec).audit())
    assert finding.passed, finding


@pytest.mark.slow
@pytest.mark.parametrize('model', ['tiny_layer', 'tiny_grouped', 'tiny_dense'])
def test_both_ways_to_norms_are_right(model, monkeypatch):
  used = []
  for name in ('gram_norms', 'products'):
    monkeypatch.setattr(contractions, name, lambda *given, honest=getattr(
        contractions, name), name=name: used.append(name) or honest(*given))
  for method, way in (('gram', 'gram_norms'), ('kept', 'products')):
    used.clear()
    spec = norms.make_spec(model, method, size=5)
    built = worker.make(spec)
    assert set(used) == {way} and built.info['by_gram'] == (method == 'gram')
    audit = built.audit()
    finding = norms.judge(spec, audit)
    assert finding.passed, finding
    for name in audit:
      wrong = {**audit, name: audit[name] * np.float32(1.0003)}
      assert not norms.judge(spec, wrong).passed


@pytest.mark.slow
@pytest.mark.parametrize('gram', [True, False])
def test_what_is_chosen_is_what_the_package_chooses(gram, monkeypatch):
  monkeypatch.setattr(contractions, 'gram_is_cheaper', lambda layer: gram)
  spec = program.Spec(suite='norms', model='tiny_dense', size=2,
                      method='chosen')
  info = worker.make(spec).info
  assert info['by_gram'] == gram
  assert info['products_per_number'] == 9 * (4 + 5) / 20


@pytest.mark.slow
def test_networks_are_those_of_the_package():
  count = architectures.num_parameters
  models = architectures.MODELS
  assert count(models['mlp']) == 535_818
  assert count(models['convnet']) == sum(
      leaf.size for leaf in jax.tree.leaves(jax.eval_shape(
          convnet.convnet(input_shape=(28, 28, 1), num_classes=10).init,
          jax.random.key(0)))) == 1_625_866
  assert count(models['wrn_16_4']) == sum(
      leaf.size for leaf in jax.tree.leaves(jax.eval_shape(
          wide_resnet.wide_resnet().init, jax.random.key(0))))
  for architecture in models.values():
    params = jax.eval_shape(lambda a=architecture: jax_nets.init(
        a, jax.random.key(0)))
    assert count(architecture) == sum(
        leaf.size for leaf in jax.tree.leaves(params))
    batch = jax.eval_shape(lambda a=architecture: jax_nets.batch(
        a, 3, jax.random.key(0)))
    logits = jax.eval_shape(lambda p, x, a=architecture: jax_nets.apply(
        a, p, x), params, batch.x)
    assert logits.shape == (3, architecture.num_classes)


@pytest.mark.slow
def test_normalisations_are_the_usual_ones():
  x = jax.random.normal(jax.random.key(0), (2, 3, 3, 4))
  net = lambda layer: architectures.Architecture((layer,), (3, 3, 4), 4, 0, '')
  np.testing.assert_allclose(
      jax_nets.apply(net(architectures.GroupNorm(2)), {}, x),
      normalisation.standard('group', num_groups=2).function(x), atol=1e-5)
  params = {'norm': {'scale': jnp.array([1.0, 2.0, 3.0, 4.0]),
                     'bias': jnp.array([4.0, 3.0, 2.0, 1.0])}}
  with jax.numpy_rank_promotion('allow'):
    wanted = nn.LayerNorm(epsilon=1e-5).apply({'params': params['norm']}, x)
  np.testing.assert_allclose(jax_nets.apply(
      net(architectures.LayerNorm('norm', 4)), params, x), wanted, atol=1e-5)


def test_recompiling_is_counted():
  state, batch, mask = jnp.zeros(2), jnp.ones([3, 2]), jnp.ones([3], bool)
  step = lambda state, batch, mask: state + jnp.sum(batch, 0)
  once = jax.jit(step)
  assert jax_steps._compiled_again(once, state, batch, mask) == 0
  anew = lambda *arguments: jax.jit(lambda *a: step(*a))(*arguments)
  assert jax_steps._compiled_again(anew, state, batch, mask) == 2


@pytest.mark.slow
def test_a_worker_answers_and_is_given_up():
  spec = program.Spec(suite='sampling', model='noise', size=10**5,
                      method='numpy')
  with clients.Worker(spec, 60.0) as client:
    assert client.info['first_step_seconds'] > 0
    sample = client.sample(0.01)
    assert sample.steps >= 1 and 0 < sample.wall < 1
    assert client.sample(0.0).steps == 1
    client._timeout = 0.1
    with pytest.raises(clients.WorkerFailed, match='over 0.1 s') as caught:
      client.sample(30.0)
    assert caught.value.timed_out


@pytest.mark.slow
def test_a_worker_that_dies_says_why():
  spec = program.Spec(suite='step', model='tiny_stack', size=2, method='lip')
  with pytest.raises(clients.WorkerFailed,
                     match='Embedding has no certified form') as caught:
    clients.Worker(spec, 60.0)
  assert not caught.value.timed_out


@pytest.mark.parametrize('model', methods.ESTIMATED)
def test_estimators_can_be_repeated_by_all(model):
  """Every estimator runs repeatedly and gives plausible values.

  For means the median of 50 values lies near the truth.
  """
  size, records = 40, np.random.default_rng(0).random(40, np.float32)
  shapes = jax.eval_shape(
      jax.vmap(estimators._OURS[model](size)),
      jax.random.split(jax.random.key(0), 3), jnp.ones((3, size)))
  assert all(leaf.shape[0] == 3 for leaf in jax.tree.leaves(shapes))
  once = estimators._numpy(model, size)
  values = np.array([np.ravel(once(records))[0] for _ in range(50)])
  assert np.all(np.isfinite(values))
  if model in ('proportion', 'mean', 'support', 'private_size_mean'):
    assert np.median(values) == pytest.approx(records.mean(), abs=0.1)
