"""Audits: statistical tests of whether an implementation keeps its claim.

Modules, in import order: bounds, one_run, curves, claims, empirical, mixtures,
whitebox, steps, canary, target, wrapping, noise, exact, partitions, blackbox,
auditor, membership, attacks, suite.

An audit can refute a privacy claim but never prove it. A claim that passes is
"not falsified".
"""

__all__ = [
    'attacks', 'auditor', 'blackbox', 'bounds', 'canary', 'claims', 'curves',
    'empirical', 'exact', 'membership', 'mixtures', 'noise', 'one_run',
    'partitions', 'steps', 'suite', 'target', 'whitebox', 'wrapping'
]
