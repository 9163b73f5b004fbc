"""These tests pin the defaults of training,
which decide results and guarantees."""

import inspect

import pytest

from dpjax.train import augment
from dpjax.train import averaging
from dpjax.train import checkpoint
from dpjax.train import loop
from dpjax.train import plan
from dpjax.train import step
from experiments.methods.training import newton
from experiments.methods.training import output_perturbation
from experiments.methods.training import replicas

_DEFAULTS = {
    augment.crop_and_flip: {'mode': 'reflect', 'flip': True},
    averaging.ema: {'decay': 0.9999, 'warm_up': True},
    loop.chunk_lengths: {'most': 20},
    loop.fit: {name: None for name in (
        'init_keys', 'max_parallel', 'on_progress', 'averaging', 'mesh',
        'place', 'checkpoints')} | {'allocation': 'optimal'},
    newton.NoisyNewton: {'regularization': 0.0, 'least_curvature': 1e-3},
    output_perturbation.OutputPerturbation: {'solver_share': 0.01},
    output_perturbation.fit: {'solver_share': 0.01},
    plan.TrainingPlan: {'noise_order': None, 'lattice_size': None,
                        'strategy': None, 'before': None},
    plan.TrainingPlan.epsilon: {'accountant': 'pld'},
    plan.private_plan: {'accountant': 'pld', 'max_batch_size': None,
                        'noise_order': None, 'lattice_size': None,
                        'sampler': None, 'strategy': None, 'before': None},
    replicas.Recipe: {'batch_size': 256, 'momentum': 0.9, 'drops': (0.5, 0.75),
                      'divisor': 10.0, 'augmentation': None},
    replicas.Replicas.logits: {'batch_size': 500},
    step.draw_ahead: {'noise': True},
    step.make_transform: {'on_lattice': False, 'strategy': None,
                          'shardings': None}}


@pytest.mark.every(1)
@pytest.mark.parametrize('function', _DEFAULTS,
                         ids=lambda function: function.__qualname__)
def test_defaults_are_as_they_were(function):
  assert _DEFAULTS[function] == {
      name: parameter.default for name, parameter in
      inspect.signature(function).parameters.items()
      if parameter.default is not inspect.Parameter.empty}


def test_checkpoints_are_saved_every_minute_and_two_are_kept():
  assert checkpoint.Checkpoints(folder='').every_seconds == 60
  assert checkpoint.Checkpoints(folder='').description == {}
  assert checkpoint.KEPT == 2
