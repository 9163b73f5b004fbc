"""Simulates the settings in `sweep.py`; a group shares its data."""

from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp

from dpjax.theory.parametric import proportions
from experiments import records
from experiments import rows
from experiments import simulation
from experiments.bernoulli_risk import sweep
from experiments.methods.theory import thesis_proportions


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  first = settings[0]
  progress(0, f'n = {first.num_examples}')
  mechanisms = [proportions.proportion(num_examples=first.num_examples,
                                       epsilon=setting.epsilon)
                for setting in settings]

  def costs(key, data):
    keys = jax.random.split(key, len(mechanisms))
    return jnp.stack([jnp.square(mechanism.release(k, data).value - sweep.PROB)
                      for mechanism, k in zip(mechanisms, keys)])

  means, errors = simulation.means(
      simulation.key_of(first), costs,
      lambda key: jax.random.bernoulli(key, sweep.PROB, (first.num_examples,)),
      num_repetitions=first.repetitions, size=first.num_examples)
  for setting, mean, error in zip(settings, means, errors, strict=True):
    yield setting, rows.released(
        setting, dict(risk=mean, risk_se=error, **_closed_forms(setting)),
        n=setting.num_examples, epsilon=setting.epsilon)


def _closed_forms(setting: sweep.Setting) -> dict[str, float]:
  """Returns equation (6), and the bounds (8) to (10) at several distances."""
  arguments = dict(num_examples=setting.num_examples, epsilon=setting.epsilon)
  whole = 1 / (setting.num_examples * setting.epsilon)

  def two_point(distance):
    return thesis_proportions.two_point_bound(min(distance, 1.0), **arguments)

  return dict(
      closed_form=proportions.risk(sweep.PROB, **arguments),
      lower=thesis_proportions.lower_bound(**arguments),
      lower_two_point=two_point(2 * whole), lower_printed_choice=two_point(
          whole), lower_printed=whole**2 / 8)
