"""Does an implementation keep its claim? Tests against what really ran.

Modules, in import order: bounds, one_run, curves, claims, empirical, mixtures,
whitebox, steps, canary, target, wrapping, noise, exact, partitions, blackbox,
auditor, inversion, membership, attacks, discriminators, local_sensitivity,
shadow.

An audit can refute a claim, never prove it: what survives is "not falsified".
"""

__all__ = [
    'attacks', 'auditor', 'blackbox', 'bounds', 'canary', 'claims',
    'curves', 'discriminators', 'empirical', 'exact', 'inversion',
    'local_sensitivity', 'membership', 'mixtures', 'noise', 'one_run',
    'partitions', 'shadow', 'steps', 'target', 'whitebox', 'wrapping'
]
