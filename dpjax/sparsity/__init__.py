"""Networks of few parameters: pruned by magnitude, or products of butterflies.

Modules, in import order: masks, chains.
"""

__all__ = ['chains', 'masks']
