r"""Plans a private study: what is possible, what estimators reach, how many n.

A proportion of 1000 answers at epsilon 0.1, and the n for a mean squared error
of 1e-4:
  python -m launch.bounds --model={example} --n=1000 --epsilon=0.1 \
    --target_risk=1e-4

A table over n and budgets, kept as CSV, and a figure of risks against n:
  python -m launch.bounds --model={example} --n=100,1000,10000 --epsilon=0.1,1 \
    --output=risks.csv --plot=risks.svg

Budgets, of which one is given: --epsilon (pure); --epsilon and --delta;
--rho (zCDP); --tv (total variation); --kl (Kullback-Leibler). Neighbours differ
in one record, n is public. Lists separated by commas are swept.

A lower bound is below the worst-case risk of every estimator with the
guarantee, an upper bound above that of the one it names; `exact` says that it
is the worst-case risk itself. Risks are the largest over the class of laws.
Other names of parameters: --d for --dimension, --k for --moment, --r for
--radius.

Models, and the parameters that each has:
{models}
"""

import argparse
from collections.abc import Sequence
import csv
import hashlib
import io
import itertools
import json
import math
import pathlib
from typing import Any

import numpy as np

from dpjax import errors as checks
from dpjax.privacy import notions
from dpjax.report import files
from dpjax.report import plots
from dpjax.report import tables
from dpjax.stats.minimax import bounds
from dpjax.stats.minimax.bounds import Guarantee
from dpjax.stats.parametric import sample_sizes
from dpjax.stats.parametric import studies
from dpjax.stats.parametric.study import Study
from launch import errors

_BUDGETS = (
    ('epsilon', 'Of pure or, with --delta, approximate privacy.'),
    ('delta', 'In [0, 1).'), ('rho', 'Of zCDP.'),
    ('tv', 'Level of total variation privacy.'),
    ('kl', 'Level of Kullback-Leibler privacy.'))
# Short names of parameters, where a study has no other of that name.
_SHORT = {'d': 'dimension', 'k': 'moment', 'r': 'radius'}
_MOST_AXES = 6
_GRID = 17
Row = dict[str, Any]


def _models() -> str:
  return '\n'.join(
      f'  {name:12} {s.help} ({s.loss})' + ''.join(
          f'\n{"":15}--{key}: {p.help}. Default: {p.default:g}.'
          for key, p in s.parameters.items())
      for name, s in studies.STUDIES.items())


def _parameters() -> list[str]:
  """Of all studies, and short names of some."""
  return sorted({key for study in studies.STUDIES.values()
                 for key in study.parameters} | set(_SHORT))


def parse(argv: Sequence[str]) -> argparse.Namespace:
  """The flags of a command line."""
  parser = errors.ArgumentParser(
      description=__doc__.replace('{models}', _models()).replace(
          '{example}', next(iter(studies.STUDIES), 'NAME')),
      allow_abbrev=False, conflict_handler='resolve',
      formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('--model', help='One of '
                      f'{", ".join(studies.STUDIES)}.')
  parser.add_argument('--n', help='Numbers of records.')
  for name, text in _BUDGETS:
    parser.add_argument(f'--{name}', help=text)
  for name in _parameters():
    parser.add_argument(f'--{name}', help=argparse.SUPPRESS)
  parser.add_argument('--target_risk', help='In units of the loss: prints the '
                      'n that an estimator meets it with, and that none does.')
  parser.add_argument('--output', help='File of all bounds, .csv or .json.')
  parser.add_argument('--plot', help='Figure of risks against n, .svg.')
  return parser.parse_args(list(argv[1:]))


def _numbers(name: str, text: str | None) -> list[float]:
  """Of a list, without those that came before."""
  if text is None:
    return []
  try:
    found = [float(part) for part in text.split(',')]
  except ValueError:
    found = [math.nan]
  if any(map(math.isnan, found)):
    raise ValueError(f'--{name} must be numbers, got {text}')
  return list(dict.fromkeys(found))


def _sizes(text: str | None) -> list[int]:
  found = _numbers('n', text)
  if not found:
    raise ValueError('--n must be given')
  for n in found:
    if n != round(min(n, 2 * sample_sizes.LARGEST)) or n < 1:
      raise ValueError('--n must be whole numbers from 1 to '
                       f'{sample_sizes.LARGEST}, got {text}')
  return list(map(int, found))


def guarantees(args: argparse.Namespace) -> list[tuple[str, Guarantee]]:
  """What budgets are given, each with its name."""
  given = {name: _numbers(name, getattr(args, name)) for name, _ in _BUDGETS}
  chosen = tuple(name for name in given if given[name])
  if chosen == ('epsilon', 'delta'):
    return [(f'epsilon {e:g}, delta {d:g}',
             bounds.simplest(notions.ApproxDP(epsilon=e, delta=d)))
            for e, d in itertools.product(given['epsilon'], given['delta'])]
  makers = {'epsilon': lambda x: notions.PureDP(epsilon=x),
            'rho': lambda x: notions.ZCDP(rho=x),
            'tv': lambda x: notions.TotalVariationPrivacy(level=x),
            'kl': lambda x: notions.KullbackLeiblerPrivacy(level=x)}
  if len(chosen) != 1 or chosen[0] not in makers:
    raise ValueError('give --epsilon, --epsilon and --delta, --rho, --tv or '
                     '--kl')
  return [(f'{chosen[0]} {x:g}', bounds.simplest(makers[chosen[0]](x)))
          for x in given[chosen[0]]]


def _study(args: argparse.Namespace) -> tuple[Study, list[dict[str, float]]]:
  """The study, and every setting of its parameters."""
  if not args.model:
    raise ValueError('--model must be given')
  study = studies.STUDIES[checks.check_choice('model', args.model,
                                              studies.STUDIES)]
  given = {}
  for name in _parameters():
    if getattr(args, name) is None:
      continue
    known = name if name in study.parameters else _SHORT.get(name)
    if known not in study.parameters:
      raise ValueError(f'{study.name} has no --{name}; it has '
                       f'{", ".join(study.parameters) or "no parameters"}')
    if known in given:
      raise ValueError(f'--{name} and --{known} are one: give one of them')
    given[known] = _numbers(name, getattr(args, name))
  lists = [[int(value) if isinstance(p.default, int) and value.is_integer()
            else value for value in given.get(name, [float(p.default)])]
           for name, p in study.parameters.items()]
  return study, [dict(zip(study.parameters, values, strict=True))
                 for values in itertools.product(*lists)]


def rows(study: Study, name: str, guarantee: Guarantee, n: int,
         parameters: dict[str, float]) -> list[Row]:
  """All bounds of a setting, the best of a kind first.

  Each with its ratio to the best lower bound.
  """
  given = {'num_examples': n, 'guarantee': guarantee, **parameters}
  trivial = study.trivial(**parameters)
  least = study.best_lower(**given)
  others = sorted(study.lower(**given), key=lambda b: -b.value)
  found = [('lower', *least, '')] + [
      ('lower', max(0.0, min(b.value, trivial)), b.name, '')
      for b in others[least.name != 'none':]]
  found += [('upper', u.value, u.name, 'exact' if u.exact else 'bound')
            for u in sorted(study.upper(**given), key=lambda u: u.value)]
  found += [('non_private', study.non_private(num_examples=n, **parameters),
             'without privacy', ''), ('trivial', trivial, 'best constant', '')]
  return [{'model': study.name, **parameters, 'n': n, 'budget': name,
           'kind': kind, 'value': float(value), 'name': label, 'is': told,
           'to_best_lower': float(value / least.value) if least.value > 0
           else math.inf} for kind, value, label, told in found]


def _best(found: list[Row], kind: str) -> Row | None:
  return next((row for row in found if row['kind'] == kind), None)


def _table(study: Study, settings: list[list[Row]]) -> str:
  """One line for each setting: the best bounds."""
  swept = [name for name in study.parameters
           if len({found[0][name] for found in settings}) > 1]
  lines = []
  for found in settings:
    low, up = _best(found, 'lower'), _best(found, 'upper')
    lines.append([
        *(f'{low[name]:g}' for name in swept), low['n'], low['budget'],
        f'{low["value"]:.4g}', low['name'],
        *((f'{up["value"]:.4g}', up['name'], f'{up["to_best_lower"]:.3g}')
          if up else ('-', 'none', '-')),
        *(f'{_best(found, kind)["value"]:.4g}'
          for kind in ('non_private', 'trivial'))])
  return tables.markdown(
      [*swept, 'n', 'budget', 'lower', 'by', 'upper', 'of', 'ratio',
       'non-private', 'constant'], lines)


def _all_bounds(found: list[Row]) -> str:
  """One line for each bound of one setting."""
  return tables.markdown(
      ['', 'risk', 'of', '', 'to best lower'],
      [[row['kind'].replace('_', '-'), f'{row["value"]:.4g}', row['name'],
        row['is'], f'{row["to_best_lower"]:.3g}'] for row in found])


def _sample_size(study: Study, name: str, guarantee: Guarantee,
                 parameters: dict[str, float], target: float) -> Row:
  given = {'target_risk': target, 'guarantee': guarantee, **parameters}
  return {**parameters, 'budget': name, 'target_risk': target,
          'enough': sample_sizes.enough(study, **given),
          'too_few': sample_sizes.too_few(study, **given)}


def _sizes_text(row: Row, study: Study) -> str:
  """Two numbers of records, in words."""
  told = ', '.join([*(f'{key} {row[key]:g}' for key in study.parameters),
                    row['budget']])
  enough = ('no known estimator up to '
            f'{sample_sizes.LARGEST}' if row['enough'] is None else
            f'enough: n = {row["enough"]}')
  return (f'risk {row["target_risk"]:g} at {told}: {enough}; '
          f'too few for any: n = {row["too_few"]}')


def _check_files(args: argparse.Namespace) -> None:
  for name, ends in (('output', ('.csv', '.json')), ('plot', ('.svg',))):
    given = getattr(args, name)
    if given is None:
      continue
    if pathlib.Path(given).suffix not in ends:
      raise ValueError(f'--{name} must end in {" or ".join(ends)}, got {given}')
    if not pathlib.Path(given).resolve().parent.is_dir():
      raise ValueError(f'--{name} must be a file in a folder that is there, '
                       f'got {given}')
    errors.check_file(given)
  if args.plot:
    errors.check_figure(args.plot)


def _write(path: str, found: list[Row], needed: list[Row]) -> None:
  """All bounds; numbers of records as rows of their own in CSV."""
  if path.endswith('.json'):
    def finite(row):
      return {key: str(value) if isinstance(value, float) and not
              math.isfinite(value) else value for key, value in row.items()}
    text = json.dumps({'bounds': list(map(finite, found)),
                       'records': list(map(finite, needed))}, indent=2) + '\n'
  else:
    extra = [{**found[0], **row, 'n': row[kind], 'kind': kind, 'is': '',
              'value': row['target_risk'], 'name': 'target risk',
              'to_best_lower': ''}
             for row in needed for kind in ('enough', 'too_few')]
    lines = io.StringIO()
    table = csv.DictWriter(lines, list(found[0]), extrasaction='ignore',
                           lineterminator='\n')
    table.writeheader()
    table.writerows([*found, *extra])
    text = lines.getvalue()
  files.replace(path, text.encode())


def _draw(path: str, study: Study, budgets: Sequence[tuple[str, Guarantee]],
          settings: Sequence[dict[str, float]], sizes: Sequence[int]) -> None:
  """Risks against n, one axes for each setting of all else."""
  each = list(itertools.product(settings, budgets))
  if len(each) > _MOST_AXES:
    raise ValueError(f'--plot has {_MOST_AXES} axes at most, got {len(each)} '
                     'settings besides --n')
  ends = ((min(sizes), max(sizes)) if len(sizes) > 1 else
          (max(2, sizes[0] // 100), sizes[0] * 100))
  grid = np.unique(np.geomspace(*ends, _GRID).round().astype(int)).tolist()
  figure, axes = plots.new(1, len(each), width=4.6, height=3.6)
  drawn = []
  for ax, (parameters, (name, guarantee)) in zip(axes[0], each, strict=True):
    found = [rows(study, name, guarantee, n, parameters) for n in grid]
    drawn += found
    _curves(ax, grid, found)
    told = [f'{key} {parameters[key]:g}' for key in parameters]
    ax.set_title(', '.join([study.name, *told, name]), fontsize=9)
    ax.set_ylabel(study.loss)
  plots.save(figure, path, digest=hashlib.sha256(
      json.dumps(drawn).encode()).hexdigest())


def _curves(ax: Any, grid: list[int], found: list[list[Row]]) -> None:
  """Lower bound, every estimator, no privacy and no data."""
  names = list(dict.fromkeys(row['name'] for one in found for row in one
                             if row['kind'] == 'upper'))
  for series, name in enumerate(names):
    line = {one[0]['n']: row['value'] for one in found for row in one
            if row['kind'] == 'upper' and row['name'] == name}
    ax.plot(line.keys(), line.values(), color=plots.COLOURS[
        1 + series % (len(plots.COLOURS) - 2)], label=name)
  best = [one[0]['value'] for one in found]
  ax.plot(grid, best, color=plots.COLOURS[0], linewidth=2,
          label='best lower bound')
  ax.fill_between(grid, 0, best, color=plots.COLOURS[0], alpha=.1, linewidth=0)
  for kind, style in (('non_private', '--'), ('trivial', ':')):
    ax.plot(grid, [_best(one, kind)['value'] for one in found], style,
            color='black', linewidth=1,
            label={'trivial': 'best constant'}.get(kind, 'without privacy'))
  ax.set_xscale('log')
  ax.set_yscale('log')
  top = _best(found[0], 'trivial')['value']
  shown = [row['value'] for one in found for row in one
           if row['value'] > 0 and (row['kind'] != 'lower' or row is one[0])]
  ax.set_ylim(min(shown) / 2, 3 * top if math.isfinite(top) else None)
  ax.set_xlabel('n')
  ax.legend(loc='upper center', bbox_to_anchor=(.5, -.16), ncols=2)


def main(args: argparse.Namespace) -> int:
  """Prints what is known of the study; returns the exit status."""
  _check_files(args)
  study, settings = _study(args)
  sizes, budgets = _sizes(args.n), guarantees(args)
  targets = _numbers('target_risk', args.target_risk)
  for target in targets:
    checks.check_positive('--target_risk', target)
  found = [rows(study, name, guarantee, n, parameters)
           for parameters in settings for name, guarantee in budgets
           for n in sizes]
  print(f'{study.name}: {study.help} ({study.loss})\n')
  print(_table(study, found))
  if len(found) == 1:
    print(_all_bounds(found[0]))
  needed = [_sample_size(study, name, guarantee, parameters, target)
            for parameters in settings for name, guarantee in budgets
            for target in targets]
  for row in needed:
    print(_sizes_text(row, study))
  if args.output:
    _write(args.output, [row for one in found for row in one], needed)
  if args.plot:
    _draw(args.plot, study, budgets, settings, sizes)
  return 0


if __name__ == '__main__':
  errors.run_main(main, parse)
