"""Attacks R networks of one kind in every way, and measures the success.

Catalogue item MIA-10. The perceptrons of Lalanne (2023, chapter 1) see one
shadow network, the partner of the target. All other attacks threshold a
statistic of each record and use all networks of the kind: LiRA and RMIA take
the R - 1 others as shadows. The threshold of a network is the one of best
accuracy on its partner, which is attacked in the same way.
"""

from collections.abc import Callable, Mapping, Sequence
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import attacks
from dpjax.audit import membership
from dpjax.typing import Array, PRNGKey, PyTree
from experiments.methods.attacks import local_sensitivity
from experiments.methods.attacks import shadow
from experiments.mia_sparsity.study import Study
from experiments.mia_sparsity.sweep import FPR_LEVELS

POOLED: Mapping[str, attacks.Attack] = {
    'loss': attacks.loss_threshold,
    'lira': attacks.lira,
    'lira_offline': attacks.lira_offline,
    'rmia': functools.partial(attacks.rmia, a=0.3),
}
_PART = 250


class Seen(NamedTuple):
  """Outputs of R networks that an attacker uses.

  Attributes:
    logits: [R, N, c] logits of all records of the study.
    features: [R, m, 3 c] features of the records that are attacked.
  """
  logits: Array
  features: Array


@functools.partial(jax.jit, static_argnames=('apply', 'num_classes'))
def look(apply: Callable, networks: PyTree, keys: PRNGKey, x: Array, y: Array,
         rows: Array, num_classes: int) -> Seen:
  """Returns what an attacker sees of R networks, each at its own records.

  All networks are evaluated together, each on an image of its own: one network
  after the other would leave an accelerator idle.

  Args:
    apply: (networks, x [R, b, h, w, c]) -> logits [R, b, classes].
    networks: first argument of `apply`.
    keys: [R]; the first draws the noise of the slopes, for all networks.
    x: images [N, h, w, c].
    y: classes [N].
    rows: [R, m], numbers of the records whose features are computed, by
      network.
    num_classes: number c of classes.
  """
  count = rows.shape[0]

  def outputs(images):
    logits = apply(networks, jnp.moveaxis(images, 1, 0))
    rows = jnp.moveaxis(jax.nn.softmax(logits), 0, 1)
    return rows.reshape(rows.shape[0], -1)

  shared = lambda image: jnp.broadcast_to(image, (count, *image.shape))
  parts = -(-x.shape[0] // _PART)
  every = jnp.minimum(jnp.arange(parts * _PART), x.shape[0] - 1)
  logits = jax.lax.map(lambda part: apply(networks, shared(x[part])),
                       every.reshape(parts, _PART))
  logits = jnp.moveaxis(logits, 0, 1).reshape(count, -1, num_classes)
  seen = local_sensitivity.respond(
      keys[0], outputs, x[rows.T],
      local_sensitivity.Options(output='logits', batch_size=_PART))
  own = lambda leaf: jnp.moveaxis(
      leaf.reshape(-1, count, num_classes), 1, 0)
  labels = jax.nn.one_hot(y[rows], num_classes)
  return Seen(logits[:, :x.shape[0]], jnp.concatenate(
      [labels, own(seen.prediction), own(seen.sensitivity)], -1))


def perceptrons(study: Study, features: Sequence[Array]
                ) -> list[list[dict[str, float]]]:
  """Returns metrics of the shadow-network attack, by kind and network.

  The attack is that of Lalanne (2023, Figure 1.2).

  Args:
    study: records, splits and keys.
    features: [R, m, 3 c] of each kind; all are attacked at once.
  """
  size, count = study.num_networks, len(features)
  stacked = jnp.concatenate(features)
  partners = np.concatenate([i * size + study.partners for i in range(count)])
  members = jnp.tile(study.members, (count, 1))
  result = shadow.attack(study.keys('attack')[0], stacked[partners],
                        members[partners], stacked)
  scores = np.asarray(result.scores)
  accuracies, oracle = result.accuracy(members), result.oracle(members)
  metrics = [{
      **_measures('perceptron', scores[j], np.asarray(members[j]), 0.0),
      'perceptron_oracle': float(oracle[j]),
      'perceptron_chosen': float(result.chosen[j]),
      'defence': membership.defence(float(accuracies[j])),
  } for j in range(size * count)]
  return [metrics[i * size:(i + 1) * size] for i in range(count)]


def statistics(study: Study, logits: Array) -> list[dict[str, float]]:
  """Returns metrics of the attacks that threshold a statistic, by network.

  Args:
    study: records, splits and keys.
    logits: [R, N, c], logits of the networks of one kind.
  """
  odds = attacks.log_odds(logits, jnp.broadcast_to(
      study.records.y, logits.shape[:2]))
  inclusion = jnp.asarray(study.inclusion())
  result = [{} for _ in range(study.num_networks)]
  for name, attack in POOLED.items():
    scores = attacks.each_as_target(attack, odds, inclusion).scores
    scores = np.asarray(jnp.take_along_axis(scores, study.attacked, 1))
    members = np.asarray(study.members)
    thresholds = [membership.best_threshold(membership.roc(*both))
                  for both in zip(scores, members, strict=True)]
    for r, partner in enumerate(study.partners):
      result[r] |= _measures(name, scores[r], members[r], thresholds[partner])
  return result


def accuracies(study: Study, logits: Array) -> list[dict[str, float]]:
  """Returns the accuracies on test and on fitted records, by network."""
  right = np.asarray(jnp.argmax(logits, -1) == study.records.y[None])
  mean = lambda rows: np.take_along_axis(right, np.asarray(rows), 1).mean(1)
  return [{'test_accuracy': float(test), 'train_accuracy': float(train)}
          for test, train in zip(mean(study.test), mean(study.fitted),
                                 strict=True)]


def _measures(name: str, scores: np.ndarray, members: np.ndarray,
              threshold: float) -> dict[str, float]:
  result = membership.measures(scores, members, threshold=threshold,
                              levels=FPR_LEVELS)
  kept = {f'{name}_accuracy': result['attack_accuracy'],
          f'{name}_auc': result['auc']}
  return kept | {f'{name}_{key}': value for key, value in result.items()
                 if key.startswith('tpr_at_')}
