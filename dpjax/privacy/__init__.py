"""What privacy means and how it is spent; no models, no files.

Modules, in import order: notions, adjacency, accounting, blocks, mechanism,
additive.
"""

__all__ = [
    'accounting', 'additive', 'adjacency', 'blocks', 'mechanism', 'notions'
]
