"""Lower bounds for private estimates and tests, with privacy definitions.

Everything runs on the host in float64. Neighbours differ in one of n records,
n public (REPLACE_ONE). Source: Lalanne (2023, chapter 3); Barber and Duchi
(2014).

Modules, in import order: bounds, concentrated, two_points, separations,
spheres, hypotheses, cube_bounds, proportions_exact, disclosure, scores,
sign_vectors.
"""
