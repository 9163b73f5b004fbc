r"""Releases one private statistic of a file, with exact noise and a ledger.

The mean age of a survey, at epsilon 1/2 of a total budget of 2:
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

The proportion of a yes, in the file and in its population:
  dpjax estimate --input=poll.csv --statistic=proportion \
    --column=answer --positive=yes --epsilon=0.1 --adjacency=replace_one \
    --ledger=poll.ledger --ledger_budget_epsilon=1 --output=yes.json
  The bounds of normal_mean and support_max are those of the parameter.

Statistics, and what each needs:
{statistics}

Bounds, bins, categories, quantile levels and epsilon are public: choose them
without looking at the data. If a query was answered before on the same file,
the ledger returns the same answer at no cost; an interrupted query is finished
at no cost. The ledger and the folders LEDGER.answers and LEDGER.secrets belong
to the data owner and stay private. --output may be published. If the budget
does not suffice, the release is refused before the file is opened.

A release needs no minimal number of records. The file is refused, before
anything is spent, if it cannot be read as declared: a line that is not a
record, a field that is not a number, or a missing number without --missing.
Refusals may reveal records. If others choose the queries, use --missing,
--unparsed=missing, --bad_lines=missing and --dataset: then only the refusal of
a compressed file that is damaged, or far too large once unpacked, reveals
something. Never let others choose the flags that describe the file, nor see
error messages.
"""

import argparse
from collections.abc import Sequence
import csv
import io
import json
import pathlib
import re
import sys
from typing import Any

from dpjax.cli import errors
from dpjax.cli import file_formats
from dpjax.cli import flags as shared
from dpjax.privacy import exact
from dpjax.release import densities
from dpjax.release import ledger
from dpjax.release import parameters
from dpjax.release import pictures
from dpjax.release import registry
from dpjax.release import reservations
from dpjax.release import sessions
from dpjax.release import sources
from dpjax.release.query import PARAMETERS
from dpjax.release.query import Query
from dpjax.report import files

# JSON lists of numbers are put on one line; JSON texts have no line breaks.
_NUMBERS = re.compile(r'\[\n([-+.\deE,\snul]*)\]')
_FLAGS = {
    'The file': {
        'input': 'CSV, plain or .csv.gz, or Parquet (extra `parquet`).',
        **dict(file_formats.FLAGS)},
    'The ledger': {
        'ledger': 'Ledger of the data set. Releases on it run one at a time, '
        'each until its answer is on disk.',
        'ledger_budget_epsilon': 'Total epsilon; creates the ledger.',
        'ledger_budget_delta': 'Total delta. Default: 0, pure releases only.',
        'dataset': 'Name of the data set, for a ledger of all its versions. '
        'Default: a ledger of one file with exactly these bytes.',
        'show_ledger': 'Print what the ledger says, and do nothing else.'},
    'Output': {
        'output': 'JSON file of the release.',
        'plot': f'Figure of the release, .svg, of {", ".join(pictures.DRAWN)}.',
        'synthetic': 'Number of records to draw from a released density; they '
        'have its column alone, and cost no more.',
        'synthetic_output': 'CSV file of the synthetic records.'}}
_MAIN = (
    'input statistic column lower upper epsilon adjacency ledger '
    'ledger_budget_epsilon output').split()


def parse(argv: Sequence[str]) -> argparse.Namespace:
  """Parses the flags of a command line."""
  sections = {
      group.capitalize(): {name: parameter.help for name, parameter in
                           PARAMETERS.items() if parameter.group == group}
      for group in (parameters.RELEASE, parameters.COLUMN, parameters.PRIVACY)}
  return errors.parse_texts(
      argv, {**sections, **_FLAGS}, main=_MAIN,
      doc=(__doc__ or '').replace('{statistics}', _statistics()),
      switches=['show_ledger', *(
          name for name, parameter in PARAMETERS.items()
          if parameter.convert is parameters.switch)])


def _statistics() -> str:
  """Returns lines that say what each statistic is, needs and takes."""
  lines = []
  for each in registry.STATISTICS.values():
    lines += shared.wrapped(f'{each.name}: {each.help}')
    lines += shared.wrapped(
        f'needs {", ".join(each.needs) or "nothing"}; takes '
        f'{", ".join(each.takes) or "nothing else"}', 6)
  return '\n'.join(lines)


def query_of(args: argparse.Namespace) -> Query:
  """Returns the query that the flags ask for, checked."""
  statistic = registry.STATISTICS.get(args.statistic)
  required = {name: getattr(args, name) for name in (
      'input', 'statistic', *(statistic.needs if statistic else ()), 'epsilon',
      'adjacency', 'ledger', 'output')}
  # The budget is fixed when the ledger is made.
  if args.ledger and not pathlib.Path(args.ledger).exists():
    required[f'ledger_budget_epsilon (there is no ledger {args.ledger})'] = (
        args.ledger_budget_epsilon)
  shared.check_given(required)
  given: dict[str, Any] = {}
  for name, parameter in PARAMETERS.items():
    value = getattr(args, name)
    given[name] = value if value is None or parameter.split is None else (
        parameter.split(name, value))
  return registry.query_of(**given)


def _budget(args: argparse.Namespace) -> ledger.Budget | None:
  """Returns the total budget for a new ledger, None if it is not given."""
  if args.ledger_budget_epsilon is None:
    if args.ledger_budget_delta is not None:
      raise ValueError('--ledger_budget_delta needs --ledger_budget_epsilon')
    return None
  return ledger.Budget(
      epsilon=parameters.fraction('ledger_budget_epsilon',
                                args.ledger_budget_epsilon),
      delta=parameters.fraction('ledger_budget_delta',
                              args.ledger_budget_delta or '0'))


def release(args: argparse.Namespace,
            below: exact.Draw | None = None) -> dict[str, object]:
  """Answers the query of the flags and pays for it, see `sessions.release`.

  Args:
    args: parsed flags of the command line.
    below: randomness for tests; None for that of the ledger's secret.

  Raises:
    ValueError: for bad input, before any budget is spent.
  """
  # Refused before the file is opened, so a refusal says nothing of it.
  query, budget = query_of(args), _budget(args)
  return sessions.release(
      query, sources.File(args.input, file_formats.of_flags(args, args.input)),
      ledger=args.ledger, budget=budget, dataset=args.dataset,
      note=lambda text: print(text, file=sys.stderr),
      # Called before the release is paid.
      before=lambda: _check_output(args), below=below)


def _check_output(args: argparse.Namespace) -> None:
  """Refuses outputs that cannot be written, or would overwrite the ledger."""
  outputs = {name: getattr(args, name)
             for name in ('output', 'plot', 'synthetic_output')}
  # An empty file would be taken for a new ledger.
  errors.check_outputs({'ledger': args.ledger}, inputs={'input': args.input})
  # An answer or secret that is overwritten is lost, though paid for.
  errors.check_outputs(
      outputs, inputs={'ledger': args.ledger, 'input': args.input},
      kept={f'{folder.name}, which belongs to the ledger': folder
            for folder in reservations.folders(args.ledger)})
  for name, given in outputs.items():
    if given:
      errors.check_output(name, given)
  if args.plot:
    pictures.check(args.statistic, args.plot)
  _num_synthetic(args)


def _num_synthetic(args: argparse.Namespace) -> int:
  """Returns the number of synthetic records, or 0 if none are asked for."""
  if not args.synthetic and not args.synthetic_output:
    return 0
  if not args.synthetic or not args.synthetic_output:
    raise ValueError('give both --synthetic and --synthetic_output, or neither')
  if args.statistic != 'density':
    raise ValueError(f'--synthetic needs density, got {args.statistic}')
  if pathlib.Path(args.synthetic_output).suffix != '.csv':
    raise ValueError('--synthetic_output must end in .csv, got '
                     f'{args.synthetic_output}')
  text = args.synthetic.strip()
  # int() takes quadratic time, so a long text is refused unread.
  if not text.isdecimal() or len(text) > 7 or not 1 <= int(text) <= 10**6:
    raise ValueError('synthetic must be a whole number from 1 to 1000000, got '
                     f'{args.synthetic!r}')
  return int(text)


def _write_synthetic(args: argparse.Namespace, number: int,
                     answer: dict[str, object]) -> None:
  """Writes synthetic records of a released density, in one column."""
  # Post-processing of the release, at no cost.
  query = query_of(args)
  plan = registry.plan(query)
  if not isinstance(plan, densities.Density):
    raise ValueError(f'--synthetic needs density, got {args.statistic}')
  text = io.StringIO()
  form = file_formats.of_flags(args, args.input)
  csv.writer(text, delimiter=form.separator, lineterminator='\n').writerows(
      [(query.column,), *((value,) for value in plan.synthetic(
          answer, number))])
  files.replace(args.synthetic_output, text.getvalue().encode())


def main(args: argparse.Namespace) -> int:
  """Runs the command; returns the exit status."""
  if args.show_ledger:
    shared.check_given({'ledger': args.ledger})
    print(ledger.described(ledger.read(args.ledger)))
    return 0
  answer = release(args)
  text = _NUMBERS.sub(lambda match: f"[{' '.join(match[1].split())}]",
                      json.dumps(answer, indent=2, allow_nan=False))
  # Written first, in case the figure fails.
  files.replace(args.output, text.encode() + b'\n')
  if args.plot:
    pictures.draw(answer, args.plot)
  if number := _num_synthetic(args):
    _write_synthetic(args, number, answer)
  print(text)
  return 0
