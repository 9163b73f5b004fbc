"""Simulates the settings in `sweep.py`: counts of ones, not records."""

from collections.abc import Iterator, Sequence
import math

import jax
import numpy as np
from scipy import special

from dpjax.privacy import accounting
from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.theory.parametric import likelihood
from dpjax.theory.parametric import likelihood_risks
from dpjax.theory.parametric import likelihood_study
from dpjax.theory.parametric import sgml
from dpjax.theory.parametric.exponential_families import Model
from experiments import records
from experiments import rows
from experiments import simulation
from experiments.methods.statistics import batch_descents
from experiments.methods.theory import langevin_oracle
from experiments.price_likelihood import sweep

_STUDY = likelihood_study.STUDY
# Places in the box at which the largest risk of a method is searched.
_THETAS = (0.0, 0.5, 0.75, 0.9, 1.0)
# True parameters of privacy terms are uniform on [-_SPREAD, _SPREAD] times b.
_SPREAD = 0.6
# The noise that Poisson batches need is computed from this batch size on;
# smaller batches would take as long again, and need more.
_CALIBRATED = 200


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.part} {setting.method}')
    metrics = {'risk': _risk, 'batches': _batches, 'audit': _audit,
             'printed': _printed}.get(setting.part, _privacy)(setting)
    yield setting, rows.exact(setting, metrics)


def estimator(setting: sweep.Setting) -> likelihood.LikelihoodEstimator:
  """Returns the estimator of a setting."""
  common = dict(num_examples=setting.num_examples, model=Model(
      dimension=setting.dimension, radius=setting.radius))
  guarantee = notions.ZCDP(rho=setting.rho)
  match setting.method:
    case 'maximum':
      return likelihood.MaximumLikelihood(**common)
    case 'statistics':
      return likelihood.SufficientStatistics(guarantee=guarantee, **common)
    case 'minimax':
      return likelihood.MinimaxStatistics(guarantee=guarantee, **common)
    case 'output' | 'output_printed':
      return likelihood.OutputPerturbation(
          rho=setting.rho, printed=setting.method == 'output_printed', **common)
    case 'descent' | 'descent_printed':
      return sgml.Descent(rho=setting.rho,
                          printed=setting.method == 'descent_printed', **common)
    case _:
      return batch_descents.BatchDescent(
          rho=setting.rho, printed=True, batch_size=setting.batch_size,
          replacement=setting.method == 'replacement', **common)


def _rng(setting: sweep.Setting) -> np.random.Generator:
  """Returns a generator for the data, which all methods of a point share."""
  return np.random.default_rng([
      setting.seed, setting.num_examples, setting.dimension,
      round(1e6 * setting.rho), round(1e6 * setting.radius)])


def _mean(values: np.ndarray, name: str) -> dict[str, float]:
  return {name: values.mean(),
          f'{name}_se': values.std(ddof=1) / math.sqrt(len(values))}


def _risk(setting: sweep.Setting) -> dict[str, float]:
  """Returns the largest mean squared error over parameters, and all bounds."""
  mechanism, rng = estimator(setting), _rng(setting)
  key = simulation.key_of(setting)
  worst, off, shape = {'risk': 0.0}, [], (setting.repetitions,
                                          setting.dimension)
  for place, share in enumerate(_THETAS):
    theta = share * setting.radius
    means = rng.binomial(setting.num_examples, special.expit(theta),
                         shape) / setting.num_examples
    result = np.asarray(mechanism.estimates(jax.random.fold_in(key, place),
                                            means))
    here = _mean(((result - theta)**2).sum(1), 'risk')
    worst = max(worst, here, key=lambda mean: mean['risk'])
    if not isinstance(mechanism, sgml.Descent):
      off.append(abs(here['risk'] - likelihood_risks.risk(theta, mechanism))
                 / here['risk_se'])
  parameters = dict(d=setting.dimension, b=setting.radius)
  guarantee = (None if setting.method == 'maximum'
               else notions.ZCDP(rho=setting.rho))
  at = dict(num_examples=setting.num_examples, **parameters)
  return worst | _upper(mechanism, off, _STUDY.non_private(**at)) | dict(
      lower=_STUDY.best_lower(guarantee=guarantee, **at).value,
      non_private=_STUDY.best_lower(guarantee=None, **at).value,
      trivial=_STUDY.trivial(**parameters))


def _upper(mechanism, off, sampling: float) -> dict[str, float]:
  if isinstance(mechanism, sgml.Descent):
    return dict(upper=likelihood_study.descent_bound(mechanism, sampling))
  return dict(upper=likelihood_risks.worst_theta(mechanism)[1], off=max(off))


def _privacy(setting: sweep.Setting) -> dict[str, float]:
  """Returns distances to theta_ML and to the true, uniform parameter."""
  mechanism, rng = estimator(setting), _rng(setting)
  shape = (setting.repetitions, setting.dimension)
  end = _SPREAD * setting.radius
  truths = rng.uniform(-end, end, shape)
  means = rng.binomial(setting.num_examples,
                       special.expit(truths)) / setting.num_examples
  result = np.asarray(mechanism.estimates(simulation.key_of(setting), means))
  best = mechanism.model.fit(means)
  metrics = _mean(((result - truths)**2).sum(1), 'total')
  if setting.method != 'maximum':
    metrics |= _mean(((result - best)**2).sum(1), 'privacy')
  if isinstance(mechanism, sgml.Descent):
    metrics |= dict(bound=mechanism.utility,
                    printed_bound=mechanism.printed_utility,
                    steps=mechanism.steps,
                    share=mechanism.actual_rho / setting.rho,
                    trajectory=mechanism.trajectory_rho / setting.rho)
  return metrics


def _batches(setting: sweep.Setting) -> dict[str, float]:
  mechanism, rng = estimator(setting), _rng(setting)
  shape = (setting.repetitions, 1, setting.dimension)
  end = _SPREAD * setting.radius
  probs = special.expit(rng.uniform(-end, end, shape))
  data = rng.uniform(size=(setting.repetitions, setting.num_examples,
                           setting.dimension)) < probs
  result = np.asarray(mechanism.estimates(simulation.key_of(setting), data))
  best = mechanism.model.fit(data.mean(1))
  metrics = _mean(((result - best)**2).sum(1), 'privacy')
  metrics |= dict(bound=mechanism.utility,
                  noise_multiplier=mechanism.noise_multiplier)
  if setting.method == 'poisson' and setting.batch_size >= _CALIBRATED:
    metrics |= dict(noise_needed=_needed(mechanism))
  return metrics


def _needed(mechanism: batch_descents.BatchDescent) -> float:
  """Returns the noise variance that the promised guarantee needs over ours.

  The guarantee is the epsilon that rho-zCDP implies at delta = 1e-5.
  """
  delta = sweep.DELTAS[-1]
  promised = notions.approx_from_zcdp(notions.ZCDP(rho=mechanism.rho),
                                      delta=delta)
  multiplier = accounting.calibrate_noise_multiplier(
      target_epsilon=promised.epsilon, target_delta=delta,
      sampling_prob=mechanism.sampling_prob, num_steps=mechanism.steps,
      adjacency=Adjacency.REPLACE_ONE)
  # Calibrated multipliers are relative to one record's contribution, which is
  # half of the difference between two records.
  return (multiplier / (2 * mechanism.noise_multiplier))**2


def _audit(setting: sweep.Setting) -> dict[str, float]:
  """Returns exact Renyi divergences and deltas of small batches.

  The example has lambda = beta = 1, |x| <= 1 and L = 2: replacing a record
  changes the gradient by half of its bound.
  """
  n, rho = setting.num_examples, setting.rho
  stddev = 4 / (n * math.sqrt(rho))
  result = langevin_oracle.last_iterate(
      num_examples=n, batch_size=setting.batch_size,
      replacement=setting.method == 'replacement', strong_convexity=1.0,
      learning_rate=0.5, step_stddev=stddev,
      start_stddev=math.sqrt(2) * stddev, distance=1.0,
      num_steps=math.ceil(2 * math.log(rho * n**2)))
  metrics = {f'renyi_{order:g}': result.renyi(order) / (rho * order)
             for order in sweep.ORDERS}
  for delta in sweep.DELTAS:
    promised = notions.approx_from_zcdp(notions.ZCDP(rho=rho), delta=delta)
    metrics[f'delta_{delta:g}'] = result.delta(promised.epsilon)
  return metrics


def _printed(setting: sweep.Setting) -> dict[str, float]:
  at = dict(num_examples=setting.num_examples, d=setting.dimension,
            b=setting.radius, guarantee=notions.ZCDP(rho=setting.rho))
  return dict(printed=likelihood_study.printed(**at),
              lower=_STUDY.best_lower(**at).value,
              upper=_STUDY.best_upper(**at).value,
              non_private=_STUDY.best_lower(**at | {'guarantee': None}).value)
