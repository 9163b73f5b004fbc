"""dpjax: private training and private statistics in JAX.

Rooms (import them as modules, `from dpjax import privacy`):
  privacy    what privacy means and how it is spent
  stats      private estimates with intervals, and their risks
  mpc        statistics that several parties compute and none sees
  sampling   Poisson batches of static shape
  grads      bounded sums of per-record contributions, and their noise
  lipschitz  certified norms, weight constraints, Lipschitz gradient bounds
  models     small Flax networks as (init, apply) pairs
  data       real data sets with public feature bounds
  sparsity   pruned networks, and products of butterflies
  train      bound, sum, noise, step: compiled training runs
  audit      tests of a privacy claim against what really ran
  report     rows, tables and figures of results
  release    statistics of a file: exact noise, a ledger of budget
"""

__version__ = '0.1.0'
