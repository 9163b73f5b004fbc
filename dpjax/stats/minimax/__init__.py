"""What no private estimate can beat: definitions, couplings, lower bounds.

Numbers of the host in float64; neighbours differ in one of n records, n public
(REPLACE_ONE). Source: thesis 000, chapter 3; paper 004 (spec minimax.md).

Modules, in import order: bounds, testing, two_points, scores,
proportions_exact.
"""

__all__ = [
    'bounds', 'proportions_exact', 'scores', 'testing', 'two_points'
]
