"""The training methods: a gradient bounder and a weight constraint each.

All are fed the same batches, noised by the same privatizer and followed by the
same optimiser. Guarantee of the private ones: with the noise of a
`TrainingPlan`, the run is (epsilon, delta)-DP for every pair that
`accounting.epsilon(plan.event)` gives, for any data whatever.

Which Lipschitz method a `lip_dp_sgd` is depends on its network: activations in
balls (LDP-05), norms propagated through bounded layers (LDP-07), normalisation
in front of parameter layers (LDP-08). Its step is LDP-10: certified norms,
bounds, noise scales, plain batch gradient, noise, public mean, optimiser,
ClipWeights.
"""

from dpjax.grads import bounder as bounders
from dpjax.grads import per_example
from dpjax.grads.bounder import Method
from dpjax.lipschitz import bounder as lipschitz_bounder
from dpjax.lipschitz import projection
from dpjax.lipschitz import rules
from dpjax.lipschitz.losses import LipschitzLoss
from dpjax.lipschitz.network import Network
from dpjax.models.model import Model


def sgd(model: Model, loss: LipschitzLoss) -> Method:
  """Non-private stochastic gradient descent: Algorithm 1 of 003, DP-14."""
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
  """Lip-DP-SGD, sound: plain gradients of a bounded network, norms <= C.

  The idea of thesis 003, Algorithm 8, without its division by the largest
  activation of the batch.
  """
  bounder = lipschitz_bounder.certified(_network(model), loss,
                                        weight_norm=weight_norm)
  return Method('lip_dp_sgd', bounder,
                projection.clip_weights(model.network,
                                        weight_norm=weight_norm),
                private=True)


def fix_lip_dp_sgd(model: Model, loss: LipschitzLoss, *,
                   weight_norm: float) -> Method:
  """Fix-Lip-DP-SGD on the same sound base: weight norms = C. LDP-02."""
  bounder = lipschitz_bounder.certified(_network(model), loss,
                                        weight_norm=weight_norm)
  return Method('fix_lip_dp_sgd', bounder,
                projection.fix_weights(model.network,
                                       weight_norm=weight_norm),
                private=True)


def lip_normalised(model: Model, loss: LipschitzLoss, *, weight_norm: float,
                   floor: float = 1e-2) -> Method:
  """Lip-DP-SGD with backward-normalised layers. LDP-04.

  Each record's gradient of a layer is divided by a bound of what entered that
  layer: Algorithm 8's division, per record. Activations need no bound.
  """
  bounder = lipschitz_bounder.certified(
      _network(model), loss, weight_norm=weight_norm,
      rule=rules.normalised(floor=floor))
  return Method('lip_normalised', bounder,
                projection.clip_weights(model.network,
                                        weight_norm=weight_norm),
                private=True)


def layer_clipped(model: Model, loss: LipschitzLoss, *,
                  clip_norm: float) -> Method:
  """Layer-wise clipping in one backward pass, no constraint. LDP-09.

  The gradients of DP-SGD with per-layer clipping, at the price of ordinary
  ones; the baseline that separates "no gradient per record is formed" from
  "the network is Lipschitz".
  """
  bounder = lipschitz_bounder.certified(
      _network(model), loss, weight_norm=1.0,
      rule=rules.clipped_layers(clip_norm=clip_norm))
  return Method('layer_clipped', bounder, bounders.no_constraint(),
                private=True)


def _network(model: Model) -> Network:
  if model.network is None:
    raise ValueError('the Lipschitz methods need a model that states its '
                     'layers; this one is opaque')
  return model.network
