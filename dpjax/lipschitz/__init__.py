"""Bounds gradients through the Lipschitz constants of layers, without clipping.

Names such as NET-01 or LDP-05 are items of experiments/catalogue. Errata such
as E1 are explained in experiments/ERRATA.md.

Modules, in import order: norms, convolution, orthogonal, induced, rules,
primitives, node, pointwise, pooling, normalisation, layers, network, residual,
losses, reparametrisation, projection, bounder, adaptive, k_norm.
"""

from typing import TYPE_CHECKING

from dpjax import lazy

if TYPE_CHECKING:
  from dpjax.lipschitz.bounder import certified as certified
  from dpjax.lipschitz.layers import Affine as Affine
  from dpjax.lipschitz.layers import Conv as Conv
  from dpjax.lipschitz.layers import Dense as Dense
  from dpjax.lipschitz.losses import cross_entropy as cross_entropy
  from dpjax.lipschitz.losses import LipschitzLoss as LipschitzLoss
  from dpjax.lipschitz.network import Chain as Chain
  from dpjax.lipschitz.network import Network as Network
  from dpjax.lipschitz.norms import spectral_upper_bound as spectral_upper_bound
  from dpjax.lipschitz.pointwise import activation as activation
  from dpjax.lipschitz.pointwise import Ball as Ball
  from dpjax.lipschitz.pooling import average_pool as average_pool
  from dpjax.lipschitz.pooling import max_pool as max_pool
  from dpjax.lipschitz.projection import clip_weights as clip_weights
  from dpjax.lipschitz.projection import fix_weights as fix_weights
  from dpjax.lipschitz.residual import Residual as Residual

__all__ = [
    'Affine', 'Ball', 'Chain', 'Conv', 'Dense', 'LipschitzLoss', 'Network',
    'Residual', 'activation', 'average_pool', 'certified', 'clip_weights',
    'cross_entropy', 'fix_weights', 'max_pool',
    'spectral_upper_bound'
]

if not TYPE_CHECKING:  # A checker would take every name for Any.
  __getattr__, __dir__ = lazy.attributes(__name__, __all__, {
      'certified': 'bounder', 'Affine': 'layers', 'Conv': 'layers',
      'Dense': 'layers', 'LipschitzLoss': 'losses', 'cross_entropy': 'losses',
      'Chain': 'network', 'Network': 'network', 'Residual': 'residual',
      'spectral_upper_bound': 'norms', 'Ball': 'pointwise',
      'activation': 'pointwise', 'average_pool': 'pooling',
      'max_pool': 'pooling', 'clip_weights': 'projection',
      'fix_weights': 'projection'})
