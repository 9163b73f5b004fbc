"""Training methods as papers print them, for comparison and for attacks.

Use them to reproduce a paper, not to train: `bassily` is private with far more
noise than it needs, and Algorithm 8 of Barczewski (2025) is not private, so
`lip_printed` needs `allow_unsound=True`. The private methods are in
`dpjax.train.methods`.

Modules, in import order: bassily, lip_printed.

Examples:
  >>> from dpjax.papers import bassily
  >>> from dpjax.privacy import Adjacency
  >>> plan = bassily.bassily_plan(
  ...     num_examples=1000, batch_size=10, num_steps=1000, epsilon=1.0,
  ...     delta=1e-5, adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  >>> round(plan.noise_multiplier), round(plan.epsilon(1e-5), 3)
  (62, 0.013)
"""
