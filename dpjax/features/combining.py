"""Features made of other features, record by record."""

from collections.abc import Callable
import dataclasses
import math

import jax.numpy as jnp

from dpjax import errors
from dpjax.typing import Array, ArrayLike


@dataclasses.dataclass(frozen=True)
class Composed:
  """Applies feature functions one after the other.

  Attributes:
    functions: functions of records [b, ...]; each gets what the one before
      returns.

  Examples:
    >>> from dpjax import features
    >>> both = features.Composed((
    ...     features.Scattering(image_shape=(8, 8, 1)),
    ...     features.GroupNormalisation(groups=27)))
    >>> both(np.ones((5, 8, 8, 1), np.float32)).shape
    (5, 2, 2, 81)
  """
  functions: tuple[Callable[[ArrayLike], Array], ...]

  def __call__(self, x: ArrayLike) -> Array:
    """Returns the features [b, ...] of records [b, ...]."""
    result = jnp.asarray(x)
    for function in self.functions:
      result = function(result)
    return result


@dataclasses.dataclass(frozen=True)
class Joined:
  """Joins features of each record, all of them equally large.

  Features of k functions are divided by sqrt(k): if each function returns
  records of norm 1, so does this.

  Guarantee: as that of the functions.

  Attributes:
    functions: functions of records [b, ...] that return [b, p] floats.

  Examples:
    >>> from dpjax.features import combining
    >>> twice = combining.Joined((lambda x: x, lambda x: -x))
    >>> twice(np.float32([[0.6, 0.8]])).round(2)
    Array([[ 0.42,  0.57, -0.42, -0.57]], dtype=float32)
  """
  functions: tuple[Callable[[ArrayLike], Array], ...]

  def __call__(self, x: ArrayLike) -> Array:
    """Returns the features [b, p_1 + ... + p_k] of records [b, ...]."""
    parts = [function(x) for function in self.functions]
    return jnp.concatenate(parts, axis=1) / math.sqrt(len(parts))


@dataclasses.dataclass(frozen=True)
class UnitNorm:
  """Makes records flat, gives them a constant coordinate, and norm 1.

  A linear model on the result needs no bias, and its gradient of a record is as
  large as the record's gradient in the logits: at most sqrt(2) for
  cross-entropy.

  Guarantee: a row of the result is a function of the same row of the records,
  so it costs no privacy budget.

  Attributes:
    constant: the coordinate that is the same for all records before they are
      scaled, positive.

  Examples:
    >>> from dpjax.features import combining
    >>> features = combining.UnitNorm()(np.float32([[2, -2]]))
    >>> [round(float(feature), 3) for feature in features[0]]
    [0.667, -0.667, 0.333]
  """
  constant: float = 1.0

  def __post_init__(self) -> None:
    errors.check_scale('constant', self.constant)

  def __call__(self, x: ArrayLike) -> Array:
    """Returns the features [b, p + 1] of records [b, ...], p values each."""
    records = jnp.asarray(x)
    longer = jnp.pad(records.reshape(records.shape[0], -1), ((0, 0), (0, 1)),
                     constant_values=self.constant)
    return longer / jnp.sqrt(jnp.square(longer).sum(1, keepdims=True))


@dataclasses.dataclass(frozen=True)
class MirrorAverage:
  """Averages the features of each image and of its mirror image.

  A model on them cannot tell an image from its mirror image. That helps where
  both have the same class, as of animals, and not as of digits: features vary
  in fewer directions, so a private model learns less noise.

  Guarantee: as that of `function`, of which each row must be a function of the
  same row of the images.

  Attributes:
    function: function of images [b, h, w, c].

  Examples:
    >>> from dpjax import features
    >>> from dpjax.features import combining
    >>> average = combining.MirrorAverage(
    ...     features.Scattering(image_shape=(8, 8, 3)))
    >>> x = np.random.default_rng(0).random((5, 8, 8, 3), np.float32)
    >>> bool(np.allclose(average(x), average(x[:, :, ::-1]), atol=1e-6))
    True
  """
  function: Callable[[ArrayLike], Array]

  def __call__(self, x: ArrayLike) -> Array:
    """Returns the averaged features [b, ...] of images [b, h, w, c].

    Raises:
      ValueError: if these are no images.
    """
    images = jnp.asarray(x)
    if images.ndim != 4:
      raise ValueError(f'images must have shape [b, h, w, c], got '
                       f'{list(images.shape)}')
    return (self.function(images) + self.function(images[:, :, ::-1])) / 2


@dataclasses.dataclass(frozen=True)
class Logarithm:
  """Maps features x to log(max(x, 0) + offset).

  Scattering coefficients grow with the contrast of an image, and span several
  orders of magnitude. Their logarithms are moved by contrast and are about as
  large as each other, so a linear model needs fewer steps (Anden and Mallat,
  2014, for sounds).

  Guarantee: a row of the result is a function of the same row of the features,
  so it costs no privacy budget.

  Attributes:
    offset: about the size of what is noise in the features, positive.

  Examples:
    >>> from dpjax.features import combining
    >>> combining.Logarithm(0.5)(np.float32([[-1, 0.5]]))
    Array([[-0.6931472,  0.       ]], dtype=float32)
  """
  offset: float

  def __post_init__(self) -> None:
    errors.check_scale('offset', self.offset)

  def __call__(self, x: ArrayLike) -> Array:
    """Returns the logarithms of features of any shape, float32."""
    floats = jnp.asarray(x).astype(jnp.float32)
    return jnp.log(jnp.maximum(floats, 0) + jnp.float32(self.offset))
