"""What no private estimate can beat: definitions, couplings, lower bounds.

Numbers of the host in float64; neighbours differ in one of n records, n public
(REPLACE_ONE). Source: thesis 000, chapter 3; paper 004 (spec minimax.md).

Modules, in import order: bounds, testing, concentrated, two_points,
separations, scores, kl_scores, spheres, couplings, groups, similarities,
hypotheses, proportions_exact, proportion_tests, definitions, conversions,
oracles, risk_oracles, printed.
"""

__all__ = [
    'bounds', 'concentrated', 'conversions', 'couplings', 'definitions',
    'groups', 'hypotheses', 'kl_scores', 'oracles', 'printed',
    'proportion_tests', 'proportions_exact', 'risk_oracles', 'scores',
    'separations', 'similarities', 'spheres', 'testing', 'two_points'
]
