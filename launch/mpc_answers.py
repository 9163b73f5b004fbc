"""What a client makes of an answer: curves, their guarantee, counted bytes."""

import math
import pathlib

import numpy as np

from dpjax.mpc import costs
from dpjax.mpc import nodes
from dpjax.mpc import packing
from dpjax.mpc.parties import client
from dpjax.mpc.parties import noising
from dpjax.mpc.parties.channel import Kind
from dpjax.mpc.parties.parameters import Parameters
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.ecdf import dyadic_calibration
from dpjax.stats.ecdf import grids
from dpjax.stats.ecdf import hierarchy
from launch import mpc_parties


def sensitivity(num_thresholds: int, adjacency: Adjacency,
                num_classes: int) -> tuple[int, bool]:
  """How far a record moves dyadic nodes, and whether a root pays.

  Of a curve whose last rank is n, and public, or of one or two curves of which
  nothing is; a record that changes its label moves both.
  """
  found = []
  for root in (True, False):
    price = lambda relation, known: dyadic_calibration.calibrate(
        num_thresholds, adjacency=relation, norm='l1', root=root,
        known_last_row=known)
    alone = adjacency is Adjacency.REPLACE_ONE and num_classes == 1
    worst = price(adjacency, alone)
    if adjacency is Adjacency.REPLACE_ONE and num_classes == 2:
      worst = max(worst, 2 * price(Adjacency.ADD_OR_REMOVE_ONE, False))
    if math.isfinite(worst):
      rows = num_thresholds - alone
      levels = dyadic_calibration.num_levels(rows) - (not root)
      found.append((levels * worst**2, round(worst), root))
  return min(found)[1:]


def grid_of(told: Parameters) -> grids.Grid:
  """The public grid of a study."""
  return grids.Grid(lower=told.lower, upper=told.upper,
                    num_thresholds=told.num_thresholds, kind=told.grid)


def bits(told: Parameters, study: pathlib.Path, num_points: int | None,
         answer: client.Answer) -> dict[str, object]:
  """Bits by formula beside bytes that were counted, of messages and by link.

  Messages are in payloads, each in whole bytes and with seal and number around
  it; payloads are on the wire, with headers, greetings, receipts and TLS.
  """
  scheme = told.build_scheme()
  count = noising.num_told(told) if num_points is None else num_points
  answers = costs.answering(scheme, count)
  if num_points is None:  # the whole curve takes no indices
    answers -= count * told.num_servers * (
        told.num_thresholds - 1).bit_length()
  links = {name: mpc_parties.report_of(study, name).get('traffic', {})
           for name in mpc_parties.senders(study)}
  # Of two servers, who has called tells.
  links |= {name: {peer: link for peer, link in mpc_parties.report_of(
      study, name).get('traffic', {}).items() if peer in told.servers[:index]}
            for index, name in enumerate(told.servers)}
  links['client'] = {peer: one.to_json() for peer, one in
                     answer.traffic.items()}
  total = lambda found, *names: sum(
      link[names[0]].get(names[1], 0) if len(names) > 1 else link[names[0]]
      for peers in found.values() for link in peers.values())
  return {
      'owners': {
          'formula_bits': costs.collecting(scheme, told.num_owners),
          'message_bytes': told.num_owners * sum(
              packing.num_bytes(scheme.bits(index))
              for index in range(told.num_servers)),
          'payload_bytes': total(links, 'payload_sent', 'owners')},
      'dealer': {
          'formula_bits': 2 * noising.joint_law(told).bits
          if told.noise == 'joint' else 0,
          'message_bytes': told.num_servers * noising.dealt_bytes(told),
          'payload_bytes': total(links, 'payload_sent', 'dealt')},
      'answers': {
          'formula_bits': answers,
          'payload_bytes': sum(
              one.sent[Kind.POINTS] + one.received[Kind.SHARES]
              for one in answer.traffic.values())},
      'wire_bytes': total(links, 'wire_sent') + total(links, 'wire_received'),
      'links': links}


def smooth(told: Parameters, answer: client.Answer) -> np.ndarray:
  """Monotone ranks [classes, N], by least squares in the noise's metric."""
  import jax
  import jax.numpy as jnp
  from dpjax.stats.ecdf import smoothing

  rows = noising.num_rows(told)
  variances = np.ones(dyadic_calibration.num_levels(rows))
  variances[-1] = told.root or rows == 1
  end = 'at_most' if rows < told.num_thresholds else 'free'
  with jax.enable_x64(True):
    project = jax.jit(lambda ranks, total: smoothing.least_squares(
        ranks, total, jnp.asarray(variances), end))
    found = [np.asarray(project(jnp.asarray(line[:rows], jnp.float64),
                                jnp.float64(line[-1])))
             for line in answer.numbers]
  return np.stack([np.append(line, noisy[rows:])
                   for line, noisy in zip(found, answer.numbers, strict=True)])


def from_tree(told: Parameters, answer: client.Answer) -> np.ndarray:
  """Monotone ranks [classes, N] of noisy counts of a tree, by least squares.

  Classes are parts of the top level: of both together n may be known.
  """
  size, leaves = told.num_thresholds, math.prod(told.shape)
  levels, place = [], 0
  for count, full in zip(nodes.tree_sizes(size, told.shape),
                         np.cumprod(told.shape), strict=True):
    level = answer.numbers[:, place:place + count].astype(np.float64)
    levels.append(np.pad(level, [(0, 0), (0, full - count)]).reshape(-1))
    place += count
  alive = np.tile(np.arange(leaves) < size, told.num_classes).astype(np.float64)
  counts = hierarchy.nonnegative(
      levels, tree_shape(told), np.ones(len(levels)), alive, answer.num_records)
  total = answer.num_records or math.inf  # sums end above it by rounding
  return np.minimum(
      np.cumsum(counts.reshape(told.num_classes, -1)[:, :size], 1), total)


def tree_shape(told: Parameters) -> hierarchy.Shape:
  """Of the tree over all classes."""
  return (told.num_classes * told.shape[0], *told.shape[1:])


def standard_deviation(told: Parameters) -> float:
  """Of ranks, a mean, at most; before they are made monotone."""
  variance = noising.told_variance(told)
  if told.shape:
    known = told.knows_total and told.num_classes == 1
    variance *= hierarchy.mean_variance(
        told.shape, (1.0,) * len(told.shape), told.num_thresholds, known=known)
  return math.sqrt(variance)


def curve(told: Parameters, points: np.ndarray | None,
          answer: client.Answer) -> dict[str, object]:
  """Thresholds and what was told; of the whole curve also monotone ranks."""
  thresholds = grid_of(told).thresholds
  found = {'thresholds': (thresholds if points is None else
                          thresholds[points]).tolist(),
           'noisy_counts' if told.shape else 'noisy_ranks':
           answer.numbers.tolist()}
  if answer.num_records is not None:
    found['num_records'] = answer.num_records
  if points is None or told.shape:
    ranks = (from_tree if told.shape else smooth)(told, answer)
    found['ranks'] = (ranks if points is None else ranks[:, points]).tolist()
    if told.num_classes == 2 and (ranks[:, -1] > 0).all():
      # That a record of class 1 has the larger value; ties count one half.
      steps = np.diff(ranks[0] / ranks[0, -1], prepend=0.0)
      other = np.append(0.0, ranks[1] / ranks[1, -1])
      found['auc'] = float(1 - steps @ (other[1:] + other[:-1]) / 2)
  return found


def guarantee(told: Parameters) -> dict[str, object]:
  """What holds, for whom, and if whom may be trusted."""
  tv = noising.total_variation(told)
  return {
      'notion': 'epsilon-DP of all that is told to clients, up to the delta '
                'that drawing costs; computational against '
                f'{told.num_colluding} of {told.num_servers} servers',
      'epsilon': told.epsilon, 'adjacency': told.adjacency,
      'delta_of_drawing': (1 + math.exp(told.epsilon)) * tv,
      'noise': told.noise, 'noise_scale': float(noising.scale(told)),
      'standard_deviation': standard_deviation(told),
      'trust': 'servers follow the protocol' + (
          '; the dealer colludes with none of them'
          if told.noise == 'joint' else '')}
