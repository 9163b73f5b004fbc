"""Output files of a training run: public ones, and ones to keep private.

`summary.json` and `params.npz` may be published, with the caveats that
`falls_short` lists. No epsilon covers the other files, which only their owner
may read: `private_diagnostics.json` has exact statistics of the training
records, and canaries.npz the canaries, if any, and their coin flips.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import io
import json
import math
import pathlib
from typing import Any

import jax
import numpy as np

from dpjax import tree
from dpjax.privacy import tuning
from dpjax.privacy.notions import ApproxDP
from dpjax.report import files
from dpjax.runs import configuration
from dpjax.runs import environment as environments
from dpjax.runs import run_sampling
from dpjax.runs import settings
from dpjax.runs import training
from dpjax.train import checkpoint

NAME = 'summary.json'
PARAMS = 'params.npz'
CANARIES = 'canaries.npz'
DIAGNOSTICS = 'private_diagnostics.json'

_SEEDED = ('Batches and noise come from noise_seed, which is in this file: '
           'anybody who knows or guesses it can subtract the noise.')
_UNSOUND = ('lip_printed (Algorithm 8 as printed) is not private: epsilon is '
            'only what it claims.')
_FLOATS = ('Noise is drawn in floating point: Gaussian draws with 2^32 '
           'outcomes on a grid of 1/512 to 1/256 of the standard deviation, '
           'with rounded probabilities.')
_K_NORM = ('K-norm noise is drawn in floating point, with rounded '
           'probabilities.')
_ROUNDING = ('Contributions and their sum are float32: the sensitivity ignores '
             'their rounding error.')
TIME = ('The duration of training is not hidden; compile_seconds, '
        'train_seconds and wall_seconds state it.')
_ACCURACY = ('test_accuracy is an exact statistic of held-out records, which '
             'epsilon does not cover.')
_COINS = ('canary_seed, which is in this file, reveals which canaries were '
          'trained on.')
_NETWORK = ('The secret key travelled from the first process to the others '
            'over their network.')


def summarize(result: training.TrainingResult,
              environment: environments.Environment) -> dict[str, Any]:
  """Returns a JSON-ready dict that allows the run's claim to be checked again.

  `epsilon` is that of the event that ran, null for a non-private run;
  `epsilon_requested` is the target. `epsilon_valid` is false for a run with a
  noise_seed, which somebody may know or guess; `epsilon_assumption` says when
  epsilon holds nevertheless. `falls_short` lists how this run differs from the
  mechanism that epsilon is for, and which values epsilon does not cover. All
  values depend on the training records through the noise only; others are in
  `diagnostics`.
  """
  config, plan = result.config, result.plan
  return {
      'method': config.method,
      'dataset': config.dataset,
      'n': result.num_train,
      'num_test': result.num_test,
      'num_canaries': config.num_canaries,
      'canary_kind': config.canary_kind if config.num_canaries else None,
      **_privacy(result),
      'sampler': run_sampling.batches(plan.sampler),
      'sampling_prob': run_sampling.sampling_prob(plan.sampler),
      'strategy': None if plan.strategy is None else repr(plan.strategy),
      'expected_batch_size': plan.sampler.expected_batch_size,
      'num_steps': plan.num_steps,
      'num_parameters': tree.count(result.params),
      'test_accuracy': result.test_accuracy,
      'compile_seconds': result.compile_seconds,
      'train_seconds': result.train_seconds,
      'wall_seconds': result.compile_seconds + result.train_seconds,
      'seed': config.seed,
      'device': environment.device,
      'commit': environment.commit,
      'versions': environment.versions,
      'config': dataclasses.asdict(config),
  }


def diagnostics(result: training.TrainingResult) -> dict[str, Any]:
  """Returns exact statistics of the training records, which stay private.

  `num_nonfinite` counts non-finite records, which count as zero in every sum,
  over all steps. With canaries it reveals how many the coin flips left out.
  """
  return {'num_nonfinite': result.num_nonfinite}


def not_to_publish(configs: Sequence[configuration.TrainingConfig]) -> str:
  """Returns a line that names the output files to keep private."""
  names = DIAGNOSTICS
  if any(config.num_canaries for config in configs):
    names += f' and {CANARIES}'
  return (f'not to be published: {names}, which no epsilon covers and which '
          'only you may read')


def cost_of_all(summaries: Sequence[dict[str, Any]]) -> str | None:
  """Returns a line on the cost of all private runs; None for less than two.

  Args:
    summaries: of runs on one data set; their epsilons are those of single runs.
  """
  # With a noise_seed, all epsilons rest on one assumption.
  runs = [ApproxDP(epsilon=each['epsilon'], delta=each['delta'] or 0.0)
          for each in summaries if each['epsilon'] is not None
          and (each['epsilon_valid'] or each['epsilon_assumption'])]
  if len(runs) < 2 or sum(run.delta for run in runs) >= 1:
    return None
  total = tuning.all_runs_guarantee(runs)
  return (f'the {len(runs)} private runs together, or the best of them, cost '
          f'epsilon {total.epsilon:.4g} at delta {total.delta:.3g}; the '
          'epsilon of each is that of a run which is not chosen among others')


def _privacy(result: training.TrainingResult) -> dict[str, Any]:
  """Returns the guarantee of a run, and the noise that it is based on."""
  config, plan = result.config, result.plan
  private = plan.noise_multiplier is not None
  seeded = private and config.noise_seed is not None
  return {
      'epsilon_requested': config.epsilon if private else None,
      # JSON has no infinity, so null stands for no privacy.
      'epsilon': result.epsilon if private else None,
      'epsilon_valid': result.epsilon_valid and not seeded,
      'epsilon_assumption': ('nobody knows or guesses noise_seed'
                             if seeded else None),
      'falls_short': falls_short(result) if private else [],
      'epsilon_rdp': _rdp_epsilon(result),
      'delta': config.delta if private else None,
      'adjacency': config.adjacency,
      'unit': 'record' if config.user_column is None else 'user',
      'accountant': config.accountant,
      'event': repr(plan.event),
      'noise': config.noise,
      'noise_variation': plan.noise_variation,
      'noise_multiplier': plan.noise_multiplier,
      'joint_noise_multiplier': (result.joint_noise_multiplier
                                 if private else None),
      'num_blocks': len(result.l2_sensitivity) if private else 0,
      'l2_sensitivity': list(result.l2_sensitivity) if private else [],
  }


def falls_short(result: training.TrainingResult) -> list[str]:
  """Returns how a run differs from the mechanism of its event, in sentences."""
  config = result.config
  several_processes = config.noise_seed is None and jax.process_count() > 1
  public_coins = config.num_canaries > 0 and config.canary_seed is not None
  k_norm = config.method == 'lip_k_norm'
  return [sentence for holds, sentence in (
      (config.noise_seed is not None, _SEEDED),
      (not result.epsilon_valid, _UNSOUND),
      (config.noise == 'gaussian' and not k_norm, _FLOATS),
      (k_norm, _K_NORM),
      (True, _ROUNDING), (True, TIME), (True, _ACCURACY),
      (public_coins, _COINS), (several_processes, _NETWORK)) if holds]


def _rdp_epsilon(result: training.TrainingResult) -> float | None:
  """Returns epsilon by Renyi accounting; None if it does not cover the event.

  It does not cover runs without noise, or with noise that is not Gaussian.
  Under replace-one it can be far above the epsilon of the 'pld' accountant.
  """
  if result.plan.noise_multiplier is None:
    return None
  try:
    value = result.plan.epsilon(settings.known(result.config.delta),
                                accountant='rdp')
  except ValueError:
    return None
  return value if math.isfinite(value) else None


def find(folder: pathlib.Path, config: configuration.TrainingConfig, *,
         chosen: bool = False) -> dict[str, Any] | None:
  """Returns the summary in `folder`, or None if there is none.

  Args:
    folder: where a run may have been written.
    config: the configuration requested now. Fields left to its recipe (None)
      match any value. Fields added later count as their default in old files.
    chosen: whether the run must be one that `selection` chose, or must not.

  Raises:
    ValueError: if the folder holds a run of another configuration.
  """
  path = folder / NAME
  if not path.exists():
    return None
  summary = read(folder)
  if (summary.get('selection') is not None) != chosen:
    raise ValueError(f'{path} is of {"a single run" if chosen else "a choice"}'
                     '; use another --output_dir')
  stored_config = summary['config']
  for setting in settings.declared(type(config)):
    name, value = setting.name, getattr(config, setting.name)
    stored = stored_config.get(name, setting.default if setting.later else None)
    if name == 'noise_seed' and name not in stored_config:
      # Older versions drew all noise from `seed`.
      stored = stored_config['seed']
    # JSON stores tuples as lists.
    stored = tuple(stored) if isinstance(stored, list) else stored
    # For canary_seed and its like None is a choice, not a gap to fill.
    none_is_a_value = setting.later and not setting.filled
    if (value is not None or none_is_a_value) and stored != value:
      raise ValueError(f'{path} is of another configuration: {name} = '
                       f'{stored}, now {value}; use another --output_dir')
  return summary


def read(folder: pathlib.Path) -> dict[str, Any]:
  """Reads the summary in `folder`.

  Raises:
    ValueError: if the file is not a summary.
  """
  path = folder / NAME
  try:
    summary = json.loads(path.read_text())
    summary['config'].items()
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    raise ValueError(f'{path} is not the summary of a run: {error}') from None
  return summary


def write(folder: pathlib.Path, summary: dict[str, Any],
          result: training.TrainingResult) -> None:
  """Writes the files of a run; the summary comes last and marks completeness.

  canaries.npz has x and y of all canaries, and `included`, the coin flips. It
  and the diagnostics are as private as the records (mode 0600).
  """
  folder.mkdir(parents=True, exist_ok=True)
  flat, _ = jax.tree_util.tree_flatten_with_path(result.params)
  _write_arrays(folder / PARAMS, {
      '/'.join(entry.key for entry in path): leaf for path, leaf in flat
  })
  with checkpoint.owner_only():
    _write_json(folder / DIAGNOSTICS, diagnostics(result))
    if result.canaries is not None:
      _write_arrays(folder / CANARIES, {
          **result.canaries.records._asdict(),
          'included': result.canaries.included})
  # `find` takes a summary to mean that the other files are complete.
  _write_json(folder / NAME, summary)


def _write_json(path: pathlib.Path, values: Mapping[str, Any]) -> None:
  # JSON has no NaN, so strict readers would reject the file.
  text = json.dumps(values, indent=2, allow_nan=False) + '\n'
  files.replace(path, text.encode())


def _write_arrays(path: pathlib.Path, arrays: Mapping[str, Any]) -> None:
  buffer = io.BytesIO()
  np.savez(buffer, **arrays)
  files.replace(path, buffer.getvalue())
