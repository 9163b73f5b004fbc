"""Networks of few parameters: pruned by magnitude, or products of butterflies.

Modules, in import order: masks, chains, deformable, networks.
"""

__all__ = ['chains', 'deformable', 'masks', 'networks']
