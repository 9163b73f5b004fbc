"""Bounding sensitivity by the weights instead of clipping gradients.

Modules, in import order: norms, convolution, rules, primitives, node,
pointwise, pooling, normalisation, layers, network, losses, projection, bounder.
"""

__all__ = [
    'bounder', 'convolution', 'layers', 'losses', 'network', 'node',
    'normalisation', 'norms', 'pointwise', 'pooling', 'primitives',
    'projection', 'rules'
]
