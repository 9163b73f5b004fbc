"""Draws Figure 1.1 of Lalanne (2023) with private networks, and attacks."""

from collections.abc import Sequence
import math
from typing import Any

import numpy as np

from dpjax.privacy import tradeoff
from dpjax.privacy.notions import ApproxDP
from dpjax.report import plots
from experiments import papers
from experiments import records
from experiments import summary
from experiments.mia_sparsity import comparisons
from experiments.mia_sparsity import lookup
from experiments.mia_sparsity import sweep

_BLUE, _RED, _GREY = '#0072B2', '#D55E00', '0.35'
_STYLES = {  # Marker and colour by method.
    'dense': ('s', 'black'), 'magnitude': ('*', _BLUE),
    'butterfly': ('o', _RED), 'random': ('x', _GREY),
    'stopped': ('<', _GREY), 'decayed': ('v', _GREY), 'narrow': ('d', _GREY),
    'sgd': ('P', plots.COLOURS[2]), 'dp_sgd': ('^', plots.COLOURS[2]),
    'lip_dp_sgd': ('>', plots.COLOURS[3])}
_NAMES = {'magnitude': 'magnitude pruning', 'random': 'random mask'}
# Range of the logarithmic colour scale: fraction of non-zero parameters.
_HEAT = (0.01, 1.0)
_LABELLED = (4, 8, 12, 16, 24)  # Numbers of prunings that are labelled.


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws four panels for each profile.

  They show sparse networks; controls and private networks; ROC curves; and
  attack accuracy against the fraction of non-zero parameters.
  """
  profiles = lookup.collect(rows)
  drawn, axes = plots.new(max(1, len(profiles)), 4, width=4.2, height=3.6)
  for networks, line in zip(profiles, axes, strict=False):
    _plane(line[0], networks, ('dense', *lookup.SPARSE), named=True)
    _lines(line[0], networks)
    _heat_scale(drawn, line[0])
    line[0].set_title(f'{networks.profile}, {networks.dataset}: sparse '
                      'networks', fontsize=9)
    _plane(line[1], networks, ('dense', *lookup.SPARSE), named=False)
    _plane(line[1], networks, lookup.METHODS[3:], named=True)
    _floors(line[1], networks)
    line[1].set_title('controls; private networks with their epsilon',
                      fontsize=9)
    _curves(line[2], networks)
    _by_share(line[3], networks)
    for ax in line:
      if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize=6, handlelength=3)
  return drawn


def _heat_scale(drawn: Any, ax: Any) -> None:
  """Draws the colour scale inside the panel, below the falling line."""
  from matplotlib import cm
  from matplotlib import colors
  scale = drawn.colorbar(
      cm.ScalarMappable(colors.LogNorm(*_HEAT), 'viridis'),
      cax=ax.inset_axes([0.05, 0.12, 0.4, 0.03]), orientation='horizontal')
  scale.set_label('% non-zero', fontsize=6, labelpad=0)
  scale.set_ticks([0.01, 0.1, 1], labels=['1', '10', '100'], fontsize=6)


def _heat(share: float) -> Any:
  import matplotlib
  low, high = np.log(_HEAT)
  return matplotlib.colormaps['viridis'](
      (np.log(share) - low) / (high - low))


def _plane(ax: Any, networks: lookup.Networks, methods: Sequence[str], *,
           named: bool) -> None:
  """Draws defence by accuracy: means and standard deviations of networks."""
  seen = set()
  for kind in networks.kinds(*methods):
    if not networks.has(kind, comparisons.ACCURACY, 'defence', 'nonzero'):
      continue
    marker, colour = _STYLES[kind.method]
    x, wide = _spread(networks, kind, comparisons.ACCURACY, 100)
    y, high = _spread(networks, kind, 'defence')
    face = (_heat(networks.mean(kind, 'nonzero'))
            if kind.method in lookup.SPARSE else colour)
    label = _NAMES.get(kind.method, kind.method)
    ax.errorbar([x], [y], xerr=[wide], yerr=[high], marker=marker,
                color=colour, linestyle='none', elinewidth=0.6,
                markersize=8 if marker == '*' else 5, markeredgewidth=0.8,
                markerfacecolor=face, zorder=4 if marker == 's' else 3,
                label=label if named and label not in seen else None)
    seen.add(label)
    if named:
      _annotate(ax, networks, kind, (x, y), colour)
  ax.set_xlabel('test accuracy, %')
  ax.set_ylabel('defence against perceptrons')


def _spread(networks, kind, metric, unit=1):
  result = summary.summarise([unit * v for v in networks.each(kind, metric)])
  error = result.standard_error * math.sqrt(result.count)
  return result.mean, 0.0 if math.isnan(error) else error


def _annotate(ax, networks, kind, place, colour) -> None:
  """Labels a point: nonzero % of sparse networks, epsilon of private ones."""
  offset = (4, 4)
  if kind.method in lookup.PRIVATE:
    text = f'{kind.epsilon:g}'
  elif kind.method == 'butterfly' or (kind.method == 'magnitude'
                                      and kind.prunings in _LABELLED):
    text = f'{100 * networks.mean(kind, "nonzero"):.1f}'
    offset = (4, 4) if kind.method == 'magnitude' else (-18, -9)
  else:
    return
  ax.annotate(text, place, xytext=offset, textcoords='offset points',
              fontsize=6, color=colour)


def _lines(ax: Any, networks: lookup.Networks) -> None:
  """Draws lines through the dense network, of the printed and our slope."""
  result = comparisons.trade_off(networks, networks.kinds(*lookup.SPARSE))
  if result is None:
    return
  x = 100 * networks.mean(lookup.DENSE, comparisons.ACCURACY)
  y = networks.mean(lookup.DENSE, 'defence')
  limits = ax.get_ylim()
  slopes = {'printed': papers.SPARSITY.slope, 'ours': result.slope.value}
  for (name, slope), dashes in zip(slopes.items(), ('--', '-'), strict=True):
    ax.axline((x, y), slope=slope, color='0.4', linestyle=dashes,
              linewidth=0.9, label=f'{name}, slope {slope:.2f}')
  ax.set_ylim(limits)


def _floors(ax: Any, networks: lookup.Networks) -> None:
  """Draws the least defence that budget and event guarantee, at each point."""
  sources = {'ceiling': ('epsilon', ':'), 'event_ceiling': ('the event', '-')}
  for method in lookup.PRIVATE:
    for metric, (source, line) in sources.items():
      floors = [(100 * networks.mean(kind, comparisons.ACCURACY),
                 200 * (1 - networks.mean(kind, metric)))
                for kind in networks.kinds(method)
                if networks.has(kind, comparisons.ACCURACY, metric)]
      if floors:
        ax.plot(*zip(*floors, strict=True), marker='_', markersize=12,
                linestyle=line, linewidth=0.7, color=_STYLES[method][1],
                label=f'{method}: least by {source}')


def _curves(ax: Any, networks: lookup.Networks) -> None:
  """Draws ROC curves of the dense network, and the bound of each epsilon."""
  for series, attack in enumerate(lookup.ATTACKS):
    rates = _rates(networks, lookup.DENSE, attack)
    if rates:
      ax.plot(list(rates), list(rates.values()), label=attack, linewidth=1.2,
              color=plots.COLOURS[series], marker=plots.MARKERS[series],
              markersize=3.5)
  _pruned_curve(ax, networks)
  fpr = np.geomspace(sweep.FPR_LEVELS[0], 1, 200)
  ax.plot(fpr, fpr, color='0.6', linewidth=0.8, label='guessing')
  for epsilon in sweep.PROFILES[networks.profile].epsilons:
    most = 1 - tradeoff.approx(fpr, ApproxDP(epsilon=epsilon,
                                             delta=sweep.DELTA))
    ax.plot(fpr, most, color='0.4', linestyle=':', linewidth=0.8)
    ax.annotate(f'epsilon {epsilon:g}', (fpr[0], most[0]), xytext=(2, 1),
                textcoords='offset points', fontsize=6, color='0.3')
  ax.set_xscale('log')
  ax.set_yscale('log')
  ax.set_xlim(sweep.FPR_LEVELS[0], 1)
  ax.set_ylim(sweep.FPR_LEVELS[0], 1.2)
  ax.set_xlabel('false positive rate')
  ax.set_ylabel('true positive rate')
  ax.set_title('attacks on the dense network', fontsize=9)


def _pruned_curve(ax: Any, networks: lookup.Networks) -> None:
  """Draws the ROC curve of the sharpest attack on the sparsest network."""
  attack = comparisons.sharpest(networks)
  kinds = [kind for kind in lookup.claimed(networks, window=True)
           if kind.method == 'magnitude']
  rates = _rates(networks, kinds[-1], attack) if attack and kinds else {}
  if rates:
    ax.plot(list(rates), list(rates.values()), '--', linewidth=1.2,
            color=plots.COLOURS[lookup.ATTACKS.index(attack)],
            label=f'{attack}, {lookup.label(kinds[-1])}')


def _rates(networks, kind, attack) -> dict[float, float]:
  """Returns false positive rate -> true positive rate, where both exceed 0."""
  names = {level: f'{attack}_tpr_at_{level:g}' for level in sweep.FPR_LEVELS}
  return {level: networks.mean(kind, name) for level, name in names.items()
          if networks.has(kind, name) and networks.mean(kind, name) > 0}


def _by_share(ax: Any, networks: lookup.Networks) -> None:
  """Draws the accuracy of each attack by the share of nonzero parameters."""
  for series, attack in enumerate(lookup.ATTACKS):
    metric, colour = f'{attack}_accuracy', plots.COLOURS[series]
    for method, line in (('magnitude', '-'), ('butterfly', 'none')):
      kinds = [kind for kind in networks.kinds('dense', method)
               if networks.has(kind, metric, 'nonzero')
               and (method == 'magnitude' or kind != lookup.DENSE)]
      if kinds:
        ax.plot([100 * networks.mean(kind, 'nonzero') for kind in kinds],
                [100 * networks.mean(kind, metric) for kind in kinds],
                linestyle=line, color=colour, markersize=3.5, linewidth=1,
                marker=plots.MARKERS[series],
                fillstyle='full' if method == 'magnitude' else 'none',
                label=attack if method == 'magnitude' else None)
    if networks.has(lookup.DENSE, metric):
      ax.axhline(100 * networks.mean(lookup.DENSE, metric), color=colour,
                 linestyle=':', linewidth=0.7)
  ax.set_xscale('log')
  ax.set_xticks([1, 3, 10, 30, 100], ['1', '3', '10', '30', '100'])
  ax.set_xticks([], minor=True)
  ax.set_xlabel('% non-zero; hollow: butterflies, dotted: dense')
  ax.set_ylabel('attack accuracy, %')
  ax.set_title('attacks on sparse networks', fontsize=9)
