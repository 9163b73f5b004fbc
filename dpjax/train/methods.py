"""The training methods: a gradient bounder and a weight constraint each.

All are fed the same batches, noised by the same privatizer and followed by the
same optimiser. Guarantee of the private ones: with the noise of a
`TrainingPlan`, the run is (epsilon, delta)-DP for every pair that
`accounting.epsilon(plan.event)` gives, for any data whatever.
"""

from dpjax.grads import bounder as bounders
from dpjax.grads import per_example
from dpjax.grads.bounder import Method
from dpjax.lipschitz import bounder as lipschitz_bounder
from dpjax.lipschitz import projection
from dpjax.lipschitz.losses import LipschitzLoss
from dpjax.models.model import Model


def sgd(model: Model, loss: LipschitzLoss) -> Method:
  """Non-private stochastic gradient descent (thesis 003, Algorithm 1)."""
  return Method('sgd', per_example.summed(model.apply, loss.values),
                bounders.no_constraint(), private=False)


def dp_sgd(model: Model, loss: LipschitzLoss, *, clip_norm: float,
           microbatch_size: int | None = None) -> Method:
  """DP-SGD with flat per-record clipping (Algorithm 7, Abadi et al. 2016)."""
  bounder = per_example.clipped(model.apply, loss.values, clip_norm=clip_norm,
                                microbatch_size=microbatch_size)
  return Method('dp_sgd', bounder, bounders.no_constraint(), private=True)


def lip_dp_sgd(model: Model, loss: LipschitzLoss, *,
               weight_norm: float) -> Method:
  """Lip-DP-SGD, sound: activations bounded inside, weight norms <= C.

  The idea of thesis 003, Algorithm 8, without its division by the largest
  activation of the batch. `model` must state its layer bounds.
  """
  bounder = lipschitz_bounder.certified(model.apply, model.layers, loss)
  return Method('lip_dp_sgd', bounder,
                projection.clip_weights(model.layers, weight_norm=weight_norm),
                private=True)


def fix_lip_dp_sgd(model: Model, loss: LipschitzLoss, *,
                   weight_norm: float) -> Method:
  """Fix-Lip-DP-SGD on the same sound base: weight norms = C."""
  bounder = lipschitz_bounder.certified(model.apply, model.layers, loss)
  return Method('fix_lip_dp_sgd', bounder,
                projection.fix_weights(model.layers, weight_norm=weight_norm),
                private=True)
