"""Errors of private quantiles in settings of one's own.

Every estimator of `dpjax.stats.quantiles` on a law or on records drawn from a
file, over n, epsilon, how many orders and how much noise separates records
(spec, section 7). What `launch.quantiles` runs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import csv
import dataclasses
import io
import itertools
import math
import pathlib
import time

import numpy as np

from dpjax import errors
from dpjax.data import series
from dpjax.privacy.adjacency import Adjacency
from dpjax.report import files
from dpjax.stats.quantiles import api
from dpjax.stats.quantiles import histogram
from dpjax.stats.quantiles import independent
from dpjax.stats.quantiles import joint
from dpjax.stats.quantiles import knots
from dpjax.stats.quantiles import recursive
from dpjax.stats.quantiles import smoothing
from dpjax.stats.quantiles import trees
from dpjax.stats.quantiles import unbounded
from dpjax.stats.quantiles.mechanism import QuantileMechanism
from experiments import points
from experiments import quantile_laws
from experiments import quantile_trials

# Of `Options.recursion`: cost and budget.
RECURSIONS = {'depth': ('real', 'depth'), 'printed': ('rounded', 'printed'),
              'kaplan': ('real', 'printed')}
_SMOOTHED = {'hs_uniform': 'uniform', 'hs_gaussian': 'gaussian',
             'hs_laplace': 'laplace'}
_METRICS = ('value_sup', 'value_sup_se', 'rank_sup', 'rank_mean')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """What methods are told besides a setting.

  Attributes:
    cost: of independent draws, one of `independent.COSTS`.
    recursion: of RecExp, one of `RECURSIONS`.
    bins: of the histogram; 0 for as many as n and epsilon bear.
    post: of the histogram, one of `histogram.POSTS`; not of that many bins.
    knots: of knots.
    floor: of noise that separates records, as a share of the range.
  """
  cost: str = 'real'
  recursion: str = 'depth'
  bins: int = 0
  post: str = 'isotonic'
  knots: int = 5
  floor: float = smoothing.FLOOR

  def __post_init__(self):
    errors.check_choice('cost', self.cost, independent.COSTS)
    errors.check_choice('recursion', self.recursion, RECURSIONS)
    errors.check_choice('post', self.post, histogram.POSTS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One line of the table.

  Attributes:
    law: name, or file:column.
    method: one of `METHODS`.
    num_orders: m.
    num_examples: n.
    epsilon: of all orders together.
    sigma: standard deviation of noise that separates records; NaN where there
      is none, or where the floor decides.
    adjacency: which data sets are neighbours, by name.
    first: the least order is first + (last - first) / (m + 1).
    last: and the others follow evenly.
    repetitions: data sets, the same for all methods.
    seed: of data and coins.
    variant: the options that the method reads.
  """
  law: str
  method: str
  num_orders: int
  num_examples: int
  epsilon: float
  sigma: float
  adjacency: str
  first: float
  last: float
  repetitions: int
  seed: int
  variant: str

  @property
  def probs(self) -> np.ndarray:
    """Orders [m]."""
    share = np.arange(1, self.num_orders + 1) / (self.num_orders + 1)
    return self.first + (self.last - self.first) * share

  @property
  def cells(self) -> list[str]:
    """As a line of a file begins."""
    return [str(value) for value in dataclasses.astuple(self)]


COLUMNS = (*(field.name for field in dataclasses.fields(Setting)), *_METRICS,
           'seconds')


def _recursive(options: Options, public: dict) -> QuantileMechanism:
  cost, budget = RECURSIONS[options.recursion]
  return recursive.RecursiveQuantiles(cost=cost, budget=budget, **public)


def _histogram(options: Options, public: dict, size: int) -> QuantileMechanism:
  if not options.bins:
    return histogram.coarse(num_examples=size, **public)
  return histogram.HistogramQuantiles(num_bins=options.bins, post=options.post,
                                      **public)


def _unbounded(public: dict) -> QuantileMechanism:
  kept = {name: public[name] for name in ('probs', 'epsilon', 'adjacency')}
  return unbounded.UnboundedQuantiles(bound=public['lower'], **kept)


# (setting, options, public numbers) -> mechanism, and the option in a name.
_MADE: Mapping[str, tuple[Callable[..., QuantileMechanism], str]] = {
    'ind': (lambda s, o, p: independent.IndependentQuantiles(
        cost=o.cost, **p), 'cost'),
    'rec': (lambda s, o, p: _recursive(o, p), 'recursion'),
    'joint': (lambda s, o, p: joint.JointQuantiles(**p), ''),
    'inverse': (lambda s, o, p: joint.InverseQuantiles(**p), ''),
    **dict.fromkeys(_SMOOTHED, (lambda s, o, p: smoothing.Smoothed(
        inner=joint.JointQuantiles(**p), kind=_SMOOTHED[s.method],
        sigma=None if math.isnan(s.sigma) else s.sigma, floor=o.floor),
        'floor')),
    'rec_floor': (lambda s, o, p: smoothing.Smoothed(
        inner=_recursive(o, p), floor=o.floor), 'recursion'),
    'hist': (lambda s, o, p: _histogram(o, p, s.num_examples), 'post'),
    'tree': (lambda s, o, p: trees.TreeQuantiles(**p), ''),
    'knots': (lambda s, o, p: knots.KnotQuantiles(
        make=joint.JointQuantiles, knots=o.knots, **p), 'knots'),
    'unbounded': (lambda s, o, p: _unbounded(p), ''),
}
METHODS = ('emp', *_MADE)


def law_of(name: str, data_dir: str | None = None, *,
           lower: float | None = None,
           upper: float | None = None) -> quantile_laws.Law:
  """A law by its name, or the records of a column as file.csv:column.

  Args:
    name: see `quantile_laws`, or a path, a colon and a column.
    data_dir: folder of the data sets of laws that are files.
    lower: public bound; needed for a file of one's own.
    upper: likewise.
  """
  path, colon, column = name.rpartition(':')
  if colon:
    if lower is None or upper is None:
      raise ValueError('a file needs public bounds: --lower and --upper')
    return quantile_laws.empirical(name, series.read(
        path, column, lower=lower, upper=upper))
  found = quantile_laws.law(name, data_dir)
  return dataclasses.replace(
      found, lower=found.lower if lower is None else lower,
      upper=found.upper if upper is None else upper)


def settings(options: Options, *, laws: Sequence[str], methods: Sequence[str],
             num_orders: Sequence[int], sizes: Sequence[int],
             epsilons: Sequence[float], sigmas: Sequence[float],
             **shared) -> list[Setting]:
  """All combinations; the same once, where a method does not read a value."""
  found = {}
  for law, method, count, size, epsilon in itertools.product(
      laws, methods, num_orders, sizes, epsilons):
    errors.check_choice('method', method, METHODS)
    name = _MADE[method][1] if method in _MADE else ''
    variant = f'{name}={getattr(options, name)}' if name else ''
    if method == 'hist':
      variant = f'bins={options.bins} {variant}' if options.bins else 'bins=0'
    for sigma in (sigmas if method in _SMOOTHED else ()) or (math.nan,):
      setting = Setting(
          law=law, method=method, num_orders=count, num_examples=size,
          epsilon=math.inf if method == 'emp' else epsilon, sigma=sigma,
          variant=variant, **shared)
      found.setdefault(tuple(setting.cells), setting)
  return list(found.values())


def asked(setting: Setting, law: quantile_laws.Law,
          options: Options) -> quantile_trials.Asked:
  """What a setting draws; refuses what it cannot."""
  errors.check_at_least('repetitions', setting.repetitions, 2)
  errors.check_at_least('num_orders', setting.num_orders, 1)
  errors.check_at_least('num_examples', setting.num_examples, 1)
  if not 0 <= setting.first < setting.last <= 1:
    raise ValueError('orders must lie within [0, 1], got '
                     f'{setting.first} to {setting.last}')
  if setting.method == 'emp':
    return quantile_trials.without_privacy(setting.probs)
  public = dict(probs=tuple(setting.probs.tolist()), epsilon=setting.epsilon,
                lower=law.lower, upper=law.upper,
                adjacency=Adjacency(setting.adjacency))
  made = _MADE[setting.method][0](setting, options, public)
  made.check_size(setting.num_examples)
  return quantile_trials.asked(made)


def caution(setting: Setting) -> str:
  """Why errors of a setting may be of no use to anyone; '' if they are."""
  if setting.method == 'ind' and setting.num_orders > 100:
    return 'each order has less than a hundredth of epsilon'
  if setting.method in ('joint', 'inverse', *_SMOOTHED) and (
      setting.num_orders > api.joint_limit(
          setting.num_examples, epsilon=setting.epsilon,
          adjacency=Adjacency(setting.adjacency))):
    return 'so many orders may be drawn to empty space at the ends of the range'
  return ''


def run(wanted: Sequence[Setting], laws: Mapping[str, quantile_laws.Law],
        options: Options) -> Iterator[tuple[Setting, dict[str, float]]]:
  """Yields settings with their errors; all are checked before the first."""
  drawn = [asked(setting, laws[setting.law], options) for setting in wanted]
  for setting, each in zip(wanted, drawn, strict=True):
    start = time.perf_counter()
    found = quantile_trials.measure(
        laws[setting.law], setting.probs, each,
        method=f'{setting.method}/{setting.variant}/{setting.sigma}',
        num_examples=setting.num_examples, repetitions=setting.repetitions,
        seed=setting.seed)
    yield setting, {**{name: float(found[name]) for name in _METRICS},
                    'seconds': time.perf_counter() - start}


def resume(path: pathlib.Path, wanted: Sequence[Setting],
           laws: Mapping[str, quantile_laws.Law], options: Options,
           tell: Callable[[int, int, Setting], None]) -> list[points.Point]:
  """Measures settings without a line in a file, adds theirs, and returns all.

  Args:
    path: the file; written anew after every setting.
    wanted: settings.
    laws: by name.
    options: of methods.
    tell: (how many are done, of how many, setting).
  """
  known = load(path)
  missing = [each for each in wanted if tuple(each.cells) not in known]
  for done, (setting, values) in enumerate(run(missing, laws, options), 1):
    known[tuple(setting.cells)] = values
    save(path, known)
    tell(done, len(missing), setting)
  return [points.Point(vars(each), dict(known[tuple(each.cells)]))
          for each in wanted]


def load(path: pathlib.Path) -> dict[tuple[str, ...], dict[str, float]]:
  """Lines of a file, by setting; refuses a file of something else."""
  if not path.exists():
    return {}
  lines = list(csv.reader(io.StringIO(path.read_text(), newline='')))
  if not lines or tuple(lines[0]) != COLUMNS:
    raise ValueError(f'{path} is no file of this command: remove it')
  size = len(dataclasses.fields(Setting))
  return {tuple(line[:size]): dict(zip(
      COLUMNS[size:], map(float, line[size:]), strict=True))
          for line in lines[1:]}


def save(path: pathlib.Path,
         found: Mapping[tuple[str, ...], Mapping[str, float]]) -> None:
  """Writes all lines by renaming."""
  text = io.StringIO(newline='')
  writer = csv.writer(text, lineterminator='\n')
  writer.writerow(COLUMNS)
  for cells, values in found.items():
    writer.writerow([*cells, *(repr(value) for value in values.values())])
  files.replace(path, text.getvalue().encode())
