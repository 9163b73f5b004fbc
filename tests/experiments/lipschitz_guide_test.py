"""These tests check the tables of docs/lipschitz.md against rows."""

from experiments import lipschitz_guide
from experiments import papers
from experiments.lip_search import selected


def _cells(table, first):
  """Returns the cells of the line that starts with a text."""
  line, = (line for line in table.splitlines() if line.startswith(f'| {first}'))
  return [cell.strip() for cell in line.strip('|').split('|')]


def test_tables_pair_the_methods_that_folds_chose(make_row, monkeypatch):
  line = papers.TABLE_5_4[0]
  scores = {line.dataset: {'dp_sgd': dict(score=0.8),
                           'layer_clipped': dict(score=0.9),
                           'lip_dp_sgd': dict(score=0.7)}}
  monkeypatch.setattr(selected, '_read', lambda path: scores)
  values = {'dp_sgd': (0.9, 0.9), 'layer_clipped': (0.5, 0.7),
            'lip_dp_sgd': (0.6, 0.75), 'lip_unclipped': (0.25, 0.25)}
  rows = [make_row(id=f'lip_tabular/kind=table,method={method},seed={seed}',
                   dataset=line.dataset, method=method, seed=seed, value=value,
                   metric='test_accuracy')
          for method, each in values.items() for seed, value in enumerate(each)]
  other = make_row(id='lip_tabular/kind=grid,seed=0', dataset=line.dataset,
                   method='layer_clipped', value=0.0, metric='test_accuracy')
  assert _cells(lipschitz_guide.of_tables([*rows, other]), line.dataset) == [
      line.dataset, f'{line.epsilon:g}', '0.6000 +- 0.1000 (layer_clipped)',
      '0.6750 +- 0.0750 (lip_dp_sgd)', '0.0750 +- 0.0250', '0.2500 +- 0.0000']


def test_depth_shows_means_over_seeds(make_row):
  def rows(method, metric, values):
    return [make_row(
        id=f'lip_depth/kind=orthogonal,dataset=adult,method={method},epsilon=1,'
           f'num_examples=none,depth=8,weight_norm=1,seed={seed}',
        method=method, seed=seed, metric=metric, value=value)
            for seed, value in enumerate(values)]

  table = lipschitz_guide.of_depth(
      rows('lip_dp_sgd', 'test_accuracy', (0.5, 0.75))
      + rows('lip_dp_sgd', 'realised_first', (0.25, 0.75))
      + rows('dp_sgd', 'test_accuracy', (0.25, 0.25)))
  assert _cells(table, '8') == ['8', '0.6250', '-', '0.2500', '0.50', '-', '-']


def test_images_noise_and_costs(make_row):
  def image(profile, method, seed, value):
    return make_row(id=f'lip_images/profile={profile},seed={seed}', seed=seed,
                    dataset='mnist', method=method, value=value,
                    epsilon_requested=2.0, metric='test_accuracy')

  table = lipschitz_guide.of_images([
      image('cpu', 'lip_dp_sgd', 0, 0.25), image('cpu', 'lip_dp_sgd', 1, 0.75),
      image('cpu', 'dp_sgd', 0, 0.5), image('features', 'dp_sgd', 0, 0.125)])
  assert _cells(table, 'trained')[1:] == [
      'mnist', '2', '0.5000 +- 0.2500', '-', '0.5000']
  assert 'wavelets' not in table  # It has no row of Lip-DP-SGD.

  noise = [make_row(
      id=f'lip_noise/schedule=one_pass,dataset=adult,method={method},'
         f'noise=banded,epsilon=1,num_examples=400,seed={seed}', seed=seed,
      method=method, metric='test_accuracy', value=value)
           for method, seed, value in (('lip_dp_sgd', 0, .5), (
               'lip_dp_sgd', 1, .75), ('dp_sgd', 0, .25), ('dp_sgd', 1, .25))]
  table = lipschitz_guide.of_noise(noise)
  assert _cells(table, '200 groups') == [
      '200 groups, 200 steps', 'banded', '0.6250 +- 0.1250',
      '0.2500 +- 0.0000']
  assert 'poisson' not in table  # It has no rows.

  def cost(metric, value):
    return make_row(id='lip_runtime/kind=cpu,method=dp_sgd,batch_size=32',
                    dataset='mnist', metric=metric, value=value)

  table = lipschitz_guide.of_cost([cost('ratio_to_sgd', 1.25),
                                   cost('megabytes', 17.4)])
  assert _cells(table, 'mnist') == ['mnist', '32', 'dp_sgd', '1.25', '17']
