"""Values of a traced run and what they depend on, and what the run meets."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Value:
  """A value of a run, and what it depends on.

  Attributes:
    array: the value.
    data: whether it depends on data other than through noised values.
    draws: names of the random draws on which it depends, after freezing.
    sites: numbers of the sites whose outputs it depends on.
    order: sites of which it is a noisy score, see `Site.axes`.
    notes: what happened on the way from the data, in words.
    line: line of the code that made it.
  """
  array: Any
  data: bool = False
  draws: frozenset[str] = frozenset()
  sites: frozenset[int] = frozenset()
  order: frozenset[int] = frozenset()
  notes: frozenset[str] = frozenset()
  line: str = ''


@dataclasses.dataclass
class Leaf:
  """Numbers from one call of a sampler."""
  name: str
  family: str
  line: str
  scale: Any = None


@dataclasses.dataclass
class Site:
  """A place where data meet a draw.

  Attributes:
    kind: 'sum' or 'threshold', the latter for a comparison.
    line: file and line of the user's code.
    draws: names of the draws of the noise.
    masks: names of the draws on which the noised value depends.
    sites: earlier sites on which the noised value or the noise depends.
    adaptive: whether the noise depends on earlier sites.
    shape: shape of the output.
    axes: axes over which only the largest noisy value is used.
    scores: False if more than the place of the largest is used.
  """
  kind: str
  line: str
  draws: frozenset[str]
  masks: frozenset[str]
  sites: frozenset[int]
  shape: tuple[int, ...]
  adaptive: bool = False
  axes: tuple[int, ...] | None = None
  scores: bool = True


@dataclasses.dataclass
class Trace:
  """What a run meets, and the arrays to return."""
  frozen: list[Any] | None = None
  use_frozen: Any = False
  leaves: list[Leaf] = dataclasses.field(default_factory=list)
  draws: list[Any] = dataclasses.field(default_factory=list)
  sites: list[Site] = dataclasses.field(default_factory=list)
  values: list[Any] = dataclasses.field(default_factory=list)
  noises: list[Any] = dataclasses.field(default_factory=list)
  outputs: list[Any] = dataclasses.field(default_factory=list)
  scales: dict[str, Any] = dataclasses.field(default_factory=dict)
