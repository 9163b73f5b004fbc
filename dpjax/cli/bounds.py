r"""Plans a private study: bounds on the risk, and the sample size it needs.

Bounds for a proportion of 1000 answers at epsilon 0.1, and the n that a mean
squared error of 1e-4 needs:
  dpjax bounds --model={example} --n=1000 --epsilon=0.1 \
    --target_risk=1e-4

A table over n and budgets, written as CSV, and a figure of risks against n:
  dpjax bounds --model={example} --n=100,1000,10000 --epsilon=0.1,1 \
    --output=risks.csv --plot=risks.svg

Give one budget: --epsilon (pure); --epsilon and --delta; --rho (zCDP); --tv
(total variation); --kl (Kullback-Leibler). Neighbouring data sets differ in one
record, and n is public. Comma-separated lists are swept.

Risks are worst cases over the class of distributions. A lower bound holds for
every estimator with the privacy guarantee. An upper bound holds for the
estimator that it names; `exact` means that it equals the estimator's risk.
Short names of parameters: --d for --dimension, --k for --moment, --r for
--radius.

Models and their parameters:
{models}
"""

import argparse
from collections.abc import Callable, Sequence
import csv
import hashlib
import io
import itertools
import json
import math
from typing import Any

import numpy as np

from dpjax import errors as checks
from dpjax.cli import errors
from dpjax.cli import flags as shared
from dpjax.privacy import notions
from dpjax.report import files
from dpjax.report import plots
from dpjax.report import tables
from dpjax.theory.minimax import bounds
from dpjax.theory.minimax.bounds import Guarantee
from dpjax.theory.parametric import sample_sizes
from dpjax.theory.parametric import studies
from dpjax.theory.parametric.study import Study

_BUDGETS = (
    ('epsilon', 'Epsilon of pure or, with --delta, approximate privacy.'),
    ('delta', 'Delta of approximate privacy, in [0, 1).'),
    ('rho', 'Rho of zCDP.'),
    ('tv', 'Level of total variation privacy.'),
    ('kl', 'Level of Kullback-Leibler privacy.'))
_OUTPUTS = (
    ('target_risk', 'Risks in units of the loss. Prints an n that suffices for '
     'one of the estimators, and an n that is too small for every estimator.'),
    ('output', 'File for all bounds, .csv or .json.'),
    ('plot', 'Figure of risks against n, .svg.'))
# Short names of parameters, used unless a study has a parameter of that name.
_SHORT = {'d': 'dimension', 'k': 'moment', 'r': 'radius'}
_MOST_AXES = 6  # settings in one figure
_GRID = 17      # values of n along a curve
Row = dict[str, Any]


def _models() -> str:
  """Returns the help text of all models and their parameters."""
  lines = []
  for name, study in studies.STUDIES.items():
    lines += shared.wrapped(f'{name}: {study.help} ({study.loss})')
    for key, p in study.parameters.items():
      lines += shared.wrapped(f'--{key}: {p.help}. Default: {p.default:g}.', 6)
  return '\n'.join(lines)


def _parameters() -> list[str]:
  """Returns the names of all studies' parameters, and the short names."""
  return sorted({key for study in studies.STUDIES.values()
                 for key in study.parameters} | set(_SHORT))


def parse(argv: Sequence[str]) -> argparse.Namespace:
  """Parses a command line."""
  doc = (__doc__ or '').replace('{models}', _models()).replace(
      '{example}', next(iter(studies.STUDIES), 'NAME'))
  return errors.parse_texts(argv, {
      'Study': {'model': f'One of {", ".join(studies.STUDIES)}.',
                'n': 'Numbers of records, separated by commas.'},
      'Budget': dict(_BUDGETS),
      'Output': dict(_OUTPUTS), '': dict.fromkeys(_parameters(), '')}, doc=doc)


def _numbers(name: str, text: str | None) -> list[float]:
  """Returns the distinct numbers of a comma-separated list, in order."""
  if text is None:
    return []
  numbers = shared.numbers(name, text, float)
  if any(map(math.isnan, numbers)):
    raise ValueError(f'--{name} must be numbers, got {text!r}')
  return list(dict.fromkeys(numbers))


def _sizes(text: str | None) -> list[int]:
  """Returns the numbers of records given by --n."""
  sizes = _numbers('n', text)
  for n in sizes:
    # round(inf) raises, so n is compared with a finite number.
    if n != round(min(n, 2 * sample_sizes.LARGEST)) or n < 1:
      raise ValueError('--n must be whole numbers from 1 to '
                       f'{sample_sizes.LARGEST}, got {text}')
  return list(map(int, sizes))


def guarantees(args: argparse.Namespace) -> list[tuple[str, Guarantee]]:
  """Returns (name, guarantee) of each budget that the flags give."""
  given = {name: _numbers(name, getattr(args, name)) for name, _ in _BUDGETS}
  chosen = tuple(name for name in given if given[name])
  if chosen == ('epsilon', 'delta'):
    return [(f'epsilon {e:g}, delta {d:g}',
             bounds.simplest(notions.ApproxDP(epsilon=e, delta=d)))
            for e, d in itertools.product(given['epsilon'], given['delta'])]
  makers: dict[str, Callable[[float], Guarantee]] = {
      'epsilon': lambda x: notions.PureDP(epsilon=x),
      'rho': lambda x: notions.ZCDP(rho=x),
      'tv': lambda x: notions.TotalVariationPrivacy(level=x),
      'kl': lambda x: notions.KullbackLeiblerPrivacy(level=x)}
  if len(chosen) != 1 or chosen[0] not in makers:
    raise ValueError('give one budget: --epsilon, --epsilon and --delta, '
                     '--rho, --tv or --kl')
  return [(f'{chosen[0]} {x:g}', bounds.simplest(makers[chosen[0]](x)))
          for x in given[chosen[0]]]


def _study(args: argparse.Namespace) -> tuple[Study, list[dict[str, float]]]:
  """Returns the study and every setting of its parameters."""
  study = studies.STUDIES[checks.check_choice('model', args.model,
                                              studies.STUDIES)]
  given = {}
  for name in _parameters():
    if getattr(args, name) is None:
      continue
    # --d is a parameter of some models, and short for one of others.
    known = name if name in study.parameters else _SHORT.get(name)
    if known not in study.parameters:
      raise ValueError(f'{study.name} has no --{name}; it has '
                       f'{", ".join(study.parameters) or "no parameters"}')
    if known in given:
      raise ValueError(f'--{name} and --{known} are the same parameter: give '
                       'one of them')
    given[known] = _numbers(name, getattr(args, name))
  lists = [[int(value) if isinstance(p.default, int) and value.is_integer()
            else value for value in given.get(name, [float(p.default)])]
           for name, p in study.parameters.items()]
  return study, [dict(zip(study.parameters, values, strict=True))
                 for values in itertools.product(*lists)]


def rows(study: Study, name: str, guarantee: Guarantee, n: int,
         parameters: dict[str, float]) -> list[Row]:
  """Returns all bounds of a setting, for each kind the best one first.

  Args:
    study: the model.
    name: text of the budget, for the column `budget`.
    guarantee: the privacy guarantee.
    n: number of records.
    parameters: values of the study's parameters.

  Returns:
    Rows with the bound and its ratio to the best lower bound.
  """
  given: dict[str, Any] = {'num_examples': n, 'guarantee': guarantee,
                           **parameters}
  trivial = study.trivial(**parameters)
  least = study.best_lower(**given)
  others = sorted(study.lower(**given), key=lambda b: -b.value)
  # The best bound stands first and is not repeated.
  labelled = [('lower', *least, '')] + [
      ('lower', max(0.0, min(b.value, trivial)), b.name, '')
      for b in others[least.name != 'none':]]
  labelled += [('upper', u.value, u.name, 'exact' if u.exact else 'bound')
               for u in sorted(study.upper(**given), key=lambda u: u.value)]
  labelled += [('non_private', study.non_private(num_examples=n, **parameters),
                'without privacy', ''),
               ('trivial', trivial, 'best constant', '')]
  return [{'model': study.name, **parameters, 'n': n, 'budget': name,
           'kind': kind, 'value': float(value), 'name': label, 'is': status,
           'to_best_lower': float(value / least.value) if least.value > 0
           else math.inf} for kind, value, label, status in labelled]


def _best(candidates: list[Row], kind: str) -> Row:
  """Returns the first row of a kind; every setting has all but 'upper'."""
  return next(row for row in candidates if row['kind'] == kind)


def _table(study: Study, settings: list[list[Row]]) -> str:
  """Returns a table with a line per setting: its best bounds."""
  swept = [name for name in study.parameters
           if len({bound_rows[0][name] for bound_rows in settings}) > 1]
  lines = []
  for bound_rows in settings:
    low = _best(bound_rows, 'lower')
    up = next((row for row in bound_rows if row['kind'] == 'upper'), None)
    lines.append([
        *(f'{low[name]:g}' for name in swept), low['n'], low['budget'],
        f'{low["value"]:.4g}', low['name'],
        *((f'{up["value"]:.4g}', up['name'], f'{up["to_best_lower"]:.3g}')
          if up else ('-', 'none', '-')),
        *(f'{_best(bound_rows, kind)["value"]:.4g}'
          for kind in ('non_private', 'trivial'))])
  return tables.markdown(
      [*swept, 'n', 'budget', 'lower', 'by', 'upper', 'of', 'ratio',
       'non-private', 'constant'], lines)


def _all_bounds(bound_rows: list[Row]) -> str:
  """Returns a table with a line per bound of one setting."""
  return tables.markdown(
      ['', 'risk', 'of', '', 'to best lower'],
      [[row['kind'].replace('_', '-'), f'{row["value"]:.4g}', row['name'],
        row['is'], f'{row["to_best_lower"]:.3g}'] for row in bound_rows])


def _sample_size(study: Study, name: str, guarantee: Guarantee,
                 parameters: dict[str, float], target: float) -> Row:
  """Returns an n that is enough for a target risk, and one that is too few."""
  given: dict[str, Any] = {'target_risk': target, 'guarantee': guarantee,
                           **parameters}
  return {**parameters, 'budget': name, 'target_risk': target,
          'enough': sample_sizes.enough(study, **given),
          'too_few': sample_sizes.too_few(study, **given)}


def _sizes_text(row: Row, study: Study) -> str:
  """Returns the result of `_sample_size` in words."""
  setting = ', '.join([*(f'{key} {row[key]:g}' for key in study.parameters),
                       row['budget']])
  enough = ('no known estimator up to '
            f'{sample_sizes.LARGEST}' if row['enough'] is None else
            f'enough: n = {row["enough"]}')
  return (f'risk {row["target_risk"]:g} at {setting}: {enough}; '
          f'too few for any: n = {row["too_few"]}')


def _write(path: str, bound_rows: list[Row], needed: list[Row]) -> None:
  """Writes all bounds; in a CSV file, sample sizes are additional rows."""
  if path.endswith('.json'):
    # JSON has no infinity.
    def finite(row: Row) -> Row:
      return {key: str(value) if isinstance(value, float) and not
              math.isfinite(value) else value for key, value in row.items()}
    text = json.dumps({'bounds': list(map(finite, bound_rows)),
                       'records': list(map(finite, needed))}, indent=2) + '\n'
  else:
    extra = [{**bound_rows[0], **row, 'n': row[kind], 'kind': kind, 'is': '',
              'value': row['target_risk'], 'name': 'target risk',
              'to_best_lower': ''}
             for row in needed for kind in ('enough', 'too_few')]
    lines = io.StringIO()
    table = csv.DictWriter(lines, list(bound_rows[0]), extrasaction='ignore',
                           lineterminator='\n')
    table.writeheader()
    table.writerows([*bound_rows, *extra])
    text = lines.getvalue()
  files.replace(path, text.encode())


def _draw(path: str, study: Study, budgets: Sequence[tuple[str, Guarantee]],
          settings: Sequence[dict[str, float]], sizes: Sequence[int]) -> None:
  """Draws risks against n, with one axes for each other setting."""
  each = list(itertools.product(settings, budgets))
  if len(each) > _MOST_AXES:
    raise ValueError(f'--plot has {_MOST_AXES} axes at most, got {len(each)} '
                     'settings besides --n')
  # A single n lies in the middle of four decades.
  ends = ((min(sizes), max(sizes)) if len(sizes) > 1 else
          (max(2, sizes[0] // 100), sizes[0] * 100))
  grid = np.unique(np.geomspace(*ends, _GRID).round().astype(int)).tolist()
  figure, axes = plots.new(1, len(each), width=4.6, height=3.6)
  drawn = []
  for ax, (parameters, (name, guarantee)) in zip(axes[0], each, strict=True):
    risks = [rows(study, name, guarantee, n, parameters) for n in grid]
    drawn += risks
    _curves(ax, grid, risks)
    labels = [f'{key} {parameters[key]:g}' for key in parameters]
    ax.set_title(', '.join([study.name, *labels, name]), fontsize=9)
    ax.set_ylabel(study.loss)
  plots.save(figure, path, digest=hashlib.sha256(
      json.dumps(drawn).encode()).hexdigest())


def _curves(ax: Any, grid: list[int], risks: list[list[Row]]) -> None:
  """Draws the risks of one setting against n.

  These are the best lower bound, the upper bound of each estimator, the risk
  without privacy and that of the best constant.
  """
  names = list(dict.fromkeys(row['name'] for one in risks for row in one
                             if row['kind'] == 'upper'))
  for series, name in enumerate(names):
    line = {one[0]['n']: row['value'] for one in risks for row in one
            if row['kind'] == 'upper' and row['name'] == name}
    # The first colour is for the lower bound; the last is black.
    ax.plot(line.keys(), line.values(), color=plots.COLOURS[
        1 + series % (len(plots.COLOURS) - 2)], label=name)
  best = [one[0]['value'] for one in risks]
  ax.plot(grid, best, color=plots.COLOURS[0], linewidth=2,
          label='best lower bound')
  ax.fill_between(grid, 0, best, color=plots.COLOURS[0], alpha=.1, linewidth=0)
  for kind, style in (('non_private', '--'), ('trivial', ':')):
    ax.plot(grid, [_best(one, kind)['value'] for one in risks], style,
            color='black', linewidth=1,
            label={'trivial': 'best constant'}.get(kind, 'without privacy'))
  ax.set_xscale('log')
  ax.set_yscale('log')
  top = _best(risks[0], 'trivial')['value']
  # Other lower bounds may be tiny and would stretch the axis.
  shown = [row['value'] for one in risks for row in one
           if row['value'] > 0 and (row['kind'] != 'lower' or row is one[0])]
  ax.set_ylim(min(shown) / 2, 3 * top if math.isfinite(top) else None)
  ax.set_xlabel('n')
  ax.legend(loc='upper center', bbox_to_anchor=(.5, -.16), ncols=2)


def main(args: argparse.Namespace) -> int:
  """Prints the bounds that the flags ask for; returns the exit status."""
  budget = any(getattr(args, name) for name, _ in _BUDGETS) or None
  shared.check_given({
      'model': args.model, 'n': args.n,
      'epsilon (or another budget)': budget})
  if args.output:
    errors.check_output('output', args.output, '.csv', '.json')
  if args.plot:
    errors.check_figure(args.plot)
  study, settings = _study(args)
  sizes, budgets = _sizes(args.n), guarantees(args)
  targets = _numbers('target_risk', args.target_risk)
  for target in targets:
    checks.check_positive('--target_risk', target)
  by_setting = [rows(study, name, guarantee, n, parameters)
                for parameters in settings for name, guarantee in budgets
                for n in sizes]
  print(f'{study.name}: {study.help} ({study.loss})\n')
  print(_table(study, by_setting))
  if len(by_setting) == 1:
    print(_all_bounds(by_setting[0]))
  needed = [_sample_size(study, name, guarantee, parameters, target)
            for parameters in settings for name, guarantee in budgets
            for target in targets]
  for row in needed:
    print(_sizes_text(row, study))
  if args.output:
    _write(args.output, [row for one in by_setting for row in one], needed)
  if args.plot:
    _draw(args.plot, study, budgets, settings, sizes)
  return 0
