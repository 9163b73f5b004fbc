"""Compares formulas and claims about depth with the rows.

The claims are those of catalogue item EXP-SWEEP, on Barczewski (2025, section
5.3.2).
"""

from collections.abc import Callable, Sequence

from experiments import records
from experiments import summary
from experiments import verdicts
from experiments.lip_depth import lookup
from experiments.lip_depth import sweep

# The largest z-score of some hundred variances exceeds this with probability
# 1e-6.
_Z_SCORE = 5.7
_ROUNDING = 1e-5
_ENERGY_BAND = 0.05
_FALL = 0.01


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on formulas, then verdicts on trained networks."""
  values = lookup.collect(rows)
  result = [*_noise(values), _multiplier(rows), *_energies(values),
           *_chains(values), *_residuals(values), _bounds_hold(values)]
  for dataset in lookup.datasets(values):
    result += [_depth(values, dataset, method) for method in sweep.METHODS]
    result.append(_deeper(values, dataset))
  return result + [_kept(values), *(_above(values, depth) for depth in (8, 16))]


def _law(claim: str, printed: str, gaps: dict[str, float], limit: float,
         reason: str) -> verdicts.Verdict:
  """Returns a verdict on a formula: its largest gap is at most `limit`."""
  if not gaps:
    return verdicts.Verdict(claim, printed, '-', verdicts.NOT_RUN, 'no rows')
  worst = max(gaps, key=gaps.get)
  ours = f'off by at most {gaps[worst]:.2g}'
  if gaps[worst] <= limit:
    return verdicts.Verdict(claim, printed, ours, verdicts.AGREES, reason)
  return verdicts.Verdict(claim, printed, ours, verdicts.DIFFERS,
                          f'{worst}: more than {limit:g}')


def _value(metrics: dict, name: str) -> float:
  value, = metrics[name].values()
  return value


def _gaps(values: lookup.Values, kind: str, keep: Callable,
          gap: Callable) -> dict[str, float]:
  return {f'{key.method} of depth {key.depth}': gap(key, metrics)
          for key, metrics in lookup.of_kind(values, kind).items()
          if keep(key)}


def _noise(values: lookup.Values) -> list[verdicts.Verdict]:
  score = lambda key, metrics: _value(metrics, 'largest_z_score')
  energy = lambda key, metrics: abs(
      _value(metrics, 'energy_ratio') / _value(metrics, 'num_layers') - 1)
  return [
      _law('standard deviation of the noise on an average, one layer',
           'z Delta / s', _gaps(values, 'noise', lambda key: not key.depth,
                                score),
           _Z_SCORE, 'in standard errors; 300 draws'),
      _law('the same, of each of K layers', 'z times that of DP-20',
           _gaps(values, 'noise', lambda key: key.depth > 0, score),
           _Z_SCORE, 'in standard errors, largest over layers'),
      _law('energy of noise with equal multipliers, measured', 'K-fold',
           _gaps(values, 'noise', lambda key: key.method == 'equal', energy),
           _ENERGY_BAND, 'compared with noise of one multiplier for each '
                         'layer, accounted as one release')]


def _multiplier(rows: Sequence[records.Row]) -> verdicts.Verdict:
  """Tests that data set, n and epsilon determine the noise multiplier."""
  groups: dict[tuple, set[float]] = {}
  for row in rows:
    if row.metric == 'noise_multiplier':
      groups.setdefault((row.dataset, row.n, row.epsilon_requested,
                         lookup.parse(row.id).kind), set()).add(row.value)
  gaps = {f'{dataset}, n = {n}, epsilon {epsilon:g}':
          max(result) - min(result)
          for (dataset, n, epsilon, _), result in groups.items()}
  return _law('noise multiplier at fixed sampling probability and steps',
              'a function of epsilon alone', gaps, 0.0,
              f'{len(groups)} groups of all methods, depths and seeds')


def _energies(values: lookup.Values) -> list[verdicts.Verdict]:
  equal = lambda key, metrics: abs(
      _value(metrics, 'energy_equal') / _value(metrics, 'energy_single')
      / _value(metrics, 'num_layers') - 1)
  saved = lambda key, metrics: max(0.0, _value(
      metrics, 'energy_optimal') / _value(metrics, 'energy_equal') - 1)
  everything = lambda key: True
  return [
      _law('energy of noise with equal multipliers', 'K-fold',
           _gaps(values, 'bounds', everything, equal), _ROUNDING,
           'chains and wide residual networks'),
      _law('the optimal split of DP-20', 'never more than equal multipliers',
           _gaps(values, 'bounds', everything, saved), _ROUNDING,
           'chains and wide residual networks')]


def _growth(values: lookup.Values, method: str,
            factor: Callable) -> dict[str, float]:
  """Returns how far the first layer's bound is from its growth with depth.

  Keys describe the network; values are relative deviations from the growth that
  `factor` predicts, starting at the least depth.
  """
  result, shallow = {}, {}
  for key, metrics in lookup.of_kind(values, 'bounds').items():
    if key.method != method:
      continue
    bound = _value(metrics, 'sensitivity_first')
    start = shallow.setdefault(key.weight_norm, (key, metrics, bound))
    expected = factor(key, metrics) / factor(*start[:2])
    result[f'depth {key.depth}, C = {key.weight_norm:g}'] = abs(
        bound / start[2] / expected - 1)
  return result


def _chains(values: lookup.Values) -> list[verdicts.Verdict]:
  return [_law('bound of the first of K layers of norm C, a chain',
               'C^(K - 1)', _growth(
                   values, 'chain',
                   lambda key, metrics: key.weight_norm**key.depth),
               _ROUNDING, 'C from 0.5 to 4')]


def _residuals(values: lookup.Values) -> list[verdicts.Verdict]:
  doubled = lambda key, metrics: 2.0**_value(metrics, 'num_blocks')
  return [
      _law('bound of the first layer, plain residual sums, C = 1',
           '2^blocks', _growth(values, 'plain', doubled), _ROUNDING,
           'E12: 2^18 in WRN-40-4'),
      _law('the same, averaged residual sums', 'constant',
           _growth(values, 'averaged', lambda key, metrics: 1.0), _ROUNDING,
           'depths 10 to 40')]


def _bounds_hold(values: lookup.Values) -> verdicts.Verdict:
  """Tests that no contribution of the sampled records exceeds its bound."""
  gaps = {
      f'{key.kind}: {key.dataset}, {key.method} of depth {key.depth}':
      max(max(metrics['realised_largest'].values()) - 1, 0.0)
      for key, metrics in lookup.trained(values).items()
      if 'realised_largest' in metrics}
  return _law('norm of a contribution over its bound', 'at most 1', gaps,
              _ROUNDING, 'some training records, at the last parameters of '
                         'each run; private, not for release')


def _depth(values: lookup.Values, dataset: str,
           method: str) -> verdicts.Verdict:
  """Returns a verdict: does accuracy fall from the least to the largest depth?

  It should fall for Lipschitz methods, and not fall for the others.
  """
  lipschitz = method in sweep.LIPSCHITZ
  expected = 'falls' if lipschitz else 'does not fall'
  claim = f'{dataset}, {method}: accuracy {expected} with depth'
  result = lookup.by_seed(values, dataset,
                         lookup.Line(method, sweep.WEIGHT_NORM), 'depth')
  if len(result) < 2:
    return verdicts.Verdict(claim, '-', '-', verdicts.NOT_RUN, 'no rows')
  (first, shallow), *_, (last, deep) = result.items()
  ours = ', '.join(
      f'{summary.cell(summary.summarise(seeds.values()))} at {depth}'
      for depth, seeds in ((first, shallow), (last, deep)))
  fall = summary.summarise(summary.differences(shallow, deep))
  falls = fall.mean > max(_FALL, 2 * fall.standard_error)
  reason = (f'falls by {summary.cell(fall)}, paired by seed' if falls else
            f'changes by only {summary.cell(fall)}, paired by seed')
  outcome = verdicts.AGREES if falls == lipschitz else verdicts.DIFFERS
  if outcome == verdicts.DIFFERS:
    reason += _why(method)
  return verdicts.Verdict(claim, '-', ours, outcome, reason)


def _why(method: str) -> str:
  if method == 'layer_clipped':
    return (': each of K layers is clipped to clip_norm / sqrt(K) and noised, '
            'while the gradients of deep perceptrons are in few of them')
  return ', with one set of hyperparameters for all depths'


def _deeper(values: lookup.Values, dataset: str) -> verdicts.Verdict:
  """Returns a verdict: can networks be deeper than with propagated bounds?

  Barczewski (2025, section 5.3.2) claims it.
  """
  claim = (f'{dataset}: Lip-DP-SGD supports deeper models than propagation '
           'of input bounds (section 5.3.2)')
  pair = [lookup.curve(values, dataset,
                       lookup.Line(name, sweep.WEIGHT_NORM), 'depth')
          for name in ('lip_dp_sgd', 'lip_propagated')]
  if not all(pair):
    return verdicts.Verdict(claim, 'deeper', '-', verdicts.NOT_RUN, 'no rows')
  ours, theirs = (_deepest(result) for result in pair)
  shown = f'up to {ours} and {theirs} hidden layers'
  reason = (f'largest depth within {_FALL:g} of one hidden layer, at epsilon '
            f'{sweep.EPSILON:g}; both bounds have the same product of norms')
  return verdicts.Verdict(
      claim, 'deeper', shown,
      verdicts.AGREES if ours > theirs else verdicts.DIFFERS, reason)


def _orthogonal(values: lookup.Values, method: str
                ) -> dict[float | None, dict[int, float]]:
  """Returns accuracies on adult by depth and seed, with orthogonal layers."""
  return lookup.by_seed(values, 'adult', lookup.Line(method, 1.0, True),
                        'depth')


def _kept(values: lookup.Values) -> verdicts.Verdict:
  """Returns a verdict: do orthogonal layers keep accuracy at any depth?"""
  claim = (f'adult, lip_dp_sgd with orthogonal layers: at most {_FALL:g} below '
           'one hidden layer at 16')
  result = _orthogonal(values, 'lip_dp_sgd')
  if not {1, 16} <= result.keys():
    return verdicts.Verdict(claim, '-', '-', verdicts.NOT_RUN, 'no rows')
  fall = summary.summarise(summary.differences(result[1], result[16]))
  return verdicts.Verdict(
      claim, '-', ', '.join(
          f'{summary.cell(summary.summarise(result[depth].values()))} at '
          f'{depth}' for depth in (1, 16)),
      verdicts.AGREES if fall.mean <= _FALL else verdicts.DIFFERS,
      f'falls by {summary.cell(fall)}, paired by seed')


def _above(values: lookup.Values, depth: int) -> verdicts.Verdict:
  """Returns a verdict: is Lip-DP-SGD above DP-SGD with orthogonal layers?"""
  claim = (f'adult, {depth} orthogonal layers: Lip-DP-SGD is at least as '
           'accurate as DP-SGD')
  ours, theirs = (_orthogonal(values, name).get(depth)
                  for name in ('lip_dp_sgd', 'dp_sgd'))
  if ours is None or theirs is None:
    return verdicts.Verdict(claim, '-', '-', verdicts.NOT_RUN, 'no rows')
  gap = summary.summarise(summary.differences(ours, theirs))
  return verdicts.Verdict(
      claim, '-', ' against '.join(summary.cell(summary.summarise(
          seeds.values())) for seeds in (ours, theirs)),
      verdicts.AGREES if gap.mean >= 0 else verdicts.DIFFERS,
      f'{summary.cell(gap)}, paired by seed; both train the same network')


def _deepest(cells: dict[float, summary.Summary]) -> float:
  """Returns the largest depth up to which accuracy falls by at most `_FALL`."""
  start, deepest = next(iter(cells.values())).mean, 0
  for depth, accuracy in cells.items():
    if accuracy.mean < start - _FALL:
      break
    deepest = depth
  return deepest
