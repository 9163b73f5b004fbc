"""Differentially private training of models, and its baselines.

A step bounds and sums the contributions of the records, adds noise, and hands
the noisy mean to an optimiser. Start with `plan` (sampling, steps and noise for
an (epsilon, delta) target), `methods` (DP-SGD, Lip-DP-SGD, ...) and `loop.fit`.

A user's own loop starts with `private.make_private`; `tuning.tune` chooses its
hyperparameters, and `users.by_user` groups the records of people with several.

Modules, in import order: plan, comparison, clip_norms, methods, averaging,
augment, state, step, requirements, processes, used_keys, adam, optimizers,
modules, losses, loading, workers, sources, users, reading, placement, sharding,
program, budget, user_loop, private, tuning, citing, checkpoint,
array_chunks, streaming, loop, evaluate.
"""

from typing import TYPE_CHECKING

from dpjax import lazy

if TYPE_CHECKING:
  from dpjax.train import adam as adam
  from dpjax.train import methods as methods
  from dpjax.train import sources as sources
  from dpjax.train import tuning as tuning
  from dpjax.train import users as users
  from dpjax.train.checkpoint import Checkpoints as Checkpoints
  from dpjax.train.evaluate import accuracies as accuracies
  from dpjax.train.evaluate import accuracy as accuracy
  from dpjax.train.loop import fit as fit
  from dpjax.train.loop import FitResult as FitResult
  from dpjax.train.placement import fully_sharded as fully_sharded
  from dpjax.train.plan import non_private_plan as non_private_plan
  from dpjax.train.plan import private_plan as private_plan
  from dpjax.train.plan import TrainingPlan as TrainingPlan
  from dpjax.train.sharding import data_mesh as data_mesh

__all__ = [
    'Checkpoints', 'FitResult', 'TrainingPlan', 'accuracies', 'accuracy',
    'adam', 'data_mesh', 'fit', 'fully_sharded', 'methods', 'non_private_plan',
    'private_plan', 'sources', 'tuning', 'users'
]

if not TYPE_CHECKING:  # A checker would take every name for Any.
  __getattr__, __dir__ = lazy.attributes(__name__, __all__, {
      'Checkpoints': 'checkpoint', 'accuracies': 'evaluate',
      'accuracy': 'evaluate', 'FitResult': 'loop', 'fit': 'loop',
      'TrainingPlan': 'plan', 'non_private_plan': 'plan',
      'private_plan': 'plan', 'data_mesh': 'sharding',
      'fully_sharded': 'placement'})
