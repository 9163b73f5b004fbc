"""Simulates the settings in `sweep.py`, and computes closed forms."""

from collections.abc import Iterator, Sequence
import functools
import math

import numpy as np

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.quantile_methods import mechanism
from dpjax.stats.quantile_methods.independent import IndependentQuantiles
from dpjax.stats.quantile_methods.joint import JointQuantiles
from dpjax.stats.quantile_methods.recursive import RecursiveQuantiles
from dpjax.studies import quantile_distributions
from experiments import quantile_answers
from experiments import records
from experiments import rows
from experiments.methods.statistics import quantile_bounds as bounds
from experiments.quantile_rates import sweep


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.method} '
             f'n={setting.num_examples} epsilon={setting.epsilon:g}')
    mechanism = quantiles(setting)
    answers, ordered = quantile_answers.answers(
        quantile_distributions.named(setting.dataset, data_dir), mechanism,
        coins=f'{setting.method}/{setting.epsilon}/{setting.adjacency}',
        num_examples=setting.num_examples, repetitions=setting.repetitions,
        seed=setting.seed)
    yield setting, rows.released(
        setting, _errors(setting, mechanism, answers, ordered),
        n=setting.num_examples, epsilon=setting.epsilon,
        adjacency=Adjacency(setting.adjacency))


def quantiles(setting: sweep.Setting) -> mechanism.QuantileMechanism:
  """Returns the mechanism of a setting, on [0, 1]."""
  number = setting.num_orders
  kind = {'recursive': RecursiveQuantiles, 'joint': JointQuantiles}.get(
      setting.method, functools.partial(IndependentQuantiles,
                                        cost=setting.method))
  return kind(probs=tuple((np.arange(1, number + 1) / (number + 1)).tolist()),
              epsilon=setting.epsilon, lower=0.0, upper=1.0,
              adjacency=Adjacency(setting.adjacency))


def _errors(setting: sweep.Setting, asked: mechanism.QuantileMechanism,
            answers: np.ndarray, ordered: np.ndarray) -> dict[str, float]:
  """Returns squared errors; for one level also in ranks and to the sample."""
  probs = np.array(asked.probs)
  squared = np.mean(np.square(answers - probs), 1)
  values = dict(mse=squared.mean(),
               mse_se=squared.std(ddof=1) / math.sqrt(len(squared)),
               sampling=np.mean(probs * (1 - probs)) / setting.num_examples)
  if setting.num_orders > 1:
    return values
  target = setting.num_examples * probs[0]
  ranks = np.sum(ordered < answers, 1)
  place = int(target) - 1
  share = target - int(target)
  of_sample = (1 - share) * ordered[:, place] + share * ordered[:, place + 1]
  return values | dict(
      closed_form=bounds.single_mse(
          num_examples=setting.num_examples, prob=probs[0],
          rate=float(asked.parameters.rates[0]), density=1.0),
      rank_error=np.mean(np.abs(ranks - target)),
      distance=np.mean(np.abs(answers[:, 0] - of_sample)))
