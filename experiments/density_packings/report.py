"""Draws packings, and checks each inequality by quadrature."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.density_packings import sweep
from experiments.density_packings import words

_FIELDS = ('kernel', 'smoothness', 'radius', 'num_bumps', 'width')
_METRICS = ('integral', 'least', 'largest', 'class_norm', 'variation',
            'crude_variation', 'divergence', 'separation',
            'printed_divergence', 'printed_separation')
_LABELS = {
    'spike': 'L = {L:g}, h = {h:g}',
    'triangle': 'L = {L:g}, m = {m}, h = {h:g}',
    'smooth': 'beta = {beta}, L = {L:g}, m = {m}, h = {w:g}',
    'wave': 'beta = {beta}, L = {L:g}, {m} cells'}


def table(rows: Sequence[records.Row]) -> str:
  """Returns the table of checks that densities are in their class, and ratios.

  The ratios are of distances to their bounds.
  """
  return (
      'The worst of 22 words (2 words for one bit). integral: its difference '
      'from 1; class_norm: slope, or norm of derivative beta, over L; '
      'variation, divergence: over bounds (21), (28) and (23), (30) corrected, '
      'crude_variation: over m times a bump; separation: squared distance over '
      '2 tau d_H, (24) and (31) with the exact common level; '
      'printed_divergence: (30) as printed, over the divergence; '
      'printed_separation: printed tau over ours.\n\n' + points.table(
          points.collect(rows), _FIELDS, _METRICS))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on each inequality of Appendices E, F and H.

  The appendices are those of Lalanne, Garivier and Gribonval (2023).
  """
  cells = points.collect(rows)
  bumps = points.select(cells, kernel=('triangle', 'smooth'))
  return [
      points.judged('packings are in their classes', 'Appendices E, F, H',
                    cells, _members),
      points.judged('equations (16), (21) and (28): total variations', 'bounds',
                    cells, lambda of: _most(of, 'variation')),
      points.judged('equations (22) and (29): m bumps', 'bounds',
                    bumps, lambda of: _most(of, 'crude_variation')),
      points.judged('equations (23) and (30), squared: divergences', 'bounds',
                    cells, lambda of: _most(of, 'divergence')),
      points.judged('equation (30), as printed', 'a bound', points.select(
          cells, kernel='smooth'), _printed_divergence),
      points.judged('equations (24) and (31): squared distances', 'bounds',
                    cells, _separation),
      points.judged('bumps of mean 0 have no cross terms',
                    'DEN-L11: equalities',
                    points.select(cells, kernel=('sawtooth', 'wave')),
                    _equal)]


def _members(cells):
  worst = max(p['integral'] for p in cells)
  least = min(p['least'] for p in cells)
  norm = max(p['class_norm'] for p in cells)
  return (f'integrals 1 to {worst:.0e}, at least {least:.2g}, norms at most '
          f'{norm:.4f} L', worst < 1e-12 and least >= 0 and norm < 1.005,
          f'{len(cells)} packings; norms by finite differences')


def _most(cells, metric):
  shares = [p[metric] for p in cells]
  return (f'{min(shares):.3f} to {max(shares):.3f} of the bounds',
          max(shares) <= 1 + 1e-9, f'{len(shares)} packings, the worst word of '
                                   'each')


def _printed_divergence(cells):
  least = min(p['printed_divergence'] for p in cells)
  return (f'{least:.2g} times the divergence', least >= 1,
          'the square of the integral of K is missing (erratum DEN-E12)')


def _separation(cells):
  least = min(p['separation'] for p in cells)
  shares = [p['printed_separation'] for p in cells
            if 'printed_separation' in p.values]
  return (f'at least {least:.3f} times the bounds', least >= 1 - 1e-9,
          'with half of the printed correction; the printed tau is '
          f'{min(shares):.2f} to {max(shares):.2f} times the valid one')


def _equal(cells):
  variation = min(p['variation'] for p in cells)
  separation = max(p['separation'] for p in cells)
  return (f'{variation:.4f} to {separation:.4f} of the bounds',
          variation > 0.999 and separation < 1.001, f'{len(cells)} packings')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws the densities of `sweep.FIGURES` to scale."""
  del rows  # The densities are computed here, not read from the rows.
  drawn, axes = plots.new(1, len(sweep.FIGURES), width=3.2, height=2.8)
  x = np.linspace(0, 1, 4001)
  for ax, (title, (setting, word)) in zip(axes[0], sweep.FIGURES.items()):
    packing, word = words.packing(setting), np.array(word)
    words.check(packing, word)
    density, = packing.densities(word[None], x)
    ax.plot(x, np.ones_like(x), '--', color='grey', linewidth=1,
            label='uniform')
    ax.plot(x, density, color=plots.COLOURS[0], linewidth=1.4,
            label='f' if len(word) == 1 else 'f at ' + ', '.join(
                f'{bit:d}' for bit in word))
    _support(ax, packing, density.max())
    ax.set_ylim(0, 1.25 * density.max())
    points.finish(ax, 'x', 'density', f'{title}\n' + _LABELS[
        setting.kernel].format(L=setting.radius, m=setting.num_bumps,
                               h=setting.width / 2, w=setting.width,
                               beta=setting.smoothness),
                  scales='linear linear', legend=False)
    ax.legend(fontsize=7, frameon=False, loc='lower center')
  return drawn


def _support(ax: Any, packing: Any, top: float) -> None:
  """Marks the width of the first bump."""
  low, high = (packing.centres[0] + side * packing.width / 2
               for side in (-1, 1))
  ax.annotate('', (low, 1.06 * top), (high, 1.06 * top),
              arrowprops=dict(arrowstyle='<->', color='black', linewidth=.8))
  name = {'triangle': '2 h', 'smooth': 'h'}.get(packing.kernel.name, 'w')
  ax.text(max((low + high) / 2, 0.11), 1.1 * top, f'{name} = {high - low:g}',
          ha='center', fontsize=8)
