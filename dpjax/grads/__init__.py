"""Bounds and sums the gradients of records, and adds noise to the sums.

A `bounder.GradientBounder` sums bounded contributions, one for each record of a
batch, and states their sensitivity (`per_example.clipped` is that of DP-SGD).
A privatizer (`privatizer.gaussian_privatizer`) adds noise scaled to it.

Modules, in import order: ball, precision, quantiles, bounder, clipping,
records, jaxprs, shards, hoisting, sites, tracing, convolutions, microbatches,
windows, contractions, lookups, passes, reads, pullbacks, shared, bundles,
memory, bookkeeping, explain, inputs, weighted, entries, entry_rules,
entry_indexing, dependence, isolation, per_example, privatizer,
k_norm_privatizer, lattice_privatizer.
"""

from typing import TYPE_CHECKING

from dpjax import lazy

if TYPE_CHECKING:
  from dpjax.grads import k_norm_privatizer as k_norm_privatizer
  from dpjax.grads import lattice_privatizer as lattice_privatizer
  from dpjax.grads.bounder import GradientBounder as GradientBounder
  from dpjax.grads.per_example import adaptively_clipped as adaptively_clipped
  from dpjax.grads.per_example import clipped as clipped
  from dpjax.grads.per_example import normalized as normalized
  from dpjax.grads.per_example import per_example_norms as per_example_norms
  from dpjax.grads.per_example import plain_sums as plain_sums
  from dpjax.grads.privatizer import gaussian_privatizer as gaussian_privatizer

__all__ = [
    'GradientBounder', 'adaptively_clipped', 'clipped', 'gaussian_privatizer',
    'k_norm_privatizer', 'lattice_privatizer', 'normalized',
    'per_example_norms', 'plain_sums'
]

if not TYPE_CHECKING:  # A checker would take every name for Any.
  __getattr__, __dir__ = lazy.attributes(__name__, __all__, {
      'GradientBounder': 'bounder', 'adaptively_clipped': 'per_example',
      'clipped': 'per_example', 'normalized': 'per_example',
      'per_example_norms': 'per_example', 'plain_sums': 'per_example',
      'gaussian_privatizer': 'privatizer'})
