"""Plans which settings of which experiments reproduce a paper."""

from collections.abc import Mapping, Sequence
import pathlib
import random
import shlex
from typing import NamedTuple

from dpjax import errors
from dpjax.runs import environment
from dpjax.runs import grouping
from experiments import engine
from experiments import freshness
from experiments import records
from experiments import registry
from experiments import rendering
from experiments import selection

ALL = 'all'
QUICK = 'quick'
# Least estimate of the time of a plan, for imports and compilation; and the
# estimate of a smoke sweep, whose time no committed row records. In seconds.
_LEAST_SECONDS, _TOY_SECONDS = 10.0, 40.0
# Longest time of a group of settings that a sample may draw from.
_MOST_SECONDS = 60.0


class Sample(NamedTuple):
  """Options for drawing random settings of each experiment.

  Attributes:
    size: number of settings of each experiment.
    seed: seed of the draw.
  """
  size: int
  seed: int


class Plan(NamedTuple):
  """The settings of one experiment that a reproduction runs.

  Attributes:
    experiment: the experiment.
    settings: some of its settings, or of its smoke sweep.
    smoke: True if they are of the smoke sweep.
    tag: tag of the settings; None for all.
    seconds: estimated run time, from the committed rows of these settings.
  """
  experiment: registry.Experiment
  settings: tuple[selection.Setting, ...]
  smoke: bool
  tag: str | None
  seconds: float

  @property
  def name(self) -> str:
    """Returns the name of the experiment."""
    return self.experiment.name

  @property
  def folder(self) -> str:
    """Returns the folder of its rows; smoke sweeps have folders of their own.
    """
    return f'{self.name}_smoke' if self.smoke else self.name

  @property
  def command(self) -> str:
    """Returns the command line of this plan alone, without paths of a machine.
    """
    words = ['python', '-m', 'launch.sweep', f'--experiment={self.name}']
    words += ['--smoke'] if self.smoke else []
    words += [f'--tag={self.tag}'] if self.tag else []
    return shlex.join(words)


def names(paper: str, only: Sequence[str] = ()) -> list[str]:
  """Returns the names of the experiments of a paper, sorted.

  Args:
    paper: a name of `registry.PAPERS`, or 'all'.
    only: names to restrict to; empty for all.

  Raises:
    ValueError: there is no such paper or experiment, or the experiment is of
      another paper.
  """
  errors.check_choice('paper', paper, (*registry.PAPERS, ALL))
  available = [name for name in sorted(registry.EXPERIMENTS)
               if paper == ALL or paper in registry.load(name).papers]
  for name in only:
    if name not in available:
      of = ', '.join(registry.PAPERS[each]
                     for each in registry.load(name).papers)
      raise ValueError(f'{name} is of {of}, not of {registry.PAPERS[paper]}')
  return [name for name in available if not only or name in only]


def make(name: str, *, quick: bool, sample: Sample | None = None,
         root: pathlib.Path = environment.ROOT) -> Plan:
  """Returns the plan of an experiment.

  Args:
    name: name of the experiment.
    quick: True for settings that take seconds; False for all settings that
      need no GPU.
    sample: draws random settings instead; None for no sample.
    root: root of the repository, whose committed rows give the run times.
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
  """Returns a plan of random settings that have committed rows to compare with.

  It covers as many kinds as possible. Settings with rows of older code, and
  groups that take over a minute, are left out.
  """
  rows = rendering.read(rendering.results_dir(root, experiment.name))
  seconds_of = {row.id: row.wall_s for row in rows}
  outdated = {id_ for ids in freshness.older(experiment, rows).values()
         for id_ in ids}
  pool = []
  for group in grouping.groups(experiment.settings, experiment.batched):
    ids = [selection.setting_id(experiment.name, setting)
           for setting in group]
    if sum(seconds_of.get(id_, 0.0) for id_ in ids) <= _MOST_SECONDS:
      pool += [setting for setting, id_ in zip(group, ids, strict=True)
               if id_ in seconds_of and id_ not in outdated]
  random.Random(f'{sample.seed} {experiment.name}').shuffle(pool)
  # A setting's rank is its place among those of its kind. Sorting by rank takes
  # one setting of every kind before a second one of any.
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
  """Returns one of `count` parts of the plans, with about equal run times.

  Args:
    chosen: all plans, by name.
    index: number of the part, from 1 to `count`.
    count: number of parts.
  """
  parts: list[list[Plan]] = [[] for _ in range(count)]
  for plan in sorted(chosen.values(), key=lambda plan: -plan.seconds):
    min(parts, key=lambda part: sum(each.seconds for each in part)).append(plan)
  names_ = {plan.name for plan in parts[index - 1]}
  return {name: plan for name, plan in chosen.items() if name in names_}


def _seconds(name: str, settings: Sequence[selection.Setting],
             root: pathlib.Path) -> float:
  """Returns the time of the settings, from their committed rows."""
  path = rendering.results_dir(root, name) / engine.ROWS
  rows = records.read(path) if path.exists() else []
  seconds_of = {row.id: row.wall_s for row in rows}
  known = [seconds_of[id_] for id_ in (selection.setting_id(name, setting)
                                 for setting in settings) if id_ in seconds_of]
  return max(sum(known), _LEAST_SECONDS)
