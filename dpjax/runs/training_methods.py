"""The training methods that a run can name, each declared once.

To add a method, write its constructor (in `dpjax.train.methods`) and declare it
in `METHODS`. The choices of `--method`, the checks of options, the network that
the method needs and its default hyperparameters follow from the declaration.
"""

from collections.abc import Callable, Mapping
import dataclasses
import functools
import types

from dpjax.grads.bounder import Method
from dpjax.papers.bassily import bassily
from dpjax.papers.lip_printed import lip_printed
from dpjax.train import methods

_CLIPPED = ('clip_norm', 'microbatch_size', 'compute_dtype')
_ADAPTIVE = ('noise_stddev', 'target_quantile')


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingMethod:
  """What a run must know of a training method.

  Attributes:
    make: constructor (model, loss, **arguments) -> Method.
    arguments: names of the keyword arguments of `make`. They are options of the
      same name, or values that `building` derives from options.
    learning_rate: default learning rate.
    temperature: default divisor of the logits in the loss.
    same_recipe_as: the method whose default hyperparameters are used instead;
      None for its own.
    clips: whether it bounds the gradient of each record by clipping it.
    bounds_weights: whether it bounds the norms of weights, and the cotangents
      of the loss by `logit_clip`.
    projects_records: whether records are projected onto a ball.
    activations: how hidden activations are bounded. 'free', not at all; 'balls'
      projects them onto balls of public radius; 'adaptive_balls' onto balls
      whose radii are private quantiles; 'normalised' uses normalisation layers
      with a bounded Lipschitz constant; 'residual_normalised' does so in
      residual networks only.
    bounds_biases: whether biases are bounded, so that norms can be propagated.
    linear: whether it trains models of one layer only.
    views: whether its bound on a record's contribution also holds for the mean
      over augmented views of the record.
    any_dtype: whether its bound holds whatever the data type of the network's
      arithmetic.
    gaussian: whether it adds Gaussian noise.
    any_sampler: whether the noise of its plan may be calibrated for every
      sampler and correlated over the steps.
    recertifies: whether layers whose norm affects no noise scale may be
      projected in some of the steps only.
    epsilon_valid: whether the epsilon that a run states holds.
  """
  make: Callable[..., Method]
  arguments: tuple[str, ...]
  learning_rate: float
  temperature: float = 1.0
  same_recipe_as: str | None = None
  clips: bool = False
  bounds_weights: bool = False
  projects_records: bool = False
  activations: str = 'free'
  bounds_biases: bool = False
  linear: bool = False
  views: bool = True
  any_dtype: bool = False
  gaussian: bool = True
  any_sampler: bool = True
  recertifies: bool = False
  epsilon_valid: bool = True


_clipping = functools.partial(
    TrainingMethod, arguments=_CLIPPED, learning_rate=2.0, clips=True,
    any_dtype=True)
# With bounded weights the logits are small. Dividing them by 1/2 makes the
# softmax saturate, and so the cotangent of a learnt record vanish, at smaller
# weights.
_lipschitz = functools.partial(
    TrainingMethod, arguments=('weight_norm',), learning_rate=0.8,
    temperature=0.5, bounds_weights=True)
_lip_dp_sgd = functools.partial(
    _lipschitz, make=methods.lip_dp_sgd, projects_records=True,
    arguments=('weight_norm', 'recertify_every'), recertifies=True)

METHODS: Mapping[str, TrainingMethod] = types.MappingProxyType({
    'sgd': TrainingMethod(
        make=methods.sgd, arguments=('compute_dtype',), learning_rate=1.0,
        any_dtype=True, gaussian=False, any_sampler=False),
    'dp_sgd': _clipping(make=methods.dp_sgd),
    'dp_sgd_vmap': _clipping(
        make=functools.partial(methods.dp_sgd, kernel='vmap'),
        same_recipe_as='dp_sgd'),
    'dp_sgd_per_layer': _clipping(make=methods.dp_sgd_per_layer),
    'dp_sgd_automatic': _clipping(
        make=methods.dp_sgd_automatic, learning_rate=1.0),
    'dp_sgd_adaptive': _clipping(
        make=methods.dp_sgd_adaptive, arguments=(
            *_CLIPPED, *_ADAPTIVE, 'clip_blocks')),
    # It clips single views, and its proof is for norms in float32.
    'layer_clipped': _clipping(
        make=methods.layer_clipped, arguments=('clip_norm',), views=False,
        any_dtype=False),
    'lip_dp_sgd': _lip_dp_sgd(activations='balls'),
    'fix_lip_dp_sgd': _lipschitz(
        make=methods.fix_lip_dp_sgd, projects_records=True,
        activations='balls'),
    'lip_normalised': _lipschitz(
        make=methods.lip_normalised, arguments=('weight_norm', 'floor'),
        learning_rate=2.0, activations='residual_normalised'),
    'lip_propagated': _lip_dp_sgd(bounds_biases=True),
    'lip_norm': _lip_dp_sgd(activations='normalised', temperature=1.0),
    # Its noisy counts are of single views, not of records.
    'lip_adaptive': _lipschitz(
        make=methods.lip_adaptive, arguments=('weight_norm', *_ADAPTIVE),
        projects_records=True, activations='adaptive_balls', views=False),
    'lip_k_norm': _lipschitz(
        make=methods.lip_k_norm, arguments=('weight_norm', 'order'),
        temperature=1.0, projects_records=True, activations='balls',
        gaussian=False, any_sampler=False),
    'bassily': _lipschitz(
        make=bassily, arguments=('radius',), temperature=1.0,
        projects_records=True, linear=True, any_sampler=False),
    'lip_printed': TrainingMethod(
        make=lip_printed, arguments=('weight_norm', 'allow_unsound'),
        learning_rate=0.8, views=False, epsilon_valid=False,
        any_sampler=False),
})


def having(attribute: str) -> tuple[str, ...]:
  """Returns the names of the methods of which this attribute is true."""
  return tuple(name for name, method in METHODS.items()
               if getattr(method, attribute))
