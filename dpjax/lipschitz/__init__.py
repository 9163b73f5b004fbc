"""Bounds gradients through the Lipschitz constants of layers, without clipping.

Names such as NET-01 or LDP-05 are items of experiments/catalogue. Errata such
as E1 are explained in experiments/ERRATA.md.

Modules, in import order: norms, convolution, orthogonal, induced, rules,
primitives, node, pointwise, pooling, normalisation, layers, network, losses,
reparametrisation, projection, bounder, adaptive, k_norm, printed.
"""

__all__ = [
    'adaptive', 'bounder', 'convolution', 'induced', 'k_norm',
    'layers', 'losses', 'network', 'node', 'normalisation', 'norms',
    'orthogonal', 'pointwise', 'pooling', 'primitives', 'printed',
    'projection', 'reparametrisation', 'rules'
]
