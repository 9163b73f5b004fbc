"""A model with lower and upper bounds of its risk, for planning.

`dpjax bounds` prints studies, and experiments draw their curves from them.
"""

from collections.abc import Callable, Mapping
import dataclasses
from typing import NamedTuple

from dpjax.theory.minimax import bounds
from dpjax.theory.minimax.bounds import Bound
from dpjax.theory.minimax.bounds import Guarantee


class Upper(NamedTuple):
  """The largest risk of an estimator over the class.

  Attributes:
    value: the risk, or an upper bound of it.
    name: name of the estimator.
    exact: True if `value` is the risk itself, False if it is a proven bound.
  """
  value: float
  name: str
  exact: bool


class Parameter(NamedTuple):
  """A public number of a model.

  Attributes:
    default: default value.
    help: meaning, with its unit.
  """
  default: float
  help: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
  """A model, its loss, and bounds of its risk.

  Functions take the parameters by name. All but `trivial` take `num_examples`;
  `lower` and `upper` also take a `guarantee`.

  Attributes:
    name: name of the model.
    help: what is estimated, over which class, in one line.
    loss: name of the loss, such as 'squared error'.
    parameters: public parameters by name.
    lower: returns all lower bounds that hold for the guarantee.
    upper: returns the estimators that keep the guarantee.
    non_private: returns the smallest risk without privacy, or the least known.
    trivial: returns the risk of the best constant.
    notions: types of guarantees that `upper` has estimators for.

  Examples:
    >>> from dpjax.privacy.notions import PureDP
    >>> from dpjax.theory.parametric import studies
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
    """Returns the largest lower bound, at most the risk of the best constant.
    """
    lowers = self.lower(num_examples=num_examples,
                        guarantee=bounds.simplest(guarantee), **parameters)
    return bounds.best(lowers, trivial=self.trivial(**parameters))

  def best_upper(self, *, num_examples: int, guarantee: Guarantee,
                 **parameters: float) -> Upper:
    """Returns the estimator of least risk, possibly the best constant."""
    uppers = self.upper(num_examples=num_examples,
                        guarantee=bounds.simplest(guarantee), **parameters)
    constant = Upper(self.trivial(**parameters), 'best constant', True)
    return min((*uppers, constant), key=lambda upper: upper.value)
