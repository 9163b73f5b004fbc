"""Checks that the privatizer comes first in an optax chain.

`loop.fit` puts it there. If you build your own chain, you must put it first,
because its noise is scaled to the output of a `GradientBounder`: sums to which
one record contributes at most its bound.

A transform before the privatizer voids the guarantee:
- Momentum and Adam keep exact sums in their state, and carry a record's
  influence from step to step.
- Adam divides by the size of the sums, and a learning rate above 1 multiplies
  them, so the sensitivity exceeds the one that the noise is for.
- Clipping the norm of a sum couples blocks, whose noise is scaled to the bound
  of each block separately.

A transform around the privatizer voids it too: `optax.masked` and
`optax.partition` pass on sums of the other parameters without noise.
`optax.MultiSteps` keeps and averages exact sums, and its steps are not those
that the accountant counts.

A second privatizer costs utility only: the output of the first is public, and
more noise is post-processing. Transforms that clip, scale or average are
post-processing as well if they come after the privatizer, and belong there.
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
  """Checks that the first transform of a chain is the privatizer.

  Call it once for your own chain, before the first step. It reads the structure
  of the chain's state and computes nothing. A chain may begin with a chain.

  Args:
    transform: the whole chain, whose `init` and `update` you call.
    params: parameters, or their shapes; public.

  Raises:
    ValueError: if there is no privatizer or more than one, or if a transform
      comes before it or wraps it. The message names the transform, and says
      whether privacy or utility is lost.

  Examples:
    >>> import optax
    >>> from experiments.methods.training import placement, privatizer
    >>> from dpjax.privacy import keys
    >>> noise = privatizer.gaussian_privatizer(
    ...     keys.system_keys(1)[0], noise_multiplier=1.0,
    ...     expected_batch_size=64)
    >>> params = {'kernel': jnp.zeros(3)}
    >>> placement.check_chain(optax.chain(noise, optax.adam(0.1)), params)
    >>> placement.check_chain(optax.chain(optax.adam(0.1), noise), params)
    Traceback (most recent call last):
      ...
    ValueError: ScaleByAdamState comes before the privatizer: its output is\
 not a sum of bounded contributions, so the noise is too small and nothing is\
 private; put the privatizer first in optax.chain
  """
  state = jax.eval_shape(transform.init, params)  # Shapes only.
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
                       f'and sums are divided, {count} times; keep one')
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
      f'{name} comes before the privatizer: its output is not a sum of bounded '
      'contributions, so the noise is too small and nothing is private; put '
      'the privatizer first in optax.chain')


def _nodes(state: Any) -> Iterator[Any]:
  """Returns the states of privatizers, and all other leaves."""
  return iter(jax.tree.leaves(
      state, is_leaf=lambda node: isinstance(node, PrivatizerState)))


def _first(state: Any) -> Any:
  """Returns the state of the first transform, also in chains of chains."""
  # Chains have plain tuples or dicts; states of transforms are named tuples.
  while type(state) in (tuple, collections.OrderedDict) and state:
    named = isinstance(state, dict)
    state = next(iter(state.values())) if named else state[0]
  return state
