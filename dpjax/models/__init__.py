"""Networks as pure functions.

Modules, in import order: model, mlp.
"""

__all__ = ['mlp', 'model']
