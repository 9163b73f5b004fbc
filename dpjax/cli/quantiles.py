r"""Measures the errors of private quantiles in settings of your choice.

Quantiles of a beta distribution, by four methods at two budgets:
  dpjax quantiles --distributions=beta_2_5 --methods=emp,rec,joint,hist \
    --num_levels=10,100 --n=10000 --epsilon=0.1,1 --output=errors.csv

Records drawn from a column of a file with public bounds, and a figure:
  dpjax quantiles --distributions=survey.csv:age --lower=0 --upper=120 \
    --methods=emp,joint,hs_uniform --sigma=0.001,0.1 --n=100,1000,10000 \
    --num_levels=8 --epsilon=1 --output=ages.csv --plot=ages.svg

Repeating the command resumes an interrupted run. Errors are measured against
the quantiles of the distribution, as the largest over all quantile levels
(value_sup, with its standard error), and in ranks among the records (rank_sup,
rank_mean). Nothing here is a private release: noise is simulated from --seed,
and errors on your own file are exact statistics of its records and must not be
published. `dpjax estimate` makes private releases.

Methods:
  emp          without privacy
  ind          an exponential mechanism for each quantile level
  rec          recursive splitting; rec_floor: with noise that separates records
  joint        JointExp; inverse: inverse sensitivity, under replace_one
  hs_uniform, hs_gaussian, hs_laplace
               JointExp on records with added noise (--sigma or --jitter_floor)
  hist         histogram; tree: tree of counts
  knots        a few levels by JointExp, the rest by linear interpolation
  unbounded    a scan upwards from --lower
"""

from collections.abc import Sequence
import functools
import hashlib
import math
import pathlib
import sys

from absl import flags

from dpjax import errors as checks
from dpjax.cli import errors
from dpjax.cli import file_formats
from dpjax.cli import flags as shared
from dpjax.privacy.adjacency import Adjacency
from dpjax.report import curves
from dpjax.report import plots
from dpjax.report import tables
from dpjax.stats.quantile_methods import histogram
from dpjax.stats.quantile_methods import independent
from dpjax.studies import quantile_study

_STUDY = flags.FlagValues()
_DISTRIBUTIONS = flags.DEFINE_list(
    'distributions', ['beta_2_5'], 'Distributions of the records: '
    'beta_<a>_<b>; mixed_<p>_<delta>, an atom of probability p at 1/2 with a '
    'gap of delta around it; ratings, pages, earnings, dividends, '
    'earnings_surrogate, dividends_surrogate; or file.csv:column.', _STUDY)
_LOWER = flags.DEFINE_float(
    'lower', None, 'Public lower bound; default: that of the distribution.',
    flag_values=_STUDY)
_UPPER = flags.DEFINE_float(
    'upper', None, 'Public upper bound; default: that of the distribution.',
    flag_values=_STUDY)
_METHODS = flags.DEFINE_list(
    'methods', ['emp', 'rec', 'joint', 'hist'],
    f'Methods, out of {", ".join(quantile_study.METHODS)}.', _STUDY)
_LEVELS = flags.DEFINE_string(
    'num_levels', '9', 'Numbers m of quantile levels.', _STUDY)
_FIRST = flags.DEFINE_float(
    'first', 0.0, 'Quantile levels are evenly spaced between --first and '
    '--last, both excluded.', flag_values=_STUDY)
_LAST = flags.DEFINE_float('last', 1.0, 'See --first.', flag_values=_STUDY)
_N = flags.DEFINE_string('n', '1000', 'Numbers of records.', _STUDY)
_EPSILON = flags.DEFINE_string(
    'epsilon', '1', 'Budgets for all quantile levels together, > 0.', _STUDY)
_ADJACENCY = flags.DEFINE_enum(
    'adjacency', 'replace_one', [one.value for one in Adjacency],
    'Which data sets are neighbours.', _STUDY)
_REPETITIONS = flags.DEFINE_integer(
    'repetitions', 50, 'Number of data sets per setting, 2 or more.',
    flag_values=_STUDY)
_SEED = flags.DEFINE_integer(
    'seed', 0, 'Seed of simulated data and noise, >= 0.', flag_values=_STUDY)

_OPTIONS = flags.FlagValues()
_SIGMA = flags.DEFINE_string(
    'sigma', None, 'Standard deviations of the noise of hs_*, in units of the '
    'records. Default: set by --jitter_floor.', _OPTIONS)
_FLOOR = flags.DEFINE_float(
    'jitter_floor', quantile_study.Options.floor,
    'Smallest noise that separates records, as a fraction of the range.',
    flag_values=_OPTIONS)
_RECURSION = flags.DEFINE_enum(
    'recexp_mode', 'depth', list(quantile_study.RECURSIONS),
    'Method rec: integer depth, the printed recursion, or the one of its '
    'authors.', _OPTIONS)
_COST = flags.DEFINE_enum(
    'rank_convention', 'real', independent.COSTS,
    'Method ind: target rank n p rounded down, unrounded, or with ranks '
    'between records.', _OPTIONS)
_BINS = flags.DEFINE_integer(
    'bins', 0, 'Method hist: number of bins; 0 chooses it from n and epsilon.',
    flag_values=_OPTIONS)
_POST = flags.DEFINE_enum('hist_post', 'isotonic', histogram.POSTS,
                          'Method hist with --bins: post-processing of the '
                          'noisy counts.', _OPTIONS)
_KNOTS = flags.DEFINE_integer(
    'knots', 5, 'Method knots: levels found by JointExp, at least 2.',
    flag_values=_OPTIONS)

_FORMAT = flags.FlagValues()
for _name, _text in file_formats.FLAGS:
  flags.DEFINE_string(_name, None, _text, _FORMAT)

_FILES = flags.FlagValues()
_OUTPUT = flags.DEFINE_string(
    'output', None, 'CSV file for the errors.', _FILES)
_PLOT = flags.DEFINE_string(
    'plot', None, 'File for a figure, .svg: value_sup against n, epsilon, m '
    'or sigma, whichever has most values.', _FILES)

_GROUPS = {
    'What to measure': _STUDY,
    'Options of methods': _OPTIONS,
    'The file of --distributions': _FORMAT,
    'Output': shared.add_shared(_FILES, 'data_dir')}

_MAIN = (
    'distributions lower upper methods num_levels n epsilon adjacency output '
    'plot').split()
parse = functools.partial(errors.parse_groups, groups=_GROUPS,
                          doc=__doc__ or '', main=_MAIN)


def _study() -> tuple[quantile_study.Options, list[quantile_study.Setting]]:
  """Returns the options and the settings that the flags select."""
  options = quantile_study.Options(
      cost=_COST.value, recursion=_RECURSION.value, bins=_BINS.value,
      post=_POST.value, knots=_KNOTS.value, floor=_FLOOR.value)
  return options, quantile_study.settings(
      options, distributions=_DISTRIBUTIONS.value, methods=_METHODS.value,
      num_levels=shared.numbers('num_levels', _LEVELS.value, int),
      sizes=[checks.check_at_least('--n', n, 1)
             for n in shared.numbers('n', _N.value, int)],
      epsilons=shared.numbers('epsilon', _EPSILON.value, float),
      sigmas=shared.numbers('sigma', _SIGMA.value, float)
      if _SIGMA.value else [],
      adjacency=_ADJACENCY.value, first=_FIRST.value, last=_LAST.value,
      repetitions=_REPETITIONS.value, seed=_SEED.value)


def _tell(done: int, count: int, setting: quantile_study.Setting) -> None:
  """Prints progress on stderr."""
  print(f'{done}/{count} {setting.distribution} {setting.method} '
        f'm={setting.num_levels} n={setting.num_examples}', file=sys.stderr)


def _draw(measured: list[curves.Point], path: str, digest: str) -> None:
  """Draws errors, with one axes per distribution and one curve per method.

  Other fields that take several values also have separate curves.
  """
  fields = ('num_examples', 'epsilon', 'num_levels', 'sigma')
  finite = lambda name: {p[name] for p in measured if math.isfinite(p[name])}
  # sigma is NaN for methods that do not read it.
  along = max(fields, key=lambda name: len(finite(name)))
  others = [name for name in fields if name != along and len(finite(name)) > 1]
  names = list(dict.fromkeys(p['distribution'] for p in measured))
  drawn, axes = plots.new(1, len(names), height=3.4)
  for ax, name in zip(axes[0], names, strict=True):
    lines: dict[str, list[curves.Point]] = {}
    for p in curves.select(measured, distribution=name):
      labels = [f'{name} {p[name]:g}' for name in others
                if math.isfinite(p[name])]
      lines.setdefault(', '.join([p['method'], *labels]), []).append(p)
    for series, (label, line) in enumerate(lines.items()):
      known = [p for p in line if math.isfinite(p[along])]
      # Methods that do not read the field are horizontal lines.
      if known:
        curves.band(ax, known, along, 'value_sup', label, series=series,
                    line='-', error='value_sup_se')
      else:
        ax.axhline(line[0]['value_sup'], linestyle=':', color='black',
                   label=label)
    curves.finish(ax, along, 'value_sup', name)
  plots.save(drawn, path, digest=digest)


def main(argv: Sequence[str]) -> int:
  """Measures missing settings and prints the table of those asked for."""
  errors.check_no_arguments(argv)
  of_files = {'lower': _LOWER.value, 'upper': _UPPER.value}
  shared.check_given({'output': _OUTPUT.value, **(
      of_files if any(':' in name for name in _DISTRIBUTIONS.value) else {})})
  # The table must not replace a file that is read.
  for name in _DISTRIBUTIONS.value:
    errors.check_outputs({'output': _OUTPUT.value, 'plot': _PLOT.value},
                         inputs={'distributions': name.rpartition(':')[0]})
  path = pathlib.Path(shared.given(_OUTPUT))
  errors.check_output('output', str(path))
  if _PLOT.value:
    errors.check_figure(_PLOT.value)
  checks.check_seed('seed', _SEED.value)
  options, wanted = _study()
  # All files are read before hours are spent on the first.
  distributions = {name: quantile_study.distribution_of(
      name, shared.DATA_DIR.value, lower=_LOWER.value, upper=_UPPER.value,
      form=file_formats.of_flags(_FORMAT, name.rpartition(':')[0]))
          for name in _DISTRIBUTIONS.value}
  measured = quantile_study.resume(path, wanted, distributions, options, _tell)
  columns = ('distribution', 'method', 'variant', 'num_levels', 'num_examples',
             'epsilon', 'sigma', 'value_sup', 'value_sup_se', 'rank_sup',
             'rank_mean')
  print(tables.markdown(columns, [[
      f'{p[name]:.4g}' if isinstance(p[name], float) else str(p[name])
      for name in columns] for p in measured]))
  for each in wanted:
    why = quantile_study.caution(each)
    if why:
      print(f'note: {each.method} m={each.num_levels} n={each.num_examples} '
            f'epsilon={each.epsilon:g}: {why}', file=sys.stderr)
  if _PLOT.value:
    # The figure holds the hash of its table.
    _draw(measured, _PLOT.value,
          hashlib.sha256(path.read_bytes()).hexdigest())
  return 0
