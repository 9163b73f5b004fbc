"""Does an implementation keep its claim? Tests against what really ran.

Modules, in import order: bounds, one_run, curves, claims, empirical, mixtures,
whitebox, steps, canary, target, wrapping, noise, exact, partitions, blackbox,
auditor, inversion, membership, attacks.

An audit can refute a claim, never prove it: what survives is "not falsified".
"""

__all__ = [
    'attacks', 'auditor', 'blackbox', 'bounds', 'canary', 'claims', 'curves',
    'empirical', 'exact', 'inversion', 'membership', 'mixtures', 'noise',
    'one_run', 'partitions', 'steps', 'target', 'whitebox', 'wrapping'
]
