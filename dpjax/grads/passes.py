"""Inputs and cotangents of sites, and sites that are run in several steps.

A parameter in a loop is either stacked over its steps (layers), each of which
reads its own slice, or all steps read the same (recurrent networks).
"""

from collections.abc import Sequence
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax.grads import precision
from dpjax.grads.contractions import Layer
from dpjax.grads.lookups import Table
from dpjax.grads.sites import Site
from dpjax.grads.tracing import Program
from dpjax.typing import Array, PyTree


class Pass(NamedTuple):
  """Inputs and cotangents of the outputs of a site.

  Arrays [*site.lengths, b, ...].
  """
  inputs: Sequence[Array]
  cotangents: Sequence[Array]


def backward(program: Program, leaves: Sequence[Array], records: PyTree,
             kept: Array) -> tuple[Array, list[Pass]]:
  """Returns the losses [b], and inputs and cotangents of each site.

  Cotangents are gradients by zeros that are added to the outputs of the sites.
  Gradients by parameters are not requested, so they are not computed. Leaves
  may be parts of parameters, see `shards`.
  """
  at_sites = program.at_sites(leaves)
  record = jax.tree.leaves(records)
  # The axis of records comes after those of loops, as loops make it.
  axes = [len(site.lengths) for site in program.sites]
  run = jax.vmap(program.run, (None, 0, axes), (0, axes))

  def total_loss(taps: PyTree) -> tuple[Array, PyTree]:
    losses, inputs = run(at_sites, record, taps)
    # A record that does not count may be NaN, and 0 NaN is NaN.
    return jnp.sum(jnp.where(kept, losses, 0.0)), (losses, inputs)

  zeros = [[None if tap is None or site.same else jnp.zeros(
      (*site.lengths, *kept.shape, *tap.shape), tap.dtype)
            for tap in site.taps()] for site in program.sites]
  cotangents, (losses, inputs) = jax.grad(total_loss, has_aux=True)(zeros)
  settled = precision.settled([[value for value in values if value is not None]
                               for values in cotangents])
  for i, site in reversed(list(enumerate(program.sites))):
    settled[i] = settled[i + site.same]
  return losses, [Pass(*each) for each in zip(
      precision.settled(inputs), settled, strict=True)]


def pull_back(program: Program, site: Site, numbers: Sequence[int],
              leaves: Sequence[Array], inputs: Sequence[Array],
              cotangents: Sequence[Array]) -> list[Array]:
  """Returns one record's gradients through a site by some of its leaves."""
  if program.is_wide(site):
    leaves, inputs, cotangents = jax.tree.map(
        precision.widened, (list(leaves), list(inputs), list(cotangents)))

  def outputs(own: Sequence[Array]) -> list[Array]:
    every = list(leaves)
    for number, leaf in zip(numbers, own, strict=True):
      every[number] = leaf
    return site.outputs(program.operands(site, every), inputs)

  return jax.vjp(outputs, [leaves[i] for i in numbers])[1](
      list(cotangents))[0]


def over_steps(operation: Layer | Table, count: int) -> Layer | Table:
  """Returns an operation in a loop all of whose steps read one parameter.

  The steps are further positions of one layer.

  Args:
    operation: of one step; values of a record become [count, ...].
    count: number of steps.
  """
  if isinstance(operation, Table):
    return operation._replace(num_sites=count * operation.num_sites)
  layer = operation

  def rows(x: Array, cotangent: Array) -> tuple[Array, Array]:
    x, cotangent = (
        each.transpose((1, 0, 2, 3)).reshape(
            (each.shape[1], count * layer.num_sites, each.shape[3]))
        for each in jax.vmap(layer.rows)(x, cotangent))
    return x, cotangent

  def total(x: Array, cotangent: Array) -> Array:
    x, cotangent = (each.reshape((each.shape[0] * count, *each.shape[2:]))
                    for each in (x, cotangent))
    return layer.total(x, cotangent)

  return layer._replace(rows=rows, total=total, split=None, gram=None,
                        num_sites=count * layer.num_sites)


def arranged(site: Site, each: Pass) -> Pass:
  """Returns the values of a site whose operation is known, records first.

  Steps that read slices of a stacked parameter are the first axis, in front of
  the records; steps that read the same become the axis behind the records:
  [steps, b, more steps, ...].
  """
  count = len(site.lengths)
  if not count:
    return each
  sliced = [i for i in range(count) if site.sliced[0][i]]
  same = [i for i in range(count) if i not in sliced]
  steps = [math.prod(site.lengths[i] for i in axes) for axes in (sliced, same)]

  def move(value: Array) -> Array:
    value = value.transpose((*sliced, count, *same,
                             *range(count + 1, value.ndim)))
    return value.reshape((
        *steps[:1] * bool(sliced), value.shape[len(sliced)],
        *steps[1:] * bool(same), *value.shape[count + 1:]))

  return Pass(*jax.tree.map(move, (list(each.inputs),
                             list(each.cotangents))))
