"""What quantile mechanisms say of data sets of a law, one answer of each."""

import jax
import numpy as np

from dpjax.stats.quantiles import mechanism as mechanisms
from experiments import quantile_laws


def answers(law: quantile_laws.Law,
            mechanism: mechanisms.QuantileMechanism, *, coins: str,
            num_examples: int, repetitions: int, seed: int
            ) -> tuple[np.ndarray, np.ndarray]:
  """Answers [R, m] and the sorted records [R, n] that they were given for.

  Data sets are the same for all mechanisms and orders.

  Args:
    law: of the records.
    mechanism: to ask.
    coins: name of the coins.
    num_examples: n.
    repetitions: R.
    seed: of all.
  """
  keys = quantile_laws.keys(seed, law.name, num_examples, repetitions)
  data = quantile_laws.datasets(law, seed, num_examples, repetitions)
  with jax.enable_x64(True):
    found = np.asarray(mechanisms.repeated(mechanism.draw)(
        quantile_laws.method_keys(keys, coins), data, mechanism.parameters))
  return found, data.ordered[:, :num_examples]
