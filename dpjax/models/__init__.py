"""Network architectures as pure functions.

Names such as NET-09 or LDP-05 are items of experiments/catalogue. Errata such
as E12 are explained in experiments/ERRATA.md.

Modules, in import order: model, bounding, mlp, convnet, resnet, wide_resnet.
"""

from typing import TYPE_CHECKING

from dpjax import lazy

if TYPE_CHECKING:
  from dpjax.models import convnet as convnet
  from dpjax.models import mlp as mlp
  from dpjax.models import resnet as resnet
  from dpjax.models import wide_resnet as wide_resnet
  from dpjax.models.model import from_network as from_network
  from dpjax.models.model import Model as Model

__all__ = [
    'Model', 'convnet', 'from_network', 'mlp', 'resnet', 'wide_resnet'
]

if not TYPE_CHECKING:  # A checker would take every name for Any.
  __getattr__, __dir__ = lazy.attributes(__name__, __all__, {
      'Model': 'model', 'from_network': 'model'})
