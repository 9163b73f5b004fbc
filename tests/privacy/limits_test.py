"""Tests the limits of the arguments of all public functions.

Each number of each function and class of this package, and of modules of
experiments that build on it, is tried at both ends of its range, next to them,
as NaN and as infinity. The ranges are listed here; a function that is not
listed must be in `ARRAYS`.
"""

from collections.abc import Sequence
import importlib
import inspect
import math
import pkgutil
from typing import NamedTuple

import numpy as np
import pytest

from dpjax import privacy
from dpjax.privacy import accounting
from dpjax.privacy import correlated
from dpjax.privacy import notions
from dpjax.privacy import renyi
from dpjax.privacy import tree_strategy
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.stopping import RandomStopping
from experiments.methods.mechanisms import adaptive
from experiments.methods.mechanisms import forced_response
from experiments.methods.mechanisms import renyi_steps
from experiments.methods.statistics import local_queries
from experiments.methods.statistics import noise_magnitudes
from experiments.methods.theory import compared_notions
from experiments.methods.theory import composition
from experiments.methods.theory import printed_guarantees
from experiments.methods.theory import tradeoffs

REPLACE = Adjacency.REPLACE_ONE
EVENT = accounting.gaussian_event(noise_multiplier=5.0)
STOPPING = RandomStopping(mean=2.0)
APPROX = notions.ApproxDP(epsilon=0.1, delta=1e-6)
PURE, ZCDP = notions.PureDP(epsilon=0.5), notions.ZCDP(rho=0.1)
FOURTH = renyi.RenyiDP(order=4.0, divergence=0.1)


class Range(NamedTuple):
  """The allowed range of a number.

  Attributes:
    taken: accepted values, including the ends of the range.
    refused: refused values, besides NaN.
    usual: the number's value while another number is tried.
  """
  taken: Sequence[float]
  refused: Sequence[float]
  usual: float = 1.0


POSITIVE = Range((1e-3, 0.7), (0.0, -1.0, math.inf))
NOT_NEGATIVE = Range((0.0, 0.7), (-1e-9, math.inf))
OPEN = Range((1e-9, 1 - 1e-9), (0.0, 1.0, -0.1), 0.1)
SHARE = Range((1e-9, 1.0), (0.0, 1 + 1e-9), 0.5)
DELTA = Range((1e-12, 0.9), (0.0, 9e-13, 1.0), 0.1)
HALF_OPEN = Range((0.0, 0.999), (-1e-9, 1.0), 0.1)
SCALE = Range((1e-12, 1e12), (0.0, 9e-13, 1.1e12, -1.0))
ORDER = Range((1 + 1e-9, 50.0), (1.0, 0.5, math.inf), 2.0)
LOCAL = Range((1e-3, 20.0), (0.0, 20.1, -1.0))


def whole(least, most=None):
  """Returns the range of integers from `least` on."""
  ends = () if most is None else (most,)
  return Range((least, least + 1, *ends),
               (least - 1, least + 0.5, *(end + 1 for end in ends)),
               most if most == 3 else least)


def _refused(kind):
  """Returns a range without accepted values, which take
  too long to calibrate."""
  return kind._replace(taken=())


_OUTSIDE = (adaptive, compared_notions, composition, forced_response,
            local_queries, noise_magnitudes, printed_guarantees, renyi_steps,
            tradeoffs)
_RANGE = dict(lower=0.0, upper=1.0)
_ROWS = {
  'accounting.gaussian_event': dict(noise_multiplier=POSITIVE),
  'accounting.laplace_event': dict(noise_multiplier=POSITIVE),
  'accounting.discrete_laplace_event': dict(
    noise_parameter=POSITIVE, sensitivity=whole(1)),
  'accounting.pure_event': dict(epsilon=POSITIVE, adjacency=REPLACE),
  'accounting.bounded_range_event': dict(width=POSITIVE, adjacency=REPLACE),
  'accounting.concentrated_event': dict(rho=POSITIVE, adjacency=REPLACE),
  'accounting.randomized_response_event': dict(
    uniform_prob=SHARE, num_categories=whole(2)),
  'accounting.repeat_and_select_event': dict(
    event=EVENT, mean=POSITIVE, shape=NOT_NEGATIVE),
  'accounting.poisson_gaussian_event': dict(
    sampling_prob=SHARE, noise_multiplier=POSITIVE, num_steps=whole(0)),
  'accounting.poisson_event': dict(
    event=EVENT, sampling_prob=SHARE, num_steps=whole(0)),
  'accounting.repeated_event': dict(event=EVENT, count=whole(0)),
  'accounting.epsilon': dict(event=EVENT, delta=DELTA, adjacency=REPLACE),
  'accounting.delta_for': dict(
    event=EVENT, target_epsilon=NOT_NEGATIVE, adjacency=REPLACE),
  'accounting.optimal_composition': dict(
    guarantees=[notions.ApproxDP(epsilon=0.1, delta=0.0)], delta=DELTA),
  'accounting.gaussian_shift': dict(epsilon=POSITIVE, delta=OPEN),
  'accounting.gaussian_epsilon': dict(shift=POSITIVE, delta=OPEN),
  'accounting.calibrate_noise_multiplier': dict(
    target_epsilon=_refused(POSITIVE), target_delta=_refused(DELTA),
    sampling_prob=_refused(SHARE), num_steps=_refused(whole(1)),
    adjacency=REPLACE),
  'additive.calibrated_gaussian': dict(
    record_norm=1.0, epsilon=_refused(POSITIVE), delta=_refused(DELTA),
    adjacency=REPLACE),
  'accounting.calibrate_event': dict(
    event_of=lambda z: accounting.gaussian_event(noise_multiplier=z),
    target_epsilon=_refused(POSITIVE), target_delta=_refused(DELTA),
    guess=_refused(POSITIVE), adjacency=REPLACE),
  'accounting.check_delta': dict(value=DELTA),
  'optimistic.poisson_gaussian_epsilon': dict(
    steps=[(0.5, 1.0)], delta=OPEN),
  'adaptive.adaptive_epsilon': dict(
    stages=[([EVENT], 1)], delta=DELTA, adjacency=REPLACE),
  'additive.GaussianMechanism': dict(
    record_norm=SCALE, noise_multiplier=SCALE, adjacency=REPLACE),
  'additive.zcdp_gaussian': dict(
    record_norm=SCALE, rho=POSITIVE, adjacency=REPLACE),
  'additive.classical_gaussian': dict(
    record_norm=SCALE, epsilon=POSITIVE, delta=OPEN, adjacency=REPLACE),
  'composition.advanced': dict(
    guarantee=APPROX, num_uses=whole(1), slack=OPEN._replace(taken=(0.1, 0.9))),
  'composition.group': dict(guarantee=APPROX, size=whole(1)),
  'printed_guarantees.group_printed': dict(guarantee=APPROX, size=whole(1)),
  'composition.heterogeneous_forms': dict(guarantees=[APPROX], slack=OPEN),
  'composition.heterogeneous': dict(guarantees=[APPROX], slack=OPEN),
  'composition.sampled_without_replacement': dict(
    guarantee=APPROX, sample_size=whole(1, 3), num_examples=whole(3)),
  'composition.sampled_poisson': dict(guarantee=APPROX, sampling_prob=SHARE),
  'discrete.GeometricMechanism': dict(
    record_norm=whole(1, 2**16), epsilon=Range((2.0**-16, 3.0), (2.0**-17, 0.0, math.inf)),
    adjacency=Adjacency.ADD_OR_REMOVE_ONE, upper=whole(1)),
  'discrete.DiscreteGaussianMechanism': dict(
    record_norm=SCALE._replace(taken=(1e-3, 9.0)), adjacency=REPLACE,
    noise_multiplier=Range((1e-3, 2.0**16), (0.0, 2.0**16 + 1, -1.0))),
  'correlated.square_root': dict(bands=whole(1)),
  'correlated.inverse_square_root': dict(bands=whole(1), num_steps=whole(1)),
  'correlated.optimal_banded': dict(
    bands=_refused(whole(1)), num_steps=_refused(whole(1))),
  'correlated.optimal_buffered': dict(
    num_steps=_refused(whole(1)), separation=_refused(whole(1))),
  'correlated.event': dict(
    strategy=correlated.square_root(1), noise_multiplier=POSITIVE,
    num_steps=whole(0), separation=whole(1), prob=SHARE),
  'divergences.hockey_stick': dict(
    p=[0.5, 0.5], q=[0.5, 0.5], epsilon=NOT_NEGATIVE),
  'divergences.renyi': dict(p=[0.5, 0.5], q=[0.5, 0.5], order=ORDER),
  'draws.discrete_laplace_variance': dict(scale=POSITIVE._replace(taken=(0.1, 9.0))),
  'integers.geometric_digits': dict(
    scale=POSITIVE._replace(taken=(0.5, 9.0)), base=whole(1)),
  'inverse.quantile_rank': dict(prob=SHARE, num_examples=whole(1)),
  'inverse.InverseSensitivityQuantile': dict(
    _RANGE, num_examples=whole(1), epsilon=POSITIVE, prob=SHARE,
    num_cells=whole(1, 2**20)),
  'integers.discrete_gaussian': dict(
    stddev=Range((0.3, 3.0), (0.0, 362.0, -1.0))),
  'integers.rounded_gaussian': dict(
    stddev=Range((0.3, 3.0), (0.0, 362.0, -1.0))),
  'integers.discrete_laplace': dict(
    scale=Range((0.3, 3.0), (0.0, 61.0, -1.0))),
  'k_norm.calibrate_noise_multiplier': dict(
    target_epsilon=_refused(POSITIVE), target_delta=_refused(DELTA),
    sampling_prob=_refused(SHARE), num_steps=_refused(whole(1)), order=2,
    adjacency=REPLACE),
  'k_norm.check_order': dict(order=Range((1, 2, math.inf), (0, 3, 1.5))),
  'k_norm.event': dict(noise_multiplier=POSITIVE, order=2),
  'k_norm.KNormMechanism': dict(
    order=2, record_norm=SCALE, epsilon=POSITIVE, adjacency=REPLACE),
  'keys.system_keys': dict(num=whole(1)),
  'keys.system_words': dict(num=whole(1)),
  'langevin.LangevinDescent': dict(
    gradient=None, start=None, num_examples=whole(1), num_steps=whole(1),
    strong_convexity=Range((1e-3, 1.0), (0.0, -1.0, 1 + 1e-9)),
    smoothness=Range((1.0, 3.0), (0.0, 1 - 1e-9, math.inf)),
    gradient_bound=POSITIVE, stddev=POSITIVE,
    learning_rate=Range((1e-3, 1.0), (0.0, 1 + 1e-9, -1.0), 0.25)),
  'langevin.enough_steps': dict(
    strong_convexity=POSITIVE, smoothness=POSITIVE, rho=POSITIVE,
    num_examples=whole(1), num_values=whole(1)),
  'laplace.LaplaceMechanism': dict(
    record_norm=SCALE, epsilon=POSITIVE, adjacency=REPLACE),
  'lattice.total_variation': dict(num_values=whole(0), num_steps=whole(0)),
  'lattice.sum_error': dict(num_terms=whole(0, 2**24 - 1)),
  'local.RandomizedResponse': dict(
    num_categories=whole(2, 2**16), epsilon=LOCAL),
  'local.truth_prob_of_epsilon': dict(epsilon=NOT_NEGATIVE),
  'forced_response.epsilon_of_truth_prob': dict(truth_prob=Range((0.0, 1.0), (-1e-9, 1.1))),
  'forced_response.ForcedYes': dict(yes_prob=Range((1e-9, 1 - 2**-32), (0.0, 1 - 2**-33, 1.0))),
  'local.UnaryEncoding': dict(num_categories=whole(2), epsilon=LOCAL),
  'neighbours.datasets': dict(domain='ab', size=whole(0, 16)),
  'losses.random_allocation': dict(
    noise_multiplier=POSITIVE, num_steps=whole(2), interval=POSITIVE),
  'losses.fixed_size_deltas': dict(
    noise_multiplier=POSITIVE, sampling_prob=SHARE, interval=POSITIVE),
  'sampled_events.allocation_event': dict(
    noise_multiplier=POSITIVE, num_steps=whole(1)),
  'sampled_events.fixed_size_event': dict(
    num_examples=whole(3), batch_size=whole(1, 3), noise_multiplier=POSITIVE),
  'notions.PureDP': dict(epsilon=NOT_NEGATIVE),
  'notions.ApproxDP': dict(epsilon=NOT_NEGATIVE, delta=HALF_OPEN),
  'notions.ZCDP': dict(rho=NOT_NEGATIVE),
  'notions.TotalVariationPrivacy': dict(level=NOT_NEGATIVE),
  'notions.KullbackLeiblerPrivacy': dict(level=NOT_NEGATIVE),
  'compared_notions.ChiSquarePrivacy': dict(level=NOT_NEGATIVE),
  'notions.BoundedRange': dict(width=NOT_NEGATIVE),
  'notions.GaussianPrivacy': dict(shift=NOT_NEGATIVE),
  'compared_notions.ConditionalTesting': dict(
    level=NOT_NEGATIVE, mass=Range((0.0, 1.0), (-1e-9, 1 + 1e-9))),
  'compared_notions.approx_from_pure': dict(guarantee=PURE, delta=HALF_OPEN),
  'notions.approx_from_zcdp': dict(guarantee=ZCDP, delta=OPEN),
  'compared_notions.zcdp_from_response': dict(
    guarantee=PURE, num_categories=whole(2, 6)),
  'compared_notions.zcdp_of_group': dict(guarantee=ZCDP, size=whole(1)),
  'local_queries.exact_oracle': dict(mean=None, tolerance=POSITIVE),
  'local_queries.LocalOracle': dict(
    num_queries=whole(1), tolerance=SHARE, failure_prob=OPEN, epsilon=LOCAL),
  'local_queries.bisect_support': dict(
    ask=lambda query: 0.0, num_queries=whole(1), tolerance=POSITIVE),
  'renyi.check_order': dict(order=ORDER),
  'renyi.RenyiDP': dict(order=ORDER, divergence=NOT_NEGATIVE),
  'renyi_steps.gaussian': dict(noise_multiplier=POSITIVE, order=ORDER),
  'renyi_steps.sampled_gaussian': dict(
    noise_multiplier=POSITIVE._replace(taken=(0.1, 9.0)), sampling_prob=SHARE,
    order=whole(2)),
  'renyi_steps.laplace': dict(epsilon=POSITIVE, order=ORDER),
  'renyi_steps.randomized_response': dict(
    epsilon=POSITIVE, order=ORDER, num_categories=whole(2)),
  'renyi.renyi_from_pure': dict(guarantee=PURE, order=ORDER),
  'printed_guarantees.renyi_from_pure_printed': dict(guarantee=PURE, order=ORDER),
  'renyi_steps.renyi_from_zcdp': dict(guarantee=ZCDP, order=ORDER),
  'renyi.bounded_range': dict(
    guarantee=notions.BoundedRange(width=1.0), order=ORDER),
  'renyi_steps.group': dict(guarantee=FOURTH, doublings=whole(0, 1)),
  'renyi_steps.approx_from_renyi': dict(guarantee=FOURTH, delta=OPEN),
  'printed_guarantees.approx_from_renyi_printed': dict(guarantee=FOURTH, delta=OPEN),
  'selection.ExponentialMechanism': dict(
    sensitivity=SCALE, epsilon=POSITIVE, adjacency=REPLACE),
  'selection.PermuteAndFlip': dict(
    sensitivity=SCALE, epsilon=POSITIVE, adjacency=REPLACE),
  'smooth.SmoothSensitivityQuantile': dict(
    _RANGE, num_examples=whole(1), epsilon=Range((0.51, 9.0), (0.5, math.inf)),
    smoothing=Range((1e-3, 0.99), (0.0, 1.0, 9.0), 0.5), prob=SHARE,
    num_cells=whole(1, 2**20)),
  'strategies.InverseBandedStrategy': dict(
    coefficients=(1.0, -0.5), num_steps=whole(1)),
  'strategies.BufferedStrategy': dict(
    decays=(0.5,), scales=(0.5,), num_steps=whole(1)),
  'strategies.check_steps': dict(
    strategy=tree_strategy.TreeStrategy(3), num_steps=whole(1, 3)),
  'tree_strategy.TreeStrategy': dict(num_steps=whole(1)),
  'tradeoffs.gaussian': dict(alpha=np.array([0.3]), shift=NOT_NEGATIVE),
  'tradeoffs.laplace': dict(alpha=np.array([0.3]), epsilon=NOT_NEGATIVE),
  'tradeoffs.gaussian_delta': dict(epsilon=1.0, shift=POSITIVE),
  'tradeoffs.delta_of': dict(
    function=lambda alpha: 1 - alpha, epsilon=NOT_NEGATIVE),
  'stopping.RandomStopping': dict(
    mean=Range((1.1, 9.0), (1.0, math.inf), 2.0),
    shape=Range((-0.9, 0.0, 7.0, math.inf), (-1.0, -2.0), 1.0)),
  'stopping.expected_num_runs': dict(
    stop_prob=SHARE, shape=Range((-0.9, 0.0, 7.0), (-1.0, math.inf), 1.0)),
  'tuning.epsilon': dict(
    runs=[EVENT], stopping=STOPPING, delta=DELTA._replace(taken=(0.9,)),
    adjacency=REPLACE),
  'tuning.run_epsilon': dict(cost=lambda epsilon: 2 * epsilon, target=POSITIVE),
  **{f'noise_magnitudes.{noise}_{kind}': {
    'scale' if noise == 'laplace' else 'stddev': POSITIVE, 'size': whole(1),
    'failure_prob': OPEN} for noise, kind in (
      ('laplace', 'sup_quantile'), ('laplace', 'sup_bound'),
      ('laplace', 'l1_quantile'), ('gaussian', 'sup_quantile'),
      ('gaussian', 'sup_bound'), ('gaussian', 'l2_quantile'),
      ('gaussian', 'l2_bound'))},
  'noise_magnitudes.gaussian_mean_norm': dict(stddev=POSITIVE, size=whole(1))}
# A message is one line that says what is wrong.
_MESSAGE = r'^[^\n]*\b(must|needs?|not|no|too many)\b[^\n]*$'
# Their numbers are in arrays, or checked inside other functions.
ARRAYS = {
  'accounting.delta_curve', 'additive.grid_spacing', 'additive.on_grid',
  'additive.random_pairs', 'additive.random_words', 'additive.standard_normal',
  'additive.check_places', 'additive.normals_of_several',
  'additive.unit_noise', 'additive.words_of_several',
  'blocks.allocate', 'chacha.pairs', 'chacha.pairs_at', 'chacha.words_of_several',
  'chacha.words', 'chacha.words_at', 'composition.HeterogeneousForms', 'divergences.Generator',
  'draws.discrete_laplace', 'draws.standard_direction', 'draws.standard_gamma',
  'exact.exp_between', 'integers.NoiseTable', 'integers.convolution_variation',
  'integers.draw', 'integers.draw_rows_in_parts', 'integers.make_table',
  'integers.tie_variation', 'sharded.pairs_at',
  'inverse.check_quantile', 'inverse.on_lattice', 'k_norm.add_noise',
  'k_norm.allocate', 'k_norm.expected_square', 'k_norm.p_norm_bound',
  'k_norm.unit_noise', 'langevin.calibrated_langevin', 'langevin.project_box',
  'lattice.spacing', 'mechanism.epsilon', 'neighbours.sensitivity',
  'local_queries.OracleState', 'losses.Losses',
  'sampled_events.RandomAllocationDpEvent', 'restating.BoundedRangeDpEvent',
  'restating.ConcentratedDpEvent', 'restating.PureDpEvent',
  'restating.RenyiAccountant', 'restating.ReplacingAccountant',
  'restating.orders_of_pairs', 'smooth.local_sensitivity',
  'smooth.smooth_sensitivity', 'strategies.BandedStrategy', 'threefry.words',
  'threefry.words_at', 'threefry.words_of_several', 'tradeoff.from_curve'}


def _members():
  """Yields (name, function or class) of everything that takes numbers."""
  for module in [*(importlib.import_module(f'dpjax.privacy.{module_name}')
                   for _, module_name, _ in pkgutil.iter_modules(
                       privacy.__path__)),
                 *_OUTSIDE]:
    for name, value in vars(module).items():
      if (name.startswith('_') or not callable(value)
          or getattr(value, '__module__', '') != module.__name__):
        continue
      if any('float' in str(each.annotation) or each.annotation is int
             for each in inspect.signature(value).parameters.values()):
        yield f'{module.__name__.rpartition(".")[2]}.{name}', value


MEMBERS = dict(_members())


def test_every_function_of_numbers_is_listed():
  assert set(MEMBERS) == set(_ROWS) | ARRAYS
  assert not set(_ROWS) & ARRAYS


@pytest.mark.sound
@pytest.mark.parametrize('name', _ROWS)
def test_numbers_are_taken_up_to_their_ends_and_refused_beyond(name):
  row, function = _ROWS[name], MEMBERS[name]
  usual = {key: value.usual if isinstance(value, Range) else value
           for key, value in row.items()}
  for key, value in row.items():
    if isinstance(value, Range):
      for taken in value.taken:
        function(**{**usual, key: taken})
      for refused in (*value.refused, math.nan):
        with pytest.raises(ValueError, match=_MESSAGE):
          function(**{**usual, key: refused})
          raise AssertionError(f'{name} takes {refused} for {key}')


@pytest.mark.sound
@pytest.mark.parametrize('name', [
  name for name, row in _ROWS.items() if 'adjacency' in row])
def test_names_of_adjacencies_are_refused(name):
  """An adjacency's name is refused; it could be taken for the cheaper one."""
  usual = {key: value.usual if isinstance(value, Range) else value
           for key, value in _ROWS[name].items()}
  for wrong in ('replace_one', 'add_or_remove_one', None, True):
    with pytest.raises(ValueError, match='^adjacency must be Adjacency'):
      MEMBERS[name](**{**usual, 'adjacency': wrong})
