"""This module has a small file of people and flags for each statistic."""

from dpjax.cli import estimate

ROWS = [(20 + i % 50, 'ab'[i % 3 == 0]) for i in range(200)]
OTHERS = {
  'count': {'lower': 30, 'upper': 39},
  'histogram': {'column': 'kind', 'lower': None, 'upper': None,
                'categories': 'a,b'},
  'mode': {'column': 'kind', 'lower': None, 'upper': None,
           'categories': 'a,b,c'},
  'sum': {}, 'mean': {}, 'variance': {},
  'quantiles': {'quantiles': '0.25,1/2'}, 'ecdf': {'thresholds': 8},
  'density': {'granularity': 1},
  'proportion': {'column': 'kind', 'lower': None, 'upper': None,
                 'positive': 'a'},
  'support_max': {'lower': 10}, 'normal_mean': {'sigma': 15},
  **{name: {'label': 'kind', 'positive': 'a', 'thresholds': 8, 'upper': 1}
     for name in ('classifier', 'roc', 'auc', 'hosmer_lemeshow')},
}


def run(words):
  return estimate.main(estimate.parse(words))
