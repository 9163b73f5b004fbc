"""Rows of this experiment by profile and kind, and values from them."""

from collections.abc import Iterable, Mapping
import dataclasses
import math
from typing import NamedTuple

from experiments import papers
from experiments import records
from experiments.mia_sparsity import sweep

SPARSE = ('magnitude', 'butterfly')
"""Methods that Lalanne (2023, chapter 1) calls sparse."""

DENSE_CONTROLS = ('stopped', 'decayed', 'narrow')
PRIVATE = ('dp_sgd', 'lip_dp_sgd')
METHODS = ('dense', *SPARSE, 'random', *DENSE_CONTROLS, 'sgd', *PRIVATE)
"""All methods, in the order of the tables."""

ATTACKS = ('perceptron', 'loss', 'lira', 'lira_offline', 'rmia')
SHARP = ('lira', 'lira_offline', 'rmia')

DENSE = sweep.Kind(method='dense')

# After 8 prunings ResNet-20 keeps 17.26 % of its weights, after 16 3.38 %.
_PRUNINGS = (8, 16)
_TYPES = {'method': str, 'prunings': int, 'segments': int, 'factors': int}


class Place(NamedTuple):
  """The fields that the id of a row states.

  Attributes:
    profile: name of the profile.
    kind: kind of the network.
    role: role of the network in its pair.
  """
  profile: str
  kind: sweep.Kind
  role: str


def parse(id_: str) -> Place:
  """Returns what an id says; the seed is in its row."""
  cells = dict(pair.split('=', 1)
               for pair in id_.split('/', 1)[1].split(','))
  kind = sweep.Kind(**{
      field.name: _TYPES.get(field.name, float)(cells[field.name])
      for field in dataclasses.fields(sweep.Kind)})
  return Place(cells['profile'], kind, cells['role'])


@dataclasses.dataclass(frozen=True)
class Networks:
  """The networks of a profile.

  Attributes:
    profile: name of the profile.
    dataset: name of the data set.
    values: kind -> metric -> seed -> role -> value.
  """
  profile: str
  dataset: str
  values: Mapping[sweep.Kind, Mapping[str, Mapping[int, Mapping[str, float]]]]

  def kinds(self, *methods: str) -> list[sweep.Kind]:
    """Returns the kinds of these methods that have rows; by default, all."""
    return sorted((kind for kind in self.values
                   if kind.method in (methods or METHODS)), key=_order)

  def each(self, kind: sweep.Kind, metric: str) -> list[float]:
    """Returns the values of single networks, both roles of every pair."""
    return [value for roles in self._seeds(kind, metric).values()
            for value in roles.values()]

  def pairs(self, kind: sweep.Kind, metric: str) -> dict[int, float]:
    """Returns seed -> mean over both roles; independent between seeds."""
    return {seed: sum(roles.values()) / len(roles) for seed, roles
            in sorted(self._seeds(kind, metric).items())}

  def mean(self, kind: sweep.Kind, metric: str) -> float:
    """Returns the mean over `pairs`; raises KeyError without rows."""
    result = self.pairs(kind, metric)
    if not result:
      raise KeyError(f'{label(kind)} of {self.profile} has no {metric}')
    return sum(result.values()) / len(result)

  def has(self, kind: sweep.Kind, *metrics: str) -> bool:
    """Returns whether a kind has rows of all these metrics."""
    return all(self._seeds(kind, metric) for metric in metrics)

  def _seeds(self, kind, metric):
    return self.values.get(kind, {}).get(metric, {})


def collect(rows: Iterable[records.Row]) -> list[Networks]:
  """Returns the profiles that have rows, the richest first."""
  values: dict = {}
  datasets: dict[str, str] = {}
  for row in rows:
    profile, kind, role = parse(row.id)
    datasets[profile] = row.dataset
    values.setdefault(profile, {}).setdefault(kind, {}).setdefault(
        row.metric, {}).setdefault(row.seed, {})[role] = row.value
  order = ('full', 'gpu', 'cpu', 'smoke')
  return [Networks(name, datasets[name], values[name])
          for name in sorted(values, key=order.index)]


def claimed(networks: Networks, *, window: bool = False) -> list[sweep.Kind]:
  """Returns the sparse kinds that Lalanne (2023) says defend better.

  They keep at most 17.3 % of the weights; ResNet-20 does after 8 prunings. In
  smaller networks a larger part is never pruned. Pruned networks are therefore
  selected by their number of prunings, and butterflies by that percentage.

  Args:
    networks: networks of the profile.
    window: True to leave out networks with less than 3.4 % of the weights, that
      is after more than 16 prunings, because the relative gain is printed for
      the others.
  """
  low, high = papers.SPARSITY.window
  least, most = _PRUNINGS

  def fits(kind):
    if kind.method == 'magnitude':
      return least <= kind.prunings <= (most if window else math.inf)
    share = round(networks.mean(kind, 'nonzero'), 3)
    return (low if window else 0.0) <= share <= high

  return [kind for kind in networks.kinds(*SPARSE)
          if networks.has(kind, 'nonzero') and fits(kind)]


def label(kind: sweep.Kind) -> str:
  """Returns the name of a kind in tables."""
  if kind.method == 'sgd' and kind.stop < 1:
    return f'sgd, stopped at {100 * kind.stop:g} %'
  return {
      'magnitude': f'magnitude, k = {kind.prunings}',
      'random': f'random, k = {kind.prunings}',
      'butterfly': f'butterfly, S = {kind.segments}, L = {kind.factors}',
      'narrow': f'narrow, {kind.segments} channels',
      'stopped': f'stopped at {100 * kind.stop:g} %',
      'decayed': f'decayed, x {kind.decay:g}',
  }.get(kind.method, kind.method if kind.method not in PRIVATE
        else f'{kind.method}, epsilon = {kind.epsilon:g}')


def _order(kind: sweep.Kind) -> tuple:
  return (METHODS.index(kind.method), kind.prunings, kind.segments,
          kind.factors, -kind.stop, kind.decay, kind.epsilon)
