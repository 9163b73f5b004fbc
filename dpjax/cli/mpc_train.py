r"""Trains a network on gradients that no server sees, without clipping.

Runs servers, data owners and a client as processes on this machine that talk
over TLS. Each owner holds one record and sends its plain gradient as secret
shares; the servers open only noisy sums.

A linear model on the records of 455 owners, with two servers:
  dpjax mpc_train --epsilon=1 --output=run.json

Images of digits held by 1,000 owners, with three servers:
  dpjax mpc_train --dataset=digits --owners=1000 --servers=3 --epsilon=8 \
    --output=run.json

Guarantee. All released parameters together are (epsilon, delta)-DP for each
owner, under replace-one: an owner's record is replaced by any other. It holds
against all servers but one, all other owners, relays and the client, if they
follow the protocol: each server adds enough noise by itself. They learn which
owners took part in each round. An owner who breaks the protocol can spoil the
result, not the privacy of others. Options of training must not be chosen by
looking at runs on the same records, and the accuracy is that on records of the
data set that no owner holds.

The bound of a gradient's norm follows from the public weights of the network,
and every owner verifies it, so nobody clips. An owner with one record could
clip its gradient by itself, as in DP-SGD; but with many records clipping needs
code that runs for each of them, where this needs one ordinary backward pass.

The person who sets up a study (with this command) could impersonate any party
and is trusted not to. Here one machine runs all parties, which is a rehearsal:
it protects nobody from that machine.
"""

from collections.abc import Sequence
import functools
import json
import pathlib
import secrets
import statistics
import tempfile
from typing import Any, TYPE_CHECKING

from absl import flags
import numpy as np

from dpjax.cli import errors
from dpjax.cli import flags as shared
from dpjax.cli import mpc_parties as parties
from dpjax.mpc.parties import setup
from dpjax.mpc.parties import sum_parameters
from dpjax.mpc.parties import sum_server
from dpjax.report import files

if TYPE_CHECKING:
  from dpjax.cli.mpc_training import Trained

# JAX and SciPy are imported inside functions, so that servers start fast.

_RECORDS = shared.add_shared(flags.FlagValues(), 'data_dir')
_DATASET = flags.DEFINE_string(
    'dataset', 'breast_cancer', 'Name of a data set of the library; '
    'breast_cancer and digits need no files.', _RECORDS)
_OWNERS = flags.DEFINE_integer(
    'owners', None, 'Number of owners, each with one record. The other records '
    'are for the accuracy. Default: 80 % of the records.', 2,
    flag_values=_RECORDS)

_TRAINING = flags.FlagValues()
_MODEL = flags.DEFINE_enum(
    'model', 'linear', ['linear', 'orthogonal'], 'Network: linear logits of '
    'features of norm 1, or hidden layers with orthogonal weights.', _TRAINING)
_ROUNDS = flags.DEFINE_integer(
    'rounds', 30, 'Number T of gradient steps, each on the records of all '
    'owners.', 1, flag_values=_TRAINING)
_RATE = flags.DEFINE_float(
    'learning_rate', 2.0, 'Size of a step.', flag_values=_TRAINING)
_DEPTH = flags.DEFINE_integer(
    'depth', 1, 'Hidden layers of orthogonal.', 1, flag_values=_TRAINING)
_WIDTH = flags.DEFINE_integer(
    'width', 16, 'Units of each hidden layer of orthogonal.', 2,
    flag_values=_TRAINING)
_NORM = flags.DEFINE_float(
    'weight_norm', 1.0, 'Bound of the norm of the last layer of orthogonal.',
    flag_values=_TRAINING)

_PRIVACY = flags.FlagValues()
_EPSILON = flags.DEFINE_float(
    'epsilon', None, 'Budget of the whole run.', flag_values=_PRIVACY)
_DELTA = flags.DEFINE_float(
    'delta', 1e-5, 'Delta of the whole run, in [1e-12, 1).',
    flag_values=_PRIVACY)
_MIN_OWNERS = flags.DEFINE_integer(
    'min_owners', 0, 'Least number of owners in a round.', 0,
    flag_values=_PRIVACY)
_BITS = flags.DEFINE_integer(
    'granularity_bits', 16, 'b: gradients are rounded to multiples of their '
    'bound / 2^b.', 1, flag_values=_PRIVACY)

_PARTIES = flags.FlagValues()
_SERVERS = flags.DEFINE_integer(
    'servers', 2, 'Number of servers; all but one may collude.', 2,
    flag_values=_PARTIES)
_RELAYS = flags.DEFINE_integer(
    'relays', 2, 'Number of processes that compute and send for the owners.', 1,
    flag_values=_PARTIES)
_TIMEOUT = flags.DEFINE_float(
    'timeout', 60.0, 'Seconds after which a silent party is at fault.',
    flag_values=_PARTIES)
_PATIENCE = flags.DEFINE_float(
    'patience', 20.0, 'Seconds that a round waits for owners who have not '
    'sent; below --timeout.', flag_values=_PARTIES)
_STUDY = flags.DEFINE_string(
    'study', None, 'Folder of the study, with its keys and records. Default: a '
    'temporary folder.', _PARTIES)
_ROLE = flags.DEFINE_enum(
    'role', 'all', ['all', 'server', 'relay'], 'Run a single party of an '
    'existing study, or all of them.', _PARTIES)
_INDEX = flags.DEFINE_integer(
    'index', 0, 'Number of the server or relay, from 0.', 0,
    flag_values=_PARTIES)

_FILES = flags.FlagValues()
_OUTPUT = flags.DEFINE_string(
    'output', None, 'JSON file for the weights, the guarantee and the costs.',
    _FILES)

_GROUPS = {
    'The records': _RECORDS,
    'Training': _TRAINING,
    'Privacy': _PRIVACY,
    'The parties': _PARTIES,
    'Output': _FILES}

_MAIN = ('dataset owners model rounds learning_rate epsilon delta servers '
         'relays output').split()
parse = functools.partial(errors.parse_groups, groups=_GROUPS,
                          doc=__doc__ or '', main=_MAIN)


def _records() -> tuple[np.ndarray, np.ndarray, int]:
  """Returns features [n, p] in [-1, 1] and classes [n], shuffled; and c."""
  from dpjax.data import images
  from dpjax.data import registry
  data = registry.load(_DATASET.value, data_dir=shared.DATA_DIR.value)
  if isinstance(data, images.ImageDataset):
    parts = (data.train, data.test)
    x = np.concatenate([np.asarray(part[0]).reshape(len(part[0]), -1)
                        for part in parts]) / np.float32(data.max_value)
    y = np.concatenate([np.asarray(part[1]) for part in parts])
  else:
    x, y = np.asarray(data.x), np.asarray(data.y)
  # A public order, which tells nothing of the records.
  order = np.random.default_rng(0).permutation(len(x))
  return x[order].astype(np.float32), y[order], data.num_classes


def _run(study: pathlib.Path) -> dict[str, Any]:
  """Runs the study; returns the content of --output."""
  from dpjax.cli import mpc_task
  from dpjax.cli import mpc_training as training
  from dpjax.features import combining

  x, y, num_classes = _records()
  owners = _OWNERS.value or len(x) * 4 // 5
  if not owners < len(x):
    raise ValueError(f'--owners must be below the {len(x)} records of '
                     f'{_DATASET.value}, got {owners}')
  x = np.asarray(combining.UnitNorm()(x))
  # The start is public, and needs no secret randomness.
  task = mpc_task.Task(
      model=_MODEL.value, num_features=x.shape[1], num_classes=num_classes,
      seed=secrets.randbelow(2**32), depth=_DEPTH.value, width=_WIDTH.value,
      weight_norm=_NORM.value)
  parameters = training.parameters_for(
      task, session=secrets.token_hex(16), num_owners=owners,
      num_servers=_SERVERS.value, num_rounds=_ROUNDS.value,
      epsilon=shared.given(_EPSILON), delta=_DELTA.value,
      granularity_bits=_BITS.value, min_owners=_MIN_OWNERS.value)
  trained = training.run(
      study, task, parameters, x[:owners], y[:owners],
      learning_rate=_RATE.value, num_relays=_RELAYS.value,
      timeout=_TIMEOUT.value, patience=_PATIENCE.value)
  summed = parameters.vector_sum
  return {
      'accuracy': task.accuracy(trained.flat, x[owners:], y[owners:]),
      'guarantee': {
          'epsilon': summed.epsilon(delta=_DELTA.value,
                                    num_sums=_ROUNDS.value),
          'delta': _DELTA.value, 'rho': _ROUNDS.value * summed.rho,
          'relation': 'replace_one, between owners',
          'against': f'all servers but one of {_SERVERS.value}, other owners, '
                     'relays and the client, if they follow the protocol'},
      'dataset': _DATASET.value, 'learning_rate': _RATE.value,
      'task': json.loads(task.to_bytes()),
      'parameters': json.loads(parameters.to_bytes()),
      **_costs(trained), 'weights': task.kernels(trained.flat)}


def _costs(trained: 'Trained') -> dict[str, Any]:
  """Returns what rounds cost, and who took part."""
  return {
      'took_part': trained.took_part, 'faults': trained.faults,
      'bytes_per_owner_and_round': {'payload': trained.owner_bytes,
                                    'wire': trained.wire_bytes},
      'seconds_per_round': {'median': statistics.median(trained.seconds),
                            'all': trained.seconds},
      'seconds': {name: report.get('seconds')
                  for name, report in trained.reports.items()},
      'refused': {name: report.get('refused')
                  for name, report in trained.reports.items()}}


def _print_summary(release: dict[str, Any]) -> None:
  """Prints accuracy, guarantee and costs."""
  guarantee = release['guarantee']
  sizes = release['bytes_per_owner_and_round']
  parameters = release['parameters']
  print(f'accuracy {release["accuracy"]:.3f} on records that no owner holds')
  print(f'epsilon {guarantee["epsilon"]:.4g} at delta {guarantee["delta"]:g} '
        f'for each of {parameters["num_owners"]} owners, '
        f'{parameters["num_rounds"]} rounds')
  print(f'{release["seconds_per_round"]["median"]:.3f} seconds per round')
  shown = ', '.join(f'{size:.0f} to {peer}'
                    for peer, size in sizes['payload'].items())
  print(f'{sum(sizes["payload"].values()):.0f} bytes per owner and round '
        f'({shown}); {sum(sizes["wire"].values()):.0f} on the wire')
  for fault in release['faults']:
    print(f'fault: {fault}')


def _serve(study: pathlib.Path) -> int:
  """Runs one server until it is stopped."""
  parameters = sum_parameters.from_bytes(setup.parameters_bytes(study))
  parties.run_until_stopped(sum_server.SumServer(
      study / parameters.servers[_INDEX.value], study / 'addresses',
      _INDEX.value, parameters, timeout=_TIMEOUT.value))
  return 0


def main(argv: Sequence[str]) -> int:
  """Runs the study, or one party with --role; returns the exit status."""
  errors.check_no_arguments(argv)
  # Without it each party would fail by itself.
  errors.check_extra('cryptography', 'mpc', 'studies of several parties')
  if _ROLE.value != 'all':
    shared.check_given({'study': _STUDY.value})
    study = pathlib.Path(_STUDY.value or '')
    if _ROLE.value == 'server':
      return _serve(study)
    from dpjax.cli import mpc_training
    return mpc_training.relay(study, f'owners{_INDEX.value}', _TIMEOUT.value)
  shared.check_given({'epsilon': _EPSILON.value, 'output': _OUTPUT.value})
  if not 0 <= _PATIENCE.value < _TIMEOUT.value:
    raise ValueError(f'--patience must be below --timeout = {_TIMEOUT.value:g},'
                     f' got {_PATIENCE.value:g}')
  output = shared.given(_OUTPUT)
  errors.check_outputs(
      {'output': output}, inputs={},
      kept={'--study': _STUDY.value} if _STUDY.value else {})
  errors.check_output('output', output)
  # Without --study, keys are removed with the folder.
  with tempfile.TemporaryDirectory() as scratch:
    release = _run(pathlib.Path(_STUDY.value or f'{scratch}/study').resolve())
  files.replace(output, json.dumps(release, indent=1, allow_nan=False).encode()
                + b'\n')
  _print_summary(release)
  return 0
