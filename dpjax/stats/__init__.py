"""Private statistics: estimates with intervals, and what they risk.

Modules, in import order: precision, intervals, risks, mean, bernoulli,
frequencies, polls, support, ecdf, quantiles, roc.
"""

__all__ = [
    'bernoulli', 'ecdf', 'frequencies', 'intervals', 'mean', 'polls',
    'precision', 'quantiles', 'risks', 'roc', 'support'
]
