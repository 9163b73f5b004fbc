"""Networks with few parameters: pruned by magnitude, or made of butterflies.

Modules, in import order: masks, magnitude, butterfly.
"""

__all__ = ['butterfly', 'magnitude', 'masks']
