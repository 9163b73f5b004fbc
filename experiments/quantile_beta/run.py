"""Simulates the settings in `sweep.py`."""

from collections.abc import Callable, Iterator, Sequence
import functools

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.quantile_methods import histogram
from dpjax.stats.quantile_methods import independent
from dpjax.stats.quantile_methods import joint
from dpjax.stats.quantile_methods import knots
from dpjax.stats.quantile_methods import mechanism
from dpjax.stats.quantile_methods import recursive
from dpjax.stats.quantile_methods import trees
from dpjax.studies import quantile_distributions
from dpjax.studies import quantile_trials
from experiments import records
from experiments import rows
from experiments.quantile_beta import sweep

_BINS = 200
_CHOSEN = 5


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.dataset} {setting.method} '
             f'm={setting.num_orders}')
    distribution = quantile_distributions.named(setting.dataset, data_dir)
    metrics = quantile_trials.measure(
        distribution, sweep.orders(setting.num_orders),
        _asked(setting, distribution),
        method=setting.method, num_examples=setting.num_examples,
        repetitions=setting.repetitions, seed=setting.seed)
    yield setting, rows.released(
        setting, metrics, n=setting.num_examples, epsilon=setting.epsilon,
        adjacency=Adjacency(setting.adjacency))


def _makers(setting: sweep.Setting) -> dict[
    str, Callable[..., mechanism.QuantileMechanism]]:
  """Returns method -> function that makes its mechanism."""
  bins = functools.partial(histogram.HistogramQuantiles, num_bins=_BINS)
  printed = functools.partial(recursive.RecursiveQuantiles, budget='printed')
  return {
      'ind': functools.partial(independent.IndependentQuantiles,
                               cost='rounded'),
      'rec_printed': functools.partial(printed, cost='rounded'),
      'rec_kaplan': printed,
      'rec_depth': recursive.RecursiveQuantiles,
      **{f'hist_{post}': functools.partial(bins, post=post)
         for post in ('raw', 'bridge', 'clipnorm', 'simplex')},
      'joint': joint.JointQuantiles,
      'coarse': functools.partial(histogram.coarse,
                                  num_examples=setting.num_examples),
      'knots': functools.partial(knots.KnotQuantiles, knots=_CHOSEN,
                                 make=joint.JointQuantiles, between='cubic'),
      'tree': trees.TreeQuantiles,
  }


def mechanism_of(setting: sweep.Setting,
                 distribution: quantile_distributions.Distribution
                 ) -> mechanism.QuantileMechanism:
  """Returns the mechanism of a setting other than 'emp'."""
  return _makers(setting)[setting.method](
      probs=tuple(sweep.orders(setting.num_orders).tolist()),
      epsilon=setting.epsilon, lower=distribution.lower,
      upper=distribution.upper,
      adjacency=Adjacency(setting.adjacency))


def _asked(setting: sweep.Setting,
           distribution: quantile_distributions.Distribution
           ) -> quantile_trials.Asked:
  if setting.method == 'emp':
    return quantile_trials.without_privacy(sweep.orders(setting.num_orders))
  return quantile_trials.asked(mechanism_of(setting, distribution))
