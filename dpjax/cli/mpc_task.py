"""Networks that are trained on secure sums, with public gradient bounds."""

from collections.abc import Callable
import dataclasses
import functools
import json
import math
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.lipschitz import losses
from dpjax.lipschitz import projection
from dpjax.lipschitz.network import Network
from dpjax.models import mlp
from dpjax.typing import Array, Params

MODELS = ('linear', 'orthogonal')
"""Names of the networks: multinomial logistic regression, `mlp.orthogonal`."""

# Covers float32 rounding of a gradient and of certified norms.
_MARGIN = 1 + 1e-4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
  """The public description of what is trained.

  Attributes:
    model: one of `MODELS`; no layer has a bias, so a feature should be
      constant, as in `features.combining.UnitNorm`.
    num_features: p, entries of a record, of l2 norm at most 1.
    num_classes: c.
    seed: public seed of the starting parameters.
    depth: hidden layers of `orthogonal`.
    width: units of each hidden layer of `orthogonal`.
    weight_norm: bound of the spectral norm of the last layer of `orthogonal`,
      kept by a projection after each step.
  """
  model: str
  num_features: int
  num_classes: int
  seed: int
  depth: int = 1
  width: int = 16
  weight_norm: float = 1.0

  def __post_init__(self) -> None:
    errors.check_choice('model', self.model, MODELS)
    errors.check_seed('seed', self.seed)
    self.network.check_bounds(weight_norm=self.weight_norm,
                              loss_lipschitz=_LOSS.lipschitz)

  @functools.cached_property
  def network(self) -> Network:
    """Returns the network, whose inputs are kept in the unit ball."""
    sizes: dict[str, Any] = dict(num_features=self.num_features,
                                 num_classes=self.num_classes, input_radius=1.0)
    model = (mlp.mlp(**sizes, depth=0, use_bias=False)
             if self.model == 'linear' else
             mlp.orthogonal(**sizes, depth=self.depth, width=self.width))
    assert model.network is not None  # as these constructors set it
    return model.network

  @functools.cached_property
  def gradient_bound(self) -> float:
    """Returns the l2 bound of one record's gradient in all layers together.

    It holds for all parameters that `constrain` returns.
    """
    certificate = self.network.fill(1.0)
    if self.model == 'orthogonal':
      sizes = [self.num_features, *[self.width] * self.depth]
      for index in range(self.depth):
        certificate[f'dense_{index:02d}'] = _retracted_norm(
            max(sizes[index:index + 2]), min(sizes[index:index + 2]))
      certificate[f'dense_{self.depth:02d}'] = self.weight_norm
    return float(self._total_bound(certificate)) * _MARGIN

  def _total_bound(self, certificate: Any) -> Array:
    """Returns the l2 norm of the bounds of all layers."""
    bounds = self.network.gradient_bounds(certificate,
                                          loss_lipschitz=_LOSS.lipschitz)
    return jnp.sqrt(sum(jnp.square(jnp.asarray(bound))
                        for bound in jax.tree.leaves(bounds)))

  @functools.cached_property
  def _unravel(self) -> tuple[np.ndarray, Callable[[Array], Params]]:
    """Returns the starting parameters [d] and the function to their tree."""
    start = self.network.init(jax.random.key(self.seed))  # Public: the start.
    if self.model == 'linear':  # a start at random would only be worse
      start = jax.tree.map(jnp.zeros_like, start)
    flat, unravel = jax.flatten_util.ravel_pytree(start)
    return np.asarray(flat, np.float32), unravel

  @property
  def start(self) -> np.ndarray:
    """Returns the starting parameters, float32 [d]."""
    return self._unravel[0]

  def constrain(self, flat: np.ndarray) -> np.ndarray:
    """Returns parameters [d] within their limits, near the given ones.

    All parties apply it to the parameters of a round, so these need not be
    trusted. Apply it once: hidden layers move further towards orthogonal ones
    each time.
    """
    return np.asarray(self._constrained(flat)[0])

  @functools.cached_property
  def _constrained(self) -> Callable[[Any], tuple[Array, Array]]:
    """Returns the map to constrained parameters [d] and their bound."""
    limits = projection.clip_limits(self.weight_norm)
    unravel = self._unravel[1]  # made outside of the compiled function

    @jax.jit
    def constrained(flat: Array) -> tuple[Array, Array]:
      params, certificate = self.network.constrain(unravel(flat), limits)
      # A linear network has a bound for all weights, so they stay free.
      kept = flat if self.model == 'linear' else (
          jax.flatten_util.ravel_pytree(params)[0])
      return kept, self._total_bound(certificate)

    return constrained

  @functools.cached_property
  def _gradients(self) -> Callable[..., Array]:
    """Returns the map (parameters, x, y) -> gradients [n, d] of the records."""
    unravel = self._unravel[1]

    def loss(flat: Array, x: Array, y: Array) -> Array:
      logits = self.network.apply(unravel(flat), x[jnp.newaxis])
      return _LOSS.values(logits, y[jnp.newaxis])[0]

    # A row is what its owner would get from a backward pass of its own.
    return jax.jit(jax.vmap(jax.grad(loss), (None, 0, 0)))

  def gradients(self, flat: np.ndarray, x: np.ndarray, y: np.ndarray
                ) -> np.ndarray:
    """Returns the gradient of each record's loss, float32 [n, d].

    It is taken at the constrained parameters, whose bound is verified here.

    Args:
      flat: public parameters [d].
      x: secret records [n, p].
      y: secret classes [n].

    Raises:
      ValueError: if the constrained parameters have a larger bound than
        `gradient_bound`, or are not finite.
    """
    kept, bound = self._constrained(flat)
    if not (np.isfinite(kept).all() and float(bound) <= self.gradient_bound):
      raise ValueError('the parameters of this round have a gradient bound of '
                       f'{float(bound):.6g}, not at most the agreed '
                       f'{self.gradient_bound:.6g}')
    # The bounds hold for float32 products; accelerators round to fewer bits.
    with jax.default_matmul_precision('highest'):
      return np.asarray(self._gradients(kept, x, y))

  def accuracy(self, flat: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    """Returns the fraction of records [n, p] with the right class [n]."""
    logits = self.network.apply(self._unravel[1](jnp.asarray(flat)),
                                jnp.asarray(x))
    return float((np.argmax(logits, -1) == y).mean())

  def kernels(self, flat: np.ndarray) -> dict[str, list[list[float]]]:
    """Returns the weights of each layer [in, out] by its name, for JSON."""
    return {name: np.asarray(layer['kernel']).tolist()
            for name, layer in self._unravel[1](jnp.asarray(flat)).items()}

  def to_bytes(self) -> bytes:
    """Returns the fields as JSON, for `task.json` of a study."""
    return json.dumps(dataclasses.asdict(self), sort_keys=True).encode()


_LOSS = losses.cross_entropy()


def _retracted_norm(rows: int, columns: int) -> float:
  """Returns the largest norm that `orthogonal.retract` certifies.

  Its certificate is 1 and a bound of rounding errors, which is largest for
  [rows, columns] weights of which all singular values are 2.
  """
  root = math.sqrt(columns)
  return 1 + 2.0**-24 * (4 * (rows + 8) * columns +
                         2 * root * (2 * (columns + 8) * root + 16))
