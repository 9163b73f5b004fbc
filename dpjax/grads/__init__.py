"""Bounded sums of per-record contributions, and the noise put on them.

Modules, in import order: ball, precision, quantiles, bounder, clipping,
records, tracing, convolutions, microbatches, windows, contractions,
bookkeeping, inputs, isolation, per_example, privatizer, k_norm_privatizer,
lattice_privatizer, placement.
"""

__all__ = [
    'ball', 'bookkeeping', 'bounder', 'clipping', 'contractions',
    'convolutions', 'inputs', 'isolation', 'k_norm_privatizer',
    'lattice_privatizer', 'microbatches', 'per_example', 'placement',
    'precision', 'privatizer', 'quantiles', 'records', 'tracing', 'windows'
]
