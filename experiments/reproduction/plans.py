"""Which settings of which experiments reproduce a paper."""

from collections.abc import Mapping, Sequence
import pathlib
import random
import shlex
from typing import NamedTuple

from dpjax import errors
from dpjax.report import records
from experiments import engine
from experiments import environment
from experiments import freshness
from experiments import registry
from experiments import rendering
from experiments import selection

ALL = 'all'
QUICK = 'quick'
# To import and to compile, and of what no committed row tells.
_LEAST_SECONDS, _TOY_SECONDS = 10.0, 40.0
# Of a setting in a sample, with those that are trained together with it.
_MOST_SECONDS = 60.0


class Sample(NamedTuple):
  """Some settings of each experiment, drawn by a seed.

  Attributes:
    size: how many.
    seed: others are drawn by another one.
  """
  size: int
  seed: int


class Plan(NamedTuple):
  """What is run of one experiment.

  Attributes:
    experiment: which.
    settings: some of its settings, or of its smoke sweep.
    smoke: whether they are those of the smoke sweep.
    tag: of the settings; None for all.
    seconds: that the committed rows of these settings took, about.
  """
  experiment: registry.Experiment
  settings: tuple[selection.Setting, ...]
  smoke: bool
  tag: str | None
  seconds: float

  @property
  def name(self) -> str:
    """Of the experiment."""
    return self.experiment.name

  @property
  def folder(self) -> str:
    """Where its rows go; toy rows and real ones are different sweeps."""
    return f'{self.name}_smoke' if self.smoke else self.name

  @property
  def command(self) -> str:
    """How to run it alone, without the paths of a machine."""
    words = ['python', '-m', 'launch.sweep', f'--experiment={self.name}']
    words += ['--smoke'] if self.smoke else []
    words += [f'--tag={self.tag}'] if self.tag else []
    return shlex.join(words)


def names(paper: str, only: Sequence[str] = ()) -> list[str]:
  """Returns the experiments of a paper, sorted.

  Args:
    paper: a name of `registry.PAPERS`, or 'all'.
    only: which of them; empty for all.

  Raises:
    ValueError: there is no such paper or experiment, or it is of another one.
  """
  errors.check_choice('paper', paper, (*registry.PAPERS, ALL))
  found = [name for name in sorted(registry.EXPERIMENTS)
           if paper == ALL or paper in registry.load(name).papers]
  for name in only:
    if name not in found:
      of = ', '.join(registry.load(name).papers)
      raise ValueError(f'{name} is of {of}, not of {paper}')
  return [name for name in found if not only or name in only]


def make(name: str, *, quick: bool, sample: Sample | None = None,
         root: pathlib.Path = environment.ROOT) -> Plan:
  """Returns what is run of an experiment.

  Args:
    name: of the experiment.
    quick: whether seconds have to do; otherwise all that needs no GPU.
    sample: which settings are run instead; None for no sample.
    root: of the committed rows, which say how long settings take.
  """
  experiment = registry.load(name)
  if sample is not None:
    return _sampled(experiment, sample, root)
  smoke = quick and experiment.quick_is_smoke
  tag = experiment.reproduce
  if quick:
    tag = QUICK if QUICK in experiment.tags else None
  settings = engine.select(experiment, smoke=smoke, tag=tag)
  return Plan(experiment, settings, smoke, tag,
              _TOY_SECONDS if smoke else _seconds(name, settings, root))


def _sampled(experiment: registry.Experiment, sample: Sample,
             root: pathlib.Path) -> Plan:
  """Settings with rows to compare with, of as many kinds as possible.

  Not those of older code, nor those trained together for over a minute.
  """
  rows = rendering.read(rendering.results_dir(root, experiment.name))
  took = {row.id: row.wall_s for row in rows}
  old = {id_ for ids in freshness.older(experiment, rows).values()
         for id_ in ids}
  pool = []
  for group in selection.groups(experiment.settings, experiment.batched):
    ids = [selection.setting_id(experiment.name, setting)
           for setting in group]
    if sum(took.get(id_, 0.0) for id_ in ids) <= _MOST_SECONDS:
      pool += [setting for setting, id_ in zip(group, ids, strict=True)
               if id_ in took and id_ not in old]
  random.Random(f'{sample.seed} {experiment.name}').shuffle(pool)
  seen: dict[str, int] = {}
  rank = {}
  for setting in pool:
    kind = selection.kind(setting)
    rank[setting] = seen[kind] = seen.get(kind, 0) + 1
  chosen = set(sorted(pool, key=rank.__getitem__)[:sample.size])
  settings = tuple(setting for setting in experiment.settings
                   if setting in chosen)
  return Plan(experiment, settings, False, None,
              _seconds(experiment.name, settings, root))


def share(chosen: Mapping[str, Plan], index: int,
          count: int) -> dict[str, Plan]:
  """Returns one of `count` parts of plans that take about equally long.

  Args:
    chosen: all plans, by name.
    index: which part, from 1 to `count`.
    count: of parts.
  """
  parts: list[list[Plan]] = [[] for _ in range(count)]
  for plan in sorted(chosen.values(), key=lambda plan: -plan.seconds):
    min(parts, key=lambda part: sum(each.seconds for each in part)).append(plan)
  names_ = {plan.name for plan in parts[index - 1]}
  return {name: plan for name, plan in chosen.items() if name in names_}


def _seconds(name: str, settings: Sequence[selection.Setting],
             root: pathlib.Path) -> float:
  path = rendering.results_dir(root, name) / engine.ROWS
  rows = records.read(path) if path.exists() else []
  took = {row.id: row.wall_s for row in rows}
  known = [took[id_] for id_ in (selection.setting_id(name, setting)
                                 for setting in settings) if id_ in took]
  return max(sum(known), _LEAST_SECONDS)
