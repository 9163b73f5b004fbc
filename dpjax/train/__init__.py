"""Differentially private training of models, and its baselines.

A step bounds and sums the contributions of the records, adds noise, and hands
the noisy mean to an optimiser. Start with `plan` (sampling, steps and noise for
an (epsilon, delta) target), `methods` (DP-SGD, Lip-DP-SGD, ...) and `loop.fit`.

Modules, in import order: plan, bassily, methods, averaging, augment, state,
step, requirements, used_keys, sharding, processes, checkpoint, loop, evaluate.
"""

__all__ = [
    'augment', 'averaging', 'bassily', 'checkpoint', 'evaluate', 'loop',
    'methods', 'plan', 'processes', 'requirements', 'sharding', 'state',
    'step', 'used_keys'
]
