"""Compares claims about Figures 6.4 and 6.5 of Lalanne (2023) with the rows."""

from collections.abc import Sequence
import math

from experiments import points
from experiments import records
from experiments import verdicts
from experiments.quantile_atoms import lookup
from experiments.quantile_atoms import reference
from experiments.quantile_atoms import sweep

_SMOOTH = ('mixed_0_0', 'ratings', 'pages')
_DIVIDENDS = ('dividends', 'dividends_surrogate')
_EARNINGS = ('earnings', 'earnings_surrogate')
_ATOMS = ('mixed_0.2_0.1', 'mixed_0.5_0.25')
_MOST = 10_000
_LARGE = tuple(float(size) for size in sweep.SIZES if size >= sweep.SIZE)


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on every claim of section 6.3.5, and on better methods.

  The section is of Lalanne (2023).
  """
  cells = points.collect(rows)
  large = points.select(cells, num_examples=_LARGE)
  of = lambda data, *methods: points.select(large, dataset=data, method=methods)
  last = points.select(of(sweep.MIXED, 'hs_uniform', 'hs_printed',
                          'joint_floor', 'rec_floor', 'joint'),
                       num_examples=_LARGE[-1:])
  return [
      points.judged('values computed by other programs are reproduced',
                    f'{len(reference.cells()) + len(reference.by_sigma())} '
                    'cells', cells, _cells),
      points.judged('with atoms JointExp does not improve with n', 'flat',
                    points.select(cells, dataset='mixed_0.5_0.25',
                                  method='joint'), _flat),
      points.judged('JointExp and inverse sensitivity perform alike',
                    'similar', large, _alike('joint', 'inverse')),
      points.judged('uniform and Gaussian noise perform alike', 'similar',
                    large, _alike('hs_uniform', 'hs_gaussian')),
      points.judged('JointExp is as good with noise as without on Mixed(0,0), '
                    'Ratings and Pages', 'identical', of(
                        _SMOOTH, 'joint', 'hs_uniform'), _identical),
      points.judged('smoothing reduces the error on Dividends by orders of '
                    'magnitude', 'multiple orders', of(
                        _DIVIDENDS, 'joint', 'hs_uniform'), _vastly),
      points.judged('smoothing reduces the error on Earnings by orders of '
                    'magnitude', 'multiple orders', of(
                        _EARNINGS, 'joint', 'hs_uniform'), _vastly),
      points.judged('the more probable and isolated the atom, the more '
                    'smoothing helps', 'the order of the figure', last,
                    _growing),
      *_about_noise(points.select(of('mixed_0.5_0.25', 'joint', 'hs_uniform'),
                                  num_examples=float(sweep.SIZE))),
      points.judged('the recommended noise a = e^(-n epsilon/48) is as good '
                    'as the best', 'recommended', last, _recommended),
      points.judged('the recommended noise, but at least 1e-6 of the range, '
                    'is as good as the best',
                    'not in the text', last, _floored),
      points.judged('RecExp with budgets by depth and this noise is as good '
                    'as JointExp with the best noise',
                    'not in the text', last, _rec)]


def _about_noise(figure: list[points.Point]) -> list[verdicts.Verdict]:
  """Returns verdicts on Figure 6.5."""
  return [
      points.judged('a wide range of noise amplitudes helps as much',
                    'often', figure,
                    _range),
      points.judged('as noise tends to 0, the error is that of JointExp',
                    'the same', figure, _vanishing),
      points.judged('as noise grows, the error is that of the noise',
                    'terrible', figure, _growing_noise)]


def _cells(cells: list[points.Point]):
  errors, gaps = lookup.by_size(cells), []
  pairs = [(errors.get((dataset, size), {}).get(method), cell)
           for (dataset, method, size), cell in reference.cells().items()]
  figure = {(p['dataset'], round(math.log10(p['sigma']))): p
            for p in lookup.smoothed(points.select(
                cells, num_examples=float(sweep.SIZE)), 'hs_uniform')}
  pairs += [(figure.get((dataset, round(math.log10(sigma)))), cell)
            for (dataset, sigma), cell in reference.by_sigma().items()]
  for point, cell in pairs:
    if point is not None:
      spread = point['value_sup_se'] * math.sqrt(
          1 + point['repetitions'] / cell.runs)
      gap = abs(point['value_sup'] - cell.value) - cell.rounding
      gaps.append((max(gap, 0.0) / spread, point['dataset'], point['method'],
                   int(point['num_examples'])))
  if not gaps:
    return '-', False, 'none of the cells'
  met = sum(gap < 4 for gap, *_ in gaps)
  worst, *where = max(gaps)
  return (f'{met} of {len(gaps)} within 4 standard errors, at most {worst:.1f}',
          met == len(gaps),
          'after the rounding of the stored digits; the farthest is {} of {} '
          'at n = {}'.format(*where[1::-1], where[2]))


def _flat(cells: list[points.Point]):
  at = {int(p['num_examples']): p['value_sup'] for p in cells}
  if not {316, _MOST} <= set(at):
    return '-', False, 'not all n'
  return (f'{at[316]:.3f} at n = 316, {at[_MOST]:.3f} at 10^4',
          abs(at[_MOST] / at[316] - 1) < 0.15, 'Mixed(.5,.25)')


def _ratios(cells: list[points.Point], first: str, second: str,
            ) -> dict[tuple[str, int], float]:
  """Returns (distribution, n) -> error of the first method over the second."""
  return {key: of[first]['value_sup'] / of[second]['value_sup']
          for key, of in lookup.by_size(cells).items()
          if {first, second} <= set(of)}


def _span(ratios: dict[tuple[str, int], float]) -> str:
  return f'{min(ratios.values()):.2f} to {max(ratios.values()):.2f}'


def _alike(first: str, second: str) -> points.Judge:
  def judge(result: list[points.Point]):
    gaps = {}
    for key, of in lookup.by_size(result).items():
      if {first, second} <= set(of):
        gaps[key] = _gap(of[first], of[second])
    if not gaps:
      return '-', False, 'one of the two alone'
    dataset, size = worst = max(gaps, key=lambda key: abs(gaps[key]))
    return (f'{_span(_ratios(result, first, second))} times',
            abs(gaps[worst]) < 4, 'n from 1000 on; the farthest on '
            f'{dataset} at n = {size}, by {abs(gaps[worst]):.1f} standard '
            'errors')
  return judge


def _gap(first: points.Point, second: points.Point) -> float:
  """Returns the difference of two errors over its standard error.

  The standard error is that of independent data sets.
  """
  return (first['value_sup'] - second['value_sup']) / math.hypot(
      first['value_sup_se'], second['value_sup_se'])


def _identical(cells: list[points.Point]):
  worst, where = 0.0, '-'
  for (dataset, size), of in lookup.by_size(cells).items():
    if {'joint', 'hs_uniform'} <= set(of):
      pair = of['joint'], of['hs_uniform']
      gap = _gap(*pair)
      if gap > worst:
        worst, where = gap, f'{dataset} at n = {size}, by a factor of ' + (
            f'{pair[0]["value_sup"] / pair[1]["value_sup"]:.2f}')
  return (f'at most {worst:.1f} standard errors', worst < 4,
          f'farthest on {where}; values on a grid of 0.01 are atoms (QE-14)')


def _vastly(cells: list[points.Point]):
  best: dict[str, float] = {}
  for (dataset, _), ratio in _ratios(cells, 'joint', 'hs_uniform').items():
    best[dataset] = max(best.get(dataset, 0.0), ratio)
  return (', '.join(f'{dataset} {best[dataset]:.3g}'
                    for dataset in lookup.datasets(cells)
                    if dataset in best) or '-',
          bool(best) and min(best.values()) > 100,
          'largest ratio, n from 1000 on; other files replace that of the '
          'text, and in them the share of zero earnings is below the first '
          'quantile level, 1/9')


def _growing(cells: list[points.Point]):
  ratios = _ratios(cells, 'joint', 'hs_uniform')
  values = [ratios[dataset, _MOST] for dataset in sweep.MIXED
            if (dataset, _MOST) in ratios]
  return (', '.join(f'{value:.2f}' for value in values) or '-',
          len(values) > 2 and values == sorted(values),
          'ratios at n = 10^4, by growing atom')


def _by_sigma(cells: list[points.Point]) -> dict[float, float]:
  return {p['sigma']: p['value_sup'] for p in lookup.smoothed(
      cells, 'hs_uniform', fine=True)}


def _range(cells: list[points.Point]):
  at = _by_sigma(cells)
  if len(at) < 2:
    return '-', False, 'too few'
  good = [sigma for sigma, value in at.items() if value < 2 * min(at.values())]
  decades = math.log10(max(good) / min(good))
  return (f'{decades:.1f} decades within twice the best', decades >= 3,
          f'{min(good):g} to {max(good):g} on Mixed(.5,.25), n = 1000')


def _vanishing(cells: list[points.Point]):
  at, joint = _by_sigma(cells), points.select(cells, method='joint')
  if not at or not joint:
    return '-', False, 'one of the two alone'
  ratio = at[min(at)] / joint[0]['value_sup']
  return (f'{ratio:.2f} times at sigma {min(at):g}', abs(ratio - 1) < 0.15,
          'Mixed(.5,.25), n = 1000: float64 has 10^6 values in that width, so '
          'that smoothing still acts')


def _growing_noise(cells: list[points.Point]):
  at = _by_sigma(cells)
  if not at:
    return '-', False, 'none'
  ratio = at[max(at)] / max(at)
  return (f'{ratio:.2f} sigma', abs(ratio / 1.36 - 1) < 0.1,
          f'at sigma {max(at):g}, where 1.36 sigma is expected')


def _last(cells: list[points.Point], method: str) -> dict[str, float]:
  """Returns distribution -> error over that of hs_uniform, at n = 10^4.

  hs_uniform has the sigma of least error.
  """
  return {dataset: ratio for (dataset, _), ratio
          in _ratios(cells, method, 'hs_uniform').items()}


def _listed(ratios: dict[str, float]) -> str:
  return ', '.join(f'{ratios[dataset]:.2f}' for dataset in sweep.MIXED
                   if dataset in ratios) or '-'


def _recommended(cells: list[points.Point]):
  ratios = _last(cells, 'hs_printed')
  worst = max((ratios[dataset] for dataset in _ATOMS if dataset in ratios),
              default=0.0)
  return (_listed(ratios) + ' times the error with the best', 0 < worst < 1.5,
          'n = 10^4, by growing atom: a = 3e-91 changes no record (QE-01)')


def _floored(cells: list[points.Point]):
  ratios, old = _last(cells, 'joint_floor'), _last(cells, 'hs_printed')
  gain = max((old[dataset] / ratios[dataset] for dataset in ratios
              if dataset in old),
             default=math.nan)
  return (_listed(ratios) + ' times the error with the best', bool(ratios)
          and max(ratios.values()) < 1.5,
          f'n = 10^4, by growing atom; {gain:.0f} times better than without a '
          'floor')


def _rec(cells: list[points.Point]):
  ratios = _last(cells, 'rec_floor')
  return (_listed(ratios) + ' times its error', bool(ratios)
          and max(ratios.values()) < 1.5, 'n = 10^4, by growing atom')
