"""This module has sixteen settings in four groups."""

import dataclasses
import itertools


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """Holds what one toy run needs."""
  dataset: str
  method: str
  epsilon: float
  seed: int


def _product(datasets, methods, epsilons, seeds):
  return tuple(
      Setting(dataset=dataset, method=method, epsilon=epsilon, seed=seed)
      for dataset, method, epsilon, seed
      in itertools.product(datasets, methods, epsilons, seeds))


SETTINGS = _product(('adult', 'dropout'), ('dp_sgd', 'lip_dp_sgd'),
                    (.5, 8.), (0, 1))
SMOKE = _product(('adult',), ('dp_sgd',), (1.,), (7, 8))
GALLERY = 'a figure'
TAGS = {
    'first': SETTINGS[:3],
    'adult': lambda setting: setting.dataset == 'adult',
    'none': lambda setting: False,
}
BATCHED = ('epsilon', 'seed')
PAPERS = ('003',)
ARTEFACT = 'Table 0 of no paper'
COST = '1 s on anything'
