"""Networks of few parameters: pruned, or products of butterflies.

Modules, in import order: masks, chains, deformable, networks, butterfly,
magnitude.
"""

__all__ = [
    'butterfly', 'chains', 'deformable', 'magnitude', 'masks', 'networks'
]
