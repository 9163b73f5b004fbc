"""Private estimates of parameters, their risks, and what bounds them.

Source: thesis 000, chapter 4; paper 004 (spec minimax.md, sections 4 to 8).

Modules, in import order: estimator, study, clipped_normals,
normal_means, coinpress, normal_intervals, normal_bounds.
"""

__all__ = [
    'estimator', 'study', 'clipped_normals', 'normal_means', 'coinpress',
    'normal_intervals', 'normal_bounds']
