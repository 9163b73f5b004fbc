"""Audits: statistical tests of whether an implementation keeps its claim.

Modules, in import order: bounds, one_run, curves, claims, empirical, mixtures,
whitebox, steps, canary, target, wrapping, noise, exact, partitions, blackbox,
auditor, inversion, membership, attacks, discriminators, local_sensitivity,
shadow, suite.

An audit can refute a privacy claim but never prove it. A claim that passes is
"not falsified".
"""

__all__ = [
    'attacks', 'auditor', 'blackbox', 'bounds', 'canary', 'claims',
    'curves', 'discriminators', 'empirical', 'exact', 'inversion',
    'local_sensitivity', 'membership', 'mixtures', 'noise', 'one_run',
    'partitions', 'shadow', 'steps', 'suite', 'target', 'whitebox', 'wrapping'
]
