"""Private densities: one release of a whole curve on [0, 1] or a circle.

  density(key, x, epsilon=1.0, lower=0, upper=100, adjacency='replace_one')

To publish a result, use a key of `dpjax.privacy.keys.system_keys`; a seeded key
is for research only.

Source: Lalanne, Garivier and Gribonval (2023), on the cost of privacy in
density estimation; Lalanne (2023, chapter 5).

Modules, in import order: densities, histospline, polygons, estimate, mechanism,
noisy_counts, bases, sensitivities, bandwidths, post_processing, histograms,
cubes, trigonometric, projections, spectral, shrinkage, pooling, adaptive,
weighted, stages, hierarchies, merging, sparse, api.
"""
