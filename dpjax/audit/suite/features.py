"""Audit targets for moments of features that are released with noise.

Data are features of a few records, among them huge and NaN ones. The query is
what gets noise, in units of the sums, so its change between neighbours must not
be above what the event pays for.
"""

from collections.abc import Callable
import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from dpjax.audit import spaces
from dpjax.audit import wrapping
from dpjax.audit.target import Query
from dpjax.audit.target import Target
from dpjax.features.normalisation import PrivateNormalisation
from dpjax.features.whitening import PrivateWhitening
from dpjax.typing import Array, ArrayLike, PRNGKey, PyTree

_SHAPE = (2, 2)
_FAR = (-1e3, 1e3)


def normalisation(mechanism: PrivateNormalisation) -> Target:
  """Returns the target of noisy moments of two places and two channels."""
  return _target(mechanism, mechanism.total, 1)


def whitening(mechanism: PrivateWhitening) -> Target:
  """Returns the target of three noisy sums of two places and two channels.

  Later sums are functions of what was released before. The query joins all
  three, at a mean and a matrix that a release could have given.
  """
  mean = jnp.float32([[0.3, -0.2], [0.1, 0.0]])
  channels = jnp.float32([[2.0, 0.5], [0.5, 1.0]])

  def joined(data: ArrayLike) -> Array:
    of_mean, of_channels, of_places = mechanism.totals(data)
    return jnp.concatenate([of_mean(), of_channels(mean),
                            of_places(mean, channels)])
  return _target(mechanism, joined, 3)


def _target(mechanism: Any, value: Callable[[Any], Array],
            num_sums: int) -> Target:
  """Returns the target of a mechanism that adds noise to so many sums."""
  pairs = [pair for bounds in (None, _FAR) for pair in spaces.Records(
      adjacency=mechanism.adjacency, shape=_SHAPE, bounds=bounds,
      sizes=(mechanism.num_examples,)).pairs()]

  def release(key: PRNGKey, data: PyTree) -> Array:
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(
        mechanism.release(key, data))])

  return dataclasses.replace(wrapping.of_mechanism(
      mechanism, pairs=pairs, query=Query(
          value, math.sqrt(num_sums) * mechanism.noise.l2_sensitivity)),
                             release=release)
