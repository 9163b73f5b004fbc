"""Parametrisations: a network's dense parameters as functions of fewer ones.

A network is a dict of layers. Block i of segment g is named `block_g_i`. Its
3 x 3 convolutions are `conv_0` and `conv_1`, each a dict with a `kernel`
[kh, kw, c_in, c_out]. All other layers stay unchanged.
"""

from collections.abc import Callable, Mapping
import dataclasses
import re

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax import tree
from dpjax.typing import Params, PRNGKey, PyTree
from experiments.methods.sparsity import chains
from experiments.methods.sparsity import deformable

_BLOCK = re.compile(r'block_(\d+)_\d+')
_CONVOLUTIONS = ('conv_0', 'conv_1')


@dataclasses.dataclass(frozen=True)
class Parametrisation:
  """Trained parameters, and their map to the network's dense parameters.

  Attributes:
    init: maps a key to the trained parameters of one network.
    effective: maps trained to dense parameters; differentiable, and works for
      many networks under `jax.vmap`.
    num_parameters: number of trained parameters.
    num_dense: number of dense parameters of the network.
  """
  init: Callable[[PRNGKey], Params]
  effective: Callable[[Params], Params]
  num_parameters: int
  num_dense: int


def dense(init: Callable[[PRNGKey], Params]) -> Parametrisation:
  """Returns the parametrisation that trains all parameters directly."""
  size = tree.count(_shapes(init))
  return Parametrisation(init=init, effective=lambda params: params,
                         num_parameters=size, num_dense=size)


def butterfly(init: Callable[[PRNGKey], Params], *, segments: int,
              num_factors: int) -> Parametrisation:
  """Returns the parametrisation with butterfly factors in the last segments.

  The 3 x 3 convolutions of their blocks use the monotone chain with the fewest
  parameters; {'factors': ...} replaces {'kernel': ...}. Lalanne (2023, Table
  1.1), item MIA-08.

  Args:
    init: maps a key to the dense parameters of one network.
    segments: S, the number of last segments to factorise.
    num_factors: L, the number of factors of each matrix.

  Raises:
    ValueError: the network has fewer segments, or a kernel has no such chain.
  """
  shapes = _shapes(init)
  kernels = {place: shapes[place[0]][place[1]]['kernel'].shape
             for place in _places(shapes, segments)}
  of_layer = {
      place: chains.smallest_chain(leaving, entering * height * width,
                                   num_factors=num_factors)
      for place, (height, width, entering, leaving) in kernels.items()}

  sizes = [chain.num_parameters for chain in of_layer.values()]

  def init_factors(key: PRNGKey) -> Params:
    rest_key, key = jax.random.split(key)
    # One draw for all layers, cut into their factors.
    drawn = jax.random.uniform(key, (sum(sizes),), jnp.float32, -1.0, 1.0)
    return _replace(init(rest_key), {
        place: {'factors': deformable.scaled(part, chain)}
        for part, (place, chain) in zip(jax.lax.split(drawn, sizes),
                                        of_layer.items())})

  def effective(params: Params) -> Params:
    return _replace(params, {
        (block, name): {'kernel': deformable.kernel(
            params[block][name]['factors'], shape)}
        for (block, name), shape in kernels.items()})

  return Parametrisation(
      init=init_factors, effective=effective,
      num_parameters=tree.count(_shapes(init_factors)),
      num_dense=tree.count(shapes))


def _shapes(init: Callable[[PRNGKey], Params]) -> PyTree:
  """Returns the shapes of the parameters without computing them."""
  return jax.eval_shape(lambda: init(jax.random.key(0)))


def _places(shapes: PyTree, segments: int) -> list[tuple[str, str]]:
  """Returns (block, layer) of the convolutions of the last segments."""
  segment_of = {name: int(match[1]) for name in sorted(shapes)
                if (match := _BLOCK.fullmatch(name))}
  total = len(set(segment_of.values()))
  errors.check_at_least('segments', segments, 1)
  if segments > total:
    raise ValueError(f'segments must be at most the {total} of the network, '
                     f'got {segments}')
  return [(block, name) for block, segment in segment_of.items()
          if segment >= total - segments for name in _CONVOLUTIONS]


def _replace(params: Params,
             layers: Mapping[tuple[str, str], PyTree]) -> Params:
  """Returns a copy of the parameters with new (block, layer) entries."""
  blocks = {block: dict(params[block]) for block, _ in layers}
  for (block, name), layer in layers.items():
    blocks[block][name] = layer
  return {**params, **blocks}
