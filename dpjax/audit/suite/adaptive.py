"""Methods with private radii, and canaries that attain their bounds (LDP-06).

The canary's gradient is longer than any clip norm, or its activation is outside
any ball. All other records contribute zero, and the learning rate is zero. Each
step then releases a known multiple of the radius in a known direction, and the
indicator -1/2, both with noise. Together they are one Gaussian whose noise
multiplier is nearly the planned one, so the audit is tight.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpjax import tree
from dpjax.audit import canary as canaries
from dpjax.audit import empirical
from dpjax.audit import whitebox
from dpjax.grads import bounder as bounders
from dpjax.grads import per_example
from dpjax.grads import quantiles
from dpjax.lipschitz import losses
from dpjax.models import mlp
from dpjax.models.model import Model
from dpjax.privacy import blocks
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.train import loop
from dpjax.train import methods
from dpjax.train.plan import TrainingPlan
from dpjax.typing import Array, Batch, Params, PRNGKey, PyTree

NUM_RECORDS, STEPS, RUNS, SIGMA, SIGMA_B = 40, 10, 2000, 1.2, 0.8
LEARNING_RATE = 0.2
SETTINGS = dict(target_quantile=0.5, learning_rate=LEARNING_RATE,
                noise_stddev=SIGMA_B)
# So slow that ball radii stay below 1, the norm of the canary's activation.
_BALL_LEARNING_RATE = 0.02
PLAN = TrainingPlan(
    sampler=PoissonSampler(num_examples=NUM_RECORDS, batch_size=10),
    num_steps=STEPS, noise_multiplier=SIGMA,
    adjacency=Adjacency.ADD_OR_REMOVE_ONE)


def linear() -> tuple[Model, Params]:
  """Returns a linear model that starts at zero, and its parameters."""
  params = {'dense_00': {'kernel': jnp.zeros([2, 2]), 'bias': jnp.zeros([2])}}
  return mlp.mlp(num_features=2, num_classes=2, depth=0)._replace(
      init=lambda key: params), params


def clipped(indicators: Callable[..., Any] = quantiles.centred_indicators
            ) -> bounders.Method:
  """Returns adaptive clipping for `linear`, with replaceable indicators.

  Args:
    indicators: function (gradient norms, radii, mask) -> indicators; tests pass
      faulty ones.
  """
  model, _ = linear()
  adaptive = quantiles.geometric(0.1, span=4.0, **SETTINGS)
  bounder = per_example.adaptively_clipped(
      model.apply, losses.cross_entropy().values, adaptive=adaptive)

  def sums(params: Params, batch: Batch, mask: Array,
           radii: PyTree) -> bounders.BoundedSums:
    sums_and_indicators = bounder.sums(params, batch, mask, radii)
    grads = per_example.per_example_gradients(
        model.apply, losses.cross_entropy().values, params, batch)[1]
    norms = jnp.sqrt(jax.vmap(tree.squared_norm)(grads))
    return sums_and_indicators._replace(indicators=indicators(
        norms, radii, mask & jnp.isfinite(norms)))

  return bounders.Method('adaptive', bounder._replace(sums=sums),
                         bounders.no_constraint(), private=True)


def canary() -> Batch:
  """Returns the canary: a batch of one record of norm 5, labelled 0."""
  return Batch(jnp.asarray([[4.0, -3.0]]), jnp.zeros([1], jnp.int32))


def run(key: PRNGKey, model: Model, method: bounders.Method
        ) -> tuple[Any, ...]:
  """Trains 2 RUNS runs; the first RUNS of them contain the canary.

  Returns:
    Noisy gradient sums, a tree [2 RUNS, STEPS, ...]; radii before each step and
    noisy indicator sums, both [2 RUNS, STEPS]; and the loop's info.
  """
  result = loop.fit(
      jax.random.split(key, 2 * RUNS),
      plans=[PLAN] * 2 * RUNS, model=model, method=method,
      records=canaries.neighbouring_records(canary(), NUM_RECORDS),
      rows=canaries.neighbouring_rows(NUM_RECORDS, RUNS),
      optimizer=optax.chain(whitebox.recorder(lambda u: u, STEPS),
                            optax.sgd(0.0)))
  size = PLAN.sampler.expected_batch_size
  radii, = map(_float64, jax.tree.leaves(result.info.radii))
  last, = map(_float64, jax.tree.leaves(result.state.radii))
  # The radii are public, and their changes determine the noisy indicator sums:
  # at target quantile 1/2 the step of ln(radius) is minus rate times mean.
  log_changes = np.diff(np.log(np.concatenate([radii.T, last[:, None]], 1)),
                        axis=1)
  return (tree.scale(size, result.state.optimizer[1][0].history), radii.T,
          -log_changes / LEARNING_RATE * size, result.info)


def _float64(leaf: Array) -> np.ndarray:
  """Returns a JAX array as a NumPy array of float64."""
  return np.asarray(leaf, np.float64)


def statistics(key: PRNGKey, method: bounders.Method) -> np.ndarray:
  """Returns `filtered` statistics [2 RUNS, STEPS] of gradient and indicator."""
  model, params = linear()
  sums, radii, counts, _ = run(key, model, method)
  # The canary is longer than these radii, and no radius reached its span's end.
  _check_radii(radii, 0.026, 0.39)
  # Clipped to radius 1, the contribution is the canary's unit direction.
  (total, _), _ = whitebox.contribution(method, params, (), canary(),
                                        jnp.float32(1.0))
  along = sum(
      np.tensordot(_float64(leaf).reshape(2 * RUNS, STEPS, -1),
                   _float64(direction).ravel(), 1)
      for leaf, direction in zip(jax.tree.leaves(sums), jax.tree.leaves(total),
                         strict=True)) / radii
  return filtered(along, counts)[0]


def clipped_losses(key: PRNGKey, method: bounders.Method) -> np.ndarray:
  """Returns privacy losses [2 RUNS]; runs with the canary come first."""
  return whitebox.privacy_losses(
      statistics(key, method), sampling_prob=PLAN.poisson.sampling_prob,
      noise_multiplier=SIGMA)


def _check_radii(radii: np.ndarray, low: float, high: float) -> None:
  """Raises ValueError unless radii stay where the privacy losses are valid."""
  if not (low < radii.min() and radii.max() < high):
    raise ValueError(f'radii must stay in ({low}, {high}), got {radii.min()} '
                     f'to {radii.max()}')


def filtered(along: np.ndarray, counts: np.ndarray
             ) -> tuple[np.ndarray, float]:
  """Combines gradient and indicator sums into the best linear statistic.

  Args:
    along: gradient sums along the canary's direction, in units of the radius.
    counts: noisy indicator sums; the canary adds -1/2.

  Returns:
    The statistic, and its signal-to-noise ratio.
  """
  # sigma^-2 of gradient and indicator add up to SIGMA^-2; this is the noise
  # multiplier of the gradient alone.
  multiplier = (SIGMA**-2 - (2 * SIGMA_B)**-2)**-0.5
  energy = multiplier**-2 + (0.5 / SIGMA_B)**2
  return ((along / multiplier**2 - 0.5 * counts / SIGMA_B**2) / energy,
          energy**0.5)


def balls() -> Model:
  """Returns a model in which the canary's activation lies outside the ball.

  The cotangent is orthogonal to the activation, so the canary nearly attains
  the bound of the first layer through the ball, and attains that of the second.
  """
  model = mlp.mlp(num_features=2, num_classes=2, depth=1, width=2,
                  activation='relu', input_radius=5.0, hidden_radius=0.9,
                  adaptive=True)
  # [4, -3] becomes [1, 0], in the kernel of the second layer.
  params = {
      'dense_00': {'kernel': jnp.asarray([[0.16, 0.0], [-0.12, 0.0]]),
                   # Above 0, so that the second unit has a gradient.
                   'bias': jnp.asarray([0.0, 1e-6])},
      'dense_01': {'kernel': jnp.asarray([[0.0, 0.0], [-2.0, 2.0]]),
                   'bias': jnp.zeros([2])},
  }
  return model._replace(init=lambda key: params)


def lip_adaptive(model: Model) -> bounders.Method:
  """Returns the method whose Lipschitz bounds come from adaptive balls."""
  return methods.lip_adaptive(
      model, losses.cross_entropy(logit_clip=0.35), weight_norm=3.0,
      noise_stddev=SIGMA_B, target_quantile=0.5,
      learning_rate=_BALL_LEARNING_RATE)


def ball_losses(key: PRNGKey, model: Model,
                method: bounders.Method) -> np.ndarray:
  """Returns exact privacy losses [2 RUNS] of runs with adaptive balls."""
  sums, radii, rescaled, info = run(key, model, method)
  # `run` divides by another learning rate than that of `lip_adaptive`.
  counts = rescaled * LEARNING_RATE / _BALL_LEARNING_RATE
  _check_radii(radii, 0.7, 0.99)  # The canary is at 1.
  params, certificate = method.constraint.constrain(model.init(
      jax.random.key(0)))

  def at(radius: Array) -> tuple[PyTree, PyTree]:
    return whitebox.contribution(method, params, certificate, canary(),
                                 {'ball_01': radius})

  (total, shifts), ratios = jax.jit(jax.vmap(jax.vmap(at)))(
      np.float32(radii))
  if not all(jnp.all(leaf <= 1 + 1e-5) for leaf in jax.tree.leaves(ratios)):
    raise ValueError('the contribution of the canary exceeds its claimed bound')
  # Only the structure of this tree is used: it cuts sums into blocks.
  sensitivity = jax.tree.map(lambda _: 0, certificate)
  multiplier = quantiles.gradient_noise_multiplier(SIGMA, _adaptive(method))
  stddevs = jax.vmap(jax.vmap(lambda bounds: blocks.allocate(
      bounds, noise_multiplier=multiplier,
      sizes=tree.block_sizes(sensitivity, params))))(info.l2_sensitivity)
  log_ratios = np.zeros([2 * RUNS, STEPS])
  for number, (noisy, mean) in enumerate(zip(
      tree.blocks(sensitivity, sums), tree.blocks(sensitivity, total),
      strict=True)):
    stddev = _float64(stddevs[..., number]).T
    for y, c in zip(jax.tree.leaves(noisy), jax.tree.leaves(mean),
                    strict=True):
      y, c = (_float64(leaf).reshape(2 * RUNS, STEPS, -1) for leaf in (y, c))
      log_ratios += np.sum(y * c - c * c / 2, -1) / stddev**2
  shift, = map(_float64, jax.tree.leaves(shifts))
  log_ratios += (counts * shift - shift**2 / 2) / SIGMA_B**2
  return np.sum(empirical.subsampled_log_ratio(
      log_ratios, sampling_prob=PLAN.poisson.sampling_prob), -1)


def _adaptive(method: bounders.Method) -> quantiles.Adaptive:
  """Returns the settings of a method's private radii; raises without any."""
  if method.bounder.adaptive is None:
    raise ValueError(f'{method.name} has no private radii')
  return method.bounder.adaptive


def _linear_losses(key: PRNGKey) -> tuple[np.ndarray, np.ndarray]:
  """Returns losses [RUNS] of adaptive clipping, with and without the canary."""
  losses_of_runs = clipped_losses(key, clipped())
  return losses_of_runs[:RUNS], losses_of_runs[RUNS:]


def _ball_losses(key: PRNGKey) -> tuple[np.ndarray, np.ndarray]:
  """Returns losses [RUNS] of adaptive balls, with and without the canary."""
  model = balls()
  losses_of_runs = ball_losses(key, model, lip_adaptive(model))
  return losses_of_runs[:RUNS], losses_of_runs[RUNS:]


def game(name: str) -> canaries.LossGame:
  """Returns the loss game of a method with private radii."""
  return canaries.LossGame(name=name, plan=PLAN, losses={
      'dp_sgd_adaptive': _linear_losses, 'lip_adaptive': _ball_losses}[name])
