"""Private estimates of parameters, their risks, and what bounds them.

Source: thesis 000, chapter 4; paper 004 (spec minimax.md, sections 4 to 8).

Modules, in import order: estimator, study, subsampling, proportion_bounds,
noisy_shares, proportions, support_bounds, support_ranks, supports,
support_queries, moment_bounds, printed_moments, moment_risks, truncated_means.
"""

__all__ = [
    'estimator', 'moment_bounds', 'moment_risks', 'noisy_shares',
    'printed_moments', 'proportion_bounds', 'proportions', 'study',
    'subsampling', 'support_bounds', 'support_queries', 'support_ranks',
    'supports', 'truncated_means'
]
