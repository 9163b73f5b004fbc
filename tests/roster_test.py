"""Tests that each class privacy relies on has a soundness test in every run.

A test with the mark `sound` is never thinned. These rosters name, for each
layer, weight rule, mechanism, private estimator and released statistic, the
marked tests that cover it; a new class without one fails here.
"""

from collections.abc import Iterator
import dataclasses
import importlib
import inspect
import itertools
import pkgutil
import re

import pytest

from dpjax import features
from dpjax import grads
from dpjax import lipschitz
from dpjax import privacy
from dpjax import stats
from dpjax import theory
from dpjax.grads.bounder import GradientBounder
from dpjax.lipschitz import normalisation
from dpjax.lipschitz import pointwise
from dpjax.lipschitz import pooling
from dpjax.lipschitz import rules
from dpjax.privacy import accounting
from dpjax.privacy.mechanism import Mechanism
from dpjax.release import registry
from experiments.methods import statistics

_LAYERS = 'lipschitz.layers_test::test_table_of_constants'
_RULES = 'lipschitz.rules_test::test_weighted_norms_are_at_most_the_bound'
_MECHANISMS = 'privacy.battery_test::test_the_claim_covers_all_pairs'
# These mechanisms' releases are not sums, selections or few-cell answers.
_OWN_MECHANISMS = {
  'LangevinDescent': 'privacy.langevin_test::test_quadratics_attain_the_bound',
  'PrivateWhitening': 'features.whitening_test::test_the_sensitivity_by_enumeration'}
_FEW_SUMS = 'release.statistics_test::test_sensitivities_by_enumeration'
_CLASSIFIERS = 'release.classifiers_test::test_sensitivities_by_enumeration'
_STATISTICS = {
  **dict.fromkeys(('count', 'sum', 'mean', 'variance', 'histogram'), _FEW_SUMS),
  **dict.fromkeys(('classifier', 'roc', 'auc', 'hosmer_lemeshow'),
                  _CLASSIFIERS),
  'proportion': 'release.proportions_test::test_one_record_moves_one_count_by_one',
  'mode': 'release.modes_test::test_scores_and_privacy_by_enumeration',
  'quantiles': 'release.quantiles_test::test_quantiles_by_enumeration',
  'support_max': 'release.supports_test::test_scores_and_privacy_by_enumeration',
  'normal_mean': 'release.normal_means_test::test_sensitivities_by_enumeration',
  'ecdf': 'release.curves_test::test_sensitivities_by_enumeration',
  'density': 'release.densities_test::test_sensitivities_by_enumeration',
}
_COUPLED = 'stats.coupling_test::test_releases_of_neighbours_differ_by_what_is_claimed'
# These estimators release more than noisy numbers.
_ESTIMATORS = {name: tests
               for name, tests in {
    'GridQuantiles': (
        'experiments.methods.statistics.grid_quantiles_test::test_no_pair_loses_more_than_epsilon_and_one_loses_most_of_it',),
    'IndependentQuantiles': (
        'stats.quantile_methods.independent_quantiles_test::test_neighbours_differ_by_epsilon',),
    'InverseQuantiles': (
        'stats.quantile_methods.joint_test::test_epsilon_is_kept_and_attained',),
    'JointQuantiles': (
        'stats.quantile_methods.joint_test::test_epsilon_is_kept_and_attained',),
    'KnotQuantiles': (
        'stats.quantile_methods.knots_test::'
        'test_answers_are_interpolated_from_those_of_the_knots',),
    'RecursiveQuantiles': (
        'stats.quantile_methods.recursive_quantiles_test::'
        'test_neighbours_differ_by_epsilon_at_real_costs',),
    'SlicedQuantiles': (
        'experiments.methods.statistics.sliced_quantiles_test::test_no_pair_loses_more_than_the_guarantee',),
    'Smoothed': (
        'stats.quantile_methods.smoothing_test::test_noise_in_any_order_keeps_the_guarantee',),
    'UnboundedQuantiles': (
        'stats.quantile_methods.unbounded_test::test_noise_is_just_enough',),
    'WindowQuantiles': (
        'experiments.methods.statistics.window_quantiles_test::'
        'test_no_pair_loses_more_than_epsilon_and_one_loses_all_of_it',),
    'PrefixStream': (
        'stats.ecdf_methods.streams_test::'
        'test_one_item_moves_sums_as_noise_of_the_budget_does',),
    'TwoStages': (
        'stats.density_methods.adaptive_test::'
        'test_both_histograms_have_the_noise_that_is_paid_for',),
    'RankedSupport': (
        'theory.parametric.support_ranks_test::'
        'test_densities_of_neighbours_differ_by_epsilon_at_most',),
    'MinimaxShare': (
        'theory.parametric.noisy_shares_test::'
        'test_tables_of_noisy_counts_keep_epsilon_and_need_it',),
    'Descent': (
        'theory.parametric.sgml_test::'
        'test_last_iterates_of_neighbours_differ_by_what_is_claimed',
        'theory.parametric.sgml_test::test_quadratic_law'),
    'BatchDescent': (
        'theory.parametric.sgml_test::'
        'test_a_batch_moves_by_one_record_with_the_chance_that_is_claimed',
        'theory.parametric.sgml_test::test_batches_are_of_records'),
    'Subsampled': (
        'theory.parametric.subsampling_test::'
        'test_neighbours_differ_by_the_level_and_no_more',)}.items()}
# Packages whose classes with an event are private estimators.
_ESTIMATOR_PACKAGES = (stats, theory, statistics)
# These are for comparison; their event says that they are not private.
_NOT_PRIVATE = {'EmpiricalShare', 'MaximumLikelihood'}
_OTHERS = (
  'features.records_test::test_a_row_depends_on_its_record_alone',
  'features.normalisation_test::test_the_sensitivity_by_enumeration',
  'features.normalisation_test::test_noise_is_that_of_the_event',
  *(f'features.whitening_test::{test}' for test in (
    'test_no_contribution_exceeds_the_record_norm',
    'test_noise_is_that_of_the_event', 'test_a_release_is_that_of_its_sums')),
  'lipschitz.layers_test::test_constraint_and_certificate',
  'lipschitz.k_norm_test::test_no_gradient_exceeds_its_bound',
  'lipschitz.adaptive_test::test_counts_are_of_norms_before_the_projection',
  'lipschitz.random_networks_test::test_no_rule_exceeds_its_bounds',
  'lipschitz.random_networks_test::test_search_never_exceeds_the_bounds',
  'lipschitz.random_networks_test::'
  'test_activations_stay_within_the_forward_bounds',
  'lipschitz.reparametrisation_test::'
  'test_certificates_are_of_the_weights_in_use',
  'release.statistics_test::'
  'test_released_law_is_private_on_neighbouring_files',
  'stats.apis_test::test_plans_cost_what_is_asked',
  'stats.apis_test::test_what_is_released_is_what_the_plan_releases',
  'stats.ecdf_methods.streams_test::test_noise_of_sums_is_that_of_the_matrix',
  'release.splitting_test::test_privacy_by_enumeration',
  'release.splitting_test::test_sensitivities_by_enumeration',
)


def _function(test: str):
  module, _, name = test.partition('::')
  return getattr(importlib.import_module(f'tests.{module}'), name)


def _values(test: str) -> list:
  """Returns the values of a test's only parameter."""
  values, = [mark.args[1] for mark in _function(test).pytestmark
             if mark.name == 'parametrize']
  return list(values)


def _modules(package) -> Iterator:
  for module in pkgutil.walk_packages(package.__path__, f'{package.__name__}.'):
    yield importlib.import_module(module.name)


def _classes(package, *members: str) -> set[type]:
  """Returns a package's classes that have these members, without protocols."""
  return {value for module in _modules(package)
          for value in vars(module).values()
          if inspect.isclass(value) and value.__module__ == module.__name__
          and not getattr(value, '_is_protocol', False)
          and all(hasattr(value, name) for name in members)}


@pytest.mark.sound
@pytest.mark.parametrize('test', sorted({
  _LAYERS, _RULES, _MECHANISMS, _COUPLED, *_OTHERS,
  *_OWN_MECHANISMS.values(), *_STATISTICS.values(),
  *itertools.chain.from_iterable(_ESTIMATORS.values())}))
def test_no_case_is_left_out(test):
  function = _function(test)
  module = inspect.getmodule(function)
  marks = getattr(module, 'pytestmark', [])
  marks = [*function.pytestmark, *(marks if isinstance(marks, list)
                                   else [marks])]
  names = {mark.name for mark in marks}
  assert 'sound' in names and not names & {'slow', 'paper', 'skip', 'skipif'}
  for mark in marks:
    if mark.name == 'parametrize':
      assert not any(getattr(value, 'marks', ()) for value in mark.args[1])


def _nodes(node) -> Iterator:
  """Yields a node and all nodes within it."""
  yield node
  for name in ('nodes', 'branch', 'shortcut'):
    inner = getattr(node, name, ())
    for each in inner if isinstance(inner, tuple) else (inner,):
      yield from _nodes(each)


def test_every_layer_has_a_row():
  rows = importlib.import_module('tests.lipschitz.layers_test').ROWS
  assert set(_values(_LAYERS)) == set(rows)
  used = [node for row in rows.values() for node in _nodes(row.node)]
  nodes = _classes(lipschitz, 'apply', 'output_bound', 'backward')
  assert nodes <= {type(node) for node in used}, 'a type of node has no row'
  # A `Fixed` is identified by the function that built it.
  covered = {_maker(node.lipschitz) for node in used
             if isinstance(node, pointwise.Fixed)}
  makers = {(module.__name__, name)
            for module in (normalisation, pointwise, pooling)
            for name, value in vars(module).items()
            if inspect.isfunction(value) and not name.startswith('_')
            and value.__annotations__.get('return') is pointwise.Fixed}
  # Nothing is claimed about an opaque function.
  assert makers - covered == {(pointwise.__name__, 'opaque')}
  for kind in pointwise.ACTIVATIONS:
    assert kind in rows and f'bounded {kind}' in rows, kind


def _maker(function) -> tuple[str, str]:
  """Returns (module, name) of the function that defines a nested one."""
  return function.__module__, function.__qualname__.partition('.')[0]


def test_every_weight_rule_is_held_to_its_bound():
  covered = {name for name, value in vars(rules).items()
             if inspect.isfunction(value)
             and value.__annotations__.get('return') is rules.WeightRule}
  assert covered == {_maker(rule.bound)[1] for rule in _values(_RULES)}


@pytest.mark.parametrize('test', [
  'block_clipping_test', 'clip_norm_range_test', 'isolation_test'])
def test_every_bounder_of_gradients_is_checked(test):
  """Each gradient bounder is in tests of bounds, clip norms and isolation."""
  # `summed` claims no bound, and `at_radii` changes a bounder.
  names = {name for module in _modules(grads)
           for name, value in vars(module).items()
           if inspect.isfunction(value) and value.__module__ == module.__name__
           and value.__annotations__.get('return') is GradientBounder
           } - {'summed', 'at_radii'}
  assert {'clipped', 'normalized', 'adaptively_clipped'} <= names
  source = inspect.getsource(importlib.import_module(f'tests.grads.{test}'))
  for name in names:
    assert re.search(rf'\.{name}\(', source), name


def test_every_mechanism_is_in_the_roster():
  roster = importlib.import_module('tests.privacy.roster')
  assert _values(_MECHANISMS) == roster.CASES
  covered = {type(case.mechanism).__name__ for case in roster.CASES}
  classes = {value.__name__ for package in (privacy, features)
             for value in _classes(package, 'event', 'release')}
  assert classes <= covered | _OWN_MECHANISMS.keys()


def test_every_mechanism_implements_the_interface():
  """Rosters hold mechanisms, and all others have the interface's members."""
  for roster in ('privacy.roster', 'stats.coupling_test'):
    cases = importlib.import_module(f'tests.{roster}').CASES
    for case in cases.values() if isinstance(cases, dict) else cases:
      assert isinstance(case.mechanism, Mechanism), type(case.mechanism)
  for package in (privacy, features, *_ESTIMATOR_PACKAGES):
    for value in _classes(package, 'event', 'release'):
      if not inspect.isabstract(value):
        members = {*dir(value),
                   *(field.name for field in dataclasses.fields(value))}
        assert {'adjacency', 'risk'} <= members, value


def test_every_private_estimator_is_in_the_roster():
  """Every class of these packages with an event is in a roster."""
  cases = importlib.import_module('tests.stats.coupling_test').CASES
  assert _values(_COUPLED) == list(cases)
  coupled = {type(case.mechanism).__name__ for case in cases.values()}
  classes = {value.__name__ for package in _ESTIMATOR_PACKAGES
             for value in _classes(package, 'event', 'release')
             if not inspect.isabstract(value)}
  assert classes == coupled | _ESTIMATORS.keys() | _NOT_PRIVATE
  assert not coupled & _ESTIMATORS.keys()
  for kind in ('noisy_shares', 'likelihood'):
    module = importlib.import_module(f'dpjax.theory.parametric.{kind}')
    for name in _NOT_PRIVATE & vars(module).keys():
      assert getattr(module, name).event.fget(None) == (
          accounting.non_private_event())


def test_every_release_of_a_column_is_in_the_roster():
  """Every `stats` function of a key and a column is in the soundness test."""
  covered = {
      f'{module.__name__}.{name}' for module in _modules(stats)
      if module.__name__.endswith('.api')
      for name, value in vars(module).items()
      if inspect.isfunction(value) and value.__module__ == module.__name__
      and 'key' in inspect.signature(value).parameters
  }
  source = inspect.getsource(
      _function('stats.apis_test::test_what_is_released_is_what_the_plan_releases'))
  assert covered == {
      f'dpjax.stats.{kind.removesuffix("s")}_methods.api.{kind}'
      for kind in ('density', 'ecdf', 'quantiles')}
  for kind in ('density', 'ecdf', 'quantiles'):
    assert f'{kind}_api.{kind}(' in source


def test_every_released_statistic_has_its_sensitivity_enumerated():
  assert _STATISTICS.keys() == registry.STATISTICS.keys()
  for test, field in ((_FEW_SUMS, 'case'), (_CLASSIFIERS, 'statistic')):
    values, = [mark.args[1] for mark in _function(test).pytestmark
               if mark.name == 'parametrize' and mark.args[0] == field]
    names = {value if isinstance(value, str) else value['statistic']
             for value in values}
    assert names == {name for name, of in _STATISTICS.items() if of == test}
