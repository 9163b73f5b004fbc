"""Tests the defaults of the package's arguments against one table."""

import importlib
import inspect
import math
import pkgutil
import typing

from dpjax import stats
from dpjax import theory
from experiments.methods import statistics
from experiments.methods import theory as theory_methods

# Defaults by name, for all functions that take it except those below.
DEFAULTS = dict(
    above=0.0, accounting='tight', alike=False, allocation='proportional',
    allow_unsound=False, amplitude=0.9, at=0.0, base=1.001, basis='fourier',
    batch_size=256, below=0.0, between='linear', boundary='interval',
    budget='depth', cells_share=0.5, centre=0.5, concentrated=False,
    confidence=0.95, corrected=False, cost='real', count_share=0.5,
    counts=False, ddof=1, decreasing=False, delta=0.0, density_max=1.0,
    density_min=1.0, derived=False, dimension=1, downwards=False, end='equal',
    estimator='least_squares', exact=False, exponential=False, factor=1.0,
    failure_prob=0.01, first=1, fitted=False, fix_mass=True, floor=1e-6,
    frequency=30, growth=2**(1 / 3), height=8, information_trace=math.inf,
    interpolation='linear', interval='exact', item_bits=16, joint=False,
    kind='uniform', knots=5, known_last_row=False, largest=10**9, length=1.0,
    levels=1, lipschitz=math.inf, lower=0.0, mass=0.0, method='auto',
    min_expected=5.0, missing='refuse', moment=math.inf, monotone=True,
    most=1023, needs='', noise='discrete_laplace', num_actions=41,
    num_bins=256, num_candidates=50_000, num_draws=400, num_estimates=41,
    num_frequencies=64, num_groups=10, num_places=64, num_proportions=31,
    num_rounds=200, num_thresholds=1, of='population', offsets=0.0,
    penalty=2.0, periodic=True, positive='high', post='none', printed=False,
    profile='', projected=False, public_labels=False, radius=1.0,
    rank_share=0.6, randomizer='bernoulli', replacement=False, root=True, rounded=False, rule='exact',
    scale=1.0, scores='any', selection_share=0.6, shape=(16, 16),
    shared_noise=False, shares=(0.1, 0.2, 0.7), sharp=False, shrinkage=1.0,
    slope=1.0, statement='corrected', step=1, structure='private',
    taper='pinsker', threshold=2.0, tolerance=0.005, total=False,
    tuning='exact', upper=1.0, version='optimised', weight=1.0, weights=())
OTHERS = {
    ('AdaptiveHistogram', 'basis'): 'spline',
    ('SlicedQuantiles', 'failure_prob'): 0.05,
    ('coarse', 'interpolation'): 'smooth',
    ('coarse_bins', 'interpolation'): 'smooth',
    ('contraction', 'joint'): 1.0, ('Kernel', 'lipschitz'): False,
    ('binomial', 'method'): 'wilson', ('proportion', 'method'): 'wilson',
    ('proportion_forced', 'method'): 'wilson', ('exact', 'min_expected'): 0.0,
    ('best_bins', 'most'): 4096, ('test', 'num_draws'): 199,
    ('MergedHistogram', 'penalty'): 4.0, ('Polygon', 'post'): 'simplex',
    ('HistogramQuantiles', 'post'): 'isotonic',
    ('printed_relaxation', 'rule'): 'corollary',
    ('GridQuantiles', 'rule'): 'permute_and_flip',
    ('TwoResolutions', 'share'): 0.3, ('TwoStages', 'share'): 0.25,
    ('printed', 'shares'): (0.125, 0.125, 0.125, 0.625)}

# Modules are imported here, so that no test counts as running their lines.
MODULES = [importlib.import_module(info.name) for package in (
               stats, theory, statistics, theory_methods)
           for info in pkgutil.walk_packages(package.__path__,
                                             f'{package.__name__}.')]


def test_defaults_are_those_of_the_table():
  """All defaults are the table's, so unsound or printed
  variants need a name."""
  known, others = set(), set()
  for module in MODULES:
    for name, value in vars(module).items():
      if name.startswith('_') or not callable(value) or (
          getattr(value, '__module__', None) != module.__name__) or (
              typing.is_typeddict(value)):  # It has no signature.
        continue
      for parameter in inspect.signature(value).parameters.values():
        default, place = parameter.default, (name, parameter.name)
        if not isinstance(default, (bool, int, float, str)) and (
            type(default) is not tuple):
          continue
        wanted = OTHERS.get(place, DEFAULTS.get(parameter.name))
        assert (default, type(default)) == (wanted, type(wanted)), place
        (others if place in OTHERS else known).add(
            place if place in OTHERS else parameter.name)
  assert known == set(DEFAULTS) and others == set(OTHERS)
