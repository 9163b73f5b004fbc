"""Bounded sums of per-record contributions, and the noise put on them.

Modules, in import order: bounder, clipping, per_example, privatizer.
"""

__all__ = ['bounder', 'clipping', 'per_example', 'privatizer']
