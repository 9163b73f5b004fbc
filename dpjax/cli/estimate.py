r"""Releases one private statistic of a file, with exact noise and a ledger.

The mean age of a survey, at epsilon 1/2 of a budget of 2 in all:
  dpjax estimate --input=survey.csv --statistic=mean --column=age \
    --lower=18 --upper=100 --epsilon=0.5 --adjacency=replace_one \
    --ledger=survey.ledger --ledger_budget_epsilon=2 --output=age.json

The budget that was spent on it:
  dpjax estimate --ledger=survey.ledger --show_ledger

ROC curve and calibration of a risk score for a disease:
  dpjax estimate --input=scores.csv --statistic=roc --column=risk \
    --label=disease --positive=1 --lower=0 --upper=1 --epsilon=1 \
    --adjacency=replace_one --ledger=scores.ledger --ledger_budget_epsilon=2 \
    --output=roc.json --plot=roc.svg
  With --statistic=auc, hosmer_lemeshow or classifier and the same score, label,
  grid and epsilon, another view of that release is returned at no cost, unless
  the ledger is for a --dataset in all its versions.

The density of ages in whole years, and 1000 synthetic records drawn from it:
  dpjax estimate --input=survey.csv --statistic=density \
    --column=age --lower=18 --upper=100 --granularity=1 --epsilon=0.5 \
    --adjacency=replace_one --ledger=survey.ledger --output=ages.json \
    --plot=ages.svg --synthetic=1000 --synthetic_output=ages.csv
  Other values of --confidence, --boundary or --synthetic cost nothing more.

The proportion of a yes, in the file and in its population; the mean of
measurements with a known error; the upper end of a uniform distribution:
  dpjax estimate --input=poll.csv --statistic=proportion \
    --column=answer --positive=yes --epsilon=0.1 --adjacency=replace_one \
    --ledger=poll.ledger --ledger_budget_epsilon=1 --output=yes.json
  The same with --statistic=normal_mean --column=reading --lower=-1000 \
    --upper=1000 --sigma=2, or --statistic=support_max --column=delay \
    --lower=1 --upper=3600; these bounds are for the estimated parameter.

Statistics, and what each needs:
{statistics}

Bounds, bins, categories, quantile levels and epsilon are public: choose them
without looking at the data. If a query was answered before on the same file,
the ledger returns the same answer at no cost; an interrupted query is finished
at no cost. The ledger and the folders LEDGER.answers and LEDGER.secrets belong
to the data owner and stay private. --output may be published. If the budget
does not suffice, the release is refused before the file is opened.

A release needs no minimal number of records. The file is refused, before
anything is spent, if it cannot be read as declared: a line that is no record, a
field that is no number, or a missing number without --missing. Prices such as
1.234,50 need --decimal=, --thousands=. and missing numbers spelled -99 need
--missing_tokens=-99. Refusals may reveal records. With --missing,
--unparsed=missing, --bad_lines=missing and --dataset only that of a compressed
file that is damaged or far too large once unpacked does: use these flags if
others choose the queries. Never let others choose the flags that describe the
file, nor see error messages.
"""

import argparse
from collections.abc import Sequence
import csv
import io
import json
import pathlib
import re
import sys

from dpjax.cli import errors
from dpjax.cli import file_formats
from dpjax.privacy import exact
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import grids
from dpjax.release import lattice
from dpjax.release import ledger
from dpjax.release import pictures
from dpjax.release import registry
from dpjax.release import reservations
from dpjax.release import sessions
from dpjax.release import sources
from dpjax.release.query import MISSING
from dpjax.release.query import Query
from dpjax.report import files

# JSON lists of numbers are put on one line; JSON texts have no line breaks.
_NUMBERS = re.compile(r'\[\n([-+.\deE,\snul]*)\]')
_FLAGS = (
    ('input', 'CSV, plain or .csv.gz, or Parquet (extra `parquet`).'),
    ('statistic', f'One of {", ".join(registry.STATISTICS)}.'),
    ('column', 'Name of the column.'),
    ('lower', 'Public lower bound; values below it are clamped to it.'),
    ('upper', 'Public upper bound. hosmer_lemeshow has default bounds 0 and '
     '1.'),
    ('granularity', 'Spacing of the lattice that values are rounded to. '
     'Default: a power of ten, at most a millionth of the range. For density: '
     'spacing of the numbers in the file from --lower on, 1 for integers.'),
    ('missing', 'How a record without a number counts: '
     f'{", ".join(MISSING)} (of the bounds). Default: a file with a missing '
     'number is refused.'),
    ('categories', 'Public values of a histogram, separated by commas; '
     'quotation marks around one with a comma.'),
    ('bins', 'Public edges of a histogram, or thresholds of a curve, separated '
     'by commas.'),
    ('quantiles', 'Quantile levels in (0, 1), separated by commas.'),
    ('quantile_method', 'independent: an exponential mechanism for each level; '
     'recursive: recursive splitting of the records, better for many levels. '
     'Default: auto, the smaller bound of rank errors.'),
    ('thresholds', 'Number of thresholds of a curve, the last at --upper. '
     f'Default: {grids.DEFAULT}.'),
    ('grid', 'uniform, or geometric: evenly spaced in logarithms. Default: '
     'uniform.'),
    ('label', 'Column of the class of a record whose score is --column.'),
    ('positive', 'Value of the label of the positive class, or of the column '
     'of a proportion; all others are negative.'),
    ('sigma', 'Public standard deviation of a normal_mean.'),
    ('groups', 'Number of groups of a calibration table. Default: 10.'),
    ('boundary', 'For density: interval, or circle for hours, angles and other '
     'values that start again at --upper. Default: interval.'),
    ('synthetic', 'Number of records to draw from a released density; they '
     'have its column alone, and cost no more.'),
    ('synthetic_output', 'CSV file of the synthetic records.'),
    ('epsilon', 'Of this release, at least 1e-12, taken exactly: 0.1 is '
     '1/10.'),
    ('delta', 'In [1e-12, 1): discrete Gaussian noise by zCDP, and quantiles '
     'that compose by Renyi divergences. Default: pure epsilon-DP, with '
     'discrete Laplace noise.'),
    ('adjacency', f'{" or ".join(a.value for a in Adjacency)}: which files '
     'are neighbours. It has no default.'),
    ('confidence', 'Level of the confidence intervals. Default: 0.95.'),
    ('output', 'JSON file of the release.'),
    ('plot', f'Figure of the release, .svg, of {", ".join(pictures.DRAWN)}.'),
    ('ledger', 'Ledger of the data set. Releases on it run one at a time, each '
     'until its answer is on disk.'),
    ('ledger_budget_epsilon', 'Total epsilon; creates the ledger.'),
    ('ledger_budget_delta', 'Total delta. Default: 0, pure releases '
     'only.'),
    ('dataset', 'Name of the data set, for a ledger of all its versions. '
     'Default: a ledger of one file with exactly these bytes.'))


def parse(argv: Sequence[str]) -> argparse.Namespace:
  """Parses the flags of a command line."""
  listed = '\n'.join(
      f'  {s.name:15} {s.help}; needs {", ".join(s.needs) or "nothing"}'
      for s in registry.STATISTICS.values())
  parser = errors.ArgumentParser(
      description=__doc__.replace('{statistics}', listed), allow_abbrev=False,
      formatter_class=argparse.RawDescriptionHelpFormatter,
      conflict_handler='resolve')
  for name, text in (*_FLAGS, *file_formats.FLAGS):
    parser.add_argument(f'--{name}', help=text)
  parser.set_defaults(confidence='0.95')
  parser.add_argument('--value_interval', action='store_true',
                      help='For quantiles: spend two thirds of epsilon on ends '
                      'that bracket the quantiles of the file. Default: '
                      'an interval of ranks.')
  parser.add_argument('--show_ledger', action='store_true',
                      help='Print what the ledger says, and do nothing else.')
  return parser.parse_args(list(argv[1:]))


def _list(name: str, text: str | None, kind) -> tuple:
  """Returns the parts between commas, converted by `kind`."""
  return () if text is None else tuple(
      kind(name, part.strip()) for part in text.split(','))


def query_of(args: argparse.Namespace) -> Query:
  """Returns the query that the flags ask for, checked."""
  for name in ('input', 'statistic', 'epsilon', 'adjacency', 'output',
               'ledger'):
    if not getattr(args, name):
      raise ValueError(f'--{name} must be given')
  if args.adjacency not in {relation.value for relation in Adjacency}:
    raise ValueError('--adjacency must be add_or_remove_one or replace_one, '
                     f'got {args.adjacency!r}')

  def number(name):
    text = getattr(args, name)
    return None if text is None else lattice.public_number(name, text)

  def whole(name):
    text = getattr(args, name)
    if text is not None and not re.fullmatch('[0-9]{1,9}', text.strip()):
      raise ValueError(f'{name} must be a whole number of at most 9 digits, '
                       f'got {text[:40]!r}')
    return None if text is None else int(text)

  return Query(
      statistic=args.statistic, adjacency=Adjacency(args.adjacency),
      epsilon=sessions.fraction('epsilon', args.epsilon),
      delta=None if args.delta is None else sessions.fraction(
          'delta', args.delta),
      confidence=sessions.fraction('confidence', args.confidence),
      column=args.column, lower=number('lower'), upper=number('upper'),
      sigma=number('sigma'), granularity=number('granularity'),
      missing=args.missing,
      categories=() if args.categories is None else file_formats.split(
          'categories', args.categories),
      bins=_list('bins', args.bins, lattice.public_number),
      quantiles=_list('quantiles', args.quantiles, sessions.fraction),
      value_interval=args.value_interval or None,
      quantile_method=None if args.quantile_method == 'auto' else
      args.quantile_method, thresholds=whole('thresholds'), grid=args.grid,
      label=args.label, positive=args.positive, groups=whole('groups'),
      boundary=args.boundary)


def _budget(args: argparse.Namespace) -> ledger.Budget | None:
  """Returns the total budget for a new ledger, None if it is not given."""
  if args.ledger_budget_epsilon is None:
    if args.ledger_budget_delta is not None:
      raise ValueError('--ledger_budget_delta needs --ledger_budget_epsilon')
    return None
  return ledger.Budget(
      epsilon=sessions.fraction('ledger_budget_epsilon',
                                args.ledger_budget_epsilon),
      delta=sessions.fraction('ledger_budget_delta',
                              args.ledger_budget_delta or '0'))


def release(args: argparse.Namespace,
            below: exact.Draw | None = None) -> dict[str, object]:
  """Answers the query of the flags and pays for it, see `sessions.release`.

  Args:
    args: of the command line.
    below: randomness for tests; None for that of the ledger's secret.

  Raises:
    ValueError: for bad input, before any budget is spent.
  """
  query, budget = query_of(args), _budget(args)
  return sessions.release(
      query, sources.File(args.input, file_formats.of_flags(args, args.input)),
      ledger=args.ledger, budget=budget, dataset=args.dataset,
      note=lambda text: print(text, file=sys.stderr),
      before=lambda: _check_output(args), below=below)


def _check_output(args: argparse.Namespace) -> None:
  """Refuses outputs that cannot be written, or would overwrite the ledger."""
  outputs = {name: getattr(args, name)
             for name in ('output', 'plot', 'synthetic_output')}
  errors.check_outputs({'ledger': args.ledger}, inputs={'input': args.input})
  errors.check_outputs(
      outputs, inputs={'ledger': args.ledger, 'input': args.input},
      kept={f'{folder.name}, which belongs to the ledger': folder
            for folder in reservations.folders(args.ledger)})
  for name, given in outputs.items():
    if not given:
      continue
    path = pathlib.Path(given).resolve()
    if path.is_dir() or not path.parent.is_dir():
      raise ValueError(f'--{name} must be a file in an existing folder, got '
                       f'{given}')
    errors.check_file(given)
  if args.plot:
    pictures.check(args.statistic, args.plot)
  _num_synthetic(args)


def _num_synthetic(args: argparse.Namespace) -> int:
  """Returns the number of synthetic records, or 0 if none are asked for."""
  if not args.synthetic and not args.synthetic_output:
    return 0
  if not args.synthetic or not args.synthetic_output:
    raise ValueError('--synthetic and --synthetic_output need each other')
  if args.statistic != 'density':
    raise ValueError(f'--synthetic needs density, got {args.statistic}')
  if pathlib.Path(args.synthetic_output).suffix != '.csv':
    raise ValueError('--synthetic_output must end in .csv, got '
                     f'{args.synthetic_output}')
  text = args.synthetic.strip()
  if not text.isdecimal() or len(text) > 7 or not 1 <= int(text) <= 10**6:
    raise ValueError('synthetic must be a whole number from 1 to 1000000, got '
                     f'{args.synthetic!r}')
  return int(text)


def _write_synthetic(args: argparse.Namespace, number: int,
                     answer: dict[str, object]) -> None:
  """Writes synthetic records of a released density, in one column."""
  query = query_of(args)
  text = io.StringIO()
  form = file_formats.of_flags(args, args.input)
  csv.writer(text, delimiter=form.separator, lineterminator='\n').writerows(
      [(query.column,), *((value,) for value in registry.plan(query).synthetic(
          answer, number))])
  files.replace(args.synthetic_output, text.getvalue().encode())


def main(args: argparse.Namespace) -> int:
  """Runs the command; returns the exit status."""
  if args.show_ledger:
    if not args.ledger:
      raise ValueError('--ledger must be given')
    print(ledger.described(ledger.read(args.ledger)))
    return 0
  answer = release(args)
  text = _NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]",
                      json.dumps(answer, indent=2, allow_nan=False))
  files.replace(args.output, text.encode() + b'\n')
  if args.plot:
    pictures.draw(answer, args.plot)
  if number := _num_synthetic(args):
    _write_synthetic(args, number, answer)
  print(text)
  return 0
