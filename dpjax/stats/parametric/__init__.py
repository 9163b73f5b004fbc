"""Private estimates of parameters, their risks, and what bounds them.

Source: thesis 000, chapter 4; paper 004 (spec minimax.md, sections 4 to 8).

Modules, in import order: estimator, study, subsampling, moment_bounds,
printed_moments, moment_risks, truncated_means.
"""

__all__ = [
    'estimator', 'moment_bounds', 'moment_risks', 'printed_moments', 'study',
    'subsampling', 'truncated_means'
]
