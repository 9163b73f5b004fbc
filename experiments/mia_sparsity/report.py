"""Makes Figure 1.1 of Lalanne (2023), tables and verdicts from the rows."""

from collections.abc import Sequence

from dpjax.report import tables
from experiments import records
from experiments.mia_sparsity import claims
from experiments.mia_sparsity import comparisons
from experiments.mia_sparsity import figures
from experiments.mia_sparsity import inference
from experiments.mia_sparsity import lookup
from experiments.mia_sparsity import sweep

verdict = claims.verdict
figure = figures.figure

_INTRODUCTION = '''\
MIA-10 to MIA-13. Defence is 200 - 2 A, A the balanced accuracy in percent of \
the perceptrons of the chapter, chosen on the shadow network; brackets are 95 \
% Student limits over pairs of networks. Each network of a pair is attacked \
with the other as its shadow; the two are not independent, so a pair is one \
value. LiRA and RMIA use all other networks of the kind as shadows, so that \
their limits are only approximate. \
"Disjoint" is the printed rule, mean +- standard deviation over networks; p \
is the p-value, adjusted by Holm's method, of a two-sided t test of the \
difference to the dense network of the same split and seed. The oracle is the \
best of nine perceptrons on the target itself, which is optimistic. Ceilings \
bound the expected accuracy under REPLACE_ONE, by (epsilon, delta) and by the \
event that ran.
'''
_RARE = (0.01, 0.001)


def table(rows: Sequence[records.Row]) -> str:
  """Returns three tables a profile: defence, attacks, equal accuracies."""
  parts = [_INTRODUCTION]
  for networks in lookup.collect(rows):
    name = f'Profile {networks.profile}, {networks.dataset}'
    parts += [f'{name}: accuracy and defence.\n', _defences(networks),
              f'{name}: balanced accuracy of each attack, area under its '
              'curve, TPR at FPR 1 % and .1 %, in percent.\n',
              _attacks(networks)]
    lines = _equals(networks)
    if lines:
      parts += [
          f'{name}: gains of networks of 17.3 % or fewer over others of equal '
          'accuracy, interpolated; points of defence or of attack '
          'accuracy.\n', tables.markdown(
              ('over', 'measured by', 'networks', 'seeds', 'gain',
               'p, one-sided'), lines)]
  return '\n'.join(parts)


def _defences(networks: lookup.Networks) -> str:
  judged = claims.significant(networks)
  lines = []
  for kind in networks.kinds():
    disjoint, p_value = judged.get(kind, (None, None))
    lines.append((
        lookup.label(kind), _share(networks, kind, 'nonzero'),
        _number(networks, kind, 'num_params', '{:.0f}'),
        _share(networks, kind, 'train_accuracy'),
        _limits(networks, kind, 'test_accuracy', 100),
        _limits(networks, kind, 'defence'),
        '-' if disjoint is None else 'yes' if disjoint else 'no',
        '-' if p_value is None else f'{p_value:.2g}',
        len(networks.each(kind, 'defence'))))
  return tables.markdown(
      ('network', '% non-zero', 'parameters', 'training accuracy',
       'test accuracy', 'defence', 'disjoint', 'p', 'networks'), lines)


def _attacks(networks: lookup.Networks) -> str:
  lines = [(lookup.label(kind),
            *(_attack(networks, kind, attack) for attack in lookup.ATTACKS),
            _share(networks, kind, 'perceptron_oracle'),
            _share(networks, kind, 'ceiling'),
            _share(networks, kind, 'event_ceiling'))
           for kind in networks.kinds()]
  return tables.markdown(('network', *lookup.ATTACKS, 'oracle', 'ceiling',
                          'of the event'), lines)


def _attack(networks: lookup.Networks, kind: sweep.Kind, attack: str) -> str:
  rates = [f'{attack}_auc',
           *(f'{attack}_tpr_at_{level:g}' for level in _RARE)]
  accuracy = _share(networks, kind, f'{attack}_accuracy')
  if accuracy == '-':
    return '-'
  return ', '.join([accuracy, *(_share(networks, kind, rate)
                                for rate in rates)])


def _equals(networks: lookup.Networks) -> list[tuple]:
  metrics = ['defence', *(f'{attack}_accuracy' for attack in lookup.ATTACKS)]
  return [(result.name, metric, result.num_kinds, len(result.gains),
           result.interval.text('{:+.2f}'), f'{result.p_value:.2g}')
          for metric in metrics
          for result in (*comparisons.over_controls(networks, metric),
                        *comparisons.over_private(networks, metric))]


def _number(networks: lookup.Networks, kind: sweep.Kind, metric: str,
            form: str) -> str:
  if not networks.has(kind, metric):
    return '-'
  return form.format(networks.mean(kind, metric))


def _share(networks: lookup.Networks, kind: sweep.Kind, metric: str) -> str:
  if not networks.has(kind, metric):
    return '-'
  return tables.number(100 * networks.mean(kind, metric), digits=1)


def _limits(networks: lookup.Networks, kind: sweep.Kind, metric: str,
            unit: float = 1) -> str:
  if not networks.has(kind, metric):
    return '-'
  return inference.t_interval([
      unit * value for value in networks.pairs(kind, metric).values()
  ]).text('{:.1f}')
