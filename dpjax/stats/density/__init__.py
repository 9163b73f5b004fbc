"""Private densities: one release of a whole curve on [0, 1] or a circle.

  density(key, x, epsilon=1.0, lower=0, upper=100, adjacency='replace_one')

Source: the paper 001 on the cost of privacy in density estimation; thesis 000,
chapter 5 (spec density.md).

Modules, in import order: laws, histospline, estimate, mechanism, noisy_counts,
sensitivities, bases, spectral, shrinkage, adaptive, api.
"""

__all__ = [
    'adaptive', 'api', 'bases', 'estimate', 'histospline', 'laws', 'mechanism',
    'noisy_counts', 'sensitivities', 'shrinkage', 'spectral'
]
