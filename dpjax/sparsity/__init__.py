"""Networks with few parameters: pruned by magnitude, or products of butterflies.

Modules, in import order: masks.
"""

__all__ = ['masks']
