"""Private training: bound, sum, noise, step.

Modules, in import order: plan, bassily, methods, averaging, augment, state,
step, requirements, used_keys, sharding, processes, checkpoint, loop, evaluate,
output_perturbation, newton, fixed_point, replicas.
"""

__all__ = [
    'augment', 'averaging', 'bassily', 'checkpoint', 'evaluate', 'fixed_point',
    'loop', 'methods', 'newton', 'output_perturbation', 'plan', 'processes',
    'replicas', 'requirements', 'sharding', 'state', 'step', 'used_keys'
]
