"""Private parametric estimators, their exact risks, and lower bounds.

Source: Lalanne (2023, chapter 4); Barber and Duchi (2014). Better
results that others have published are in docs/theory/literature.md.

Modules, in import order: estimator, study, proportion_bounds, noisy_shares,
support_ranks, support_bounds, subsampling, proportions, supports,
support_queries, moment_bounds, moment_risks, printed_moments, clipped_normals,
exponential_families, gaussian_noise, truncated_means, normal_means, coinpress,
normal_bounds, normal_intervals, densities, langevin_oracle, least_favourable,
likelihood, sgml, likelihood_risks, likelihood_study, studies, sample_sizes.
"""

__all__ = [
    'clipped_normals', 'coinpress', 'densities', 'estimator',
    'exponential_families', 'gaussian_noise', 'langevin_oracle',
    'least_favourable', 'likelihood', 'likelihood_risks', 'likelihood_study',
    'moment_bounds', 'moment_risks', 'noisy_shares', 'normal_bounds',
    'normal_intervals', 'normal_means', 'printed_moments', 'proportion_bounds',
    'proportions', 'sample_sizes', 'sgml', 'studies', 'study', 'subsampling',
    'support_bounds', 'support_queries', 'support_ranks', 'supports',
    'truncated_means'
]
