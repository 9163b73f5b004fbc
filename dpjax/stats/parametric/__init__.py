"""Private estimates of parameters, their risks, and what bounds them.

Source: thesis 000, chapter 4; paper 004 (spec minimax.md, sections 4 to 8).

Modules, in import order: estimator, study, proportion_bounds, noisy_shares,
support_ranks, subsampling, proportions, moment_bounds, moment_risks,
truncated_means, printed_moments, clipped_normals, normal_means, coinpress,
normal_intervals, exponential_families, least_favourable, likelihood,
likelihood_risks, sgml, langevin_oracle, normal_bounds, likelihood_study,
support_bounds, supports, support_queries, densities, sample_sizes, studies.
"""

__all__ = [
    'clipped_normals', 'coinpress', 'densities', 'estimator',
    'exponential_families', 'langevin_oracle', 'least_favourable',
    'likelihood', 'likelihood_risks', 'likelihood_study', 'moment_bounds',
    'moment_risks', 'noisy_shares', 'normal_bounds', 'normal_intervals',
    'normal_means', 'printed_moments', 'proportion_bounds', 'proportions',
    'sample_sizes', 'sgml', 'studies', 'study', 'subsampling',
    'support_bounds', 'support_queries', 'support_ranks', 'supports',
    'truncated_means'
]
