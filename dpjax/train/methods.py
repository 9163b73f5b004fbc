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

from collections.abc import Callable
import functools

import jax

from dpjax.grads import bounder as bounders
from dpjax.grads import clipping
from dpjax.grads import per_example
from dpjax.grads import precision
from dpjax.grads import quantiles
from dpjax.grads.bounder import GradientBounder, Method
from dpjax.lipschitz import adaptive
from dpjax.lipschitz import bounder as lipschitz_bounder
from dpjax.lipschitz import k_norm
from dpjax.lipschitz import printed
from dpjax.lipschitz import projection
from dpjax.lipschitz import reparametrisation
from dpjax.lipschitz import rules
from dpjax.lipschitz.losses import LipschitzLoss
from dpjax.lipschitz.network import Network
from dpjax.models.model import Model
from dpjax.train import bassily as bassily_lib


def sgd(model: Model, loss: LipschitzLoss, *,
        compute_dtype: str = 'float32') -> Method:
  """Non-private stochastic gradient descent: Algorithm 1 of 003, DP-14.

  Args:
    model: any.
    loss: any.
    compute_dtype: see `dp_sgd`.
  """
  apply = _computed_in(model, compute_dtype)
  return Method('sgd', per_example.summed(apply, loss.values),
                bounders.no_constraint(), private=False)


def dp_sgd(model: Model, loss: LipschitzLoss, *, clip_norm: float,
           microbatch_size: int | None = None, kernel: str = 'bookkeeping',
           compute_dtype: str = 'float32') -> Method:
  """DP-SGD with flat clipping: Algorithm 7, Abadi et al. 2016, DP-16.

  Args:
    model: any.
    loss: any.
    clip_norm: bound on a record's gradient.
    microbatch_size: records that are worked on at once.
    kernel: how gradients of records are found, one of `per_example.KERNELS`.
    compute_dtype: what the network is computed in, forward and backward, one
      of `precision.COMPUTE_DTYPES`. Parameters, norms, sums and noise are
      float32 in any case, and the guarantee is the same.
  """
  bounder = per_example.clipped(
      _computed_in(model, compute_dtype), loss.values, clip_norm=clip_norm,
      microbatch_size=microbatch_size, kernel=kernel)
  return _clipping_method('dp_sgd', bounder)


def dp_sgd_per_layer(model: Model, loss: LipschitzLoss, *, clip_norm: float,
                     microbatch_size: int | None = None,
                     compute_dtype: str = 'float32') -> Method:
  """DP-SGD with every layer clipped by itself, to clip_norm in all. DP-16."""
  names = sorted(jax.eval_shape(model.init, jax.random.key(0)))
  bounder = per_example.clipped(
      _computed_in(model, compute_dtype), loss.values,
      microbatch_size=microbatch_size,
      clip_norm=clipping.per_layer(names, clip_norm=clip_norm))
  return _clipping_method('dp_sgd_per_layer', bounder)


def dp_sgd_automatic(model: Model, loss: LipschitzLoss, *, clip_norm: float,
                     stabilizer: float = 0.01,
                     microbatch_size: int | None = None,
                     compute_dtype: str = 'float32') -> Method:
  """DP-SGD with gradients g / (||g|| + stabilizer): Bu et al. 2023. DP-16."""
  bounder = per_example.normalized(
      _computed_in(model, compute_dtype), loss.values, clip_norm=clip_norm,
      stabilizer=stabilizer, microbatch_size=microbatch_size)
  return _clipping_method('dp_sgd_automatic', bounder)


def dp_sgd_adaptive(model: Model, loss: LipschitzLoss, *, clip_norm: float,
                    noise_stddev: float, target_quantile: float = 0.5,
                    learning_rate: float = 0.2,
                    microbatch_size: int | None = None,
                    compute_dtype: str = 'float32') -> Method:
  """DP-SGD whose clip norm follows a private quantile. DP-16, LDP-06.

  Args:
    model: any.
    loss: any.
    clip_norm: where it starts.
    noise_stddev: of the count of shorter gradients, in records.
    target_quantile: share of gradients that should be left alone.
    learning_rate: of the geometric update.
    microbatch_size: records that are worked on at once.
    compute_dtype: see `dp_sgd`.
  """
  bounder = per_example.adaptively_clipped(
      _computed_in(model, compute_dtype), loss.values,
      microbatch_size=microbatch_size,
      adaptive=quantiles.geometric(
          clip_norm, target_quantile=target_quantile,
          learning_rate=learning_rate, noise_stddev=noise_stddev))
  return _clipping_method('dp_sgd_adaptive', bounder)


def layer_clipped(model: Model, loss: LipschitzLoss, *,
                  clip_norm: float) -> Method:
  """Layer-wise clipping in one backward pass, no constraint. LDP-09.

  The gradients of DP-SGD with per-layer clipping, at the price of ordinary
  ones; the baseline that separates "no gradient per record is formed" from
  "the network is Lipschitz". `clip_norm` bounds all layers together.
  """
  network = _network(model)
  num_layers = len(jax.tree.leaves(network.fill(1.0)))
  rule = rules.clipped_layers(clip_norm=clip_norm / num_layers**0.5)
  return _clipping_method('layer_clipped', lipschitz_bounder.certified(
      network, loss, weight_norm=1.0, rule=rule))


def lip_dp_sgd(model: Model, loss: LipschitzLoss, *, weight_norm: float,
               recertify_every: int = 1) -> Method:
  """Lip-DP-SGD, sound: plain gradients of a bounded network, norms <= C.

  The idea of thesis 003, Algorithm 8, without its division by the largest
  activation of the batch. A model with reparametrised weights is bounded and
  noised in its weights, and the noisy gradient is pulled back.

  Args:
    model: a network.
    loss: with a known Lipschitz constant.
    weight_norm: C.
    recertify_every: steps between ClipWeights of layers whose norm no
      sensitivity reads, see `projection.rarely`; saves most of the time that
      norms of a wide first layer take.
  """
  bounder = lipschitz_bounder.certified(_network(model), loss,
                                        weight_norm=weight_norm)
  method = _lipschitz_method('lip_dp_sgd', model, bounder, weight_norm)
  if model.effective is not None:
    if recertify_every != 1:
      raise ValueError('recertify_every is for free weights: reparametrised '
                       'ones are what they are at every step')
    return method
  return method._replace(constraint=projection.rarely(
      method.constraint, model.network, bounder, every=recertify_every))


def fix_lip_dp_sgd(model: Model, loss: LipschitzLoss, *,
                   weight_norm: float) -> Method:
  """Fix-Lip-DP-SGD on the same sound base: weight norms = C. LDP-02."""
  bounder = lipschitz_bounder.certified(_network(model), loss,
                                        weight_norm=weight_norm)
  constraint = projection.fix_weights(model.network, weight_norm=weight_norm)
  return Method('fix_lip_dp_sgd', bounder, constraint, private=True)


def lip_normalised(model: Model, loss: LipschitzLoss, *, weight_norm: float,
                   floor: float = 1e-2) -> Method:
  """Lip-DP-SGD with backward-normalised layers. LDP-04.

  Each record's gradient of a layer is divided by a bound of what entered that
  layer: Algorithm 8's division, per record. Activations need no bound.
  """
  bounder = lipschitz_bounder.certified(
      _network(model), loss, weight_norm=weight_norm,
      rule=rules.normalised(floor=floor))
  return _lipschitz_method('lip_normalised', model, bounder, weight_norm)


def lip_adaptive(model: Model, loss: LipschitzLoss, *, weight_norm: float,
                 noise_stddev: float, target_quantile: float = 0.9,
                 learning_rate: float = 0.2) -> Method:
  """Lip-DP-SGD whose balls follow private quantiles. LDP-05 with LDP-06.

  Args:
    model: with adaptive balls.
    loss: with a known Lipschitz constant.
    weight_norm: C.
    noise_stddev: of each count of activations within their radius.
    target_quantile: share of activations that should be within.
    learning_rate: of the geometric update.
  """
  bounder = adaptive.adaptively_certified(
      _network(model), loss, weight_norm=weight_norm,
      make_adaptive=functools.partial(
          quantiles.geometric, target_quantile=target_quantile,
          learning_rate=learning_rate, noise_stddev=noise_stddev))
  return _lipschitz_method('lip_adaptive', model, bounder, weight_norm)


def lip_printed(model: Model, loss: LipschitzLoss, *, weight_norm: float,
                allow_unsound: bool) -> Method:
  """Algorithm 8 as printed: NOT private, for attacks only. LDP-01."""
  bounder = printed.as_printed(_network(model), loss,
                               allow_unsound=allow_unsound)
  return _lipschitz_method('lip_printed', model, bounder, weight_norm)


def lip_k_norm(model: Model, loss: LipschitzLoss, *, weight_norm: float,
               order: float) -> Method:
  """Lip-DP-SGD with K-norm noise, for p = 1 or infinity. LDP-03.

  Args:
    model: a perceptron with the inputs of its layers in balls.
    loss: with a known Lipschitz constant.
    weight_norm: C, of ||W||_{p->p}.
    order: p.
  """
  return Method(
      'lip_k_norm', k_norm.certified(_network(model), loss, order=order),
      k_norm.clip_weights(model.network, weight_norm=weight_norm, order=order),
      private=True, noise_order=order)


def bassily(model: Model, loss: LipschitzLoss, *, radius: float) -> Method:
  """DP-SGD of Bassily et al.: gradients bounded by a Lipschitz loss. DP-15.

  Algorithm 6 of thesis 003; all parameters projected on one ball; noise as in
  `bassily.bassily_plan`.

  Raises:
    ValueError: more than one layer, where nothing is convex.
  """
  num_layers = len(jax.tree.leaves(_network(model).fill(1.0)))
  if num_layers != 1:
    raise ValueError(f'bassily trains models of one layer, this one has '
                     f'{num_layers}')
  bounder = lipschitz_bounder.certified(_network(model), loss,
                                        weight_norm=radius)
  constraint = bassily_lib.project_parameters(model.network, radius=radius)
  return Method('bassily', bounder, constraint, private=True)


def _computed_in(model: Model, compute_dtype: str) -> Callable:
  """The model's `apply` in this type; maps of its weights stay in float32."""
  if model.effective is None:
    return precision.computed_in(model.apply, compute_dtype)
  network = precision.computed_in(_network(model).apply, compute_dtype)
  return lambda params, x: network(model.effective(params)[0], x)


def _clipping_method(name: str, bounder: GradientBounder) -> Method:
  return Method(name, bounder, bounders.no_constraint(), private=True)


def _lipschitz_method(name: str, model: Model, bounder: GradientBounder,
                      weight_norm: float) -> Method:
  """ClipWeights, or the weights that the parameters stand for."""
  if model.effective is None:
    return Method(name, bounder, projection.clip_weights(
        model.network, weight_norm=weight_norm), private=True)
  weights = lambda params: model.effective(params)[0]
  return Method(
      name, bounder._replace(sums=lambda params, *rest: bounder.sums(
          weights(params), *rest)),
      bounders.WeightConstraint(
          lambda params: (params, model.effective(params)[1])),
      private=True, pullback=reparametrisation.pullback(weights))


def _network(model: Model) -> Network:
  if model.network is None:
    raise ValueError('the Lipschitz methods need a model that states its '
                     'layers; this one is opaque')
  return model.network
