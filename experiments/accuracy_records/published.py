"""Accuracies that others published for the data sets of the entries."""

import pathlib
import tomllib
from typing import NamedTuple

from experiments import papers

_FILE = pathlib.Path(__file__).parent / 'published.toml'


class Figure(NamedTuple):
  """One published accuracy, without extra data.

  Attributes:
    accuracy: test accuracy in [0, 1].
    epsilon: its budget as printed.
    delta: its delta as printed.
    dataset: name of the data set in this code base.
    work: authors and year.
    where: where it was read.
    primary: whether that is the work itself.
  """
  accuracy: float
  epsilon: float
  delta: float
  dataset: str
  work: str
  where: str
  primary: bool

  def __str__(self) -> str:
    source = '' if self.primary else ', secondary source'
    return (f'{self.accuracy:.3f} at epsilon {self.epsilon:g} '
            f'({self.work}{source})')


def figures() -> tuple[Figure, ...]:
  """Returns all published figures that are known here."""
  with _FILE.open('rb') as file:
    listed = tomllib.load(file)['figure']
  place = papers.PUBLISHED_CURVES_PLACE
  curves = [dict(
      dataset=curve.dataset, work=curve.work, epsilons=curve.epsilons,
      accuracies=curve.accuracies, delta=1e-5, primary=False,
      where=f'{place.source}, {place.item}')
            for curve in papers.PUBLISHED_CURVES]
  return tuple(
      Figure(accuracy, epsilon, each['delta'], each['dataset'], each['work'],
             each['where'], each['primary'])
      for each in (*listed, *curves) for epsilon, accuracy in zip(
          each['epsilons'], each['accuracies'], strict=True))


def best(dataset: str, epsilon: float, delta: float) -> Figure | None:
  """Returns the best figure of a budget that is at most this one, or None."""
  return max((each for each in figures() if each.dataset == dataset and
              each.epsilon <= epsilon and each.delta <= delta), default=None)
