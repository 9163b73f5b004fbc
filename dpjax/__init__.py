"""dpjax: private training and private statistics in JAX.

Rooms, which are imported as modules, `from dpjax.privacy import accounting`:

* `dpjax.privacy`: what privacy means and how it is spent
* `dpjax.stats`: private estimates with intervals, and their risks
* `dpjax.mpc`: statistics that several parties compute and none sees
* `dpjax.sampling`: Poisson batches of static shape
* `dpjax.grads`: bounded sums of per-record contributions, and their noise
* `dpjax.lipschitz`: certified norms, weight constraints, gradient bounds
* `dpjax.models`: small Flax networks as (init, apply) pairs
* `dpjax.data`: real data sets with public feature bounds
* `dpjax.sparsity`: pruned networks, and products of butterflies
* `dpjax.train`: bound, sum, noise, step: compiled training runs
* `dpjax.audit`: tests of a privacy claim against what really ran
* `dpjax.report`: rows, tables and figures of results
* `dpjax.release`: statistics of a file: exact noise, a ledger of budget

Examples here and in all modules presume `import jax`, `import numpy as np` and
`import jax.numpy as jnp`.

Examples:
  >>> from dpjax.privacy import accounting
  >>> from dpjax.privacy.adjacency import Adjacency
  >>> steps = accounting.poisson_gaussian_event(
  ...     sampling_prob=0.01, noise_multiplier=1.0, num_steps=1000)
  >>> claim = dict(delta=1e-5, adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  >>> round(accounting.epsilon(steps, **claim), 2)
  1.83
"""

__version__ = '0.1.0'
