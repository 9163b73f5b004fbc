"""Studies of the error of private quantiles, in settings the user chooses.

`dpjax quantiles` runs estimators on records drawn from a distribution or a
file, over n, epsilon, the number of quantile levels and the amount of noise
that separates records.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import csv
import dataclasses
import io
import itertools
import math
import pathlib
import time
from typing import Any

import numpy as np

from dpjax import errors
from dpjax.data import series
from dpjax.privacy.adjacency import Adjacency
from dpjax.report import curves
from dpjax.report import files
from dpjax.stats.quantile_methods import api
from dpjax.stats.quantile_methods import histogram
from dpjax.stats.quantile_methods import independent
from dpjax.stats.quantile_methods import joint
from dpjax.stats.quantile_methods import knots
from dpjax.stats.quantile_methods import recursive
from dpjax.stats.quantile_methods import smoothing
from dpjax.stats.quantile_methods import trees
from dpjax.stats.quantile_methods import unbounded
from dpjax.stats.quantile_methods.mechanism import QuantileMechanism
from dpjax.studies import quantile_distributions
from dpjax.studies import quantile_trials
from dpjax.studies.quantile_distributions import Distribution
from dpjax.tables import lines
from dpjax.tables.formats import FileError
from dpjax.tables.formats import Format

# Cost and budget of RecExp for each value of `Options.recursion`.
RECURSIONS = {'depth': ('real', 'depth'), 'printed': ('rounded', 'printed'),
              'kaplan': ('real', 'printed')}
_SMOOTHED = {'hs_uniform': 'uniform', 'hs_gaussian': 'gaussian',
             'hs_laplace': 'laplace'}
_METRICS = ('value_sup', 'value_sup_se', 'rank_sup', 'rank_mean')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """Options of the methods that are the same in all settings.

  Attributes:
    cost: cost of IndExp, one of `independent.COSTS`.
    recursion: variant of RecExp, one of `RECURSIONS`.
    bins: number of histogram bins; 0 to choose it by n and epsilon.
    post: post-processing of the histogram, one of `histogram.POSTS`; ignored if
      `bins` is 0.
    knots: number of knots of 'knots'.
    floor: least half-width of the noise that separates records, as a fraction
      of the range.
  """
  cost: str = 'real'
  recursion: str = 'depth'
  bins: int = 0
  post: str = 'isotonic'
  knots: int = 5
  floor: float = smoothing.FLOOR

  def __post_init__(self) -> None:
    errors.check_choice('cost', self.cost, independent.COSTS)
    errors.check_choice('recursion', self.recursion, RECURSIONS)
    errors.check_choice('post', self.post, histogram.POSTS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One line of the results table.

  Attributes:
    distribution: name of the distribution, or file:column.
    method: one of `METHODS`.
    num_levels: number of quantile levels, m.
    num_examples: n.
    epsilon: privacy budget of all levels together.
    sigma: standard deviation of noise that separates records; NaN if there is
      none, or if the floor decides.
    adjacency: which data sets are neighbours, by name.
    first: level j of m is first + (last - first) j / (m + 1).
    last: see `first`.
    repetitions: number of data sets, the same for all methods.
    seed: seed of data and noise.
    variant: the options that the method reads.
  """
  distribution: str
  method: str
  num_levels: int
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
    """Returns the quantile levels [m], evenly spread from first to last."""
    fractions = np.arange(1, self.num_levels + 1) / (self.num_levels + 1)
    return self.first + (self.last - self.first) * fractions

  @property
  def cells(self) -> list[str]:
    """Returns the cells of a saved line that identify the setting."""
    return [str(value) for value in dataclasses.astuple(self)]


COLUMNS = (*(field.name for field in dataclasses.fields(Setting)), *_METRICS,
           'seconds')


def _recursive(options: Options, public: dict[str, Any]) -> QuantileMechanism:
  """Returns RecExp in the variant of the options."""
  cost, budget = RECURSIONS[options.recursion]
  return recursive.RecursiveQuantiles(cost=cost, budget=budget, **public)


def _histogram(options: Options, public: dict[str, Any],
               size: int) -> QuantileMechanism:
  """Returns a histogram with the asked bins, or bins chosen for `size`."""
  if not options.bins:
    return histogram.coarse(num_examples=size, **public)
  return histogram.HistogramQuantiles(num_bins=options.bins, post=options.post,
                                      **public)


def _unbounded(public: dict[str, Any]) -> QuantileMechanism:
  """Returns the scan from the lower bound; it ignores the upper one."""
  options = {name: public[name] for name in ('probs', 'epsilon', 'adjacency')}
  return unbounded.UnboundedQuantiles(bound=public['lower'], **options)


# For each method: (setting, options, public numbers) -> mechanism, and the
# name of the option that it reads, which becomes part of `Setting.variant`.
_MAKERS: Mapping[str, tuple[Callable[..., QuantileMechanism], str]] = {
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
METHODS = ('emp', *_MAKERS)


def distribution_of(name: str, data_dir: str | None = None, *,
                    lower: float | None = None, upper: float | None = None,
                    form: Format = Format()) -> Distribution:
  """Returns a distribution by its name, or of a column as file.csv:column.

  Args:
    name: see `quantile_distributions`, or a path, a colon and a column.
    data_dir: folder of the data sets that named distributions read.
    lower: public lower bound; required with a path.
    upper: public upper bound; required with a path.
    form: how the file of a path is written.
  """
  path, colon, column = name.rpartition(':')
  if colon:
    if lower is None or upper is None:
      raise ValueError('a file needs public bounds: give --lower and --upper')
    return quantile_distributions.empirical(name, series.read(
        path, column, lower=lower, upper=upper, form=form))
  public = quantile_distributions.named(name, data_dir)
  return dataclasses.replace(
      public, lower=public.lower if lower is None else lower,
      upper=public.upper if upper is None else upper)


def settings(options: Options, *, distributions: Sequence[str],
             methods: Sequence[str], num_levels: Sequence[int],
             sizes: Sequence[int], epsilons: Sequence[float],
             sigmas: Sequence[float], **shared: Any) -> list[Setting]:
  """Returns all combinations as settings, without duplicates.

  Combinations count as one if the method reads the same values of both.

  Args:
    options: options of the methods.
    distributions: names, see `distribution_of`.
    methods: some of `METHODS`.
    num_levels: numbers of quantile levels.
    sizes: numbers of records, n.
    epsilons: privacy budgets.
    sigmas: standard deviations of the noise that separates records.
    **shared: the other fields of `Setting`, the same for all.
  """
  distinct: dict[tuple[str, ...], Setting] = {}
  for distribution, method, count, size, epsilon in itertools.product(
      distributions, methods, num_levels, sizes, epsilons):
    errors.check_choice('method', method, METHODS)
    name = _MAKERS[method][1] if method in _MAKERS else ''
    variant = f'{name}={getattr(options, name)}' if name else ''
    # The histogram reads two options, but `post` only if bins are given.
    if method == 'hist':
      variant = f'bins={options.bins} {variant}' if options.bins else 'bins=0'
    # Methods that add no noise to records have one setting, with sigma NaN.
    for sigma in (sigmas if method in _SMOOTHED else ()) or (math.nan,):
      setting = Setting(
          distribution=distribution, method=method, num_levels=count,
          num_examples=size, sigma=sigma, variant=variant,
          epsilon=math.inf if method == 'emp' else epsilon, **shared)
      distinct.setdefault(tuple(setting.cells), setting)
  return list(distinct.values())


def asked(setting: Setting, distribution: Distribution,
          options: Options) -> quantile_trials.Asked:
  """Returns the sampler of a setting; raises ValueError if it is not allowed.
  """
  errors.check_at_least('repetitions', setting.repetitions, 2)
  errors.check_at_least('num_levels', setting.num_levels, 1)
  errors.check_at_least('num_examples', setting.num_examples, 1)
  if not 0 <= setting.first < setting.last <= 1:
    raise ValueError('quantile levels must lie within [0, 1], got '
                     f'{setting.first} to {setting.last}')
  if setting.method == 'emp':
    return quantile_trials.without_privacy(setting.probs)
  public = dict(probs=tuple(setting.probs.tolist()), epsilon=setting.epsilon,
                lower=distribution.lower, upper=distribution.upper,
                adjacency=Adjacency(setting.adjacency))
  mechanism = _MAKERS[setting.method][0](setting, options, public)
  mechanism.check_size(setting.num_examples)
  return quantile_trials.asked(mechanism)


def caution(setting: Setting) -> str:
  """Returns a warning if the errors of a setting will be too large, else ''."""
  if setting.method == 'ind' and setting.num_levels > 100:
    return 'each level has less than a hundredth of epsilon'
  if setting.method in ('joint', 'inverse', *_SMOOTHED) and (
      setting.num_levels > api.joint_limit(
          setting.num_examples, epsilon=setting.epsilon,
          adjacency=Adjacency(setting.adjacency))):
    return 'with so many levels, answers may lie far outside of the records'
  return ''


def run(wanted: Sequence[Setting], distributions: Mapping[str, Distribution],
        options: Options) -> Iterator[tuple[Setting, dict[str, float]]]:
  """Yields settings with their errors; checks all settings before the first."""
  # All samplers are made first, so that bad settings raise before any work.
  samplers = [asked(setting, distributions[setting.distribution], options)
              for setting in wanted]
  for setting, sampler in zip(wanted, samplers, strict=True):
    start = time.perf_counter()
    measured = quantile_trials.measure(
        distributions[setting.distribution], setting.probs, sampler,
        method=f'{setting.method}/{setting.variant}/{setting.sigma}',
        num_examples=setting.num_examples, repetitions=setting.repetitions,
        seed=setting.seed)
    yield setting, {**{name: float(measured[name]) for name in _METRICS},
                    'seconds': time.perf_counter() - start}


def resume(path: pathlib.Path, wanted: Sequence[Setting],
           distributions: Mapping[str, Distribution], options: Options,
           tell: Callable[[int, int, Setting], None]) -> list[curves.Point]:
  """Measures the settings that a file lacks, saves them, and returns all.

  Args:
    path: the file; rewritten after every setting.
    wanted: settings.
    distributions: by name.
    options: options of the methods.
    tell: called with (number done, number to do, setting).
  """
  # Settings are compared as text, in which NaN equals NaN.
  measured = load(path)
  missing = [setting for setting in wanted
             if tuple(setting.cells) not in measured]
  for done, (setting, values) in enumerate(
      run(missing, distributions, options), 1):
    measured[tuple(setting.cells)] = values
    save(path, measured)
    tell(done, len(missing), setting)
  return [curves.Point(vars(setting), dict(measured[tuple(setting.cells)]))
          for setting in wanted]


def load(path: pathlib.Path) -> dict[tuple[str, ...], dict[str, float]]:
  """Returns the lines of a file, by setting.

  Raises:
    ValueError: if the file has other columns.
  """
  if not path.exists():
    return {}
  with open(path, 'rb') as file, contextlib.closing(
      lines.records(str(path), file, Format())) as records:
    try:
      rows = [row for _, row in lines.complete(
          str(path), records, len(COLUMNS), Format()) if row is not None]
    except FileError:  # A line without all columns.
      rows = []
  if not rows or tuple(rows[0]) != COLUMNS:
    raise ValueError(f'{path} was not written by this command: remove it or '
                     'choose another path')
  size = len(dataclasses.fields(Setting))
  return {tuple(row[:size]): dict(zip(
      COLUMNS[size:], map(float, row[size:]), strict=True))
          for row in rows[1:]}


def save(path: pathlib.Path,
         measured: Mapping[tuple[str, ...], Mapping[str, float]]) -> None:
  """Writes all lines atomically, to a new file that then replaces the old one.
  """
  text = io.StringIO(newline='')
  writer = csv.writer(text, lineterminator='\n')
  writer.writerow(COLUMNS)
  for cells, values in measured.items():
    writer.writerow([*cells, *(repr(value) for value in values.values())])
  files.replace(path, text.getvalue().encode())
