"""Turns a client's answer into curves, their guarantee and counts of bytes."""

import math
import pathlib
from typing import Any

import numpy as np

from dpjax.cli import mpc_parties
from dpjax.mpc import costs
from dpjax.mpc import nodes
from dpjax.mpc import packing
from dpjax.mpc.parties import client
from dpjax.mpc.parties import noising
from dpjax.mpc.parties.channel import Kind
from dpjax.mpc.parties.parameters import Parameters
from dpjax.privacy.adjacency import Adjacency
from dpjax.report import plots
from dpjax.stats.ecdf_methods import dyadic_calibration
from dpjax.stats.ecdf_methods import grids
from dpjax.stats.ecdf_methods import hierarchy


def sensitivity(num_thresholds: int, adjacency: Adjacency,
                num_classes: int) -> tuple[int, bool]:
  """Returns the l1 sensitivity of dyadic nodes, and whether to use a root.

  Chooses the option with the smaller variance of a rank. With one class and
  replace_one, the last rank is n and public. Otherwise no rank is public, and
  with two classes a record that changes its label changes both curves.
  """
  options = []
  for root in (True, False):
    least_sensitivity = lambda relation, known: dyadic_calibration.calibrate(
        num_thresholds, adjacency=relation, norm='l1', root=root,
        known_last_row=known)
    alone = adjacency is Adjacency.REPLACE_ONE and num_classes == 1
    worst = least_sensitivity(adjacency, alone)
    # A changed label moves a record to the other curve.
    if adjacency is Adjacency.REPLACE_ONE and num_classes == 2:
      worst = max(worst, 2 * least_sensitivity(
          Adjacency.ADD_OR_REMOVE_ONE, False))
    if math.isfinite(worst):
      rows = num_thresholds - alone
      levels = dyadic_calibration.num_levels(rows) - (not root)
      # Up to a factor, the variance of a sum of `levels` nodes.
      options.append((levels * worst**2, round(worst), root))
  return min(options)[1:]


def grid_of(parameters: Parameters) -> grids.Grid:
  """Returns the public grid of a study."""
  return grids.Grid(lower=parameters.lower, upper=parameters.upper,
                    num_thresholds=parameters.num_thresholds,
                    kind=parameters.grid)


def bits(parameters: Parameters, study: pathlib.Path, num_points: int | None,
         answer: client.Answer) -> dict[str, object]:
  """Returns communication costs by formula and as counted.

  There are three counts. Messages are the packed shares, in whole bytes.
  Payloads add the seal and the owner's number to each message. Bytes on the
  wire add headers, greetings, receipts and TLS.
  """
  scheme = parameters.build_scheme()
  count = noising.num_released(parameters) if num_points is None else num_points
  answers = costs.answering(scheme, count)
  if num_points is None:  # a query for the whole curve sends no indices
    answers -= count * parameters.num_servers * (
        parameters.num_thresholds - 1).bit_length()
  links = {name: mpc_parties.report_of(study, name).get('traffic', {})
           for name in mpc_parties.senders(study)}
  # A connection of two servers is counted once, on the side that called.
  for index, name in enumerate(parameters.servers):
    traffic = mpc_parties.report_of(study, name).get('traffic', {})
    links[name] = {peer: link for peer, link in traffic.items()
                   if peer in parameters.servers[:index]}
  links['client'] = {peer: one.to_json() for peer, one in
                     answer.traffic.items()}
  total = lambda by_party, *names: sum(
      link[names[0]].get(names[1], 0) if len(names) > 1 else link[names[0]]
      for peers in by_party.values() for link in peers.values())
  return {
      'owners': {
          'formula_bits': costs.collecting(scheme, parameters.num_owners),
          'message_bytes': parameters.num_owners * sum(
              packing.num_bytes(scheme.bits(index))
              for index in range(parameters.num_servers)),
          'payload_bytes': total(links, 'payload_sent', 'owners')},
      'dealer': {
          'formula_bits': 2 * noising.joint_distribution(parameters).bits
          if parameters.noise == 'joint' else 0,
          'message_bytes':
              parameters.num_servers * noising.dealt_bytes(parameters),
          'payload_bytes': total(links, 'payload_sent', 'dealt')},
      'answers': {
          'formula_bits': answers,
          'payload_bytes': sum(
              one.sent[Kind.POINTS] + one.received[Kind.SHARES]
              for one in answer.traffic.values())},
      'wire_bytes': total(links, 'wire_sent') + total(links, 'wire_received'),
      'links': links}


def smooth(parameters: Parameters, answer: client.Answer) -> np.ndarray:
  """Returns monotone ranks [classes, N] by weighted least squares.

  The weights are those of the noise of the dyadic nodes.
  """
  import jax
  import jax.numpy as jnp

  from dpjax.stats.ecdf_methods import smoothing

  rows = noising.num_rows(parameters)
  variances = np.ones(dyadic_calibration.num_levels(rows))
  # Without `root` the node of all thresholds has no noise.
  variances[-1] = parameters.root or rows == 1
  end = 'at_most' if rows < parameters.num_thresholds else 'free'
  with jax.enable_x64(True):
    project = jax.jit(lambda ranks, total: smoothing.least_squares(
        ranks, total, jnp.asarray(variances), end))
    projected = [np.asarray(project(jnp.asarray(line[:rows], jnp.float64),
                                    jnp.float64(line[-1])))
                 for line in answer.numbers]
  return np.stack([np.append(line, noisy[rows:])
                   for line, noisy in zip(projected, answer.numbers,
                                          strict=True)])


def from_tree(parameters: Parameters, answer: client.Answer) -> np.ndarray:
  """Returns monotone ranks [classes, N] from tree counts, by least squares.

  The trees of both classes are joined at a common root, whose count n may be
  public.
  """
  size, leaves = parameters.num_thresholds, math.prod(parameters.shape)
  levels, place = [], 0
  for count, full in zip(nodes.tree_sizes(size, parameters.shape),
                         np.cumprod(parameters.shape), strict=True):
    level = answer.numbers[:, place:place + count].astype(np.float64)
    levels.append(np.pad(level, [(0, 0), (0, full - count)]).reshape(-1))
    place += count
  alive = np.tile(np.arange(leaves) < size,
                  parameters.num_classes).astype(np.float64)
  counts = hierarchy.nonnegative(
      levels, tree_shape(parameters), (1.0,) * len(levels), alive,
      answer.num_records)
  total = answer.num_records or math.inf  # rounding may push sums above n
  return np.minimum(
      np.cumsum(counts.reshape(parameters.num_classes, -1)[:, :size], 1), total)


def tree_shape(parameters: Parameters) -> hierarchy.Shape:
  """Returns the shape of the joint tree over all classes."""
  return (parameters.num_classes * parameters.shape[0], *parameters.shape[1:])


def standard_deviation(parameters: Parameters) -> float:
  """Returns the standard deviation of ranks, before they are made monotone.

  For a tree it is the root of the mean variance over all ranks.
  """
  variance = noising.released_variance(parameters)
  if parameters.shape:
    known = parameters.knows_total and parameters.num_classes == 1
    variance *= hierarchy.mean_variance(
        parameters.shape, (1.0,) * len(parameters.shape),
        parameters.num_thresholds, known=known)
  return math.sqrt(variance)


def curve(parameters: Parameters, points: np.ndarray | None,
          answer: client.Answer) -> dict[str, object]:
  """Returns thresholds and released numbers, as a dictionary for JSON.

  If the whole curve was released, it also has monotone ranks and, with two
  classes, the area under the ROC curve.
  """
  thresholds = grid_of(parameters).thresholds
  result = {'thresholds': (thresholds if points is None else
                           thresholds[points]).tolist(),
            'noisy_counts' if parameters.shape else 'noisy_ranks':
            answer.numbers.tolist()}
  if answer.num_records is not None:
    result['num_records'] = answer.num_records
  if points is None or parameters.shape:
    ranks = (from_tree if parameters.shape else smooth)(parameters, answer)
    result['ranks'] = (ranks if points is None else ranks[:, points]).tolist()
    if parameters.num_classes == 2 and (ranks[:, -1] > 0).all():
      # Probability that a record of class 1 has a larger value than one of
      # class 0; ties count one half.
      steps = np.diff(ranks[0] / ranks[0, -1], prepend=0.0)
      other = np.append(0.0, ranks[1] / ranks[1, -1])
      result['auc'] = float(1 - steps @ (other[1:] + other[:-1]) / 2)
  return result


def guarantee(parameters: Parameters) -> dict[str, object]:
  """Returns the privacy guarantee and its trust assumptions, for JSON."""
  tv = noising.total_variation(parameters)
  return {
      'notion': 'epsilon-DP of everything released to clients, up to the delta '
                'of drawing noise; computational security against '
                f'{parameters.num_colluding} of {parameters.num_servers} '
                'servers',
      'epsilon': parameters.epsilon, 'adjacency': parameters.adjacency,
      'delta_of_drawing': (1 + math.exp(parameters.epsilon)) * tv,
      'noise': parameters.noise,
      'noise_scale': float(noising.scale(parameters)),
      'standard_deviation': standard_deviation(parameters),
      'trust': 'servers follow the protocol' + (
          '; the dealer colludes with none of them'
          if parameters.noise == 'joint' else '')}


def draw(release: dict[str, Any], path: str, digest: str) -> None:
  """Draws the noisy and the smoothed ranks against the thresholds."""
  drawn, axes = plots.new(height=3.4)
  ax, x = axes[0][0], release['thresholds']
  for label, lines in (('noisy', 'noisy_ranks'), ('smoothed', 'ranks')):
    for number, line in enumerate(release.get(lines, [])):
      ax.step(x, line, where='post', label=label if len(
          release[lines]) == 1 else f'{label}, class {number}', linewidth=1.0)
  ax.set_xlabel('threshold')
  ax.set_ylabel('records up to it')
  ax.legend()
  plots.save(drawn, path, digest=digest)


def print_summary(release: dict[str, Any]) -> None:
  """Prints a summary of the content of --output."""
  guarantee = release['guarantee']
  print(f'{len(release["thresholds"])} thresholds, epsilon '
        f'{guarantee["epsilon"]:g}, {guarantee["adjacency"]}, standard '
        f'deviation {guarantee["standard_deviation"]:.4g}')
  if 'num_records' in release:
    print(f'{release["num_records"]} of '
          f'{release["parameters"]["num_owners"]} owners')
  for name, refused in release.get('refused', {}).items():
    for refusal in refused:
      print(f'{name} refused {refusal["party"]}, {refusal["times"]} times: '
            f'{refusal["reason"]}')
  for text in release['faults']:
    print(f'at fault: {text}')
