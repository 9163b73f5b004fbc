"""Private densities: one release of a whole curve on [0, 1] or a circle.

  density(key, x, epsilon=1.0, lower=0, upper=100, adjacency='replace_one')

`key` is one of `dpjax.privacy.keys.system_keys` for what others are to see; a
seeded one is for research.

Source: the paper 001 on the cost of privacy in density estimation; thesis 000,
chapter 5 (catalogue density).

Modules, in import order: laws, histospline, polygons, estimate, mechanism,
noisy_counts, bases, sensitivities, bandwidths, post_processing, histograms,
cubes, trigonometric, projections, relaxation, spectral, shrinkage, pooling,
adaptive, weighted, stages, hierarchies, merging, sparse, marginals, packings,
lower_bounds, cube_bounds, api.
"""

__all__ = [
    'adaptive', 'api', 'bandwidths', 'bases', 'cube_bounds', 'cubes',
    'estimate', 'hierarchies', 'histograms', 'histospline', 'laws',
    'lower_bounds', 'marginals', 'mechanism', 'merging', 'noisy_counts',
    'packings', 'polygons', 'pooling', 'post_processing', 'projections',
    'relaxation', 'sensitivities', 'shrinkage', 'sparse', 'spectral', 'stages',
    'trigonometric', 'weighted'
]
