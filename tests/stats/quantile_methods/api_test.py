"""Tests the function on arrays: shapes, choices and refusals."""

import math

import jax
import numpy as np
import pytest

from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.quantile_methods import api
from dpjax.stats.quantile_methods import api as quantiles
from dpjax.stats.quantile_methods import smoothing

_KEY = jax.random.key(0)
_ADD, _REPLACE = Adjacency


def _ask(x, probs, **kwargs):
  return quantiles.quantiles(_KEY, x, probs, **(dict(
      epsilon=1.0, lower=0.0, upper=1.0, adjacency='replace_one') | kwargs))


@pytest.mark.slow
def test_shapes_and_orders_are_those_of_numpy():
  x = np.random.default_rng(0).random(1000)
  one = _ask(x, .5)
  assert one.shape == () and one.dtype == np.float64
  assert abs(one - .5) < .1
  sorted_once = _ask(x, [.25, .5, .75])
  # A level that is named twice is answered once, in any kind of sequence.
  np.testing.assert_array_equal(_ask(x.tolist(), [.75, .5, .25, .5]),
                                sorted_once[[2, 1, 0, 1]])
  assert np.abs(sorted_once - [.25, .5, .75]).max() < .1
  assert _ask(x, [.5]).shape == (1,)


def test_numbers_without_an_array():
  class Series:
    def __array__(self, dtype=None, copy=None):
      return np.linspace(0, 1, 100).astype(dtype)
  assert 0 <= _ask(Series(), .5) <= 1


@pytest.mark.parametrize('num_orders, kwargs, method', [
    (1, dict(num_examples=1000), 'independent'),
    (10, dict(num_examples=1000), 'joint'),
    (22, dict(num_examples=1000), 'knots'),
    (22, dict(num_examples=10_000), 'joint'),
    (20, dict(num_examples=None, adjacency=_ADD), 'joint'),
    (21, dict(num_examples=None, adjacency=_ADD), 'recursive'),
    (30, dict(num_examples=1000, adjacency=_ADD), 'joint'),
    (2, dict(num_examples=1000, epsilon=.01), 'knots')])
def test_the_rule(num_orders, kwargs, method):
  kwargs = dict(epsilon=1.0, adjacency=_REPLACE) | kwargs
  assert api.method_of(num_orders, **kwargs) == method


def test_a_plan_costs_its_epsilon():
  probs = np.linspace(.1, .9, 9)
  for method in quantiles.METHODS:
    mechanism = quantiles.plan(probs, epsilon=.7, lower=0, upper=1,
                               method=method, adjacency='replace_one',
                               num_examples=300)
    assert mechanism.adjacency is _REPLACE
    assert math.isclose(accounting.epsilon(
        mechanism.event, delta=1e-9, adjacency=_REPLACE, accountant='pld'), .7,
        rel_tol=1e-3)


@pytest.mark.slow
def test_infinite_bounds_ask_for_a_scan():
  x = np.random.default_rng(1).exponential(50.0, 2000)
  up = _ask(x, [.5, .9], upper=math.inf)
  assert np.all(np.abs(up / (-50 * np.log([.5, .1])) - 1) < .2)
  down = _ask(-x, [.1, .5], lower=-math.inf, upper=0.0)
  assert np.all(np.abs(down / (50 * np.log([.1, .5])) - 1) < .2)
  with pytest.raises(ValueError, match='must be finite'):
    _ask(x, .5, lower=-math.inf, upper=math.inf)


@pytest.mark.slow
def test_atoms_are_found():
  x = np.repeat([.2, .5, .7], [2000, 6000, 2000])
  answers = _ask(x, [.3, .4, .6, .7])
  assert np.abs(answers - .5).max() < .01


@pytest.mark.slow
def test_what_is_beyond_the_bounds_counts_as_them_and_is_said():
  with pytest.warns(UserWarning, match='beyond the public bounds'):
    answers = _ask(np.linspace(-5, 5, 200), [.2, .8])
  assert answers[0] < .05 and answers[1] > .95


@pytest.mark.slow
def test_missing_values():
  x = np.append(np.linspace(0, 1, 50), [math.nan] * 150)
  with pytest.raises(ValueError, match='missing values'):
    _ask(x, .5)
  with pytest.raises(ValueError, match='public number'):
    _ask(x, .5, missing='omit')
  assert _ask(x, .5, missing='upper', epsilon=100.0) > .99
  assert _ask(x, .5, missing='lower', epsilon=100.0) < .01
  assert abs(_ask(x, .5, missing='omit', epsilon=100.0,
                  adjacency='add_or_remove_one') - .5) < .05


@pytest.mark.parametrize('kwargs, message', [
    (dict(probs=0.0), 'strictly between'),
    (dict(probs=[.5, 1.0]), 'strictly between'),
    (dict(probs=[]), 'at least one level'),
    (dict(probs=[[.5]]), 'shape'),
    (dict(epsilon=0.0), 'epsilon'),
    (dict(epsilon=math.inf), 'epsilon'),
    (dict(lower=1.0), 'below upper'),
    (dict(lower=math.nan), 'must be numbers'),
    (dict(method='median'), 'one of'),
    (dict(adjacency='replace'), 'replace'),
    (dict(x=[]), 'no numbers'),
    (dict(x=['a']), 'must be numbers'),
    (dict(x=[[.1, .2]]), 'shape'),
    (dict(missing='drop'), 'one of'),
    (dict(method='inverse', probs=[.1, .2, .3], x=[.1, .2]), '1 / n apart'),
    (dict(method='histogram', adjacency='add_or_remove_one'),
     'public guess')])
def test_refusals_are_one_line(kwargs, message):
  kwargs = dict(x=[.1, .2, .3], probs=.5) | kwargs
  with pytest.raises(ValueError, match=message) as error:
    _ask(**kwargs)
  assert '\n' not in str(error.value)


def test_separation_is_small_and_public():
  mechanism = quantiles.plan([.2, .5], epsilon=1.0, lower=0, upper=10,
                             adjacency='replace_one', num_examples=5000)
  assert isinstance(mechanism, smoothing.Smoothed)
  assert math.isclose(mechanism.sigma * math.sqrt(3), 10 / 5000)
