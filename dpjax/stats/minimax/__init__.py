"""What no private estimate can beat: definitions, couplings, lower bounds.

Numbers of the host in float64; neighbours differ in one of n records, n public
(REPLACE_ONE). Source: thesis 000, chapter 3; paper 004 (catalogue minimax).

Modules, in import order: bounds, testing, concentrated, two_points,
separations, spheres, couplings, groups, similarities, hypotheses,
proportions_exact, proportion_tests, definitions, oracles, risk_oracles,
printed, disclosure, scores, conversions, sign_vectors.
"""

__all__ = [
    'bounds', 'concentrated', 'conversions', 'couplings', 'definitions',
    'disclosure', 'groups', 'hypotheses', 'oracles', 'printed',
    'proportion_tests', 'proportions_exact', 'risk_oracles', 'scores',
    'separations', 'sign_vectors', 'similarities', 'spheres', 'testing',
    'two_points'
]
