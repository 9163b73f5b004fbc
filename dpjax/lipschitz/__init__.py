"""Bounding sensitivity by the weights instead of clipping gradients.

Modules, in import order: norms, layers, losses, bounds, projection, bounder.
"""

__all__ = ['bounder', 'bounds', 'layers', 'losses', 'norms', 'projection']
