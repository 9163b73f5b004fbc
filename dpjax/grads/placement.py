"""Where a privatizer stands among the transforms of an optax chain.

`loop.fit` puts the privatizer in its place. Who builds a chain of their own has
to put it first, because its noise is scaled to what a `GradientBounder` hands
over: sums to which one record contributes no more than its bound.

A transform before it makes the guarantee void. Momentum and Adam keep exact
sums in their state and carry a record from step to step; Adam divides by the
size of the sums and a learning rate above 1 scales them, so that one record
moves more than the noise is for; clipping the norm of a sum bounds the sum, and
couples blocks whose noise is scaled to the bound of each block alone.
The same holds of what wraps the privatizer: `optax.masked` and
`optax.partition` let sums of the other parameters through without noise,
`optax.MultiSteps` keeps and averages exact sums, and its steps are not those
that are accounted.

A second privatizer costs utility alone: what the first released is public, and
more noise is post-processing of it. So do transforms after the privatizer that
clip, scale or average: they are post-processing, and in place there.
"""

import collections
from collections.abc import Iterator
from typing import Any

import jax
import optax

from dpjax.grads.privatizer import PrivatizerState
from dpjax.typing import Params


def check_chain(transform: optax.GradientTransformation,
                params: Params) -> None:
  """Refuses a chain of which the privatizer is not the first transform.

  For chains of one's own, once, before the first step; it reads the structure
  of the state and computes nothing. Chains in chains are followed where they
  are first.

  Args:
    transform: the whole chain, as its `init` and `update` are called.
    params: parameters, or their shapes; public.

  Raises:
    ValueError: if there is no privatizer, another one, something before it or
      something around it; says what, and whether privacy or utility is lost.

  Examples:
    >>> import optax
    >>> from dpjax.grads import placement, privatizer
    >>> from dpjax.privacy import keys
    >>> noise = privatizer.gaussian_privatizer(
    ...     keys.system_keys(1)[0], noise_multiplier=1.0,
    ...     expected_batch_size=64)
    >>> params = {'kernel': jnp.zeros(3)}
    >>> placement.check_chain(optax.chain(noise, optax.adam(0.1)), params)
    >>> placement.check_chain(optax.chain(optax.adam(0.1), noise), params)
    Traceback (most recent call last):
      ...
    ValueError: ScaleByAdamState comes before the privatizer: what it hands\
 on is no sum of bounded contributions, so that the noise is too little and\
 nothing is private; put the privatizer first in optax.chain
  """
  state = jax.eval_shape(transform.init, params)
  count = sum(isinstance(node, PrivatizerState) for node in _nodes(state))
  if not count:
    raise ValueError('there is no privatizer in the chain: it would use sums '
                     'of records without any noise; put one first in '
                     'optax.chain')
  first = _first(state)
  if isinstance(first, PrivatizerState):
    if count > 1:
      raise ValueError(f'there are {count} privatizers in the chain: that is '
                       'as private as the first of them, but noise is added, '
                       f'and sums are divided, {count} times; leave one')
    return
  name = type(first).__name__
  if isinstance(first, optax.EmptyState):
    name = 'a transform without a state'
  if any(isinstance(node, PrivatizerState) for node in _nodes(first)):
    raise ValueError(
        f'{name} is around the privatizer: it may keep exact sums, let some of '
        'them through without noise or count other steps than those that are '
        'accounted; put the privatizer first in optax.chain, and the rest of '
        'the chain into what is around it')
  raise ValueError(
      f'{name} comes before the privatizer: what it hands on is no sum of '
      'bounded contributions, so that the noise is too little and nothing is '
      'private; put the privatizer first in optax.chain')


def _nodes(state: Any) -> Iterator[Any]:
  """States of privatizers, and all leaves beside them."""
  return iter(jax.tree.leaves(
      state, is_leaf=lambda node: isinstance(node, PrivatizerState)))


def _first(state: Any) -> Any:
  """The state of the first transform, into chains but into nothing else."""
  while type(state) in (tuple, collections.OrderedDict) and state:
    named = isinstance(state, dict)
    state = next(iter(state.values())) if named else state[0]
  return state
