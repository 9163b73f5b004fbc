"""A model as one plans for it: what bounds its risk from below and above.

`launch.bounds` prints studies, and experiments draw their curves from them.
"""

from collections.abc import Callable, Mapping
import dataclasses
from typing import NamedTuple

from dpjax.stats.minimax import bounds
from dpjax.stats.minimax.bounds import Bound, Guarantee


class Upper(NamedTuple):
  """The largest risk of an estimator over the class.

  Attributes:
    value: the risk, or more.
    name: of the estimator.
    exact: whether it is the risk itself; else a proven bound of it.
  """
  value: float
  name: str
  exact: bool


class Parameter(NamedTuple):
  """A public number of a model.

  Attributes:
    default: of it.
    help: what it is, with its unit.
  """
  default: float
  help: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
  """A model, its loss, and what is known of its risk.

  Functions take the parameters by name; all but `trivial` take `num_examples`,
  `lower` and `upper` a `guarantee` too.

  Attributes:
    name: of the model.
    help: what is estimated, over which class, in a line.
    loss: as 'squared error'.
    parameters: by name.
    lower: all lower bounds that hold for the guarantee.
    upper: the estimators that keep the guarantee.
    non_private: smallest risk without privacy, or the least known.
    trivial: risk of the best constant.
    notions: types of guarantees that `upper` has estimators for.

  Examples:
    >>> from dpjax.privacy.notions import PureDP
    >>> from dpjax.stats.parametric import studies
    >>> asked = dict(num_examples=1000, guarantee=PureDP(epsilon=0.1))
    >>> study = studies.STUDIES['proportion']
    >>> round(study.best_lower(**asked).value, 6)
    0.000423
    >>> round(study.best_upper(**asked).value, 6)
    0.000423
  """
  name: str
  help: str
  loss: str
  parameters: Mapping[str, Parameter]
  lower: Callable[..., tuple[Bound, ...]]
  upper: Callable[..., tuple[Upper, ...]]
  non_private: Callable[..., float]
  trivial: Callable[..., float]
  notions: tuple[type, ...]

  def best_lower(self, *, num_examples: int, guarantee: Guarantee,
                 **parameters: float) -> Bound:
    """The best of `lower`, of `trivial` at most."""
    found = self.lower(num_examples=num_examples,
                       guarantee=bounds.simplest(guarantee), **parameters)
    return bounds.best(found, trivial=self.trivial(**parameters))

  def best_upper(self, *, num_examples: int, guarantee: Guarantee,
                 **parameters: float) -> Upper:
    """The least of `upper`, and of the best constant."""
    found = self.upper(num_examples=num_examples,
                       guarantee=bounds.simplest(guarantee), **parameters)
    constant = Upper(self.trivial(**parameters), 'best constant', True)
    return min((*found, constant), key=lambda upper: upper.value)
