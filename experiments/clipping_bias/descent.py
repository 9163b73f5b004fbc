"""Trains on the regression example, to see where each method comes to rest.

Catalogue item BIAS-01; Barczewski (2025, section 5.2.4). The records are an
even grid of x, with the errors in exact proportions, so there is no sampling
error. The distance of a result to a zero of `regression` is due to the grid
(1e-6), float32 and the finite number of steps.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpjax import tree
from dpjax.grads import bounder as bounders
from dpjax.grads import per_example
from dpjax.models.model import Model
from dpjax.privacy.adjacency import Adjacency
from dpjax.train import loop
from dpjax.train import plan as plans
from dpjax.typing import Array, Batch, LossFn, Params, PRNGKey
from experiments.clipping_bias import regression

SLOPE, INTERCEPT = 2.0, -1.0
"""a and b of the records; any others give the same distances."""

_SHARE = 10  # One record with e = 9 and nine with e = -1, for each x.
_LEARNING_RATE = 0.5


def grid_records(num_examples: int) -> Batch:
  """Returns the records of the example, with x [n, 1] at midpoints.

  n must be a multiple of ten.
  """
  count = num_examples // _SHARE
  points = (np.repeat(np.arange(count), _SHARE) + 0.5) / count
  noise = np.tile(np.repeat(*np.array(
      [(error, round(_SHARE * share)) for error, share in regression.ERRORS],
      dtype=np.int64).T), count)
  targets = SLOPE * points + INTERCEPT + noise
  return Batch(jnp.asarray(points[:, None], jnp.float32),
               jnp.asarray(targets, jnp.float32))


def sampled_norm(key: PRNGKey, num_examples: int, *,
                 clip_norm: float) -> tuple[float, float]:
  """Returns the norm of the mean clipped gradient at (a, b), and its error.

  It uses the clipping of training, so it checks the integral independently. The
  standard error is an upper bound: that of contributions of length `clip_norm`
  along one direction.

  """
  inputs, choice = jax.random.split(key)
  x = jax.random.uniform(inputs, (num_examples, 1))
  (rare, share), (common, _) = regression.ERRORS
  noise = jnp.where(jax.random.bernoulli(choice, share, (num_examples,)),
                    rare, common)
  batch = Batch(x, SLOPE * x[:, 0] + INTERCEPT + noise)
  bounder = per_example.clipped(predict, squared_loss, clip_norm=clip_norm)
  optimum = jnp.array([SLOPE, INTERCEPT], jnp.float32)
  total = jax.jit(bounder.sums)(optimum, batch,
                                jnp.ones([num_examples], jnp.bool_))
  norm = float(jnp.linalg.norm(total.total)) / num_examples
  return norm, clip_norm / num_examples**0.5


def predict(params: Params, x: Array) -> Array:
  """Returns predictions theta_1 x + theta_2 for x [b, 1] and theta [2]."""
  return params[0] * x[:, 0] + params[1]


def squared_loss(predictions: Array, targets: Array) -> Array:
  """Returns squared errors (prediction - y)^2, [b]."""
  return jnp.square(predictions - targets)


def normalised(apply: Callable[[Params, Array], Array],
               loss: LossFn) -> bounders.GradientBounder:
  """Divides each gradient by its norm, as Algorithm 7 is listed (E21).

  Guarantee: one record contributes at most 1 in l2. Zero and non-finite
  gradients contribute zero.

  Args:
    apply: (params, x [b, ...]) -> predictions [b].
    loss: (predictions, targets) -> [b].
  """

  def sums(params, batch, mask):
    losses, grads = per_example.per_example_gradients(apply, loss, params,
                                                      batch)
    norms = jnp.sqrt(jax.vmap(tree.squared_norm)(grads))
    finite = jnp.isfinite(norms)
    kept = finite & mask
    weights = jnp.where(norms > 0, 1 / norms, 0.0)
    total = jax.tree.map(
        lambda leaf: jnp.tensordot(
            weights, jnp.where(kept[:, None], leaf, 0.0), 1), grads)
    return bounders.BoundedSums(total, jnp.sum(jnp.where(kept, losses, 0.0)),
                                jnp.sum(mask & ~finite))

  return bounders.GradientBounder(sums, lambda certificate: jnp.float32(1))


def _method(name: str, clip_norm: float) -> bounders.Method:
  if name == 'sgd':
    bounder = per_example.summed(predict, squared_loss)
  elif name == 'normalised_sgd':
    bounder = normalised(predict, squared_loss)
  else:
    bounder = per_example.clipped(predict, squared_loss, clip_norm=clip_norm)
  return bounders.Method(name, bounder, bounders.no_constraint(),
                         private=name == 'dp_sgd')


def make_plan(name: str, *, num_examples: int, num_steps: int,
              epsilon: float, delta: float) -> plans.TrainingPlan:
  """Returns a plan: full batches without noise, or a tenth with it (dp_sgd)."""
  common = dict(num_examples=num_examples, num_steps=num_steps,
                adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  if name == 'dp_sgd':
    return plans.private_plan(batch_size=num_examples / 10, epsilon=epsilon,
                              delta=delta, **common)
  return plans.non_private_plan(batch_size=float(num_examples), **common)


def rest(name: str, plan: plans.TrainingPlan, *, clip_norm: float,
         seeds: Sequence[int]) -> np.ndarray:
  """Returns where training ends minus (a, b), as [len(seeds), 2].

  Args:
    name: 'sgd', 'clipped_sgd' and 'normalised_sgd' have no noise; 'dp_sgd'
      has that of the plan.
    plan: training plan, from `make_plan`.
    clip_norm: clip norm of the clipping methods.
    seeds: seeds of the runs.
  """
  num_examples = plan.sampler.num_examples
  decay = optax.cosine_decay_schedule(_LEARNING_RATE, plan.num_steps)
  result = loop.fit(
      jnp.stack([jax.random.key(seed) for seed in seeds]),
      plans=[plan] * len(seeds),
      model=Model(init=lambda key: jnp.zeros([2], jnp.float32),
                  apply=predict, network=None),
      method=_method(name, clip_norm),
      optimizer=optax.sgd(lambda count: decay(count.astype(jnp.float32))),
      records=grid_records(num_examples),
      rows=jnp.tile(jnp.arange(num_examples, dtype=jnp.int32)[None],
                    (len(seeds), 1)))
  return np.asarray(result.state.params, np.float64) - [SLOPE, INTERCEPT]
