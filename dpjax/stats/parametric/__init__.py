"""Private estimates of parameters, their risks, and what bounds them.

Source: thesis 000, chapter 4; paper 004 (spec minimax.md, sections 4 to 8).

Modules, in import order: estimator, study, sample_sizes, studies.
"""

__all__ = [
    'estimator', 'sample_sizes', 'studies', 'study'
]
