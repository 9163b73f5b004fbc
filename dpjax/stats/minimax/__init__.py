"""What no private estimate can beat: definitions, couplings, lower bounds.

Numbers of the host in float64; neighbours differ in one of n records, n public
(REPLACE_ONE). Source: thesis 000, chapter 3; paper 004 (spec minimax.md).

Modules, in import order: bounds, testing, two_points, separations, scores,
spheres, groups, similarities, hypotheses, proportions_exact, oracles,
risk_oracles, printed, proportion_tests.
"""

__all__ = [
    'bounds', 'groups', 'hypotheses', 'oracles', 'printed',
    'proportion_tests', 'proportions_exact', 'risk_oracles', 'scores',
    'separations', 'similarities', 'spheres', 'testing', 'two_points'
]
