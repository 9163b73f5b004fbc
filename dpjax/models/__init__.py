"""Small Flax networks as pure functions."""

__all__ = ['mlp', 'model']
