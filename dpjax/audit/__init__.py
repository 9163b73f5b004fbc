"""Does an implementation keep its claim? Tests against what really ran.

Modules, in import order: bounds, one_run, curves, claims, empirical, mixtures,
whitebox, steps, canary, target, wrapping, noise, exact, partitions, blackbox,
auditor, inversion.

An audit can refute a claim, never prove it: what survives is "not falsified".
"""

__all__ = [
    'auditor', 'blackbox', 'bounds', 'canary', 'claims', 'curves', 'empirical',
    'exact', 'inversion', 'mixtures', 'noise', 'one_run', 'partitions',
    'steps', 'target', 'whitebox', 'wrapping'
]
