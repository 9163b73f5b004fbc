"""Network architectures as pure functions.

Names such as NET-09 or LDP-05 are items of experiments/catalogue. Errata such
as E12 are explained in experiments/ERRATA.md.

Modules, in import order: model, bounding, mlp, convnet, resnet, wide_resnet.
"""

__all__ = ['bounding', 'convnet', 'mlp', 'model', 'resnet', 'wide_resnet']
