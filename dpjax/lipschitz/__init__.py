"""Bounding sensitivity by the weights instead of clipping gradients.

Modules, in import order: norms, randomised, convolution, orthogonal, induced,
rules, primitives, node, pointwise, pooling, normalisation, layers, network,
losses, reparametrisation, projection, bounder, adaptive, k_norm,
printed.
"""

__all__ = [
    'adaptive', 'bounder', 'convolution', 'induced', 'k_norm',
    'layers', 'losses', 'network', 'node', 'normalisation', 'norms',
    'orthogonal', 'pointwise', 'pooling', 'primitives', 'printed',
    'projection', 'randomised', 'reparametrisation', 'rules'
]
