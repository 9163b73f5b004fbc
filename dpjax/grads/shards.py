"""Parameters of which each device of a mesh has a part.

Devices that share the rows of a batch may share the parameters too: fully
sharded data parallelism. A device then collects a parameter from all devices
where an operation reads it, in the backward pass once more, and adds up only
its part of the sum of clipped gradients. A parameter that is stacked over the
steps of a `lax.scan` is collected step by step.

A record's gradient is on one device, for all parameters. So its norm needs no
communication, and clipping is that of one device.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
from typing import Any, NamedTuple

import jax
from jax.extend import core

from dpjax.grads import jaxprs
from dpjax.grads.jaxprs import Values
from dpjax.typing import Array, Params

CASTS = ('convert_element_type', 'copy', 'copy_p', 'optimization_barrier')
"""Operations that can be applied to the part of a parameter."""


@functools.partial(jax.tree_util.register_dataclass, data_fields=['value'],
                   meta_fields=['axis', 'dim', 'others', 'chain'])
@dataclasses.dataclass(frozen=True)
class Part:
  """The part of a parameter that this device has.

  Attributes:
    value: the part.
    axis: name of the mesh axis over which the parameter is divided.
    dim: the dimension that is divided, counted from the last one, -1. So a
      slice along the first dimension has the same.
    others: for each dimension the other axes over which JAX divides it.
    chain: equations of one input each, applied in order to what is collected.
  """
  value: Array
  axis: str
  dim: int
  others: tuple[Any, ...]
  chain: tuple[core.JaxprEqn, ...] = ()

  def whole(self) -> Array:
    """Returns the parameter, collected from all devices."""
    value = _collected(self.value, self.axis, self.dim, self.others)
    for equation in self.chain:
      value, = jaxprs.bind(equation, [value])
    return value

  def after(self, equation: core.JaxprEqn) -> 'Part':
    """Returns the result of an equation whose one input is this part."""
    if equation.primitive.name in CASTS and not self.chain:
      value, = jaxprs.bind(equation, [self.value])
      return dataclasses.replace(self, value=value)
    return dataclasses.replace(self, chain=(*self.chain, equation))


def _collected(value: Array, axis: str, dim: int,
               others: Sequence[Any]) -> Array:
  """Returns the value of `Part.whole` before its chain."""
  return _on_each_part(functools.partial(
      jax.lax.all_gather, axis_name=axis, axis=value.ndim + dim, tiled=True),
                       value, others)


def _on_each_part(function: Callable[[Array], Array], value: Array,
                  others: Sequence[Any]) -> Array:
  """Returns a collective operation of a value that JAX divides over other axes.

  Each part along these axes is exchanged by itself. If JAX divided the
  operation, it would first copy the value to all devices of these axes.

  Args:
    function: the operation.
    value: a parameter, or a slice of it along the first dimension.
    others: see `Part`.
  """
  own = tuple(others)[len(others) - value.ndim:]
  names = {name for entry in own for name in entry or ()}
  if not names:
    return function(value)
  spec = jax.sharding.PartitionSpec(*own)
  return jax.shard_map(function, in_specs=spec, out_specs=spec,
                       axis_names=names, check_vma=False)(value)


class Shards(NamedTuple):
  """How parameters are divided over devices.

  Attributes:
    axis: name of the mesh axis of the devices that share the records; '' if no
      parameter is divided over it.
    dims: for the number of each leaf that is, the divided dimension, counted
      from the last one, -1.
    others: for the number of each of them, for each dimension the other axes
      over which JAX divides it; None for none.
    is_tensor: whether JAX divides operations over other axes of the mesh. Then
      gradients of small parameters must not be joined in one array: this would
      send them between devices.
  """
  axis: str
  dims: Mapping[int, int]
  others: Mapping[int, tuple[Any, ...]]
  is_tensor: bool = False

  def parts(self, leaves: Sequence[Array]) -> list[Any]:
    """Returns the leaves, a `Part` for each one that is divided."""
    return [Part(leaf, self.axis, self.dims[i], self.others[i])
            if i in self.dims else leaf for i, leaf in enumerate(leaves)]

  def wholes(self, params: Params) -> Params:
    """Returns the parameters, collected from all devices."""
    leaves, structure = jax.tree.flatten(params)
    return jax.tree.unflatten(structure, map(whole, self.parts(leaves)))

  def own(self, number: int, total: Array) -> Array:
    """Adds the totals of all devices; returns the own part of their sum.

    Args:
      number: of a leaf. If it is not divided, `total` is returned as it is.
      total: of this device, for the leaf or for a slice along its first
        dimension.
    """
    if number not in self.dims:
      return total
    return _on_each_part(functools.partial(
        jax.lax.psum_scatter, axis_name=self.axis, tiled=True,
        scatter_dimension=total.ndim + self.dims[number]), total,
                         self.others[number])

  def owns(self, totals: Params) -> Params:
    """Returns `own` of each leaf."""
    leaves, structure = jax.tree.flatten(totals)
    return jax.tree.unflatten(structure, [
        self.own(i, leaf) for i, leaf in enumerate(leaves)])


WHOLE = Shards('', {}, {})
"""Every device has all parameters."""


def whole(value: Any) -> Any:
  """Returns a value, collected if it is a `Part`."""
  return value.whole() if isinstance(value, Part) else value


def shape_of(value: Any) -> Any:
  """Returns the shape and type of a parameter or of the one of a `Part`."""
  return jax.eval_shape(whole, value) if isinstance(value, Part) else value


def bind(equation: core.JaxprEqn, inputs: Sequence[Any]) -> list[Any]:
  """Evaluates an equation, of which inputs may be parts.

  They are collected for it alone, and collected again in the backward pass.
  The barrier makes XLA wait for the other inputs. Else it may collect the
  parameters of all layers before the first one reads its own.
  """
  if not any(isinstance(value, Part) for value in inputs):
    return jaxprs.bind(equation, inputs)
  return jax.checkpoint(lambda given: jaxprs.bind(equation, [
      whole(value) for value in given]))(
          jax.lax.optimization_barrier(list(inputs)))


def evaluate(equations: Sequence[core.JaxprEqn], values: Values) -> None:
  """Evaluates equations of parameters and adds their outputs to `values`.

  What is computed from a single part remains one.
  """
  for equation in equations:
    inputs = [jaxprs.value_of(values, var) for var in equation.invars]
    if len(inputs) == len(equation.outvars) == 1 and isinstance(
        inputs[0], Part):
      outs = [inputs[0].after(equation)]
    else:
      outs = jaxprs.bind(equation, [whole(value) for value in inputs])
    values.update(zip(equation.outvars, outs, strict=True))


@dataclasses.dataclass(frozen=True)
class Divisible:
  """Sums of a gradient bounder that can be computed from parts.

  Attributes:
    function: `GradientBounder.sums` with one more argument, `shards`. For
      parameters that are parts, the total has the own part of the sum over all
      devices.
  """
  function: Callable[..., Any]

  def __call__(self, *args: Any) -> Any:
    """Returns the sums of parameters of which this device has all."""
    return self.function(*args, shards=WHOLE)


def divided(sums: Callable[..., Any], shards: Shards) -> Callable[..., Any]:
  """Returns sums that read and return parts, for use in `jax.shard_map`.

  Args:
    sums: of a gradient bounder. If they are not `Divisible`, all parameters are
      collected for them at once.
    shards: which parameters are parts.
  """
  if isinstance(sums, Divisible):
    return functools.partial(sums.function, shards=shards)

  def collected(params: Params, *rest: Any) -> Any:
    result = sums(shards.wholes(params), *rest)
    return result._replace(total=shards.owns(result.total))

  return collected
