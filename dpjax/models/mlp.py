"""Perceptrons: that of the tables, NET-09, and one that keeps norms."""

from dpjax import errors
from dpjax.lipschitz import layers
from dpjax.lipschitz import orthogonal as orthogonal_weights
from dpjax.lipschitz import pointwise
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network
from dpjax.lipschitz.node import Node
from dpjax.lipschitz.residual import Residual
from dpjax.models import model as models
from dpjax.models.model import Model


def mlp(*, num_features: int, num_classes: int, depth: int = 1,
        width: int = 32, activation: str = 'tanh', use_bias: bool = True,
        bias_norm: float | None = None, input_radius: float | None = None,
        hidden_radius: float | None = None, adaptive: bool = False) -> Model:
  """Returns a perceptron with `depth` hidden layers of `width` units.

  With both radii, the input of every dense layer lies in a ball, so plain
  gradient sums have bounded sensitivity: a sound form of the method of
  Barczewski (2025, section 5.2), with bounded activations (LDP-05). With
  `input_radius` alone, norm bounds are propagated through the layers (LDP-07)
  if biases are bounded or absent. Without radii it is the plain perceptron of
  Definition 2.6.2 there.

  Args:
    num_features: p, the number of features.
    num_classes: c, the number of logits; 1 for a score, see `losses.ordinal`.
    depth: hidden layers, >= 0 (0 is multinomial logistic regression).
    width: units of every hidden layer.
    activation: one of `pointwise.ACTIVATIONS`.
    use_bias: whether layers have biases.
    bias_norm: l2 bound of each bias that Lipschitz methods keep, or None.
    input_radius: public radius of the l2 ball that records are projected on,
      or None.
    hidden_radius: public radius of the l2 ball that hidden activations stay in,
      or None for plain activations.
    adaptive: whether hidden activations are projected on balls whose radii
      start at `hidden_radius` and follow private quantiles (LDP-06).

  Examples:
    >>> from dpjax.models import mlp
    >>> model = mlp.mlp(num_features=4, num_classes=3, width=8)
    >>> params = model.init(jax.random.key(0))  # Public: the start.
    >>> jax.tree.map(jnp.shape, params['dense_00'])
    {'bias': (8,), 'kernel': (4, 8)}
    >>> model.apply(params, jnp.ones([5, 4])).shape
    (5, 3)
  """
  errors.check_at_least('num_features', num_features, 1)
  errors.check_at_least('num_classes', num_classes, 1)
  errors.check_at_least('depth', depth, 0)
  errors.check_at_least('width', width, 1)
  errors.check_choice('activation', activation, pointwise.ACTIVATIONS)
  if hidden_radius is not None:
    errors.check_scale('hidden_radius', hidden_radius)
    # Else the first layer's input and its gradient have no bound.
    if input_radius is None:
      raise ValueError('hidden_radius needs input_radius, or the gradient of '
                       'the first layer has no bound')

  def dense(index: int, units: int) -> layers.Dense:
    return layers.Dense(name=f'dense_{index:02d}', width=units,
                        use_bias=use_bias, bias_norm=bias_norm)

  def act(index: int) -> tuple[Node, ...]:
    name = f'activation_{index:02d}'
    if hidden_radius is None:
      return (pointwise.activation(activation, name=name),)
    # The radius changes between steps, so it is no part of the activation.
    if adaptive:
      return (pointwise.activation(activation, name=name),
              pointwise.Ball(name=f'ball_{index:02d}', radius=hidden_radius,
                             adaptive=True))
    return (pointwise.bounded_activation(activation, hidden_radius,
                                         name=name),)

  nodes: list[Node] = [dense(0, width if depth else num_classes)]
  for index in range(1, depth + 1):
    nodes += [*act(index), dense(index, width if index < depth
                                 else num_classes)]
  return models.from_network(Network(
      root=Chain(name='mlp', nodes=tuple(nodes)),
      input_shape=(num_features,), input_radius=input_radius))


def orthogonal(*, num_features: int, num_classes: int, depth: int, width: int,
               share: float | None = None, input_radius: float = 1.0) -> Model:
  """Returns a perceptron that keeps the norms of records and of cotangents.

  Hidden layers have orthogonal weights, which `layers.Dense` keeps so after
  each step, and sort pairs of units (maxmin); there are no biases. So hidden
  activations have the norm of their record, at least if `width` is not below
  `num_features`, and a cotangent keeps its norm down to the first layer. The
  gradient bound of a hidden layer is then that of the head's input, whatever
  the depth, and records attain it; with other weights or activations, bounds
  stay while gradients shrink with depth.

  A layer adds its noise to the function that is learnt, so many equal layers
  add much. With a `share`, hidden layer k > 1 is (1 - share) x + share f(x):
  its gradient, its bound and its noise have the factor `share`, and the network
  starts near one with a single hidden layer.

  Source: orthogonal layers with sorted units are those of Anil et al. (2019);
  shares and their use for privacy are ours.

  Args:
    num_features: p, the number of features; best with records of one norm.
    num_classes: c, the number of logits; 1 for a score, see `losses.ordinal`.
    depth: hidden layers, >= 1.
    width: units of every hidden layer.
    share: weight in (0, 1) of every hidden layer but the first in a mean with
      its input; None for a plain chain.
    input_radius: public radius of the l2 ball that records are projected on.

  Examples:
    >>> from dpjax.models import mlp
    >>> model = mlp.orthogonal(num_features=4, num_classes=3, depth=9, width=8)
    >>> bounds = model.network.gradient_bounds(
    ...     model.network.fill(1.0), loss_lipschitz=1.0)
    >>> round(float(bounds['dense_00']), 3), round(float(bounds['dense_09']), 3)
    (1.0, 1.0)
  """
  errors.check_at_least('num_features', num_features, 1)
  errors.check_at_least('num_classes', num_classes, 1)
  errors.check_at_least('depth', depth, 1)
  errors.check_at_least('width', width, 2)

  def hidden(index: int) -> tuple[Node, ...]:
    return (layers.Dense(
        name=f'dense_{index:02d}', width=width, use_bias=False, orthogonal=True,
        kernel_init=orthogonal_weights.random_orthogonal),
            pointwise.activation('maxmin', name=f'activation_{index:02d}'))

  nodes = list(hidden(0))
  for index in range(1, depth):
    nodes += hidden(index) if share is None else (Residual(
        name=f'block_{index:02d}', share=share,
        branch=Chain(name='branch', nodes=hidden(index)),
        shortcut=Chain(name='shortcut', nodes=())),)
  nodes.append(layers.Dense(name=f'dense_{depth:02d}', width=num_classes,
                            use_bias=False))
  return models.from_network(Network(
      root=Chain(name='mlp', nodes=tuple(nodes)),
      input_shape=(num_features,), input_radius=input_radius))
