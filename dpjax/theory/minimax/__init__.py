"""Lower bounds for private estimates and tests, with privacy definitions.

Everything runs on the host in float64. Neighbours differ in one of n records,
n public (REPLACE_ONE). Source: Lalanne (2023, chapter 3); Barber and Duchi
(2014).

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
