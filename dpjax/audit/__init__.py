"""Does an implementation keep its claim? Tests against what really ran.

Modules, in import order: bounds, claims, empirical, mixtures,
whitebox, canary, inversion.

An audit can refute a claim, never prove it: what survives is "not falsified".
"""

__all__ = [
    'bounds', 'canary', 'claims', 'empirical', 'inversion', 'mixtures',
    'whitebox'
]
