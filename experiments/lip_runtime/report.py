"""Seconds of an epoch by method, and verdicts on the claims of the text."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from dpjax.report import plots
from dpjax.report import tables
from experiments import records
from experiments import verdicts
from experiments.lip_runtime import sweep

_METHODS = (*sweep.METHODS, 'lip_propagated', 'lip_norm')
_LIPSCHITZ = 'lip_dp_sgd'
# Ratios of two median times vary by this much on an idle machine.
_NOISE = 0.1


class Panel(NamedTuple):
  """One panel of the figure: the times of all methods on one device.

  Attributes:
    kind: kind of the settings.
    dataset: name of the data set.
    device: device that the rows state.
  """
  kind: str
  dataset: str
  device: str

  @property
  def title(self) -> str:
    """Returns the title of a panel: data set, network and device."""
    work = sweep.WORK[self.kind, self.dataset]
    name = {'convnet': f'ConvNet of {work.depth}',
            'wide_resnet': f'WRN-{work.depth}-{work.width}'}[work.model]
    return f'{self.dataset}, {name}, {self.device or "no device"}'


Values = dict[Panel, dict[str, dict[int, dict[str, float]]]]
"""Panel -> method -> batch size -> metric -> value."""


def collect(rows: Iterable[records.Row]) -> Values:
  """Returns the values of all rows, methods in the order of the sweep."""
  values: Values = {}
  for row in sorted(rows, key=lambda row: _METHODS.index(row.method)):
    cells = dict(pair.split('=', 1)
                 for pair in row.id.split('/', 1)[1].split(','))
    panel = Panel(cells['kind'], row.dataset, row.device)
    values.setdefault(panel, {}).setdefault(row.method, {}).setdefault(
        int(cells['batch_size']), {})[row.metric] = row.value
  return dict(sorted(values.items()))


def _sizes(methods) -> list[int]:
  return sorted({size for sizes in methods.values() for size in sizes})


def table(rows: Sequence[records.Row]) -> str:
  """Returns tables of times by batch size (rows) and method (columns)."""
  parts = []
  for panel, methods in collect(rows).items():
    timed = [metrics['epochs_timed'] for sizes in methods.values()
             for metrics in sizes.values()]
    synthetic = any(metrics['synthetic'] for sizes in methods.values()
                    for metrics in sizes.values())
    parts += [
        f'{panel.title}: median seconds of an epoch (over sgd in the same '
        f'process), by logical batch size. {_how(timed)} '
        f'{"Synthetic" if synthetic else "Real"} images.\n',
        _pivot(methods, lambda m: f"{m['epoch_seconds']:.4g} "
                                  f"({m['ratio_to_sgd']:.2f})"),
        f'{panel.title}: seconds to compile a step, and its scratch memory in '
        'MB.\n',
        _pivot(methods, lambda m: f"{m['compile_seconds']:.1f}, "
                                  f"{m['megabytes']:.0f}")]
  return '\n'.join(parts) or 'no rows\n'


def _how(timed: Sequence[float]) -> str:
  """Says whether epochs were timed, or extrapolated from steps."""
  if min(timed) >= 5:
    return f'{min(timed):.0f} epochs or more were timed.'
  return (f'Extrapolated from steps, {min(timed):.2g} to {max(timed):.2g} '
          'epochs of them.')


def _pivot(methods, cell) -> str:
  return tables.markdown(('batch size', *methods), [
      (size, *(cell(sizes[size]) if size in sizes else '-'
               for sizes in methods.values()))
      for size in _sizes(methods)])


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws Figure 5.3.2: a panel for each data set and device."""
  values = collect(rows)
  drawn, axes = plots.new(1, max(1, len(values)), width=4.2, height=3.4)
  for ax, (panel, methods) in zip(axes[0], values.items()):
    for name, sizes in methods.items():
      series = min(_METHODS.index(name), len(plots.COLOURS) - 1)
      points = sorted(sizes.items())
      plots.error_bars(ax, [size for size, _ in points],
                       [m['epoch_seconds'] for _, m in points],
                       [float('nan')] * len(points), name, series=series)
    ax.set_xscale('log', base=2)
    ax.set_yscale('log')
    ax.set_xlabel('logical batch size')
    ax.set_ylabel('seconds of an epoch')
    ax.set_title(panel.title)
    ax.legend()
  return drawn


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Judges three claims of Barczewski (2025, section 5.3.3).

  Each is judged on each data set and device.
  """
  values = collect(rows)
  result = [each for panel, methods in values.items()
           for each in _claims(panel, methods)]
  kinds = {panel.kind for panel in values}
  for kind in ('cpu', 'gpu'):
    if kind not in kinds:
      result.append(verdicts.Verdict(
          f'runtime, settings of kind {kind}', '-', '-', verdicts.NOT_RUN,
          'no rows'))
  return result


def _claims(panel: Panel, methods) -> list[verdicts.Verdict]:
  gaps = _over_lipschitz(methods, 'dp_sgd_vmap')
  shortcut = _over_lipschitz(methods, 'dp_sgd')
  return [_faster(panel, gaps), _growing(panel, gaps),
          _because(panel, gaps, shortcut)]


def _over_lipschitz(methods, name: str) -> dict[int, float]:
  """Returns batch size -> time over that of lip_dp_sgd in the same process."""
  ours, theirs = methods.get(_LIPSCHITZ, {}), methods.get(name, {})
  return {size: theirs[size]['ratio_to_sgd'] / ours[size]['ratio_to_sgd']
          for size in sorted(ours.keys() & theirs.keys())}


def _shown(gaps: dict[int, float]) -> str:
  return ', '.join(f'{gap:.2f} at {size}' for size, gap in gaps.items())


def _judge(claim: str, printed: str, gaps: dict[int, float], needed: int,
           holds, reason: str) -> verdicts.Verdict:
  if len(gaps) < needed:
    return verdicts.Verdict(claim, printed, '-', verdicts.NOT_RUN, 'no rows')
  outcome = verdicts.AGREES if holds() else verdicts.DIFFERS
  return verdicts.Verdict(claim, printed, _shown(gaps), outcome, reason)


def _faster(panel: Panel, gaps: dict[int, float]) -> verdicts.Verdict:
  return _judge(
      f'{panel.title}: Lip-DP-SGD takes less time than DP-SGD', 'faster',
      gaps, 1, lambda: min(gaps.values()) > 1 + _NOISE,
      'dp_sgd_vmap over lip_dp_sgd, the same process, by batch size')


def _growing(panel: Panel, gaps: dict[int, float]) -> verdicts.Verdict:
  def holds():
    sizes = sorted(gaps)
    return gaps[sizes[-1]] > gaps[sizes[0]] * (1 + _NOISE)

  return _judge(
      f'{panel.title}: ... especially for big batches', 'gap grows', gaps, 2,
      holds, 'the physical batch is capped for all alike; constant costs of a '
      'step, such as noise and certificates, weigh less in a large batch')


def _because(panel: Panel, gaps: dict[int, float],
             shortcut: dict[int, float]) -> verdicts.Verdict:
  """Judges the claim that DP-SGD is slower because it clips each record.

  dp_sgd clips without forming the gradients of records. If it is much faster
  than dp_sgd_vmap, the claim fails: these gradients cost the time, not
  clipping.
  """
  claim = f'{panel.title}: because DP-SGD clips at the sample level'
  vanished = {size: (gap - shortcut[size]) / (gap - 1)
              for size, gap in gaps.items()
              if size in shortcut and gap > 1 + _NOISE}
  if shortcut and not vanished:
    return verdicts.Verdict(claim, 'clipping', _shown(shortcut),
                            verdicts.NOT_COMPARABLE, 'there is no gap')
  return _judge(
      claim, 'clipping', shortcut, 1, lambda: max(vanished.values()) < 0.5,
      'dp_sgd over lip_dp_sgd: dp_sgd clips too, by book-keeping instead of '
      'one gradient for every record; the claim would need it to be as slow as '
      'dp_sgd_vmap')
