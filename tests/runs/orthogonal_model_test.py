"""These tests check runs of the perceptron that keeps norms."""

import dataclasses

import numpy as np
import pytest

from dpjax.runs import configuration
from dpjax.runs import training
from dpjax.runs.options import TrainingConfig

_CONFIG = TrainingConfig(
    dataset='breast_cancer', method='lip_dp_sgd', model='orthogonal',
    features='unit', epsilon=4.0, noise_seed=0, depth=3, branch_share=0.1,
    width=32)


def _kernels(params):
  if 'kernel' in params:
    return [params['kernel']]
  return [kernel for inner in params.values() for kernel in _kernels(inner)]


def test_weights_stay_orthogonal_under_noise():
  result, = training.train([dataclasses.replace(_CONFIG, num_steps=30)])
  assert 3.9 < result.epsilon <= 4 and result.config.activation == 'maxmin'
  *hidden, head = sorted(_kernels(result.params), key=lambda each: -each.size)
  assert head.shape == (32, 2) and len(hidden) == 3
  values = np.concatenate([np.linalg.svd(
      np.float64(kernel), compute_uv=False) for kernel in hidden])
  assert values.min() > 0.9 and values.max() < 1.001
  assert np.linalg.norm(np.float64(head), 2) < 1.001


@pytest.mark.slow
def test_depth_costs_no_accuracy():
  """Twelve layers are as accurate as one; with balls they learn nothing."""
  def accuracy(**changes):
    return np.mean([result.test_accuracy for result in training.train([
        dataclasses.replace(_CONFIG, seed=seed, **changes)
        for seed in range(6)])])

  shallow = accuracy(depth=1, branch_share=None)
  assert accuracy(depth=12, branch_share=0.02) > shallow - 0.02 > 0.9
  assert accuracy(depth=12, branch_share=None, model='mlp',
                  features='none') < 0.8


@pytest.mark.parametrize('method', ['dp_sgd', 'layer_clipped', 'lip_normalised',
                                    'fix_lip_dp_sgd', 'lip_propagated'])
def test_other_methods_can_train_it(method):
  result, = training.train([dataclasses.replace(
      _CONFIG, method=method, num_steps=3)])
  assert result.epsilon <= 4 and len(_kernels(result.params)) == 4


@pytest.mark.parametrize('changes, message', [
    (dict(method='lip_adaptive'), 'model must be mlp'),
    (dict(method='lip_k_norm'), 'model must be mlp'),
    (dict(method='bassily', depth=0), 'model must be mlp'),
    (dict(depth=0), 'depth must be at least 1'),
    (dict(weights='orthogonal'), 'weights must be free'),
    (dict(branch_share=1.0), 'branch_share'),
    (dict(model='mlp'), 'branch_share needs model = orthogonal'),
    (dict(dataset='digits', features='none'), 'model on images')])
def test_refuses_what_it_cannot_train(changes, message):
  with pytest.raises(ValueError, match=message):
    configuration.check(dataclasses.replace(_CONFIG, **changes))
