"""Networks of few parameters: pruned, or products of butterflies.

Modules, in import order: masks, chains, deformable, networks.
"""

__all__ = ['chains', 'deformable', 'masks', 'networks']
