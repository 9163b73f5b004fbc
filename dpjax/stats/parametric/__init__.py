"""Private estimates of parameters, their risks, and what bounds them.

Source: thesis 000, chapter 4; paper 004 (spec minimax.md, sections 4 to 8).

<<<<<<< HEAD
<<<<<<< HEAD
Modules, in import order: estimator, study, densities.
"""

__all__ = [
    'densities', 'estimator', 'study'
=======
Modules, in import order: estimator, study, subsampling, proportion_bounds,
noisy_shares, proportions, support_bounds, support_ranks, supports,
support_queries.
"""

__all__ = [
    'estimator', 'noisy_shares', 'proportion_bounds', 'proportions', 'study',
    'subsampling', 'support_bounds', 'support_queries', 'support_ranks',
    'supports'
>>>>>>> fc6c38346a1a5144e88925c010c5fdff6c2b054b
=======
Modules, in import order: estimator, study, subsampling, moment_bounds,
printed_moments, moment_risks, truncated_means.
"""

__all__ = [
    'estimator', 'study', 'subsampling', 'moment_bounds', 'printed_moments',
    'moment_risks', 'truncated_means'
>>>>>>> 30249c992312ab30df210d23566d978cb0e5f337
]
