"""Tests of Adam with a second moment that is freed of the noise."""

import importlib
import pkgutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax import privacy
from dpjax import sampling
from dpjax.lipschitz import losses as lipschitz_losses
from dpjax.models import mlp
from dpjax.privacy import correlated
from dpjax.privacy.strategies import Strategy
from dpjax.sampling import CyclicSampler
from dpjax.sampling import PoissonSampler
from dpjax.sampling import Sampler
from dpjax.train import adam
from dpjax.train import averaging
from dpjax.train import citing
from dpjax.train import methods
from dpjax.train import step as steps
from dpjax.train.private import make_private


def _updates(transform, gradients):
  state, updates = transform.init(gradients[0]), []
  for gradient in gradients:
    each, state = transform.update(gradient, state)
    updates.append(np.asarray(each))
  return np.array(updates)


def test_updates_have_their_closed_form():
  gradients = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
  ours = _updates(adam.scale_by_noise_corrected_adam(
      noise_stddev=0.4, b1=0.8, b2=0.9, floor=1e-3), jnp.asarray(gradients))
  for t in range(1, 6):
    past = gradients[:t].astype(np.float64)
    mean = lambda b, values, t=t: np.average(
        values, axis=0, weights=b**np.arange(t)[::-1])
    expected = mean(0.8, past) / np.sqrt(np.maximum(
        mean(0.9, past**2) - 0.16, 1e-3))
    np.testing.assert_allclose(ours[t - 1], expected, rtol=1e-4)


def test_without_noise_it_is_adam():
  gradients = jnp.asarray(np.random.default_rng(1).normal(size=(4, 3)),
                          jnp.float32)
  with jax.numpy_dtype_promotion('standard'):
    expected = _updates(optax.scale_by_adam(eps=0), gradients)
  np.testing.assert_allclose(
      _updates(adam.scale_by_noise_corrected_adam(noise_stddev=0.0), gradients),
      expected, rtol=1e-5)


def test_the_second_moment_has_no_bias():
  """Noise of variance s^2 on a gradient g gives g^2, and g^2 + s^2 in Adam."""
  signal, stddev = 0.5, 1.0
  draws = signal + stddev * np.random.default_rng(2).normal(size=(4000, 8))
  transform = adam.scale_by_noise_corrected_adam(
      noise_stddev=stddev, b2=1 - 1e-6)
  state = transform.init(jnp.zeros(8))
  state = jax.lax.scan(lambda state, g: (transform.update(g, state)[1], None),
                       state, jnp.asarray(draws, jnp.float32))[0]
  second = np.asarray(state.second) / (1 - (1 - 1e-6)**4000)
  # The mean of 32,000 squares has a standard deviation of 0.01.
  assert abs(second.mean() - signal**2 - stddev**2) < 0.05
  scaled, _ = transform.update(jnp.full(8, signal), state)
  assert abs(float(jnp.mean(jnp.square(scaled))) - 1) < 1


@pytest.mark.parametrize('changed, problem', [
    (dict(noise_stddev=-1.0), 'noise_stddev'), (dict(b1=1.0), 'b1 must lie'),
    (dict(b2=-0.1), 'b2 must lie'), (dict(floor=0.0), 'floor')])
def test_refusals(changed, problem):
  with pytest.raises(ValueError, match=problem):
    adam.noise_corrected(0.1, **{'noise_stddev': 1.0} | changed)


def _private(**changed):
  given = dict(num_examples=10, batch_size=5, noise_multiplier=2.0,
               clip_norm=3.0)
  optimizer = changed.pop('optimizer', optax.sgd(0.1))
  return make_private(lambda params, x: x @ params, optimizer,
                      **given | changed)


def _told():
  """Returns an optimiser whose state is what it was told of the noise."""

  def update(updates, state, params=None, **told):
    return updates, told

  return optax.GradientTransformationExtraArgs(lambda params: {}, update)


_PARAMS = {'large': jnp.zeros(900), 'small': jnp.zeros(100)}


@pytest.mark.parametrize('clip_norm', [
    3.0, {'large': 3.0, 'small': 0.5}, 'adaptive', 'adaptive_layers'])
def test_an_optimizer_is_told_the_noise_of_each_block_and_nothing_else(
    clip_norm):
  private = make_private(
      lambda params, x: x @ params['large'] + x[:100] @ params['small'], _told(),
      num_examples=50, batch_size=25, noise_multiplier=0.5, clip_norm=clip_norm)
  state = private.init(_PARAMS, key=jax.random.key(0))
  # Records of NaN contribute nothing: steps are noise alone.
  after, info = private.step(state, jnp.full([50, 900], jnp.nan))
  told = dict(after.optimizer[1])
  stddevs = told.pop('noise_stddev')
  assert not told  # The sums of indicators are exact, and kept from it.
  if not isinstance(stddevs, dict):
    stddevs = dict.fromkeys(_PARAMS, stddevs)
  for name, stddev in stddevs.items():
    # The deviation of 100 draws is within 35 % but once in 10^6 times.
    assert float(jnp.std(after.params[name])) == pytest.approx(float(stddev),
                                                               rel=0.35)
  if clip_norm == 3.0:
    assert float(stddevs['large']) == pytest.approx(0.5 * 3 / 25, rel=1e-4)
  sensitivities = info.l2_sensitivity
  assert sensitivities.shape == (2 if isinstance(clip_norm, dict) else 1,)


def test_the_correction_takes_the_noise_of_each_block():
  gradient = {'a': jnp.full(2, 5.0), 'b': jnp.full(3, 13.0)}
  transform = adam.scale_by_noise_corrected_adam()
  scaled, state = transform.update(
      gradient, transform.init(gradient),
      noise_stddev={'a': jnp.float32(3), 'b': jnp.float32(5)})
  np.testing.assert_allclose(scaled['a'], 5 / 4, rtol=1e-4)
  np.testing.assert_allclose(scaled['b'], 13 / 12, rtol=1e-4)
  with pytest.raises(ValueError, match='noise of this step is not known'):
    transform.update(gradient, state)


def test_noise_that_is_not_gaussian_is_not_told():
  method = methods.dp_sgd(mlp.mlp(num_features=2, num_classes=2, depth=0),
                          lipschitz_losses.cross_entropy(), clip_norm=1.0)
  transform = steps.make_transform(
      method._replace(noise_order=1), PoissonSampler(num_examples=9,
                                                     batch_size=3),
      adam.noise_corrected(0.1), key=jax.random.key(0), noise_multiplier=1.0,
      allocation='optimal')
  sums = {'w': jnp.ones(3)}
  with pytest.raises(ValueError, match='noise of this step is not known'):
    transform.update(sums, transform.init(sums), sums,
                     l2_sensitivity=jnp.float32(1))


def test_references_are_those_of_what_ran(capsys):
  plain = citing.used(_private())
  assert plain == ['Poisson sampling', 'clipping', 'pld', 'bookkeeping']
  assert citing.used(_private(
      kernel='vmap', clip_norm=3.0, accountant='rdp',
      optimizer=adam.noise_corrected(0.1))) == [
          'Poisson sampling', 'clipping', 'rdp', 'noise-corrected Adam']
  for name in ('adaptive', 'adaptive_layers'):
    assert 'adaptive clipping' in citing.used(_private(
        clip_norm=name, noise_multiplier=0.1))
  assert citing.used(_private(average='ema'))[-1] == 'moving average'
  assert citing.used(_private(average='polyak'))[-1] == 'average of iterates'
  assert citing.used(_private(
      steps=4, noise=correlated.square_root(2), batch_size=5, sampler=
      CyclicSampler(num_examples=10, batch_size=5, num_groups=2)))[:2] == [
          'groups in turns', 'banded noise']
  citing.cite(_private())
  printed = capsys.readouterr().out.splitlines()
  assert len(printed) == 4 and 'Zhang (2016). Deep learning with' in printed[1]
  with pytest.raises(TypeError, match='got a int'):
    citing.cite(3)


def test_every_work_is_cited_by_something():
  named = {name for names in citing._METHODS.values() for name in names}
  drawn = {*citing._SAMPLERS.values(), *citing._STRATEGIES.values()}
  assert named | drawn | {'pld', 'rdp', 'noise-corrected Adam',
                          *citing._AVERAGES.values()} == set(citing._WORKS)
  assert set(citing._AVERAGES) == set(averaging.NAMES)
  # Every sampler, and every strategy, has a name there. Modules are imported
  # when they are asked for.
  for package in (sampling, privacy):
    for module in pkgutil.iter_modules(package.__path__):
      importlib.import_module(f'{package.__name__}.{module.name}')
  for base, names in ((Sampler, citing._SAMPLERS),
                      (Strategy, citing._STRATEGIES)):
    assert set(names) == {each.__name__ for each in _last(base)}


def _last(kind):
  """Returns the classes of a kind that have no kinds of their own."""
  kinds = [each for each in kind.__subclasses__()
           if each.__module__.startswith('dpjax.')]
  return {kind} if not kinds else set().union(*map(_last, kinds))
