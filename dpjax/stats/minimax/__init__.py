"""What no private estimate can beat: definitions, couplings, lower bounds.

Numbers of the host in float64; neighbours differ in one of n records, n public
(REPLACE_ONE). Source: thesis 000, chapter 3; paper 004 (spec minimax.md).

<<<<<<< HEAD
Modules, in import order: bounds, testing, two_points, scores, groups,
similarities, hypotheses, proportions_exact, oracles, printed.
=======
Modules, in import order: bounds, testing, two_points, separations, scores,
groups, similarities, hypotheses, proportions_exact, oracles, risk_oracles,
printed.
>>>>>>> fc6c38346a1a5144e88925c010c5fdff6c2b054b
"""

__all__ = [
    'bounds', 'groups', 'hypotheses', 'oracles', 'printed',
<<<<<<< HEAD
    'proportions_exact', 'scores', 'similarities', 'testing', 'two_points'
=======
    'proportions_exact', 'risk_oracles', 'scores', 'separations',
    'similarities', 'testing', 'two_points'
>>>>>>> fc6c38346a1a5144e88925c010c5fdff6c2b054b
]
