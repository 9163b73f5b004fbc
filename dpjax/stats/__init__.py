"""Private statistics: estimates with intervals, and what they risk.

Modules, in import order: intervals, risks, mean, bernoulli, frequencies,
polls, support, quantiles.
"""

__all__ = [
    'bernoulli', 'frequencies', 'intervals', 'mean', 'polls', 'quantiles',
    'risks', 'support'
]
