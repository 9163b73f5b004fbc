"""Training methods under audit, each with a canary that attains its bounds.

The networks are tiny. Their parameters, records and clip norms are chosen so
that one record attains the claimed sensitivity of every block, or nearly, which
makes the audit tight. See `dpjax.audit.canary`.
"""

import math

import jax
import jax.numpy as jnp

from dpjax.audit.canary import Game
from dpjax.grads.bounder import Method
from dpjax.lipschitz import layers
from dpjax.lipschitz import losses
from dpjax.lipschitz import normalisation
from dpjax.lipschitz import pointwise
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network
from dpjax.models import mlp
from dpjax.models import model as models
from dpjax.models.model import Model
from dpjax.papers.bassily import bassily
from dpjax.privacy.adjacency import Adjacency
from dpjax.runs import training_methods
from dpjax.sampling import PoissonSampler
from dpjax.train import methods
from dpjax.train.plan import TrainingPlan
from dpjax.typing import Array, Batch

NUM_RECORDS, STEPS, RUNS, SIGMA = 40, 10, 2000, 1.2
_CLIP, INPUT_RADIUS, _WEIGHT_NORM, _LOGIT_CLIP = 0.7, 2.0, 3.0, 0.35
_LAYER_CLIP, _BIAS_NORM, _ALPHA = 0.4, 0.5, 0.3
_LOSS = losses.cross_entropy(logit_clip=_LOGIT_CLIP)
# Clipping methods of fixed norms: one canary attains the bound of all.
CLIPPING = tuple(name for name in training_methods.having('clips')
                 if name != 'dp_sgd_adaptive')
K_NORMS = {'lip_k_norm_1': 1, 'lip_k_norm_inf': math.inf}
METHODS = (*CLIPPING, 'lip_dp_sgd', 'fix_lip_dp_sgd', 'lip_normalised',
           'lip_propagated', 'lip_norm', 'bassily', *K_NORMS)
"""Private methods of `dpjax.runs.options` whose radii are all fixed."""


def plan(name: str) -> TrainingPlan:
  """Returns the training plan of every run of a method."""
  return TrainingPlan(
      sampler=PoissonSampler(num_examples=NUM_RECORDS, batch_size=10),
      num_steps=STEPS, noise_multiplier=SIGMA,
      noise_order=K_NORMS.get(name), adjacency=Adjacency.ADD_OR_REMOVE_ONE)


def _started(model: Model, **kernels: Array) -> Model:
  """Returns the model with these initial kernels, and zero biases."""
  params = {name: {'kernel': kernel, 'bias': jnp.zeros(kernel.shape[-1])}
            for name, kernel in kernels.items()}
  return model._replace(init=lambda key: params)


def _network(certified: bool) -> Model:
  """Returns a network whose bounds the canary attains.

  The input weights are orthogonal to the canary, the output weights parallel to
  its cotangent. So the canary attains the bound of the first layer, and that of
  the second up to the small hidden radius: the audit of the joint release is
  tight. Under a weight rule it attains both.
  """
  input_radius, hidden_radius = (
      (INPUT_RADIUS, 0.05) if certified else (None, None))
  model = mlp.mlp(num_features=2, num_classes=2, depth=1, width=1,
                  input_radius=input_radius, hidden_radius=hidden_radius)
  return _started(model, dense_00=jnp.asarray([[0.0], [1e-3]]),
                  dense_01=jnp.asarray([[2.0, -2.0]]))


def _propagating() -> Model:
  """Returns a network with weights and biases at their bounds.

  All of them point along the canary.
  """
  model = mlp.mlp(num_features=2, num_classes=2, depth=1, width=1,
                  activation='relu', input_radius=INPUT_RADIUS,
                  bias_norm=_BIAS_NORM)
  half = 0.5**0.5
  kernels = dict(dense_00=jnp.asarray([[_WEIGHT_NORM], [0.0]]),
                 dense_01=_WEIGHT_NORM * half * jnp.asarray([[-1.0, 1.0]]))
  params = _started(model, **kernels).init(jax.random.key(0))
  params['dense_00']['bias'] += _BIAS_NORM
  return model._replace(init=lambda key: params)


def _normalising() -> Model:
  """Returns a network that normalises between two layers.

  Its activations lie where the two branches of the normalisation meet.
  """
  nodes = (layers.Conv(name='conv_00', channels=2, kernel_size=(1, 1)),
           normalisation.lipschitz(num_groups=1, alpha=_ALPHA),
           pointwise.flatten(), layers.Dense(name='dense_01', width=2))
  model = models.from_network(Network(
      root=Chain(name='net', nodes=nodes), input_shape=(1, 1, 2),
      input_radius=INPUT_RADIUS))
  half_gap = 0.999 * _ALPHA / INPUT_RADIUS
  return _started(
      model, conv_00=half_gap * jnp.asarray([[[[1.0, -1.0], [0.0, 0.0]]]]),
      dense_01=_WEIGHT_NORM / 2 * jnp.asarray([[-1.0, 1.0], [1.0, -1.0]]))


def _convex() -> Model:
  """Returns a linear model that starts at zero, for convex methods."""
  return _started(mlp.mlp(num_features=2, num_classes=2, depth=0,
                          input_radius=INPUT_RADIUS),
                  dense_00=jnp.zeros([2, 2]))


def canary(name: str) -> Batch:
  """Returns a record on the boundary of the input ball.

  In the l1 K-norm its coordinates are equal; otherwise it lies on an axis.
  """
  direction = [0.5**0.5, 0.5**0.5] if name == 'lip_k_norm_1' else [1.0, 0.0]
  shape = (1, 1, 1, 2) if name == 'lip_norm' else (1, 2)
  return Batch(INPUT_RADIUS * jnp.asarray(direction).reshape(shape),
               jnp.zeros([1], jnp.int32))


def _clipping(name: str) -> tuple[Model, Method]:
  """Returns a network and a method that clips its gradients."""
  model, loss = _network(certified=False), losses.cross_entropy()
  maker = training_methods.METHODS[name].make
  clip_norm = _LAYER_CLIP if name == 'layer_clipped' else _CLIP
  return model, maker(model, loss, clip_norm=clip_norm)


def make(name: str) -> tuple[Model, Method]:
  """Builds (model, method) at each call, so that tests can plant faults."""
  if name in CLIPPING:
    return _clipping(name)
  if name == 'bassily':
    model = _convex()
    return model, bassily(model, _LOSS, radius=_WEIGHT_NORM)
  if name in K_NORMS:
    model = _network(certified=True)
    return model, methods.lip_k_norm(model, _LOSS, weight_norm=_WEIGHT_NORM,
                                     order=K_NORMS[name])
  if name == 'lip_normalised':
    model = _network(certified=False)
    return model, methods.lip_normalised(model, _LOSS,
                                         weight_norm=_WEIGHT_NORM)
  model = {'lip_propagated': _propagating, 'lip_norm': _normalising}.get(
      name, lambda: _network(certified=True))()
  maker = (methods.fix_lip_dp_sgd if name == 'fix_lip_dp_sgd'
           else methods.lip_dp_sgd)
  return model, maker(model, _LOSS, weight_norm=_WEIGHT_NORM)


def game(name: str, *, num_runs: int = RUNS) -> Game:
  """Returns the game of a method and the canary that attains its bounds."""
  model, method = make(name)
  return Game(model=model, method=method, plan=plan(name),
              canary=canary(name), num_runs=num_runs)
