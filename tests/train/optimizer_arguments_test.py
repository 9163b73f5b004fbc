"""Tests that an optimiser reads noisy values only."""

import jax
import jax.numpy as jnp
import optax

from dpjax.grads import bounder
from dpjax.grads import per_example
from dpjax.grads import quantiles
from dpjax.sampling import PoissonSampler
from dpjax.train import step


def test_an_optimiser_gets_no_exact_sums():
  """An optimiser is told the size of the noise, and nothing else."""
  told = []

  def update(updates, state, params=None, **arguments):
    told.append(arguments)
    return updates, state

  adaptive = quantiles.geometric(1.0, target_quantile=0.5, learning_rate=0.2,
                                 noise_stddev=5.0)
  method = bounder.Method('adaptive', per_example.adaptively_clipped(
    lambda w, x: x @ w, lambda z, y: jnp.square(z[:, 0] - y),
    adaptive=adaptive), bounder.no_constraint(), private=True)
  transform = step.make_transform(
    method, PoissonSampler(num_examples=10, batch_size=5),
    optax.GradientTransformationExtraArgs(lambda params: (), update),
    key=jax.random.key(0), noise_multiplier=3.0, allocation='optimal')
  params = jnp.ones([3, 1])
  state = transform.init(params)
  # Keys of the privatizer, with the exact counts among them.
  transform.update(params, state, params, l2_sensitivity=jnp.float32(1.0),
                   indicators=jnp.float32(2.0))
  assert [set(arguments) for arguments in told] == [{'noise_stddev'}]
