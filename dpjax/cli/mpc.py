r"""Releases a private distribution function by multi-party computation.

Runs servers, data owners, a dealer and a client as processes on this machine
that talk over TLS. No server sees the records.

A demonstration with 10,000 synthetic owners and two servers:
  dpjax mpc --demo=10000 --lower=0 --upper=1 --epsilon=1 \
    --adjacency=replace_one --output=curve.json --plot=curve.svg

Three ages of a survey, with three servers, none of which learns anything alone:
  dpjax mpc --input=survey.csv --column=age --lower=0 --upper=120 \
    --num_thresholds=120 --thresholds=18,40,65 --epsilon=0.5 --servers=3 \
    --scheme=outer_product --adjacency=replace_one --output=ages.json

A server is killed, and the study is resumed:
  dpjax mpc --demo=1000 --lower=0 --upper=1 --epsilon=1 \
    --adjacency=replace_one --output=curve.json --study=here --fault=kill_server
  dpjax mpc --output=curve.json --study=here --resume

Trust model. Each owner secret-shares its bin among the servers, which follow
the protocol. Several servers may pool what they see: all but one with the
schemes `comparison` and `additive`, --colluding of them with `outer_product`.
They learn only who took part and what is released. With `joint` noise (two
servers) the noise is that of a trusted curator and no party knows it; a dealer
sends keys for it and must not collude with a server. With `contributions` each
server draws a part of the noise: the servers that do not collude draw enough,
and the other parts are extra noise. The client learns noisy counts. Relays
carry the owners' messages; they learn nothing and any change to a message is
detected. The person who sets up a study (with this command) could impersonate
any party and is trusted not to. Here one machine runs all parties, which is a
rehearsal: it protects nobody from that machine.

One study is one release: noise is drawn once and stored, so any number of
queries costs epsilon in total. The same data in another study are another
release.
"""

from collections.abc import Sequence
import functools
import hashlib
import json
import math
import pathlib
import secrets
import tempfile
import time
from typing import Any

from absl import flags
import numpy as np

from dpjax.cli import errors
from dpjax.cli import file_formats
from dpjax.cli import flags as shared
from dpjax.cli import mpc_parties as parties
from dpjax.mpc import costs
from dpjax.mpc import schemes
from dpjax.mpc.parties import client
from dpjax.mpc.parties import noising
from dpjax.mpc.parties import setup
from dpjax.mpc.parties.parameters import NOISES
from dpjax.mpc.parties.parameters import Parameters
from dpjax.privacy.adjacency import Adjacency
from dpjax.report import files
from dpjax.stats.ecdf_methods import grids
from dpjax.tables import formats
from dpjax.tables import reader

# JAX and SciPy are imported inside functions, so that servers start fast.

_RECORDS = flags.FlagValues()
_INPUT = flags.DEFINE_string(
    'input', None, f'File with a header: {", ".join(reader.FORMATS)}.',
    _RECORDS)
_COLUMN = flags.DEFINE_string(
    'column', None, 'Name of a numeric column.', _RECORDS)
_LABEL = flags.DEFINE_string(
    'label', None, 'Name of a column of secret labels 0 and 1. Releases a '
    'curve for each label, and the area under the ROC curve.', _RECORDS)
_DEMO = flags.DEFINE_integer(
    'demo', None, 'Number of synthetic owners, instead of a file.', 1,
    flag_values=_RECORDS)
for _name, _text in file_formats.FLAGS:
  # Every owner has one number, so none may be missing.
  if _name not in ('missing_tokens', 'unparsed', 'bad_lines'):
    flags.DEFINE_string(_name, None, _text, _RECORDS)

_CURVE = flags.FlagValues()
_LOWER = flags.DEFINE_float(
    'lower', None, 'Public lower bound of the values.', flag_values=_CURVE)
_UPPER = flags.DEFINE_float(
    'upper', None, 'Public upper bound of the values, the last threshold.',
    flag_values=_CURVE)
_GRID = flags.DEFINE_enum(
    'grid', 'uniform', grids.KINDS, 'Spacing of the thresholds.', _CURVE)
_N = flags.DEFINE_integer(
    'num_thresholds', 1024, 'Number N of thresholds of the public grid.', 2,
    flag_values=_CURVE)
_THRESHOLDS = flags.DEFINE_string(
    'thresholds', None, 'Numbers; each is rounded up to a threshold of the '
    'grid, at which the curve is evaluated. Default: the whole curve.', _CURVE)
_NODES = flags.DEFINE_enum(
    'nodes', None, ['dyadic', 'tree'], 'Which counts get noise: dyadic nodes, '
    'several per threshold (Barczewski, 2025); or nodes of a tree, all '
    'released together, with a sixth of the squared error at N = 1024. '
    'Default: tree, or dyadic with --thresholds.', _CURVE)

_PRIVACY = flags.FlagValues()
_EPSILON = flags.DEFINE_float(
    'epsilon', None, 'Budget of the whole curve.', flag_values=_PRIVACY)
_ADJACENCY = flags.DEFINE_enum(
    'adjacency', None, [one.value for one in Adjacency], 'Which data sets are '
    'neighbours. With replace_one, the set of owners who took part is public. '
    'Otherwise only the servers know it; the set of enrolled owners, the rows '
    'of the file, is public.', _PRIVACY)
_NOISE = flags.DEFINE_enum(
    'noise', None, NOISES, 'How noise is drawn. Default: joint for the scheme '
    'comparison, contributions otherwise.', _PRIVACY)
_MIN_OWNERS = flags.DEFINE_integer(
    'min_owners', 0, 'Least number of owners for a release; with replace_one '
    'only.', 0, flag_values=_PRIVACY)

_PARTIES = flags.FlagValues()
_SERVERS = flags.DEFINE_integer(
    'servers', 2, 'Number of servers.', 2, flag_values=_PARTIES)
_COLLUDING = flags.DEFINE_integer(
    'colluding', 1, 'With outer_product: how many servers may collude, less '
    'than half of them.', 1, flag_values=_PARTIES)
_SCHEME = flags.DEFINE_enum('scheme', 'comparison', sorted(schemes.SCHEMES),
                            'Secret-sharing scheme of the records.', _PARTIES)
_BITS = flags.DEFINE_integer(
    'value_bits', 32, 'k: counts are modulo 2^k.', 2, flag_values=_PARTIES)
_RELAYS = flags.DEFINE_integer(
    'relays', 1, 'Number of processes that send for the owners.', 1,
    flag_values=_PARTIES)
_TIMEOUT = flags.DEFINE_float(
    'timeout', 30.0, 'Seconds after which a silent party is at fault.',
    flag_values=_PARTIES)
_STUDY = flags.DEFINE_string(
    'study', None, 'Folder of the study, with its keys; kept for --resume. '
    'Default: a temporary folder.', _PARTIES)
_RESUME = flags.DEFINE_bool(
    'resume', False, 'Restart the servers of --study and query them.', _PARTIES)
_FAULT = flags.DEFINE_enum(
    'fault', '', ['', *parties.FAULTS], 'A fault to demonstrate. ' +
    ' '.join(f'{name}: {text}.' for name, text in parties.FAULTS.items()),
    _PARTIES)
_ROLE = flags.DEFINE_enum(
    'role', 'all', ['all', 'server', 'relay', 'dealer'], 'Run a single party '
    'of an existing study, or all of them.', _PARTIES)
_INDEX = flags.DEFINE_integer(
    'index', 0, 'Number of the server or relay, from 0.', 0,
    flag_values=_PARTIES)

_FILES = flags.FlagValues()
_OUTPUT = flags.DEFINE_string(
    'output', None, 'JSON file for the release.', _FILES)
_PLOT = flags.DEFINE_string(
    'plot', None, 'File for a figure, .svg.', _FILES)

_GROUPS = {
    'The records': _RECORDS,
    'The curve': _CURVE,
    'Privacy': _PRIVACY,
    'The parties': _PARTIES,
    'Output': _FILES}

_MAIN = (
    'input column demo lower upper epsilon adjacency servers thresholds '
    'output').split()
parse = functools.partial(errors.parse_groups, groups=_GROUPS,
                          doc=__doc__ or '', main=_MAIN)


def _required() -> dict[str, object]:
  """Returns the flags that the command needs, and their values."""
  if _RESUME.value:
    return {'study': _STUDY.value, 'output': _OUTPUT.value}
  of_file = {} if _DEMO.value is not None else {'column': _COLUMN.value}
  return {'input (or --demo)': _INPUT.value or _DEMO.value, **of_file,
          **{flag.name: flag.value for flag in (
              _LOWER, _UPPER, _EPSILON, _ADJACENCY, _OUTPUT)}}


def _column(name: str) -> np.ndarray:
  """Returns a numeric column of --input."""
  path = shared.given(_INPUT)
  try:
    form = file_formats.of_flags(_RECORDS, path)
    return reader.table(path, form).numbers(name, gaps=False)
  except formats.FileError as error:
    raise ValueError(f'{error.fault}: every owner must have one number; '
                     'clean the file first') from None


def _data() -> tuple[np.ndarray, np.ndarray | None]:
  """Returns the owners' values, and their labels or None."""
  if _DEMO.value is not None and _INPUT.value is not None:
    raise ValueError('give one of --input and --demo, not both')
  if _DEMO.value is not None:
    # Synthetic records may have a public seed.
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, _DEMO.value) if _LABEL.value else None
    shares = rng.beta(2.0, 5.0 if labels is None else 6.0 - 3 * labels,
                      _DEMO.value)
    lower, upper = shared.given(_LOWER), shared.given(_UPPER)
    return lower + (upper - lower) * shares, labels
  labels = _column(_LABEL.value) if _LABEL.value else None
  if labels is not None and not np.isin(labels, [0, 1]).all():
    raise ValueError(f'column {_LABEL.value} must hold labels 0 and 1 only')
  return _column(shared.given(_COLUMN)), (None if labels is None else
                                  labels.astype(np.int64))


def _noisy(adjacency: Adjacency, num_classes: int
           ) -> tuple[tuple[int, ...], tuple[int, bool]]:
  """Returns the tree's shape, () for dyadic nodes, and (l1 sensitivity, root).

  `root` is whether the dyadic node of all thresholds has noise.
  """
  from dpjax.cli import mpc_answers
  from dpjax.stats.ecdf_methods import hierarchy

  nodes = _NODES.value or ('dyadic' if _THRESHOLDS.value else 'tree')
  if nodes == 'dyadic':
    return (), mpc_answers.sensitivity(_N.value, adjacency, num_classes)
  known = adjacency is Adjacency.REPLACE_ONE
  shape = hierarchy.best_shape(_N.value, known=known, pure=True)
  # A record is counted once in each level, in one class. Replacing it changes
  # two counts per level.
  return shape, (len(shape) * (1 + known), False)


def _set_up(study: pathlib.Path) -> Parameters:
  """Creates the study that the flags describe; returns its parameters."""
  lower, upper, epsilon = map(shared.given, (_LOWER, _UPPER, _EPSILON))
  adjacency = Adjacency(shared.given(_ADJACENCY))
  if _SCHEME.value != 'outer_product' and _COLLUDING.present:
    raise ValueError('--colluding is for outer_product: in other schemes all '
                     'servers but one may collude')
  grid = grids.Grid(lower=lower, upper=upper, kind=_GRID.value,
                    num_thresholds=_N.value)
  values, labels = _data()
  classes = 1 if labels is None else 2
  shape, (l1_sensitivity, root) = _noisy(adjacency, classes)
  parameters = Parameters(
      session=secrets.token_hex(16), scheme=_SCHEME.value,
      num_servers=_SERVERS.value, num_classes=classes,
      num_colluding=_COLLUDING.value if _SCHEME.value == 'outer_product' else
      _SERVERS.value - 1, num_thresholds=_N.value, lower=lower,
      upper=upper, grid=_GRID.value, epsilon=epsilon,
      adjacency=adjacency.value, sensitivity=l1_sensitivity, root=root,
      shape=shape,
      noise=_NOISE.value or (
          'joint' if _SCHEME.value == 'comparison' else 'contributions'),
      value_bits=_BITS.value, num_owners=len(values),
      min_owners=_MIN_OWNERS.value)
  # Counts are modulo 2^k and must not wrap around.
  costs.check_width(parameters.build_scheme(), len(values),
                    math.sqrt(noising.released_variance(parameters)))
  setup.create(study, parameters, grid.bins(values), labels, _RELAYS.value)
  return parameters


def _collect(study: pathlib.Path, parameters: Parameters,
             running: parties.Processes) -> list[str]:
  """Runs the owners and the dealer; returns their errors."""
  faulty = _FAULT.value not in ('', 'kill_server', 'kill_owners', 'parameters')
  relays = setup.relays(study)
  for index, name in enumerate(relays):
    running.start(name, 'relay', f'--index={index}', *(
        [f'--fault={_FAULT.value}'] if faulty and index == 0 else []))
  if parameters.noise == 'joint':
    running.start('dealer', 'dealer')
  if _FAULT.value == 'kill_owners':
    parties.until_some_are_there(study, parameters, _TIMEOUT.value)
    running.kill(relays[0])
  outcomes = [running.wait(name) for name in relays]
  if parameters.noise == 'joint':
    outcomes.append(running.wait('dealer'))
  return [text for text in outcomes if text]


def _ask(study: pathlib.Path, parameters: Parameters, wrong: list[str],
         seconds: dict[str, float]) -> dict[str, Any]:
  """Asks the servers; returns the content of --output."""
  from dpjax.cli import mpc_answers

  points = None
  if _THRESHOLDS.value:
    values = np.array(
        shared.numbers('thresholds', _THRESHOLDS.value, float))
    points = np.unique(
        mpc_answers.grid_of(parameters).bins(values)).astype(np.int64)
  start = time.monotonic()
  asked = None if parameters.shape else points  # a tree is released as a whole
  answer = client.ask(parameters, asked, folder=study / 'client',
                      addresses=study / 'addresses',
                      timeout=10 * _TIMEOUT.value)
  seconds['client'] = time.monotonic() - start
  start = time.monotonic()
  curve = mpc_answers.curve(parameters, points, answer)
  seconds['smoothing'] = time.monotonic() - start
  reports = {name: parties.report_of(study, name)
             for name in parameters.servers}
  refused = {name: seen.get('refused', []) for name, seen in reports.items()}
  release = {
      **curve, 'guarantee': mpc_answers.guarantee(parameters),
      'parameters': json.loads(parameters.to_bytes()),
      'faults': [*wrong, *answer.faults]}
  if not parameters.knows_total:
    # Refusals, bytes and seconds would reveal how many owners took part.
    return release
  return {
      **release, 'refused': refused,
      'bits': mpc_answers.bits(
          parameters, study, None if asked is None else asked.size, answer),
      'seconds': {**seconds, **{name: seen.get('seconds')
                                for name, seen in reports.items()}}}


def _run(study: pathlib.Path) -> dict[str, Any]:
  """Runs the study and returns its release.

  Raises:
    Fault: if a party prevents the release.
  """
  seconds: dict[str, float] = {}
  wrong: list[str] = []
  start = time.monotonic()
  parameters = setup.read(study) if _RESUME.value else _set_up(study)
  seconds['setup'] = time.monotonic() - start
  with parties.Processes(study, _TIMEOUT.value) as running:
    start = time.monotonic()
    running.start_servers(parameters, _FAULT.value)
    seconds['start'] = time.monotonic() - start
    start = time.monotonic()
    # Resumed servers have all messages on disk.
    if not _RESUME.value:
      wrong = _collect(study, parameters, running)
    seconds['owners'] = time.monotonic() - start
    if _FAULT.value == 'kill_server':
      running.kill(parameters.servers[-1])
    release = _ask(study, parameters, wrong, seconds)
  return release


def main(argv: Sequence[str]) -> int:
  """Runs the study, or one party with --role; returns the exit status."""
  errors.check_no_arguments(argv)
  # Without it each party would fail by itself.
  errors.check_extra('cryptography', 'mpc', 'studies of several parties')
  if _ROLE.value != 'all':
    shared.check_given({'study': _STUDY.value})
    study = pathlib.Path(_STUDY.value or '')
    if _ROLE.value == 'server':
      return parties.serve(study, _INDEX.value, _TIMEOUT.value, _EPSILON.value)
    if _ROLE.value == 'relay':
      return parties.relay(study, f'owners{_INDEX.value}', _TIMEOUT.value,
                           _FAULT.value)
    return parties.deal(study, _TIMEOUT.value)
  shared.check_given(_required())
  errors.check_outputs(
      {'output': _OUTPUT.value, 'plot': _PLOT.value},
      inputs={'input': _INPUT.value},
      kept={'--study': _STUDY.value} if _STUDY.value else {})
  # Noise is drawn once, so the answer must not get lost.
  output = shared.given(_OUTPUT)
  errors.check_output('output', output)
  if _PLOT.value:
    errors.check_figure(_PLOT.value)
  # Without --study, keys are removed with the folder.
  with tempfile.TemporaryDirectory() as scratch:
    release = _run(pathlib.Path(_STUDY.value or f'{scratch}/study').resolve())
  text = json.dumps(release, indent=1, allow_nan=False).encode() + b'\n'
  files.replace(output, text)
  from dpjax.cli import mpc_answers
  if _PLOT.value:
    mpc_answers.draw(release, _PLOT.value, hashlib.sha256(text).hexdigest())
  mpc_answers.print_summary(release)
  return 0
