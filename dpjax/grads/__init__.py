"""Bounds and sums the gradients of records, and adds noise to the sums.

A `bounder.GradientBounder` sums bounded contributions, one for each record of a
batch, and states their sensitivity (`per_example.clipped` is that of DP-SGD).
A privatizer (`privatizer.gaussian_privatizer`) adds noise scaled to it.

Modules, in import order: ball, precision, quantiles, bounder, clipping,
records, tracing, convolutions, microbatches, windows, contractions,
bookkeeping, inputs, entries, entry_rules, entry_indexing, dependence,
isolation, per_example, privatizer, k_norm_privatizer, lattice_privatizer,
placement.
"""

__all__ = [
    'ball', 'bookkeeping', 'bounder', 'clipping', 'contractions',
    'convolutions', 'dependence', 'entries', 'entry_indexing', 'entry_rules',
    'inputs', 'isolation', 'k_norm_privatizer', 'lattice_privatizer',
    'microbatches', 'per_example', 'placement', 'precision', 'privatizer',
    'quantiles', 'records', 'tracing', 'windows'
]
