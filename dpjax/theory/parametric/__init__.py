"""Private parametric estimators, their exact risks, and lower bounds.

Source: Lalanne (2023, chapter 4); Barber and Duchi (2014). Better
results that others have published are in docs/theory/literature.md.

Modules, in import order: estimator, study, proportion_bounds, noisy_shares,
support_ranks, support_bounds, subsampling, proportions, supports,
moment_bounds, moment_risks, clipped_normals, exponential_families,
gaussian_noise, truncated_means, normal_means, coinpress, normal_bounds,
normal_intervals, densities, least_favourable, likelihood, sgml,
likelihood_risks, likelihood_study, studies, sample_sizes.
"""
