"""These tests check the other losses, conventions and clipping at the logits.

They cover LOSS-01 to LOSS-05, E15 and the losses' rows of LIP-01.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.grads.bounder import Method
from dpjax.lipschitz import bounder as lipschitz_bounder
from dpjax.lipschitz import layers
from dpjax.lipschitz import losses
from dpjax.lipschitz import projection
from dpjax.lipschitz import rules
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network
from dpjax.models import model as models
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.train import loop
from dpjax.train import methods
from dpjax.train.plan import TrainingPlan
from dpjax.typing import Batch


def _gradients(loss, logits, labels):
  total = lambda z: jnp.sum(loss.values(z, labels))
  return np.float64(jax.jit(jax.grad(total))(logits))


def _logits(num_classes, *, count=4000, seed=0, scales=(1e-3, 1, 100, 1e4)):
  rng = np.random.default_rng(seed)
  z = rng.normal(size=(count, num_classes))
  z *= np.repeat(scales, count // len(scales))[:, None]
  return jnp.asarray(z, jnp.float32), jnp.asarray(
    rng.integers(0, num_classes, count), jnp.int32)


def _ascend(loss, z, y, num_steps=40):
  """Returns logits after gradient ascent on the norms of their gradients."""
  def size(z, y):
    gradient = jax.grad(lambda z: loss.values(z[None], y[None])[0])(z)
    return jnp.sqrt(jnp.sum(jnp.square(gradient)) + 1e-20)

  def turn(z, _):
    slope = jax.vmap(jax.grad(size))(z, y)
    slope = jnp.where(jnp.isfinite(slope), slope, 0.0)
    length = jnp.linalg.norm(slope, axis=1, keepdims=True) + 1e-12
    return z + 0.1 * slope / length, None

  return jax.jit(lambda z: jax.lax.scan(turn, z, length=num_steps)[0])(z)


LOSSES = {
  'inside': (losses.cross_entropy(temperature=0.5), 5),
  'outside': (losses.cross_entropy(temperature=0.5, convention='outside'), 5),
  'clipped': (losses.cross_entropy(logit_clip=0.4), 5),
  'clipped outside': (losses.cross_entropy(logit_clip=0.4,
                                           convention='outside'), 5),
  'cosine': (losses.cosine(floor=0.3), 5),
  'hinge 2': (losses.hinge(num_classes=2), 2),
  'hinge 5': (losses.hinge(num_classes=5, margin=2.0), 5),
  'clipped squared': (losses.clip_cotangents(losses.squared_error(), 0.7), 5),
  'clipped hinge': (losses.clip_cotangents(losses.hinge(num_classes=5), 9.0),
                    5),
}


@pytest.mark.every(4)
@pytest.mark.parametrize('name', LOSSES)
def test_constants_by_search(name):
  """No cotangent exceeds the loss's l2
  constant, and some attain it (LIP-01)."""
  loss, num_classes = LOSSES[name]
  z, y = _logits(num_classes)
  climbed = _ascend(loss, z[::10], y[::10])
  norms = np.linalg.norm(np.concatenate([
    _gradients(loss, z, y), _gradients(loss, climbed, y[::10])]), axis=1)
  assert norms.max() <= loss.lipschitz * (1 + 1e-6)
  assert norms.max() >= loss.lipschitz * (1 - 1e-3)


@pytest.mark.every(2)
@pytest.mark.parametrize('temperature, expected', [
  (0.5, (4, 2.828, 2)), (1.0, (2, 1.4142, 1)), (4.0, (0.5, 0.35355, 0.25))])
@pytest.mark.parametrize('convention', losses.CONVENTIONS)
def test_dual_norms_of_the_cross_entropy(temperature, expected, convention):
  """Cross-entropy gradients have the known l1,
  l2 and l_infinity norms (LOSS-02)."""
  loss = losses.cross_entropy(temperature=temperature, convention=convention)
  z, y = _logits(10, scales=(100, 100, 1000, 1000))
  gradients = _gradients(loss, z, y)
  norms = [np.linalg.norm(gradients, order, axis=1).max()
           for order in (1, 2, np.inf)]
  np.testing.assert_allclose(norms, expected, rtol=1e-3)
  assert norms[1] <= loss.lipschitz * (1 + 1e-6)


@pytest.mark.every(2)
def test_conventions_are_two_losses():
  """Convention A divides the loss, B the
  logits; at tau = 1 they agree (LOSS-02)."""
  z, y = _logits(4, scales=(1, 1, 3, 3))
  plain = optax.softmax_cross_entropy_with_integer_labels
  of = lambda **options: losses.cross_entropy(**options).values(z, y)
  np.testing.assert_allclose(of(temperature=3.0, convention='outside'),
                             plain(z, y) / 3, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(of(temperature=3.0), plain(z / 3, y), rtol=1e-5,
                             atol=1e-6)
  np.testing.assert_allclose(of(), of(convention='outside'), rtol=1e-6)
  # LOSS-05 changes no value in either convention.
  for convention in losses.CONVENTIONS:
    options = dict(temperature=3.0, convention=convention)
    np.testing.assert_allclose(of(**options), of(**options, logit_clip=0.01),
                               rtol=1e-5, atol=2e-6)


_NETWORK = Network(root=Chain(name='n', nodes=(
  layers.Dense(name='dense', width=3),)), input_shape=(4,), input_radius=1.0)


def _trained(temperature, learning_rate, convention):
  """Returns weights after a few noisy steps of SGD with one fixed key."""
  plan = TrainingPlan(
    sampler=PoissonSampler(num_examples=30, batch_size=10), num_steps=12,
    noise_multiplier=1.0, adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  rng = np.random.default_rng(0)
  records = Batch(jnp.asarray(rng.normal(size=(30, 4)), jnp.float32),
                  jnp.asarray(rng.integers(0, 3, 30), jnp.int32))
  model = models.from_network(_NETWORK)
  method = methods.lip_dp_sgd(
    model, losses.cross_entropy(temperature=temperature, convention=convention),
    weight_norm=2.0)
  result = loop.fit(
    jax.random.split(jax.random.key(0), 1), plans=[plan], model=model,
    method=method, records=records,
    rows=jnp.arange(30, dtype=jnp.int32)[None],
    optimizer=optax.sgd(learning_rate))
  return jax.tree.map(np.asarray, result.state.params)


@pytest.mark.slow
def test_temperature_outside_is_no_choice_at_all():
  """An outside temperature is a learning rate in disguise (LOSS-02).

  The pairs (tau, rate) and (2 tau, 2 rate) give the same noisy weights, because
  gradient and noise are both divided by tau. Inside the softmax they are not.
  """
  first, second, other = (_trained(*arguments) for arguments in (
    (1.0, 0.5, 'outside'), (2.0, 1.0, 'outside'), (2.0, 1.0, 'inside')))
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5,
                                                       atol=1e-6),
               first, second)
  assert max(np.max(np.abs(a - b)) for a, b in zip(
    jax.tree.leaves(first), jax.tree.leaves(other))) > 1e-3


def test_squared_error_by_hand():
  """The squared error has no constant, so
  Lipschitz methods refuse it (LOSS-01)."""
  loss = losses.squared_error()
  z = jnp.asarray([[1.0, 2.0], [3.0, -1.0]])
  np.testing.assert_allclose(loss.values(z, jnp.asarray([0, 1])), [4.0, 13.0])
  assert loss.lipschitz == math.inf
  model = models.from_network(_NETWORK)
  for make in (methods.lip_dp_sgd, methods.fix_lip_dp_sgd,
               methods.lip_normalised):
    with pytest.raises(ValueError, match='no Lipschitz constant'):
      make(model, loss, weight_norm=1.0)
  assert isinstance(methods.layer_clipped(model, loss, clip_norm=1.0), Method)
  # Clipping at the logits makes the loss admissible.
  assert isinstance(methods.lip_dp_sgd(
    model, losses.clip_cotangents(loss, 0.5), weight_norm=1.0), Method)


@pytest.mark.every(2)
@pytest.mark.parametrize('floor', [0.05, 1.0, 20.0])
def test_cosine(floor):
  """The cosine loss has gradient norm sin(angle) / ||z|| (LOSS-03, E15).

  Below the floor the norm is 1 / floor.
  """
  loss = losses.cosine(floor=floor)
  z, y = _logits(4, scales=(1e-2, 0.5, 5, 100))
  z, y = z.at[0].set(0.0), y.at[0].set(0)
  norms = np.linalg.norm(np.float64(z), axis=1)
  own = np.float64(z)[np.arange(len(z)), y]
  np.testing.assert_allclose(loss.values(z, y),
                             1 - own / np.maximum(norms, floor), rtol=1e-4,
                             atol=1e-5)
  lengths = np.linalg.norm(_gradients(loss, z, y), axis=1)
  above = norms > floor * 1.001
  sine = np.sqrt(np.maximum(1 - (own / np.maximum(norms, 1e-30))**2, 0))
  np.testing.assert_allclose(lengths[above], (sine / np.maximum(norms, 1e-30))[
    above], rtol=2e-3, atol=1e-5 / floor)
  np.testing.assert_allclose(lengths[norms < floor], 1 / floor, rtol=1e-5)
  assert lengths.max() <= loss.lipschitz * (1 + 1e-6)
  # The printed constant, one over the data's least norm, is infinite here.
  assert norms.min() == 0


@pytest.mark.every(3)
@pytest.mark.parametrize('num_classes, in_l2, in_l1', [
  (2, 0.7071, 1.0), (3, 0.8165, 1.3333), (10, 0.9487, 1.8),
  (100, 0.9950, 1.98)])
def test_hinge(num_classes, in_l2, in_l1):
  """The hinge has l2 constant below 1 and l1 up
  to 2 (c - 1) / c (LOSS-04, E15)."""
  loss = losses.hinge(num_classes=num_classes)
  assert loss.lipschitz == pytest.approx(in_l2, abs=5e-5)
  z, y = _logits(num_classes, count=400, scales=(1e-3, 1, 100, 1e4))
  z = z.at[0].set(0.0)
  gradients = _gradients(loss, z, y)
  norms = np.linalg.norm(gradients, axis=1)
  assert norms.max() == pytest.approx(in_l2, abs=5e-5)
  assert norms.max() <= loss.lipschitz * (1 + 1e-6)
  l1 = np.abs(gradients).sum(1).max()
  assert l1 == pytest.approx(in_l1, abs=5e-5)
  assert (l1 > 1 + 1e-6) == (num_classes > 2)
  # With a active terms the norm is sqrt(a + a^2) / c.
  active = np.sum(gradients > 0, 1)
  np.testing.assert_allclose(norms, np.sqrt(active + active**2) / num_classes,
                             rtol=1e-5, atol=1e-7)


def test_canonical_vectors():
  """Zero logits of ten classes give the canonical hinge norms (LOSS-04).

  They are those of section 13.6 at margin 1.
  """
  gradient = _gradients(losses.hinge(num_classes=10), jnp.zeros([1, 10]),
                        jnp.zeros([1], jnp.int32))[0]
  assert [np.linalg.norm(gradient, order) for order in (2, 1, np.inf)] == (
    pytest.approx([0.948683, 1.8, 0.9], abs=1e-6))


def test_the_margin_of_the_hinge_is_one_unless_it_is_given():
  loss = losses.hinge(num_classes=3)
  np.testing.assert_allclose(
      loss.values(jnp.array([[0., 0, 0], [1, 0, 0], [.25, 0, 0]]),
                  jnp.zeros(3, jnp.int32)), [2 / 3, 0, .5], rtol=1e-6)


def test_hinge_values_by_hand():
  loss = losses.hinge(num_classes=3, margin=2.0)
  z = jnp.asarray([[1.0, 0.5, -3.0], [0.0, 5.0, 0.0]])
  np.testing.assert_allclose(loss.values(z, jnp.asarray([0, 0])),
                             [1.5 / 3, (7.0 + 2.0) / 3], rtol=1e-6)


@pytest.mark.parametrize('logits', [2, 10])
def test_hinge_of_other_classes_is_refused(logits):
  """The hinge refuses other numbers of classes, whose constant would differ."""
  loss = losses.hinge(num_classes=3)
  with pytest.raises(ValueError, match='3 classes got'):
    loss.values(jnp.zeros([1, logits]), jnp.zeros([1], jnp.int32))


@pytest.mark.every(3)
@pytest.mark.parametrize('name', ['inside', 'cosine', 'hinge 5',
                                  'clipped squared', 'clipped outside'])
def test_labels_out_of_range_stay_bounded(name):
  loss, num_classes = LOSSES[name]
  z, _ = _logits(num_classes, count=400)
  for label in (-1, -7, num_classes, 99):
    norms = np.linalg.norm(_gradients(
      loss, z, jnp.full([400], label, jnp.int32)), axis=1)
    assert norms.max() <= loss.lipschitz * (1 + 1e-6)


@pytest.mark.every(3)
@pytest.mark.parametrize('name', ['clipped', 'clipped outside',
                                  'clipped squared'])
def test_clipping_reads_one_record(name):
  """Clipping reads one record: a bad record changes no other (LOSS-05)."""
  loss, num_classes = LOSSES[name]
  z, y = _logits(num_classes, count=8, scales=(1, 100))
  first = _gradients(loss, z, y)
  for bad in (jnp.nan, jnp.inf, 1e30):
    gradients = _gradients(loss, z.at[3].set(bad), y)
    np.testing.assert_array_equal(np.delete(gradients, 3, 0),
                                  np.delete(first, 3, 0))


def test_clipping_is_idle_above_the_constant():
  """Clipping above sqrt(2) / tau changes no gradient (LOSS-05)."""
  z, y = _logits(5)
  for convention in losses.CONVENTIONS:
    options = dict(temperature=0.7, convention=convention)
    plain = losses.cross_entropy(**options)
    clipped = losses.cross_entropy(**options, logit_clip=math.sqrt(2) / 0.69)
    assert clipped.lipschitz == plain.lipschitz
    np.testing.assert_allclose(_gradients(clipped, z, y),
                               _gradients(plain, z, y), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize('make, message', [
  (lambda: losses.cross_entropy(convention='other'), 'convention must be one'),
  (lambda: losses.cosine(floor=0.0), 'floor must be a positive'),
  (lambda: losses.hinge(num_classes=1), 'num_classes must be an integer'),
  (lambda: losses.hinge(num_classes=3, margin=-1.0), 'margin must be'),
  (lambda: losses.clip_cotangents(losses.squared_error(), math.nan),
   'logit_clip must be')])
def test_refused(make, message):
  with pytest.raises(ValueError, match=message):
    make()


@pytest.mark.every(6)
@pytest.mark.parametrize('name', LOSSES)
def test_whole_gradients_keep_the_constant(name):
  """With a layer below, gradients keep LIP-03's
  bound for every loss and rule."""
  loss, num_classes = LOSSES[name]
  network = Network(root=Chain(name='n', nodes=(
    layers.Dense(name='dense', width=num_classes),)), input_shape=(2,),
    input_radius=2.0)
  rng = np.random.default_rng(0)
  params, certificate = projection.clip_weights(
    network, weight_norm=5.0).constrain(jax.tree.map(
      lambda leaf: jnp.asarray(3 * rng.normal(size=leaf.shape), jnp.float32),
      network.init(jax.random.key(0))))
  x = jnp.asarray(rng.normal(size=(64, 2)) * 10, jnp.float32)
  y = jnp.asarray(rng.integers(0, num_classes, 64), jnp.int32)
  for rule in (None, rules.normalised()):
    bounder = lipschitz_bounder.certified(network, loss, weight_norm=5.0,
                                          rule=rule)
    limit = float(bounder.l2_sensitivity(certificate)['dense'])
    one = functools.partial(_one, bounder, params)
    norm = np.max(jax.jit(jax.vmap(one))(x, y))
    least = 0.02 if name == 'cosine' else 0.3
    assert least * limit <= norm <= limit * (1 + 1e-5)


def _one(bounder, params, x, y):
  total = bounder.sums(params, Batch(x[None], y[None]),
                       jnp.ones([1], jnp.bool_)).total
  return jnp.sqrt(sum(jnp.sum(jnp.square(leaf))
                      for leaf in jax.tree.leaves(total)))
