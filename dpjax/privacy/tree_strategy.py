"""Binary tree aggregation as a strategy of correlated noise."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import strategies
from dpjax.typing import Array


@dataclasses.dataclass(frozen=True)
class TreeStrategy(strategies.Stacked):
  """Binary tree aggregation: a prefix sum has noise of at most log2 T nodes.

  Step t closes the node of the last 2^v steps, 2^v being the largest power of
  two that divides t + 1, and row t of C sums up this node. Source: Dwork et al.
  (2010); the matrix is that of a binary indexed tree.

  Attributes:
    num_steps: T.
  """
  num_steps: int

  def __post_init__(self) -> None:
    errors.check_at_least('num_steps', self.num_steps, 1)

  @property
  def bands(self) -> None:
    """None: a column reaches all later steps."""
    return None

  @property
  def max_steps(self) -> int:
    """T, the number of steps that it was made for."""
    return self.num_steps

  @property
  def _depth(self) -> int:
    return self.num_steps.bit_length()

  @property
  def norm(self) -> float:
    """Norm of the longest column: step 0 is in a node of each level."""
    return strategies.MARGIN * math.sqrt(self._depth)

  def sensitivity(self, *, num_steps: int, separation: int) -> float:
    """Returns an upper bound on the l2 sensitivity of C g, see `Strategy`.

    A record takes part in k steps in all, and in at most m of the 2^l steps of
    a node; the squares of its numbers in the nodes of a level sum to at most
    k m. Exact for k = 1.
    """
    strategies.check_steps(self, num_steps)
    errors.check_at_least('separation', separation, 1)
    total = -(-num_steps // separation)
    square = sum(total * min(total, -(-2**level // separation))
                 for level in range(num_steps.bit_length()))
    return strategies.MARGIN * math.sqrt(square / self._depth)

  def prefix_deviations(self, num_steps: int) -> np.ndarray:
    """Returns standard deviations [T] of prefix sums, see `Strategy`."""
    strategies.check_steps(self, num_steps)
    nodes = [(step + 1).bit_count() for step in range(num_steps)]
    return self.norm * np.sqrt(np.array(nodes, np.float64))

  def deviations(self, num_steps: int) -> np.ndarray:
    """Returns standard deviations [T] of single steps, see `Strategy`."""
    strategies.check_steps(self, num_steps)
    # A new node replaces one of each lower level.
    nodes = [((step + 1) & -(step + 1)).bit_length() for step in range(
        num_steps)]
    return self.norm * np.sqrt(np.array(nodes, np.float64))

  def _next(self, draw: Array, past: Array, step: Array
            ) -> tuple[Array, Array]:
    end = step + 1
    level = jax.lax.population_count((end & -end) - 1)
    levels = jnp.arange(self._depth, dtype=jnp.int32).reshape(
        -1, *[1] * draw.ndim)
    # The new node replaces those of all lower levels.
    noise = draw - jnp.sum(jnp.where(levels < level, past, 0.0), 0)
    past = jnp.where(levels < level, 0.0,
                     jnp.where(levels == level, draw[None], past))
    return jnp.float32(self.norm) * noise, past
