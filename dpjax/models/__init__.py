"""Networks as pure functions.

Modules, in import order: model, bounding, mlp, convnet, resnet, wide_resnet.
"""

__all__ = ['bounding', 'convnet', 'mlp', 'model', 'resnet', 'wide_resnet']
