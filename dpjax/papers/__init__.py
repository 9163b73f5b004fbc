"""Training methods as papers print them, for comparison and for attacks.

Use them to reproduce a paper, not to train: `bassily` is private with far more
noise than it needs, and Algorithm 8 of Barczewski (2025) is not private, so
`lip_printed` and `algorithm_8` need `allow_unsound=True`. The private methods
are in `dpjax.train.methods`.

Modules, in import order: bassily, lip_printed, algorithm_8.
"""
