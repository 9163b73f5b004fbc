"""Tests the estimators that experiments/support_estimators compares."""

import math

import jax
import jax.numpy as jnp

from experiments.support_estimators import run
from experiments.support_estimators import sweep


def test_every_method_estimates_the_support():
  """Without privacy, n uniform records in [0, 1] determine 1 to a few 1/n."""
  one_of_each = {setting.method: setting for setting in sweep.SETTINGS}
  for method, setting in one_of_each.items():
    data = (jnp.arange(setting.num_examples) + 1) / (setting.num_examples + 1)
    estimate = jax.jit(run.estimator(setting))(
        jax.random.key(0), data.astype(jnp.float32))
    assert estimate.value.shape == (), method
    if math.isinf(setting.epsilon):
      assert abs(float(estimate.value) - 1) < 4 / setting.num_examples, method
