"""States what the rows show, in sentences below the tables."""

from collections.abc import Mapping

from dpjax.report import tables
from experiments.benchmarks import butterfly_findings
from experiments.benchmarks import methods
from experiments.benchmarks import network_findings
from experiments.benchmarks import quantile_findings
from experiments.benchmarks import targets
from experiments.benchmarks import values as collected
from experiments.benchmarks.values import Line
from experiments.benchmarks.values import Lines
from experiments.benchmarks.values import Metrics
from experiments.benchmarks.values import Values

_SCALED = 'vmap_scaled_sum'


def of_model(suite: str, lines: Lines) -> list[str]:
  """Returns sentences about one model; none where rows are missing."""
  text = {'step': _scaled_sums, 'sampling': _fastest}.get(
      suite, lambda lines: '')(lines)
  return [f'{text}\n'] if text else []


def of_suite(suite: str, values: Values) -> list[str]:
  """Returns the texts and tables below all models."""
  own = {'norms': _choices, 'quantiles': quantile_findings.of_suite,
         'butterfly': butterfly_findings.of_suite,
         'models': network_findings.of_suite}.get(suite)
  return [*_fusions(values), *(own(values) if own else ()),
          *targets.of_suite(suite, values)]


def _milliseconds(sizes: Mapping[int, Metrics]) -> dict[int, float]:
  """Returns milliseconds by size, of measurements that were completed."""
  return {size: metrics[collected.time_name(metrics)]
          for size, metrics in sizes.items()
          if collected.time_name(metrics) in metrics}


def _of(lines: Lines, method: str) -> Mapping[int, Metrics]:
  """Returns the metrics of a method on one device, by size."""
  return lines.get(Line(method, 1), {})


def _quotients(above: Mapping[int, Metrics],
               below: Mapping[int, Metrics]) -> str:
  """Returns ratios of times as 'size: ratio', for sizes that have both."""
  times, others = _milliseconds(above), _milliseconds(below)
  return _by_size({size: f'{times[size] / others[size]:.3g}'
                   for size in times.keys() & others.keys()})


def _by_size(texts: Mapping[int, str]) -> str:
  """Joins texts as 'size: text', in order of size."""
  return ', '.join(f'{size:,}: {texts[size]}' for size in sorted(texts))


def _scaled_sums(lines: Lines) -> str:
  """States the cost of `(c * g).sum(0)`, the obvious way to write it."""
  scaled = _of(lines, _SCALED)
  ratios = {'contracted ones': _quotients(scaled, _of(lines, 'vmap'))} | {
      f'themselves with @{name}': _quotients(
          scaled, _of(lines, f'{_SCALED}@{name}'))
      for name in methods.XLA_FLAGS}
  parts = [f'over {other}: {text}' for other, text in ratios.items() if text]
  if not parts:
    return ''
  ours = _by_size({size: f'{metrics["ratio"]:.3g}' for size, metrics in _of(
      lines, 'ours').items() if 'ratio' in metrics})
  return (f'Time of scaled sums {"; ".join(parts)}.'
          + f' Ratio of `ours` over L: {ours}.' * bool(ours))


def _fastest(lines: Lines) -> str:
  """Names the fastest draw by JAX on this backend, including those of dpjax."""
  best: dict[int, tuple[float, str]] = {}
  accelerator = False
  for line, sizes in lines.items():
    if line.method in methods.HOST_DRAWS:
      continue
    accelerator |= any(each.get('accelerator') for each in sizes.values())
    for size, time in _milliseconds(sizes).items():
      best[size] = min((time, line.method), best.get(size, (time, line.method)))
  texts = {size: f'{name} ({1e6 * time / size:.3g} ns each)'
           for size, (time, name) in best.items()}
  where = 'accelerator' if accelerator else 'CPU'
  return (f'Fastest draw by JAX on this {where}: {_by_size(texts)}.'
          if texts else '')


def _choices(values: Values) -> list[str]:
  """Returns the way chosen for each layer, and the costliest choice."""
  rows, ratios = [], []
  for model, lines in values.items():
    chosen = _of(lines, 'chosen')
    ways = sorted({collected.way(each) for each in chosen.values()
                   if 'by_gram' in each})
    if not ways:
      continue
    rows.append((model, ' and '.join(ways), _quotients(
        _of(lines, 'gram'), _of(lines, 'kept'))))
    ratios += [(each['ratio'], model, size)
               for size, each in chosen.items() if 'ratio' in each]
  if not rows:
    return []
  worst = ''
  if ratios:
    ratio, model, size = max(ratios)
    worst = (f'The costliest choice takes {ratio:.3g} times as long as the '
             f'faster way: {model}, {size:,} records.\n')
  return ['## Choices\n', tables.markdown(
      ('layer', 'chosen', 'time of gram over kept, by size'), rows), worst]


def _fusions(values: Values) -> list[str]:
  """Returns time without a set of XLA flags, divided by time with it."""
  rows = []
  for model, lines in values.items():
    for line, sizes in lines.items():
      base, at, _ = line.method.partition('@')
      text = _quotients(lines.get(line._replace(method=base), {}),
                        sizes) if at else ''
      if text:
        rows.append((model, line.method, text))
  if not rows:
    return []
  return ['## Effect of XLA flags\n',
          'Time without the flags over time with them, by size.\n',
          tables.markdown(('model', 'method', 'ratio'), rows)]
