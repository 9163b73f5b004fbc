"""Private training: bound, sum, noise, step.

Modules, in import order: plan, methods, averaging, augment, state, step,
loop, evaluate.
"""

__all__ = ['augment', 'averaging', 'evaluate', 'loop', 'methods', 'plan',
           'state', 'step']
