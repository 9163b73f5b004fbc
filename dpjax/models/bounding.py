"""Options that bound the inputs of a convolutional network's layers."""

from collections.abc import Sequence
import dataclasses

from dpjax import errors
from dpjax.lipschitz import normalisation
from dpjax.lipschitz import pointwise
from dpjax.lipschitz.layers import Affine
from dpjax.lipschitz.node import Node

KINDS = ('none', 'ball', 'normalised')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounding:
  """How the inputs of parameter layers are bounded, the same for all layers.

  Attributes:
    kind: 'none' for clipping methods and backward-normalised layers, 'ball'
      for projections on l2 balls before parameter layers (LDP-05),
      'normalised' for Lipschitz group normalisation there (LDP-08).
    radius: public radius of the balls.
    adaptive: whether the radii are learnt as private quantiles (LDP-06).
    alpha: floor of the normalisation's standard deviation (NET-07).
    num_groups: channel groups of the normalisation; 1 is layer normalisation.
    affine: whether a scale and a shift follow each normalisation.
  """
  kind: str = 'none'
  radius: float = 1.0
  adaptive: bool = False
  alpha: float = 1.0
  num_groups: int = 1
  affine: bool = False

  def __post_init__(self) -> None:
    errors.check_choice('bounding', self.kind, KINDS)
    errors.check_scale('radius', self.radius)
    errors.check_scale('alpha', self.alpha)
    errors.check_at_least('num_groups', self.num_groups, 1)

  def before(self, name: str) -> Sequence[Node]:
    """Returns the nodes to put before the parameter layer `name`."""
    if self.kind == 'ball':
      return (pointwise.Ball(name=f'ball_{name}', radius=self.radius,
                             adaptive=self.adaptive),)
    if self.kind == 'normalised':
      return self.norm(f'norm_{name}')
    return ()

  def norm(self, name: str) -> Sequence[Node]:
    """Returns a normalisation: standard for kind 'none', else Lipschitz."""
    if self.kind == 'none':
      plain = normalisation.standard('group', num_groups=self.num_groups,
                                     name=name)
    else:
      plain = normalisation.lipschitz(num_groups=self.num_groups,
                                      alpha=self.alpha, name=name)
    if not self.affine:
      return (plain,)
    return (plain, Affine(name=f'{name}_affine'))
