"""Private training: bound, sum, noise, step.

Modules, in import order: plan, methods, state, step, loop, evaluate.
"""

__all__ = ['evaluate', 'loop', 'methods', 'plan', 'state', 'step']
