"""Of eight trained models the best on the private data is released.

The reported epsilon is that of one training run. The selection looks at the
data without noise and at eight runs. The fixed twin releases the first run.
"""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug
from experiments.audit_zoo import training

_SIGMA, _RUNS = 2.0, 8


def _runs(key: PRNGKey, records: Array) -> tuple[Array, Array]:
  """Returns the weights [runs] after one noisy step, and the gradient sum."""
  gradients = jnp.sum(training.clipped(records[:, None], 1.0))
  return gradients + _SIGMA * jax.random.normal(key, (_RUNS,)), gradients


def _faulty(key: PRNGKey, records: Array) -> Array:
  weights, gradients = _runs(key, records)
  # The training loss of a linear model: the weight times minus the sum.
  return weights[jnp.argmin(-weights * gradients)]


def _fixed(key: PRNGKey, records: Array) -> Array:
  return _runs(key, records)[0][0]


def _true_epsilon() -> float:
  """Returns epsilon of sums 1/2 and -1/2: the largest run or the smallest."""
  step = 0.001
  points = np.arange(-16.0, 16.0, step)
  largest = stats.norm(0.5, _SIGMA)
  density = _RUNS * largest.pdf(points) * largest.cdf(points)**(_RUNS - 1)
  return training.densities_epsilon(density, density[::-1], step)


BUG = bug.Bug(
    name='best_of_runs',
    title='The best of eight runs on the private data is released with the '
    'epsilon of one run.',
    source='LeakPro, pull request 438, '
    'https://github.com/aidotse/LeakPro/pull/438; Papernot and Steinke (2022), '
    'Hyperparameter tuning with Renyi differential privacy, Section 1',
    claim=training.gaussian_claim(_SIGMA), true_epsilon=_true_epsilon(),
    faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE, bounds=(-1.0, 1.0)),
    worst=Pair(np.array([1, -0.5], np.float32), np.array([-0.5], np.float32),
               'with 1 or without, beside -1/2'))
