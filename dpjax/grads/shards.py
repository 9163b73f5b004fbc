"""Parameters of which each device of a mesh has a part.

Devices that share the rows of a batch may share the parameters too: fully
sharded data parallelism. A device then collects a parameter from all devices
where an operation reads it, in the backward pass once more, and adds up only
its part of the sum of clipped gradients. A parameter that is stacked over the
steps of a `lax.scan` is collected step by step.

A record's gradient is on one device, for all parameters. So its norm needs no
communication, and clipping is that of one device.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
from typing import Any, NamedTuple

import jax
from jax.extend import core
import jax.numpy as jnp

from dpjax.grads import jaxprs
from dpjax.grads.jaxprs import Values
from dpjax.typing import Array, Params, PyTree

CASTS = ('convert_element_type', 'copy', 'copy_p', 'optimization_barrier')
"""Operations that can be applied to the part of a parameter."""

# Collected parameters, also rearranged, are not kept for the backward pass.
_NOT_KEPT = ('all_gather', 'broadcast_in_dim', 'reshape', 'squeeze',
             'transpose', *CASTS)


@functools.partial(jax.tree_util.register_dataclass, data_fields=['value'],
                   meta_fields=['axis', 'dim'])
@dataclasses.dataclass(frozen=True)
class Part:
  """The part of a parameter that this device has.

  Attributes:
    value: the part.
    axis: name of the mesh axis over which the parameter is divided.
    dim: the dimension that is divided, counted from the last one, -1. So a
      slice along the first dimension has the same.
  """
  value: Array
  axis: str
  dim: int

  def whole(self) -> Array:
    """Returns the parameter, collected from all devices."""
    return _collected(self.value, self.axis, self.dim)


def _collected(value: Array, axis: str, dim: int) -> Array:
  return jax.lax.all_gather(value, axis, axis=value.ndim + dim, tiled=True)


class Shards(NamedTuple):
  """How parameters are divided over devices.

  Attributes:
    axis: name of the mesh axis of the devices that share the records; '' if no
      parameter is divided over it.
    dims: for the number of each leaf that is, the divided dimension, counted
      from the last one, -1.
    is_tensor: whether JAX divides operations over other axes of the mesh. Then
      gradients of small parameters must not be joined in one array: this would
      send them between devices.
  """
  axis: str
  dims: Mapping[int, int]
  is_tensor: bool = False

  def parts(self, leaves: Sequence[Array]) -> list[Any]:
    """Returns the leaves, a `Part` for each one that is divided."""
    return [Part(leaf, self.axis, self.dims[i]) if i in self.dims else leaf
            for i, leaf in enumerate(leaves)]

  def wholes(self, params: Params) -> Params:
    """Returns the parameters, collected from all devices."""
    leaves, structure = jax.tree.flatten(params)
    return jax.tree.unflatten(structure, [
        _collected(leaf, self.axis, self.dims[i]) if i in self.dims else leaf
        for i, leaf in enumerate(leaves)])

  def own(self, number: int, total: Array) -> Array:
    """Adds the totals of all devices; returns the own part of their sum.

    Args:
      number: of a leaf. If it is not divided, `total` is returned as it is.
      total: of this device, for the leaf or for a slice along its first
        dimension.
    """
    if number not in self.dims:
      return total
    return jax.lax.psum_scatter(
        total, self.axis, scatter_dimension=total.ndim + self.dims[number],
        tiled=True)

  def owns(self, totals: Params) -> Params:
    """Returns `own` of each leaf."""
    leaves, structure = jax.tree.flatten(totals)
    return jax.tree.unflatten(structure, [
        self.own(i, leaf) for i, leaf in enumerate(leaves)])


WHOLE = Shards('', {})
"""Every device has all parameters."""


def whole(value: Any) -> Any:
  """Returns a value, collected if it is a `Part`."""
  return value.whole() if isinstance(value, Part) else value


def shape_of(value: Any) -> Any:
  """Returns the shape and type of a parameter or of the one of a `Part`."""
  return jax.eval_shape(whole, value) if isinstance(value, Part) else value


def inputs_of(equation: core.JaxprEqn, values: Values,
              kept: Sequence[bool] = ()) -> list[Any]:
  """Returns the inputs of an equation; parts are collected.

  Args:
    equation: reads `values`.
    values: by variable; what is collected replaces the part in it.
    kept: for each input whether a part stays one; () for none.
  """
  inputs = []
  for i, var in enumerate(equation.invars):
    value = jaxprs.value_of(values, var)
    if isinstance(value, Part) and not (kept and kept[i]):
      value = values[var] = value.whole()
    inputs.append(value)
  return inputs


def evaluate(equations: Sequence[core.JaxprEqn], values: Values) -> None:
  """Evaluates equations of parameters and adds their outputs to `values`.

  The cast of a part is a part. Parts that others read are collected.
  """
  for equation in equations:
    variables = [var for var in equation.invars
                 if not isinstance(var, core.Literal)]
    first = values[variables[0]] if variables else None
    if isinstance(first, Part) and len(equation.invars) == 1 and (
        equation.primitive.name in CASTS):
      outs = [dataclasses.replace(first, value=out)
              for out in jaxprs.bind(equation, [first.value])]
    else:
      outs = jaxprs.bind(equation, inputs_of(equation, values))
    values.update(zip(equation.outvars, outs, strict=True))


def collected_again(function: Any, leaves: Sequence[Any]) -> Any:
  """Returns a function whose backward pass collects parts once more.

  Args:
    function: reads `leaves`.
    leaves: parameters; if there is no `Part`, the function is returned as it
      is.
  """
  if not any(isinstance(leaf, Part) for leaf in leaves):
    return function
  return jax.checkpoint(function, policy=lambda primitive, *_, **__:
                        primitive.name not in _NOT_KEPT)
