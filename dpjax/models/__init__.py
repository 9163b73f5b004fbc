"""Networks as pure functions.

Modules, in import order: model, bounding, mlp, convnet, resnet, wide_resnet,
batch_resnet.
"""

__all__ = [
    'batch_resnet', 'bounding', 'convnet', 'mlp', 'model', 'resnet',
    'wide_resnet'
]
