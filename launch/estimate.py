r"""Releases one private statistic of a file, with exact noise and a ledger.

The mean age of a survey, at epsilon 1/2 of a budget of 2 in all:
  python -m launch.estimate --input=survey.csv --statistic=mean --column=age \
    --lower=18 --upper=100 --epsilon=0.5 --adjacency=replace_one \
    --ledger=survey.ledger --ledger_budget_epsilon=2 --output=age.json

What was spent on it:
  python -m launch.estimate --ledger=survey.ledger --show_ledger

How well a score tells who had the disease, and whether it is calibrated:
  python -m launch.estimate --input=scores.csv --statistic=roc --column=risk \
    --label=disease --positive=1 --lower=0 --upper=1 --epsilon=1 \
    --adjacency=replace_one --ledger=scores.ledger --ledger_budget_epsilon=2 \
    --output=roc.json --plot=roc.svg
  The same with --statistic=auc, hosmer_lemeshow or classifier, of the same
  score, label, grid and epsilon, is another view of that release, and free,
  unless the ledger is for a --dataset in all its versions.

The density of ages, which are whole years, and 1000 records drawn from it:
  python -m launch.estimate --input=survey.csv --statistic=density \
    --column=age --lower=18 --upper=100 --granularity=1 --epsilon=0.5 \
    --adjacency=replace_one --ledger=survey.ledger --output=ages.json \
    --plot=ages.svg --synthetic=1000 --synthetic_output=ages.csv
  Another confidence, --boundary or --synthetic is another view, and free.

How many said yes, in the file and in the population it was drawn from; the
mean of measurements with a known error; the largest of a uniform law:
  python -m launch.estimate --input=poll.csv --statistic=proportion \
    --column=answer --positive=yes --epsilon=0.1 --adjacency=replace_one \
    --ledger=poll.ledger --ledger_budget_epsilon=1 --output=yes.json
  The same with --statistic=normal_mean --column=reading --lower=-1000 \
    --upper=1000 --sigma=2, or --statistic=support_max --column=delay \
    --lower=1 --upper=3600; bounds are those of what is estimated.

Statistics, and what each needs:
{statistics}

Bounds, bins, categories, orders and epsilon are public: choose them without
looking at the data. A query that was answered is answered from the ledger, for
nothing, if the file is the same; so is one that was interrupted. The ledger
belongs to who keeps the data, and so do the folders beside it, LEDGER.answers
and LEDGER.secrets. What is written to --output may be published. A budget that
does not suffice is refused before the file is opened.

A file is released from whatever records it has, or none. It is refused, before
anything is spent, where it cannot be read as declared: a line that is no
record, a field that is no number, a number that is missing where --missing is
not given. Prices such as 1.234,50 are declared by --decimal=, --thousands=. and
missing numbers spelled -99 by --missing_tokens=-99. With --missing,
--unparsed=missing, --bad_lines=missing and --dataset, no refusal but that of a
packed file that is damaged or unpacks to far too much depends on records: so
let it be where others choose what is asked. These flags are of the file; never
let others choose them, nor see errors.
"""

import argparse
from collections.abc import Sequence
import contextlib
import csv
import fractions
import io
import json
import pathlib
import re
import sys
from typing import BinaryIO

from dpjax.privacy import exact
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import grids
from dpjax.release import lattice
from dpjax.release import ledger
from dpjax.release import meter as meters
from dpjax.release import pictures
from dpjax.release import registry
from dpjax.release import reservations
from dpjax.release import tables
from dpjax.release.costs import Cost
from dpjax.release.formats import Format
from dpjax.release.query import MISSING, Plan, Query
from dpjax.report import files
from launch import errors
from launch import file_formats

Fraction = fractions.Fraction

_NEIGHBOURS = {
    Adjacency.ADD_OR_REMOVE_ONE: 'files of which one has one record more',
    Adjacency.REPLACE_ONE: 'files of equal, public size that differ in one '
                           'record'}
# Lists of numbers go on one line; texts have no line breaks in JSON.
_NUMBERS = re.compile(r'\[\n([-+.\deE,\snul]*)\]')
_FLAGS = (
    ('input', 'CSV, plain or .csv.gz, or Parquet (extra `parquet`).'),
    ('statistic', f'One of {", ".join(registry.STATISTICS)}.'),
    ('column', 'Its name in the file.'),
    ('lower', 'Public lower bound; values below it are clamped to it.'),
    ('upper', 'Public upper bound. Default of both for hosmer_lemeshow: 0 and '
     '1.'),
    ('granularity', 'Spacing of the lattice that values are rounded to. '
     'Default: a power of ten, a millionth of the range or less. Of a density: '
     'that of the numbers of the file, from --lower on, 1 for whole ones.'),
    ('missing', 'What a record without a number counts as: '
     f'{", ".join(MISSING)} (of the bounds). Not given: no number is missing, '
     'or the file is refused.'),
    ('categories', 'Public values of a histogram, separated by commas; '
     'quotation marks around one with a comma.'),
    ('bins', 'Public edges of a histogram, or thresholds of a curve, separated '
     'by commas.'),
    ('quantiles', 'Orders in (0, 1), separated by commas.'),
    ('quantile_method', 'independent: an exponential mechanism for each order; '
     'recursive: records are split by the middle order, and so on, better for '
     'many orders. Default: auto, the smaller rank_error of the two.'),
    ('thresholds', 'How many thresholds of a curve, the last at --upper. '
     f'Default: {grids.DEFAULT}.'),
    ('grid', 'uniform, or geometric: evenly spaced in logarithms. Default: '
     'uniform.'),
    ('label', 'Column of the class of a record whose score is --column.'),
    ('positive', 'Value of the label of the positive class, or of the column '
     'of a proportion; whatever else is negative.'),
    ('sigma', 'Public standard deviation of a normal_mean.'),
    ('groups', 'Of a calibration table. Default: 10.'),
    ('boundary', 'Of a density: interval, or circle for hours, angles and what '
     'else begins anew at --upper. Default: interval.'),
    ('synthetic', 'How many records to draw from a released density, of its '
     'column alone; as private as it is.'),
    ('synthetic_output', 'CSV file of them.'),
    ('epsilon', 'Of this release, at least 1e-12, taken exactly: 0.1 is '
     '1/10.'),
    ('delta', 'In [1e-12, 1): discrete Gaussian noise, accounted by zCDP, and '
     'quantiles that share the budget by Renyi divergences. Not given: '
     'discrete Laplace noise and quantiles that are epsilon-DP.'),
    ('adjacency', f'{" or ".join(a.value for a in Adjacency)}: which files '
     'are neighbours. It has no default.'),
    ('confidence', 'Level of the intervals. Default: 0.95.'),
    ('output', 'JSON file of the release.'),
    ('plot', f'Figure of it, .svg, of {", ".join(pictures.DRAWN)}.'),
    ('ledger', 'The ledger of the data set. One release at a time: others wait '
     'until its answer is on disk.'),
    ('ledger_budget_epsilon', 'Makes the ledger at its first use.'),
    ('ledger_budget_delta', 'Delta of its budget. Default: 0, pure releases '
     'only.'),
    ('dataset', 'Name of the data set: its ledger is then for all versions of '
     'the file. Not given: for the very bytes.'))


def parse(argv: Sequence[str]) -> argparse.Namespace:
  """The flags of a command line."""
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
                      help='Of quantiles: spend two thirds of epsilon on ends '
                      'between which the quantiles of the file lie. Without '
                      'it the interval is one of ranks.')
  parser.add_argument('--show_ledger', action='store_true',
                      help='Print what the ledger says, and do nothing else.')
  return parser.parse_args(list(argv[1:]))


def _fraction(name: str, text: str) -> Fraction:
  parts = text.split('/')
  if len(parts) > 2:
    raise ValueError(f'{name} must be a number or a fraction, got {text!r}')
  top, bottom = (Fraction(lattice.public_number(name, part))
                 for part in (parts + ['1'])[:2])
  if not bottom:
    raise ValueError(f'{name} must be a number, got {text!r}')
  return top / bottom


def _list(name: str, text: str | None, kind) -> tuple:
  return () if text is None else tuple(
      kind(name, part.strip()) for part in text.split(','))


def query_of(args: argparse.Namespace) -> Query:
  """The query that the flags ask for, checked."""
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
      epsilon=_fraction('epsilon', args.epsilon),
      delta=None if args.delta is None else _fraction('delta', args.delta),
      confidence=_fraction('confidence', args.confidence),
      column=args.column, lower=number('lower'), upper=number('upper'),
      sigma=number('sigma'), granularity=number('granularity'),
      missing=args.missing,
      categories=() if args.categories is None else file_formats.split(
          'categories', args.categories),
      bins=_list('bins', args.bins, lattice.public_number),
      quantiles=_list('quantiles', args.quantiles, _fraction),
      value_interval=args.value_interval or None,
      quantile_method=None if args.quantile_method == 'auto' else
      args.quantile_method, thresholds=whole('thresholds'), grid=args.grid,
      label=args.label, positive=args.positive, groups=whole('groups'),
      boundary=args.boundary)


def _budget(args: argparse.Namespace) -> ledger.Budget | None:
  if args.ledger_budget_epsilon is None:
    if args.ledger_budget_delta is not None:
      raise ValueError('--ledger_budget_delta needs --ledger_budget_epsilon')
    return None
  return ledger.Budget(
      epsilon=_fraction('ledger_budget_epsilon', args.ledger_budget_epsilon),
      delta=_fraction('ledger_budget_delta', args.ledger_budget_delta or '0'))


def _guarantee(query: Query, cost: Cost) -> dict[str, object]:
  """What is printed of the cost; `meter.check_guarantee` checks it."""
  found = {'notion': 'epsilon-DP', 'epsilon': str(query.epsilon)}
  if query.delta is not None:
    by = 'rho-zCDP' if cost.notion == 'rho-zCDP' else 'Renyi-DP'
    found = {'notion': f'(epsilon, delta)-DP, by {by}',
             'epsilon': str(query.epsilon), 'delta': str(query.delta)}
    if cost.rho is not None:
      found['rho'] = float(cost.rho)
  return {**found, 'adjacency': query.adjacency.value,
          'neighbours': _NEIGHBOURS[query.adjacency],
          'event': str(cost.event(query.adjacency))}


def _public(query: Query) -> dict[str, object]:
  """The parameters that were given."""
  return {name: value for name, value in query.to_json().items()
          if value not in (None, []) and name not in
          ('adjacency', 'epsilon', 'delta', 'statistic')}


def release(args: argparse.Namespace,
            below: exact.Draw | None = None) -> dict[str, object]:
  """Answers the query of the flags, in the order that `reservations` states.

  Bad input is a ValueError before anything is spent. `below` is randomness for
  tests; None for that of the secret that the entry of the ledger seals.
  """
  query, budget = query_of(args), _budget(args)
  plan, form = registry.plan(query), file_formats.of_flags(args)
  _check_output(args)
  guarantee = _guarantee(query, plan.cost)
  meters.check_guarantee(guarantee, plan.cost)
  asked = {'query': plan.asked.to_json(), **form.to_json()}
  with reservations.held(args.ledger, dataset=args.dataset, budget=budget,
                         adjacency=query.adjacency) as held:
    held.check(asked, plan.cost)
    with files.snapshot(args.input) as (file, sha256):
      held.check_data(sha256)
      known = held.answer(asked)
      if known is not None:
        print('answered before: nothing is spent', file=sys.stderr)
        return _told(query, plan, known)
      measured = _measured(args, query, plan, file, form)
    reserved = held.reserve(asked, plan.cost, sha256)
    if reserved.resumed:
      print(f'release {reserved.entry.number} was interrupted and is finished: '
            'nothing more is spent', file=sys.stderr)
    with held.drawing(reserved.entry):
      meters.check_guarantee(guarantee, plan.cost, reserved.entry.cost)
      meter = meters.Meter(reserved.entry.cost, below or reserved.below)
      drawn = plan.draw(measured, meter)
      meter.check_spent()
      answer = {
          'statistic': plan.asked.statistic, **drawn, 'guarantee': guarantee,
          'parameters': _public(plan.asked), 'format': form.to_json(),
          **plan.facts(), 'ledger': reserved.account.summary()}
    answer = held.commit(reserved.entry, answer)
  return _told(query, plan, answer)


def _measured(args: argparse.Namespace, query: Query, plan: Plan,
              file: BinaryIO, form: Format) -> object:
  """What is exact and private, of the records of a file."""
  with contextlib.closing(tables.read(
      args.input, file, *_columns(query, plan), numeric=plan.reads in (
          'numbers', 'labels'), form=form, gaps=registry.gaps(query)
  )) as fields:
    return plan.measure(fields)


def _told(query: Query, plan: Plan,
          answer: dict[str, object]) -> dict[str, object]:
  """What was released, as the query asks for it."""
  view = plan.view(answer)
  if not view:
    return answer
  return {'statistic': query.statistic, **view,
          **{name: value for name, value in answer.items() if name not in
             ('statistic', 'noisy_counts')},
          'parameters': _public(query), 'noisy_counts': answer['noisy_counts']}


def _columns(query: Query, plan: Plan) -> tuple[str, ...]:
  """Those that are read."""
  return {'records': (), 'labels': (query.column, query.label)}.get(
      plan.reads, (query.column,))


def _check_output(args: argparse.Namespace) -> None:
  """Refuses an output that could not be written, or only over the ledger."""
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
      raise ValueError(f'--{name} must be a file in a folder that is there, '
                       f'got {given}')
    errors.check_file(given)
  if args.plot:
    pictures.check(args.statistic, args.plot)
  _num_synthetic(args)


def _num_synthetic(args: argparse.Namespace) -> int:
  """How many records are asked for, or 0."""
  if not args.synthetic and not args.synthetic_output:
    return 0
  if not args.synthetic or not args.synthetic_output:
    raise ValueError('--synthetic and --synthetic_output need each other')
  if args.statistic != 'density':
    raise ValueError(f'--synthetic is of density, got {args.statistic}')
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
  """Records of a released density, a column of its name."""
  query = query_of(args)
  text = io.StringIO()
  form = file_formats.of_flags(args)
  csv.writer(text, delimiter=form.separator, lineterminator='\n').writerows(
      [(query.column,), *((value,) for value in registry.plan(query).synthetic(
          answer, number))])
  files.replace(args.synthetic_output, text.getvalue().encode())


def main(args: argparse.Namespace) -> int:
  """Does what the flags ask for; returns the exit status."""
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


if __name__ == '__main__':
  errors.run_main(main, parse)
