"""Private statistics: estimates with intervals, and what they risk.

Modules, in import order: precision, numbers, intervals, risks, mean, bernoulli,
frequencies, polls, support, ecdf, quantiles.
"""

__all__ = [
    'bernoulli', 'ecdf', 'frequencies', 'intervals', 'mean', 'numbers',
    'polls',
    'precision', 'quantiles', 'risks', 'support'
]
