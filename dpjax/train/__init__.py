"""Differentially private training of models, and its baselines.

A step bounds and sums the contributions of the records, adds noise, and hands
the noisy mean to an optimiser. Start with `plan` (sampling, steps and noise for
an (epsilon, delta) target), `methods` (DP-SGD, Lip-DP-SGD, ...) and `loop.fit`.

A user's own loop starts with `private.make_private`.

Modules, in import order: plan, clip_norms, methods, averaging, augment, state,
step, requirements, used_keys, adam, optimizers, modules, losses, loading,
workers, sources, reading, sharding, program, budget, user_loop, private,
tuning, citing, processes, checkpoint, loop, evaluate.
"""

from typing import TYPE_CHECKING

from dpjax import lazy

if TYPE_CHECKING:
  from dpjax.train import adam as adam
  from dpjax.train import methods as methods
  from dpjax.train.checkpoint import Checkpoints as Checkpoints
  from dpjax.train.evaluate import accuracies as accuracies
  from dpjax.train.evaluate import accuracy as accuracy
  from dpjax.train.loop import fit as fit
  from dpjax.train.loop import FitResult as FitResult
  from dpjax.train.plan import non_private_plan as non_private_plan
  from dpjax.train.plan import private_plan as private_plan
  from dpjax.train.plan import TrainingPlan as TrainingPlan
  from dpjax.train.sharding import data_mesh as data_mesh

__all__ = [
    'Checkpoints', 'FitResult', 'TrainingPlan', 'accuracies', 'accuracy',
    'adam', 'data_mesh', 'fit', 'methods', 'non_private_plan', 'private_plan'
]

if not TYPE_CHECKING:  # A checker would take every name for Any.
  __getattr__, __dir__ = lazy.attributes(__name__, __all__, {
      'Checkpoints': 'checkpoint', 'accuracies': 'evaluate',
      'accuracy': 'evaluate', 'FitResult': 'loop', 'fit': 'loop',
      'TrainingPlan': 'plan', 'non_private_plan': 'plan',
      'private_plan': 'plan', 'data_mesh': 'sharding'})
